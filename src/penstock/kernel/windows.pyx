"""Windows: parts of block files in memory, shared by all who read one stream, so that a hundred consumers do not read a block a hundred times."""
import os

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from penstock.kernel.index cimport SECTION_OFFSETS
from penstock.kernel.record cimport record_decode

cdef enum:
    WINDOW = 262144
    SMALLEST = 4096
    SERVED_MIN = 8                         # records that make a read worth its size
    WINDOWS = 8


cdef class Windows:
    """The last few windows that were wanted. The active block is read from its image."""

    def __cinit__(self):
        self.size = WINDOW

    def __dealloc__(self):
        self.clear()

    def clear(self):
        """Give the memory back: nobody reads for now."""
        cdef int n
        for n in range(WINDOWS):
            free(self.windows[n].data)
            self.windows[n].data = NULL
            self.windows[n].block_id = 0

    cdef Window* window(self, Core core, Block* block, uint64_t start, uint64_t stop) except NULL:
        """One that has [start, stop) of the block, which fits into it; short where the file is."""
        cdef Window* oldest = &self.windows[0]
        cdef Window* one
        cdef int n, fd
        cdef int64_t got
        self.clock += 1
        for n in range(WINDOWS):
            one = &self.windows[n]
            if one.block_id == block.id and one.start <= start and stop <= one.stop and one.salt == block.base.salt:
                one.used = self.clock
                self.served += 1
                return one
            if one.used < oldest.used:
                oldest = one
        if oldest.data == NULL:
            oldest.data = <uint8_t*>malloc(WINDOW)
            if oldest.data == NULL:
                raise MemoryError
        if block.file.fd < 0 and core.log.opened >= core.open_max:
            core.store.close_idle()
        fd = core.log.open_for_read(block.file)
        if fd < 0:
            raise OSError(-fd, os.strerror(-fd), os.fsdecode(block.file.path))
        oldest.block_id = 0
        # Who wants one message in a hundred must not have all of them read.
        self.size = min(self.size * 4, <uint64_t>WINDOW) if self.served >= SERVED_MIN else max(self.size // 4, <uint64_t>SMALLEST)
        self.served = 0
        got = core.log.disk.pread(fd, oldest.data, min(max(self.size, stop - start), block.size - start), start)
        if got < 0:
            raise OSError(-got, os.strerror(-got), os.fsdecode(block.file.path))
        self.reads += 1
        oldest.block_id = block.id
        oldest.salt = block.base.salt
        oldest.start = start
        oldest.stop = start + got
        oldest.used = self.clock
        return oldest

    cdef const uint8_t* fetch(self, Core core, Block* block, uint32_t row, Record* record) except? NULL:
        """A row's record; NULL when it is damaged. `record` has offsets into what is returned."""
        cdef uint32_t* offsets = core.index.section(block, SECTION_OFFSETS)
        cdef uint64_t start = offsets[row]
        cdef uint64_t stop = offsets[row + 1] if row + 1 < block.count else block.size
        cdef const uint8_t* base
        cdef Window* window
        if block.file.image != NULL:
            base = block.file.image + start
        elif stop - start > WINDOW:
            base = core.bytes_at(block, start, stop)
        else:
            window = self.window(core, block, start, stop)
            if window.stop < stop:
                window.block_id = 0
                return NULL
            base = window.data + (start - window.start)
        if record_decode(base, 0, stop - start, &block.base, record) != 1 or record.seq != core.index.seq_of(block, row):
            if block.file.image == NULL and stop - start <= WINDOW:
                window.block_id = 0        # read it again: it may have been mended meanwhile
            return NULL
        return base
