"""Index: what a stream holds, without the bytes. Rules: ARCHITECTURE.md, "Index".

A row is a message record of a block: offset, size and subject number, 12 bytes, packed in arrays that sealed blocks load when they
are wanted. Deleted rows are bits; below `floor` nothing is alive. Owned by the thread that holds the GIL.

One class and one file although it is long: appending and deleting a message calls most of its cdef methods, and Cython cannot divide
a class between modules. Filling it from files is in loading.pyx, its arrays as bytes are in tables.pyx.
"""
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove, memset

from penstock.store.write.commit_log cimport free_block_file
from penstock.base.prefetch cimport prefetch
from penstock.base.subject_dictionary cimport NO_NUMBER
from penstock.format.table_check cimport numbers_fault, offsets_fault, seqs_fault, sizes_fault

cdef uint64_t SEQ_MAX = 0x7FFFFFFFFFFFFFFFULL

cdef enum:
    AT_ONCE_MIN = 1024                     # from so many removed rows on, watchers are not told one by one, …
    AT_ONCE_TIMES = 32                     # … unless so many times more rows stay, which are then counted anew
    FEW_TIMES = 8                          # when so many times more rows go than stay, those that stay are counted
    ROWS_PER_YIELD = 16384                    # rows or subjects after which other threads may take the GIL

cdef extern from "stdlib.h" nogil:
    int posix_memalign(void** out, size_t alignment, size_t size)

cdef extern from *:
    int popcount "__builtin_popcountll"(unsigned long long value) noexcept nogil
    int ctz "__builtin_ctzll"(unsigned long long value) noexcept nogil


cdef class Matcher:
    """Which subject numbers some filters want, worked out number by number as they are met, or for all at once."""

    def __cinit__(self, Filters filters not None):
        self.filters = filters
        self.number = NO_NUMBER

    def __dealloc__(self):
        free(self.known)
        free(self.wanted)

    cdef int fit(self, Index index) except -1:
        """Make space for the numbers that there are now."""
        cdef Py_ssize_t words
        if self.filters.is_all:
            return 0
        if self.filters.is_literal:
            self.number = index.tree.find(self.filters.pattern(0), self.filters.size(0))
            return 0
        words = (index.tree.number_stop + 63) // 64 + 1
        if self.version != index.version and self.words:
            memset(self.known, 0, self.words * 8)
            memset(self.wanted, 0, self.words * 8)
            self.is_filled = False
        self.version = index.version
        if words > self.words:
            words += words // 2 + 16
            self.known = <uint64_t*>realloc(self.known, words * 8)
            self.wanted = <uint64_t*>realloc(self.wanted, words * 8)
            if self.known == NULL or self.wanted == NULL:
                raise MemoryError
            memset(self.known + self.words, 0, (words - self.words) * 8)
            memset(self.wanted + self.words, 0, (words - self.words) * 8)
            self.words = words
        return 0

    cdef bint test(self, Index index, uint32_t number) noexcept nogil:
        cdef uint64_t bit = <uint64_t>1 << (number & 63)
        cdef uint32_t size
        cdef const uint8_t* name
        if self.wanted[number >> 6] & bit:
            return True
        if not self.known[number >> 6] & bit:
            self.known[number >> 6] |= bit
            name = index.tree.name(number, &size)
            if name != NULL and self.filters.matches(name, size):
                self.wanted[number >> 6] |= bit
        return self.wanted[number >> 6] & bit != 0

    cdef int fill(self, Index index) except -1:
        """Work it out for all numbers."""
        self.fit(index)
        if self.filters.is_all or self.filters.is_literal:
            return 0
        memset(self.wanted, 0, self.words * 8)
        index.tree.match_bits(self.filters, self.wanted)
        memset(self.known, 0xFF, (index.tree.number_stop // 64) * 8)
        self.is_filled = True
        self.filled_stop = index.tree.number_stop
        self.reused_seen = index.reused_count
        return 0

    cdef int refill(self, Index index) except -1:
        """As `fill`; what was worked out before and still holds is kept."""
        cdef uint32_t number
        self.fit(index)
        if self.filters.is_all or self.filters.is_literal:
            return 0
        if (not self.is_filled or index.tree.number_stop - self.filled_stop > 65536
                or index.reused_count - self.reused_seen > REUSED_MAX):
            return self.fill(index)
        while self.reused_seen != index.reused_count:
            number = index.reused[self.reused_seen % REUSED_MAX]
            self.reused_seen += 1
            self.known[number >> 6] &= ~(<uint64_t>1 << (number & 63))
            self.wanted[number >> 6] &= ~(<uint64_t>1 << (number & 63))
            self.test(index, number)
        for number in range(self.filled_stop, index.tree.number_stop):
            self.test(index, number)
        self.filled_stop = index.tree.number_stop
        return 0


cdef class Watcher:
    """Counts rows, and is told of those that are removed."""

    cdef int row_gone(self, uint64_t seq, uint32_t number) except -1:
        return 0

    cdef int rows_gone(self, uint64_t start, uint64_t stop) except -1:
        return 0

    cdef void rolled_back(self, uint64_t seq) noexcept:
        pass

    cdef uint64_t watched_from(self) noexcept:
        return SEQ_MAX


cdef void _free_block(Block* block) noexcept nogil:
    cdef int n
    for n in range(4):
        free(block.arrays[n])
    free(block.dead)
    free(block)


cdef void _free_blocks(Block** blocks, Py_ssize_t count) noexcept nogil:
    """With their files."""
    cdef Py_ssize_t at
    for at in range(count):
        if blocks[at].file != NULL:
            free_block_file(blocks[at].file)
        _free_block(blocks[at])
    free(blocks)


cdef class Index:
    """Rows, subjects and counters of one stream.

    Always true: `messages` and `bytes` count the rows at or above `floor` whose bit is clear; stats[n].total counts those of subject n;
    blocks ascend in id and in first_seq.
    """

    def __cinit__(self, bint in_memory=False):
        self.tree = SubjectDictionary()
        self.names = BlockNames()
        self.in_memory = in_memory
        self.first_seq = 1
        self.floor = 1
        self.version = 1
        self.resident_max = 96 << 20
        self.watchers = []
        self.watched_from = SEQ_MAX

    def __dealloc__(self):
        _free_blocks(self.blocks, self.block_count)
        free(self.firsts)
        free(self.stats)
        free(self.unused_numbers)
        free(self.changes)
        free(self.scratch)

    cdef int release(self) except -1:
        """Free all memory: the stream is closed, even if something still refers to its index.

        It is an empty one from now on, at the same last sequence. Matchers that were filled before look up their subjects anew.
        The GIL is released meanwhile, since there may be gigabytes: the caller's lock keeps other threads away.
        """
        cdef SubjectDictionary tree = self.tree
        cdef Block** blocks = self.blocks
        cdef Py_ssize_t count = self.block_count
        cdef uint64_t* firsts = self.firsts
        cdef SubjectStats* stats = self.stats
        cdef uint32_t* unused_numbers = self.unused_numbers
        cdef Change* changes = self.changes
        cdef uint32_t* scratch = self.scratch
        self.tree = SubjectDictionary()
        self.names = BlockNames()
        self.blocks = NULL
        self.firsts = NULL
        self.stats = NULL
        self.unused_numbers = NULL
        self.changes = NULL
        self.scratch = NULL
        self.block_count = self.block_capacity = self.unused_count = self.unused_capacity = 0
        self.change_start = self.change_stop = self.change_capacity = 0
        self.number_capacity = self.subject_count = 0
        self.messages = self.bytes = self.resident = self.reused_count = 0
        self.first_seq = self.floor = self.last_seq + 1
        self.emptied = False
        self.version += 1
        self.watchers = []
        self.watched_from = SEQ_MAX
        self.loader = None
        with nogil:
            _free_blocks(blocks, count)
            free(firsts)
            free(stats)
            free(unused_numbers)
            free(changes)
            free(scratch)
            tree.free_all()                # no other reference is left
        return 0

    @property
    def name_count(self):
        """Subjects that have a number, live messages or not."""
        return self.tree.count

    # Blocks and their arrays.

    cdef Block* find_block(self, uint64_t block_id) except NULL:
        """The block with an id; KeyError when there is none."""
        cdef Py_ssize_t low = 0, high = self.block_count, middle
        while low < high:
            middle = (low + high) >> 1
            if self.blocks[middle].id < block_id:
                low = middle + 1
            else:
                high = middle
        if low == self.block_count or self.blocks[low].id != block_id:
            raise KeyError(block_id)
        return self.blocks[low]

    cdef Block* add_block(self, uint64_t block_id, uint64_t first_seq) except NULL:
        cdef void* grown
        cdef Block* block
        if self.block_count == self.block_capacity:
            grown = realloc(self.blocks, (self.block_capacity * 2 + 16) * sizeof(Block*))
            if grown == NULL:
                raise MemoryError
            self.blocks = <Block**>grown
            grown = realloc(self.firsts, (self.block_capacity * 2 + 16) * 8)
            if grown == NULL:
                raise MemoryError
            self.firsts = <uint64_t*>grown
            self.block_capacity = self.block_capacity * 2 + 16
        block = <Block*>calloc(1, sizeof(Block))
        if block == NULL:
            raise MemoryError
        block.id = block_id
        block.is_dense = True
        block.time_min = 0x7FFFFFFFFFFFFFFF
        block.time_max = -0x7FFFFFFFFFFFFFFF
        block.target_low = SEQ_MAX
        block.first_seq = first_seq
        self.blocks[self.block_count] = block
        self.firsts[self.block_count] = first_seq
        self.block_count += 1
        return block

    cdef void drop_block(self, Py_ssize_t at) noexcept:
        """Forget a block; its rows are dead or have been uncounted."""
        cdef Block* block = self.blocks[at]
        cdef int n
        for n in range(4):
            if block.arrays[n] != NULL and block.is_evictable:
                self.resident -= <uint64_t>block.count * 4
        _free_block(block)
        memmove(&self.blocks[at], &self.blocks[at + 1], (self.block_count - at - 1) * sizeof(Block*))
        memmove(&self.firsts[at], &self.firsts[at + 1], (self.block_count - at - 1) * 8)
        self.block_count -= 1

    cdef int grow_rows(self, Block* block, uint32_t rows) except -1:
        cdef uint32_t capacity = max(rows, block.capacity + (block.capacity >> 1) + 256)
        cdef uint32_t* grown
        cdef int n
        for n in range(4):
            if n == SECTION_SEQS and block.is_dense:
                continue
            grown = <uint32_t*>realloc(block.arrays[n], <size_t>capacity * 4)
            if grown == NULL:
                raise MemoryError
            block.arrays[n] = grown
        if block.dead != NULL:
            block.dead = <uint64_t*>realloc(block.dead, (capacity // 64 + 1) * 8)
            memset(block.dead + block.capacity // 64 + 1, 0, (capacity // 64 - block.capacity // 64) * 8)
        block.capacity = capacity
        return 0

    cdef int add_row(self, Block* block, uint64_t seq, int64_t time, uint32_t offset, uint32_t size,
                     uint32_t number) except -1:
        """Append a row to a block that is in memory; counts it in the block, not in the stream."""
        cdef uint32_t row = block.count
        cdef uint32_t n
        if row >= block.capacity:
            self.grow_rows(block, row + 1)
        if row == 0:
            block.seq_base = seq
        elif block.is_dense and seq != block.seq_base + row:
            block.arrays[SECTION_SEQS] = <uint32_t*>malloc(<size_t>block.capacity * 4)
            if block.arrays[SECTION_SEQS] == NULL:
                raise MemoryError
            for n in range(row):
                block.arrays[SECTION_SEQS][n] = n
            block.is_dense = False
        if not block.is_dense:
            block.arrays[SECTION_SEQS][row] = <uint32_t>(seq - block.seq_base)
        block.arrays[SECTION_OFFSETS][row] = offset
        block.arrays[SECTION_SIZES][row] = size
        block.arrays[SECTION_SUBJECTS][row] = number
        block.count = row + 1
        block.live += 1
        block.bytes += size
        block.live_bytes += size
        if time < block.time_min:
            block.time_min = time
        if time > block.time_max:
            block.time_max = time
        block.last_seq = seq
        return 0

    cdef int count_row(self, uint64_t seq, uint32_t size, uint32_t number) except -1:
        """Count a new live row in the stream: the highest so far of its subject."""
        if self.messages == 0:
            self.first_seq = seq
        self.messages += 1
        self.bytes += size
        if self.stats[number].total == 0:
            self.stats[number].first = seq
            self.subject_count += 1
        self.stats[number].total += 1
        self.stats[number].last = seq
        return 0

    cdef uint32_t number_of(self, const uint8_t* name, Py_ssize_t size) except? 0xffffffff:
        """The number of a subject, new or known."""
        cdef uint32_t count = self.tree.count, stop = self.tree.number_stop
        cdef uint32_t number = self.tree.put(name, size)
        if number == NO_NUMBER:
            raise MemoryError
        if self.tree.count != count and number < stop:
            # A number that was free has a subject again: matchers that were filled before look at it once more.
            self.reused[self.reused_count % REUSED_MAX] = number
            self.reused_count += 1
        if number >= self.number_capacity:
            self.fit_numbers()
        return number

    cdef int fit_numbers(self) except -1:
        self.reserve_numbers(max(self.tree.number_stop, self.number_capacity + (self.number_capacity >> 1)) + 64)
        return 0

    cdef int reserve_numbers(self, uint32_t capacity) except -1:
        cdef void* grown
        if posix_memalign(&grown, 64, <size_t>capacity * sizeof(SubjectStats)):
            raise MemoryError
        if self.number_capacity:
            memcpy(grown, self.stats, <size_t>self.number_capacity * sizeof(SubjectStats))
        free(self.stats)
        self.stats = <SubjectStats*>grown  # each in one line of the cache
        free(self.scratch)
        self.scratch = NULL
        memset(self.stats + self.number_capacity, 0, <size_t>(capacity - self.number_capacity) * sizeof(SubjectStats))
        self.number_capacity = capacity
        return 0

    cdef uint32_t* zeros(self) except NULL:
        """A zero per subject number; who writes there puts the zeros back."""
        if self.scratch == NULL:
            self.scratch = <uint32_t*>calloc(self.number_capacity + 1, 4)
            if self.scratch == NULL:
                raise MemoryError
        return self.scratch

    cdef uint32_t* section(self, Block* block, int which) except? NULL:
        """An array of a block, loaded if it is not in memory.

        A summary with a valid checksum may still be wrong: its arrays are checked here, before any pointer relies on them.
        """
        cdef Py_ssize_t n
        cdef Block* other
        cdef Block* oldest
        cdef int k
        self.tick += 1
        block.used = self.tick
        if block.arrays[which] != NULL:
            return block.arrays[which]
        if block.count == 0:
            return NULL
        if not block.is_doubted and not self.load_rows(block, which):
            self.doubt(block)
        if block.is_doubted:
            self.load_rows(block, which)
        if block.is_evictable:
            self.resident += <uint64_t>block.count * 4
        while self.resident > self.resident_max:
            oldest = NULL
            for n in range(self.block_count):
                other = self.blocks[n]
                if (other != block and other.is_evictable and (oldest == NULL or other.used < oldest.used)
                        and (other.arrays[0] != NULL or other.arrays[1] != NULL or other.arrays[2] != NULL
                             or other.arrays[3] != NULL)):
                    oldest = other
            if oldest == NULL:
                break
            for k in range(4):
                if oldest.arrays[k] != NULL:
                    free(oldest.arrays[k])
                    oldest.arrays[k] = NULL
                    self.resident -= <uint64_t>oldest.count * 4
        return block.arrays[which]

    cdef bint load_rows(self, Block* block, int which) except -1:
        """Load one array from the summary, or from the block when the summary is doubted; False when the summary is wrong."""
        cdef const unsigned char[::1] data
        cdef uint32_t* rows
        loaded = self.loader(block.id, which, block.is_doubted)
        fault = f"section {which} has {len(loaded)} bytes, not {block.count * 4}"
        if len(loaded) == <Py_ssize_t>block.count * 4:
            rows = <uint32_t*>malloc(<size_t>block.count * 4)
            if rows == NULL:
                raise MemoryError
            data = loaded
            memcpy(rows, &data[0], <size_t>block.count * 4)
            fault = self.rows_fault(block, which, rows, not block.is_doubted)
            if fault is None:
                block.arrays[which] = rows
                return True
            free(rows)
        if block.is_doubted:
            raise ValueError(f"block {block.id}: {fault}")
        return False

    cdef object rows_fault(self, Block* block, int which, const uint32_t* rows, bint is_told):
        """What is wrong with an array that comes from a summary (`is_told`) or from the block itself; None when nothing is."""
        cdef const char* fault = NULL
        if which == SECTION_OFFSETS:
            fault = offsets_fault(rows, block.count, block.size)
        elif which == SECTION_SUBJECTS:
            fault = numbers_fault(rows, block.count, self.tree.number_stop)
        elif which == SECTION_SEQS:
            fault = seqs_fault(rows, block.count, block.seq_base, block.last_seq)
        elif is_told:                      # a damaged record has no size, so the sum of the block itself may differ
            fault = sizes_fault(rows, block.count, block.bytes)
        return None if fault == NULL else fault.decode("ascii")

    cdef bint doubt(self, Block* block) except -1:
        """A record is not where the summary says: load the block's arrays from the block itself from now on.

        False when they come from there already: then the record is damaged.
        """
        cdef int n
        if not block.is_evictable or block.is_doubted:
            return False
        block.is_doubted = True
        for n in range(4):
            if block.arrays[n] != NULL:
                self.resident -= <uint64_t>block.count * 4
                free(block.arrays[n])
                block.arrays[n] = NULL
        return True

    cdef Py_ssize_t block_of(self, uint64_t seq) noexcept nogil:
        """Index of the block that would hold `seq`: the last whose first_seq is not above; -1 below all."""
        cdef Py_ssize_t at = 0, count = self.block_count, half
        if count == 0 or self.firsts[0] > seq:
            return -1
        while count > 1:
            half = count >> 1
            at += half * (self.firsts[at + half] <= seq)   # no branch: it could not be predicted
            count -= half
        return at

    # With many subjects, the memory of each is seldom in the cache: it is prefetched.

    cdef void hint_stats(self, uint32_t number) noexcept nogil:
        """Prefetch the totals of `number`."""
        prefetch(&self.stats[number])

    cdef Py_ssize_t hint_first(self, uint32_t number, uint64_t limit) noexcept nogil:
        """Prefetch the row that one more message of `number` would push out; the index of its block, or -1."""
        cdef uint64_t row
        cdef Py_ssize_t at
        cdef Block* block
        if self.stats[number].total < limit:
            return -1
        row = self.stats[number].first & ~STALE
        at = self.block_of(row)
        if at < 0 or not self.blocks[at].is_dense or row < self.blocks[at].seq_base:
            return at
        block = self.blocks[at]
        row -= block.seq_base
        if row < block.count:
            if block.arrays[SECTION_SIZES] != NULL:
                prefetch(&block.arrays[SECTION_SIZES][row])
            if block.dead != NULL:
                prefetch(&block.dead[row >> 6])
        return at

    cdef int64_t row_from(self, Block* block, uint64_t seq) except -2:
        """The first row at or above `seq`; block.count when there is none."""
        cdef uint32_t* seqs
        cdef uint32_t low, high, middle, delta
        if block.count == 0 or seq <= block.seq_base:
            return 0
        if block.is_dense:
            return <int64_t>min(seq - block.seq_base, <uint64_t>block.count)
        if seq - block.seq_base > 0xFFFFFFFF:
            return block.count
        seqs = self.section(block, SECTION_SEQS)
        delta = <uint32_t>(seq - block.seq_base)
        low = 0
        high = block.count
        while low < high:
            middle = (low + high) >> 1
            if seqs[middle] < delta:
                low = middle + 1
            else:
                high = middle
        return low

    cdef int64_t row_of(self, Block* block, uint64_t seq) except -2:
        """The row of `seq`, dead or alive; -1 when the block has none."""
        cdef int64_t row
        if block.count == 0 or seq < block.seq_base:
            return -1
        row = self.row_from(block, seq)
        if row >= block.count or (not block.is_dense and self.seq_of(block, <uint32_t>row) != seq):
            return -1
        return row

    cdef uint64_t seq_of(self, Block* block, uint32_t row) except? 0:
        if block.is_dense:
            return block.seq_base + row
        return block.seq_base + self.section(block, SECTION_SEQS)[row]

    # Dead and alive.

    cdef bint is_dead(self, Block* block, uint32_t row) noexcept nogil:
        return block.dead != NULL and (block.dead[row >> 6] >> (row & 63)) & 1

    cdef int set_dead(self, Block* block, uint32_t row) except -1:
        cdef uint32_t rows = max(block.capacity, block.count)
        if block.dead == NULL:
            block.dead = <uint64_t*>calloc(rows // 64 + 1, 8)
            if block.dead == NULL:
                raise MemoryError
        block.dead[row >> 6] |= <uint64_t>1 << (row & 63)
        return 0

    cdef int drop_row(self, Block* block, uint32_t row, uint64_t seq, uint32_t number) except -1:
        """Uncount a live row, which has subject `number`."""
        cdef uint32_t size = self.section(block, SECTION_SIZES)[row]
        if seq >= self.watched_from:
            self.tell_gone(seq, number)
        block.live -= 1
        if block.live == 0:
            self.emptied = True
        block.live_bytes -= size
        self.messages -= 1
        self.bytes -= size
        if self.stats[number].total == 0:
            return 0                       # a summary lies about its subjects (verify says so): this one has none to lose
        self.stats[number].total -= 1
        if self.stats[number].total == 0:
            self.subject_count -= 1
            self.stats[number].last = self.last_seq | STALE
            self.reserve_unused(self.unused_count + 1)
            self.unused_numbers[self.unused_count] = number
            self.unused_count += 1
            return 0
        if self.stats[number].total == 1:
            # The one that is left is first and last: replacing one of many messages must not search for it.
            if not self.stats[number].last & STALE and seq < self.stats[number].last:
                self.stats[number].first = self.stats[number].last
                return 0
            if not self.stats[number].first & STALE and seq > self.stats[number].first:
                self.stats[number].last = self.stats[number].first
                return 0
        if self.stats[number].first & ~STALE == seq:
            self.stats[number].first = (seq + 1) | STALE
        if self.stats[number].last == seq:
            self.stats[number].last = (seq - 1) | STALE
        return 0

    cdef int restore_row(self, Block* block, uint32_t row, uint64_t seq) except -1:
        """Count a row again whose removal is undone."""
        cdef uint32_t number = self.section(block, SECTION_SUBJECTS)[row]
        cdef uint32_t size = self.section(block, SECTION_SIZES)[row]
        block.live += 1
        block.live_bytes += size
        self.messages += 1
        self.bytes += size
        if self.stats[number].total == 0:
            self.subject_count += 1
            self.stats[number].first = seq
            self.stats[number].last = seq
        else:
            if seq < self.stats[number].first & ~STALE:
                self.stats[number].first = seq
            if seq > self.stats[number].last & ~STALE:
                self.stats[number].last = seq
        self.stats[number].total += 1
        return 0

    cdef int note(self, uint64_t start, uint64_t stop, uint8_t reason, bint is_floor) except -1:
        cdef Change* change
        if is_floor and self.change_stop > self.change_start:
            change = &self.changes[self.change_stop - 1]
            if change.is_floor and change.position == 0 and change.reason == reason and change.stop == start:
                change.stop = stop         # one floor record covers both
                return 0
        if self.change_stop == self.change_capacity:
            if self.change_start > self.change_capacity // 2:
                self.change_stop -= self.change_start
                memmove(self.changes, &self.changes[self.change_start], self.change_stop * sizeof(Change))
                self.change_start = 0
            else:
                self.change_capacity = self.change_capacity * 2 + 64
                self.changes = <Change*>realloc(self.changes, self.change_capacity * sizeof(Change))
                if self.changes == NULL:
                    raise MemoryError
        change = &self.changes[self.change_stop]
        change.start = start
        change.stop = stop
        change.position = 0
        change.reason = reason
        change.is_floor = is_floor
        self.change_stop += 1
        return 0

    cdef bint remove(self, uint64_t seq, uint8_t reason) except -1:
        """Delete one message; False when there is none."""
        return self.remove_near(seq, reason, -1, NO_NUMBER)

    cdef bint remove_near(self, uint64_t seq, uint8_t reason, Py_ssize_t at, uint32_t number) except -1:
        """As `remove`, for a message of subject `number` (NO_NUMBER: not known), most likely in the block at `at`."""
        cdef Block* block
        cdef int64_t row
        if seq < self.first_seq or seq > self.last_seq:
            return False
        if (at < 0 or at >= self.block_count or self.blocks[at].first_seq > seq
                or (at + 1 < self.block_count and self.blocks[at + 1].first_seq <= seq)):
            at = self.block_of(seq)
        if at < 0:
            return False
        block = self.blocks[at]
        row = self.row_of(block, seq)
        if row < 0 or self.is_dead(block, <uint32_t>row):
            return False
        if number == NO_NUMBER:
            number = self.section(block, SECTION_SUBJECTS)[row]
        self.section(block, SECTION_SIZES)      # loaded first: if that fails, nothing has changed
        self.note(seq, seq + 1, reason, False)
        self.drop_row(block, <uint32_t>row, seq, number)
        self.set_dead(block, <uint32_t>row)
        if seq == self.first_seq:
            self.find_first()
        return True

    cdef int raise_floor(self, uint64_t floor, uint8_t reason) except -1:
        """Remove everything below `floor`."""
        cdef uint64_t seq = self.first_seq, before = self.floor
        cdef bint is_told
        if floor <= self.floor:
            return 0
        self.note(before, floor, reason, True)
        seq = max(seq, before)
        is_told = floor > seq + AT_ONCE_MIN and (floor - seq) * AT_ONCE_TIMES > self.last_seq + 1 - min(floor, self.last_seq + 1)
        if is_told:
            self.tell_all_gone(seq, floor)
        if is_told and (floor > self.last_seq or (self.last_seq + 1 - floor) * FEW_TIMES < floor - seq):
            self.keep_from(floor)
        else:
            self.drop_below(seq, floor)
        self.floor = floor
        if self.last_seq + 1 < floor:
            self.last_seq = floor - 1
        self.find_first()
        if is_told:
            for watcher in self.watchers:
                self.watch(watcher)
        return 0

    cdef int drop_below(self, uint64_t seq, uint64_t floor) except -1:
        """Uncount the live rows in [seq, floor) one by one."""
        cdef Py_ssize_t at = max(self.block_of(seq), 0)
        cdef Block* block
        cdef uint32_t row, stop, count = 0
        while at < self.block_count and self.blocks[at].first_seq < floor:
            block = self.blocks[at]
            if block.live:
                row = <uint32_t>self.row_from(block, seq)
                stop = <uint32_t>self.row_from(block, floor)
                self.section(block, SECTION_SIZES)
                while row < stop:
                    if not self.is_dead(block, row):
                        self.drop_row(block, row, self.seq_of(block, row), self.section(block, SECTION_SUBJECTS)[row])
                    row += 1
                    count += 1
                    if count % ROWS_PER_YIELD == 0:
                        self.yield_gil()
            at += 1
        return 0

    cdef int keep_from(self, uint64_t floor) except -1:
        """Uncount all live rows below `floor` at once, of which there are many more than above: the cost follows what stays,
        the blocks and the subjects."""
        cdef Py_ssize_t at, first = max(self.block_of(floor), 0)
        cdef Block* block
        cdef uint32_t* sizes
        cdef uint32_t* subjects
        cdef uint32_t row, number, stop = self.tree.number_stop, live = 0
        cdef uint64_t live_bytes = 0, low
        cdef uint32_t* counts = self.zeros()
        self.reserve_unused(self.unused_count + self.subject_count)
        try:
            for at in range(first, self.block_count):
                block = self.blocks[at]
                if block.live == 0 or block.last_seq < floor:
                    continue
                subjects = self.section(block, SECTION_SUBJECTS)
                for row in range(<uint32_t>self.row_from(block, floor), block.count):
                    if not self.is_dead(block, row):
                        counts[subjects[row]] += 1
                        if at == first:
                            live += 1
                if at == first:
                    sizes = self.section(block, SECTION_SIZES)
                    for row in range(<uint32_t>self.row_from(block, floor), block.count):
                        if not self.is_dead(block, row):
                            live_bytes += sizes[row]
                self.yield_gil()
        except BaseException:
            memset(counts, 0, <size_t>self.number_capacity * 4)
            raise
        # From here on nothing can fail.
        self.floor = floor                 # a thread that looks while the GIL is released sees nothing below it
        self.messages = self.bytes = 0
        for at in range(self.block_count):
            block = self.blocks[at]
            if at < first or block.last_seq < floor:
                if block.live:
                    self.emptied = True
                block.live = 0
                block.live_bytes = 0
            elif at == first:
                if block.live and live == 0:
                    self.emptied = True
                block.live = live
                block.live_bytes = live_bytes
            self.messages += block.live
            self.bytes += block.live_bytes
        for number in range(stop):
            if number % ROWS_PER_YIELD == ROWS_PER_YIELD - 1:
                self.yield_gil()
            if self.stats[number].total == 0:
                continue
            self.stats[number].total = counts[number]
            if counts[number]:
                counts[number] = 0
                low = self.stats[number].first & ~STALE
                if low < floor:
                    self.stats[number].first = floor | STALE
                continue
            self.subject_count -= 1
            self.stats[number].last = self.last_seq | STALE
            self.unused_numbers[self.unused_count] = number
            self.unused_count += 1
        return 0

    cdef int reserve_unused(self, Py_ssize_t count) except -1:
        cdef void* grown
        if count > self.unused_capacity:
            count = max(count, self.unused_capacity * 2 + 64)
            grown = realloc(self.unused_numbers, count * 4)
            if grown == NULL:
                raise MemoryError
            self.unused_numbers = <uint32_t*>grown
            self.unused_capacity = count
        return 0

    cdef int yield_gil(self) except -1:
        """Let others have the GIL, who wait for it: the loop, mostly. We hold the stream's lock, and what is counted holds."""
        self.gil_yields += 1
        with nogil:
            pass
        return 0

    cdef int find_first(self) except -1:
        """Set first_seq again from the rows."""
        if self.messages == 0:
            self.first_seq = self.last_seq + 1
        else:
            self.first_seq = self.next_live(max(self.first_seq, self.floor), self.last_seq + 1, None)
        return 0

    # Searching. `stop` and `low` bound the search; 0 means that nothing was found.

    cdef uint64_t next_live(self, uint64_t start, uint64_t stop, Matcher matcher) except? 0:
        """The lowest live sequence in [start, stop) that the matcher wants."""
        cdef Py_ssize_t at
        cdef Block* block
        cdef uint32_t row, row_stop, number = NO_NUMBER
        cdef uint32_t* subjects = NULL
        cdef bint is_all = matcher is None or matcher.filters.is_all
        cdef bint is_literal = not is_all and matcher.filters.is_literal
        cdef uint64_t word
        start = max(start, self.floor)
        if is_literal:
            number = matcher.number
            if number >= self.number_capacity or self.stats[number].total == 0:
                return 0
            start = max(start, self.stats[number].first & ~STALE)
            stop = min(stop, (self.stats[number].last & ~STALE) + 1)
        if start >= stop:
            return 0
        at = max(self.block_of(start), 0)
        while at < self.block_count:
            block = self.blocks[at]
            at += 1
            if block.first_seq >= stop:
                return 0
            if block.live == 0:
                continue
            row = <uint32_t>self.row_from(block, start)
            row_stop = <uint32_t>self.row_from(block, stop)
            if row >= row_stop:
                continue
            if not is_all:
                subjects = self.section(block, SECTION_SUBJECTS)
                if not is_literal and matcher.words << 6 < self.tree.number_stop:
                    matcher.fit(self)      # a block that is read itself may bring subjects that were not known
            while row < row_stop:
                if is_literal:
                    while row < row_stop and subjects[row] != number:
                        row += 1
                    if row == row_stop:
                        break
                if block.dead != NULL:
                    word = ~block.dead[row >> 6] >> (row & 63)
                    if word & 1 == 0:
                        if word == 0 or not is_all:
                            row = (row | 63) + 1 if word == 0 else row + 1
                        else:
                            row += ctz(word)
                        continue
                if is_all or is_literal or matcher.test(self, subjects[row]):
                    return self.seq_of(block, row)
                row += 1
        return 0

    cdef uint64_t prev_live(self, uint64_t start, uint64_t low, Matcher matcher) except? 0:
        """The highest live sequence in [low, start] that the matcher wants."""
        cdef Py_ssize_t at
        cdef Block* block
        cdef int64_t row, row_low
        cdef uint32_t number = NO_NUMBER
        cdef uint32_t* subjects = NULL
        cdef bint is_all = matcher is None or matcher.filters.is_all
        cdef bint is_literal = not is_all and matcher.filters.is_literal
        low = max(low, self.floor)
        if is_literal:
            number = matcher.number
            if number >= self.number_capacity or self.stats[number].total == 0:
                return 0
            low = max(low, self.stats[number].first & ~STALE)
            start = min(start, self.stats[number].last & ~STALE)
        start = min(start, self.last_seq)
        if start < low or self.block_count == 0:
            return 0
        at = self.block_of(start)
        while at >= 0:
            block = self.blocks[at]
            at -= 1
            if block.count == 0 or block.live == 0:
                if block.first_seq <= low:
                    return 0
                continue
            row = self.row_from(block, start + 1) - 1
            row_low = self.row_from(block, low)
            if not is_all and row >= row_low:
                subjects = self.section(block, SECTION_SUBJECTS)
                if not is_literal and matcher.words << 6 < self.tree.number_stop:
                    matcher.fit(self)
            while row >= row_low:
                if is_literal and subjects[row] != number:
                    row -= 1
                    continue
                if not self.is_dead(block, <uint32_t>row):
                    if is_all or is_literal or matcher.test(self, subjects[row]):
                        return self.seq_of(block, <uint32_t>row)
                row -= 1
            if block.first_seq <= low:
                return 0
        return 0

    cdef uint64_t first_of(self, uint32_t number) except? 0:
        """The lowest live sequence of a subject that has any."""
        cdef Matcher matcher
        cdef uint64_t seq = self.stats[number].first
        if seq & STALE:
            matcher = _literal(number)
            seq = self.next_live(seq & ~STALE, self.last_seq + 1, matcher)
            self.stats[number].first = seq
        return seq

    cdef uint64_t last_of(self, uint32_t number) except? 0:
        """The highest live sequence of a subject that has any."""
        cdef uint64_t seq = self.stats[number].last
        if seq & STALE:
            seq = self.prev_live(seq & ~STALE, 1, _literal(number))
            self.stats[number].last = seq
        return seq

    cdef uint64_t count_between(self, uint64_t start, uint64_t stop, Matcher matcher) except? 0xffffffffffffffff:
        """How many live rows in [start, stop) the matcher, filled, wants."""
        cdef Py_ssize_t at
        cdef Block* block
        cdef uint64_t found = 0
        cdef uint32_t row, row_stop, number = NO_NUMBER
        cdef uint32_t* subjects
        cdef uint64_t* wanted = NULL
        cdef uint64_t* dead
        cdef bint is_all = matcher is None or matcher.filters.is_all
        cdef bint is_literal = not is_all and matcher.filters.is_literal
        start = max(start, self.floor)
        if is_literal:
            number = matcher.number
            if number >= self.number_capacity or self.stats[number].total == 0:
                return 0
            start = max(start, self.stats[number].first & ~STALE)
            stop = min(stop, (self.stats[number].last & ~STALE) + 1)
        elif not is_all:
            wanted = matcher.wanted
        if start >= stop:
            return 0
        at = max(self.block_of(start), 0)
        while at < self.block_count:
            block = self.blocks[at]
            at += 1
            if block.first_seq >= stop:
                break
            if block.live == 0:
                continue
            if is_all and start <= block.first_seq and stop > block.last_seq:
                found += block.live
                continue
            row = <uint32_t>self.row_from(block, start)
            row_stop = <uint32_t>self.row_from(block, stop)
            if row >= row_stop:
                continue
            dead = block.dead
            if is_all:
                found += row_stop - row
                if dead != NULL:
                    found -= _dead_between(dead, row, row_stop)
                continue
            subjects = self.section(block, SECTION_SUBJECTS)
            if not is_literal and matcher.filled_stop < self.tree.number_stop:
                matcher.refill(self)
                wanted = matcher.wanted
            if is_literal:
                while row < row_stop:
                    if subjects[row] == number and not (dead != NULL and (dead[row >> 6] >> (row & 63)) & 1):
                        found += 1
                    row += 1
            elif dead == NULL:
                found += _wanted_between(subjects, wanted, row, row_stop)
            else:
                while row < row_stop:
                    found += ((wanted[subjects[row] >> 6] >> (subjects[row] & 63))
                              & ~(dead[row >> 6] >> (row & 63))) & 1
                    row += 1
        return found

    # Roll back and settle.

    cdef int rollback(self, uint64_t seq) except -1:
        """Undo every append above `seq` and every change that has not settled."""
        cdef Block* block
        cdef Change* change
        cdef Py_ssize_t at
        cdef int64_t row
        cdef uint32_t number, stop
        cdef uint64_t one
        self.names.forget()
        at = self.block_count - 1
        while at >= 0:
            block = self.blocks[at]
            while block.count:
                row = block.count - 1
                one = self.seq_of(block, <uint32_t>row)
                if one <= seq:
                    break
                if not self.is_dead(block, <uint32_t>row) and one >= self.floor:
                    self.drop_row(block, <uint32_t>row, one, self.section(block, SECTION_SUBJECTS)[row])
                elif block.dead != NULL:
                    block.dead[row >> 6] &= ~(<uint64_t>1 << (row & 63))
                block.bytes -= self.section(block, SECTION_SIZES)[row]   # of a sealed block they may have been let go
                number = self.section(block, SECTION_SUBJECTS)[row]
                self.stats[number].last = seq | STALE
                block.count -= 1
            block.last_seq = min(block.last_seq, max(seq, block.first_seq - 1))
            if block.first_seq <= seq:
                break
            at -= 1
        while self.change_stop > self.change_start:
            self.change_stop -= 1
            change = &self.changes[self.change_stop]
            if change.is_floor:
                self.floor = change.start
                at = max(self.block_of(change.start), 0)
                while at < self.block_count and self.blocks[at].first_seq < change.stop:
                    block = self.blocks[at]
                    row = self.row_from(block, change.start)
                    stop = <uint32_t>self.row_from(block, change.stop)
                    while row < stop:
                        one = self.seq_of(block, <uint32_t>row)
                        if not self.is_dead(block, <uint32_t>row) and one <= seq:
                            self.restore_row(block, <uint32_t>row, one)
                        row += 1
                    at += 1
            elif change.start <= seq:
                block = self.blocks[self.block_of(change.start)]
                row = self.row_of(block, change.start)
                block.dead[row >> 6] &= ~(<uint64_t>1 << (row & 63))
                self.restore_row(block, <uint32_t>row, change.start)
        self.change_start = self.change_stop = 0
        self.last_seq = seq
        self.first_seq = self.floor
        self.find_first()
        for watcher in self.watchers:
            (<Watcher>watcher).rolled_back(seq)
        return 0

    cdef int watch(self, Watcher watcher) except -1:
        """Tell `watcher` of rows that go; again when it goes back."""
        if watcher not in self.watchers:
            self.watchers.append(watcher)
        self.watched_from = min(self.watched_from, watcher.watched_from())
        return 0

    cdef int unwatch(self, Watcher watcher) except -1:
        if watcher in self.watchers:
            self.watchers.remove(watcher)
        return 0

    cdef int tell_gone(self, uint64_t seq, uint32_t number) except -1:
        cdef Watcher watcher
        cdef uint64_t low = SEQ_MAX
        for watcher in self.watchers:
            watcher.row_gone(seq, number)
            low = min(low, watcher.watched_from())
        self.watched_from = low
        return 0

    cdef int tell_all_gone(self, uint64_t start, uint64_t stop) except -1:
        """Most of what there is goes: who watches is told once, and counts what is left anew. `watched_from` is to be set again."""
        cdef Watcher watcher
        for watcher in self.watchers:
            watcher.rows_gone(start, stop)
        self.watched_from = SEQ_MAX
        return 0

    cdef int drop_committed_changes(self, uint64_t position) except -1:
        """Changes up to the log's `position` are committed and cannot be undone any more."""
        while (self.change_start < self.change_stop and self.changes[self.change_start].position
               and self.changes[self.change_start].position <= position):
            self.change_start += 1
        if self.change_start == self.change_stop:
            self.change_start = self.change_stop = 0
        return 0


cdef Matcher _literal(uint32_t number):
    cdef Matcher matcher = Matcher(_ONE)
    matcher.number = number
    return matcher


_ONE = Filters(["a"])                      # any literal filter: the number decides


cdef uint64_t _dead_between(const uint64_t* dead, uint32_t start, uint32_t stop) noexcept nogil:
    cdef uint64_t found = 0, word
    cdef uint32_t at = start
    while at < stop:
        word = dead[at >> 6] >> (at & 63)
        if stop - at < 64 - (at & 63):
            word &= (<uint64_t>1 << (stop - at)) - 1
        found += popcount(word)
        at = (at | 63) + 1
    return found


cdef uint64_t _wanted_between(const uint32_t* subjects, const uint64_t* wanted, uint32_t start,
                              uint32_t stop) noexcept nogil:
    cdef uint64_t found = 0
    cdef uint32_t row
    for row in range(start, stop):
        found += (wanted[subjects[row] >> 6] >> (subjects[row] & 63)) & 1
    return found
