"""The timing wheel at C level; rules: tests/twins/timing_wheel.py."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef struct WheelEntry:
    int64_t expires_ns
    uint64_t seq

cdef struct WheelSlot:
    WheelEntry* entries                    # [start, stop) of them are in use
    uint32_t start
    uint32_t stop
    uint32_t capacity
    bint is_sorted
    int64_t lowest                         # the earliest expiry in the slot, exactly

@cython.final
cdef class TimingWheel:
    cdef readonly Py_ssize_t count
    cdef WheelSlot* slots                  # none until the first entry
    cdef uint64_t slot_mask
    cdef int shift                         # a slot is 2^shift nanoseconds wide
    cdef int64_t tick                      # no entry has an earlier one

    cdef int put(self, uint64_t seq, int64_t expires_ns) noexcept nogil          # 0, or -1 memory
    cdef bint discard(self, uint64_t seq, int64_t expires_ns) noexcept nogil     # whether it was there
    cdef Py_ssize_t take(self, int64_t now_ns, WheelEntry* out, Py_ssize_t out_max) noexcept nogil   # those due, in order
    cdef bint earliest(self, int64_t* expires_ns) noexcept nogil                 # exactly; False where it is empty
    cdef void empty(self) noexcept nogil
    cdef Py_ssize_t nbytes(self) noexcept nogil
    cdef WheelEntry* sorted_copy(self) except NULL
