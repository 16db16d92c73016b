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
    #endif
    """
    void prefetch "pst_prefetch"(const void* at) noexcept nogil
