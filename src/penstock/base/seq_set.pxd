"""Sets of sequences at C level; rules: tests/twins/seq_set.py."""

cimport cython
from libc.stdint cimport uint32_t, uint64_t

cdef enum:
    RANGES_MAX = 256                       # ranges in a leaf

cdef struct SeqRange:
    uint64_t first
    uint64_t last                          # inclusive, so that 2^64 - 1 can be a member

cdef struct RangeLeaf:
    uint64_t first                         # of its first range; the search reads no leaf but the last
    SeqRange* ranges
    uint32_t count
    uint32_t capacity

@cython.final
cdef class SeqSet:
    cdef readonly Py_ssize_t range_count
    cdef uint64_t total                    # members, modulo 2^64: 0 with a range in it is all of them
    cdef RangeLeaf* leaves
    cdef Py_ssize_t leaf_count
    cdef Py_ssize_t leaves_max

    cdef bint has(self, uint64_t seq) noexcept nogil
    cdef int put(self, uint64_t seq) noexcept nogil                              # 1 new, 0 there already, -1 memory
    cdef int put_range(self, uint64_t first, uint64_t last) noexcept nogil       # inclusive; 0, or -1 memory
    cdef int discard(self, uint64_t seq) noexcept nogil                          # 1 gone, 0 was not there, -1 memory
    cdef int add_sorted(self, const uint64_t* seqs, Py_ssize_t count) noexcept nogil   # ascending; 0, or -1 memory
    cdef uint64_t next_absent(self, uint64_t seq) noexcept nogil                 # 0 where all from `seq` on are in
    cdef bint next_present(self, uint64_t seq, uint64_t* out) noexcept nogil
    cdef bint next_range(self, uint64_t seq, SeqRange* out) noexcept nogil       # the first range that ends at or after
    cdef void empty(self) noexcept nogil
    cdef Py_ssize_t nbytes(self) noexcept nogil

    # Parts of the above.
    cdef Py_ssize_t leaf_of(self, uint64_t seq) noexcept nogil
    cdef Py_ssize_t index_of(self, const RangeLeaf* leaf, uint64_t seq) noexcept nogil
    cdef int insert(self, Py_ssize_t at, Py_ssize_t index, uint64_t first, uint64_t last) noexcept nogil
    cdef int leaves_insert(self, Py_ssize_t at, uint32_t capacity) noexcept nogil
    cdef void cut(self, Py_ssize_t at, Py_ssize_t index, Py_ssize_t count) noexcept nogil
