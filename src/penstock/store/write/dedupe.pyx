"""DedupeWindow: the message ids that a stream has seen within its duplicate window.

Rules: JetStream's `Nats-Msg-Id` and `duplicate_window`; `tests/twins/dedupe.py` is the readable form. The caller passes
ids as 16-byte hashes, and the time. A ring buffer holds the entries in order, and a hash table maps an id to its place
in the ring: 48 to 96 bytes per id.
"""
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from penstock.store.index.ids_and_expiries cimport IdAndExpiry, IdsAndExpiries
from penstock.base.prefetch cimport prefetch

cdef enum:
    CAPACITY_MIN = 64
    PRUNED_PER_ADD = 2

cdef uint64_t CAPACITY_MAX = 1ULL << 31
cdef uint64_t NONE = 0xFFFFFFFFFFFFFFFFULL
cdef uint64_t LOW_HALF = 0xFFFFFFFFULL


cdef class DedupeWindow:
    """Maps the hash of a message id to the sequence it was stored at, for `window_ns`.

    Always true: `lookup` never returns an entry outside the window, whether or not it was pruned; sequences are added
    in rising order. Each `add` drops up to two expired entries, so memory follows the rate without a long pause. A
    window of 0 remembers nothing.
    """

    def __cinit__(self, int64_t window_ns):
        self.window = window_ns
        # Clients choose the ids: without a secret they could make all of them collide in the table.
        self.secret = int.from_bytes(os.urandom(8), "little") | 1
        self.resize(CAPACITY_MIN)

    def __dealloc__(self):
        free(self.ring)
        free(self.table)

    @property
    def window_ns(self):
        """How long an id is remembered. A longer window does not bring back what a shorter one forgot."""
        return self.window

    @window_ns.setter
    def window_ns(self, int64_t window_ns):
        self.window = window_ns
        if window_ns <= 0:
            self.clear()

    def __len__(self):
        """The number of ids held, including expired ones that are not pruned yet."""
        return self.count

    @property
    def memory_size(self):
        """Bytes of the ring and the table."""
        return (self.ring_mask + 1) * (sizeof(Seen) + 2 * sizeof(uint64_t))

    def lookup(self, bytes id_hash not None, int64_t now_ns):
        """The sequence at which this id was stored within the window; None when it was not."""
        cdef uint64_t halves[2]
        _halves(id_hash, halves)
        return self.known(halves[0], halves[1], now_ns) or None

    def add(self, bytes id_hash not None, uint64_t seq, int64_t time_ns):
        """Remember that the message at `seq` had this id."""
        cdef uint64_t halves[2]
        _halves(id_hash, halves)
        self.note(halves[0], halves[1], seq, time_ns)

    def load(self, IdsAndExpiries entries not None, int64_t since_ns, int64_t now_ns, int64_t offset_ns):
        """Remember the ids of entries stored at or after `since_ns`, a time of the machine's clock.

        The entries rise in sequence. The machine's clock is `offset_ns` ahead of `now_ns`. If it was set back, entries
        may have times in the future: they count as stored now.
        """
        cdef Py_ssize_t n
        cdef IdAndExpiry* entry
        for n in range(entries.count):
            entry = &entries.items[n]
            if entry.has_id and entry.time >= since_ns:
                self.note(entry.low, entry.high, entry.seq, min(entry.time - offset_ns, now_ns))

    def prune(self, int64_t now_ns, count_max=None):
        """Drop expired entries, oldest first, at most `count_max`; returns how many."""
        return self.forget_old(now_ns, NONE if count_max is None else <uint64_t>count_max)

    def forget_above(self, uint64_t seq):
        """Roll back: the messages above `seq` were never committed."""
        while self.stop > self.first and self.ring[(self.stop - 1) & self.ring_mask].seq > seq:
            self.stop -= 1
            self.drop(self.stop & self.ring_mask)

    def clear(self):
        self.first = self.stop = 0
        self.resize(CAPACITY_MIN)

    # The structure.

    cdef inline uint64_t mix(self, uint64_t low, uint64_t high) noexcept nogil:
        """The hash of an id: the search in the table begins at its low bits; its upper half is stored in the table."""
        cdef uint64_t mixed = (low ^ high) * self.secret
        return mixed ^ (mixed >> 32)

    cdef void hint(self, uint64_t low, uint64_t high) noexcept nogil:
        """Prefetch this id's place in the table, before a lookup."""
        prefetch(&self.table[self.mix(low, high) & (self.ring_mask * 2 + 1)])

    cdef uint64_t find(self, uint64_t low, uint64_t high) noexcept nogil:
        """This id's place in the table; NONE when it is not there."""
        cdef uint64_t mask = self.ring_mask * 2 + 1
        cdef uint64_t mixed = self.mix(low, high)
        cdef uint64_t at = mixed & mask
        cdef Seen* seen
        while self.table[at]:
            if (self.table[at] ^ mixed) >> 32 == 0:
                seen = &self.ring[(self.table[at] & LOW_HALF) - 1]
                if seen.low == low and seen.high == high:
                    return at
            at = (at + 1) & mask
        return NONE

    cdef uint64_t known(self, uint64_t low, uint64_t high, int64_t now) noexcept nogil:
        """The sequence at which this id was stored within the window; 0 when it was not."""
        cdef uint64_t at = self.find(low, high)
        cdef Seen* seen
        if at == NONE:
            return 0
        seen = &self.ring[(self.table[at] & LOW_HALF) - 1]
        return seen.seq if now - seen.time < self.window else 0

    cdef int note(self, uint64_t low, uint64_t high, uint64_t seq, int64_t time) except -1:
        cdef Seen* seen
        cdef uint64_t held
        if self.window <= 0:
            return 0
        if self.stop > self.first and time - self.ring[self.first & self.ring_mask].time >= self.window:
            self.forget_old(time, PRUNED_PER_ADD)
        held = self.stop - self.first
        if held > self.ring_mask:
            self.resize((self.ring_mask + 1) * 2)
        elif held * 8 <= self.ring_mask and self.ring_mask >= 8 * CAPACITY_MIN:
            self.resize((self.ring_mask + 1) // 2)
        seen = &self.ring[self.stop & self.ring_mask]
        seen.low = low
        seen.high = high
        seen.seq = seq
        seen.time = time
        self.put(self.stop & self.ring_mask)
        self.stop += 1
        return 0

    cdef int resize(self, uint64_t capacity) except -1:
        """Move to a ring of another size and rebuild the table."""
        cdef Seen* ring = NULL
        cdef uint64_t* table = NULL
        cdef uint64_t n, held = self.stop - self.first
        if capacity <= CAPACITY_MAX:
            ring = <Seen*>malloc(capacity * sizeof(Seen))
            table = <uint64_t*>calloc(2 * capacity, sizeof(uint64_t))
        if ring == NULL or table == NULL:
            free(ring)
            free(table)
            raise MemoryError(f"a duplicate window of {held} message ids has no room for another")
        for n in range(held):
            ring[n] = self.ring[(self.first + n) & self.ring_mask]
        free(self.ring)
        free(self.table)
        self.ring = ring
        self.table = table
        self.ring_mask = capacity - 1
        self.first = 0
        self.stop = held
        self.count = 0
        for n in range(held):
            self.put(n)
        return 0

    cdef void put(self, uint64_t place) noexcept nogil:
        """Make the table point to the entry at this place of the ring; it replaces an older entry with the same id."""
        cdef uint64_t mask = self.ring_mask * 2 + 1
        cdef uint64_t at = self.find(self.ring[place].low, self.ring[place].high)
        cdef uint64_t mixed = self.mix(self.ring[place].low, self.ring[place].high)
        if at == NONE:
            at = mixed & mask
            while self.table[at]:
                at = (at + 1) & mask
            self.count += 1
        self.table[at] = (mixed & ~LOW_HALF) | (place + 1)

    cdef void drop(self, uint64_t place) noexcept nogil:
        """Remove the entry at this place of the ring from the table, if the table points to it."""
        cdef uint64_t mask = self.ring_mask * 2 + 1
        cdef uint64_t at = self.find(self.ring[place].low, self.ring[place].high)
        cdef uint64_t following, home
        cdef Seen* seen
        if at == NONE or self.table[at] & LOW_HALF != place + 1:
            return
        self.count -= 1
        # Close the gap: the entries that follow move up unless that would put them before their home slot.
        following = (at + 1) & mask
        while self.table[following]:
            seen = &self.ring[(self.table[following] & LOW_HALF) - 1]
            home = self.mix(seen.low, seen.high) & mask
            if ((following - home) & mask) >= ((following - at) & mask):
                self.table[at] = self.table[following]
                at = following
            following = (following + 1) & mask
        self.table[at] = 0

    cdef uint64_t forget_old(self, int64_t now, uint64_t count_max) noexcept nogil:
        cdef uint64_t found = 0
        cdef int64_t oldest = now - self.window
        while self.first < self.stop and found < count_max and self.ring[self.first & self.ring_mask].time <= oldest:
            self.drop(self.first & self.ring_mask)
            self.first += 1
            found += 1
        return found


cdef int _halves(bytes id_hash, uint64_t* halves) except -1:
    if PyBytes_GET_SIZE(id_hash) != 16:
        raise ValueError(f"the hash of an id has 16 bytes, not {PyBytes_GET_SIZE(id_hash)}")
    memcpy(halves, PyBytes_AS_STRING(id_hash), 16)
    return 0
