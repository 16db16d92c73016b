"""PushSender: a consumer's messages to a subject: while somebody listens there, as fast as they are taken, or as they may be."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from penstock.consumer.engine cimport LOOK_FOUND
from penstock.base.monotonic cimport monotonic_ns

cdef enum:
    WINDOW_MAX = 33554432
    WINDOW_PART = 16

cdef bytes FLOW_REQUEST = b"NATS/1.0 100 FlowControl Request\r\n\r\n"


cdef class PushSender(PullQueue):
    """The push side of a consumer; `deliver_subject` is empty where it has none."""

    cdef int push(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1:
        cdef ConsumerEngine engine = self.engine
        cdef Candidate candidate
        cdef MessageView view
        cdef const uint8_t* subject = <const uint8_t*>PyBytes_AS_STRING(self.deliver_subject)
        cdef uint32_t subject_size = <uint32_t>PyBytes_GET_SIZE(self.deliver_subject)
        cdef uint64_t size
        cdef int count = 0
        self.rate_due_ns = 0
        while self.is_active and not (self.window and self.outstanding > self.window):
            self.resolve(subject, subject_size, &self.hearing)
            if self.is_choked(subject, subject_size, &self.hearing):
                break
            if engine.look(now_ns, &candidate) != LOOK_FOUND:
                if self.is_in_pause(now_ns):
                    self.sent_ns = max(mono_ns[0], mono_ns[0] + engine.wake_ns - now_ns - self.heartbeat_ns)
                break
            self.address(&candidate, &view)
            size = <uint64_t>view.reply_size + candidate.headers_size + candidate.payload_size
            if self.rate > 0 and not self.has_tokens(size + candidate.subject_size, mono_ns[0]):
                break
            if not self.give(&view, subject, subject_size, &self.hearing):
                self.notice()              # who listened is gone
                break
            engine.hand_over(&candidate, now_ns)
            self.is_changed = True
            self.sent_ns = mono_ns[0]
            if self.window:
                self.account_for(<int64_t>(size + subject_size))
            count += 1
            if count % CLOCK_EVERY == 0:
                mono_ns[0] = monotonic_ns()
                if count >= QUANTUM or mono_ns[0] >= until_ns:
                    return 1
        if self.heartbeat_ns and self.is_active and mono_ns[0] >= self.sent_ns + self.heartbeat_ns:
            self.beat(mono_ns[0])
        return 0

    # Who listens.

    def notice(self):
        """Subscriptions to the subject that we deliver to have come or gone."""
        cdef bint is_active = self.sublist.has_literal(self.deliver_subject, self.deliver_group())
        if self.is_closed or is_active == self.is_active:
            return
        self.is_active = is_active
        self.sent_ns = monotonic_ns()
        self.interest_changed()
        self.touch()

    def deliver_to(self, bytes subject not None):
        """Deliver to another subject from now on."""
        self.deliver_subject = subject
        self.hearing.generation = 0

    # How fast.

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

    # Flow control.

    def control_flow(self, bint is_on, bint acks):
        """Ask the client now and then whether it has come so far; where `acks`, its answers acknowledge."""
        if is_on and not self.window:
            self.window = WINDOW_MAX // WINDOW_PART
        elif not is_on:
            self.window = 0
        self.flow_acks = acks

    cdef int account_for(self, int64_t size) except -1:
        """So much more is under way: ask for an answer when it is half of what may be."""
        self.outstanding += size
        if not self.flow_subject:
            if self.outstanding > self.window // 2 or (self.flow_acks and self.engine.is_full):
                self.ask_flow()
        elif self.outstanding - self.asked_size >= self.window:
            self.asked_size += size
        return 0

    @property
    def is_stalled(self):
        """Whether nothing more is sent until the client answers a flow control request."""
        return bool(self.window) and self.outstanding > self.window

    def ask_flow(self):
        """Send a flow control request."""
        self.asked_size = self.outstanding
        self.flow_subject = self.new_flow_subject()
        self.send_status(self.deliver_subject, FLOW_REQUEST, self.flow_subject)

    cdef bint flow_answered(self, const uint8_t* subject, uint32_t size) except -1:
        """An answer to a flow control request: whether it is the one that is waited for."""
        if subject[:size] != self.flow_subject:
            return False
        self.outstanding = max(self.outstanding - self.asked_size, 0)
        self.window = min(self.window * 2, WINDOW_MAX)
        self.flow_subject = b""
        self.asked_size = 0
        return True

    cdef int beat(self, int64_t mono_ns) except -1:
        self.send_status(self.deliver_subject, self.heartbeat())
        self.sent_ns = mono_ns
        if self.flow_acks and self.engine.table.pending_count and not self.flow_subject:
            self.ask_flow()
        return 0
