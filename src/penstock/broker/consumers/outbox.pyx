"""Outbox: sends one consumer's messages and statuses to the subscribers of a subject.

It finds the subscribers, says whether their clients can take more, and writes the subject on which each message is acknowledged.
Frames go straight into the clients' buffers.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from penstock.broker.routing.origin cimport KIND_CLIENT, ORIGIN_DELIVERY, ORIGIN_STATUS, reaches
from penstock.broker.routing.sublist cimport MatchResult

cdef enum:
    BACKLOG_MAX = 1048576                  # bytes that may wait for a client before it is sent no more
    NUMBERS_SIZE = 105                     # five numbers and their dots

# Numbers of two digits as text.
cdef char PAIRS[200]
cdef int _pair
for _pair in range(100):
    PAIRS[2 * _pair] = 48 + _pair // 10
    PAIRS[2 * _pair + 1] = 48 + _pair % 10


cdef inline uint8_t* _put_number(uint8_t* out, uint64_t number) noexcept nogil:
    """Write a number in decimal; returns where its digits end."""
    cdef uint8_t text[20]
    cdef int at = 20
    while number >= 100:
        at -= 2
        memcpy(&text[at], &PAIRS[2 * (number % 100)], 2)
        number //= 100
    if number >= 10:
        at -= 2
        memcpy(&text[at], &PAIRS[2 * number], 2)
    else:
        at -= 1
        text[at] = <uint8_t>(48 + number)
    memcpy(out, &text[at], 20 - at)
    return out + 20 - at


cdef inline uint32_t _literal_size(const Sub* sub) noexcept nogil:
    """The size of a subscription's subject before its first wildcard."""
    cdef uint32_t n
    for n in range(sub.subject_size):
        if ((sub.subject[n] == c"*" or sub.subject[n] == c">") and (n == 0 or sub.subject[n - 1] == c".")
                and (n + 1 == sub.subject_size or sub.subject[n + 1] == c".")):
            return n
    return sub.subject_size


@cython.final
cdef class Outbox:
    """One consumer's way to its clients. The session, the pull queue and the push sender of the consumer share it."""

    def __init__(self, Router router not None, Sublist sublist not None, ConsumerEngine engine not None, bytes ack_prefix not None):
        self.router = router
        self.sublist = sublist
        self.engine = engine
        self.pin_id = b""
        self.prefix_size = <uint32_t>PyBytes_GET_SIZE(ack_prefix)
        self.ack_subject = <uint8_t*>malloc(self.prefix_size + NUMBERS_SIZE)
        if self.ack_subject == NULL:
            raise MemoryError
        memcpy(self.ack_subject, PyBytes_AS_STRING(ack_prefix), self.prefix_size)

    def __dealloc__(self):
        free(self.ack_subject)
        free(self.headers)

    # Subscribers.

    cdef int update_interest(self, const uint8_t* subject, uint32_t size, Interest* interest) except -1:
        """Look up the subscribers of `subject` again if subscriptions have changed since the last time."""
        cdef MatchResult* answer
        cdef uint32_t n, count
        if interest.generation != self.sublist.generation:
            answer = self.sublist.match(subject, size, False)
            interest.only_client = NULL
            interest.exists = False
            count = answer.group_ends[answer.group_count - 1] if answer.group_count else answer.plain_count
            for n in range(count):
                if reaches(ORIGIN_DELIVERY, answer.subs[n].kind):
                    interest.exists = True
                    break
            if answer.plain_count == 1 and answer.group_count == 0 and answer.subs[0].kind == KIND_CLIENT:
                interest.only_client = answer.subs[0]
            interest.generation = self.sublist.generation
        return 0

    cdef bint is_backlogged(self, const uint8_t* subject, uint32_t size, Interest* interest) except -1:
        """Whether a subscriber has too much unread. The session is resumed once that has been sent.

        Only the most specific subscriptions count; a client that listens with a wider wildcard does not delay the consumer.
        """
        cdef MatchResult* answer
        cdef Client client
        cdef uint32_t n, count, narrowest = 0
        cdef bint found = False
        if interest.only_client != NULL:
            client = <Client>interest.only_client.target
            if client.backlog + client.out_size <= BACKLOG_MAX:
                return False
            client.add_drain_waiter(self.session)
            self.router.mark_dirty(client)    # its transport may have been drained since it last told us: the tick's end has a look
            return True
        answer = self.sublist.match(subject, size, False)
        count = answer.group_ends[answer.group_count - 1] if answer.group_count else answer.plain_count
        for n in range(count):
            if answer.subs[n].kind == KIND_CLIENT:
                narrowest = max(narrowest, _literal_size(answer.subs[n]))
        for n in range(count):
            if answer.subs[n].kind == KIND_CLIENT and _literal_size(answer.subs[n]) == narrowest:
                client = <Client>answer.subs[n].target
                if client.backlog + client.out_size > BACKLOG_MAX:
                    client.add_drain_waiter(self.session)
                    self.router.mark_dirty(client)
                    found = True
        return found

    cdef bint send(self, Candidate* candidate, MessageView* view, const uint8_t* subject, uint32_t size, Interest* interest,
                   int64_t now_ns) except -1:
        """Deliver the message to the subscribers of `subject`, and count it as delivered if there was one: whether there was."""
        cdef bint is_sent
        view.tail_size = view.plain_tail_size = 0
        view.copies = True
        if interest.only_client != NULL:
            view.origin = ORIGIN_DELIVERY
            is_sent = self.router.deliver(interest.only_client, self.sublist, None, view)
        else:
            is_sent = self.router.route_to(self.sublist, subject, size, view, ORIGIN_DELIVERY) > 0
        if is_sent:
            self.engine.hand_over(candidate, now_ns)
            self.has_sent = True
        return is_sent

    cdef int write_status(self, const uint8_t* subject, uint32_t size, bytes headers, bytes reply) except -1:
        """Send a message that has headers only."""
        cdef MessageView view
        view.subject = subject
        view.subject_size = size
        view.reply = NULL if reply is None else <const uint8_t*>PyBytes_AS_STRING(reply)
        view.reply_size = 0 if reply is None else <uint32_t>PyBytes_GET_SIZE(reply)
        view.headers = <const uint8_t*>PyBytes_AS_STRING(headers)
        view.headers_size = <uint32_t>PyBytes_GET_SIZE(headers)
        view.payload = NULL
        view.payload_size = 0
        view.copies = True
        self.router.route(self.sublist, None, &view, ORIGIN_STATUS, False)
        return 0

    def send_status(self, bytes subject not None, bytes headers not None, bytes reply=None):
        self.write_status(<const uint8_t*>PyBytes_AS_STRING(subject), <uint32_t>PyBytes_GET_SIZE(subject), headers, reply)

    # Messages.

    cdef uint32_t fill_view(self, Candidate* candidate, MessageView* view) noexcept:
        """Make `view` the message of `candidate`; returns the size of the subject on which it is acknowledged."""
        view.subject = candidate.subject
        view.subject_size = candidate.subject_size
        view.headers = candidate.headers
        view.headers_size = candidate.headers_size
        view.payload = candidate.payload
        view.payload_size = candidate.payload_size
        view.reply = self.ack_subject
        view.reply_size = self.make_ack_subject(candidate)
        return view.reply_size

    cdef uint32_t make_ack_subject(self, Candidate* candidate) noexcept:
        """Write the subject on which the message is acknowledged; returns its size."""
        cdef uint8_t* out = self.ack_subject + self.prefix_size
        out = _put_number(out, candidate.deliveries)
        out[0] = c"."
        out = _put_number(out + 1, candidate.seq)
        out[0] = c"."
        out = _put_number(out + 1, candidate.dseq)
        out[0] = c"."
        out = _put_number(out + 1, <uint64_t>candidate.time)
        out[0] = c"."
        out = _put_number(out + 1, candidate.pending)
        return <uint32_t>(out - self.ack_subject)

    cdef int add_pin_header(self, MessageView* view) except -1:
        """Add the pin id behind the message's own headers."""
        cdef size_t size = view.headers_size
        cdef size_t needed = size + 40 + len(self.pin_id)
        cdef uint8_t* out
        cdef void* grown
        if needed > self.headers_capacity:
            grown = realloc(self.headers, needed)
            if grown == NULL:
                raise MemoryError
            self.headers = <uint8_t*>grown
            self.headers_capacity = needed
        out = self.headers
        if size >= 2:
            memcpy(out, view.headers, size - 2)
            out += size - 2
        else:
            memcpy(out, b"NATS/1.0\r\n", 10)
            out += 10
        memcpy(out, b"Nats-Pin-Id: ", 13)
        out += 13
        memcpy(out, PyBytes_AS_STRING(self.pin_id), len(self.pin_id))
        out += len(self.pin_id)
        memcpy(out, b"\r\n\r\n", 4)
        view.headers = self.headers
        view.headers_size = <uint32_t>(out + 4 - self.headers)
        return 0

    cdef bint is_replay_waiting(self, int64_t now_ns) noexcept:
        """Whether the next message waits as long as it did when it was stored.

        nats-server does nothing else meanwhile: the receiver is already chosen, no request expires and no heartbeat is sent.
        """
        return self.engine.replay_to > 0 and self.engine.wake_ns > now_ns and not self.engine.is_paused(now_ns)

    cdef bytes heartbeat(self, bytes flow_subject):
        """The headers of an idle heartbeat; `flow_subject` is the flow control request that is not answered yet, or empty."""
        cdef bytes text = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n" % (
            self.engine.table.delivered_consumer_seq, self.engine.next_seq - 1)
        if flow_subject:
            text += b"Nats-Consumer-Stalled: %b\r\n" % flow_subject
        return text + b"\r\n"
