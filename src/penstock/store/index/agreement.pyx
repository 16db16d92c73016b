"""Compares summaries and checkpoints with the blocks they describe: a file whose checksums hold may still be wrong.

`penstock verify` uses this, as it reads every block anyway; an open trusts the files. Rules: docs/format.md, "Summary",
"CHECKPOINT".
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from penstock.format.block_scan cimport BlockScan, ScanRow
from penstock.store.index.index cimport SECTION_SUBJECTS, Block, Index
from penstock.format.record cimport reference_size
from penstock.base.seq_set cimport SeqSet
from penstock.base.bloom_filter cimport filter_may_match

cdef enum:
    NAME_HEAD = 10                         # number u32, messages u32, size u16

cdef uint64_t HIGH = 0x8000000000000000ULL           # set in a first or last sequence that is only a bound

cdef struct Named:                         # a subject of a summary, found by its number
    uint32_t number
    uint32_t count                         # its messages that were not met yet
    uint32_t name                          # the offset of its name; 0: the slot is free
    uint16_t size

cdef struct Counted:
    uint64_t total
    uint64_t first
    uint64_t last


def alive_in(BlockScan scan not None, SeqSet dead not None, uint64_t floor):
    """(number of a block's messages that are at or above `floor` and not dead, last sequence of the block)."""
    cdef Py_ssize_t n
    cdef uint64_t found = 0
    for n in range(scan.count):
        found += scan.rows[n].seq >= floor and not dead.has(scan.rows[n].seq)
    return found, scan.rows[scan.count - 1].seq if scan.count else 0


# Summaries.

cdef Named* _find(Named* table, uint64_t mask, uint32_t number) noexcept nogil:
    cdef uint64_t at = (number * <uint64_t>0x9E3779B97F4A7C15ULL) >> 32 & mask
    while table[at].name and table[at].number != number:
        at = (at + 1) & mask
    return &table[at]


cdef const char* _numbers_fault(BlockScan scan, const uint8_t* block, const uint8_t* subjects, const uint8_t* names,
                                Py_ssize_t size, Named* table, uint64_t mask) noexcept nogil:
    cdef Py_ssize_t at = 0, n
    cdef uint32_t number
    cdef Named* one
    while at < size:
        memcpy(&number, names + at, 4)
        one = _find(table, mask, number)
        if one.name:
            return b"a subject number stands twice"
        one.number = number
        memcpy(&one.count, names + at + 4, 4)
        memcpy(&one.size, names + at + 8, 2)
        one.name = <uint32_t>at + NAME_HEAD
        at = one.name + one.size
    for n in range(scan.count):
        memcpy(&number, subjects + 4 * n, 4)
        one = _find(table, mask, number)
        if (one.name == 0 or one.size != scan.rows[n].subject_size
                or memcmp(names + one.name, block + scan.rows[n].subject, one.size) != 0):
            return b"a message has another subject"
        if one.count == 0:
            return b"a subject has more messages"
        one.count -= 1
    return NULL


cdef const char* _rows_differ(BlockScan scan, const uint8_t* offsets, const uint8_t* sizes, const uint8_t* seqs, bint is_dense,
                              uint64_t base) noexcept nogil:
    cdef Py_ssize_t n
    cdef uint32_t offset, size, difference
    cdef ScanRow* row
    for n in range(scan.count):
        row = &scan.rows[n]
        memcpy(&offset, offsets + 4 * n, 4)
        memcpy(&size, sizes + 4 * n, 4)
        difference = <uint32_t>n
        if not is_dense:
            memcpy(&difference, seqs + 4 * n, 4)
        if offset != row.offset or row.seq != base + difference:
            return b"a message is in another place or has another sequence"
        if size != reference_size(row.subject_size, row.headers_size, row.payload_size, False):
            return b"a message has another size"
    return NULL


def rows_disagree(BlockScan scan not None, const unsigned char[::1] block not None, const unsigned char[::1] offsets not None,
                  const unsigned char[::1] sizes not None, const unsigned char[::1] subjects not None,
                  const unsigned char[::1] seqs not None, const unsigned char[::1] names not None, bint is_dense, uint64_t seq_base):
    """How the arrays and subjects of a summary, each valid by itself, differ from its block; None when they do not."""
    cdef Py_ssize_t count = scan.count, n = names.shape[0] // NAME_HEAD
    cdef uint64_t capacity = 16
    cdef Named* table
    cdef const char* fault
    if min(offsets.shape[0], sizes.shape[0], subjects.shape[0]) != 4 * count or (not is_dense and seqs.shape[0] != 4 * count):
        return "it has another number of messages"
    if count == 0:
        return None
    while capacity < <uint64_t>n * 2:
        capacity *= 2
    table = <Named*>calloc(capacity, sizeof(Named))
    if table == NULL:
        raise MemoryError
    try:
        fault = _rows_differ(scan, &offsets[0], &sizes[0], NULL if is_dense else &seqs[0], is_dense, seq_base)
        if fault == NULL:
            fault = _numbers_fault(scan, &block[0], &subjects[0], &names[0], names.shape[0], table, capacity - 1)
    finally:
        free(table)
    return _told(fault)


def facts_of(BlockScan scan not None):
    """The facts that a checkpoint and a summary hold about a block, computed from the block itself:
    (count, bytes, time_min, time_max, first, last)."""
    cdef Py_ssize_t n
    cdef uint64_t size = 0
    cdef int64_t low = 0x7FFFFFFFFFFFFFFF, high = -0x7FFFFFFFFFFFFFFF
    cdef ScanRow* row
    for n in range(scan.count):
        row = &scan.rows[n]
        size += reference_size(row.subject_size, row.headers_size, row.payload_size, False)
        low = min(low, row.time)
        high = max(high, row.time)
    if scan.count == 0:
        return 0, 0, low, high, 0, 0
    return scan.count, size, low, high, scan.rows[0].seq, scan.rows[scan.count - 1].seq


def filter_lacks(bytes filter not None, const unsigned char[::1] names not None):
    """Whether a block's Bloom filter would wrongly skip the block for one of its own subjects."""
    cdef Py_ssize_t at = 0, n
    cdef uint16_t size
    cdef const uint8_t* name
    cdef const uint8_t* bits = <const uint8_t*>PyBytes_AS_STRING(filter)
    cdef uint8_t* pattern = <uint8_t*>malloc(65536 + 1)
    if pattern == NULL:
        raise MemoryError
    try:
        while at < names.shape[0]:
            memcpy(&size, &names[at + 8], 2)
            name = &names[at + NAME_HEAD]
            if not filter_may_match(bits, PyBytes_GET_SIZE(filter), name, size):
                return True
            for n in range(size):
                pattern[n] = name[n]
                if name[n] == c".":
                    pattern[n + 1] = c">"
                    if not filter_may_match(bits, PyBytes_GET_SIZE(filter), pattern, n + 2):
                        return True
            at += NAME_HEAD + size
    finally:
        free(pattern)
    return False


def subjects_disagree(Index index not None):
    """How an index's totals, which were read from a checkpoint, differ from its rows; None when they do not."""
    cdef uint32_t stop = index.tree.number_stop, row, number
    cdef Counted* counted = <Counted*>calloc(stop + 1, sizeof(Counted))
    cdef Py_ssize_t at
    cdef Block* block
    cdef uint32_t* subjects
    cdef uint64_t seq, first, last
    if counted == NULL:
        raise MemoryError
    try:
        for at in range(index.block_count):
            block = index.blocks[at]
            if block.live == 0:
                continue
            subjects = index.section(block, SECTION_SUBJECTS)
            for row in range(<uint32_t>index.row_from(block, index.floor), block.count):
                if index.is_dead(block, row):
                    continue
                seq = index.seq_of(block, row)
                number = subjects[row]
                if number >= stop:
                    return "a message has a subject that it does not list"
                if counted[number].total == 0:
                    counted[number].first = seq
                counted[number].total += 1
                counted[number].last = seq
        for number in range(stop):
            if counted[number].total != index.stats[number].total:
                return "a subject has more or fewer messages"
            if counted[number].total == 0:
                continue
            first = index.stats[number].first
            last = index.stats[number].last
            if (first & ~HIGH) > counted[number].first or (not first & HIGH and first != counted[number].first):
                return "a subject has another first message"
            if (last & ~HIGH) < counted[number].last or (not last & HIGH and last != counted[number].last):
                return "a subject has another last message"
    finally:
        free(counted)
    return None


cdef object _told(const char* fault):
    return None if fault == NULL else fault.decode("ascii")
