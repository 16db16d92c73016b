"""Outbox: how a consumer's messages leave: who hears them, whether they can take more, where they are to be acknowledged."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from penstock.broker.routing.origin cimport KIND_CLIENT, ORIGIN_DELIVERY, ORIGIN_STATUS, reaches
from penstock.broker.routing.sublist cimport Answer

cdef enum:
    CHOKED = 1048576                       # bytes that wait for a client before it is left alone
    NUMBERS_SIZE = 105                     # five numbers and their dots

# Numbers of two digits as text.
cdef char PAIRS[200]
cdef int _pair
for _pair in range(100):
    PAIRS[2 * _pair] = 48 + _pair // 10
    PAIRS[2 * _pair + 1] = 48 + _pair % 10


cdef inline uint8_t* _put_number(uint8_t* out, uint64_t number) noexcept nogil:
    """Decimal digits, and where they end."""
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
    """How much of a subscription's subject stands before its first wildcard."""
    cdef uint32_t n
    for n in range(sub.subject_size):
        if ((sub.subject[n] == c"*" or sub.subject[n] == c">") and (n == 0 or sub.subject[n - 1] == c".")
                and (n + 1 == sub.subject_size or sub.subject[n + 1] == c".")):
            return n
    return sub.subject_size


cdef class Outbox(Subscriber):
    """A consumer's way to clients. Frames go straight into their buffers."""

    def __init__(self, Router router not None, Sublist sublist not None, ConsumerEngine engine not None, bytes ack_prefix not None):
        self.router = router
        self.sublist = sublist
        self.engine = engine
        self.pin_id = b""
        self.flow_subject = b""
        self.prefix_size = <uint32_t>PyBytes_GET_SIZE(ack_prefix)
        self.ack_subject = <uint8_t*>malloc(self.prefix_size + NUMBERS_SIZE)
        if self.ack_subject == NULL:
            raise MemoryError
        memcpy(self.ack_subject, PyBytes_AS_STRING(ack_prefix), self.prefix_size)

    def __dealloc__(self):
        free(self.ack_subject)
        free(self.headers)

    # Who hears it.

    cdef int resolve(self, const uint8_t* subject, uint32_t size, Hearing* hearing) except -1:
        cdef Answer* answer
        cdef uint32_t n, count
        if hearing.generation != self.sublist.generation:
            answer = self.sublist.match(subject, size, False)
            hearing.sub = NULL
            hearing.is_heard = False
            count = answer.group_ends[answer.group_count - 1] if answer.group_count else answer.plain_count
            for n in range(count):
                if reaches(ORIGIN_DELIVERY, answer.subs[n].kind):
                    hearing.is_heard = True
                    break
            if answer.plain_count == 1 and answer.group_count == 0 and answer.subs[0].kind == KIND_CLIENT:
                hearing.sub = answer.subs[0]
            hearing.generation = self.sublist.generation
        return 0

    cdef bint is_choked(self, const uint8_t* subject, uint32_t size, Hearing* hearing) except -1:
        """Whether a subscriber has enough to read; it tells us when it has not.

        Those whom the message is meant for: who hears it with a wider subject than they do only listens in, and is not waited for.
        """
        cdef Answer* answer
        cdef Client client
        cdef uint32_t n, count, narrowest = 0
        cdef bint found = False
        if hearing.sub != NULL:
            client = <Client>hearing.sub.target
            if client.backlog + client.out_size <= CHOKED:
                return False
            client.choke(self)
            self.router.soil(client)          # what is known of its transport may be old: have a look at the turn's end
            return True
        answer = self.sublist.match(subject, size, False)
        count = answer.group_ends[answer.group_count - 1] if answer.group_count else answer.plain_count
        for n in range(count):
            if answer.subs[n].kind == KIND_CLIENT:
                narrowest = max(narrowest, _literal_size(answer.subs[n]))
        for n in range(count):
            if answer.subs[n].kind == KIND_CLIENT and _literal_size(answer.subs[n]) == narrowest:
                client = <Client>answer.subs[n].target
                if client.backlog + client.out_size > CHOKED:
                    client.choke(self)
                    self.router.soil(client)
                    found = True
        return found

    cdef bint give(self, MessageView* view, const uint8_t* subject, uint32_t size, Hearing* hearing) except -1:
        """Write the message for who hears `subject`: whether anyone did."""
        view.tail_size = view.plain_tail_size = 0
        view.copies = True
        if hearing.sub != NULL:
            view.origin = ORIGIN_DELIVERY
            return self.router.deliver(hearing.sub, self.sublist, None, view)
        return self.router.route_to(self.sublist, subject, size, view, ORIGIN_DELIVERY) > 0

    cdef int tell(self, const uint8_t* subject, uint32_t size, bytes headers, bytes reply) except -1:
        """A status."""
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
        self.tell(<const uint8_t*>PyBytes_AS_STRING(subject), <uint32_t>PyBytes_GET_SIZE(subject), headers, reply)

    # What it says.

    cdef uint32_t address(self, Candidate* candidate, MessageView* view) noexcept:
        """Make a letter of a message; the size of what says where to acknowledge it."""
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
        """Where the message is to be acknowledged: its size."""
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

    cdef int add_pin(self, MessageView* view) except -1:
        """The pin in the headers, behind those that are there."""
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

    def heartbeat(self):
        """The headers of an idle heartbeat."""
        text = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n" % (
            self.engine.table.delivered_consumer_seq, self.engine.next_seq - 1)
        if self.flow_subject:
            text += b"Nats-Consumer-Stalled: %b\r\n" % self.flow_subject
        return text + b"\r\n"
