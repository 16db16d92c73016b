# Tables that files hold, checked as a whole before any pointer relies on them. Rules: docs/format.md.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    MESSAGE_SIZE_MIN = 14                  # bytes of the smallest message record: a block has no more rows than fit

cdef const char* offsets_fault(const uint32_t* rows, uint32_t count, uint64_t size) noexcept nogil
cdef const char* sizes_fault(const uint32_t* rows, uint32_t count, uint64_t total) noexcept nogil
cdef const char* numbers_fault(const uint32_t* rows, uint32_t count, uint32_t stop) noexcept nogil
cdef const char* seqs_fault(const uint32_t* rows, uint32_t count, uint64_t base, uint64_t last) noexcept nogil
