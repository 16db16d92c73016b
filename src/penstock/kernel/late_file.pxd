# A file that a commit thread writes when it has nothing else to do: Committer.write_later.
from libc.stdint cimport int64_t, uint8_t

from penstock.kernel.disk cimport Disk

cdef enum:
    LATE_WAITING = 0                       # nobody has begun; whoever needs it may do so
    LATE_BEGUN = 1
    LATE_DONE = 2

cdef class LateFile:
    cdef readonly bytes path
    cdef Disk disk
    cdef bytes temporary
    cdef const char* path_text             # the bytes of the two
    cdef const char* temporary_text
    cdef const uint8_t[::1] data
    cdef const uint8_t* start              # of its bytes
    cdef Py_ssize_t size
    cdef int state                         # belongs to the committer's lock
    cdef int error                         # errno, once it is done

    cdef void write(self) noexcept nogil
