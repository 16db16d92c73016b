# A consumer's messages to a subject.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.consumer.engine cimport ConsumerEngine, Candidate
from penstock.broker.routing.message_view cimport MessageView
from penstock.broker.consumers.outbox cimport CLOCK_EVERY, QUANTUM, Hearing
from penstock.broker.consumers.pull_queue cimport PullQueue

cdef class PushSender(PullQueue):
    cdef readonly bint is_closed
    cdef readonly bytes deliver_subject    # empty: it is a pull consumer
    cdef Hearing hearing
    cdef readonly bint is_active           # somebody listens there
    cdef public int64_t heartbeat_ns       # 0: none
    cdef int64_t sent_ns                   # when something was last sent there
    cdef public double rate                # bytes per second, 0: any number
    cdef public double burst
    cdef double tokens
    cdef int64_t tokens_ns
    cdef int64_t rate_due_ns               # when there are tokens enough
    cdef int64_t window                    # bytes that may be under way, 0: any number
    cdef int64_t outstanding
    cdef int64_t asked_size                # what the answer will free
    cdef bint flow_acks                    # the answers acknowledge messages

    cdef int push(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1
    cdef bint has_tokens(self, uint64_t size, int64_t mono_ns) noexcept
    cdef int account_for(self, int64_t size) except -1
    cdef bint flow_answered(self, const uint8_t* subject, uint32_t size) except -1
    cdef int beat(self, int64_t mono_ns) except -1
