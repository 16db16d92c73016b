"""SeqSet: a set of sequences as sorted ranges that never touch, in a vector of leaves of at most 256 ranges.

A search reads the vector, which is dense, and one leaf; a change moves at most one leaf. The rules and the encoding
stand in tests/twins/seq_set.py.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from penstock.base.varint cimport read_varint, write_varint

cdef uint64_t SEQ_MAX = ~<uint64_t>0

# What a malformed encoding is told; index = -code.
cdef enum:
    BAD_VARINT = -1
    BAD_COUNT = -2
    BAD_LENGTH = -3
    BAD_OVERFLOW = -4
    BAD_TRAILING = -5
    NO_MEMORY = -6

REASONS = (
    "",
    "no whole varint in its shortest form",
    "more ranges than there are bytes",
    "a range of length 0",
    "a range passes 2^64 - 1",
    "bytes after the last range",
)


cdef class SeqSet:
    """A set of numbers from 0 to 2^64 - 1.

    Always true: ranges are in order, do not overlap and do not touch; no leaf is empty.
    """

    def __dealloc__(self):
        self.empty()
        free(self.leaves)

    cdef void empty(self) noexcept nogil:
        cdef Py_ssize_t at
        for at in range(self.leaf_count):
            free(self.leaves[at].ranges)
        self.leaf_count = 0
        self.range_count = 0
        self.total = 0

    # Searching.

    cdef Py_ssize_t leaf_of(self, uint64_t seq) noexcept nogil:
        """The last leaf that begins at or below `seq`, or 0."""
        cdef Py_ssize_t low = 0, high = self.leaf_count, middle
        while high - low > 1:
            middle = (low + high) >> 1
            if self.leaves[middle].first <= seq:
                low = middle
            else:
                high = middle
        return low

    cdef Py_ssize_t index_of(self, const RangeLeaf* leaf, uint64_t seq) noexcept nogil:
        """Index of the leaf's last range that begins at or below `seq`, or -1."""
        cdef Py_ssize_t low = -1, high = leaf.count, middle
        while high - low > 1:
            middle = (low + high) >> 1
            if leaf.ranges[middle].first <= seq:
                low = middle
            else:
                high = middle
        return low

    cdef bint has(self, uint64_t seq) noexcept nogil:
        cdef RangeLeaf* leaf
        cdef Py_ssize_t index
        if self.leaf_count == 0:
            return False
        leaf = &self.leaves[self.leaf_of(seq)]
        index = self.index_of(leaf, seq)
        return index >= 0 and seq <= leaf.ranges[index].last

    cdef bint next_range(self, uint64_t seq, SeqRange* out) noexcept nogil:
        cdef Py_ssize_t at, index
        cdef RangeLeaf* leaf
        if self.leaf_count == 0:
            return False
        at = self.leaf_of(seq)
        leaf = &self.leaves[at]
        index = self.index_of(leaf, seq)
        if index < 0 or leaf.ranges[index].last < seq:
            index += 1
            if index == leaf.count:
                if at + 1 == self.leaf_count:
                    return False
                leaf = &self.leaves[at + 1]
                index = 0
        out[0] = leaf.ranges[index]
        return True

    cdef bint next_present(self, uint64_t seq, uint64_t* out) noexcept nogil:
        """The lowest member at or after `seq`; False where there is none."""
        cdef SeqRange found
        if not self.next_range(seq, &found):
            return False
        out[0] = max(seq, found.first)
        return True

    cdef uint64_t next_absent(self, uint64_t seq) noexcept nogil:
        """The lowest number at or after `seq` that is no member; 0 where there is none."""
        cdef SeqRange found
        if not self.next_range(seq, &found) or found.first > seq:
            return seq
        return found.last + 1              # ranges do not touch; past 2^64 - 1 this is 0

    # Changing.

    cdef int leaves_insert(self, Py_ssize_t at, uint32_t capacity) noexcept nogil:
        """A new, empty leaf at `at`; 0, or -1 where memory is out."""
        cdef Py_ssize_t more
        cdef RangeLeaf* leaves
        cdef SeqRange* ranges
        if self.leaf_count == self.leaves_max:
            more = self.leaves_max + self.leaves_max // 4 + 1
            leaves = <RangeLeaf*>realloc(self.leaves, more * sizeof(RangeLeaf))
            if leaves == NULL:
                return -1
            self.leaves = leaves
            self.leaves_max = more
        ranges = <SeqRange*>malloc(capacity * sizeof(SeqRange))
        if ranges == NULL:
            return -1
        memmove(self.leaves + at + 1, self.leaves + at, (self.leaf_count - at) * sizeof(RangeLeaf))
        self.leaf_count += 1
        self.leaves[at].ranges = ranges
        self.leaves[at].count = 0
        self.leaves[at].capacity = capacity
        return 0

    cdef int insert(self, Py_ssize_t at, Py_ssize_t index, uint64_t first, uint64_t last) noexcept nogil:
        """Insert a range that touches none at `index` of leaf `at`; 0, or -1 where memory is out."""
        cdef Py_ssize_t half = RANGES_MAX // 2
        cdef uint32_t capacity
        cdef SeqRange* ranges
        cdef RangeLeaf* leaf
        if self.leaf_count == 0:
            if self.leaves_insert(0, 4) < 0:
                return -1
        elif self.leaves[at].count == RANGES_MAX:
            if self.leaves_insert(at + 1, RANGES_MAX) < 0:
                return -1
            leaf = &self.leaves[at]
            if index == RANGES_MAX and at + 2 == self.leaf_count:
                half = RANGES_MAX          # ranges in order are appended, and leave full leaves behind
            leaf[1].count = <uint32_t>(RANGES_MAX - half)
            memcpy(leaf[1].ranges, leaf.ranges + half, leaf[1].count * sizeof(SeqRange))
            leaf.count = <uint32_t>half
            if half < RANGES_MAX:
                leaf[1].first = leaf[1].ranges[0].first
            if index > half or half == RANGES_MAX:
                at += 1
                index -= half
        leaf = &self.leaves[at]
        if leaf.count == leaf.capacity:
            capacity = min(leaf.capacity * 2, <uint32_t>RANGES_MAX)
            ranges = <SeqRange*>realloc(leaf.ranges, capacity * sizeof(SeqRange))
            if ranges == NULL:
                return -1
            leaf.ranges = ranges
            leaf.capacity = capacity
        memmove(leaf.ranges + index + 1, leaf.ranges + index, (leaf.count - index) * sizeof(SeqRange))
        leaf.ranges[index].first = first
        leaf.ranges[index].last = last
        leaf.count += 1
        leaf.first = leaf.ranges[0].first
        self.range_count += 1
        self.total += last - first + 1
        return 0

    cdef void cut(self, Py_ssize_t at, Py_ssize_t index, Py_ssize_t count) noexcept nogil:
        """Remove `count` ranges of one leaf; leaves that become small join."""
        cdef RangeLeaf* leaf = &self.leaves[at]
        cdef SeqRange* ranges
        cdef Py_ssize_t each
        cdef uint32_t both
        for each in range(index, index + count):
            self.total -= leaf.ranges[each].last - leaf.ranges[each].first + 1
        leaf.count -= <uint32_t>count
        self.range_count -= count
        memmove(leaf.ranges + index, leaf.ranges + index + count, (leaf.count - index) * sizeof(SeqRange))
        if leaf.count > 0:
            leaf.first = leaf.ranges[0].first
            if at + 1 == self.leaf_count:
                at -= 1
            if at < 0:
                return
            leaf = &self.leaves[at]
            both = leaf.count + leaf[1].count
            if both > RANGES_MAX // 2:
                return
            if both > leaf.capacity:
                ranges = <SeqRange*>realloc(leaf.ranges, both * sizeof(SeqRange))
                if ranges == NULL:
                    return                 # two small leaves are as right as one
                leaf.ranges = ranges
                leaf.capacity = both
            memcpy(leaf.ranges + leaf.count, leaf[1].ranges, leaf[1].count * sizeof(SeqRange))
            leaf.count = both
            at += 1
        free(self.leaves[at].ranges)
        self.leaf_count -= 1
        memmove(self.leaves + at, self.leaves + at + 1, (self.leaf_count - at) * sizeof(RangeLeaf))

    cdef int put_range(self, uint64_t first, uint64_t last) noexcept nogil:
        """Add [first, last]; ranges that it overlaps or touches become one with it."""
        cdef Py_ssize_t at, index, stop
        cdef RangeLeaf* leaf
        cdef SeqRange* found
        if self.leaf_count == 0:
            return self.insert(0, 0, first, last)
        at = self.leaf_of(first)
        leaf = &self.leaves[at]
        index = self.index_of(leaf, first)
        if index < 0 or (leaf.ranges[index].last < first and leaf.ranges[index].last + 1 < first):
            # No range before it reaches it; the one after may begin inside it or right behind it.
            index += 1
            if index == leaf.count and at + 1 < self.leaf_count:
                if not is_reached(self.leaves[at + 1].first, last):
                    return self.insert(at, index, first, last)
                at += 1
                index = 0
                leaf = &self.leaves[at]
            if index == leaf.count or not is_reached(leaf.ranges[index].first, last):
                return self.insert(at, index, first, last)
        # Grow the range at `index` downwards, then swallow those that follow, then grow it upwards.
        found = &leaf.ranges[index]
        if first < found.first:
            self.total += found.first - first
            found.first = first
            if index == 0:
                leaf.first = first
        if last <= found.last:
            return 0
        first = found.first
        while True:
            # The leaves may join while ranges are cut, so find the range again.
            at = self.leaf_of(first)
            leaf = &self.leaves[at]
            index = self.index_of(leaf, first)
            found = &leaf.ranges[index]
            if last <= found.last:
                return 0
            stop = index + 1
            while stop < leaf.count and is_reached(leaf.ranges[stop].first, last):
                last = max(last, leaf.ranges[stop].last)
                stop += 1
            if stop > index + 1:
                self.cut(at, index + 1, stop - index - 1)
                continue
            if stop == leaf.count and at + 1 < self.leaf_count and is_reached(self.leaves[at + 1].first, last):
                leaf = &self.leaves[at + 1]
                stop = 0
                while stop < leaf.count and is_reached(leaf.ranges[stop].first, last):
                    last = max(last, leaf.ranges[stop].last)
                    stop += 1
                self.cut(at + 1, 0, stop)
                continue
            self.total += last - found.last
            found.last = last
            return 0

    cdef int put(self, uint64_t seq) noexcept nogil:
        if self.has(seq):
            return 0
        return 1 if self.put_range(seq, seq) == 0 else -1

    cdef int discard(self, uint64_t seq) noexcept nogil:
        cdef Py_ssize_t at, index
        cdef RangeLeaf* leaf
        cdef SeqRange* found
        cdef uint64_t last
        if self.leaf_count == 0:
            return 0
        at = self.leaf_of(seq)
        leaf = &self.leaves[at]
        index = self.index_of(leaf, seq)
        if index < 0 or leaf.ranges[index].last < seq:
            return 0
        found = &leaf.ranges[index]
        if found.first == found.last:
            self.cut(at, index, 1)
            return 1
        if seq == found.first:
            found.first += 1
            leaf.first = leaf.ranges[0].first
            self.total -= 1
            return 1
        last = found.last
        if seq < last:
            # Cut in two: shorten first, since the insert may move the range; undo where memory is out.
            found.last = seq - 1
            self.total -= last - seq + 1
            if self.insert(at, index + 1, seq + 1, last) < 0:
                found.last = last
                self.total += last - seq + 1
                return -1
            return 1
        found.last -= 1
        self.total -= 1
        return 1

    cdef int add_sorted(self, const uint64_t* seqs, Py_ssize_t count) noexcept nogil:
        """Add numbers that do not fall; runs go in as one range."""
        cdef Py_ssize_t at = 0, stop
        while at < count:
            stop = at + 1
            while stop < count and seqs[stop] - seqs[stop - 1] <= 1:
                stop += 1
            if self.put_range(seqs[at], seqs[stop - 1]) < 0:
                return -1
            at = stop
        return 0

    cdef Py_ssize_t nbytes(self) noexcept nogil:
        """Memory held, unused capacity included."""
        cdef Py_ssize_t held = self.leaves_max * <Py_ssize_t>sizeof(RangeLeaf), at
        for at in range(self.leaf_count):
            held += self.leaves[at].capacity * <Py_ssize_t>sizeof(SeqRange)
        return held

    # Doors for Python.

    def add(self, seq: int) -> bool:
        cdef int outcome = self.put(seq)
        if outcome < 0:
            raise MemoryError
        return outcome == 1

    def add_range(self, first: int, last: int) -> int:
        cdef uint64_t start = first, stop = last
        if start > stop:
            raise ValueError(f"the range from {first} to {last} is empty")
        before = self.count()
        if self.put_range(start, stop) < 0:
            raise MemoryError
        return self.count() - before

    def remove(self, seq: int) -> bool:
        cdef int outcome = self.discard(seq)
        if outcome < 0:
            raise MemoryError
        return outcome == 1

    def clear(self) -> None:
        self.empty()

    def count(self) -> int:
        if self.total == 0 and self.range_count > 0:
            return 2**64
        return self.total

    def ranges(self) -> list[tuple[int, int]]:
        cdef Py_ssize_t at, index
        cdef list out = []
        for at in range(self.leaf_count):
            for index in range(<Py_ssize_t>self.leaves[at].count):
                out.append((self.leaves[at].ranges[index].first, self.leaves[at].ranges[index].last))
        return out

    @property
    def first(self) -> int | None:
        return self.leaves[0].first if self.leaf_count else None

    @property
    def last(self) -> int | None:
        cdef RangeLeaf* leaf
        if self.leaf_count == 0:
            return None
        leaf = &self.leaves[self.leaf_count - 1]
        return leaf.ranges[leaf.count - 1].last

    def iterate_from(self, seq: int):
        cdef SeqRange found
        cdef uint64_t at = seq
        while self.next_range(at, &found):
            yield from range(max(at, found.first), found.last + <object>1)
            if found.last == SEQ_MAX:
                return
            at = found.last + 1

    def absent_from(self, seq: int) -> int | None:
        cdef uint64_t start = seq, found = self.next_absent(start)
        return None if found < start or (found == 0 and self.has(0)) else found

    def present_from(self, seq: int) -> int | None:
        cdef uint64_t found
        return found if self.next_present(seq, &found) else None

    def update(self, SeqSet other not None) -> None:
        cdef Py_ssize_t at, index
        cdef RangeLeaf* leaf
        if other is self:
            return
        for at in range(other.leaf_count):
            leaf = &other.leaves[at]
            for index in range(<Py_ssize_t>leaf.count):
                if self.put_range(leaf.ranges[index].first, leaf.ranges[index].last) < 0:
                    raise MemoryError

    def add_many(self, const uint64_t[::1] seqs not None) -> None:
        cdef Py_ssize_t at
        for at in range(1, seqs.shape[0]):
            if seqs[at] < seqs[at - 1]:
                raise ValueError(f"item {at} is below the one before it")
        if seqs.shape[0] > 0 and self.add_sorted(&seqs[0], seqs.shape[0]) < 0:
            raise MemoryError

    def copy(self) -> SeqSet:
        cdef SeqSet other = SeqSet()
        other.update(self)
        return other

    def memory(self) -> int:
        return self.nbytes()

    def encode(self) -> bytes:
        cdef Py_ssize_t at, index, written, count = self.range_count
        cdef uint64_t position = 0, first, length
        cdef RangeLeaf* leaf
        cdef uint8_t* out
        cdef bint is_full = self.total == 0 and self.range_count > 0
        if is_full:                        # its length does not fit, so it goes as two ranges that touch
            return b"\x02\x00" + b"\xff" * 9 + b"\x01\x00\x01"
        out = <uint8_t*>malloc(10 + 20 * count)
        if out == NULL:
            raise MemoryError
        written = write_varint(out, 0, count)
        for at in range(self.leaf_count):
            leaf = &self.leaves[at]
            for index in range(<Py_ssize_t>leaf.count):
                first = leaf.ranges[index].first
                length = leaf.ranges[index].last - first + 1
                written = write_varint(out, written, first - position)
                written = write_varint(out, written, length)
                position = first + length
        try:
            return PyBytes_FromStringAndSize(<const char*>out, written)
        finally:
            free(out)

    @staticmethod
    def decode(const uint8_t[::1] buffer not None) -> SeqSet:
        cdef SeqSet out = SeqSet()
        cdef Py_ssize_t offset = 0, size = buffer.shape[0]
        cdef int outcome
        cdef const uint8_t* data = &buffer[0] if size > 0 else NULL
        with nogil:
            outcome = decode_ranges(out, data, size, &offset)
        if outcome == NO_MEMORY:
            raise MemoryError
        if outcome != 0:
            raise ValueError(f"sequence set at byte {offset}: {REASONS[-outcome]}")
        return out

    def __contains__(self, seq):
        return bool(self.has(seq))

    def __len__(self):
        return self.count()

    def __bool__(self):
        return self.range_count > 0

    def __iter__(self):
        return self.iterate_from(0)

    def __eq__(self, other):
        if not isinstance(other, SeqSet):
            return NotImplemented
        cdef SeqSet that = <SeqSet>other
        cdef SeqRange a, b
        cdef uint64_t at = 0
        if self.range_count != that.range_count or self.total != that.total:
            return False
        while self.next_range(at, &a):
            if not that.next_range(at, &b) or a.first != b.first or a.last != b.last:
                return False
            if a.last == SEQ_MAX:
                break
            at = a.last + 1
        return True

    __hash__ = None

    def __repr__(self):
        return f"SeqSet({self.ranges()!r})"


cdef inline bint is_reached(uint64_t first, uint64_t last) noexcept nogil:
    """Whether a range that begins at `first` overlaps or touches one before it that ends at `last`."""
    return first <= last or first - last == 1


cdef int decode_ranges(SeqSet out, const uint8_t* data, Py_ssize_t size, Py_ssize_t* offset) noexcept nogil:
    """Fill `out`; 0 or what is wrong at `offset`."""
    cdef uint64_t count, gap, length, position = 0, first, each
    cdef bint is_end = False                # the range before ended at 2^64 - 1
    cdef Py_ssize_t at = read_varint(data, 0, size, &count)
    offset[0] = 0
    if at < 0:
        return BAD_VARINT
    if count > <uint64_t>(size - at) // 2:
        return BAD_COUNT
    for each in range(count):
        offset[0] = at
        at = read_varint(data, at, size, &gap)
        if at < 0:
            return BAD_VARINT
        if is_end or gap > SEQ_MAX - position:
            return BAD_OVERFLOW
        first = position + gap
        offset[0] = at
        at = read_varint(data, at, size, &length)
        if at < 0:
            return BAD_VARINT
        if length == 0:
            return BAD_LENGTH
        if length - 1 > SEQ_MAX - first:
            return BAD_OVERFLOW
        if out.put_range(first, first + (length - 1)) < 0:
            return NO_MEMORY
        position = first + length
        is_end = position == 0
    offset[0] = at
    return 0 if at == size else BAD_TRAILING
