# What the messages of a block ask to be remembered: their ids and when they expire.
from libc.stdint cimport int64_t, uint64_t

cdef struct IdAndExpiry:
    uint64_t seq
    int64_t time
    uint64_t low                           # the halves of the id's hash
    uint64_t high
    int64_t expiry                         # 0: none
    bint has_id

cdef class IdsAndExpiries:
    cdef IdAndExpiry* items
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef IdAndExpiry* add(self) except NULL
