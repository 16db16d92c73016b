# A Bloom filter of the subjects of a block and of their token prefixes. Layout: docs/format.md, "Subject filter".
cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    FILTER_SIZE_LOG_MIN = 6                # 64 bytes
    FILTER_SIZE_LOG_MAX = 12               # 4096 bytes
    FILTER_PROBES = 3
    FILTER_LEVELS_MAX = 8
    SEED_SUBJECT = 11
    SEED_PREFIX = 12
    SEEN_SLOTS = 4096

@cython.final
cdef class FilterBuilder:
    cdef uint64_t bits[512]                # the largest filter: a smaller one is this one folded
    cdef uint64_t seen[SEEN_SLOTS]         # hashes added so far, as long as they decide the size; 0: empty
    cdef readonly uint32_t count           # distinct hashes, at most half of the slots

    cdef void add(self, const uint8_t* name, Py_ssize_t size) noexcept nogil
    cdef void add_after(self, const uint8_t* name, Py_ssize_t size, const uint8_t* before, Py_ssize_t before_size) noexcept nogil
    cdef void add_hash(self, uint64_t hashed) noexcept nogil

cdef bint filter_may_match(const uint8_t* filter, Py_ssize_t filter_size, const uint8_t* pattern,
                           Py_ssize_t size) noexcept nogil
