"""Committer: a few threads that commit for those who do not want to wait. Rules: ARCHITECTURE.md, "Commit".

They know nothing of files and positions: a Committable does the work. No code here that a thread runs takes the GIL.
"""
cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memmove
from posix.time cimport timespec

from penstock.store.write.deferred_file cimport DEFERRED_BEGUN, DEFERRED_DONE, DEFERRED_WAITING
from penstock.base.monotonic cimport monotonic_ns
from penstock.base.threads cimport (
    pthread_cond_broadcast, pthread_cond_init, pthread_cond_signal, pthread_cond_timedwait, pthread_cond_wait, pthread_create,
    pthread_join, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock, timed_cond_init,
)


cdef extern from "sys/mman.h" nogil:
    int munmap(void* addr, size_t size)

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #include <sys/syscall.h>
    #include <unistd.h>

    /* Linux 6.12 and later let a thread ask for short turns; in return it need not wait until another's is over. */
    static void pst_take_short_turns(void) {
    #ifdef SYS_sched_setattr
        struct {
            uint32_t size, policy;
            uint64_t flags;
            int32_t nice;
            uint32_t priority;
            uint64_t runtime, deadline, period;
        } attr;
        /* All else stays as whoever started us wanted it: niceness, and classes other than the ordinary one. */
        memset(&attr, 0, sizeof attr);
        if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) == 0 && attr.policy == 0) {
            attr.runtime = 100000;
            syscall(SYS_sched_setattr, 0, &attr, 0);
        }
    #endif
    }
    """
    void take_short_turns "pst_take_short_turns"() noexcept nogil

cdef enum:
    THREADS_MAX = 4
    SPARE_NS = 10000000000                 # who takes longer to fill a block does not notice its page faults


cdef class Committable:
    """What the threads of a committer serve. Always true: one thread works on it at a time, and one more may write early."""

    cdef void work(self, bint is_asked) noexcept nogil:
        """Do what is due; `is_asked`: somebody wants a commit."""

    cdef int64_t due(self) noexcept nogil:
        """When it wants to be served without being asked, in monotonic ns; 0: never."""
        return 0

    cdef bint wants_early(self) noexcept nogil:
        """Is there enough to be written beside the sync that is under way?"""
        return False

    cdef void write_early(self) noexcept nogil:
        """Write it."""


cdef void* _run(void* arg) noexcept nogil:
    """A commit thread: takes from the queue; between times it looks after those that are due."""
    take_short_turns()
    _serve(<Committer>arg)
    return NULL


cdef void _serve(Committer owner) noexcept nogil:
    cdef void* found
    cdef timespec until
    cdef Py_ssize_t n
    cdef int64_t now, next_due, due
    cdef uint8_t* image
    cdef uint64_t size
    cdef bint is_asked
    pthread_mutex_lock(owner.lock)
    while True:
        if owner.early_count:
            owner.early_count -= 1
            found = owner.early[owner.early_count]
            pthread_mutex_unlock(owner.lock)
            (<Committable>found).write_early()
            pthread_mutex_lock(owner.lock)
            (<Committable>found).is_early = False
            pthread_cond_broadcast(owner.work_done)
            continue
        found = NULL
        now = monotonic_ns()
        next_due = now + 1000000000
        is_asked = owner.queue_count > 0
        if is_asked:
            found = owner.queue[0]
            owner.queue_count -= 1
            for n in range(owner.queue_count):
                owner.queue[n] = owner.queue[n + 1]
            (<Committable>found).is_queued = False
        else:
            for n in range(owner.served_count):
                due = 0 if (<Committable>owner.served[n]).is_busy else (<Committable>owner.served[n]).due()
                if due and due <= now:
                    found = owner.served[n]
                    break
                if due:
                    next_due = min(next_due, due)
        if found == NULL and owner.deferred_count:
            found = owner.deferred[0]
            owner.deferred_count -= 1
            memmove(owner.deferred, owner.deferred + 1, owner.deferred_count * sizeof(void*))
            owner.write_deferred(<DeferredFile>found)
            continue
        if found == NULL:
            if owner.is_stopping:
                break
            image = owner.unused_image(now, &size)
            if image != NULL:
                pthread_mutex_unlock(owner.lock)
                munmap(image, size)
                pthread_mutex_lock(owner.lock)
                continue
            owner.idle += 1
            until.tv_sec = next_due // 1000000000
            until.tv_nsec = next_due % 1000000000
            pthread_cond_timedwait(owner.wake, owner.lock, &until)
            owner.idle -= 1
            continue
        (<Committable>found).is_busy = True
        pthread_mutex_unlock(owner.lock)
        (<Committable>found).work(is_asked)
        pthread_mutex_lock(owner.lock)
        (<Committable>found).is_busy = False
        if (<Committable>found).is_requested_again:
            (<Committable>found).is_requested_again = False
            (<Committable>found).is_queued = True
            owner.queue[owner.queue_count] = found
            owner.queue_count += 1
        pthread_cond_broadcast(owner.work_done)
    pthread_mutex_unlock(owner.lock)


@cython.no_gc_clear
cdef class Committer:
    """A few threads that commit for those who do not want to wait. The first one starts when it is first asked, all others
    as soon as it is not enough: a number of threads that grows with the load now and then looks like a leak."""

    def __cinit__(self):
        self.lock = <pthread_mutex_t*>calloc(1, sizeof(pthread_mutex_t))
        self.wake = <pthread_cond_t*>calloc(1, sizeof(pthread_cond_t))
        self.work_done = <pthread_cond_t*>calloc(1, sizeof(pthread_cond_t))
        self.threads = <pthread_t*>calloc(THREADS_MAX, sizeof(pthread_t))
        self.spare_lock = <pthread_mutex_t*>calloc(1, sizeof(pthread_mutex_t))
        if self.spare_lock == NULL or self.lock == NULL or self.wake == NULL or self.work_done == NULL or self.threads == NULL:
            raise MemoryError
        pthread_mutex_init(self.lock, NULL)
        pthread_mutex_init(self.spare_lock, NULL)
        self.spare_ns = SPARE_NS
        timed_cond_init(self.wake)
        pthread_cond_init(self.work_done, NULL)
        self.owners = []

    def __dealloc__(self):
        cdef int n
        self.halt()
        for n in range(self.spare_count):
            munmap(self.spares[n], self.spare_size)
        free(self.queue)
        free(self.early)
        free(self.served)
        free(self.deferred)
        free(self.lock)
        free(self.spare_lock)
        free(self.wake)
        free(self.work_done)
        free(self.threads)

    # Spare images: fresh memory costs a page fault every 4 KiB, which is a tenth of a publish. One that nobody needs any more
    # has all the pages of a block in use, and a commit thread that has nothing else to do returns it.

    cdef uint8_t* take_image(self, uint64_t size) noexcept nogil:
        cdef uint8_t* image = NULL
        pthread_mutex_lock(self.spare_lock)
        if self.spare_count and self.spare_size == size:
            self.spare_count -= 1
            image = self.spares[self.spare_count]
        pthread_mutex_unlock(self.spare_lock)
        return image

    cdef bint keep_image(self, uint8_t* image, uint64_t size) noexcept nogil:
        cdef bint is_kept
        pthread_mutex_lock(self.spare_lock)
        is_kept = self.spare_count == 0 or (self.spare_count < SPARES_MAX and self.spare_size == size)
        if is_kept:
            self.spare_size = size
            self.spares[self.spare_count] = image
            self.kept_ns[self.spare_count] = monotonic_ns()
            self.spare_count += 1
        pthread_mutex_unlock(self.spare_lock)
        return is_kept

    cdef uint8_t* unused_image(self, int64_t now, uint64_t* size) noexcept nogil:
        """Take out the spare that was kept first if that was long ago; NULL: there is none such."""
        cdef uint8_t* image = NULL
        cdef int n
        pthread_mutex_lock(self.spare_lock)
        if self.spare_count and now - self.kept_ns[0] >= self.spare_ns:
            image = self.spares[0]
            size[0] = self.spare_size
            self.spare_count -= 1
            for n in range(self.spare_count):
                self.spares[n] = self.spares[n + 1]
                self.kept_ns[n] = self.kept_ns[n + 1]
        pthread_mutex_unlock(self.spare_lock)
        return image

    cdef bint ask(self, Committable one) noexcept nogil:
        """Commit soon what `one` has submitted. Starts a thread when all are busy."""
        cdef bint is_started = True, wakes
        pthread_mutex_lock(self.lock)
        if one.is_busy or one.is_queued:
            one.is_requested_again = one.is_busy  # the thread that works on it checks once more
            wakes = self.add_early(one)
        else:
            self.queue[self.queue_count] = <void*>one
            self.queue_count += 1
            one.is_queued = True
            wakes = self.find_thread()
            is_started = self.thread_count > 0
        self.unlock_and_wake(wakes)
        return is_started

    cdef void request_early(self, Committable one) noexcept nogil:
        """Write what `one` has submitted while its sync is running."""
        pthread_mutex_lock(self.lock)
        self.unlock_and_wake(self.add_early(one))

    cdef bint add_early(self, Committable one) noexcept nogil:
        """As `request_early`, for a caller that has the lock; whether a thread has to be woken for it."""
        if not one.wants_early():
            return False
        one.is_early = True
        self.early[self.early_count] = <void*>one
        self.early_count += 1
        return self.find_thread()

    cdef bint find_thread(self) noexcept nogil:
        """There is work: is a thread to be woken for it, because one is idle? Else they are started. The caller has the lock."""
        cdef int wanted = THREADS_MAX if self.thread_count else 1
        if self.idle:
            return True
        while self.thread_count < wanted and not self.is_stopping:
            if pthread_create(&self.threads[self.thread_count], NULL, _run, <void*>self):
                break
            self.thread_count += 1
        return False

    cdef void unlock_and_wake(self, bint wakes) noexcept nogil:
        """Release the lock, then wake a thread: it needs the lock at once, and would wait again while we hold it."""
        pthread_mutex_unlock(self.lock)
        if wakes:
            pthread_cond_signal(self.wake)

    # Deferred files. Requested commits go before them.

    def write_later(self, DeferredFile file not None):
        """Have a file written by a commit thread; False when there is none. The caller has to wait for it some time."""
        cdef void* grown
        if self.thread_count == 0:
            return False
        file.is_handed_over = True
        Py_INCREF(file)
        pthread_mutex_lock(self.lock)
        grown = realloc(self.deferred, (self.deferred_count + 1) * sizeof(void*))
        if grown != NULL:
            self.deferred = <void**>grown
            self.deferred[self.deferred_count] = <void*>file
            self.deferred_count += 1
        self.unlock_and_wake(self.idle > 0)         # if none is idle, one takes it when there is nothing to commit
        return True                        # without memory for the list, the thread that waits for the file writes it

    def wait_for_file(self, DeferredFile file not None):
        """Return when a file is written, or could not be; this thread writes it if no other has begun."""
        cdef Py_ssize_t n, kept = 0
        if file.state != DEFERRED_DONE and self.thread_count:    # without threads it belongs to the parent process, from before a fork
            with nogil:
                pthread_mutex_lock(self.lock)
                if file.state == DEFERRED_WAITING:
                    for n in range(self.deferred_count):
                        if self.deferred[n] != <void*>file:
                            self.deferred[kept] = self.deferred[n]
                            kept += 1
                    self.deferred_count = kept
                    self.write_deferred(file)
                while file.state != DEFERRED_DONE:
                    pthread_cond_wait(self.work_done, self.lock)
                pthread_mutex_unlock(self.lock)
        if file.is_handed_over:
            file.is_handed_over = False
            Py_DECREF(file)

    cdef void write_deferred(self, DeferredFile file) noexcept nogil:
        """Write a file that is off the list. The caller has the lock, which is released meanwhile."""
        file.state = DEFERRED_BEGUN
        pthread_mutex_unlock(self.lock)
        file.write()
        pthread_mutex_lock(self.lock)
        file.state = DEFERRED_DONE
        pthread_cond_broadcast(self.work_done)

    def add(self, Committable one not None, bint needs_thread):
        """Serve `one`; with `needs_thread` a thread starts at once, as some of its work is due without a request."""
        cdef Py_ssize_t capacity = len(self.owners) + 1
        pthread_mutex_lock(self.lock)
        self.queue = <void**>realloc(self.queue, capacity * sizeof(void*))
        self.early = <void**>realloc(self.early, capacity * sizeof(void*))
        self.served = <void**>realloc(self.served, capacity * sizeof(void*))
        self.served[self.served_count] = <void*>one
        self.served_count += 1
        if needs_thread and self.thread_count == 0:
            if pthread_create(&self.threads[0], NULL, _run, <void*>self) == 0:
                self.thread_count = 1
        pthread_mutex_unlock(self.lock)
        self.owners.append(one)

    def remove(self, Committable one not None):
        """Forget `one`; returns when no thread works on it."""
        cdef Py_ssize_t n, kept = 0
        if one not in self.owners:
            return
        with nogil:
            pthread_mutex_lock(self.lock)
            while one.is_busy or one.is_early:
                pthread_cond_wait(self.work_done, self.lock)
            for n in range(self.queue_count):
                if self.queue[n] != <void*>one:
                    self.queue[kept] = self.queue[n]
                    kept += 1
            self.queue_count = kept
            one.is_queued = False
            kept = 0
            for n in range(self.served_count):
                if self.served[n] != <void*>one:
                    self.served[kept] = self.served[n]
                    kept += 1
            self.served_count = kept
            pthread_mutex_unlock(self.lock)
        self.owners.remove(one)

    cdef void halt(self) noexcept nogil:
        cdef int n
        if self.thread_count == 0:
            return                         # none was started, or they belong to the parent process, from before a fork
        pthread_mutex_lock(self.lock)
        self.is_stopping = True
        pthread_cond_broadcast(self.wake)
        pthread_mutex_unlock(self.lock)
        for n in range(self.thread_count):
            pthread_join(self.threads[n], NULL)
        self.thread_count = 0

    def stop(self):
        """End the threads; all have been removed before."""
        with nogil:
            self.halt()

    def forget_threads(self):
        """After a fork: the threads belong to the parent process, and so do the files they were to write."""
        self.thread_count = 0
        self.deferred_count = 0
        pthread_mutex_init(self.spare_lock, NULL)          # one of them may have held it

    @property
    def counts(self):
        """(threads, spare images): for tests."""
        return self.thread_count, self.spare_count
