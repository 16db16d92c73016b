"""The consumer state's codec at C level. Layout: docs/format.md, "Consumer state"."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef struct PendingItem:
    uint64_t stream_seq
    uint64_t consumer_seq
    int64_t time_ns
    int64_t deadline_ns

cdef struct RedeliveredItem:
    uint64_t stream_seq
    uint64_t count

cdef struct StateHead:
    uint64_t floor_consumer
    uint64_t floor_stream
    uint64_t delivered_consumer
    uint64_t delivered_stream

# Both lists by rising sequence; ValueError where the state contradicts itself.
cdef bytes encode_items(StateHead head, const PendingItem* pending, Py_ssize_t pending_count,
                        const RedeliveredItem* redelivered, Py_ssize_t redelivered_count, bint has_deadlines)

@cython.final
cdef class StateItems:
    cdef StateHead head
    cdef PendingItem* pending
    cdef RedeliveredItem* redelivered
    cdef Py_ssize_t pending_count
    cdef Py_ssize_t redelivered_count
    cdef bint has_deadlines                # else those of the pending items say nothing

cdef StateItems decode_items(const uint8_t[::1] buffer)
