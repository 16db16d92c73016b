# Messages in order: the part that other kernels read through.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from penstock.store.write.engine cimport StreamEngine
from penstock.store.index.index cimport Block, Index, Matcher
from penstock.format.record cimport Record

cdef class Reader:
    cdef StreamEngine engine
    cdef Matcher matcher
    cdef readonly object filters
    cdef public uint64_t next_seq
    cdef public uint64_t stop_seq
    cdef uint8_t* window
    cdef uint64_t window_block
    cdef uint64_t window_start
    cdef uint64_t window_stop

    cdef const uint8_t* step(self, Record* record) except? NULL
    cdef const uint8_t* fetch(self, Block* block, uint32_t row, Record* record) except? NULL

cdef uint64_t total_wanted(Index index, Matcher matcher) noexcept nogil
