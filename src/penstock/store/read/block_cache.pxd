# Parts of block files in memory, shared by all who read one stream.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from penstock.store.write.engine cimport StreamEngine
from penstock.store.index.index cimport Block
from penstock.format.record cimport Record

cdef struct Window:
    uint64_t block_id
    uint64_t salt                          # with the id: which block; of another generation it differs
    uint64_t start
    uint64_t stop
    uint64_t used                          # when it was last wanted …
    void* user                             # … and by whom
    uint8_t* data                          # NULL: none yet

cdef class BlockCache:
    cdef Window windows[64]
    cdef uint64_t clock
    cdef uint64_t cooled                   # the clock when unused windows were last freed
    cdef void* user                        # who wanted one last …
    cdef uint64_t shared                   # … and when that was another one than before
    cdef uint32_t unused                   # records that came from images since a window was wanted
    cdef uint64_t size                     # of the next read: large where much of the last one was wanted
    cdef uint32_t served                   # records of the last read that were
    cdef readonly uint64_t reads           # of files, so far …
    cdef readonly uint64_t bytes_read      # … and how much
    cdef readonly int count                # windows that have memory
    cdef const uint8_t* fetch(self, StreamEngine engine, Block* block, uint32_t row, Record* record, void* user, int* mine) except? NULL
    cdef Window* window(self, StreamEngine engine, Block* block, uint64_t start, uint64_t stop, void* user, int* mine) except NULL
