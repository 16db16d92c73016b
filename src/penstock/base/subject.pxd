"""Subjects and filters at C level; rules: tests/twins/subject.py."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    SUBJECT_SIZE_MAX = 65535
    PATTERN_SLACK = 16                     # readable bytes past the last pattern of a Filters

# Why a subject or a filter is refused; 0 is well formed.
cdef enum:
    FAULT_NONE = 0
    FAULT_EMPTY = 1
    FAULT_SIZE = 2
    FAULT_TOKEN = 3
    FAULT_BYTE = 4
    FAULT_WILDCARD = 5
    FAULT_TAIL = 6

# What `*` and `>` are, as tokens: forbidden (a subject to publish to), wildcards (a filter), or characters like others (the
# name of a stored subject: the protocol lets clients publish to such a one).
cdef enum:
    WILDCARDS_NONE = 0
    WILDCARDS_MEANT = 1
    WILDCARDS_PLAIN = 2

cdef int subject_fault(const uint8_t* s, Py_ssize_t n) noexcept nogil
cdef int filter_fault(const uint8_t* s, Py_ssize_t n) noexcept nogil
cdef bint subject_is_valid(const uint8_t* s, Py_ssize_t n) noexcept nogil
cdef bint name_is_valid(const uint8_t* s, Py_ssize_t n) noexcept nogil
cdef bint filter_is_valid(const uint8_t* s, Py_ssize_t n) noexcept nogil
cdef bint filter_is_literal(const uint8_t* s, Py_ssize_t n) noexcept nogil
cdef bint subject_matches(const uint8_t* subject, Py_ssize_t n, const uint8_t* pattern, Py_ssize_t m) noexcept nogil
cdef bint filter_covers(const uint8_t* a, Py_ssize_t n, const uint8_t* b, Py_ssize_t m) noexcept nogil
cdef bint filters_overlap(const uint8_t* a, Py_ssize_t n, const uint8_t* b, Py_ssize_t m) noexcept nogil

cdef bytes as_bytes(object text)

# How a filter can be answered: by one lookup, by a range of names, or by a match of each name.
cdef enum:
    FILTER_LITERAL = 0
    FILTER_PREFIX = 1                      # `a.b.>` and `>`: every name that begins with `a.b.`
    FILTER_WILD = 2

cdef struct Filter:
    const uint8_t* pattern
    uint32_t size
    uint32_t prefix_size                   # bytes before the first wildcard token, its dot included
    uint32_t kind

@cython.final
cdef class Filters:
    cdef readonly int count
    cdef readonly bint is_all
    cdef readonly bint is_literal
    cdef Filter* items                     # `count` of them; read only
    cdef uint8_t* packed

    cdef bint matches(self, const uint8_t* subject, Py_ssize_t n) noexcept nogil

    cdef inline const uint8_t* pattern(self, int index) noexcept nogil:
        return self.items[index].pattern

    cdef inline Py_ssize_t size(self, int index) noexcept nogil:
        return self.items[index].size

cdef Filters as_filters(object filters)
