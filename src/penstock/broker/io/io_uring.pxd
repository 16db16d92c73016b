# SendRing: many sends in one system call.
from libc.stdint cimport int32_t, uint32_t, uint64_t

cdef enum:
    RING_SIZE = 64                         # sends of one call at most: a power of two

cdef struct Sending:
    int fd
    uint32_t size
    const void* data
    int32_t sent                           # what `send` returns: how many bytes, or -errno

cdef struct Submission:                    # io_uring_sqe
    uint32_t opcode                        # with flags and priority, which are 0
    int32_t fd
    uint64_t offset
    uint64_t address
    uint32_t size
    uint32_t message_flags
    uint64_t user_data
    uint64_t[3] rest

cdef struct Completion:                    # io_uring_cqe
    uint64_t user_data
    int32_t result
    uint32_t flags

cdef class SendRing:
    cdef int fd
    cdef bint is_broken                    # the kernel refuses it: each send is a call of its own
    cdef void* rings                       # both queues, as the kernel shares them with us
    cdef size_t rings_size
    cdef Submission* submissions
    cdef uint32_t* first                   # of the submissions: where the kernel is, …
    cdef uint32_t* stop                    # … and where we are
    cdef uint32_t mask
    cdef Completion* completions
    cdef uint32_t* done_first              # of the completions: where we are, …
    cdef uint32_t* done_stop               # … and where the kernel is
    cdef uint32_t done_mask

    cdef void send(self, Sending* sendings, uint32_t count) noexcept nogil
    cdef void reap(self, Sending* sendings, uint32_t count) noexcept nogil
