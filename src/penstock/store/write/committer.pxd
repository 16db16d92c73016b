# The threads that commit. Rules: ARCHITECTURE.md ("Commit").
from libc.stdint cimport int64_t, uint8_t, uint64_t

from penstock.store.write.deferred_file cimport DeferredFile
from penstock.base.threads cimport pthread_cond_t, pthread_mutex_t, pthread_t

cdef enum:
    SPARES_MAX = 2

cdef class Committable:
    cdef bint is_queued                    # these fields are guarded by the committer's lock
    cdef bint is_busy
    cdef bint is_requested_again
    cdef bint is_early                     # a thread is to write, or writes, during a sync
    cdef void work(self, bint is_asked) noexcept nogil
    cdef int64_t due(self) noexcept nogil
    cdef bint wants_early(self) noexcept nogil
    cdef void write_early(self) noexcept nogil

cdef class Committer:
    cdef pthread_mutex_t* lock
    cdef pthread_cond_t* wake
    cdef pthread_cond_t* work_done            # a thread has finished with a Committable or a deferred file
    cdef pthread_t* threads
    cdef int thread_count
    cdef int idle
    cdef bint is_stopping
    cdef void** queue                      # what has something to commit, each at most once
    cdef Py_ssize_t queue_count
    cdef void** early                      # what has something to write while it is synced
    cdef Py_ssize_t early_count
    cdef void** served                     # all of them, for work that is due without a request
    cdef Py_ssize_t served_count
    cdef list owners                       # keeps them alive
    cdef void** deferred                   # files to be written, the oldest first
    cdef Py_ssize_t deferred_count
    cdef pthread_mutex_t* spare_lock       # of what follows; no other lock is taken while it is held
    cdef uint8_t* spares[SPARES_MAX]       # images to be used again; the last one is taken first
    cdef int64_t kept_ns[SPARES_MAX]       # since when each is kept
    cdef int spare_count
    cdef uint64_t spare_size
    cdef public int64_t spare_ns           # a spare that nobody takes for so long goes back to the system
    cdef uint8_t* take_image(self, uint64_t size) noexcept nogil
    cdef bint keep_image(self, uint8_t* image, uint64_t size) noexcept nogil
    cdef uint8_t* unused_image(self, int64_t now, uint64_t* size) noexcept nogil
    cdef bint ask(self, Committable one) noexcept nogil
    cdef void request_early(self, Committable one) noexcept nogil
    cdef bint add_early(self, Committable one) noexcept nogil
    cdef bint find_thread(self) noexcept nogil
    cdef void unlock_and_wake(self, bint wakes) noexcept nogil
    cdef void write_deferred(self, DeferredFile file) noexcept nogil
    cdef void halt(self) noexcept nogil
