"""Tables that summaries and checkpoints hold, checked as a whole before any pointer relies on them. Rules: docs/format.md.

A checksum says that a file is as somebody wrote it, not that what he wrote is true. Each check is one pass over a table and gives
the first fault in words, or nothing; whoever asked does without the file then, and works its content out from the blocks.
"""
from libc.stdint cimport int64_t, uint16_t, uint64_t
from libc.string cimport memcpy

from penstock.format.constants cimport KIND_MESSAGE, RECORDS_START
from penstock.format.record cimport Base, Record, record_decode

cdef extern from *:
    int popcount "__builtin_popcountll"(unsigned long long value) noexcept nogil

cdef enum:
    BLOCK_ROW = 144
    NAME_HEAD = 10                         # number u32, messages u32, size u16
    SUBJECT_HEAD = 30                      # number u32, size u16, total u64, first u64, last u64
    ID_SIZE = 28
    EXPIRY_SIZE = 12

cdef uint64_t SEQ_MAX = 0x7FFFFFFFFFFFFFFFULL
cdef uint64_t ID_MAX = 0x3FFFFFFFFFFFFFFFULL         # of blocks and epochs: one more can always be given out
cdef uint64_t HIGH = 0x8000000000000000ULL           # marks in a field: only a bound, rows without a gap

cdef packed struct BlockRow:               # docs/format.md, "CHECKPOINT", section blocks
    uint64_t id
    uint64_t generation
    uint64_t first_seq
    uint64_t last_seq
    uint64_t seq_base
    uint64_t base_seq
    uint64_t salt
    uint64_t size
    uint64_t message_bytes
    uint64_t live_bytes
    uint64_t target_low
    uint64_t target_high
    uint64_t last_checksum
    int64_t base_time
    int64_t time_min
    int64_t time_max
    uint32_t rows
    uint32_t live
    uint32_t dead_size
    uint32_t filter_size


# The rows of one block, as its index loads them.

cdef const char* offsets_fault(const uint32_t* rows, uint32_t count, uint64_t size) noexcept nogil:
    cdef uint32_t n, before = RECORDS_START
    for n in range(count):
        if rows[n] < before:
            return b"a record's place is below the one before it"
        before = rows[n]
    if before > size:
        return b"a record's place is behind the end of the block"
    return NULL


cdef const char* sizes_fault(const uint32_t* rows, uint32_t count, uint64_t total) noexcept nogil:
    cdef uint64_t found = 0
    cdef uint32_t n
    for n in range(count):
        found += rows[n]
    if found == total:
        return NULL
    return b"the sizes of its messages do not add up"


cdef const char* numbers_fault(const uint32_t* rows, uint32_t count, uint32_t stop) noexcept nogil:
    cdef uint32_t n, highest = 0
    for n in range(count):
        highest = max(highest, rows[n])
    if highest < stop or count == 0:
        return NULL
    return b"a subject number that no subject has"


cdef const char* seqs_fault(const uint32_t* rows, uint32_t count, uint64_t base, uint64_t last) noexcept nogil:
    cdef uint32_t n
    if count == 0:
        return NULL
    if rows[0] != 0:
        return b"its first sequence is another one"
    for n in range(1, count):
        if rows[n] <= rows[n - 1]:
            return b"a sequence does not rise"
    if base + rows[count - 1] <= last:
        return NULL
    return b"a sequence is above its last one"


# Summaries.

cdef const char* _names_fault(const uint8_t* names, Py_ssize_t stop, uint64_t messages, uint64_t number_stop) noexcept nogil:
    cdef Py_ssize_t at = 0
    cdef uint32_t number, count
    cdef uint16_t size
    cdef uint64_t found = 0
    while at < stop:
        if stop - at < NAME_HEAD:
            return b"a subject is cut off"
        memcpy(&number, names + at, 4)
        memcpy(&count, names + at + 4, 4)
        memcpy(&size, names + at + 8, 2)
        at += NAME_HEAD
        if size == 0 or size > stop - at:
            return b"the size of a subject lies"
        if number >= number_stop:
            return b"a subject number is out of proportion"
        if count == 0:
            return b"a subject without a message"
        found += count
        at += size
    if found == messages:
        return NULL
    return b"the messages of its subjects do not add up"


def names_fault(const unsigned char[::1] names not None, messages, number_stop):
    """What is wrong with a summary's subjects, of so many messages in all, with numbers below `number_stop`."""
    return _told(_names_fault(&names[0] if names.shape[0] else NULL, names.shape[0], messages, number_stop))


cdef const char* _rows_fault(const uint8_t* entries, Py_ssize_t size, Py_ssize_t entry, uint64_t count) noexcept nogil:
    cdef Py_ssize_t at = 0
    cdef uint32_t row, before = 0
    if size % entry:
        return b"an entry is cut off"
    while at < size:
        memcpy(&row, entries + at, 4)
        if row >= count:
            return b"an entry is of a message that the block does not have"
        if at and row <= before:
            return b"entries do not rise"
        before = row
        at += entry
    return NULL


def ids_and_expiries_fault(const unsigned char[::1] ids not None, const unsigned char[::1] expiries not None, count):
    """What is wrong with a summary's ids and expiries, of a block with `count` messages."""
    cdef const char* fault = _rows_fault(&ids[0] if ids.shape[0] else NULL, ids.shape[0], ID_SIZE, count)
    if fault == NULL:
        fault = _rows_fault(&expiries[0] if expiries.shape[0] else NULL, expiries.shape[0], EXPIRY_SIZE, count)
    return _told(fault)


def controls_fault(const unsigned char[::1] controls not None, base_seq, base_time, salt):
    """What is wrong with the control records in a summary."""
    cdef Base base
    cdef Record record
    cdef Py_ssize_t at = 0, stop = controls.shape[0]
    base.seq = base_seq
    base.time = base_time
    base.salt = salt
    while at < stop:
        if record_decode(&controls[0], at, stop, &base, &record) != 1 or record.kind == KIND_MESSAGE:
            return "a control record does not hold"
        at = record.stop
    return None


# Checkpoints.

cdef uint64_t _live_rows(const BlockRow* row, const uint8_t* dead, uint64_t floor) noexcept nogil:
    """How many rows of a block without gaps are at or above the floor and not dead."""
    cdef uint64_t start = min(floor - row.seq_base, <uint64_t>row.rows) if floor > row.seq_base else 0
    cdef uint64_t n, word, found = row.rows - start
    if row.dead_size:
        for n in range(start >> 6, (<uint64_t>row.rows + 63) >> 6):
            memcpy(&word, dead + 8 * n, 8)
            if n == start >> 6:
                word = word >> (start & 63) << (start & 63)
            if n == row.rows >> 6:
                word &= (<uint64_t>1 << (row.rows & 63)) - 1
            found -= popcount(word)
    return found


cdef const char* _row_fault(const BlockRow* row, const uint8_t* dead, uint64_t floor) noexcept nogil:
    cdef bint is_dense = row.generation & HIGH != 0
    cdef uint64_t most = row.rows, generation = row.generation & ~HIGH
    if row.id == 0 or row.id > ID_MAX or generation == 0 or generation > 0xFFFFFFFFULL:
        return b"a block has no such id or generation"
    if row.salt == 0 or row.base_seq > row.first_seq or row.first_seq == 0 or row.first_seq > SEQ_MAX:
        return b"a block cannot begin so"
    if row.last_seq + 1 < row.first_seq or row.last_seq > SEQ_MAX or row.target_low > SEQ_MAX or row.target_high > SEQ_MAX:
        return b"the sequences of a block lie"
    if row.size < RECORDS_START or row.size > 0xFFFFFFFFULL or most > (row.size - RECORDS_START) // MESSAGE_SIZE_MIN:
        return b"the size of a block lies"
    if row.dead_size != 0 and row.dead_size != (row.rows // 64 + 1) * 8:
        return b"the dead rows of a block are not those of its messages"
    if row.live > row.rows or row.live_bytes > row.message_bytes:
        return b"more of a block lives than there is"
    if row.rows == 0:
        return NULL
    if row.seq_base < row.first_seq or row.seq_base > row.last_seq or row.time_min > row.time_max:
        return b"the first message of a block lies"
    if is_dense:
        if row.rows - 1 > row.last_seq - row.seq_base:
            return b"a block has more messages than sequences"
        if row.live == _live_rows(row, dead, floor):
            return NULL
        return b"the living messages of a block do not add up"
    if row.last_seq < floor:
        if row.live:
            return b"messages below the floor"
        return NULL
    if row.dead_size:
        most = _live_rows(row, dead, 0)
    if row.live > most or (row.first_seq >= floor and row.live != most):
        return b"the living messages of a block do not add up"
    return NULL


cdef const char* _table_fault(const uint8_t* table, Py_ssize_t size, const uint8_t* dead, uint64_t dead_size, uint64_t filters,
                              uint64_t floor, uint64_t last_seq, uint64_t messages, uint64_t total) noexcept nogil:
    cdef Py_ssize_t at = 0
    cdef uint64_t id = 0, next_seq = 0, live = 0, live_bytes = 0, dead_at = 0, filter_at = 0
    cdef BlockRow row
    cdef const char* fault
    if size % BLOCK_ROW:
        return b"a block is cut off"
    while at < size:
        memcpy(&row, table + at, BLOCK_ROW)
        at += BLOCK_ROW
        if row.id <= id or row.first_seq < next_seq or row.last_seq > last_seq:
            return b"the blocks do not follow each other"
        if row.dead_size > dead_size - dead_at or row.filter_size > filters - filter_at:
            return b"the dead rows or the filters are cut off"
        fault = _row_fault(&row, dead + dead_at, floor)
        if fault != NULL:
            return fault
        id = row.id
        next_seq = row.last_seq + 1
        dead_at += row.dead_size
        filter_at += row.filter_size
        live += row.live
        live_bytes += row.live_bytes
    if dead_at != dead_size or filter_at != filters:
        return b"more dead rows or filters than blocks"
    if live == messages and live_bytes == total:
        return NULL
    return b"the messages of its blocks do not add up"


def blocks_fault(const unsigned char[::1] table not None, const unsigned char[::1] dead not None, filters_size, floor, last_seq,
                 messages, message_bytes):
    """What is wrong with a checkpoint's table of blocks, against its own counters."""
    cdef const uint8_t* rows = &table[0] if table.shape[0] else NULL
    cdef const uint8_t* bits = &dead[0] if dead.shape[0] else NULL
    cdef uint64_t filters = filters_size, low = floor, high = last_seq, count = messages, total = message_bytes
    cdef const char* fault
    with nogil:
        fault = _table_fault(rows, table.shape[0], bits, dead.shape[0], filters, low, high, count, total)
    return _told(fault)


cdef const char* _subjects_fault(const uint8_t* packed, Py_ssize_t stop, uint64_t count, uint64_t number_stop, uint64_t last_seq,
                                 uint64_t messages) noexcept nogil:
    cdef Py_ssize_t at = 0
    cdef uint32_t number
    cdef uint16_t size
    cdef uint64_t total, first, last, found = 0, seen = 0
    while at < stop:
        if stop - at < SUBJECT_HEAD:
            return b"a subject is cut off"
        memcpy(&number, packed + at, 4)
        memcpy(&size, packed + at + 4, 2)
        memcpy(&total, packed + at + 6, 8)
        memcpy(&first, packed + at + 14, 8)
        memcpy(&last, packed + at + 22, 8)
        at += SUBJECT_HEAD
        if size == 0 or size > stop - at:
            return b"the size of a subject lies"
        if number >= number_stop:
            return b"a subject number is out of proportion"
        if total > messages - seen:
            return b"a subject has more messages than there are"
        if (first & ~HIGH) > last_seq + 1 or (last & ~HIGH) > last_seq + 1:
            return b"the first or last message of a subject is above all"
        seen += total
        found += 1
        at += size
    if found != count:
        return b"there are not as many subjects as it says"
    if seen == messages:
        return NULL
    return b"the messages of its subjects do not add up"


def subjects_fault(const unsigned char[::1] packed not None, count, number_stop, last_seq, messages):
    """What is wrong with a checkpoint's subjects, against its own counters."""
    cdef const uint8_t* data = &packed[0] if packed.shape[0] else NULL
    cdef uint64_t wanted = count, stop = number_stop, high = last_seq, total = messages
    cdef const char* fault
    with nogil:
        fault = _subjects_fault(data, packed.shape[0], wanted, stop, high, total)
    return _told(fault)


cdef object _told(const char* fault):
    return None if fault == NULL else fault.decode("ascii")
