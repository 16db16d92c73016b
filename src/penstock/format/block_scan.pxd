# Walks the records of a block's bytes. Rules for damage: docs/format.md, "Record".
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from penstock.format.record cimport Base, Record

cdef struct ScanRow:
    uint64_t seq
    int64_t time
    uint32_t offset
    uint32_t size                          # bytes of the record
    uint32_t subject                       # offsets into the block
    uint32_t headers
    uint32_t headers_size
    uint32_t payload_size
    uint16_t subject_size
    uint8_t flags


cdef Py_ssize_t next_whole(const uint8_t* block, Py_ssize_t start, Py_ssize_t stop, const Base* base,
                           uint64_t seq_min, uint64_t seq_max) noexcept nogil


cdef class BlockScan:
    cdef ScanRow* rows                     # message records, erased ones included
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef uint64_t* controls                # offset, size pairs of the control records
    cdef readonly Py_ssize_t control_count
    cdef Py_ssize_t control_capacity
    cdef uint64_t* damage                  # offset, size pairs
    cdef readonly Py_ssize_t damage_count
    cdef Py_ssize_t damage_capacity
    cdef readonly Py_ssize_t stop          # where the last whole record ends
    cdef readonly Py_ssize_t torn          # bytes after it that are no record
    cdef readonly bint is_newer
    cdef uint8_t flags                     # of all messages, joined
    cdef readonly uint64_t last_checksum
    cdef int walk(self, const uint8_t* block, Py_ssize_t start, Py_ssize_t stop, const Base* base,
                  uint64_t seq_min, uint64_t seq_stop) noexcept nogil
