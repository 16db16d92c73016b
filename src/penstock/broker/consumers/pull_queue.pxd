# PullQueue: the pull requests that wait for a consumer's messages.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.consumer.engine cimport Candidate, ConsumerEngine
from penstock.broker.routing.message_view cimport MessageView
from penstock.broker.consumers.outbox cimport CLOCK_EVERY, QUANTUM, Interest, Outbox
from penstock.broker.consumers.ack_parser cimport PullFields

cdef struct Request:                       # a pull request that waits
    Request* next
    Request* previous
    int64_t left                           # messages that it still wants …
    int64_t given                          # … and those that it got
    int64_t bytes_left                     # 0: any number
    int64_t expires_ns                     # of the monotonic clock, 0: never
    int64_t heartbeat_ns                   # 0: none
    int64_t heartbeat_due_ns
    int64_t min_pending
    int64_t min_ack_pending
    int64_t priority
    bint no_wait
    bint has_group                         # it came as an object, which may name a group
    Interest interest
    uint8_t* pin_id                        # the pin that the request names; NULL: none
    uint32_t pin_id_size
    uint32_t reply_size
    uint8_t* reply                         # stored behind the struct

@cython.final
cdef class PullQueue:
    cdef Outbox outbox
    cdef ConsumerEngine engine             # the outbox's
    cdef object host                       # PullQueueHost of pull_queue.pyi; None once the consumer is closed
    cdef Request* first
    cdef Request* last
    cdef int64_t waiting_count
    cdef int64_t no_wait_count
    cdef int64_t next_ns                   # when a request expires or wants a heartbeat, 0: never; too early is harmless
    cdef int64_t swept_ns
    cdef public int64_t active_ns          # when a client last sent a request or an ack, or got a message
    cdef bint were_all_backlogged          # the last look for a receiver found only clients with too much unread
    cdef bint is_replaying                 # the message for the first request waits for its time
    cdef public bint is_prioritized
    cdef public bint is_pinned
    cdef public bint is_overflow
    cdef public int64_t max_waiting
    cdef public int64_t max_batch
    cdef public int64_t max_expires_ns
    cdef public int64_t max_bytes

    cdef void detach(self) noexcept
    cdef bint must_be_read_in_python(self, PullFields* fields) noexcept
    cdef int add_fields(self, const uint8_t* reply, uint32_t reply_size, PullFields* fields, int64_t now_ns, int64_t mono_ns) except -1
    cdef Request* make(self, const uint8_t* reply, uint32_t reply_size) except NULL
    cdef int admit(self, Request* request, int64_t now_ns, int64_t mono_ns) except -1
    cdef uint64_t due_count(self, int64_t now_ns, uint64_t enough) noexcept
    cdef void enqueue(self, Request* request) noexcept
    cdef void unlink(self, Request* request) noexcept
    cdef void drop(self, Request* request) noexcept
    cdef void requeue(self, Request* request) noexcept
    cdef int refuse(self, Request* request, bytes status) except -1
    cdef int64_t sweep(self, bint is_end, int64_t mono_ns) except? -1
    cdef int match_pin(self, Request* request, bint* has_new_pin) except -1
    cdef Request* choose(self, Candidate* candidate, uint64_t size, int64_t mono_ns, bint* has_new_pin) except? NULL
    cdef int deliver(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1
