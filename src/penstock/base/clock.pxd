# The two times of a process: one that never jumps, and what the machine's clock says.
from libc.stdint cimport int64_t, uint64_t


cdef class Clock:
    cdef public int64_t offset_ns          # what the machine's clock is ahead of `now_ns`
    cdef public uint64_t changes           # counts up whenever the machine's clock was set, or the machine has slept


cdef class SystemClock(Clock):
    cdef int64_t anchor_ns                 # `now_ns` less CLOCK_BOOTTIME
    cdef int64_t looked_ns                 # CLOCK_BOOTTIME when the machine's clock was last looked at
    cdef int64_t told_ns                   # the offset that was last told of
    cdef int64_t slept_ns                  # CLOCK_BOOTTIME less CLOCK_MONOTONIC, when last looked at

    cdef int look(self) except -1


cdef Clock STILL                           # of who was given no clock: its offset is 0
