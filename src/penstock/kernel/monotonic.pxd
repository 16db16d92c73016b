# The clock that never goes back.
from libc.stdint cimport int64_t

cdef extern from "time.h" nogil:
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* at)
    int CLOCK_MONOTONIC


cdef inline int64_t monotonic_ns() noexcept nogil:
    cdef timespec at
    clock_gettime(CLOCK_MONOTONIC, &at)
    return <int64_t>at.tv_sec * 1000000000 + at.tv_nsec
