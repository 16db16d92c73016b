# PushSender: delivers a consumer's messages to its deliver subject.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.consumer.engine cimport Candidate, ConsumerEngine
from penstock.broker.routing.message_view cimport MessageView
from penstock.broker.consumers.outbox cimport CLOCK_EVERY, QUANTUM, Interest, Outbox

@cython.final
cdef class PushSender:
    cdef Outbox outbox
    cdef ConsumerEngine engine             # the outbox's
    cdef object host                       # PushSenderHost of push_sender.pyi; None once the consumer is closed
    cdef readonly bytes deliver_subject
    cdef readonly bytes deliver_group      # empty: none
    cdef Interest interest
    cdef readonly bint is_active           # the deliver subject has a subscriber
    cdef public int64_t heartbeat_ns       # 0: none
    cdef int64_t sent_ns                   # when something was last sent
    cdef public double rate                # bytes per second, 0: any number
    cdef public double burst
    cdef double tokens
    cdef int64_t tokens_ns
    cdef int64_t rate_due_ns               # when there are tokens enough
    cdef int64_t window                    # bytes that may be under way, 0: any number
    cdef int64_t outstanding
    cdef readonly bytes flow_subject       # of the flow control request that is not answered yet; empty: none is
    cdef int64_t flow_size                 # the bytes that its answer frees
    cdef bint flow_acks                    # the answers acknowledge messages

    cdef void detach(self) noexcept
    cdef bint can_send(self) noexcept
    cdef int deliver(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1
    cdef bint has_tokens(self, uint64_t size, int64_t mono_ns) noexcept
    cdef int count_outstanding(self, int64_t size) except -1
    cdef bint take_flow_answer(self, const uint8_t* subject, uint32_t size) except -1
    cdef int send_heartbeat(self, int64_t mono_ns) except -1
