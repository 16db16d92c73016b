# POSIX threads, locks and conditions: what those need who do not hold the GIL.
from posix.time cimport CLOCK_MONOTONIC, clockid_t, timespec

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_condattr_t:
        pass
    int pthread_create(pthread_t* thread, void* attr, void* (*start)(void*) noexcept nogil, void* arg)
    int pthread_join(pthread_t thread, void** result)
    int pthread_mutex_init(pthread_mutex_t* mutex, void* attr)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_trylock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_condattr_init(pthread_condattr_t* attr)
    int pthread_condattr_setclock(pthread_condattr_t* attr, clockid_t clock)
    int pthread_condattr_destroy(pthread_condattr_t* attr)
    int pthread_cond_init(pthread_cond_t* cond, void* attr)
    int pthread_cond_signal(pthread_cond_t* cond)
    int pthread_cond_broadcast(pthread_cond_t* cond)
    int pthread_cond_wait(pthread_cond_t* cond, pthread_mutex_t* mutex)
    int pthread_cond_timedwait(pthread_cond_t* cond, pthread_mutex_t* mutex, timespec* until)
    int pthread_cond_destroy(pthread_cond_t* cond)


cdef inline void timed_cond_init(pthread_cond_t* cond) noexcept nogil:
    """For pthread_cond_timedwait with times of CLOCK_MONOTONIC: by the clock of the machine, which is what it takes otherwise, a wait of
    a second becomes one of an hour when that is set back by an hour."""
    cdef pthread_condattr_t attr
    pthread_condattr_init(&attr)
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC)
    pthread_cond_init(cond, &attr)
    pthread_condattr_destroy(&attr)
