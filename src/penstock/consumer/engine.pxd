# One consumer's place in a stream: what comes next, what is pending, what is due. Rules: docs/consumers.md.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from penstock.consumer.ack_table cimport AckTable
from penstock.store.write.engine cimport StreamEngine
from penstock.store.index.index cimport Index, Matcher, Watcher
from penstock.store.read.block_cache cimport BlockCache

cdef enum:
    LOOK_NOTHING = 0
    LOOK_FOUND = 1

cdef struct Candidate:                     # a message that may be delivered now; its pointers are valid until the next call on this stream
    uint64_t seq
    uint64_t dseq                          # the consumer sequence of this delivery
    int64_t time                           # when it was stored
    uint64_t pending                       # matching messages after it
    uint32_t deliveries                    # this one included
    uint32_t subject_size
    const uint8_t* subject
    const uint8_t* headers                 # for a headers-only consumer, they include the payload's size
    const uint8_t* payload
    uint32_t headers_size
    uint32_t payload_size

cdef class ConsumerEngine(Watcher):
    cdef readonly StreamEngine stream_engine
    cdef readonly AckTable table
    cdef BlockCache windows                   # shared by the consumers of a stream …
    cdef int window                        # … and the one used last
    cdef readonly tuple filters
    cdef Matcher matcher
    cdef readonly uint64_t next_seq        # everything below it was delivered or skipped
    cdef bint is_counted
    cdef uint64_t counted_to               # `count` covers [next_seq, counted_to] and the rest of `lasts`
    cdef uint64_t count
    cdef uint64_t fitted_to                # the matcher knows the subjects up to this sequence …
    cdef uint64_t fitted_version           # … and version of the index
    cdef uint64_t* lasts                   # deliver last per subject: the rest of the list, rising
    cdef Py_ssize_t last_at
    cdef Py_ssize_t last_count
    cdef uint64_t held                     # the message that is due and comes next; 0: none
    cdef int64_t ack_wait_ns
    cdef int64_t* backoff
    cdef Py_ssize_t backoff_count
    cdef int64_t max_deliver               # -1: no limit
    cdef int64_t max_ack_pending           # -1: no limit
    cdef bint headers_only
    cdef bint has_deadlines                # pending messages are delivered again after a deadline
    cdef public bint collects              # collect acknowledged messages, for the stream's retention
    cdef public bint tells                 # somebody calls `take_given_up` and `take_dropped`
    cdef public int64_t paused_until_ns    # by the machine's clock, unlike the other times; 0: not paused
    cdef readonly int64_t wake_ns          # when to call `look` again after it found nothing; 0: after the next event
    cdef uint64_t replay_to                # up to here, messages come at their original pace
    cdef int64_t replay_time               # when the last one was stored …
    cdef int64_t replay_ns                 # … and when it was delivered
    cdef public int64_t last_delivered_ns
    cdef public int64_t last_acked_ns
    cdef uint8_t* scratch
    cdef size_t scratch_size
    cdef list given_up                     # (seq, deliveries): reached max_deliver
    cdef list dropped                      # (seq, consumer seq, deliveries): left the stream while pending
    cdef uint64_t* done                    # acknowledged, and not yet taken by the stream's retention (`retire`)
    cdef Py_ssize_t done_count
    cdef Py_ssize_t done_capacity

    cpdef bint is_paused(self, int64_t now_ns) noexcept
    cdef int look(self, int64_t now_ns, Candidate* candidate) except -1
    cdef int hand_over(self, Candidate* candidate, int64_t now_ns) except -1
    # Each returns 1 if something changed. Sequences that are not pending change nothing.
    cpdef int ack(self, uint64_t seq, uint64_t dseq, int64_t now_ns) except -1
    cpdef int nak(self, uint64_t seq, int64_t due_ns) except -1
    cpdef int progress(self, uint64_t seq, int64_t now_ns) except -1
    cpdef int term(self, uint64_t seq, uint64_t dseq, int64_t now_ns) except -1
    cdef bint needs(self, uint64_t seq, uint32_t number) noexcept
    cdef bint wants(self, uint32_t number) noexcept

    cdef uint64_t stop(self) noexcept
    cdef int fit(self) except -1
    cdef bint is_live(self, uint64_t seq) except -1
    cdef uint64_t find_next(self) except? 0
    cdef int count_up(self) except -1
    cdef int fill(self, uint64_t seq, Candidate* candidate) except -1
    cdef int shorten(self, Candidate* candidate) except -1
    cdef int pass_over(self, uint64_t seq) except -1
    cdef int hold(self, int64_t now_ns) except -1
    cdef int64_t wait_of(self, uint32_t deliveries) noexcept
    cdef int64_t deadline(self, uint32_t deliveries, int64_t now_ns) noexcept
    cdef int finish(self, uint64_t seq) except -1
    cdef bint drop_last(self, uint64_t seq) noexcept
