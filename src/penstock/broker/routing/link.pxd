# Link: a client whose bytes a transport reads.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from penstock.broker.routing.client cimport Client
from penstock.broker.routing.router cimport Router

cdef class Link(Client):
    cdef Router router
    cdef bint is_reading_held              # the transport reads into `held`
    cdef bint is_full_read                 # the last read filled its buffer: there may be more
    cdef size_t read_max                   # bytes of one read: fewer if each becomes many in the buffers of others

    cdef size_t place(self, uint8_t** at) except 0
    cdef int taken(self, size_t size) except -1
    cdef ssize_t receive(self, int fd) except -2
    cdef int _feed(self, const uint8_t* data, Py_ssize_t size) except -1
    cdef int _feed_held(self) except -1
    cdef int after_read(self) except -1
