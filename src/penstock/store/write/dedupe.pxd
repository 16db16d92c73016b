# The message ids that a stream has seen within its duplicate window.
from libc.stdint cimport int64_t, uint64_t

cdef struct Seen:
    uint64_t low                           # the halves of the id's hash
    uint64_t high
    uint64_t seq
    int64_t time

cdef class DedupeWindow:
    cdef int64_t window
    cdef Seen* ring                        # in the order of their sequences
    cdef uint64_t first                    # of the ring: positions grow for ever, their low bits are places
    cdef uint64_t stop
    cdef uint64_t ring_mask
    cdef uint64_t* table                   # place in the ring + 1, and above it 32 bits of the id; 0: free
    cdef uint64_t count                    # in the table
    cdef uint64_t secret
    cdef uint64_t mix(self, uint64_t low, uint64_t high) noexcept nogil
    cdef void hint(self, uint64_t low, uint64_t high) noexcept nogil
    cdef uint64_t find(self, uint64_t low, uint64_t high) noexcept nogil
    cdef uint64_t known(self, uint64_t low, uint64_t high, int64_t now) noexcept nogil
    cdef int note(self, uint64_t low, uint64_t high, uint64_t seq, int64_t time) except -1
    cdef int resize(self, uint64_t capacity) except -1
    cdef void put(self, uint64_t place) noexcept nogil
    cdef void drop(self, uint64_t place) noexcept nogil
    cdef uint64_t forget_old(self, int64_t now, uint64_t count_max) noexcept nogil
