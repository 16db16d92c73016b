# The requests that wait for a consumer's messages.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.consumer.engine cimport ConsumerEngine, Candidate
from penstock.broker.routing.message_view cimport MessageView
from penstock.broker.consumers.outbox cimport CLOCK_EVERY, QUANTUM, Hearing, Outbox
from penstock.broker.consumers.ack_parser cimport Asked

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
    Hearing hearing
    uint8_t* pin_id                        # what it says the pin is; NULL: nothing
    uint32_t pin_id_size
    uint32_t reply_size
    uint8_t* reply                         # lies behind the struct

cdef class PullQueue(Outbox):
    cdef Request* first
    cdef Request* last
    cdef int64_t waiting_count
    cdef int64_t no_wait_count
    cdef int64_t next_ns                   # when a request expires or wants a heartbeat, 0: never; too early is harmless
    cdef int64_t swept_ns
    cdef public int64_t active_ns          # when somebody last did something here
    cdef bint is_last_choked               # the last look for a subscriber found only clients that take no more
    cdef bint is_replaying                 # the message for the first request waits for its time
    cdef public bint is_prioritized
    cdef public bint is_pinned
    cdef public bint is_overflow
    cdef public int64_t max_waiting
    cdef public int64_t max_batch
    cdef public int64_t max_expires_ns
    cdef public int64_t max_bytes

    cdef int put_asked(self, const uint8_t* reply, uint32_t reply_size, Asked* asked, int64_t now_ns, int64_t mono_ns) except -1
    cdef Request* make(self, const uint8_t* reply, uint32_t reply_size) except NULL
    cdef int admit(self, Request* request, int64_t now_ns, int64_t mono_ns) except -1
    cdef uint64_t due_count(self, int64_t now_ns, uint64_t enough) noexcept
    cdef void enqueue(self, Request* request) noexcept
    cdef void unlink(self, Request* request) noexcept
    cdef void drop(self, Request* request) noexcept
    cdef void requeue(self, Request* request) noexcept
    cdef int64_t sweep(self, bint is_end, int64_t mono_ns) except? -1
    cdef int pin_fits(self, Request* request, bint* has_new_pin) except -1
    cdef Request* choose(self, Candidate* candidate, uint64_t size, int64_t mono_ns, bint* has_new_pin) except? NULL
    cdef bint is_in_pause(self, int64_t now_ns) noexcept
    cdef int pull(self, int64_t now_ns, int64_t* mono_ns, int64_t until_ns) except -1
