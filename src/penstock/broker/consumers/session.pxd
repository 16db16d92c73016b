# ConsumerSession: one consumer on the server. SessionScheduler: the sessions of one stream. Rules: docs/consumers.md, "On the server".
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.broker.consumers.outbox cimport Outbox
from penstock.broker.consumers.pull_queue cimport PullQueue
from penstock.broker.consumers.push_sender cimport PushSender
from penstock.broker.routing.client cimport Client
from penstock.broker.routing.message_view cimport MessageView
from penstock.broker.routing.router cimport Router
from penstock.broker.routing.sublist cimport Sub, Sublist
from penstock.broker.routing.subscriber cimport Subscriber
from penstock.consumer.engine cimport ConsumerEngine

cdef struct Received:                      # an ack, a pull request or a flow control answer that is not handled yet
    int kind
    uint32_t reply_at                      # into the bytes beside the array
    uint32_t reply_size
    uint32_t headers_size                  # after the reply
    uint32_t text_size                     # after the headers
    uint64_t deliveries                    # of an ack: the numbers of its subject
    uint64_t seq
    uint64_t dseq

@cython.final
cdef class SessionScheduler:
    cdef readonly Router router
    cdef Sublist sublist
    cdef object on_work                    # called once when a session is ready
    cdef list sessions
    cdef list ready                        # sessions with something to do
    cdef list changed                      # hosts of sessions whose changes are to be written to the consumer log
    cdef list replies                      # subjects that are answered when these changes are durable
    cdef bint is_announced                 # `on_work` was called, or `serve` runs

    cdef int schedule(self, ConsumerSession session) except -1

@cython.final
cdef class ConsumerSession(Subscriber):
    cdef readonly SessionScheduler scheduler
    cdef readonly Outbox outbox
    cdef readonly PullQueue pull_queue     # None: it is a push consumer
    cdef readonly PushSender push_sender   # None: it is a pull consumer
    cdef ConsumerEngine engine             # the outbox's
    cdef object host                       # SessionHost of session.pyi; None once the session is closed
    cdef readonly bint is_closed
    cdef bint is_scheduled                 # on the scheduler's list
    cdef bint is_changed                   # something is to be written to the consumer log
    cdef bint is_due                       # the timer has fired
    cdef Received* received
    cdef uint32_t received_count
    cdef uint32_t received_capacity
    cdef uint8_t* bytes
    cdef uint32_t byte_count
    cdef uint32_t byte_capacity
    cdef int64_t armed_ns                  # when the timer fires, 0: it does not run
    cdef public bint confirms_empty_acks   # acks of sequence 0 are answered
    cdef public bint is_sampled
    cdef public bint is_flow_controlled

    cdef bint has_demand(self) noexcept
    cdef int try_serve(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1
    cdef int serve(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1
    cdef int handle_received(self, int64_t now_ns, int64_t mono_ns) except -1
    cdef int handle(self, Received* item, const uint8_t* data, int64_t now_ns, int64_t mono_ns) except -1
    cdef int handle_pull(self, const uint8_t* reply, uint32_t reply_size, const uint8_t* text, uint32_t text_size, bytes headers,
                         int64_t now_ns, int64_t mono_ns) except -1
    cdef bint ack_one(self, uint64_t seq, uint64_t dseq, uint64_t deliveries, int64_t now_ns) except -1
    cdef int queue_reply(self, const uint8_t* reply, uint32_t size) except -1
    cdef int arm_timer(self, int64_t now_ns, int64_t mono_ns) except -1
