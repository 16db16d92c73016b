"""The C interface of the ack table. Rules: tests/twins/ack_table.py."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.base.clock cimport Clock
from penstock.base.arrow_buffer cimport ArrowBuffer

cdef enum AckPolicy:
    ACK_NONE = 0
    ACK_EXPLICIT = 1
    ACK_ALL = 2

cdef struct AckEntry:
    uint64_t seq
    uint64_t dseq                          # of its first delivery
    int64_t last_ns
    int64_t deadline_ns
    uint32_t deliveries
    uint32_t place                         # its position in the heap, or one of the special values in the pyx

cdef struct AckRun:                        # the open delta: a run grows until a different change happens
    int kind
    uint64_t first
    uint64_t stride
    uint64_t count

@cython.final
cdef class AckTable:
    cdef readonly int policy
    cdef public bint logged                # whether changes are recorded for `changes`
    cdef readonly bint has_moved           # a deadline was recorded without the current time, since the last `changes`
    cdef Clock clock                       # of the times in the entries; recorded times are the machine clock's
    cdef int64_t latest_ns                 # the latest time that was read
    cdef readonly uint64_t delivered_consumer_seq
    cdef readonly uint64_t delivered_stream_seq
    cdef readonly uint64_t ack_floor_consumer_seq
    cdef readonly uint64_t ack_floor_stream_seq
    cdef readonly Py_ssize_t pending_count
    cdef readonly Py_ssize_t redelivered_count
    cdef AckEntry* entries                 # a ring with a capacity of `room`: `used` entries from `start` on, by rising sequence
    cdef Py_ssize_t room
    cdef Py_ssize_t start
    cdef Py_ssize_t used
    cdef Py_ssize_t dead                   # how many of the used entries are dead
    cdef Py_ssize_t low                    # index of the ring: nothing before it is pending
    cdef Py_ssize_t lane                   # index of the ring: nothing before it is in the lane
    cdef int64_t lane_deadline             # of the last entry that joined the lane
    cdef uint32_t* heap                    # positions in `entries` of those outside the lane
    cdef Py_ssize_t heap_count
    cdef Py_ssize_t heap_room
    cdef ArrowBuffer log
    cdef AckRun run
    cdef uint64_t log_seq
    cdef uint64_t log_time
    cdef uint64_t log_wait
    cdef uint64_t log_deadline

    # Deliveries and acks. Without memory they change nothing and return 0 for a consumer sequence, else -1.
    cdef uint64_t put(self, uint64_t seq, int64_t now_ns, int64_t deadline_ns) noexcept nogil   # 0 also if it does not rise
    cdef uint64_t put_again(self, uint64_t seq, int64_t now_ns, int64_t deadline_ns, uint32_t* deliveries) noexcept nogil
    cdef int ack_one(self, uint64_t seq) noexcept nogil                # 1: acknowledged, 2: was given up, 0: unknown
    cdef Py_ssize_t ack_through(self, uint64_t seq, uint64_t dseq) noexcept nogil        # how many
    cdef int wait_until(self, uint64_t seq, int64_t deadline_ns) noexcept nogil          # 1, 0: not pending
    cdef int abandon(self, uint64_t seq) noexcept nogil                # 1, 0: not pending
    cdef Py_ssize_t remove(self, uint64_t first, uint64_t last) noexcept nogil           # how many, including given-up ones
    cdef Py_ssize_t purge_below(self, uint64_t first) noexcept nogil
    cdef int rewind_to(self, uint64_t last) noexcept nogil
    cdef AckEntry* pending_entry(self, uint64_t seq) noexcept nogil    # NULL: not pending; valid until the next change
    cdef Py_ssize_t take_due(self, int64_t now_ns, uint64_t* out, Py_ssize_t out_max) noexcept nogil
    cdef bint earliest(self, int64_t* deadline_ns) noexcept nogil
    cdef int replay(self, const uint8_t* data, Py_ssize_t size, Py_ssize_t* offset) noexcept nogil
    cdef void close_log(self) noexcept nogil                           # afterwards `log.data[:log.used]` is complete
    cdef void clear_log(self) noexcept nogil

    cdef AckEntry* at(self, Py_ssize_t index) noexcept nogil
    cdef Py_ssize_t position(self, Py_ssize_t index) noexcept nogil
    cdef Py_ssize_t lower_bound(self, uint64_t seq) noexcept nogil
    cdef Py_ssize_t find(self, uint64_t seq) noexcept nogil
    cdef Py_ssize_t next_pending(self, Py_ssize_t index) noexcept nogil
    cdef bint append(self, AckEntry* entry) noexcept nogil
    cdef bint rebuild(self, Py_ssize_t room) noexcept nogil
    cdef void bury(self, Py_ssize_t index) noexcept nogil
    cdef void settle(self, Py_ssize_t index, uint64_t dseq, uint64_t seq) noexcept nogil
    cdef void trim(self) noexcept nogil
    cdef bint reserve(self) noexcept nogil
    cdef bint is_before(self, uint32_t one, uint32_t other) noexcept nogil
    cdef void sift(self, Py_ssize_t hole, uint32_t moved) noexcept nogil
    cdef void heap_push(self, uint32_t position) noexcept nogil
    cdef void heap_remove(self, Py_ssize_t hole) noexcept nogil
    cdef void skip_lane(self) noexcept nogil
    cdef void emit(self, uint64_t value) noexcept nogil
    cdef void extend_run(self, int kind, uint64_t seq, uint64_t stride) noexcept nogil
    cdef void log_times(self, int64_t now_ns, int64_t deadline_ns) noexcept nogil
    cdef void log_one(self, int kind, uint64_t seq) noexcept nogil
    cdef int replay_run(self, int kind, uint64_t first, uint64_t stride, uint64_t count, uint64_t now_ns, uint64_t wait) noexcept nogil
    cdef Py_ssize_t nbytes(self) noexcept nogil
    cdef int load(self, AckEntry* entry) noexcept nogil
    cdef int plan(self) except -1
