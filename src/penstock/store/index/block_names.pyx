"""BlockNames: the subjects of the active block, in the layout of its summary, as they come.

A subject's text is at hand when its message is appended; when the block is sealed, those of many subjects are all over the memory.
"""
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

cdef enum:
    HEAD = 10                              # number, count, size: docs/format.md
    KEPT = 65536


cdef class BlockNames:
    """Always true: `data` lists every subject that the block's first `rows` rows have, in their order, or `block_id` is 0."""

    def __dealloc__(self):
        free(self.data)

    cdef void begin(self, uint64_t block_id) noexcept:
        self.forget()
        self.block_id = block_id

    cdef void forget(self) noexcept:
        """Rows were taken back, or the block is sealed: what is listed no longer holds."""
        self.block_id = 0
        self.tick += 1
        self.rows = 0
        self.size = 0
        if self.capacity > KEPT:
            free(self.data)
            self.data = NULL
            self.capacity = 0

    cdef void meet(self, uint32_t* tick, uint32_t* place, uint32_t number, const uint8_t* name, uint32_t size) noexcept:
        """One more row. `tick` and `place` are the subject's own: where it is listed, if it is."""
        cdef uint32_t count = 1
        cdef size_t capacity
        cdef void* grown
        if self.block_id == 0:
            return
        self.rows += 1
        if tick[0] == self.tick:
            memcpy(&count, self.data + place[0] + 4, 4)
            count += 1
            memcpy(self.data + place[0] + 4, &count, 4)
            return
        if self.size + HEAD + size > self.capacity:
            capacity = self.capacity * 2 + HEAD + size + 512
            grown = realloc(self.data, capacity) if capacity <= 0xFFFFFFFF else NULL
            if grown == NULL:
                self.forget()              # it is worked out when the block is sealed
                return
            self.data = <uint8_t*>grown
            self.capacity = capacity
        tick[0] = self.tick
        place[0] = <uint32_t>self.size
        memcpy(self.data + self.size, &number, 4)
        memcpy(self.data + self.size + 4, &count, 4)
        memcpy(self.data + self.size + 8, &size, 2)
        memcpy(self.data + self.size + HEAD, name, size)
        self.size += HEAD + size

    cdef bint is_whole(self, uint64_t block_id, uint32_t rows) noexcept:
        return self.block_id == block_id and self.rows == rows
