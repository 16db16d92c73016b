# The subjects of the active block as they come. Layout: docs/format.md, the names section of a summary.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef class BlockNames:
    cdef uint64_t block_id                 # 0: of no block
    cdef uint32_t tick                     # of the block: rises with each
    cdef uint32_t rows                     # that were met
    cdef uint8_t* data
    cdef size_t size
    cdef size_t capacity

    cdef void begin(self, uint64_t block_id) noexcept
    cdef void forget(self) noexcept
    cdef void meet(self, uint32_t* tick, uint32_t* place, uint32_t number, const uint8_t* name, uint32_t size) noexcept
    cdef bint is_whole(self, uint64_t block_id, uint32_t rows) noexcept
