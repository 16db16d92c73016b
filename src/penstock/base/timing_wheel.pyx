"""TimingWheel: which messages expire when, at a cost that follows what expires.

An entry lies in the slot of its expiry's tick (its time divided by the slot's width) modulo the number of slots. A slot
keeps its entries in order while they come in order, which they do where all messages live equally long; else it is
sorted when it is due. Rules and encoding: tests/twins/timing_wheel.py.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcpy, memmove

from penstock.base.varint cimport read_varint, unzigzag, write_varint, zigzag

REASONS = (
    "",
    "no whole varint in its shortest form",
    "more entries than there are bytes",
    "a time passes 2^63 - 1",
    "entries out of order",
    "bytes after the last entry",
)
cdef enum:
    BAD_VARINT = -1
    BAD_COUNT = -2
    BAD_TIME = -3
    BAD_ORDER = -4
    BAD_TRAILING = -5
    NO_MEMORY = -6


cdef int order(const void* one, const void* other) noexcept nogil:
    cdef const WheelEntry* a = <const WheelEntry*>one
    cdef const WheelEntry* b = <const WheelEntry*>other
    if a.expires_ns != b.expires_ns:
        return -1 if a.expires_ns < b.expires_ns else 1
    return -1 if a.seq < b.seq else a.seq > b.seq


cdef void sort_slot(WheelSlot* slot) noexcept nogil:
    if not slot.is_sorted:
        qsort(slot.entries + slot.start, slot.stop - slot.start, sizeof(WheelEntry), &order)
        slot.is_sorted = True


cdef void release_front(WheelSlot* slot) noexcept nogil:
    """After entries were taken from the front of a sorted slot: free an empty one, else note what is first now."""
    if slot.start == slot.stop:
        free(slot.entries)
        slot.entries = NULL
        slot.start = 0
        slot.stop = 0
        slot.capacity = 0
    else:
        slot.lowest = slot.entries[slot.start].expires_ns


cdef class TimingWheel:
    """Pairs of sequence and expiry; the same pair may be in it more than once.

    Always true: `tick` is at or below the tick of every entry; each slot knows its earliest expiry exactly.
    """

    def __cinit__(self, slot_count: int = 4096, slot_ns: int = 2**30):
        if not 1 <= slot_count <= 2**20 or slot_count & (slot_count - 1):
            raise ValueError(f"slot_count {slot_count}: a power of two up to 2^20 is needed")
        if not 1 <= slot_ns <= 2**62 or slot_ns & (slot_ns - 1):
            raise ValueError(f"slot_ns {slot_ns}: a power of two up to 2^62 is needed")
        self.slot_mask = slot_count - 1
        self.shift = slot_ns.bit_length() - 1

    def __dealloc__(self):
        self.empty()

    cdef void empty(self) noexcept nogil:
        cdef uint64_t at
        if self.slots != NULL:
            for at in range(self.slot_mask + 1):
                free(self.slots[at].entries)
            free(self.slots)
        self.slots = NULL
        self.count = 0

    cdef int put(self, uint64_t seq, int64_t expires_ns) noexcept nogil:
        cdef int64_t tick = expires_ns >> self.shift
        cdef WheelSlot* slot
        cdef WheelEntry* entries
        cdef WheelEntry entry
        cdef uint64_t capacity
        if self.slots == NULL:
            self.slots = <WheelSlot*>calloc(self.slot_mask + 1, sizeof(WheelSlot))
            if self.slots == NULL:
                return -1
        slot = &self.slots[<uint64_t>tick & self.slot_mask]
        if slot.stop == slot.capacity:
            if slot.start > slot.capacity // 2:
                memcpy(slot.entries, slot.entries + slot.start, (slot.stop - slot.start) * sizeof(WheelEntry))
                slot.stop -= slot.start
                slot.start = 0
            else:
                capacity = <uint64_t>slot.capacity + slot.capacity // 4 + 4
                if capacity > <uint64_t>0xffffffff:
                    return -1
                entries = <WheelEntry*>realloc(slot.entries, capacity * sizeof(WheelEntry))
                if entries == NULL:
                    return -1
                slot.entries = entries
                slot.capacity = <uint32_t>capacity
        entry.expires_ns = expires_ns
        entry.seq = seq
        if slot.start == slot.stop:
            slot.is_sorted = True
            slot.lowest = expires_ns
        else:
            if slot.is_sorted and order(&entry, &slot.entries[slot.stop - 1]) < 0:
                slot.is_sorted = False
            slot.lowest = min(slot.lowest, expires_ns)
        slot.entries[slot.stop] = entry
        slot.stop += 1
        if self.count == 0 or tick < self.tick:
            self.tick = tick
        self.count += 1
        return 0

    cdef bint discard(self, uint64_t seq, int64_t expires_ns) noexcept nogil:
        cdef WheelSlot* slot
        cdef WheelEntry entry
        cdef uint32_t low, high, middle, at
        if self.count == 0:
            return False
        slot = &self.slots[<uint64_t>(expires_ns >> self.shift) & self.slot_mask]
        if slot.start == slot.stop:
            return False
        entry.expires_ns = expires_ns
        entry.seq = seq
        if slot.is_sorted:
            low = slot.start
            high = slot.stop
            while low < high:
                middle = low + (high - low) // 2
                if order(&slot.entries[middle], &entry) < 0:
                    low = middle + 1
                else:
                    high = middle
            if low == slot.stop or order(&slot.entries[low], &entry) != 0:
                return False
            if low - slot.start < slot.stop - low:
                memmove(slot.entries + slot.start + 1, slot.entries + slot.start, (low - slot.start) * sizeof(WheelEntry))
                slot.start += 1
            else:
                memmove(slot.entries + low, slot.entries + low + 1, (slot.stop - low - 1) * sizeof(WheelEntry))
                slot.stop -= 1
            release_front(slot)
        else:
            at = slot.start
            while at < slot.stop and order(&slot.entries[at], &entry) != 0:
                at += 1
            if at == slot.stop:
                return False
            slot.stop -= 1
            slot.entries[at] = slot.entries[slot.stop]
            if expires_ns == slot.lowest:
                slot.lowest = slot.entries[slot.start].expires_ns
                for at in range(slot.start, slot.stop):
                    slot.lowest = min(slot.lowest, slot.entries[at].expires_ns)
        self.count -= 1
        return True

    cdef Py_ssize_t take(self, int64_t now_ns, WheelEntry* out, Py_ssize_t out_max) noexcept nogil:
        """Move the entries that are due into `out`, by expiry and then sequence, the first `out_max` of them.

        One round looks at no slot twice; there is another only where entries of a later revolution are due too.
        """
        cdef Py_ssize_t taken = 0
        cdef int64_t now_tick = now_ns >> self.shift, tick, earliest = 0
        cdef uint64_t span, step
        cdef WheelSlot* slot
        while self.count > 0 and taken < out_max and self.tick <= now_tick:
            span = min(<uint64_t>now_tick - <uint64_t>self.tick, self.slot_mask)
            for step in range(span + 1):
                tick = <int64_t>(<uint64_t>self.tick + step)
                slot = &self.slots[<uint64_t>tick & self.slot_mask]
                if slot.start == slot.stop or slot.lowest > now_ns or slot.lowest >> self.shift != tick:
                    continue
                sort_slot(slot)
                while (slot.start < slot.stop and taken < out_max and slot.entries[slot.start].expires_ns <= now_ns
                       and slot.entries[slot.start].expires_ns >> self.shift == tick):
                    out[taken] = slot.entries[slot.start]
                    slot.start += 1
                    taken += 1
                    self.count -= 1
                release_front(slot)
                if taken == out_max:
                    self.tick = tick       # more of this tick may be there
                    return taken
            if not self.earliest(&earliest) or earliest > now_ns:
                self.tick = now_tick if self.count == 0 else earliest >> self.shift
                break
            self.tick = earliest >> self.shift
        return taken

    cdef bint earliest(self, int64_t* expires_ns) noexcept nogil:
        cdef uint64_t step
        cdef WheelSlot* slot
        cdef bint found = False
        if self.count == 0:
            return False
        for step in range(self.slot_mask + 1):
            slot = &self.slots[(<uint64_t>self.tick + step) & self.slot_mask]
            if slot.start == slot.stop:
                continue
            if not found or slot.lowest < expires_ns[0]:
                expires_ns[0] = slot.lowest
                found = True
            if slot.lowest >> self.shift == <int64_t>(<uint64_t>self.tick + step):
                break                      # slots passed over hold later revolutions only, those ahead later ticks
        return found

    cdef Py_ssize_t nbytes(self) noexcept nogil:
        """Memory held, unused capacity included."""
        cdef Py_ssize_t held = 0
        cdef uint64_t at
        if self.slots == NULL:
            return 0
        for at in range(self.slot_mask + 1):
            held += self.slots[at].capacity * <Py_ssize_t>sizeof(WheelEntry)
        return held + <Py_ssize_t>((self.slot_mask + 1) * sizeof(WheelSlot))

    # Doors for Python.

    def add(self, seq: int, expires_ns: int) -> None:
        if self.put(seq, expires_ns) < 0:
            raise MemoryError

    def remove(self, seq: int, expires_ns: int) -> bool:
        return bool(self.discard(seq, expires_ns))

    def expire(self, now_ns: int, limit: int) -> list[tuple[int, int]]:
        cdef WheelEntry part[256]
        cdef Py_ssize_t taken, at, left = limit
        cdef int64_t now = now_ns
        cdef list out = []
        while left > 0:
            taken = self.take(now, part, min(left, <Py_ssize_t>256))
            for at in range(taken):
                out.append((part[at].seq, part[at].expires_ns))
            left -= taken
            if taken < 256:
                break
        return out

    def next_expiry(self) -> int | None:
        cdef int64_t expires_ns = 0
        return expires_ns if self.earliest(&expires_ns) else None

    def clear(self) -> None:
        self.empty()

    def memory(self) -> int:
        return self.nbytes()

    def entries(self) -> list[tuple[int, int]]:
        cdef WheelEntry* all = self.sorted_copy()
        cdef Py_ssize_t at
        try:
            return [(all[at].seq, all[at].expires_ns) for at in range(self.count)]
        finally:
            free(all)

    cdef WheelEntry* sorted_copy(self) except NULL:
        cdef WheelEntry* all = <WheelEntry*>malloc((self.count + 1) * sizeof(WheelEntry))
        cdef Py_ssize_t size = 0, more
        cdef uint64_t at
        cdef WheelSlot* slot
        if all == NULL:
            raise MemoryError
        if self.count > 0:
            for at in range(self.slot_mask + 1):
                slot = &self.slots[at]
                more = slot.stop - slot.start
                if more > 0:
                    memcpy(all + size, slot.entries + slot.start, more * sizeof(WheelEntry))
                    size += more
        qsort(all, size, sizeof(WheelEntry), &order)
        return all

    def encode(self) -> bytes:
        cdef WheelEntry* all = self.sorted_copy()
        cdef uint8_t* out = <uint8_t*>malloc(10 + 20 * self.count)
        cdef Py_ssize_t at, written
        cdef uint64_t expires_ns = 0, seq = 0
        try:
            if out == NULL:
                raise MemoryError
            written = write_varint(out, 0, self.count)
            for at in range(self.count):
                if at == 0:
                    written = write_varint(out, written, zigzag(all[at].expires_ns))
                else:
                    written = write_varint(out, written, <uint64_t>all[at].expires_ns - expires_ns)
                written = write_varint(out, written, zigzag(<int64_t>(all[at].seq - seq)))
                expires_ns = <uint64_t>all[at].expires_ns
                seq = all[at].seq
            return PyBytes_FromStringAndSize(<const char*>out, written)
        finally:
            free(all)
            free(out)

    @staticmethod
    def decode(const uint8_t[::1] buffer not None, slot_count: int = 4096, slot_ns: int = 2**30) -> TimingWheel:
        cdef TimingWheel out = TimingWheel(slot_count, slot_ns)
        cdef Py_ssize_t offset = 0, size = buffer.shape[0]
        cdef const uint8_t* data = &buffer[0] if size > 0 else NULL
        cdef int outcome
        with nogil:
            outcome = decode_entries(out, data, size, &offset)
        if outcome == NO_MEMORY:
            raise MemoryError
        if outcome != 0:
            raise ValueError(f"timing wheel at byte {offset}: {REASONS[-outcome]}")
        return out

    def __len__(self):
        return self.count


cdef int decode_entries(TimingWheel out, const uint8_t* data, Py_ssize_t size, Py_ssize_t* offset) noexcept nogil:
    """Fill `out`; 0 or what is wrong at `offset`."""
    cdef uint64_t count, each, more, difference, seq = 0, before
    cdef int64_t expires_ns = 0
    cdef Py_ssize_t at = read_varint(data, 0, size, &count)
    offset[0] = 0
    if at < 0:
        return BAD_VARINT
    if count > <uint64_t>(size - at) // 2:
        return BAD_COUNT
    for each in range(count):
        offset[0] = at
        at = read_varint(data, at, size, &more)
        if at < 0:
            return BAD_VARINT
        if each == 0:
            expires_ns = unzigzag(more)
        else:
            # How far it is to the end of time, which is more than a signed number can say.
            if more > <uint64_t>0x7fffffffffffffff - <uint64_t>expires_ns:
                return BAD_TIME
            expires_ns = <int64_t>(<uint64_t>expires_ns + more)
        offset[0] = at
        at = read_varint(data, at, size, &difference)
        if at < 0:
            return BAD_VARINT
        before = seq
        seq += <uint64_t>unzigzag(difference)
        if each > 0 and more == 0 and seq < before:
            return BAD_ORDER
        if out.put(seq, expires_ns) < 0:
            return NO_MEMORY
    offset[0] = at
    return 0 if at == size else BAD_TRAILING
