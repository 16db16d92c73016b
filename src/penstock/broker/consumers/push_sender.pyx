"""PushSender: delivers a consumer's messages to its deliver subject while that has a subscriber.

The rate limit, flow control and the clients' unread bytes bound how fast. Calls its host, a `PushSenderHost` (push_sender.pyi),
when subscribers come or go and when it needs a subject for a flow control request.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from penstock.consumer.engine cimport LOOK_FOUND
from penstock.base.monotonic cimport monotonic_ns

cdef enum:
    WINDOW_MAX = 33554432
    WINDOW_PART = 16

cdef bytes FLOW_REQUEST = b"NATS/1.0 100 FlowControl Request\r\n\r\n"


@cython.final
cdef class PushSender:
    """The push side of a consumer.

    Always true: no message is sent while `is_active` is False.
    """

    def __init__(self, Outbox outbox not None, host):
        self.outbox = outbox
        self.engine = outbox.engine
        self.host = host
        self.deliver_subject = self.deliver_group = self.flow_subject = b""

    cdef void detach(self) noexcept:
        """The consumer is closed: let go of the host, which has us."""
        self.host = None

    cdef bint can_send(self) noexcept:
        """Whether the deliver subject has a subscriber, and flow control lets more be sent."""
        return self.is_active and not (self.window and self.outstanding > self.window)

    cdef int deliver(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1:
        """Send messages to the deliver subject: 1 when there is more to deliver in the next round."""
        cdef Outbox outbox = self.outbox
        cdef ConsumerEngine engine = self.engine
        cdef Candidate candidate
        cdef MessageView view
        cdef const uint8_t* subject = <const uint8_t*>PyBytes_AS_STRING(self.deliver_subject)
        cdef uint32_t subject_size = <uint32_t>PyBytes_GET_SIZE(self.deliver_subject)
        cdef uint64_t size
        cdef int count = 0
        self.rate_due_ns = 0
        while self.can_send():
            outbox.update_interest(subject, subject_size, &self.interest)
            if outbox.is_backlogged(subject, subject_size, &self.interest):
                break
            if engine.look(now_ns, &candidate) != LOOK_FOUND:
                if outbox.is_replay_waiting(now_ns):
                    self.sent_ns = max(mono_ns[0], mono_ns[0] + engine.wake_ns - now_ns - self.heartbeat_ns)
                break
            outbox.fill_view(&candidate, &view)
            size = <uint64_t>view.reply_size + candidate.headers_size + candidate.payload_size
            if self.rate > 0 and not self.has_tokens(size + candidate.subject_size, mono_ns[0]):
                break
            if not outbox.send(&candidate, &view, subject, subject_size, &self.interest, now_ns):
                self.update_activity()     # the subscriber has gone
                break
            self.sent_ns = mono_ns[0]
            if self.window:
                self.count_outstanding(<int64_t>(size + subject_size))
            count += 1
            if count % CLOCK_EVERY == 0:
                mono_ns[0] = monotonic_ns()
                if count >= QUANTUM or mono_ns[0] >= until_ns:
                    return 1
        if self.heartbeat_ns and self.is_active and mono_ns[0] >= self.sent_ns + self.heartbeat_ns:
            self.send_heartbeat(mono_ns[0])
        return 0

    # Subscribers.

    def update_activity(self):
        """Look whether the deliver subject has a subscriber; called when subscriptions to it come or go."""
        cdef bint is_active = self.outbox.sublist.has_literal(self.deliver_subject, self.deliver_group)
        if self.host is None or is_active == self.is_active:
            return
        self.is_active = is_active
        self.sent_ns = monotonic_ns()
        self.host.activity_changed()
        if self.outbox.session is not None:
            self.outbox.session.resume()

    def deliver_to(self, bytes subject not None, bytes group not None):
        """Deliver to another subject from now on, or to another queue group of it."""
        self.deliver_subject = subject
        self.deliver_group = group
        self.interest.generation = 0

    # The rate limit.

    cdef bint has_tokens(self, uint64_t size, int64_t mono_ns) noexcept:
        """Whether the rate limit lets a message pass now; if not, `rate_due_ns` is when it will."""
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

    # Flow control.

    def set_flow_control(self, bint is_on, bint acks):
        """Ask the client now and then how far it has read; with `acks`, its answers acknowledge messages."""
        if is_on and not self.window:
            self.window = WINDOW_MAX // WINDOW_PART
        elif not is_on:
            self.window = 0
        self.flow_acks = acks

    cdef int count_outstanding(self, int64_t size) except -1:
        """So much more is under way: ask for an answer at half of what may be."""
        self.outstanding += size
        if not self.flow_subject:
            if self.outstanding > self.window // 2 or (self.flow_acks and self.engine.is_full):
                self.request_flow_control()
        elif self.outstanding - self.flow_size >= self.window:
            self.flow_size += size
        return 0

    @property
    def is_stalled(self):
        """Whether nothing more is sent until the client answers a flow control request."""
        return bool(self.window) and self.outstanding > self.window

    def request_flow_control(self):
        """Send a flow control request."""
        self.flow_size = self.outstanding
        self.flow_subject = self.host.new_flow_subject()
        self.outbox.send_status(self.deliver_subject, FLOW_REQUEST, self.flow_subject)

    cdef bint take_flow_answer(self, const uint8_t* subject, uint32_t size) except -1:
        """The answer to a flow control request: False if it answers another than the last one."""
        if subject[:size] != self.flow_subject:
            return False
        self.outstanding = max(self.outstanding - self.flow_size, 0)
        self.window = min(self.window * 2, WINDOW_MAX)
        self.flow_subject = b""
        self.flow_size = 0
        return True

    cdef int send_heartbeat(self, int64_t mono_ns) except -1:
        self.outbox.send_status(self.deliver_subject, self.outbox.heartbeat(self.flow_subject))
        self.sent_ns = mono_ns
        if self.flow_acks and self.engine.table.pending_count and not self.flow_subject:
            self.request_flow_control()
        return 0
