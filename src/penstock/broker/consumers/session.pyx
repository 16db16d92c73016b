"""Delivery: a consumer on the server. What clients say to it, who waits for its messages, and the frames that leave.

The router hands over acks and pull requests while it reads sockets; they are copied, and worked on at the end of the turn, when the
`Desk` of the stream has its lock: acks first, then requests, then messages, which go from the store straight into clients' buffers.
A client that does not read gets no more than CHOKED bytes ahead. The order of things, and every status, are the reference's.
"""
import logging

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from penstock.consumer.ack_table cimport AckEntry
from penstock.base.monotonic cimport monotonic_ns
from penstock.broker.routing.origin cimport KIND_ACK, KIND_PULL
from penstock.broker.consumers.ack_parser cimport (
    ACK_TAIL_SIZE, SAID_ACK, SAID_NEXT, SAID_PROGRESS, SAID_VERB, Asked, Delivered, read_asked, read_delivered, read_verb,
)

log = logging.getLogger("penstock")

cdef enum:
    SAID_PULL = 16
    SAID_FLOW = 17
    ITEMS_KEPT = 4096
    BYTES_KEPT = 262144
    BYTES_MAX = 268435456                  # that wait for the stream's lock
    LATE_NS = 1500000                      # requests expire so much later, as the reference's: a client's own timer comes first
    AGAIN_NS = 1000000000                  # until a delivery that failed is tried again

cdef int64_t FOREVER = 0x3FFFFFFFFFFFFFFFLL
cdef bytes PUSH_BASED = b"NATS/1.0 409 Consumer is push based\r\n\r\n"


cdef class Desk:
    """The consumers of one stream on the server, and which of them have something to do. The caller holds the stream's lock."""

    def __init__(self, Router router not None, Sublist sublist not None, on_touched):
        self.router = router
        self.sublist = sublist
        self.on_touched = on_touched
        self.deliveries = []
        self.touched = []
        self.changed = []
        self.replies = []

    cdef int touch(self, Delivery delivery) except -1:
        if not delivery.is_touched and not delivery.is_closed:
            delivery.is_touched = True
            self.touched.append(delivery)
            if not self.is_touched:
                self.is_touched = True
                self.on_touched()
                self.router.ask_turn()
        return 0

    def touch_hungry(self, bint has_news):
        """The stream has something new, where `has_news`, or has lost something: have those look whom it concerns."""
        cdef Delivery delivery
        for delivery in self.deliveries:
            if not delivery.is_touched and ((has_news and delivery.is_hungry()) or delivery.engine.dropped):
                delivery.is_touched = True
                self.touched.append(delivery)

    def serve(self, int64_t now_ns, int64_t slice_ns):
        """Do what is to be done, for about so long: whether something is left for the next turn."""
        cdef Delivery delivery
        cdef int64_t mono_ns = monotonic_ns(), until_ns
        cdef int more
        cdef Py_ssize_t n
        until_ns = mono_ns + slice_ns
        self.is_touched = True             # whoever is touched meanwhile is served in this round
        self.router.depth += 1                # what is told on the way goes to streams and services after it: messages are in our hands
        try:
            queue, self.touched = self.touched, []
            while queue:
                again = []
                for n in range(len(queue)):
                    delivery = <Delivery>queue[n]
                    delivery.is_touched = False
                    more = delivery.try_work(now_ns, &mono_ns, until_ns)
                    if more and not delivery.is_touched:
                        delivery.is_touched = True
                        again.append(delivery)
                    mono_ns = monotonic_ns()
                    if mono_ns >= until_ns:
                        self.touched = queue[n + 1:] + again + self.touched
                        self.is_touched = bool(self.touched)
                        return self.is_touched
                queue, self.touched = again + self.touched, []
        finally:
            self.router.depth -= 1
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

    def close(self):
        """All deliveries are closed: nobody touches one of them any more."""
        self.touched = []
        self.changed = []
        self.replies = []
        self.on_touched = None


cdef class Delivery(PushSender):
    """One consumer on the server. A subclass knows what needs Python: configuration, odd requests, timers, advisories.

    Always true: what was heard and not worked on has the delivery on its dispatcher's list.
    """

    def __init__(self, Desk dispatcher not None, ConsumerEngine engine not None, bytes ack_prefix not None, bytes deliver_subject not None):
        PushSender.__init__(self, dispatcher.router, dispatcher.sublist, engine, ack_prefix)
        self.dispatcher = dispatcher
        self.deliver_subject = deliver_subject
        dispatcher.deliveries.append(self)

    def __dealloc__(self):
        free(self.items)
        free(self.bytes)

    # What is heard.

    def listen(self, int kind, bytes subject not None):
        """Hear acks, pull requests or flow control answers on a subject: a token for `stop_listening`."""
        return <size_t>self.sublist.insert(kind, <void*>self, <const uint8_t*>PyBytes_AS_STRING(subject),
                                           <uint32_t>PyBytes_GET_SIZE(subject), NULL, 0, NULL, 0)

    def stop_listening(self, size_t token):
        self.sublist.remove(<Sub*>token)
        self.router.ask_turn()                # it is buried at the turn's end

    cdef bint hear(self, Sub* sub, Client publisher, MessageView* view) except -1:
        cdef Item* item
        cdef Delivered delivered
        cdef uint32_t size, start, headers_size = 0, text_size = 0
        cdef void* grown
        cdef uint8_t* out
        cdef int kind = sub.kind
        if self.is_closed:
            return False
        if kind == KIND_ACK:
            kind = read_verb(view.payload, view.payload_size)
            if kind != SAID_ACK:
                text_size = view.payload_size
        else:
            kind = SAID_PULL if kind == KIND_PULL else SAID_FLOW
            if kind == SAID_PULL and view.reply_size == 0:
                return True                # nobody to be told, and nobody to get something
            headers_size = view.headers_size
            text_size = view.payload_size if kind == SAID_PULL else view.subject_size
        if self.byte_count > BYTES_MAX:
            return False                   # the stream's lock was away for long: nobody hears it, as if nobody were here
        if self.item_count == self.item_capacity:
            grown = realloc(self.items, (self.item_capacity * 2 + 16) * sizeof(Item))
            if grown == NULL:
                raise MemoryError
            self.items = <Item*>grown
            self.item_capacity = self.item_capacity * 2 + 16
        size = view.reply_size + headers_size + text_size
        if self.byte_count + size > self.byte_capacity:
            grown = realloc(self.bytes, max(self.byte_capacity * 2, self.byte_count + size))
            if grown == NULL:
                raise MemoryError
            self.bytes = <uint8_t*>grown
            self.byte_capacity = max(self.byte_capacity * 2, self.byte_count + size)
        item = &self.items[self.item_count]
        item.kind = kind
        item.reply_at = self.byte_count
        item.reply_size = view.reply_size
        item.headers_size = headers_size
        item.text_size = text_size
        if size:
            out = self.bytes + self.byte_count
            if view.reply_size:
                memcpy(out, view.reply, view.reply_size)
            if headers_size:
                memcpy(out + view.reply_size, view.headers, headers_size)
            if text_size:
                memcpy(out + view.reply_size + headers_size, view.subject if kind == SAID_FLOW else view.payload, text_size)
        if kind < SAID_PULL:
            start = sub.subject_size - ACK_TAIL_SIZE
            read_delivered(view.subject + start, view.subject_size - start, &delivered)
            item.deliveries = delivered.deliveries
            item.seq = delivered.seq
            item.dseq = delivered.dseq
        self.item_count += 1
        self.byte_count += size
        self.dispatcher.touch(self)
        return True

    cdef int go_on(self) except -1:
        return self.dispatcher.touch(self)

    def touch(self):
        """Have a look at what is to be done, at the end of this turn."""
        if not self.is_closed:
            self.dispatcher.touch(self)

    # What is to be done.

    cdef bint is_hungry(self) noexcept:
        """Whether a new message would go to somebody."""
        if self.is_closed:
            return False
        if PyBytes_GET_SIZE(self.deliver_subject):
            return self.is_active and not (self.window and self.outstanding > self.window)
        return self.first != NULL

    cdef int try_work(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1:
        """Do it; one consumer's trouble is not the others'. It is tried again, if nobody says anything, a second later."""
        try:
            return self.work(now_ns, mono_ns, until_ns)
        except Exception:                  # noqa: a disk that cannot be read, mostly
            log.exception("consumer %r: delivery failed", self)
            self.armed_ns = mono_ns[0] + AGAIN_NS
            self.arm(AGAIN_NS / 1e9)
            return 0

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
            self.dispatcher.changed.append(self)
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
                try:
                    self.take_item(&items[n], data, now_ns, mono_ns)
                except Exception:          # noqa: what others said is not lost with it
                    log.exception("consumer %r: an ack or a request failed", self)
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
        cdef AckEntry* entry
        if item.kind == SAID_ACK:
            if self.ack_one(item.seq, item.dseq, item.deliveries, now_ns):
                self.answer(reply, item.reply_size)
        elif item.kind == SAID_PROGRESS:
            entry = self.engine.table.pending_entry(item.seq)
            if entry != NULL and entry.deadline_ns > now_ns:
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
        elif self.flow_answered(text, item.text_size):
            if self.flow_acks and item.headers_size:
                self.flowed(headers[:item.headers_size], now_ns)
        return 0

    # Acks and requests.

    cdef int ask(self, const uint8_t* reply, uint32_t reply_size, const uint8_t* text, uint32_t text_size, bytes headers,
                 int64_t now_ns, int64_t mono_ns) except -1:
        """A pull request."""
        cdef Asked asked
        if PyBytes_GET_SIZE(self.deliver_subject):
            return self.tell(reply, reply_size, PUSH_BASED, None)
        if (headers is not None or not read_asked(text, text_size, &asked)
                or (asked.is_object and (self.is_prioritized or self.is_pinned or self.is_overflow))
                or 0 < self.max_batch < asked.batch or 0 < self.max_expires_ns < asked.expires
                or 0 < self.max_bytes < asked.max_bytes):
            self.asked(reply[:reply_size], headers, text[:text_size], now_ns, mono_ns)
            return 0
        return self.put_asked(reply, reply_size, &asked, now_ns, mono_ns)

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
            self.dispatcher.replies.append(reply[:size])
        return 0

    # Time.

    cdef int plan(self, int64_t now_ns, int64_t mono_ns) except -1:
        """Have the timer come when something is due."""
        cdef int64_t due = self.next_ns + LATE_NS if self.next_ns and not self.is_in_pause(now_ns) else 0, deadline = 0
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

    # The end.

    def end(self):
        """Nothing is delivered any more."""
        self.is_closed = True
        self.item_count = self.byte_count = 0
        self.dispatcher.forget(self)
