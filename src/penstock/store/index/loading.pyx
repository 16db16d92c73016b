"""Filling an index from files: what a scan, a summary or the checkpoint says of each block, and what of it is gone.

Used by whoever opens a stream (store/open/recovery.py, store/read/snapshot.py) and by who adds whole blocks to one.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from penstock.format.block_scan cimport BlockScan, ScanRow
from penstock.format.constants cimport FLAG_ERASED
from penstock.format.record cimport reference_size
from penstock.store.index.index cimport SECTION_SIZES, SECTION_SUBJECTS, STALE, Block, Index

cdef enum:
    NAMES_PER_YIELD = 2048                 # names that are looked at before other threads may have the GIL


def fill_from_scan(Index index, block_id, BlockScan scan not None, const unsigned char[::1] data not None,
                   uint32_t origin=0):
    """Give a block the rows that a scan found in `data`, which stands at byte `origin` of the block.

    Returns [sequences] of the erased ones.
    """
    cdef Block* block = index.find_block(block_id)
    cdef Py_ssize_t n
    cdef ScanRow* row
    cdef uint32_t number
    erased = []
    for n in range(scan.count):
        row = &scan.rows[n]
        number = index.number_of(&data[row.subject], row.subject_size)
        index.add_row(block, row.seq, row.time, origin + row.offset,
                      reference_size(row.subject_size, row.headers_size, row.payload_size, False), number)
        if row.flags & FLAG_ERASED:
            erased.append(row.seq)         # it speaks for itself: gone also when its erase record is lost
    block.last_checksum = scan.last_checksum
    return erased


def fill_from_summary(Index index, block_id, count, seq_base, bint is_dense, message_bytes, time_min, time_max,
                      last_checksum):
    """Give a block what its summary says of it; its arrays are loaded when wanted."""
    cdef Block* block = index.find_block(block_id)
    block.count = block.live = count
    block.seq_base = seq_base
    block.is_dense = is_dense
    block.bytes = block.live_bytes = message_bytes
    block.time_min = time_min
    block.time_max = time_max
    block.last_checksum = last_checksum
    block.is_evictable = True


def set_bounds(Index index, block_id, last_seq, target_low, target_high):
    cdef Block* block = index.find_block(block_id)
    block.last_seq = max(block.last_seq, <uint64_t>last_seq)
    block.target_low = min(block.target_low, <uint64_t>target_low)
    block.target_high = max(block.target_high, <uint64_t>target_high)


def count_rows(Index index, block_id, uint64_t floor):
    """Count a block's live rows at or above `floor`, one by one."""
    cdef Block* block = index.find_block(block_id)
    cdef uint32_t* sizes
    cdef uint32_t* subjects
    cdef uint32_t row, start
    cdef uint64_t seq
    if block.count == 0:
        return
    sizes = index.section(block, SECTION_SIZES)
    subjects = index.section(block, SECTION_SUBJECTS)
    start = <uint32_t>index.row_from(block, floor)
    for row in range(start):
        if not index.is_dead(block, row):
            block.live -= 1
            block.live_bytes -= sizes[row]
    for row in range(start, block.count):
        if index.is_dead(block, row):
            continue
        seq = index.seq_of(block, row)
        if index.stats[subjects[row]].total == 0:
            index.subject_count += 1
            index.stats[subjects[row]].first = seq
        index.stats[subjects[row]].total += 1
        index.stats[subjects[row]].last = seq
        index.messages += 1
        index.bytes += sizes[row]


def count_rest(Index index, block_id, uint32_t counted, const unsigned char[::1] dead not None, live, live_bytes):
    """Count the rows of a block after the first `counted`, which a checkpoint has counted; its dead rows are given."""
    cdef Block* block = index.find_block(block_id)
    cdef uint32_t row
    cdef uint64_t seq
    cdef uint32_t* sizes
    cdef uint32_t* subjects
    if counted > block.count or (dead.shape[0] and dead.shape[0] != (counted // 64 + 1) * 8):
        raise ValueError(f"block {block_id}: the checkpoint counts {counted} rows of {block.count}")
    for row in range(counted):
        if dead.shape[0] and (dead[row >> 3] >> (row & 7)) & 1:
            index.set_dead(block, row)
    block.live = live
    block.live_bytes = live_bytes
    if counted == block.count:
        return
    sizes = index.section(block, SECTION_SIZES)
    subjects = index.section(block, SECTION_SUBJECTS)
    for row in range(counted, block.count):
        seq = index.seq_of(block, row)
        if index.stats[subjects[row]].total == 0:
            index.subject_count += 1
            index.stats[subjects[row]].first = seq
        index.stats[subjects[row]].total += 1
        index.stats[subjects[row]].last = seq
        index.messages += 1
        index.bytes += sizes[row]
        block.live += 1
        block.live_bytes += sizes[row]


def seq_at(Index index, block_id, uint32_t row):
    """The sequence of a block's row."""
    return index.seq_of(index.find_block(block_id), row)


def row_count(Index index, block_id):
    return index.find_block(block_id).count


def block_ends(Index index):
    """(block id, first_seq, last_seq) of every block."""
    return [(index.blocks[n].id, index.blocks[n].first_seq, index.blocks[n].last_seq) for n in range(index.block_count)]


def time_bounds(Index index):
    """The latest time of each block, None where it has no message."""
    return [index.blocks[n].time_max if index.blocks[n].count else None for n in range(index.block_count)]


def row_gaps(Index index, block_id):
    """Inclusive ranges between a block's first_seq and last_seq that have no row."""
    cdef Block* block = index.find_block(block_id)
    cdef uint64_t expected = block.first_seq, seq
    cdef uint32_t row
    found = []
    if block.is_dense:
        if block.count and block.seq_base > expected:
            found.append((expected, block.seq_base - 1))
        expected = block.seq_base + block.count if block.count else expected
    else:
        for row in range(block.count):
            seq = index.seq_of(block, row)
            if seq > expected:
                found.append((expected, seq - 1))
            expected = seq + 1
    if block.last_seq >= expected:
        found.append((expected, block.last_seq))
    return found


def raise_floor(Index index, floor):
    index.raise_floor(floor, 0)


def forget_changes(Index index):
    """What recovery did cannot be undone."""
    index.change_start = index.change_stop = 0


def drop_range(Index index, start, stop):
    """Recovery: uncount the live rows in [start, stop); how many."""
    cdef uint64_t low = max(start, index.floor), high = stop, seq
    cdef Py_ssize_t at = max(index.block_of(low), 0)
    cdef Block* block
    cdef uint32_t row, row_stop
    cdef uint64_t found = 0
    while at < index.block_count and index.blocks[at].first_seq < high:
        block = index.blocks[at]
        at += 1
        if block.live == 0:
            continue
        row = <uint32_t>index.row_from(block, low)
        row_stop = <uint32_t>index.row_from(block, high)
        while row < row_stop:
            if not index.is_dead(block, row):
                index.drop_row(block, row, index.seq_of(block, row), index.section(block, SECTION_SUBJECTS)[row])
                index.set_dead(block, row)
                found += 1
            row += 1
    return found


def set_ends(Index index, floor, last_seq):
    """Recovery: where the stream begins and ends; first_seq is found again."""
    index.floor = floor
    index.last_seq = last_seq
    index.first_seq = floor
    index.find_first()


def set_bytes(Index index, size):
    index.bytes = size


def find_unused_numbers(Index index):
    """After a load: list the subjects without live messages."""
    cdef uint32_t number, size
    cdef uint32_t count = 0
    for number in range(index.tree.number_stop):
        if index.stats[number].total == 0 and index.tree.name(number, &size) != NULL:
            count += 1
    free(index.unused_numbers)
    index.unused_numbers = <uint32_t*>malloc((count + 64) * 4)
    if index.unused_numbers == NULL:
        raise MemoryError
    index.unused_capacity = count + 64
    index.unused_count = 0
    for number in range(index.tree.number_stop):
        if index.stats[number].total == 0 and index.tree.name(number, &size) != NULL:
            index.stats[number].last = index.last_seq | STALE
            index.unused_numbers[index.unused_count] = number
            index.unused_count += 1


def free_unused_numbers(Index index):
    """Free the numbers of subjects that no block lists any more."""
    cdef Py_ssize_t n, kept = 0
    cdef uint32_t number, size
    cdef uint64_t low = index.blocks[0].first_seq if index.block_count else index.last_seq + 1
    cdef bint is_any = False
    for n in range(index.unused_count):
        if n % NAMES_PER_YIELD == NAMES_PER_YIELD - 1:
            index.yield_gil()
        number = index.unused_numbers[n]
        if index.stats[number].total or index.tree.name(number, &size) == NULL:
            continue                       # it came back, or was freed
        if (index.stats[number].last & ~STALE) < low:
            index.tree.drop(number)
            index.stats[number].first = index.stats[number].last = 0
            is_any = True
            continue
        index.unused_numbers[kept] = number
        kept += 1
    index.unused_count = kept
    if is_any:
        index.version += 1
