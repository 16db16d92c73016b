# A file that a commit thread writes when it has nothing else to do: Committer.write_later.
from libc.stdint cimport int64_t, uint8_t

from penstock.base.disk cimport Disk

cdef enum:
    DEFERRED_WAITING = 0                       # nobody has begun; whoever needs it may do so
    DEFERRED_BEGUN = 1
    DEFERRED_DONE = 2

cdef class DeferredFile:
    cdef readonly bytes path
    cdef Disk disk
    cdef bytes temporary
    cdef const char* path_text             # the bytes of the two
    cdef const char* temporary_text
    cdef uint8_t* data                     # a copy, given back when it is written
    cdef Py_ssize_t size
    cdef bint is_handed_over               # a committer has a reference to it, until somebody has waited for it
    cdef int state                         # belongs to the committer's lock
    cdef int error                         # errno, once it is done

    cdef void write(self) noexcept nogil
