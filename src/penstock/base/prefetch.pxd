# Ask for memory before it is needed. As an instruction of its own: gcc leaves out the builtin where a loop does nothing else.
cdef extern from *:
    """
    #ifndef PST_PREFETCH
    #define PST_PREFETCH
    static inline void pst_prefetch(const void* at) {
    #if defined(__x86_64__)
        __asm__ volatile("prefetcht0 %0" : : "m"(*(const char*)at));
    #elif defined(__aarch64__)
        __asm__ volatile("prfm pldl1keep, [%0]" : : "r"(at));
    #else
        __builtin_prefetch(at);
    #endif
    }
    static inline void pst_prefetch_to_write(const void* at) {
    #if defined(__x86_64__)
        __asm__ volatile("prefetchw %0" : : "m"(*(const char*)at));
    #elif defined(__aarch64__)
        __asm__ volatile("prfm pstl1keep, [%0]" : : "r"(at));
    #else
        __builtin_prefetch(at, 1);
    #endif
    }
    #endif
    """
    void prefetch_to_write "pst_prefetch_to_write"(const void* at) noexcept nogil
    void prefetch "pst_prefetch"(const void* at) noexcept nogil
