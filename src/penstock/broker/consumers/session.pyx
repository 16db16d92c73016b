"""ConsumerSession: one consumer on the server. SessionScheduler: the sessions of one stream, served in turn.

The router hands over acks and pull requests while it reads sockets. They are copied, and handled at the end of the turn of the loop,
when the scheduler's caller has the stream's lock: acks first, then requests, then messages, which go from the store straight into the
clients' buffers. A session has an outbox, and a pull queue or a push sender. Its host, a `SessionHost` (session.pyi), does what needs
Python. The order of things, and every status, are nats-server's.
"""
import logging

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from penstock.consumer.ack_table cimport AckEntry
from penstock.base.monotonic cimport monotonic_ns
from penstock.broker.routing.origin cimport KIND_ACK, KIND_PULL
from penstock.broker.consumers.ack_parser cimport (
    ACK_NEXT, ACK_OTHER, ACK_PLAIN, ACK_PROGRESS, ACK_TAIL_SIZE, AckNumbers, PullFields, parse_ack_kind, parse_ack_numbers,
    parse_pull_fields,
)

log = logging.getLogger("penstock")

cdef enum:                                 # kinds of what is received, besides the ACK_… kinds of ack_parser.pxd
    RECEIVED_PULL = 16
    RECEIVED_FLOW = 17

cdef enum:
    RECEIVED_KEPT = 4096
    BYTES_KEPT = 262144
    BYTES_MAX = 268435456                  # received while the stream's lock is not free
    LATE_NS = 1500000                      # requests expire so much later, as nats-server's do: a client's own timer comes first
    RETRY_NS = 1000000000                  # until a session that failed is served again

cdef int64_t FOREVER = 0x3FFFFFFFFFFFFFFFLL
cdef bytes PUSH_BASED = b"NATS/1.0 409 Consumer is push based\r\n\r\n"


@cython.final
cdef class SessionScheduler:
    """The sessions of one stream's consumers, and which of them have something to do. The caller holds the stream's lock."""

    def __init__(self, Router router not None, Sublist sublist not None, on_work):
        self.router = router
        self.sublist = sublist
        self.on_work = on_work
        self.sessions = []
        self.ready = []
        self.changed = []
        self.replies = []

    cdef int schedule(self, ConsumerSession session) except -1:
        """`session` has something to do: it is served at the end of this turn of the loop."""
        if not session.is_scheduled and not session.is_closed:
            session.is_scheduled = True
            self.ready.append(session)
            if not self.is_announced:
                self.is_announced = True
                self.on_work()
                self.router.request_tick()
        return 0

    def schedule_interested(self, bint has_news):
        """The stream has new messages, if `has_news`, or has lost some: schedule the sessions that this concerns."""
        cdef ConsumerSession session
        for session in self.sessions:
            if not session.is_scheduled and ((has_news and session.has_demand()) or session.engine.dropped):
                session.is_scheduled = True
                self.ready.append(session)

    def serve(self, int64_t now_ns, int64_t slice_ns):
        """Serve the sessions that are ready, for about `slice_ns`: whether something is left for the next turn."""
        cdef ConsumerSession session
        cdef int64_t mono_ns = monotonic_ns(), until_ns
        cdef int more
        cdef Py_ssize_t n
        until_ns = mono_ns + slice_ns
        self.is_announced = True           # sessions that become ready meanwhile are served in this round
        self.router.depth += 1             # what is published meanwhile reaches streams and services afterwards: we hold messages
        try:
            queue, self.ready = self.ready, []
            while queue:
                again = []
                for n in range(len(queue)):
                    session = <ConsumerSession>queue[n]
                    session.is_scheduled = False
                    more = session.try_serve(now_ns, &mono_ns, until_ns)
                    if more and not session.is_scheduled:
                        session.is_scheduled = True
                        again.append(session)
                    mono_ns = monotonic_ns()
                    if mono_ns >= until_ns:
                        self.ready = queue[n + 1:] + again + self.ready
                        self.is_announced = bool(self.ready)
                        return self.is_announced
                queue, self.ready = again + self.ready, []
        finally:
            self.router.depth -= 1
        self.is_announced = False
        return False

    @property
    def has_work(self):
        return bool(self.ready)

    def take_changed(self):
        """The hosts of sessions whose changes are to be written to the consumer log."""
        taken, self.changed = self.changed, []
        return taken

    def take_replies(self):
        """The subjects that are answered once all changes so far are durable."""
        taken, self.replies = self.replies, []
        return taken

    def close(self):
        """All sessions are closed, and none is scheduled any more."""
        self.ready = []
        self.changed = []
        self.replies = []
        self.on_work = None


@cython.final
cdef class ConsumerSession(Subscriber):
    """One consumer on the server.

    Always true: it has a pull queue or a push sender, never both. While something is received and not handled, it is scheduled.
    """

    def __init__(self, SessionScheduler scheduler not None, ConsumerEngine engine not None, bytes ack_prefix not None, bint is_push,
                 host):
        self.scheduler = scheduler
        self.engine = engine
        self.host = host
        self.outbox = Outbox(scheduler.router, scheduler.sublist, engine, ack_prefix)
        self.outbox.session = self
        if is_push:
            self.push_sender = PushSender(self.outbox, host)
        else:
            self.pull_queue = PullQueue(self.outbox, host)
        scheduler.sessions.append(self)

    def __dealloc__(self):
        free(self.received)
        free(self.bytes)

    # What clients send.

    def listen(self, int kind, bytes subject not None):
        """Receive acks, pull requests or flow control answers on a subject: a token for `stop_listening`."""
        return <size_t>self.scheduler.sublist.insert(kind, <void*>self, <const uint8_t*>PyBytes_AS_STRING(subject),
                                                     <uint32_t>PyBytes_GET_SIZE(subject), NULL, 0, NULL, 0)

    def stop_listening(self, size_t token):
        self.scheduler.sublist.remove(<Sub*>token)
        self.scheduler.router.request_tick()  # its end frees the subscription

    cdef bint receive(self, Sub* sub, Client publisher, MessageView* view) except -1:
        cdef Received* item
        cdef AckNumbers numbers
        cdef uint32_t size, start, headers_size = 0, text_size = 0
        cdef void* grown
        cdef uint8_t* out
        cdef int kind = sub.kind
        if self.is_closed:
            return False
        if kind == KIND_ACK:
            kind = parse_ack_kind(view.payload, view.payload_size)
            if kind != ACK_PLAIN:
                text_size = view.payload_size
        else:
            kind = RECEIVED_PULL if kind == KIND_PULL else RECEIVED_FLOW
            if kind == RECEIVED_PULL and view.reply_size == 0:
                return True                # no subject to send a message or a status to
            headers_size = view.headers_size
            text_size = view.payload_size if kind == RECEIVED_PULL else view.subject_size
        if self.byte_count > BYTES_MAX:
            return False                   # the stream's lock was not free for long: as if there were no subscriber
        if self.received_count == self.received_capacity:
            grown = realloc(self.received, (self.received_capacity * 2 + 16) * sizeof(Received))
            if grown == NULL:
                raise MemoryError
            self.received = <Received*>grown
            self.received_capacity = self.received_capacity * 2 + 16
        size = view.reply_size + headers_size + text_size
        if self.byte_count + size > self.byte_capacity:
            grown = realloc(self.bytes, max(self.byte_capacity * 2, self.byte_count + size))
            if grown == NULL:
                raise MemoryError
            self.bytes = <uint8_t*>grown
            self.byte_capacity = max(self.byte_capacity * 2, self.byte_count + size)
        item = &self.received[self.received_count]
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
                memcpy(out + view.reply_size + headers_size, view.subject if kind == RECEIVED_FLOW else view.payload, text_size)
        if kind < RECEIVED_PULL:
            start = sub.subject_size - ACK_TAIL_SIZE
            parse_ack_numbers(view.subject + start, view.subject_size - start, &numbers)
            item.deliveries = numbers.deliveries
            item.seq = numbers.seq
            item.dseq = numbers.dseq
        self.received_count += 1
        self.byte_count += size
        self.scheduler.schedule(self)
        return True

    cdef int resume(self) except -1:
        return self.scheduler.schedule(self)

    def schedule(self):
        """Serve this consumer at the end of this turn of the loop."""
        if not self.is_closed:
            self.scheduler.schedule(self)

    # Serving.

    cdef bint has_demand(self) noexcept:
        """Whether a new message would be sent to some client."""
        if self.is_closed:
            return False
        if self.push_sender is not None:
            return self.push_sender.can_send()
        return self.pull_queue.first != NULL

    cdef int try_serve(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1:
        """Serve this consumer. If it fails, the others are served all the same, and this one again a second later."""
        try:
            return self.serve(now_ns, mono_ns, until_ns)
        except Exception:                  # noqa: a disk that cannot be read, mostly
            log.exception("consumer %r: delivery failed", self.host)
            if not self.is_closed:
                self.armed_ns = mono_ns[0] + RETRY_NS
                self.host.arm(RETRY_NS / 1e9)
            return 0

    cdef int serve(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1:
        """Handle what was received, then deliver messages: 1 when there is more to deliver."""
        cdef int more
        if self.is_closed:
            return 0
        if self.received_count:
            self.handle_received(now_ns, mono_ns[0])
            if self.is_closed:
                return 0
        if self.push_sender is not None:
            more = self.push_sender.deliver(now_ns, mono_ns, until_ns)
        else:
            more = self.pull_queue.deliver(now_ns, mono_ns, until_ns)
        if self.outbox.has_sent:
            self.outbox.has_sent = False
            self.is_changed = True
        if self.is_closed:
            return 0
        if self.is_due:
            self.is_due = False
            self.engine.collect_due(now_ns)  # without a waiting request, too: some may have been delivered as often as they may be
        if self.engine.given_up or self.engine.dropped:
            self.is_changed = True
            self.host.messages_lost(now_ns)
        if self.is_changed:
            self.is_changed = False
            self.scheduler.changed.append(self.host)
        if not more:
            self.arm_timer(now_ns, mono_ns[0])
        return more

    cdef int handle_received(self, int64_t now_ns, int64_t mono_ns) except -1:
        cdef Received* items = self.received
        cdef uint8_t* data = self.bytes
        cdef uint32_t n, count = self.received_count, item_capacity = self.received_capacity, byte_capacity = self.byte_capacity
        # Our own messages may come back to us while we handle these: they go into new arrays.
        self.received = NULL
        self.bytes = NULL
        self.received_count = self.received_capacity = self.byte_count = self.byte_capacity = 0
        if self.pull_queue is not None:
            self.pull_queue.active_ns = mono_ns
        try:
            for n in range(count):
                if self.is_closed:
                    break
                try:
                    self.handle(&items[n], data, now_ns, mono_ns)
                except Exception:          # noqa: the other clients' acks and requests are handled all the same
                    log.exception("consumer %r: an ack or a request failed", self.host)
        finally:
            if (self.received == NULL and self.bytes == NULL and item_capacity <= RECEIVED_KEPT
                    and byte_capacity <= BYTES_KEPT):
                self.received = items
                self.bytes = data
                self.received_capacity = item_capacity
                self.byte_capacity = byte_capacity
            else:
                free(items)
                free(data)
        return 0

    cdef int handle(self, Received* item, const uint8_t* data, int64_t now_ns, int64_t mono_ns) except -1:
        cdef const uint8_t* reply = data + item.reply_at
        cdef const uint8_t* headers = reply + item.reply_size
        cdef const uint8_t* text = headers + item.headers_size
        cdef AckEntry* entry
        if item.kind == ACK_PLAIN:
            if self.ack_one(item.seq, item.dseq, item.deliveries, now_ns):
                self.queue_reply(reply, item.reply_size)
        elif item.kind == ACK_PROGRESS:
            entry = self.engine.table.pending_entry(item.seq)
            if entry != NULL and entry.deadline_ns > now_ns:
                self.is_changed |= self.engine.progress(item.seq, now_ns)
            if item.seq:
                self.queue_reply(reply, item.reply_size)
        elif item.kind == ACK_NEXT:
            self.ack_one(item.seq, item.dseq, item.deliveries, now_ns)
            if item.reply_size:
                self.handle_pull(reply, item.reply_size, text + 4, item.text_size - 4, None, now_ns, mono_ns)
        elif item.kind == ACK_OTHER:
            if self.host.rare_ack(item.seq, item.dseq, item.deliveries, text[:item.text_size], now_ns):
                self.queue_reply(reply, item.reply_size)
        elif item.kind == RECEIVED_PULL:
            self.handle_pull(reply, item.reply_size, text, item.text_size, headers[:item.headers_size] if item.headers_size else None,
                             now_ns, mono_ns)
        elif self.push_sender is not None and self.push_sender.take_flow_answer(text, item.text_size):
            if self.push_sender.flow_acks and item.headers_size:
                self.host.flow_acked(headers[:item.headers_size], now_ns)
        return 0

    # Acks and requests.

    cdef int handle_pull(self, const uint8_t* reply, uint32_t reply_size, const uint8_t* text, uint32_t text_size, bytes headers,
                         int64_t now_ns, int64_t mono_ns) except -1:
        cdef PullFields fields
        if self.pull_queue is None:
            return self.outbox.write_status(reply, reply_size, PUSH_BASED, None)
        if (headers is not None or not parse_pull_fields(text, text_size, &fields)
                or self.pull_queue.must_be_read_in_python(&fields)):
            self.host.rare_pull(reply[:reply_size], headers, text[:text_size], now_ns, mono_ns)
            return 0
        return self.pull_queue.add_fields(reply, reply_size, &fields, now_ns, mono_ns)

    cdef bint ack_one(self, uint64_t seq, uint64_t dseq, uint64_t deliveries, int64_t now_ns) except -1:
        """Apply an ack: whether its sender gets an answer."""
        cdef AckEntry* entry
        if seq >= self.engine.next_seq and not self.is_flow_controlled and self.engine.last_at >= self.engine.last_count:
            return False                   # of a message that was not delivered yet
        if seq == 0:
            return self.confirms_empty_acks
        if self.is_sampled:
            entry = self.engine.table.pending_entry(seq)
            if entry != NULL:
                self.host.ack_sampled(seq, dseq, deliveries, now_ns - entry.last_ns)
        self.is_changed |= self.engine.ack(seq, dseq, now_ns)
        return True

    def acknowledge(self, uint64_t seq, uint64_t dseq, int64_t now_ns):
        """An ack that Python has read; it is not sampled. Whether its sender gets an answer."""
        cdef bint is_sampled = self.is_sampled
        self.is_sampled = False
        try:
            return self.ack_one(seq, dseq, 0, now_ns)
        finally:
            self.is_sampled = is_sampled

    def redeliver_at(self, uint64_t seq, uint64_t dseq, int64_t due_ns):
        """A nak: deliver the message again at `due_ns`. Whether it was pending."""
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

    def redeliver_all(self, int64_t now_ns):
        """Deliver all pending messages again, at once."""
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
        """When the last of the pending messages is due; 0: none is."""
        cdef Py_ssize_t n = 0
        cdef int64_t latest = 0
        while True:
            n = self.engine.table.next_pending(n)
            if n >= self.engine.table.used:
                return latest
            if self.engine.table.at(n).deadline_ns < FOREVER:
                latest = max(latest, self.engine.table.at(n).deadline_ns)
            n += 1

    cdef int queue_reply(self, const uint8_t* reply, uint32_t size) except -1:
        """MatchResult the sender of an ack once the ack is durable, if it gave a reply subject."""
        if size:
            self.scheduler.replies.append(reply[:size])
        return 0

    # Time.

    cdef int arm_timer(self, int64_t now_ns, int64_t mono_ns) except -1:
        """Have the timer fire when the next thing is due."""
        cdef int64_t due = 0, deadline = 0
        if self.push_sender is not None:
            due = self.push_sender.rate_due_ns
            if self.push_sender.heartbeat_ns and self.push_sender.is_active:
                deadline = self.push_sender.sent_ns + self.push_sender.heartbeat_ns
                if due == 0 or deadline < due:
                    due = deadline
        elif self.pull_queue.next_ns and not self.outbox.is_replay_waiting(now_ns):
            due = self.pull_queue.next_ns + LATE_NS
        if self.engine.wake_ns > now_ns:
            deadline = mono_ns + self.engine.wake_ns - now_ns
            if due == 0 or deadline < due:
                due = deadline
        deadline = 0
        if (self.engine.table.pending_count and self.engine.table.earliest(&deadline) and now_ns < deadline < FOREVER
                and (self.engine.held == 0 or self.engine.max_deliver > 0)):
            deadline = mono_ns + deadline - now_ns
            if due == 0 or deadline < due:
                due = deadline
        if due and (self.armed_ns == 0 or due < self.armed_ns):
            self.armed_ns = due
            self.host.arm((due - mono_ns) / 1e9)
        return 0

    def timer_fired(self):
        self.armed_ns = 0
        self.is_due = True
        self.schedule()

    # The end.

    def close(self):
        """Deliver nothing any more, and let go of the host."""
        self.is_closed = True
        self.received_count = self.byte_count = 0
        if self in self.scheduler.sessions:
            self.scheduler.sessions.remove(self)
        self.outbox.session = None
        if self.pull_queue is not None:
            self.pull_queue.detach()
        else:
            self.push_sender.detach()
        self.host = None
