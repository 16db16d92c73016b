"""SendRing: many sends in one system call, through io_uring. Why: docs/decisions/0010-sends-together.md.

It is used as a call that returns when all is done, no more: every send is one that does not wait, so the kernel answers it before
the call returns. The layouts are the kernel's (io_uring_setup(2)), which never change: no header of a certain age is needed.
"""
import os

from libc.errno cimport EAGAIN, EBUSY, EINTR, ENOMEM, ENOSYS, EPIPE, errno
from libc.stdint cimport uint8_t
from libc.string cimport memset

cdef extern from *:
    """
    #include <errno.h>
    #include <stdint.h>
    #include <sys/syscall.h>
    #include <unistd.h>

    /* The same on every architecture that Python is built for. */
    #ifndef SYS_io_uring_setup
    #define SYS_io_uring_setup 425
    #define SYS_io_uring_enter 426
    #define SYS_io_uring_register 427
    #endif

    static int pst_ring_setup(uint32_t size, void *params) { return (int)syscall(SYS_io_uring_setup, size, params); }
    static int pst_ring_enter(int fd, uint32_t submit, uint32_t wait) {
        return (int)syscall(SYS_io_uring_enter, fd, submit, wait, wait ? 1 : 0, NULL, 0);
    }
    static int pst_ring_probe(int fd, void *probe, uint32_t count) {
        return (int)syscall(SYS_io_uring_register, fd, 8, probe, count);
    }
    static uint32_t pst_load(const uint32_t *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
    static void pst_store(uint32_t *at, uint32_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
    """
    int ring_setup "pst_ring_setup"(uint32_t size, void* params) nogil
    int ring_enter "pst_ring_enter"(int fd, uint32_t submit, uint32_t wait) nogil
    int ring_probe "pst_ring_probe"(int fd, void* probe, uint32_t count) nogil
    uint32_t load "pst_load"(const uint32_t* at) nogil
    void store "pst_store"(uint32_t* at, uint32_t value) nogil

cdef extern from "sys/mman.h" nogil:
    void* mmap(void* addr, size_t size, int prot, int flags, int fd, long offset)
    int munmap(void* addr, size_t size)
    int PROT_READ, PROT_WRITE, MAP_SHARED, MAP_POPULATE
    void* MAP_FAILED

cdef extern from "unistd.h" nogil:
    int c_close "close"(int fd)

cdef extern from "sys/socket.h" nogil:
    ssize_t c_send "send"(int fd, const void* data, size_t size, int flags)
    int shutdown(int fd, int how)
    int MSG_DONTWAIT, MSG_NOSIGNAL, SHUT_RDWR

cdef enum:
    OP_SEND = 26
    OPS = 32                               # operations that are probed
    SINGLE_MMAP = 1                        # a feature: both queues in one mapping
    SUBMISSIONS_AT = 0x10000000            # where mmap finds the submissions' array
    UNANSWERED = -2147483647               # `sent` while the kernel has not answered

cdef struct Offsets:                       # io_sqring_offsets, io_cqring_offsets: bytes from the mapping's begin
    uint32_t head
    uint32_t tail
    uint32_t mask
    uint32_t entries
    uint32_t flags_or_lost                 # here and below: first the submissions' meaning, then the completions'
    uint32_t lost_or_array
    uint32_t numbers_or_flags              # the numbers of those in the queue
    uint32_t unused
    uint64_t address

cdef struct Params:                        # io_uring_params
    uint32_t submission_count
    uint32_t completion_count
    uint32_t flags
    uint32_t thread_cpu
    uint32_t thread_idle
    uint32_t features
    uint32_t worker_fd
    uint32_t[3] unused
    Offsets submission
    Offsets completion

cdef struct ProbedOp:                      # io_uring_probe_op
    uint32_t op_and_flags                  # the flags in the upper half; 1: it is supported
    uint32_t unused

cdef struct Probe:                         # io_uring_probe
    uint32_t[4] head
    ProbedOp[OPS] ops


cdef class SendRing:
    """A ring of one thread. Always true: between two calls no send is under way; a broken ring is not used again."""

    def __cinit__(self):
        self.fd = -1

    def __init__(self):
        """Raises OSError if the system has no io_uring, or does not let us use it."""
        cdef Params params
        cdef Probe probe
        cdef uint8_t* base
        cdef uint32_t n
        cdef uint32_t* numbers
        assert sizeof(Params) == 120 and sizeof(Submission) == 64 and sizeof(Completion) == 16, "as the kernel has them"
        memset(&params, 0, sizeof(Params))
        memset(&probe, 0, sizeof(Probe))
        self.fd = ring_setup(RING_SIZE, &params)
        if self.fd < 0:
            raise OSError(errno, os.strerror(errno))
        if (not params.features & SINGLE_MMAP or ring_probe(self.fd, &probe, OPS) < 0
                or not (probe.ops[OP_SEND].op_and_flags >> 16) & 1):
            raise OSError(ENOSYS, "its io_uring is too old")
        self.rings_size = max(params.submission.numbers_or_flags + params.submission_count * sizeof(uint32_t),
                              params.completion.lost_or_array + params.completion_count * sizeof(Completion))
        self.rings = mmap(NULL, self.rings_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, self.fd, 0)
        if self.rings == MAP_FAILED:
            self.rings = NULL
            raise OSError(errno, os.strerror(errno))
        self.submissions = <Submission*>mmap(NULL, RING_SIZE * sizeof(Submission), PROT_READ | PROT_WRITE,
                                             MAP_SHARED | MAP_POPULATE, self.fd, SUBMISSIONS_AT)
        if self.submissions == <Submission*>MAP_FAILED:
            self.submissions = NULL
            raise OSError(errno, os.strerror(errno))
        base = <uint8_t*>self.rings
        self.first = <uint32_t*>(base + params.submission.head)
        self.stop = <uint32_t*>(base + params.submission.tail)
        self.mask = (<uint32_t*>(base + params.submission.mask))[0]
        self.done_first = <uint32_t*>(base + params.completion.head)
        self.done_stop = <uint32_t*>(base + params.completion.tail)
        self.done_mask = (<uint32_t*>(base + params.completion.mask))[0]
        self.completions = <Completion*>(base + params.completion.lost_or_array)
        numbers = <uint32_t*>(base + params.submission.numbers_or_flags)
        for n in range(params.submission_count):
            numbers[n] = n                 # each place of the queue has its own submission, for good
        memset(self.submissions, 0, RING_SIZE * sizeof(Submission))

    def __dealloc__(self):
        if self.submissions != NULL:
            munmap(self.submissions, RING_SIZE * sizeof(Submission))
        if self.rings != NULL:
            munmap(self.rings, self.rings_size)
        if self.fd >= 0:
            c_close(self.fd)

    cdef void send(self, Sending* sendings, uint32_t count) noexcept nogil:
        """Send each without waiting for its socket; `sent` has the outcome when this returns."""
        cdef uint32_t n, taken = 0, begin = self.stop[0]
        cdef Submission* submission
        cdef int answer
        assert count <= RING_SIZE
        for n in range(count):
            submission = &self.submissions[(begin + n) & self.mask]
            submission.opcode = OP_SEND
            submission.fd = sendings[n].fd
            submission.address = <uint64_t><size_t>sendings[n].data
            submission.size = sendings[n].size
            submission.message_flags = MSG_DONTWAIT | MSG_NOSIGNAL
            submission.user_data = n
            sendings[n].sent = UNANSWERED
        store(self.stop, begin + count)
        while taken < count and not self.is_broken:
            answer = ring_enter(self.fd, count - taken, 0)
            if answer <= 0 and not (answer < 0 and errno == EINTR):
                self.is_broken = answer == 0 or (errno != EAGAIN and errno != EBUSY and errno != ENOMEM)
                break                      # the kernel has no memory for more just now
            taken = load(self.first) - begin
        store(self.stop, begin + taken)
        self.reap(sendings, taken)
        for n in range(taken):
            if sendings[n].sent == UNANSWERED:
                # It is not known what was sent, and it must not be sent twice: the connection ends.
                shutdown(sendings[n].fd, SHUT_RDWR)
                sendings[n].sent = -EPIPE
        for n in range(taken, count):
            sendings[n].sent = <int32_t>c_send(sendings[n].fd, sendings[n].data, sendings[n].size, MSG_DONTWAIT | MSG_NOSIGNAL)
            if sendings[n].sent < 0:
                sendings[n].sent = -errno

    cdef void reap(self, Sending* sendings, uint32_t count) noexcept nogil:
        """Take the completions of the submitted sends. They are there already, but that is not relied on."""
        cdef uint32_t at = self.done_first[0], stop = at + count
        cdef Completion* completion
        while True:
            while at != stop and at != load(self.done_stop):
                completion = &self.completions[at & self.done_mask]
                sendings[completion.user_data].sent = completion.result
                at += 1
            store(self.done_first, at)
            if at == stop:
                return
            if ring_enter(self.fd, 0, 1) < 0 and errno != EINTR:
                self.is_broken = True      # not used again: late completions would be taken for those of other sends
                return
