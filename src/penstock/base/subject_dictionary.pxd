"""The ordered dictionary of subjects at C level; rules: tests/twins/subject_dictionary.py."""

cimport cython
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from penstock.base.subject cimport Filter, Filters

cdef enum:
    NO_NUMBER = 0xffffffff
    LEAF_MAX = 128                         # numbers in a leaf of the ordered index
    NUMBER_STOP_MAX = 0x7fffffff           # numbers stay below this
    RUNS_MAX = 16                          # literal runs that a plan holds

cdef struct Leaf:
    uint32_t count
    uint32_t skip                          # bytes that all its names begin with
    uint32_t heads[LEAF_MAX]               # per name the four bytes after those, so that a search reads few names
    uint32_t numbers[LEAF_MAX]             # in the order of their names

cdef struct LeafRef:
    Leaf* leaf
    uint64_t first                         # place of the leaf's first name

cdef struct Slot:
    uint32_t number                        # NO_NUMBER where the slot is empty
    uint32_t hash

cdef struct Key:                           # a name to seek, in two parts so that it needs no buffer
    const uint8_t* head
    Py_ssize_t head_size
    const uint8_t* tail
    Py_ssize_t tail_size

cdef struct Plan:
    # A filter made ready to match many names: literal runs, with one token of any kind before each but the first.
    const Filter* item
    int run_count                          # 0: more than a plan holds, match with subject_matches
    bint has_tail
    const uint8_t* runs[RUNS_MAX]
    Py_ssize_t run_sizes[RUNS_MAX]
    uint64_t words[RUNS_MAX]               # up to eight first bytes of the run, and which of them count
    uint64_t masks[RUNS_MAX]

# A place in name order; any change of the tree makes it invalid.
cdef struct TreeCursor:
    Py_ssize_t leaf
    Py_ssize_t index

@cython.final
cdef class SubjectDictionary:
    cdef readonly uint32_t count           # live names
    cdef readonly uint32_t number_stop     # numbers are below this
    cdef readonly bint has_wild            # some name that is or was here cannot be published to: it has a wildcard token
    cdef uint8_t* arena
    cdef uint64_t arena_used
    cdef uint64_t arena_max
    cdef uint64_t garbage                  # bytes of dropped names below arena_used
    cdef uint64_t* places                  # per number: where its entry begins, or its links in the free list
    cdef uint32_t places_max
    cdef uint32_t free_first
    cdef Slot* slots
    cdef uint64_t slot_mask
    cdef LeafRef* leaves
    cdef Py_ssize_t leaf_count
    cdef Py_ssize_t leaves_max
    cdef Leaf* spare                       # so that a split cannot run out of memory halfway
    cdef uint64_t seed_a
    cdef uint64_t seed_b

    # Names are 1 to 65535 bytes; pointers into the tree hold until its next change.
    cdef uint32_t find(self, const uint8_t* name, Py_ssize_t size) noexcept nogil
    cdef uint32_t put(self, const uint8_t* name, Py_ssize_t size) noexcept nogil
    cdef int put_at(self, uint32_t number, const uint8_t* name, Py_ssize_t size) noexcept nogil
    cdef uint32_t hash_of(self, const uint8_t* name, Py_ssize_t size) noexcept nogil
    cdef uint32_t find_hashed(self, const uint8_t* name, Py_ssize_t size, uint32_t hashed) noexcept nogil
    cdef bint has_at(self, uint32_t number, const uint8_t* name, Py_ssize_t size) noexcept nogil
    cdef uint32_t hint_slot(self, const uint8_t* name, Py_ssize_t size) noexcept nogil
    cdef uint32_t hint_place(self, uint32_t hashed) noexcept nogil
    cdef void hint_name(self, uint32_t number) noexcept nogil
    cdef void hint_number(self, uint32_t number) noexcept nogil
    cdef int reserve(self, uint32_t names, uint64_t name_bytes) noexcept nogil
    cdef void drop(self, uint32_t number) noexcept nogil
    cdef const uint8_t* name(self, uint32_t number, uint32_t* size) noexcept nogil
    cdef Py_ssize_t match(self, Filters filters, uint32_t* out, Py_ssize_t out_max) noexcept nogil
    cdef Py_ssize_t match_bits(self, Filters filters, uint64_t* bits) noexcept nogil
    cdef Py_ssize_t nbytes(self) noexcept nogil
    cdef void free_all(self) noexcept nogil
    cdef void cursor_seek(self, TreeCursor* cursor, const uint8_t* name, Py_ssize_t size) noexcept nogil
    cdef uint32_t cursor_next(self, TreeCursor* cursor) noexcept nogil

    # Parts of the above.
    cdef bint make_room(self, uint64_t names, uint64_t arena_bytes, uint64_t number_stop) noexcept nogil
    cdef bint fit_slots(self, uint64_t names, bint is_shrinking) noexcept nogil
    cdef void link(self, uint32_t number, const uint8_t* name, Py_ssize_t size, uint32_t hashed) noexcept nogil
    cdef void free_push(self, uint32_t number) noexcept nogil
    cdef void free_take(self, uint32_t number) noexcept nogil
    cdef void slot_fill(self, uint32_t number, uint32_t hashed) noexcept nogil
    cdef void slot_empty(self, uint32_t number, uint32_t hashed) noexcept nogil
    cdef void compact(self) noexcept nogil
    cdef int compare(self, uint32_t number, const Key* key) noexcept nogil
    cdef Key key_at(self, uint32_t number) noexcept nogil
    cdef void seek(self, TreeCursor* cursor, const Key* key) noexcept nogil
    cdef Py_ssize_t leaf_before(self, const Key* key, Py_ssize_t low, Py_ssize_t high) noexcept nogil
    cdef Py_ssize_t leaf_seek(self, const LeafRef* ref, const Key* key) noexcept nogil
    cdef Py_ssize_t lower_bound(self, const Leaf* leaf, Py_ssize_t low, Py_ssize_t high, const Key* key) noexcept nogil
    cdef void seek_forward(self, TreeCursor* cursor, const Key* key) noexcept nogil
    cdef void order_insert(self, uint32_t number, const Key* key) noexcept nogil
    cdef void order_remove(self, uint32_t number, const Key* key) noexcept nogil
    cdef void leaf_add(self, Py_ssize_t at, Py_ssize_t index, uint32_t number, const Key* key) noexcept nogil
    cdef void leaf_heads(self, Leaf* leaf, uint32_t skip) noexcept nogil
    cdef void leaf_sharpen(self, Py_ssize_t at) noexcept nogil
    cdef void leaves_insert(self, Py_ssize_t at, Leaf* leaf) noexcept nogil
    cdef void leaves_remove(self, Py_ssize_t at) noexcept nogil
    cdef void span(self, const Filter* item, TreeCursor* start, TreeCursor* stop) noexcept nogil
    cdef bint next_target(self, const Filter* item, uint32_t number, Key* target) noexcept nogil
    cdef Py_ssize_t walk_filter(
        self, const Filter* item, TreeCursor start, TreeCursor stop, uint32_t* out, Py_ssize_t out_max, uint64_t* bits
    ) noexcept nogil
    cdef Py_ssize_t walk_bits(
        self, const uint64_t* bits, TreeCursor start, TreeCursor stop, uint32_t* out, Py_ssize_t out_max
    ) noexcept nogil
    cdef Py_ssize_t pass_arena(self, const Plan* plans, int count, uint64_t* bits) noexcept nogil
    cdef Py_ssize_t match_each(self, Filters filters, uint32_t* out, Py_ssize_t out_max) noexcept nogil
    cdef void list_bits(self, const uint64_t* bits, uint32_t* out) noexcept nogil
    cdef void sift(self, uint32_t* heap, Py_ssize_t at, Py_ssize_t count) noexcept nogil
    cdef object name_bytes(self, uint32_t number)
