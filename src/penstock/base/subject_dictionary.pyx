"""SubjectDictionary: subject -> dense number, in byte order, made for a million subjects.

Three parts. The arena holds one entry per name (number u32, size u16, name), appended; a dropped name leaves a hole
until holes are more than half. A hash table finds a name's number. The ordered index is a vector of leaves, each with
up to 128 numbers sorted by name. One class and one file although it is long: every change goes through all three parts, and
Cython cannot divide a class between modules. Rules: tests/twins/subject_dictionary.py.
"""

import os

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from penstock.base.prefetch cimport prefetch
from penstock.base.subject cimport (
    FILTER_LITERAL, FILTER_PREFIX, SUBJECT_SIZE_MAX, Filter, Filters, as_bytes, subject_is_valid, subject_matches,
)

cdef extern from *:
    """
    #include <string.h>
    #include <stdint.h>
    static inline uint64_t pst_load8(const uint8_t* at) { uint64_t v; memcpy(&v, at, 8); return v; }
    static inline uint32_t pst_load4(const uint8_t* at) { uint32_t v; memcpy(&v, at, 4); return v; }
    static inline uint64_t pst_fold(uint64_t a, uint64_t b) {
        unsigned __int128 r = (unsigned __int128)a * b;
        return (uint64_t)r ^ (uint64_t)(r >> 64);
    }
    /* Bit 7 of every byte from the first dot on that may be one; exact for the lowest. Little endian. */
    static inline uint64_t pst_dots(uint64_t word) {
        uint64_t x = word ^ 0x2e2e2e2e2e2e2e2eULL;
        return (x - 0x0101010101010101ULL) & ~x & 0x8080808080808080ULL;
    }
    #define pst_lowest(word) (__builtin_ctzll(word))
    #include <sys/mman.h>
    /* Large pages for large tables: a lookup then seldom waits for an address translation. Only advice. */
    static inline void pst_large_pages(void* memory, size_t size) {
    #ifdef MADV_HUGEPAGE
        uintptr_t start = ((uintptr_t)memory + 4095) & ~(uintptr_t)4095, stop = ((uintptr_t)memory + size) & ~(uintptr_t)4095;
        if (size >= (4u << 20)) madvise((void*)start, stop - start, MADV_HUGEPAGE);
    #else
        (void)memory; (void)size;
    #endif
    }
    """
    uint64_t pst_load8(const uint8_t* at) noexcept nogil
    uint32_t pst_load4(const uint8_t* at) noexcept nogil
    uint64_t pst_fold(uint64_t a, uint64_t b) noexcept nogil
    uint64_t pst_dots(uint64_t word) noexcept nogil
    int pst_lowest(uint64_t word) noexcept nogil
    void pst_large_pages(void* memory, size_t size) noexcept nogil

cdef enum:
    ENTRY_HEAD = 6                         # number u32, size u16
    ARENA_SLACK = 160                      # readable bytes past the last entry: 8 per run of a plan, and a word
    COMPACT_MIN = 4096                     # a smaller arena is not worth compacting
    BROAD = 8                              # a filter whose range is over 1/8 of the names is matched in the arena
    FEW = 512                              # under 1/512 of the names: sort the matches instead of walking the index

# A free number's place: this bit, then its neighbours in the free list.
cdef uint64_t FREE = <uint64_t>1 << 63
cdef uint32_t NO_LINK = 0x7fffffff

cdef const uint8_t* NUL = <const uint8_t*>b"\0"
cdef const uint8_t* AFTER_DOT = <const uint8_t*>b"/"


cdef inline Key key_of(const uint8_t* name, Py_ssize_t size) noexcept nogil:
    cdef Key key
    key.head = name
    key.head_size = size
    key.tail = name
    key.tail_size = 0
    return key


cdef inline uint32_t entry_number(const uint8_t* entry) noexcept nogil:
    return pst_load4(entry)


cdef inline uint32_t entry_size(const uint8_t* entry) noexcept nogil:
    return <uint32_t>entry[4] | <uint32_t>entry[5] << 8


cdef int compare_entry(const uint8_t* entry, const Key* key) noexcept nogil:
    """Below, at or above 0 as the entry's name sorts before, is, or sorts after the key."""
    cdef Py_ssize_t size = entry_size(entry)
    cdef int order = memcmp(entry + ENTRY_HEAD, key.head, min(size, key.head_size))
    if order != 0:
        return order
    if size < key.head_size:
        return -1
    size -= key.head_size
    if key.tail_size == 0:
        return size > 0
    order = memcmp(entry + ENTRY_HEAD + key.head_size, key.tail, min(size, key.tail_size))
    if order != 0:
        return order
    return -1 if size < key.tail_size else size > key.tail_size


cdef inline Py_ssize_t shared_part(const uint8_t* a, const uint8_t* b, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t at = 0
    while at + 8 <= size and pst_load8(a + at) == pst_load8(b + at):
        at += 8
    while at < size and a[at] == b[at]:
        at += 1
    return at


cdef Py_ssize_t shared_size(const uint8_t* entry, const Key* key) noexcept nogil:
    """How many bytes the entry's name and the key have in common at the front."""
    cdef Py_ssize_t size = entry_size(entry)
    cdef Py_ssize_t shared = shared_part(entry + ENTRY_HEAD, key.head, min(size, key.head_size))
    if shared < key.head_size or key.tail_size == 0:
        return shared
    return shared + shared_part(entry + ENTRY_HEAD + shared, key.tail, min(size - shared, key.tail_size))


cdef inline uint32_t head_of(const Key* key, Py_ssize_t skip) noexcept nogil:
    """Four bytes of the key after `skip`, zeros past its end, as a number that sorts as they do."""
    cdef uint32_t head = 0
    cdef Py_ssize_t at
    for at in range(skip, skip + 4):
        head <<= 8
        if at < key.head_size:
            head |= key.head[at]
        elif at - key.head_size < key.tail_size:
            head |= key.tail[at - key.head_size]
    return head


cdef inline bint is_before(TreeCursor a, TreeCursor b) noexcept nogil:
    return a.leaf < b.leaf or (a.leaf == b.leaf and a.index < b.index)


cdef inline Py_ssize_t set_bit(uint64_t* bits, uint32_t number) noexcept nogil:
    """Set the bit of `number`; 1 where it was clear."""
    cdef uint64_t word = bits[number >> 6]
    cdef uint64_t bit = <uint64_t>1 << (number & 63)
    bits[number >> 6] = word | bit
    return (word & bit) == 0


cdef inline Py_ssize_t dot_after(const uint8_t* name, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """Offset of the first dot in [start, stop), or `stop`, or `start` where that is past it; reads 7 bytes past."""
    cdef uint64_t dots
    while start < stop:
        dots = pst_dots(pst_load8(name + start))
        if dots:
            start += pst_lowest(dots) >> 3
            return start if start < stop else stop
        start += 8
        if start >= stop:
            return stop
    return start


cdef inline bint is_same(const uint8_t* a, const uint8_t* b, Py_ssize_t size) noexcept nogil:
    """Whether `size` bytes are equal; reads up to 8 bytes past both ends."""
    cdef Py_ssize_t at = 0
    while at + 8 <= size:
        if pst_load8(a + at) != pst_load8(b + at):
            return False
        at += 8
    if at == size:
        return True
    return ((pst_load8(a + at) ^ pst_load8(b + at)) << (8 * (8 - (size - at)))) == 0


cdef void make_plan(Plan* plan, const Filter* item) noexcept nogil:
    """Cut the filter into its literal runs; between two of them stands a star."""
    cdef Py_ssize_t begin = 0, end = item.prefix_size, stop = item.size, size
    plan.item = item
    plan.run_count = 0
    while True:
        # [begin, end) is a run; at `end` a wildcard token begins, or the filter ends.
        if plan.run_count == RUNS_MAX:
            plan.run_count = 0
            return
        size = end - begin
        plan.runs[plan.run_count] = item.pattern + begin
        plan.run_sizes[plan.run_count] = size
        plan.words[plan.run_count] = pst_load8(item.pattern + begin)
        plan.masks[plan.run_count] = ~<uint64_t>0 if size >= 8 else (<uint64_t>1 << (8 * size)) - 1
        plan.run_count += 1
        plan.has_tail = end < stop and item.pattern[end] == c">"
        if plan.has_tail or end == stop:
            return
        begin = end + 1
        end = begin
        while end < stop:
            end += 1                       # past a dot
            if end + 1 == stop and item.pattern[end] == c">":
                break
            if item.pattern[end] == c"*" and (end + 1 == stop or item.pattern[end + 1] == c"."):
                break
            while end < stop and item.pattern[end] != c".":
                end += 1


cdef inline bint plan_matches(const Plan* plan, const uint8_t* name, Py_ssize_t size) noexcept nogil:
    """Whether the filter matches a name of the arena (whose end may be read past).

    The runs are compared without a branch each: names that match and names that do not come in no order.
    """
    cdef Py_ssize_t at = 0
    cdef uint64_t differs = 0
    cdef int index
    if plan.run_count == 0:
        return subject_matches(name, size, plan.item.pattern, plan.item.size)
    for index in range(plan.run_count):
        if index > 0:
            at = dot_after(name, at, size)
        differs |= (pst_load8(name + at) ^ plan.words[index]) & plan.masks[index]
        if plan.run_sizes[index] > 8:
            if size - at < plan.run_sizes[index] or not is_same(name + at, plan.runs[index], plan.run_sizes[index]):
                return False
        at += plan.run_sizes[index]        # may pass the end, by at most 8 bytes per run; it never comes back
    return (differs == 0) & ((plan.has_tail & (at <= size)) | (at == size))


cdef class SubjectDictionary:
    """Names with their numbers, found by name and walked in byte order.

    Always true: a name has one number and keeps it until dropped; freed numbers are given out again, the last one
    first. Pointers and cursors into the tree hold until its next change. One thread at a time.
    """

    def __cinit__(self):
        cdef bytes seed = os.urandom(16)   # so that nobody can choose subjects that collide
        self.seed_a = pst_load8(<const uint8_t*>seed)
        self.seed_b = pst_load8(<const uint8_t*>seed + 8)
        self.free_first = NO_LINK
        if not self.make_room(1, 64, 1):
            raise MemoryError

    def __dealloc__(self):
        self.free_all()

    cdef void free_all(self) noexcept nogil:
        """Give back all memory; the tree is not used any more."""
        cdef Py_ssize_t at
        for at in range(self.leaf_count):
            free(self.leaves[at].leaf)
        free(self.leaves)
        free(self.spare)
        free(self.arena)
        free(self.places)
        free(self.slots)
        self.leaf_count = 0
        self.leaves = NULL
        self.spare = NULL
        self.arena = NULL
        self.places = NULL
        self.slots = NULL

    # Finding a name.

    cdef uint32_t hash_of(self, const uint8_t* name, Py_ssize_t size) noexcept nogil:
        cdef uint64_t state = self.seed_b ^ <uint64_t>size
        cdef uint64_t a = 0, b = 0
        while size > 16:
            state = pst_fold(pst_load8(name) ^ self.seed_a, pst_load8(name + 8) ^ state)
            name += 16
            size -= 16
        if size >= 8:
            a = pst_load8(name)
            b = pst_load8(name + size - 8)
        elif size >= 4:
            a = pst_load4(name)
            b = pst_load4(name + size - 4)
        elif size > 0:
            a = <uint64_t>name[0] << 16 | <uint64_t>name[size >> 1] << 8 | name[size - 1]
        return <uint32_t>pst_fold(pst_fold(a ^ self.seed_a, b ^ state) ^ self.seed_b, 0x9e3779b97f4a7c15)

    cdef uint32_t find_hashed(self, const uint8_t* name, Py_ssize_t size, uint32_t hashed) noexcept nogil:
        cdef uint64_t at = hashed & self.slot_mask
        cdef const uint8_t* entry
        while self.slots[at].number != NO_NUMBER:
            if self.slots[at].hash == hashed:
                entry = self.arena + self.places[self.slots[at].number]
                if entry_size(entry) == <uint32_t>size and memcmp(entry + ENTRY_HEAD, name, size) == 0:
                    return self.slots[at].number
            at = (at + 1) & self.slot_mask
        return NO_NUMBER

    cdef uint32_t find(self, const uint8_t* name, Py_ssize_t size) noexcept nogil:
        """The name's number, or NO_NUMBER."""
        if size <= 0 or size > SUBJECT_SIZE_MAX:
            return NO_NUMBER
        return self.find_hashed(name, size, self.hash_of(name, size))

    cdef bint has_at(self, uint32_t number, const uint8_t* name, Py_ssize_t size) noexcept nogil:
        """Whether `number` is that of the name."""
        cdef const uint8_t* entry
        if number >= self.number_stop or self.places[number] & FREE:
            return False
        entry = self.arena + self.places[number]
        return entry_size(entry) == <uint32_t>size and memcmp(entry + ENTRY_HEAD, name, size) == 0

    # With many names a find waits for memory three times: for the slot, the place and the name. Asked for a few names
    # ahead, one after the other, they are there when `find_hashed` comes.

    cdef uint32_t hint_slot(self, const uint8_t* name, Py_ssize_t size) noexcept nogil:
        """The hash of a name; its slot is on the way."""
        cdef uint32_t hashed = self.hash_of(name, size)
        prefetch(&self.slots[hashed & self.slot_mask])
        return hashed

    cdef uint32_t hint_place(self, uint32_t hashed) noexcept nogil:
        """The number that a name with this hash has, most likely; its place is on the way."""
        cdef uint64_t at = hashed & self.slot_mask
        while self.slots[at].number != NO_NUMBER:
            if self.slots[at].hash == hashed:
                prefetch(&self.places[self.slots[at].number])
                return self.slots[at].number
            at = (at + 1) & self.slot_mask
        return NO_NUMBER

    cdef void hint_name(self, uint32_t number) noexcept nogil:
        """The name of `number` is on the way."""
        if number < self.number_stop and not self.places[number] & FREE:
            prefetch(self.arena + self.places[number])
            prefetch(self.arena + self.places[number] + 32)

    cdef void hint_number(self, uint32_t number) noexcept nogil:
        """The place of a number that put_at or name will be given is on the way."""
        if number < self.places_max:
            prefetch(&self.places[number])

    cdef const uint8_t* name(self, uint32_t number, uint32_t* size) noexcept nogil:
        """The name of `number`, or NULL where the number is free."""
        cdef const uint8_t* entry
        if number >= self.number_stop or self.places[number] & FREE:
            size[0] = 0
            return NULL
        entry = self.arena + self.places[number]
        size[0] = entry_size(entry)
        return entry + ENTRY_HEAD

    # Giving out numbers.

    cdef uint32_t put(self, const uint8_t* name, Py_ssize_t size) noexcept nogil:
        """The name's number, new where it had none; NO_NUMBER where memory is out or the size is not a name's."""
        cdef uint32_t hashed, number
        if size <= 0 or size > SUBJECT_SIZE_MAX:
            return NO_NUMBER
        hashed = self.hash_of(name, size)
        number = self.find_hashed(name, size, hashed)
        if number != NO_NUMBER:
            return number
        if not self.make_room(1, ENTRY_HEAD + size, <uint64_t>self.number_stop + (self.free_first == NO_LINK)):
            return NO_NUMBER
        if self.free_first != NO_LINK:
            number = self.free_first
            self.free_take(number)
        else:
            number = self.number_stop
            self.number_stop += 1
        self.link(number, name, size, hashed)
        return number

    cdef int put_at(self, uint32_t number, const uint8_t* name, Py_ssize_t size) noexcept nogil:
        """Name a free number: 0, -1 where the number or the name is taken, -2 where memory is out.

        Numbers passed over become free, so the caller bounds `number` first. Names in byte order go fastest.
        """
        cdef uint32_t hashed, skipped
        if size <= 0 or size > SUBJECT_SIZE_MAX or number >= NUMBER_STOP_MAX:
            return -1
        if number < self.number_stop and not self.places[number] & FREE:
            return -1
        hashed = self.hash_of(name, size)
        if self.find_hashed(name, size, hashed) != NO_NUMBER:
            return -1
        if not self.make_room(1, ENTRY_HEAD + size, max(<uint64_t>number + 1, <uint64_t>self.number_stop)):
            return -2
        if number < self.number_stop:
            self.free_take(number)
        else:
            skipped = number
            while skipped > self.number_stop:
                skipped -= 1
                self.free_push(skipped)
            self.number_stop = number + 1
        self.link(number, name, size, hashed)
        return 0

    cdef int reserve(self, uint32_t names, uint64_t name_bytes) noexcept nogil:
        """Reserve space for so many more names of so many bytes in all: 0, or -2 when memory is out."""
        cdef uint64_t stop = <uint64_t>self.number_stop + names
        return 0 if self.make_room(names, name_bytes + <uint64_t>names * ENTRY_HEAD, stop) else -2

    cdef bint make_room(self, uint64_t names, uint64_t arena_bytes, uint64_t number_stop) noexcept nogil:
        """Get all memory that the next `names` names take, so that adding them cannot fail halfway."""
        cdef uint64_t need = self.arena_used + arena_bytes + ARENA_SLACK, capacity
        cdef Py_ssize_t leaves = self.leaf_count + 1 + <Py_ssize_t>(names // LEAF_MAX)
        cdef void* memory
        if number_stop >= NUMBER_STOP_MAX:
            return False
        if need > self.arena_max:
            capacity = max(need, self.arena_max + self.arena_max // 8 + 1024)
            memory = realloc(self.arena, capacity)
            if memory == NULL:
                return False
            self.arena = <uint8_t*>memory
            self.arena_max = capacity
            pst_large_pages(memory, capacity)
        if number_stop > self.places_max:
            capacity = max(number_stop, <uint64_t>self.places_max + self.places_max // 8 + 64)
            memory = realloc(self.places, capacity * sizeof(uint64_t))
            if memory == NULL:
                return False
            self.places = <uint64_t*>memory
            self.places_max = <uint32_t>capacity
            pst_large_pages(memory, capacity * sizeof(uint64_t))
        if leaves > self.leaves_max:
            leaves = max(leaves, self.leaves_max + self.leaves_max // 8 + 16)
            memory = realloc(self.leaves, leaves * sizeof(LeafRef))
            if memory == NULL:
                return False
            self.leaves = <LeafRef*>memory
            self.leaves_max = leaves
        if self.spare == NULL:
            self.spare = <Leaf*>malloc(sizeof(Leaf))
            if self.spare == NULL:
                return False
        return self.fit_slots(self.count + names, False)

    cdef bint fit_slots(self, uint64_t names, bint is_shrinking) noexcept nogil:
        """Have a hash table that `names` fill to at most 0.6; False where memory is out and the old one stays."""
        cdef uint64_t old_count = self.slot_mask + 1 if self.slots != NULL else 0
        cdef uint64_t new_count = <uint64_t>64 if is_shrinking else max(old_count, <uint64_t>64), at
        cdef Slot* old = self.slots
        cdef Slot* new
        while names * 10 > new_count * 6:
            new_count *= 2
        if new_count == old_count:
            return True
        new = <Slot*>malloc(new_count * sizeof(Slot))
        if new == NULL:
            return False
        pst_large_pages(new, new_count * sizeof(Slot))
        memset(new, 0xff, new_count * sizeof(Slot))
        self.slots = new
        self.slot_mask = new_count - 1
        for at in range(old_count):
            if old[at].number != NO_NUMBER:
                self.slot_fill(old[at].number, old[at].hash)
        free(old)
        return True

    cdef void link(self, uint32_t number, const uint8_t* name, Py_ssize_t size, uint32_t hashed) noexcept nogil:
        """Enter a new name into arena, table and index; make_room came before."""
        cdef uint8_t* entry = self.arena + self.arena_used
        cdef Key key
        memcpy(entry, &number, 4)
        entry[4] = <uint8_t>(size & 0xff)
        entry[5] = <uint8_t>(size >> 8)
        memcpy(entry + ENTRY_HEAD, name, size)
        self.places[number] = self.arena_used
        self.arena_used += ENTRY_HEAD + size
        self.slot_fill(number, hashed)
        key = key_of(entry + ENTRY_HEAD, size)
        self.order_insert(number, &key)
        self.count += 1
        if not self.has_wild:
            self.has_wild = not subject_is_valid(name, size)

    cdef void drop(self, uint32_t number) noexcept nogil:
        """Forget the name of `number`; a free number stays as it is."""
        cdef uint32_t size
        cdef uint32_t hole = NO_NUMBER
        cdef const uint8_t* name = self.name(number, &size)
        cdef Key key
        if name == NULL:
            return
        key = key_of(name, size)
        self.slot_empty(number, self.hash_of(name, size))
        self.order_remove(number, &key)
        memcpy(self.arena + self.places[number], &hole, 4)
        self.garbage += ENTRY_HEAD + size
        self.free_push(number)
        self.count -= 1
        if self.garbage > self.arena_used // 2 and self.arena_used > COMPACT_MIN:
            self.compact()

    cdef void free_push(self, uint32_t number) noexcept nogil:
        cdef uint32_t after = self.free_first
        self.places[number] = FREE | <uint64_t>NO_LINK << 31 | after
        if after != NO_LINK:
            self.places[after] = FREE | <uint64_t>number << 31 | (self.places[after] & NO_LINK)
        self.free_first = number

    cdef void free_take(self, uint32_t number) noexcept nogil:
        cdef uint32_t before = <uint32_t>(self.places[number] >> 31) & NO_LINK
        cdef uint32_t after = <uint32_t>self.places[number] & NO_LINK
        if before != NO_LINK:
            self.places[before] = (self.places[before] & ~<uint64_t>NO_LINK) | after
        else:
            self.free_first = after
        if after != NO_LINK:
            self.places[after] = FREE | <uint64_t>before << 31 | (self.places[after] & NO_LINK)

    cdef void slot_fill(self, uint32_t number, uint32_t hashed) noexcept nogil:
        cdef uint64_t at = hashed & self.slot_mask
        while self.slots[at].number != NO_NUMBER:
            at = (at + 1) & self.slot_mask
        self.slots[at].number = number
        self.slots[at].hash = hashed

    cdef void slot_empty(self, uint32_t number, uint32_t hashed) noexcept nogil:
        """Empty the slot of `number` and move later ones of its run back, so that no search ends too early."""
        cdef uint64_t hole = hashed & self.slot_mask, at
        while self.slots[hole].number != number:
            hole = (hole + 1) & self.slot_mask
        at = hole
        while True:
            at = (at + 1) & self.slot_mask
            if self.slots[at].number == NO_NUMBER:
                break
            if ((at - self.slots[at].hash) & self.slot_mask) >= ((at - hole) & self.slot_mask):
                self.slots[hole] = self.slots[at]
                hole = at
        self.slots[hole].number = NO_NUMBER

    cdef void compact(self) noexcept nogil:
        """Close the holes of the arena, in place, and give memory back where it can be had."""
        cdef uint64_t source = 0, target = 0, size
        cdef uint32_t number
        cdef Py_ssize_t at
        cdef void* memory
        while source < self.arena_used:
            size = ENTRY_HEAD + entry_size(self.arena + source)
            number = entry_number(self.arena + source)
            if number != NO_NUMBER:
                memmove(self.arena + target, self.arena + source, size)
                self.places[number] = target
                target += size
            source += size
        self.arena_used = target
        self.garbage = 0
        for at in range(self.leaf_count):
            self.leaves[at].first = self.places[self.leaves[at].leaf.numbers[0]]
        memory = realloc(self.arena, target + target // 8 + 1024)   # more than the slack
        if memory != NULL:
            self.arena = <uint8_t*>memory
            self.arena_max = target + target // 8 + 1024
        self.fit_slots(<uint64_t>self.count * 2, True)

    # The order of names.

    cdef int compare(self, uint32_t number, const Key* key) noexcept nogil:
        """Below, at or above 0 as the name of `number` sorts before, is, or sorts after the key."""
        return compare_entry(self.arena + self.places[number], key)

    cdef Key key_at(self, uint32_t number) noexcept nogil:
        cdef const uint8_t* entry = self.arena + self.places[number]
        return key_of(entry + ENTRY_HEAD, entry_size(entry))

    cdef void seek(self, TreeCursor* cursor, const Key* key) noexcept nogil:
        """To the first name at or after the key."""
        cursor.leaf = 0
        cursor.index = 0
        if self.leaf_count == 0:
            return
        cursor.leaf = self.leaf_before(key, 0, self.leaf_count)
        cursor.index = self.leaf_seek(&self.leaves[cursor.leaf], key)
        if cursor.index == self.leaves[cursor.leaf].leaf.count:
            cursor.leaf += 1
            cursor.index = 0

    cdef Py_ssize_t leaf_before(self, const Key* key, Py_ssize_t low, Py_ssize_t high) noexcept nogil:
        """The last leaf in [low, high) that begins below the key, or `low`."""
        cdef Py_ssize_t middle, eighth
        cdef int round = 0, part
        while high - low > 1:
            # Each step waits for a name somewhere in memory, so fetch all that the next three steps may ask for.
            if round % 3 == 0:
                eighth = (high - low) >> 3
                for part in range(1, 8):
                    prefetch(self.arena + self.leaves[low + part * eighth].first)
            round += 1
            middle = low + ((high - low) >> 1)
            if compare_entry(self.arena + self.leaves[middle].first, key) < 0:
                low = middle
            else:
                high = middle
        for part in range(<int>(sizeof(Leaf) // 64) + 1):
            prefetch(<const uint8_t*>self.leaves[low].leaf + 64 * part)
        return low

    cdef Py_ssize_t leaf_seek(self, const LeafRef* ref, const Key* key) noexcept nogil:
        """Index of the leaf's first name at or after the key; its heads decide all but the last few steps."""
        cdef const Leaf* leaf = ref.leaf
        cdef const uint8_t* entry = self.arena + ref.first
        cdef Py_ssize_t shared = shared_size(entry, key), low = 0, high = leaf.count, middle, bound
        cdef uint32_t head
        if shared < leaf.skip:             # the key leaves the path that all names of the leaf share
            return 0 if compare_entry(entry, key) >= 0 else high
        head = head_of(key, leaf.skip)
        while low < high:
            middle = (low + high) >> 1
            if leaf.heads[middle] < head:
                low = middle + 1
            else:
                high = middle
        bound = low
        high = leaf.count
        while bound < high:
            middle = (bound + high) >> 1
            if leaf.heads[middle] <= head:
                bound = middle + 1
            else:
                high = middle
        return self.lower_bound(leaf, low, bound, key)

    cdef Py_ssize_t lower_bound(self, const Leaf* leaf, Py_ssize_t low, Py_ssize_t high, const Key* key) noexcept nogil:
        """Index in [low, high] of the leaf's first name at or after the key."""
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) >> 1
            if self.compare(leaf.numbers[middle], key) < 0:
                low = middle + 1
            else:
                high = middle
        return low

    cdef void seek_forward(self, TreeCursor* cursor, const Key* key) noexcept nogil:
        """To the first name at or after the key, near steps first: the cursor is known to stand before it."""
        cdef Leaf* leaf = self.leaves[cursor.leaf].leaf
        cdef Py_ssize_t step = 1, low = cursor.index + 1, high
        if self.compare(leaf.numbers[leaf.count - 1], key) >= 0:
            high = low
            while high < <Py_ssize_t>leaf.count and self.compare(leaf.numbers[high], key) < 0:
                low = high + 1
                step *= 2
                high += step
            cursor.index = self.lower_bound(leaf, low, min(high, <Py_ssize_t>leaf.count - 1), key)
            return
        low = cursor.leaf + 1
        high = low
        while high < self.leaf_count and compare_entry(self.arena + self.leaves[high].first, key) < 0:
            low = high
            step *= 2
            high += step
        cursor.leaf = low
        cursor.index = 0
        if low == self.leaf_count:
            return
        cursor.leaf = self.leaf_before(key, low, min(high, self.leaf_count))
        cursor.index = self.leaf_seek(&self.leaves[cursor.leaf], key)
        if cursor.index == self.leaves[cursor.leaf].leaf.count:
            cursor.leaf += 1
            cursor.index = 0

    cdef void order_insert(self, uint32_t number, const Key* key) noexcept nogil:
        cdef Py_ssize_t at = self.leaf_count - 1, index = LEAF_MAX, half = LEAF_MAX // 2
        cdef Leaf* leaf = NULL
        cdef Leaf* right
        if at >= 0:
            leaf = self.leaves[at].leaf
            if self.compare(leaf.numbers[leaf.count - 1], key) < 0:
                index = leaf.count
            else:
                at = self.leaf_before(key, 0, self.leaf_count)
                leaf = self.leaves[at].leaf
                index = self.leaf_seek(&self.leaves[at], key)
        if index == LEAF_MAX and at == self.leaf_count - 1:
            # Names in order are appended, and leave full leaves behind.
            right = self.spare
            self.spare = NULL
            right.count = 0
            right.skip = 0
            if at >= 0:
                right.skip = <uint32_t>shared_size(self.arena + self.places[leaf.numbers[leaf.count - 1]], key)
            self.leaves_insert(at + 1, right)
            self.leaf_add(at + 1, 0, number, key)
            return
        if leaf.count == LEAF_MAX:
            right = self.spare
            self.spare = NULL
            right.count = LEAF_MAX - half
            right.skip = leaf.skip
            memcpy(right.numbers, leaf.numbers + half, right.count * sizeof(uint32_t))
            memcpy(right.heads, leaf.heads + half, right.count * sizeof(uint32_t))
            leaf.count = half
            self.leaves_insert(at + 1, right)
            self.leaves[at + 1].first = self.places[right.numbers[0]]
            self.leaf_sharpen(at)
            self.leaf_sharpen(at + 1)
            if index > half:
                at += 1
                index -= half
        self.leaf_add(at, index, number, key)

    cdef void leaf_add(self, Py_ssize_t at, Py_ssize_t index, uint32_t number, const Key* key) noexcept nogil:
        """Put `number` at `index` of a leaf that has space; its entry is in the arena."""
        cdef Leaf* leaf = self.leaves[at].leaf
        cdef Py_ssize_t after = leaf.count - index, shared
        if leaf.count > 0:
            shared = shared_size(self.arena + self.leaves[at].first, key)
            if shared < leaf.skip:
                self.leaf_heads(leaf, <uint32_t>shared)
        memmove(leaf.numbers + index + 1, leaf.numbers + index, after * sizeof(uint32_t))
        memmove(leaf.heads + index + 1, leaf.heads + index, after * sizeof(uint32_t))
        leaf.numbers[index] = number
        leaf.heads[index] = head_of(key, leaf.skip)
        leaf.count += 1
        if index == 0:
            self.leaves[at].first = self.places[number]

    cdef void leaf_heads(self, Leaf* leaf, uint32_t skip) noexcept nogil:
        """Take the heads after `skip` bytes, which all names of the leaf share."""
        cdef uint32_t index
        cdef Key key
        leaf.skip = skip
        for index in range(leaf.count):
            key = self.key_at(leaf.numbers[index])
            leaf.heads[index] = head_of(&key, skip)

    cdef void leaf_sharpen(self, Py_ssize_t at) noexcept nogil:
        """Move the heads on where half of their bytes no longer tell the leaf's names apart."""
        cdef Leaf* leaf = self.leaves[at].leaf
        cdef Key last
        if (leaf.heads[0] ^ leaf.heads[leaf.count - 1]) >> 16 == 0:
            last = self.key_at(leaf.numbers[leaf.count - 1])
            self.leaf_heads(leaf, <uint32_t>shared_size(self.arena + self.leaves[at].first, &last))

    cdef void order_remove(self, uint32_t number, const Key* key) noexcept nogil:
        cdef TreeCursor at
        cdef Leaf* leaf
        cdef Leaf* right
        cdef Py_ssize_t after
        cdef Key last
        self.seek(&at, key)
        leaf = self.leaves[at.leaf].leaf
        leaf.count -= 1
        if leaf.count == 0:
            self.leaves_remove(at.leaf)
            return
        after = leaf.count - at.index
        memmove(leaf.numbers + at.index, leaf.numbers + at.index + 1, after * sizeof(uint32_t))
        memmove(leaf.heads + at.index, leaf.heads + at.index + 1, after * sizeof(uint32_t))
        self.leaves[at.leaf].first = self.places[leaf.numbers[0]]
        # Neighbours that are half full together become one, so leaves cannot outnumber names by far.
        if at.leaf + 1 == self.leaf_count:
            at.leaf -= 1
        if at.leaf < 0:
            return
        leaf = self.leaves[at.leaf].leaf
        right = self.leaves[at.leaf + 1].leaf
        if leaf.count + right.count <= LEAF_MAX // 2:
            memcpy(leaf.numbers + leaf.count, right.numbers, right.count * sizeof(uint32_t))
            leaf.count += right.count
            self.leaves_remove(at.leaf + 1)
            last = self.key_at(leaf.numbers[leaf.count - 1])
            self.leaf_heads(leaf, <uint32_t>shared_size(self.arena + self.leaves[at.leaf].first, &last))

    cdef void leaves_insert(self, Py_ssize_t at, Leaf* leaf) noexcept nogil:
        memmove(self.leaves + at + 1, self.leaves + at, (self.leaf_count - at) * sizeof(LeafRef))
        self.leaves[at].leaf = leaf
        self.leaf_count += 1

    cdef void leaves_remove(self, Py_ssize_t at) noexcept nogil:
        free(self.leaves[at].leaf)
        self.leaf_count -= 1
        memmove(self.leaves + at, self.leaves + at + 1, (self.leaf_count - at) * sizeof(LeafRef))

    cdef void cursor_seek(self, TreeCursor* cursor, const uint8_t* name, Py_ssize_t size) noexcept nogil:
        """To the first name at or after `name`; size 0 is before all."""
        cdef Key key = key_of(name, size)
        self.seek(cursor, &key)

    cdef uint32_t cursor_next(self, TreeCursor* cursor) noexcept nogil:
        """The number at the cursor, which moves on; NO_NUMBER at the end."""
        cdef uint32_t number
        if cursor.leaf >= self.leaf_count:
            return NO_NUMBER
        number = self.leaves[cursor.leaf].leaf.numbers[cursor.index]
        cursor.index += 1
        if cursor.index == self.leaves[cursor.leaf].leaf.count:
            cursor.leaf += 1
            cursor.index = 0
        return number

    # Filters.

    cdef void span(self, const Filter* item, TreeCursor* start, TreeCursor* stop) noexcept nogil:
        """Where the names that begin with the filter's literal prefix stand."""
        cdef Key key = key_of(item.pattern, item.prefix_size)
        start.leaf = 0
        start.index = 0
        stop.leaf = self.leaf_count
        stop.index = 0
        if item.prefix_size == 0:
            return
        self.seek(start, &key)
        key.head_size -= 1                 # the prefix ends in a dot: up to the same with the byte after a dot
        key.tail = AFTER_DOT
        key.tail_size = 1
        self.seek(stop, &key)

    cdef bint next_target(self, const Filter* item, uint32_t number, Key* target) noexcept nogil:
        """The least name that could match after `number`'s, which does not; False where there is none.

        Bytes sort without regard to tokens (`-` is below the dot), so this compares bytes and not tokens.
        """
        cdef uint32_t size
        cdef const uint8_t* name = self.name(number, &size)
        cdef const uint8_t* pattern = item.pattern
        cdef Py_ssize_t n = size, m = item.size, i = 0, j = 0, j_end, part, star_end = -1
        cdef int order
        target.head = name
        while True:
            if pattern[j] == c"*" and (j + 1 == m or pattern[j + 1] == c"."):
                i = dot_after(name, i, n)
                j += 1
                star_end = i
            else:
                # The names that agree up to here and match go on with this token (and its dot).
                j_end = j
                while j_end < m and pattern[j_end] != c".":
                    j_end += 1
                part = j_end - j + (j_end < m)
                order = memcmp(name + i, pattern + j, min(part, n - i))
                if order < 0 or (order == 0 and n - i < part):
                    target.head_size = i
                    target.tail = pattern + j
                    target.tail_size = part
                    return True
                if order > 0 or (j_end == m and n - i > part):
                    break
                i += j_end - j
                j = j_end
            if j == m:
                break
            if i == n:
                # It ends in the star's token, which the next name may lengthen (`a`, `a-.c`, `a.c`): one step.
                target.head_size = n
                target.tail = NUL
                target.tail_size = 1
                return True
            i += 1
            j += 1
        # Nothing more under the token that the last star stands for.
        if star_end < 0:
            return False
        target.head_size = star_end
        target.tail = AFTER_DOT
        target.tail_size = 1
        return True

    cdef Py_ssize_t walk_filter(
        self, const Filter* item, TreeCursor start, TreeCursor stop, uint32_t* out, Py_ssize_t out_max, uint64_t* bits
    ) noexcept nogil:
        """Matches in [start, stop), in order: into `bits` (counting the new ones) or, where that is NULL, `out`."""
        cdef Py_ssize_t found = 0
        cdef TreeCursor at = start
        cdef uint32_t number
        cdef Plan plan
        cdef Key target
        cdef const uint8_t* entry
        make_plan(&plan, item)
        while is_before(at, stop):
            number = self.leaves[at.leaf].leaf.numbers[at.index]
            if item.kind != FILTER_PREFIX:
                entry = self.arena + self.places[number]
                if not plan_matches(&plan, entry + ENTRY_HEAD, entry_size(entry)):
                    if not self.next_target(item, number, &target):
                        break
                    self.seek_forward(&at, &target)
                    continue
            if bits != NULL:
                found += set_bit(bits, number)
            else:
                if found < out_max:
                    out[found] = number
                found += 1
            at.index += 1
            if at.index == self.leaves[at.leaf].leaf.count:
                at.leaf += 1
                at.index = 0
        return found

    cdef Py_ssize_t walk_bits(
        self, const uint64_t* bits, TreeCursor start, TreeCursor stop, uint32_t* out, Py_ssize_t out_max
    ) noexcept nogil:
        """Numbers in [start, stop) whose bit is set (all, where `bits` is NULL), in order; writes at most `out_max`."""
        cdef Py_ssize_t found = 0, leaf, index, last
        cdef uint32_t number
        for leaf in range(start.leaf, min(stop.leaf + 1, self.leaf_count)):
            last = stop.index if leaf == stop.leaf else self.leaves[leaf].leaf.count
            for index in range(start.index if leaf == start.leaf else 0, last):
                number = self.leaves[leaf].leaf.numbers[index]
                if bits == NULL or bits[number >> 6] >> (number & 63) & 1:
                    if found == out_max:
                        return found
                    out[found] = number
                    found += 1
        return found

    cdef Py_ssize_t pass_arena(self, const Plan* plans, int count, uint64_t* bits) noexcept nogil:
        """Match every name in the order of the arena, which reads memory from front to back."""
        cdef uint64_t at = 0, hit, word
        cdef Py_ssize_t found = 0
        cdef uint32_t number, size
        cdef int index
        cdef const uint8_t* entry
        while at < self.arena_used:
            entry = self.arena + at
            prefetch(entry + 1024)
            number = entry_number(entry)
            size = entry_size(entry)
            at += ENTRY_HEAD + size
            if number == NO_NUMBER:
                continue
            hit = plan_matches(plans, entry + ENTRY_HEAD, size)
            for index in range(1, count):
                hit |= plan_matches(&plans[index], entry + ENTRY_HEAD, size)
            word = bits[number >> 6]
            bits[number >> 6] = word | hit << (number & 63)
            found += hit & ~(word >> (number & 63))
        return found

    cdef Py_ssize_t match_bits(self, Filters filters, uint64_t* bits) noexcept nogil:
        """Set the bit of each match; how many were clear before. `bits` has (number_stop + 63) // 64 words."""
        cdef TreeCursor start, stop
        cdef Py_ssize_t found = 0, at
        cdef uint32_t number
        cdef int index, broad = 0
        cdef Filter* item
        cdef Plan one
        cdef Plan* plans = NULL
        if filters.is_all:
            for at in range(self.leaf_count):
                for index in range(<int>self.leaves[at].leaf.count):
                    found += set_bit(bits, self.leaves[at].leaf.numbers[index])
            return found
        for index in range(filters.count):
            item = &filters.items[index]
            if item.kind == FILTER_LITERAL:
                number = self.find(item.pattern, item.size)
                if number != NO_NUMBER:
                    found += set_bit(bits, number)
                continue
            self.span(item, &start, &stop)
            if item.kind == FILTER_PREFIX or (stop.leaf - start.leaf) * BROAD <= self.leaf_count:
                found += self.walk_filter(item, start, stop, NULL, 0, bits)
                continue
            if plans == NULL:
                plans = &one
                if filters.count > 1:
                    plans = <Plan*>malloc(filters.count * sizeof(Plan))
                    if plans == NULL:      # slower, and as right
                        found += self.walk_filter(item, start, stop, NULL, 0, bits)
                        continue
            make_plan(&plans[broad], item)
            broad += 1
        if broad > 0:
            found += self.pass_arena(plans, broad, bits)
        if plans != &one:
            free(plans)
        return found

    cdef Py_ssize_t match(self, Filters filters, uint32_t* out, Py_ssize_t out_max) noexcept nogil:
        """How many names match; the numbers of the first `out_max` of them, in name order, are written to `out`."""
        cdef TreeCursor start, stop
        cdef Py_ssize_t found
        cdef uint32_t number
        cdef uint64_t* bits
        cdef Filter* item
        start.leaf = 0
        start.index = 0
        stop.leaf = self.leaf_count
        stop.index = 0
        if filters.is_all:
            self.walk_bits(NULL, start, stop, out, out_max)
            return self.count
        if filters.count == 1:
            item = &filters.items[0]
            if item.kind == FILTER_LITERAL:
                number = self.find(item.pattern, item.size)
                if number != NO_NUMBER and out_max > 0:
                    out[0] = number
                return number != NO_NUMBER
            self.span(item, &start, &stop)
            if item.kind == FILTER_PREFIX or (stop.leaf - start.leaf) * BROAD <= self.leaf_count:
                return self.walk_filter(item, start, stop, out, out_max, NULL)
        bits = <uint64_t*>calloc((<size_t>self.number_stop + 63) // 64 + 1, sizeof(uint64_t))
        if bits == NULL:
            return self.match_each(filters, out, out_max)
        found = self.match_bits(filters, bits)
        if found <= out_max and found * FEW <= self.count:
            self.list_bits(bits, out)
        else:
            self.walk_bits(bits, start, stop, out, min(found, out_max))
        free(bits)
        return found

    cdef Py_ssize_t match_each(self, Filters filters, uint32_t* out, Py_ssize_t out_max) noexcept nogil:
        """As match, without memory: every name in order against every filter."""
        cdef Py_ssize_t found = 0
        cdef TreeCursor at
        cdef uint32_t number, size
        cdef const uint8_t* name
        at.leaf = 0
        at.index = 0
        while True:
            number = self.cursor_next(&at)
            if number == NO_NUMBER:
                return found
            name = self.name(number, &size)
            if filters.matches(name, size):
                if found < out_max:
                    out[found] = number
                found += 1

    cdef void list_bits(self, const uint64_t* bits, uint32_t* out) noexcept nogil:
        """The numbers whose bit is set, sorted by name: cheaper than a walk of the index where they are few."""
        cdef Py_ssize_t found = 0, word, last, at
        cdef uint64_t left
        cdef uint32_t number
        for word in range((<Py_ssize_t>self.number_stop + 63) // 64):
            left = bits[word]
            while left:
                out[found] = <uint32_t>(word * 64 + pst_lowest(left))
                found += 1
                left &= left - 1
        # A heap sort: no memory, no recursion, no bad case.
        for at in range(found // 2 - 1, -1, -1):
            self.sift(out, at, found)
        for last in range(found - 1, 0, -1):
            number = out[0]
            out[0] = out[last]
            out[last] = number
            self.sift(out, 0, last)

    cdef void sift(self, uint32_t* heap, Py_ssize_t at, Py_ssize_t count) noexcept nogil:
        """Let the number at `at` sink until none below it has a later name."""
        cdef uint32_t number = heap[at]
        cdef Py_ssize_t child = 2 * at + 1
        cdef Key key = self.key_at(number)
        cdef Key other
        while child < count:
            if child + 1 < count:
                other = self.key_at(heap[child + 1])
                if self.compare(heap[child], &other) < 0:
                    child += 1
            if self.compare(heap[child], &key) <= 0:
                break
            heap[at] = heap[child]
            at = child
            child = 2 * at + 1
        heap[at] = number

    cdef Py_ssize_t nbytes(self) noexcept nogil:
        """Memory held, unused capacity included."""
        return <Py_ssize_t>(
            self.arena_max
            + <uint64_t>self.places_max * sizeof(uint64_t)
            + (self.slot_mask + 1) * sizeof(Slot)
            + <uint64_t>self.leaves_max * sizeof(LeafRef)
            + <uint64_t>(self.leaf_count + (self.spare != NULL)) * sizeof(Leaf)
        )

    cdef object name_bytes(self, uint32_t number):
        cdef uint32_t size = 0
        cdef const uint8_t* name = self.name(number, &size)
        return None if name == NULL else PyBytes_FromStringAndSize(<const char*>name, size)

    # Doors for Python.

    def insert(self, name: bytes | str) -> int:
        cdef bytes text = checked_name(name)
        cdef uint32_t number = self.put(<const uint8_t*>text, len(text))
        if number == NO_NUMBER:
            raise MemoryError
        return number

    def insert_at(self, number: int, name: bytes | str) -> None:
        cdef bytes text = checked_name(name)
        if not 0 <= number < NUMBER_STOP_MAX:
            raise ValueError(f"number {number} is out of range")
        cdef int outcome = self.put_at(number, <const uint8_t*>text, len(text))
        if outcome == -1:
            raise ValueError(f"number {number} or its name is taken")
        if outcome != 0:
            raise MemoryError

    def lookup(self, name: bytes | str) -> int | None:
        cdef bytes text = as_bytes(name)
        cdef uint32_t number = self.find(<const uint8_t*>text, len(text))
        return None if number == NO_NUMBER else number

    def delete(self, name: bytes | str) -> bool:
        cdef bytes text = as_bytes(name)
        cdef uint32_t number = self.find(<const uint8_t*>text, len(text))
        if number == NO_NUMBER:
            return False
        self.drop(number)
        return True

    def name_of(self, number: int) -> bytes | None:
        return self.name_bytes(number) if 0 <= number < self.number_stop else None

    def matching(self, filters) -> list[bytes]:
        cdef Filters packed = as_filters(filters)
        cdef Py_ssize_t found, at
        cdef uint32_t* out = <uint32_t*>malloc((<size_t>self.count + 1) * sizeof(uint32_t))
        if out == NULL:
            raise MemoryError
        try:
            with nogil:
                found = self.match(packed, out, self.count)
            return [self.name_bytes(out[at]) for at in range(found)]
        finally:
            free(out)

    def matching_count(self, filters) -> int:
        cdef Filters packed = as_filters(filters)
        cdef Py_ssize_t found
        cdef uint64_t* bits = <uint64_t*>calloc((<size_t>self.number_stop + 63) // 64 + 1, sizeof(uint64_t))
        if bits == NULL:
            raise MemoryError
        with nogil:
            found = self.match_bits(packed, bits)
        free(bits)
        return found

    def following(self, name: bytes | str, limit: int) -> list[bytes]:
        cdef bytes text = as_bytes(name)
        cdef TreeCursor cursor
        cdef uint32_t number
        cdef list names = []
        self.cursor_seek(&cursor, <const uint8_t*>text, len(text))
        while len(names) < limit:
            number = self.cursor_next(&cursor)
            if number == NO_NUMBER:
                break
            names.append(self.name_bytes(number))
        return names

    def memory(self) -> int:
        return self.nbytes()

    def __iter__(self):
        return iter(self.matching(()))

    def __len__(self):
        return self.count

    def __contains__(self, name):
        cdef bytes text = as_bytes(name)
        return self.find(<const uint8_t*>text, len(text)) != NO_NUMBER


cdef bytes checked_name(object name):
    cdef bytes text = as_bytes(name)
    if not 0 < len(text) <= SUBJECT_SIZE_MAX:
        raise ValueError(f"a name has 1 to 65535 bytes, not {len(text)}")
    return text


cdef Filters as_filters(object filters):
    return <Filters>filters if isinstance(filters, Filters) else Filters(filters)
