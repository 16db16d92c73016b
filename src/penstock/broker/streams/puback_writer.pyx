"""PubAckWriter: writes the answers to publishers into their buffers once the messages are durable.

Most answers are acks, thousands in a row for one client that receives its replies by one subscription (`_INBOX.x.*`). These differ
only in the subject's last token and the sequence: all else is laid out once for the row.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from penstock.broker.routing.client cimport Client
from penstock.wire.frame cimport DECIMAL_SIZE_MAX, write_decimal
from penstock.broker.routing.router cimport Router
from penstock.broker.streams.ingest cimport ANSWER_ACK, ANSWER_DUPLICATE, ANSWER_ERROR, SCRATCH_MORE, Chunk, Ingest, Waiting
from penstock.broker.routing.message_view cimport MessageView
from penstock.broker.routing.origin cimport KIND_CLIENT, ORIGIN_PUBACK
from penstock.broker.routing.sublist cimport Sub, Sublist

cdef enum:
    SLICE_CLIENTS = 24                     # clients that are answered before the sockets are polled again
    SID_MAX = 64                           # a client with a longer one is answered without a row

cdef struct Row:
    Sub* sub                               # its subscriber; NULL: there is none yet
    uint8_t* tail                          # what follows the subject, up to the sequence
    uint32_t tail_size
    uint64_t seq                           # of the ack that was written last
    uint8_t digits[DECIMAL_SIZE_MAX]
    uint32_t digit_count


cdef inline bint _step(Row* row) noexcept nogil:
    """Count the digits up to the next sequence, if it has as many: cheaper than a conversion for each of thousands."""
    cdef uint32_t at = row.digit_count
    while at and row.digits[at - 1] == c"9":
        at -= 1
    if at == 0:
        return False
    row.digits[at - 1] += 1
    while at < row.digit_count:
        row.digits[at] = c"0"
        at += 1
    row.seq += 1
    return True


cdef void _begin(Row* row, Sub* sub, bytes head, uint64_t seq) noexcept:
    """A row for `sub` that is at `seq`."""
    cdef uint32_t head_size = <uint32_t>PyBytes_GET_SIZE(head)
    cdef uint8_t* out = row.tail
    row.sub = sub
    row.seq = seq
    row.digit_count = <uint32_t>write_decimal(row.digits, seq)
    out[0] = c" "
    memcpy(out + 1, sub.sid, sub.sid_size)
    out += 1 + sub.sid_size
    out[0] = c" "
    out += 1
    out += write_decimal(out, head_size + row.digit_count + 1)
    memcpy(out, b"\r\n", 2)
    memcpy(out + 2, PyBytes_AS_STRING(head), head_size)
    row.tail_size = <uint32_t>(out + 2 + head_size - row.tail)


cdef bint _write_ack(Router router, Sublist sublist, Row* row, bytes head, const uint8_t* subject, uint32_t subject_size,
                     uint64_t seq) except -1:
    """Write an ack, if its only subscriber is a client without limits or checks; else False."""
    cdef Sub* sub = sublist.only_near(subject, subject_size)
    cdef Client client
    cdef uint8_t* out
    cdef uint8_t* start
    if sub == NULL or sub.kind != KIND_CLIENT or sub.is_dead or sub.is_checked or sub.max_msgs or sub.sid_size > SID_MAX:
        return False
    client = <Client>sub.target
    if client.is_closed or client.is_slow:
        return False
    if sub != row.sub or seq != row.seq + 1 or not _step(row):
        _begin(row, sub, head, seq)
    sublist.matches += 1
    sub.msgs += 1
    start = out = client.reserve(4 + subject_size + row.tail_size + row.digit_count + 3)
    memcpy(out, b"MSG ", 4)
    memcpy(out + 4, subject, subject_size)
    out += 4 + subject_size
    memcpy(out, row.tail, row.tail_size)
    out += row.tail_size
    memcpy(out, row.digits, row.digit_count)
    out += row.digit_count
    memcpy(out, b"}\r\n", 3)
    router.written(client, <size_t>(out + 3 - start))
    router.count(client, PyBytes_GET_SIZE(head) + row.digit_count + 1)
    return True


cdef int _write_other(Router router, Sublist sublist, MessageView* view, Waiting* item, uint8_t* text, bytes head,
                      bytes error) except -1:
    """Write any answer, or `error`, to its subscribers. `text` is space for it."""
    cdef uint32_t size = <uint32_t>PyBytes_GET_SIZE(head)
    if error is not None:
        view.payload = <const uint8_t*>PyBytes_AS_STRING(error)
        view.payload_size = <uint32_t>PyBytes_GET_SIZE(error)
    else:
        memcpy(text, PyBytes_AS_STRING(head), size)
        size += <uint32_t>write_decimal(text + size, item.seq)
        if item.answer == ANSWER_DUPLICATE:
            memcpy(text + size, b',"duplicate": true', 18)
            size += 18
        text[size] = c"}"
        view.payload = text
        view.payload_size = size + 1
    return router.route(sublist, None, view, ORIGIN_PUBACK, False)


def settle(Router router not None, Ingest ingest not None, Sublist sublist not None, Py_ssize_t clients_max=SLICE_CLIENTS):
    """Write the answers that are durable by now; returns for how many clients. It stops at `clients_max`: the rest stays due."""
    cdef Chunk* chunk
    cdef Waiting* item
    cdef MessageView view
    cdef Row row
    cdef uint64_t decided = ingest.decided()
    cdef bint is_checked = ingest.is_over or ingest.endpoint.has_failures     # read after `decided`: a rollback is noted before it counts
    cdef bytes head = ingest.head, error, failure
    cdef Py_ssize_t others = len(router.dirty)  # clients with something to send anyway do not count: some progress is sure
    cdef Py_ssize_t answered
    cdef uint8_t* text = ingest.scratch
    view.reply = view.headers = NULL
    view.reply_size = view.headers_size = 0
    view.copies = True
    row.sub = NULL
    row.tail = text + PyBytes_GET_SIZE(head) + SCRATCH_MORE
    while ingest.first != NULL and ingest.first.position <= decided:
        chunk = ingest.first
        failure = ingest.endpoint.failure_at(chunk.position) if is_checked else None
        while chunk.done < chunk.count:
            if len(router.dirty) - others >= clients_max:
                break
            item = &chunk.items[chunk.done]
            chunk.done += 1
            view.subject = chunk.replies + item.reply_at
            view.subject_size = item.reply_size
            error = ingest.errors.pop(item.seq) if item.answer == ANSWER_ERROR else failure
            if (error is not None or item.answer != ANSWER_ACK
                    or not _write_ack(router, sublist, &row, head, view.subject, view.subject_size, item.seq)):
                _write_other(router, sublist, &view, item, text, head, error)
        if chunk.done < chunk.count:
            break
        ingest.drop_first()
    answered = len(router.dirty) - others
    if router.depth == 0 and (router.touched or router.calls):
        router.end_read()
    return answered
