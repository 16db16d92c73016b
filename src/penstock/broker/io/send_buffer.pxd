# SendBuffer: bytes that wait for a socket, in pieces of memory that are handed on and never copied; and the pool of such memory.
from libc.stdint cimport uint8_t

cdef enum:
    PIECE_SIZE = 262144                    # of a piece; a larger frame has a piece of its own
    SMALL_MAX = 65536                      # buffers up to this are from malloc, larger ones are mapped

cdef extern from "sys/uio.h" nogil:
    cdef struct iovec:
        void* iov_base
        size_t iov_len

cdef struct Piece:
    Piece* next
    uint8_t* data
    size_t start                           # bytes [start, stop) of it wait
    size_t stop
    size_t capacity

cdef uint8_t* take_buffer(size_t wanted, size_t* capacity) noexcept nogil
cdef void give_buffer(uint8_t* data, size_t capacity) noexcept nogil
cdef void free_aside(void* data, size_t size) noexcept nogil

cdef class SendBuffer:
    cdef Piece* first
    cdef Piece* last
    cdef readonly size_t size              # bytes that wait

    cdef int add(self, const uint8_t* data, size_t size) except -1
    cdef int append(self, uint8_t* data, size_t start, size_t stop, size_t capacity) except -1
    cdef int move_from(self, SendBuffer other) except -1
    cdef int spread(self, iovec* parts, int count_max, size_t size_max) noexcept nogil
    cdef ssize_t send(self, int fd) noexcept nogil
    cdef void drop(self, size_t size) noexcept nogil
    cdef void clear(self) noexcept nogil
