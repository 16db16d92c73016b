"""Delivery: a consumer on the server. What clients say to it, who waits for its messages, and the frames that leave.

The hub hands over acks and pull requests while it reads sockets; they are copied, and worked on at the end of the turn, when the
`Desk` of the stream has its lock: acks first, then requests, then messages, which go from the store straight into clients' buffers.
A client that does not read gets no more than CHOKED bytes ahead. The order of things, and every status, are the reference's.
"""
import logging

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from penstock.kernel.ack_table cimport AckEntry
from penstock.kernel.consumer cimport LOOK_FOUND
from penstock.kernel.said cimport (
    ACK_TAIL_SIZE, SAID_ACK, SAID_NEXT, SAID_PROGRESS, SAID_VERB, Asked, Delivered, read_asked, read_delivered, read_verb,
)
from penstock.kernel.sublist cimport KIND_ACK, KIND_CLIENT, KIND_FLOW, KIND_PULL, Answer

cdef extern from "time.h" nogil:
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* at)
    int CLOCK_MONOTONIC

log = logging.getLogger("penstock")

cdef enum:
    SAID_PULL = 16
    SAID_FLOW = 17
    CHOKED = 1048576                       # bytes that wait for a client before it is left alone
    QUANTUM = 64                           # messages until the turn of others: they read the same part of a block
    CLOCK_EVERY = 32                       # messages between two looks at the clock
    SLICE_NS = 1000000                     # of delivery in one turn of the loop
    SWEEP_NS = 1000000000
    INSTANT_NS = 50000
    ITEMS_KEPT = 4096
    BYTES_KEPT = 262144
    NUMBERS_SIZE = 105                     # five numbers and their dots
    PRIORITY_NONE = 0x7fffffff
    WINDOW_MAX = 33554432
    WINDOW_PART = 16

cdef int64_t FOREVER = 0x3FFFFFFFFFFFFFFFLL
cdef bytes NO_MESSAGES = b"NATS/1.0 404 No Messages\r\n\r\n"
cdef bytes REQUESTS_PENDING = b"NATS/1.0 408 Requests Pending\r\n\r\n"
cdef bytes MAX_WAITING = b"NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n"
cdef bytes PUSH_BASED = b"NATS/1.0 409 Consumer is push based\r\n\r\n"
cdef bytes FLOW_REQUEST = b"NATS/1.0 100 FlowControl Request\r\n\r\n"

# Numbers of two digits as text.
cdef char PAIRS[200]
cdef int _pair
for _pair in range(100):
    PAIRS[2 * _pair] = 48 + _pair // 10
    PAIRS[2 * _pair + 1] = 48 + _pair % 10


cdef inline int64_t _mono() noexcept nogil:
    cdef timespec at
    clock_gettime(CLOCK_MONOTONIC, &at)
    return <int64_t>at.tv_sec * 1000000000 + at.tv_nsec


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


cdef inline int64_t _end_ns(int64_t expires, int64_t mono_ns) noexcept nogil:
    """When a request expires; what is shorter than a turn of the loop is over already."""
    if expires == 0:
        return 0
    return mono_ns + expires if expires > INSTANT_NS else mono_ns - 1


cdef bytes _status(bytes line, Request* request):
    """A status with what the request still wanted."""
    return b"NATS/1.0 %b\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: %d\r\n\r\n" % (line, request.left, request.bytes_left)


cdef class Desk:
    """The consumers of one stream on the server, and which of them have something to do. The caller holds the stream's lock."""

    def __init__(self, Hub hub not None, Sublist sublist not None, on_touched):
        self.hub = hub
        self.sublist = sublist
        self.on_touched = on_touched
        self.deliveries = []
        self.touched = []
        self.changed = []
        self.replies = []

    cdef int touch(self, Delivery delivery) except -1:
        if not delivery.is_touched:
            delivery.is_touched = True
            self.touched.append(delivery)
            if not self.is_touched:
                self.is_touched = True
                self.on_touched()
                self.hub.ask_turn()
        return 0

    def touch_hungry(self, bint has_news):
        """The stream has something new, where `has_news`, or has lost something: have those look whom it concerns."""
        cdef Delivery delivery
        for delivery in self.deliveries:
            if not delivery.is_touched and ((has_news and delivery.is_hungry()) or delivery.engine.dropped):
                delivery.is_touched = True
                self.touched.append(delivery)

    def serve(self, int64_t now_ns):
        """Do what is to be done, for about a millisecond: whether something is left for the next turn."""
        cdef Delivery delivery
        cdef int64_t mono_ns = _mono(), until_ns
        cdef int more
        cdef Py_ssize_t n
        until_ns = mono_ns + SLICE_NS
        self.is_touched = True             # whoever is touched meanwhile is served in this round
        queue, self.touched = self.touched, []
        while queue:
            again = []
            for n in range(len(queue)):
                delivery = <Delivery>queue[n]
                delivery.is_touched = False
                try:
                    more = delivery.work(now_ns, &mono_ns, until_ns)
                except Exception:          # noqa: one consumer's trouble is not the others'
                    log.exception("consumer %r: delivery failed", delivery)
                    more = 0
                if more and not delivery.is_touched:
                    delivery.is_touched = True
                    again.append(delivery)
                if mono_ns >= until_ns:
                    self.touched = queue[n + 1:] + again + self.touched
                    return True
            queue, self.touched = again + self.touched, []
        self.is_touched = False
        return False

    @property
    def has_work(self):
        return bool(self.touched)

    def take_changed(self):
        """Whose changes are to be written down."""
        cdef Delivery delivery
        taken, self.changed = self.changed, []
        for delivery in taken:
            delivery.is_changed = False
        return taken

    def take_replies(self):
        """The subjects of those who are to be told once all that changed so far is durable."""
        taken, self.replies = self.replies, []
        return taken

    def forget(self, Delivery delivery not None):
        """`delivery` is closed."""
        if delivery in self.deliveries:
            self.deliveries.remove(delivery)


cdef class Delivery(Hearer):
    """One consumer on the server. A subclass knows what needs Python: configuration, odd requests, timers, advisories.

    Always true: the requests in the queue are `waiting_count`; what was heard and not worked on has the delivery on its desk's list.
    """

    def __init__(self, Desk desk not None, Consumer engine not None, bytes ack_prefix not None, bytes deliver_subject not None):
        self.desk = desk
        self.hub = desk.hub
        self.sublist = desk.sublist
        self.engine = engine
        self.pin_id = b""
        self.flow_subject = b""
        self.deliver_subject = deliver_subject
        self.prefix_size = <uint32_t>PyBytes_GET_SIZE(ack_prefix)
        self.ack_subject = <uint8_t*>malloc(self.prefix_size + NUMBERS_SIZE)
        if self.ack_subject == NULL:
            raise MemoryError
        memcpy(self.ack_subject, PyBytes_AS_STRING(ack_prefix), self.prefix_size)
        self.active_ns = _mono()
        desk.deliveries.append(self)

    def __dealloc__(self):
        while self.first != NULL:
            self.drop(self.first)
        free(self.items)
        free(self.bytes)
        free(self.ack_subject)
        free(self.headers)

    # What is heard.

    def listen(self, int kind, bytes subject not None):
        """Hear acks, pull requests or flow control answers on a subject: a token for `stop_listening`."""
        return <size_t>self.sublist.insert(kind, <void*>self, <const uint8_t*>PyBytes_AS_STRING(subject),
                                           <uint32_t>PyBytes_GET_SIZE(subject), NULL, 0, NULL, 0)

    def stop_listening(self, size_t token):
        self.sublist.remove(<Sub*>token)
        self.hub.ask_turn()                # it is buried at the turn's end

    cdef bint hear(self, Sub* sub, Client publisher, Letter* letter) except -1:
        cdef Item* item
        cdef Delivered delivered
        cdef uint32_t size, start, headers_size = 0, text_size = 0
        cdef void* grown
        cdef uint8_t* out
        cdef int kind = sub.kind
        if self.is_closed:
            return False
        if kind == KIND_ACK:
            kind = read_verb(letter.payload, letter.payload_size)
            if kind != SAID_ACK:
                text_size = letter.payload_size
        else:
            kind = SAID_PULL if kind == KIND_PULL else SAID_FLOW
            if kind == SAID_PULL and letter.reply_size == 0:
                return True                # nobody to be told, and nobody to get something
            headers_size = letter.headers_size
            text_size = letter.payload_size if kind == SAID_PULL else letter.subject_size
        if self.item_count == self.item_capacity:
            grown = realloc(self.items, (self.item_capacity * 2 + 16) * sizeof(Item))
            if grown == NULL:
                raise MemoryError
            self.items = <Item*>grown
            self.item_capacity = self.item_capacity * 2 + 16
        size = letter.reply_size + headers_size + text_size
        if self.byte_count + size > self.byte_capacity:
            grown = realloc(self.bytes, max(self.byte_capacity * 2, self.byte_count + size))
            if grown == NULL:
                raise MemoryError
            self.bytes = <uint8_t*>grown
            self.byte_capacity = max(self.byte_capacity * 2, self.byte_count + size)
        item = &self.items[self.item_count]
        item.kind = kind
        item.reply_at = self.byte_count
        item.reply_size = letter.reply_size
        item.headers_size = headers_size
        item.text_size = text_size
        if size:
            out = self.bytes + self.byte_count
            if letter.reply_size:
                memcpy(out, letter.reply, letter.reply_size)
            if headers_size:
                memcpy(out + letter.reply_size, letter.headers, headers_size)
            if text_size:
                memcpy(out + letter.reply_size + headers_size, letter.subject if kind == SAID_FLOW else letter.payload, text_size)
        if kind < SAID_PULL:
            start = sub.subject_size - ACK_TAIL_SIZE
            read_delivered(letter.subject + start, letter.subject_size - start, &delivered)
            item.deliveries = delivered.deliveries
            item.seq = delivered.seq
            item.dseq = delivered.dseq
        self.item_count += 1
        self.byte_count += size
        self.desk.touch(self)
        return True

    cdef int go_on(self) except -1:
        return self.desk.touch(self)

    def touch(self):
        """Have a look at what is to be done, at the end of this turn."""
        if not self.is_closed:
            self.desk.touch(self)

    # What is to be done.

    cdef bint is_hungry(self) noexcept:
        """Whether a new message would go to somebody."""
        if self.is_closed:
            return False
        if PyBytes_GET_SIZE(self.deliver_subject):
            return self.is_active and not (self.window and self.outstanding > self.window)
        return self.first != NULL

    cdef int work(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1:
        """Acks, requests, messages: 1 when there is more to deliver."""
        cdef int more
        if self.is_closed:
            return 0
        if self.item_count:
            self.take_items(now_ns, mono_ns[0])
        if PyBytes_GET_SIZE(self.deliver_subject):
            more = self.push(now_ns, mono_ns, until_ns)
        else:
            more = self.pull(now_ns, mono_ns, until_ns)
        if self.is_closed:
            return 0
        if self.is_due:
            self.is_due = False
            self.engine.collect_due(now_ns)  # also where nobody waits: some may have been delivered as often as may be
        if self.engine.given_up or self.engine.dropped:
            self.is_changed = True
            self.lost(now_ns)
        if self.is_changed:
            self.desk.changed.append(self)
        if not more:
            self.plan(now_ns, mono_ns[0])
        return more

    cdef int take_items(self, int64_t now_ns, int64_t mono_ns) except -1:
        cdef Item* items = self.items
        cdef uint8_t* data = self.bytes
        cdef uint32_t n, count = self.item_count, item_capacity = self.item_capacity, byte_capacity = self.byte_capacity
        # What we send may come back to us: it goes into arrays of its own.
        self.items = NULL
        self.bytes = NULL
        self.item_count = self.item_capacity = self.byte_count = self.byte_capacity = 0
        self.active_ns = mono_ns
        try:
            for n in range(count):
                self.take_item(&items[n], data, now_ns, mono_ns)
        finally:
            if self.items == NULL and self.bytes == NULL and item_capacity <= ITEMS_KEPT and byte_capacity <= BYTES_KEPT:
                self.items = items
                self.bytes = data
                self.item_capacity = item_capacity
                self.byte_capacity = byte_capacity
            else:
                free(items)
                free(data)
        return 0

    cdef int take_item(self, Item* item, const uint8_t* data, int64_t now_ns, int64_t mono_ns) except -1:
        cdef const uint8_t* reply = data + item.reply_at
        cdef const uint8_t* headers = reply + item.reply_size
        cdef const uint8_t* text = headers + item.headers_size
        if item.kind == SAID_ACK:
            if self.ack_one(item.seq, item.dseq, item.deliveries, now_ns):
                self.answer(reply, item.reply_size)
        elif item.kind == SAID_PROGRESS:
            self.is_changed |= self.engine.progress(item.seq, now_ns)
            if item.seq:
                self.answer(reply, item.reply_size)
        elif item.kind == SAID_NEXT:
            self.ack_one(item.seq, item.dseq, item.deliveries, now_ns)
            if item.reply_size:
                self.ask(reply, item.reply_size, text + 4, item.text_size - 4, None, now_ns, mono_ns)
        elif item.kind == SAID_VERB:
            if self.said(item.seq, item.dseq, item.deliveries, text[:item.text_size], now_ns):
                self.answer(reply, item.reply_size)
        elif item.kind == SAID_PULL:
            self.ask(reply, item.reply_size, text, item.text_size, headers[:item.headers_size] if item.headers_size else None,
                     now_ns, mono_ns)
        elif text[:item.text_size] == self.flow_subject:
            self.outstanding = max(self.outstanding - self.asked_size, 0)
            self.window = min(self.window * 2, WINDOW_MAX)
            self.flow_subject = b""
            self.asked_size = 0
            if self.flow_acks and item.headers_size:
                self.flowed(headers[:item.headers_size], now_ns)
        return 0

    # Acks.

    cdef bint ack_one(self, uint64_t seq, uint64_t dseq, uint64_t deliveries, int64_t now_ns) except -1:
        """An ack: whether who sent it is told."""
        cdef AckEntry* entry
        if seq >= self.engine.next_seq and not self.is_flow_controlled and self.engine.last_at >= self.engine.last_count:
            return False                   # of a message that nobody got
        if seq == 0:
            return self.answers_nothing
        if self.is_sampled:
            entry = self.engine.table.pending_entry(seq)
            if entry != NULL:
                self.sampled(seq, dseq, deliveries, now_ns - entry.last_ns)
        self.is_changed |= self.engine.ack(seq, dseq, now_ns)
        return True

    def acknowledge(self, uint64_t seq, uint64_t dseq, int64_t now_ns):
        """The same for Python, without a sample: whether who sent it is told."""
        cdef bint is_sampled = self.is_sampled
        self.is_sampled = False
        try:
            return self.ack_one(seq, dseq, 0, now_ns)
        finally:
            self.is_sampled = is_sampled

    def put_off(self, uint64_t seq, uint64_t dseq, int64_t due_ns):
        """A nak: the message comes again at `due_ns`. Whether it was pending."""
        if dseq <= self.engine.table.ack_floor_consumer_seq or dseq > self.engine.table.delivered_consumer_seq + 1:
            return False
        if not self.engine.nak(seq, due_ns):
            return False
        self.is_changed = True
        return True

    def deliveries_of(self, uint64_t seq):
        """How often a pending message was delivered; 0: it is not pending."""
        cdef AckEntry* entry = self.engine.table.pending_entry(seq)
        return 0 if entry == NULL else entry.deliveries

    def deliver_again(self, int64_t now_ns):
        """Everything that is pending comes again, at once."""
        cdef list seqs = []
        cdef Py_ssize_t n = 0
        while True:
            n = self.engine.table.next_pending(n)
            if n >= self.engine.table.used:
                break
            seqs.append(self.engine.table.at(n).seq)
            n += 1
        for seq in seqs:
            self.engine.nak(seq, now_ns)
        self.is_changed = self.is_changed or bool(seqs)

    def latest_deadline_ns(self):
        """When the last pending message is due; 0: none is."""
        cdef Py_ssize_t n = 0
        cdef int64_t latest = 0
        while True:
            n = self.engine.table.next_pending(n)
            if n >= self.engine.table.used:
                return latest
            if self.engine.table.at(n).deadline_ns < FOREVER:
                latest = max(latest, self.engine.table.at(n).deadline_ns)
            n += 1

    cdef int answer(self, const uint8_t* reply, uint32_t size) except -1:
        if size:
            self.desk.replies.append(reply[:size])
        return 0

    # Requests.

    cdef int ask(self, const uint8_t* reply, uint32_t reply_size, const uint8_t* text, uint32_t text_size, bytes headers,
                 int64_t now_ns, int64_t mono_ns) except -1:
        cdef Asked asked
        cdef Request* request
        if PyBytes_GET_SIZE(self.deliver_subject):
            return self.tell(reply, reply_size, PUSH_BASED, None)
        if (headers is not None or not read_asked(text, text_size, &asked)
                or (asked.is_object and (self.is_prioritized or self.is_pinned or self.is_overflow))
                or 0 < self.max_batch < asked.batch or 0 < self.max_expires_ns < asked.expires
                or 0 < self.max_bytes < asked.max_bytes):
            self.asked(reply[:reply_size], headers, text[:text_size], now_ns, mono_ns)
            return 0
        request = self.make(reply, reply_size)
        request.left = asked.batch
        request.bytes_left = max(asked.max_bytes, 0)
        request.expires_ns = _end_ns(asked.expires, mono_ns)
        request.heartbeat_ns = max(asked.heartbeat, 0)
        request.no_wait = asked.no_wait
        request.has_group = asked.is_object
        request.priority = 0 if asked.is_object else PRIORITY_NONE
        return self.admit(request, now_ns, mono_ns)

    def add(self, bytes reply not None, request, int64_t now_ns, int64_t mono_ns, bint has_group):
        """Let a request wait that Python has read: a `PullRequest`."""
        cdef bytes pin_id = request.id.encode()
        cdef Request* added = self.make(<const uint8_t*>PyBytes_AS_STRING(reply), <uint32_t>PyBytes_GET_SIZE(reply))
        added.left = request.batch
        added.bytes_left = max(request.max_bytes, 0)
        added.expires_ns = _end_ns(request.expires, mono_ns)
        added.heartbeat_ns = max(request.idle_heartbeat, 0)
        added.no_wait = request.no_wait
        added.has_group = has_group
        added.min_pending = request.min_pending
        added.min_ack_pending = request.min_ack_pending
        added.priority = request.priority if has_group else PRIORITY_NONE
        if pin_id:
            added.pin_id = <uint8_t*>malloc(len(pin_id))
            if added.pin_id == NULL:
                free(added)
                raise MemoryError
            memcpy(added.pin_id, PyBytes_AS_STRING(pin_id), len(pin_id))
            added.pin_id_size = <uint32_t>len(pin_id)
        self.admit(added, now_ns, mono_ns)

    cdef Request* make(self, const uint8_t* reply, uint32_t reply_size) except NULL:
        cdef Request* request = <Request*>malloc(sizeof(Request) + reply_size)
        if request == NULL:
            raise MemoryError
        request.next = request.previous = NULL
        request.given = request.heartbeat_due_ns = request.min_pending = request.min_ack_pending = 0
        request.hearing.generation = 0
        request.pin_id = NULL
        request.pin_id_size = 0
        request.reply = <uint8_t*>request + sizeof(Request)
        memcpy(request.reply, reply, reply_size)
        request.reply_size = reply_size
        return request

    cdef int admit(self, Request* request, int64_t now_ns, int64_t mono_ns) except -1:
        """Let a request wait, or refuse it."""
        cdef bytes refusal = None
        cdef uint64_t pending
        cdef int64_t wanted
        if self.waiting_count == self.max_waiting and mono_ns - self.swept_ns > SWEEP_NS:
            self.sweep(False, mono_ns)
        if request.no_wait:
            self.engine.count_up()
            pending = self.engine.count
            if pending == 0:
                pending = self.due_count(now_ns, 1)
            if pending == 0 and request.expires_ns == 0:
                refusal = NO_MESSAGES
            elif pending > 0:
                wanted = self.sweep(False, mono_ns)
                if wanted > 0 and pending < <uint64_t>wanted and pending + self.due_count(now_ns, wanted) < <uint64_t>wanted:
                    refusal = REQUESTS_PENDING
        if refusal is None and self.waiting_count >= self.max_waiting:
            if request.heartbeat_ns:       # it would ask again and again; so it waits for a heartbeat that does not come
                free(request.pin_id)
                free(request)
                return 0
            refusal = MAX_WAITING
        if refusal is not None:
            self.tell(request.reply, request.reply_size, refusal, None)
            free(request.pin_id)
            free(request)
            return 0
        if request.heartbeat_ns:
            request.heartbeat_due_ns = mono_ns + request.heartbeat_ns
            if self.next_ns == 0 or request.heartbeat_due_ns < self.next_ns:
                self.next_ns = request.heartbeat_due_ns
        if request.expires_ns and (self.next_ns == 0 or request.expires_ns < self.next_ns):
            self.next_ns = request.expires_ns
        self.enqueue(request)
        return 0

    cdef uint64_t due_count(self, int64_t now_ns, uint64_t enough) noexcept:
        """How many pending messages are due, up to `enough`."""
        cdef Py_ssize_t n = 0
        cdef uint64_t count = 0
        while count < enough:
            n = self.engine.table.next_pending(n)
            if n >= self.engine.table.used:
                break
            count += self.engine.table.at(n).deadline_ns <= now_ns
            n += 1
        return count

    cdef void enqueue(self, Request* request) noexcept:
        """At the end; where priorities count, behind the last one that has none before it."""
        cdef Request* before = self.last
        if self.is_prioritized:
            while before != NULL and before.priority > request.priority:
                before = before.previous
        request.previous = before
        if before == NULL:
            request.next = self.first
            self.first = request
        else:
            request.next = before.next
            before.next = request
        if request.next == NULL:
            self.last = request
        else:
            request.next.previous = request
        self.waiting_count += 1
        self.no_wait_count += request.no_wait

    cdef void unlink(self, Request* request) noexcept:
        if request.previous == NULL:
            self.first = request.next
        else:
            request.previous.next = request.next
        if request.next == NULL:
            self.last = request.previous
        else:
            request.next.previous = request.previous
        self.waiting_count -= 1
        self.no_wait_count -= request.no_wait

    cdef void drop(self, Request* request) noexcept:
        self.unlink(request)
        free(request.pin_id)
        free(request)

    cdef void requeue(self, Request* request) noexcept:
        """The others come first now."""
        if request.next != NULL:
            self.unlink(request)
            self.enqueue(request)

    cdef int64_t sweep(self, bint is_end, int64_t mono_ns) except? -1:
        """Answer what has expired, beat, forget whom nobody hears any more: how many messages the others want.

        `is_end`: there is nothing more to deliver, who does not wait is told.
        """
        cdef Request* request = self.first
        cdef Request* next
        cdef int64_t wanted = 0, due = 0
        self.swept_ns = mono_ns
        while request != NULL:
            next = request.next
            if request.expires_ns and mono_ns > request.expires_ns:
                self.tell(request.reply, request.reply_size, _status(b"408 Request Timeout", request), None)
                self.drop(request)
            elif is_end and request.no_wait and (request.expires_ns == 0 or request.given > 0):
                self.tell(request.reply, request.reply_size, NO_MESSAGES, None)
                self.drop(request)
            else:
                self.resolve(request.reply, request.reply_size, &request.hearing)
                if not request.hearing.is_heard:
                    self.drop(request)
                else:
                    wanted += request.left
                    if request.heartbeat_due_ns:
                        if mono_ns > request.heartbeat_due_ns:
                            self.tell(request.reply, request.reply_size, self.heartbeat(), None)
                            request.heartbeat_due_ns = mono_ns + request.heartbeat_ns
                        if due == 0 or request.heartbeat_due_ns < due:
                            due = request.heartbeat_due_ns
                    if request.expires_ns and (due == 0 or request.expires_ns < due):
                        due = request.expires_ns
            request = next
        self.next_ns = due
        return wanted

    def heartbeat(self):
        """The headers of an idle heartbeat."""
        text = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n" % (
            self.engine.table.delivered_consumer_seq, self.engine.next_seq - 1)
        if self.flow_subject:
            text += b"Nats-Consumer-Stalled: %b\r\n" % self.flow_subject
        return text + b"\r\n"

    cdef int pin_fits(self, Request* request, bint* has_new_pin) except -1:
        """Whether the request may get messages of a consumer that has one client: 1 yes, 0 not now, -2 never."""
        if not self.pin_id:
            if request.pin_id != NULL:
                return -2                  # an old pin
            if request.has_group:
                self.pin()                 # sets `pin_id`
                request.pin_id = <uint8_t*>malloc(len(self.pin_id))
                if request.pin_id == NULL:
                    raise MemoryError
                memcpy(request.pin_id, PyBytes_AS_STRING(self.pin_id), len(self.pin_id))
                request.pin_id_size = <uint32_t>len(self.pin_id)
                has_new_pin[0] = True
            return 1
        if request.pin_id == NULL:
            return 0
        if (request.pin_id_size == <uint32_t>len(self.pin_id)
                and memcmp(request.pin_id, PyBytes_AS_STRING(self.pin_id), request.pin_id_size) == 0):
            return 1
        return -2

    cdef Request* choose(self, Parcel* parcel, uint64_t size, int64_t mono_ns, bint* has_new_pin) except? NULL:
        """Who gets the message; NULL: nobody may have it now."""
        cdef Request* request
        cdef Request* stop = NULL          # from here on they were passed over already
        cdef int fits
        self.is_last_choked = False
        while self.first != NULL and self.first != stop:
            request = self.first
            if request.expires_ns and mono_ns >= request.expires_ns and not self.is_replaying:
                self.tell(request.reply, request.reply_size, _status(b"408 Request Timeout", request), None)
                self.drop(request)
                continue
            has_new_pin[0] = False
            fits = 1
            if self.is_pinned:
                fits = self.pin_fits(request, has_new_pin)
                if fits == -2:
                    self.tell(request.reply, request.reply_size, _status(b"423 Nats-Wrong-Pin-Id", request), None)
                    self.drop(request)
                    continue
            elif self.is_overflow and (request.min_pending > 0 or request.min_ack_pending > 0):
                fits = ((request.min_pending > 0 and request.min_pending <= <int64_t>(parcel.pending + 1))
                        or (request.min_ack_pending > 0 and request.min_ack_pending <= <int64_t>self.engine.table.pending_count))
            if fits:
                self.resolve(request.reply, request.reply_size, &request.hearing)
                if not request.hearing.is_heard:
                    self.drop(request)
                    continue
                if request.bytes_left and size > <uint64_t>request.bytes_left:
                    self.tell(request.reply, request.reply_size, _status(b"409 Message Size Exceeds MaxBytes", request), None)
                    if has_new_pin[0]:
                        self.unpin()
                    self.drop(request)
                    continue
                if not self.is_choked(request.reply, request.reply_size, &request.hearing):
                    return request
                self.is_last_choked = True
                if self.is_prioritized:
                    return NULL            # those behind it would get what is its
            if stop == NULL:
                stop = request
            if request.next == NULL:
                return NULL                # the only one
            self.requeue(request)
        return NULL

    # Who hears it.

    cdef int resolve(self, const uint8_t* subject, uint32_t size, Hearing* hearing) except -1:
        cdef Answer* answer
        if hearing.generation != self.sublist.generation:
            answer = self.sublist.match(subject, size, False)
            hearing.sub = NULL
            hearing.is_heard = answer.plain_count > 0 or answer.group_count > 0
            if answer.plain_count == 1 and answer.group_count == 0 and answer.subs[0].kind == KIND_CLIENT:
                hearing.sub = answer.subs[0]
            hearing.generation = self.sublist.generation
        return 0

    cdef bint is_choked(self, const uint8_t* subject, uint32_t size, Hearing* hearing) except -1:
        """Whether a hearer has enough to read; it tells us when it has not."""
        cdef Answer* answer
        cdef Client client
        cdef uint32_t n, count
        cdef bint found = False
        if hearing.sub != NULL:
            client = <Client>hearing.sub.target
            if client.backlog + client.out_size <= CHOKED:
                return False
            client.choke(self)
            return True
        answer = self.sublist.match(subject, size, False)
        count = answer.group_ends[answer.group_count - 1] if answer.group_count else answer.plain_count
        for n in range(count):
            if answer.subs[n].kind == KIND_CLIENT:
                client = <Client>answer.subs[n].target
                if client.backlog + client.out_size > CHOKED:
                    client.choke(self)
                    found = True
        return found

    cdef bint give(self, Letter* letter, const uint8_t* subject, uint32_t size, Hearing* hearing) except -1:
        """Write the message for who hears `subject`: whether anyone did."""
        letter.tail_size = letter.plain_tail_size = 0
        letter.copies = True
        if hearing.sub != NULL:
            return self.hub.deliver(hearing.sub, self.sublist, None, letter)
        return self.hub.route_to(self.sublist, subject, size, letter) > 0

    cdef int tell(self, const uint8_t* subject, uint32_t size, bytes headers, bytes reply) except -1:
        """A status."""
        cdef Letter letter
        letter.subject = subject
        letter.subject_size = size
        letter.reply = NULL if reply is None else <const uint8_t*>PyBytes_AS_STRING(reply)
        letter.reply_size = 0 if reply is None else <uint32_t>PyBytes_GET_SIZE(reply)
        letter.headers = <const uint8_t*>PyBytes_AS_STRING(headers)
        letter.headers_size = <uint32_t>PyBytes_GET_SIZE(headers)
        letter.payload = NULL
        letter.payload_size = 0
        letter.copies = True
        self.hub.route(self.sublist, None, &letter, False)
        return 0

    def send_status(self, bytes subject not None, bytes headers not None, bytes reply=None):
        self.tell(<const uint8_t*>PyBytes_AS_STRING(subject), <uint32_t>PyBytes_GET_SIZE(subject), headers, reply)

    cdef uint32_t make_ack_subject(self, Parcel* parcel) noexcept:
        """Where the message is to be acknowledged: its size."""
        cdef uint8_t* out = self.ack_subject + self.prefix_size
        out = _put_number(out, parcel.deliveries)
        out[0] = c"."
        out = _put_number(out + 1, parcel.seq)
        out[0] = c"."
        out = _put_number(out + 1, parcel.dseq)
        out[0] = c"."
        out = _put_number(out + 1, <uint64_t>parcel.time)
        out[0] = c"."
        out = _put_number(out + 1, parcel.pending)
        return <uint32_t>(out - self.ack_subject)

    cdef int add_pin(self, Letter* letter) except -1:
        """The pin in the headers, behind those that are there."""
        cdef size_t size = letter.headers_size
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
            memcpy(out, letter.headers, size - 2)
            out += size - 2
        else:
            memcpy(out, b"NATS/1.0\r\n", 10)
            out += 10
        memcpy(out, b"Nats-Pin-Id: ", 13)
        out += 13
        memcpy(out, PyBytes_AS_STRING(self.pin_id), len(self.pin_id))
        out += len(self.pin_id)
        memcpy(out, b"\r\n\r\n", 4)
        letter.headers = self.headers
        letter.headers_size = <uint32_t>(out + 4 - self.headers)
        return 0

    # Messages.

    cdef int pull(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1:
        cdef Consumer engine = self.engine
        cdef Parcel parcel
        cdef Letter letter
        cdef Request* request
        cdef uint64_t size
        cdef int count = 0
        cdef bint has_new_pin = False, is_end = True
        while self.first != NULL:
            if engine.look(now_ns, &parcel) != LOOK_FOUND:
                if self.is_in_pause(now_ns):
                    if not self.is_replaying:
                        self.sweep(False, mono_ns[0])
                        self.is_replaying = self.first != NULL
                    return 0
                is_end = not engine.is_full
                break
            letter.subject = parcel.subject
            letter.subject_size = parcel.subject_size
            letter.headers = parcel.headers
            letter.headers_size = parcel.headers_size
            letter.payload = parcel.payload
            letter.payload_size = parcel.payload_size
            letter.reply = self.ack_subject
            letter.reply_size = self.make_ack_subject(&parcel)
            size = <uint64_t>parcel.subject_size + letter.reply_size + parcel.headers_size + parcel.payload_size
            request = self.choose(&parcel, size, mono_ns[0], &has_new_pin)
            if request == NULL:
                is_end = not self.is_last_choked
                break
            if self.is_pinned:
                self.add_pin(&letter)
            if not self.give(&letter, request.reply, request.reply_size, &request.hearing):
                self.drop(request)         # it may not hear this
                continue
            engine.hand_over(&parcel, now_ns)
            self.is_changed = True
            self.is_replaying = False
            count += 1
            if request.bytes_left:
                request.bytes_left -= size
                if request.bytes_left == 0:
                    request.left = 1
            request.left -= 1
            request.given += 1
            if request.left <= 0:
                if request.bytes_left:
                    self.tell(request.reply, request.reply_size, _status(b"409 Batch Completed", request), None)
                self.drop(request)
            else:
                if request.heartbeat_ns:
                    request.heartbeat_due_ns = mono_ns[0] + request.heartbeat_ns
                self.requeue(request)
            if count % CLOCK_EVERY == 0:
                mono_ns[0] = _mono()
                if count >= QUANTUM or mono_ns[0] >= until_ns:
                    self.active_ns = mono_ns[0]
                    return 1
        if count:
            self.active_ns = mono_ns[0]
        if self.first != NULL and ((is_end and self.no_wait_count) or (self.next_ns and mono_ns[0] >= self.next_ns)):
            self.sweep(is_end, mono_ns[0])
        return 0

    cdef bint is_in_pause(self, int64_t now_ns) noexcept:
        """Whether the next message waits as long as it did when it was stored. The reference does nothing else meanwhile: its
        receiver is chosen already, nothing expires, and no heart beats."""
        return self.engine.replay_to > 0 and self.engine.wake_ns > now_ns and self.engine.paused_until_ns <= now_ns

    cdef int push(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1:
        cdef Consumer engine = self.engine
        cdef Parcel parcel
        cdef Letter letter
        cdef const uint8_t* subject = <const uint8_t*>PyBytes_AS_STRING(self.deliver_subject)
        cdef uint32_t subject_size = <uint32_t>PyBytes_GET_SIZE(self.deliver_subject)
        cdef uint64_t size
        cdef int count = 0
        self.rate_due_ns = 0
        while self.is_active and not (self.window and self.outstanding > self.window):
            self.resolve(subject, subject_size, &self.hearing)
            if self.is_choked(subject, subject_size, &self.hearing):
                break
            if engine.look(now_ns, &parcel) != LOOK_FOUND:
                if self.is_in_pause(now_ns):
                    self.sent_ns = max(mono_ns[0], mono_ns[0] + engine.wake_ns - now_ns - self.heartbeat_ns)
                break
            letter.subject = parcel.subject
            letter.subject_size = parcel.subject_size
            letter.headers = parcel.headers
            letter.headers_size = parcel.headers_size
            letter.payload = parcel.payload
            letter.payload_size = parcel.payload_size
            letter.reply = self.ack_subject
            letter.reply_size = self.make_ack_subject(&parcel)
            size = <uint64_t>letter.reply_size + parcel.headers_size + parcel.payload_size
            if self.rate > 0 and not self.has_tokens(size + parcel.subject_size, mono_ns[0]):
                break
            if not self.give(&letter, subject, subject_size, &self.hearing):
                self.notice()              # who listened is gone
                break
            engine.hand_over(&parcel, now_ns)
            self.is_changed = True
            self.sent_ns = mono_ns[0]
            if self.window:
                self.account_for(<int64_t>(size + subject_size))
            count += 1
            if count % CLOCK_EVERY == 0:
                mono_ns[0] = _mono()
                if count >= QUANTUM or mono_ns[0] >= until_ns:
                    return 1
        if self.heartbeat_ns and self.is_active and mono_ns[0] >= self.sent_ns + self.heartbeat_ns:
            self.beat(mono_ns[0])
        return 0

    # Push.

    def notice(self):
        """Subscriptions to the subject that we deliver to have come or gone."""
        cdef bint is_active = self.sublist.has_literal(self.deliver_subject, self.deliver_group())
        if self.is_closed or is_active == self.is_active:
            return
        self.is_active = is_active
        self.sent_ns = _mono()
        self.interest_changed()
        self.touch()

    def deliver_to(self, bytes subject not None):
        """Deliver to another subject from now on."""
        self.deliver_subject = subject
        self.hearing.generation = 0

    def control_flow(self, bint is_on, bint acks):
        """Ask the client now and then whether it has come so far; where `acks`, its answers acknowledge."""
        if is_on and not self.window:
            self.window = WINDOW_MAX // WINDOW_PART
        elif not is_on:
            self.window = 0
        self.flow_acks = acks

    cdef bint has_tokens(self, uint64_t size, int64_t mono_ns) noexcept:
        """Whether the rate lets a message pass now; otherwise `rate_due_ns` is when."""
        cdef double wanted = min(<double>size, self.burst)
        if self.tokens_ns == 0:
            self.tokens = self.burst
        else:
            self.tokens = min(self.tokens + (mono_ns - self.tokens_ns) * 1e-9 * self.rate, self.burst)
        self.tokens_ns = mono_ns
        if self.tokens >= wanted:
            self.tokens -= wanted
            return True
        self.rate_due_ns = mono_ns + <int64_t>((wanted - self.tokens) / self.rate * 1e9) + 1
        return False

    cdef int account_for(self, int64_t size) except -1:
        """So much more is under way: ask for an answer when it is half of what may be."""
        self.outstanding += size
        if not self.flow_subject:
            if self.outstanding > self.window // 2 or (self.flow_acks and self.engine.is_full):
                self.ask_flow()
        elif self.outstanding - self.asked_size >= self.window:
            self.asked_size += size
        return 0

    def ask_flow(self):
        """Send a flow control request."""
        self.asked_size = self.outstanding
        self.flow_subject = self.new_flow_subject()
        self.send_status(self.deliver_subject, FLOW_REQUEST, self.flow_subject)

    cdef int beat(self, int64_t mono_ns) except -1:
        self.send_status(self.deliver_subject, self.heartbeat())
        self.sent_ns = mono_ns
        if self.flow_acks and self.engine.table.pending_count and not self.flow_subject:
            self.ask_flow()
        return 0

    # Time.

    cdef int plan(self, int64_t now_ns, int64_t mono_ns) except -1:
        """Have the timer come when something is due."""
        cdef int64_t due = self.next_ns, deadline = 0
        if self.rate_due_ns and (due == 0 or self.rate_due_ns < due):
            due = self.rate_due_ns
        if self.heartbeat_ns and self.is_active and (due == 0 or self.sent_ns + self.heartbeat_ns < due):
            due = self.sent_ns + self.heartbeat_ns
        if self.engine.wake_ns > now_ns:
            deadline = mono_ns + self.engine.wake_ns - now_ns
            if due == 0 or deadline < due:
                due = deadline
        if (self.engine.table.pending_count and self.engine.table.earliest(&deadline) and now_ns < deadline < FOREVER
                and (self.engine.held == 0 or self.engine.max_deliver > 0)):
            deadline = mono_ns + deadline - now_ns
            if due == 0 or deadline < due:
                due = deadline
        if due and (self.armed_ns == 0 or due < self.armed_ns):
            self.armed_ns = due
            self.arm((due - mono_ns) / 1e9)
        return 0

    def disarm(self):
        """The timer has come."""
        self.armed_ns = 0
        self.is_due = True
        self.touch()

    # For Python.

    @property
    def num_waiting(self):
        """How many requests wait, without those whose reply nobody hears any more."""
        if self.first != NULL:
            self.sweep(False, _mono())
        return self.waiting_count

    def release(self, bytes status, bint tells_rest):
        """Answer every request that waits with a status, and forget it; None: without a word."""
        while self.first != NULL:
            if status is not None:
                self.tell(self.first.reply, self.first.reply_size,
                          _status(status, self.first) if tells_rest else b"NATS/1.0 %b\r\n\r\n" % status, None)
            self.drop(self.first)
        self.next_ns = 0

    def end(self):
        """Nothing is delivered any more."""
        self.is_closed = True
        self.item_count = self.byte_count = 0
        self.desk.forget(self)
