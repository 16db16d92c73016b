"""BlockCache: parts of block files in memory, shared by all readers of one stream.

It keeps a hundred consumers from reading the same block a hundred times.
"""
import os

from libc.stdint cimport int64_t
from penstock.store.index.index cimport SECTION_OFFSETS
from penstock.format.record cimport record_decode


cdef extern from "sys/mman.h" nogil:
    void* mmap(void* addr, size_t size, int prot, int flags, int fd, long offset)
    int munmap(void* addr, size_t size)
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS
    void* MAP_FAILED

cdef enum:
    WINDOW = 262144
    OVERLAP = 16384                        # bytes shared with the next window, as a record may cross the boundary
    SMALLEST = 4096
    SMALLEST_SHARED = 65536
    SERVED_MIN = 8                         # records served from a window that make its size worthwhile
    SERVED_MIN_SHARED = 4                  # the same with several readers, for a full window; a smaller one needs less
    WINDOWS = 64
    UNUSED_MAX = 4096
    ALONE_MIN = 16384                      # records without another reader after which a reader counts as the only one


cdef class BlockCache:
    """The most recently used windows. The active block is read from its image instead."""

    def __cinit__(self):
        self.size = WINDOW

    def __dealloc__(self):
        self.clear()

    def clear(self):
        """Free all windows: nobody reads for now."""
        cdef int n
        for n in range(self.count):
            munmap(self.windows[n].data, WINDOW + OVERLAP)
            self.windows[n].data = NULL
            self.windows[n].block_id = 0
        self.count = 0
        self.unused = 0
        self.user = NULL
        self.shared = 0

    def cool(self):
        """Free the windows that nobody has used since the last call; True when some are left."""
        cdef int n, kept = 0
        for n in range(self.count):
            if self.windows[n].used > self.cooled:
                self.windows[kept] = self.windows[n]
                kept += 1
            else:
                munmap(self.windows[n].data, WINDOW + OVERLAP)
        for n in range(kept, self.count):
            self.windows[n].data = NULL
            self.windows[n].block_id = 0
        self.count = kept
        self.cooled = self.clock
        return kept > 0

    cdef Window* window(self, StreamEngine engine, Block* block, uint64_t start, uint64_t stop, void* user, int* mine) except NULL:
        """A window that holds [start, stop) of the block, which must fit into one. It ends early when the file does.

        `mine` is the number of the window that `user` had last. It is tried first, and reused for the next read when
        there is no other reader; with others it stays, as they will need it later.
        """
        cdef Window* chosen
        cdef Window* one
        cdef void* data
        cdef int n, at = mine[0], fd
        cdef int64_t got
        cdef uint64_t first, size
        cdef bint is_alone
        self.clock += 1
        self.unused = 0
        if user != self.user:
            if self.user != NULL:
                self.shared = self.clock
            self.user = user
        for n in range(-1, self.count):
            if n < 0 and at >= self.count:
                continue
            one = &self.windows[at if n < 0 else n]
            if one.block_id == block.id and one.start <= start and stop <= one.stop and one.salt == block.base.salt:
                one.used = self.clock
                one.user = user
                self.served += 1
                if n >= 0:
                    mine[0] = n
                return one
        is_alone = self.shared == 0 or self.clock - self.shared > ALONE_MIN
        if is_alone and at < self.count and self.windows[at].user == user:
            mine[0] = at
        elif self.count < WINDOWS:
            mine[0] = self.count
        else:
            mine[0] = 0
            for n in range(1, WINDOWS):
                if self.windows[n].used < self.windows[mine[0]].used:
                    mine[0] = n
        chosen = &self.windows[mine[0]]
        if chosen.data == NULL:
            # Mapped: on the heap, longer-lived memory around a window would keep it from going back to the system.
            data = mmap(NULL, WINDOW + OVERLAP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
            if data == MAP_FAILED:
                raise MemoryError
            chosen.data = <uint8_t*>data
            self.count += 1
        if block.file.fd < 0 and engine.log.opened >= engine.open_max:
            engine.store.close_idle()
        fd = engine.log.open_for_read(block.file)
        if fd < 0:
            raise OSError(-fd, os.strerror(-fd), os.fsdecode(block.file.path))
        chosen.block_id = 0
        # A reader of one message in a hundred must not cause all to be read, unless other readers need the rest.
        if self.served >= SERVED_MIN or (not is_alone and self.served * <uint64_t>WINDOW >= self.size * SERVED_MIN_SHARED):
            self.size = min(self.size * 4, <uint64_t>WINDOW)
        else:
            self.size = max(self.size // 4, <uint64_t>(SMALLEST if is_alone else SMALLEST_SHARED))
        self.served = 0
        first = start - start % self.size  # aligned, so that readers of the same place share one window
        size = self.size + min(self.size, <uint64_t>OVERLAP)
        if stop > first + size:
            first = start
            size = max(size, stop - start)
        got = engine.log.disk.pread(fd, chosen.data, min(size, block.size - first), first)
        if got < 0:
            raise OSError(-got, os.strerror(-got), os.fsdecode(block.file.path))
        self.reads += 1
        self.bytes_read += got
        chosen.block_id = block.id
        chosen.salt = block.base.salt
        chosen.start = first
        chosen.stop = first + got
        chosen.used = self.clock
        chosen.user = user
        return chosen

    cdef const uint8_t* fetch(self, StreamEngine engine, Block* block, uint32_t row, Record* record, void* user, int* mine) except? NULL:
        """A row's record; NULL when it is damaged. The offsets in `record` are relative to the returned pointer."""
        cdef uint32_t* offsets = engine.index.section(block, SECTION_OFFSETS)
        cdef uint64_t start = offsets[row]
        cdef uint64_t stop = offsets[row + 1] if row + 1 < block.count else block.size
        cdef const uint8_t* base
        cdef Window* window
        if block.file.image != NULL:
            base = block.file.image + start
            self.unused += 1
            if self.count and self.unused > UNUSED_MAX:
                self.clear()               # all readers have reached the active block
        elif stop - start > WINDOW:
            base = engine.bytes_at(block, start, stop)
        else:
            window = self.window(engine, block, start, stop, user, mine)
            if window.stop < stop:
                window.block_id = 0
                return NULL
            base = window.data + (start - window.start)
        if record_decode(base, 0, stop - start, &block.base, record) != 1 or record.seq != engine.index.seq_of(block, row):
            if block.file.image == NULL and stop - start <= WINDOW:
                window.block_id = 0        # read it again next time: it may have been repaired meanwhile
            return NULL
        return base
