"""Heap: what becomes of memory that a server gives back to the C library."""

cdef extern from *:
    """
    #include <malloc.h>
    #include <stddef.h>

    static int pst_keep_freed(size_t block_max, size_t total_max, int arenas_max) {
    #ifdef __GLIBC__
        return mallopt(M_MMAP_THRESHOLD, (int)block_max) && mallopt(M_TRIM_THRESHOLD, (int)total_max)
            && mallopt(M_ARENA_MAX, arenas_max);
    #else
        (void)block_max, (void)total_max, (void)arenas_max;
        return 0;
    #endif
    }
    """
    int pst_keep_freed(size_t block_max, size_t total_max, int arenas_max) noexcept nogil

cdef enum:
    BLOCK_MAX = 4194304                    # the largest summary; larger ones are the system's, and go back at once
    TOTAL_MAX = 16777216
    ARENAS_MAX = 2                         # the loop's, and one for the threads: each keeps what it once needed


def keep_freed():
    """Keep some megabytes of what is freed for whoever asks next: whether the C library can.

    By itself it gives more than 128 KiB at the end of its heap back to the system, and asks for them again with the next block's
    summary. On a virtual machine a fresh page costs what two messages do. For processes that are ours: it holds for all in them.
    """
    return pst_keep_freed(BLOCK_MAX, TOTAL_MAX, ARENAS_MAX) != 0
