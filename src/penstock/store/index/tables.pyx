"""Summaries and the checkpoint's big tables: index arrays to bytes and back. Layout: docs/format.md, "Summary", "CHECKPOINT".

The fixed parts are packed by store/; here are the loops over rows and subjects.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from penstock.format.block_scan cimport BlockScan, ScanRow
from penstock.store.write.engine cimport StreamEngine
from penstock.format.layout cimport FLAG_ERASED, FLAG_MSG_ID, FLAG_TTL, RECORDS_START
from penstock.store.index.index cimport (
    SECTION_OFFSETS, SECTION_SEQS, SECTION_SIZES, SECTION_SUBJECTS, Block, Index,
)
from penstock.store.write.commit_log cimport BlockFile, free_block_file
from penstock.base.prefetch cimport prefetch
from penstock.format.record cimport reference_size
from penstock.base.bloom_filter cimport FilterBuilder
from penstock.base.subject_dictionary cimport NO_NUMBER, SubjectDictionary, TreeCursor

cdef uint64_t STALE = 0x8000000000000000ULL


cdef Block* _block(Index index, uint64_t block_id) except NULL:
    cdef Py_ssize_t low = 0, high = index.block_count, middle
    while low < high:
        middle = (low + high) >> 1
        if index.blocks[middle].id < block_id:
            low = middle + 1
        else:
            high = middle
    if low == index.block_count or index.blocks[low].id != block_id:
        raise KeyError(block_id)
    return index.blocks[low]


def place_block(StreamEngine engine, block_id, path, first_seq, base_seq, base_time, salt, size):
    """Add a block that lies on disk, without rows. Blocks come in order."""
    cdef Block* block = engine.index.add_block(block_id, first_seq)
    cdef BlockFile* file = engine.log.new_file(block_id, path, 0)
    file.is_created = True
    file.size = file.submitted = file.written = file.synced = file.committed = size
    block.file = file
    block.last_seq = first_seq - 1
    block.seq_base = first_seq
    block.base.seq = base_seq
    block.base.time = base_time
    block.base.salt = salt
    block.size = size
    block.is_sealed = True


def fill_from_scan(Index index, block_id, BlockScan scan not None, const unsigned char[::1] data not None,
                   uint32_t origin=0):
    """Give a block the rows that a scan found in `data`, which stands at byte `origin` of the block.

    Returns [sequences] of the erased ones.
    """
    cdef Block* block = _block(index, block_id)
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


def marked_rows(BlockScan scan not None, const unsigned char[::1] data not None):
    """[(row, seq, time, flags, headers)] of the messages with a TTL or an id."""
    cdef Py_ssize_t n
    cdef ScanRow* row
    found = []
    if not scan.flags & (FLAG_TTL | FLAG_MSG_ID):
        return found
    for n in range(scan.count):
        row = &scan.rows[n]
        if row.flags & (FLAG_TTL | FLAG_MSG_ID) and not row.flags & FLAG_ERASED:
            found.append((n, row.seq, row.time, row.flags,
                          (<const char*>&data[0])[row.headers:row.headers + row.headers_size]))
    return found


def fill_from_summary(Index index, block_id, count, seq_base, bint is_dense, message_bytes, time_min, time_max,
                      last_checksum):
    """Give a block what its summary says of it; its arrays are loaded when wanted."""
    cdef Block* block = _block(index, block_id)
    block.count = block.live = count
    block.seq_base = seq_base
    block.is_dense = is_dense
    block.bytes = block.live_bytes = message_bytes
    block.time_min = time_min
    block.time_max = time_max
    block.last_checksum = last_checksum
    block.is_evictable = True


def set_bounds(Index index, block_id, last_seq, target_low, target_high):
    cdef Block* block = _block(index, block_id)
    block.last_seq = max(block.last_seq, <uint64_t>last_seq)
    block.target_low = min(block.target_low, <uint64_t>target_low)
    block.target_high = max(block.target_high, <uint64_t>target_high)


def check_names(Index index, const unsigned char[::1] names not None):
    """Would these (number, messages, name) entries fit the tree? Adds those that are new; False on the first that does not."""
    cdef Py_ssize_t at = 0, stop = names.shape[0]
    cdef uint32_t number, known
    cdef uint16_t size
    while at < stop:
        if stop - at < 10:
            return False
        memcpy(&number, &names[at], 4)
        memcpy(&size, &names[at + 8], 2)
        at += 10
        if size == 0 or size > stop - at or number > 0x7FFFFFFE:
            return False
        known = index.tree.find(&names[at], size)
        if known == NO_NUMBER:
            if index.tree.put_at(number, &names[at], size) != 0:
                return False
        elif known != number:
            return False
        at += size
    if index.tree.number_stop > index.number_capacity:
        index.fit_numbers()
    return True


def count_names(Index index, block_id, const unsigned char[::1] names not None):
    """Count a whole block's messages by its names section; firsts and lasts become bounds."""
    cdef Block* block = _block(index, block_id)
    cdef Py_ssize_t at = 0, stop = names.shape[0]
    cdef uint32_t number, messages
    cdef uint16_t size
    while at < stop:
        memcpy(&number, &names[at], 4)
        memcpy(&messages, &names[at + 4], 4)
        memcpy(&size, &names[at + 8], 2)
        at += 10 + size
        if messages == 0:
            continue
        if index.stats[number].total == 0:
            index.subject_count += 1
            index.stats[number].first = block.first_seq | STALE
        index.stats[number].total += messages
        index.stats[number].last = block.last_seq | STALE
    index.messages += block.live
    index.bytes += block.live_bytes


def count_rows(Index index, block_id, uint64_t floor):
    """Count a block's live rows at or above `floor`, one by one."""
    cdef Block* block = _block(index, block_id)
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
    cdef Block* block = _block(index, block_id)
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
    return index.seq_of(_block(index, block_id), row)


def block_ends(Index index):
    """(block id, first_seq, last_seq) of every block."""
    return [(index.blocks[n].id, index.blocks[n].first_seq, index.blocks[n].last_seq) for n in range(index.block_count)]


def time_bounds(Index index):
    """The latest time of each block, None where it has no message."""
    return [index.blocks[n].time_max if index.blocks[n].count else None for n in range(index.block_count)]


def row_gaps(Index index, block_id):
    """Inclusive ranges between a block's first_seq and last_seq that have no row."""
    cdef Block* block = _block(index, block_id)
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


def kill_range(Index index, start, stop):
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


def rows_of(Index index, block_id, which):
    """One of a block's arrays as bytes."""
    cdef Block* block = _block(index, block_id)
    cdef uint32_t* array
    if block.count == 0 or (which == SECTION_SEQS and block.is_dense):
        return b""
    array = index.section(block, which)
    return PyBytes_FromStringAndSize(<char*>array, <Py_ssize_t>block.count * 4)


cdef enum:
    BREATH_NAMES = 2048                    # after so many others may have the GIL
    LOOK_AHEAD = 12                        # names whose memory is fetched before they are needed


cdef void _hint_names(SubjectDictionary tree, const uint32_t* numbers, uint32_t n, uint32_t count) noexcept:
    """Names lie anywhere in memory: ask for those that come next."""
    if n + 16 < count:
        tree.hint_number(numbers[n + 16])
    if n + 8 < count:
        tree.hint_name(numbers[n + 8])


def names_of(Index index, block_id):
    """A block's distinct subjects as its names section holds them, and the filter built of them."""
    cdef Block* block = _block(index, block_id)
    cdef uint32_t row, number, size = 0, distinct = 0, n
    cdef uint32_t* counts
    cdef uint32_t* subjects
    cdef uint32_t* order
    cdef const uint8_t* name
    cdef const uint8_t* before = NULL
    cdef Py_ssize_t total = 0, at = 0
    cdef uint16_t short_size
    cdef char* out
    cdef FilterBuilder builder = FilterBuilder()
    if block.count == 0:
        return b"", builder.finish()
    if index.names.is_whole(block.id, block.count):
        packed = PyBytes_FromStringAndSize(<char*>index.names.data, index.names.size)
        name = <const uint8_t*>PyBytes_AS_STRING(packed)
        while at < PyBytes_GET_SIZE(packed):
            memcpy(&short_size, name + at + 8, 2)
            builder.add_after(name + at + 10, short_size, before, size)
            before = name + at + 10
            size = short_size
            at += 10 + short_size
        return packed, builder.finish()
    subjects = index.section(block, SECTION_SUBJECTS)
    counts = index.zeros()                 # after it: a block that is read itself may bring new numbers
    order = <uint32_t*>malloc(<size_t>block.count * 4)
    if order == NULL:
        raise MemoryError
    try:
        for row in range(block.count):
            if row + 16 < block.count:
                prefetch(&counts[subjects[row + 16]])
            number = subjects[row]
            if counts[number] == 0:
                if index.tree.name(number, &size) == NULL:
                    raise ValueError(f"block {block_id}: subject number {number} has no name")
                order[distinct] = number
                distinct += 1
            counts[number] += 1
        for n in range(distinct):
            _hint_names(index.tree, order, n, distinct)
            index.tree.name(order[n], &size)
            total += 10 + size
        packed = PyBytes_FromStringAndSize(NULL, total)
        out = PyBytes_AS_STRING(packed)
        for n in range(distinct):
            _hint_names(index.tree, order, n, distinct)
            number = order[n]
            name = index.tree.name(number, &size)
            short_size = <uint16_t>size
            memcpy(out + at, &number, 4)
            memcpy(out + at + 4, &counts[number], 4)
            memcpy(out + at + 8, &short_size, 2)
            memcpy(out + at + 10, name, size)
            at += 10 + size
            builder.add(name, size)
    finally:
        for n in range(distinct):
            counts[order[n]] = 0
        free(order)
    return packed, builder.finish()


def rows_from_bytes(Index index, block_id, const unsigned char[::1] data not None, Py_ssize_t size, int which):
    """One of a sealed block's arrays, worked out from its bytes. A damaged record's row gets the place of the next whole one.

    ValueError where it cannot be said which records the rows are.
    """
    from penstock.format.block_scan import scan_block
    cdef Block* block = _block(index, block_id)
    cdef Py_ssize_t stop = min(size, data.shape[0])
    cdef BlockScan scan = scan_block(data, min(RECORDS_START, stop), stop, base_seq=block.base.seq,
                                     base_time=block.base.time, salt=block.base.salt, seq_min=block.first_seq)
    cdef Py_ssize_t n = 0
    cdef uint32_t row
    cdef uint64_t seq
    cdef uint32_t* out
    cdef ScanRow* found
    cdef bint is_whole = scan.count == block.count
    packed = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>block.count * 4)
    out = <uint32_t*>PyBytes_AS_STRING(packed)
    if scan.count == 0:
        raise ValueError(f"block {block_id}: no record of it is whole")
    if not is_whole and not block.is_dense and which == SECTION_SEQS:
        raise ValueError(f"block {block_id}: it has {scan.count} whole records, not {block.count}, and it is not known which")
    for row in range(block.count):
        if is_whole:
            n = row
        else:
            seq = index.seq_of(block, row)
            while n + 1 < scan.count and scan.rows[n].seq < seq:
                n += 1
        found = &scan.rows[n]
        if which == SECTION_OFFSETS:
            out[row] = found.offset
        elif which == SECTION_SIZES:
            out[row] = reference_size(found.subject_size, found.headers_size, found.payload_size, False)
        elif which == SECTION_SUBJECTS:
            out[row] = index.number_of(&data[found.subject], found.subject_size)
        else:
            out[row] = <uint32_t>(found.seq - block.seq_base)
    return packed


def release_arrays(Index index, block_id):
    """A sealed block's arrays can be had from its summary from now on."""
    cdef Block* block = _block(index, block_id)
    cdef int n
    if not block.is_evictable:
        block.is_evictable = True
        block.capacity = block.count
        for n in range(4):
            if block.arrays[n] != NULL:
                index.resident += <uint64_t>block.count * 4


def dead_rows(Index index, block_id):
    """The bitmap of a block's dead rows (rows below the floor are not in it), or b""."""
    cdef Block* block = _block(index, block_id)
    if block.dead == NULL or block.live == block.count:
        return b""
    return PyBytes_FromStringAndSize(<char*>block.dead, (block.count // 64 + 1) * 8)


def load_dead(Index index, block_id, const unsigned char[::1] bits not None, live, live_bytes):
    """Recovery from a checkpoint: a block's dead rows and what is left."""
    cdef Block* block = _block(index, block_id)
    cdef Py_ssize_t size = (max(block.capacity, block.count) // 64 + 1) * 8
    if bits.shape[0]:
        if bits.shape[0] != (block.count // 64 + 1) * 8:
            raise ValueError(f"block {block_id}: {bits.shape[0]} bytes of dead rows for {block.count} rows")
        block.dead = <uint64_t*>calloc(1, size)
        if block.dead == NULL:
            raise MemoryError
        memcpy(block.dead, &bits[0], bits.shape[0])
    block.live = live
    block.live_bytes = live_bytes


def pack_subjects(Index index):
    """All subjects in order: number u32, size u16, total u64, first u64, last u64, name."""
    cdef TreeCursor cursor, near, far      # those ahead fetch what the first will read
    cdef uint32_t number, size, n
    cdef uint16_t short_size
    cdef const uint8_t* name
    cdef Py_ssize_t total = 0, at = 0
    cdef char* out
    for number in range(index.tree.number_stop):
        if index.tree.name(number, &size) != NULL:
            total += 30 + size
    packed = PyBytes_FromStringAndSize(NULL, total)
    out = PyBytes_AS_STRING(packed)
    index.tree.cursor_seek(&cursor, <const uint8_t*>b"", 0)
    near = far = cursor
    for n in range(LOOK_AHEAD):
        index.tree.cursor_next(&near)
        index.tree.cursor_next(&far)
        index.tree.cursor_next(&far)
    number = index.tree.cursor_next(&cursor)
    while number != NO_NUMBER:
        index.tree.hint_name(index.tree.cursor_next(&near))
        n = index.tree.cursor_next(&far)
        if n != NO_NUMBER:
            index.tree.hint_number(n)
            prefetch(&index.stats[n])
        name = index.tree.name(number, &size)
        short_size = <uint16_t>size
        memcpy(out + at, &number, 4)
        memcpy(out + at + 4, &short_size, 2)
        memcpy(out + at + 6, &index.stats[number].total, 8)
        memcpy(out + at + 14, &index.stats[number].first, 8)
        memcpy(out + at + 22, &index.stats[number].last, 8)
        memcpy(out + at + 30, name, size)
        at += 30 + size
        number = index.tree.cursor_next(&cursor)
    assert at == total
    return packed


cdef Py_ssize_t _hint_subject(Index index, const unsigned char[::1] packed, Py_ssize_t at, Py_ssize_t stop) noexcept:
    """Fetch what the entry at `at` will need; the offset of the next."""
    cdef uint32_t number
    cdef uint16_t size
    if stop - at < 30:
        return stop
    memcpy(&number, &packed[at], 4)
    memcpy(&size, &packed[at + 4], 2)
    if size > stop - at - 30:
        return stop
    if size:
        index.tree.hint_slot(&packed[at + 30], size)
    index.tree.hint_number(number)
    if number < index.number_capacity:
        prefetch(&index.stats[number])
    return at + 30 + size


def load_subjects(Index index, const unsigned char[::1] packed not None, count, uint32_t number_stop=0x7FFFFFFF):
    """The reverse of pack_subjects, into an empty index. ValueError when the bytes do not hold, or a number is not below
    `number_stop`."""
    cdef Py_ssize_t at = 0, stop = packed.shape[0], ahead = 0
    cdef uint32_t number
    cdef uint16_t size
    cdef int n
    if count > stop // 30:
        raise ValueError(f"subjects: {count} do not fit into {stop} bytes")
    index.tree.reserve(count, stop)
    if count > index.number_capacity and count <= stop // 30:
        index.reserve_numbers(count)
    for n in range(LOOK_AHEAD):
        ahead = _hint_subject(index, packed, ahead, stop)
    while at < stop:
        ahead = _hint_subject(index, packed, ahead, stop)
        if stop - at < 30:
            raise ValueError(f"subjects: cut at byte {at}")
        memcpy(&number, &packed[at], 4)
        memcpy(&size, &packed[at + 4], 2)
        if size == 0 or size > stop - at - 30 or number >= number_stop:
            raise ValueError(f"subjects: a size or a number lies at byte {at}")
        if index.tree.put_at(number, &packed[at + 30], size) != 0:
            raise ValueError(f"subjects: number {number} stands twice")
        if index.tree.number_stop > index.number_capacity:
            index.fit_numbers()
        memcpy(&index.stats[number].total, &packed[at + 6], 8)
        memcpy(&index.stats[number].first, &packed[at + 14], 8)
        memcpy(&index.stats[number].last, &packed[at + 22], 8)
        if index.stats[number].total:
            index.subject_count += 1
            index.messages += index.stats[number].total
        at += 30 + size


def set_bytes(Index index, size):
    index.bytes = size


def drop_ghosts(Index index):
    """Free the numbers of subjects that no block lists any more."""
    cdef Py_ssize_t n, kept = 0
    cdef uint32_t number, size
    cdef uint64_t low = index.blocks[0].first_seq if index.block_count else index.last_seq + 1
    cdef bint is_any = False
    for n in range(index.ghost_count):
        if n % BREATH_NAMES == BREATH_NAMES - 1:
            index.breathe()
        number = index.ghosts[n]
        if index.stats[number].total or index.tree.name(number, &size) == NULL:
            continue                       # it came back, or was freed
        if (index.stats[number].last & ~STALE) < low:
            index.tree.drop(number)
            index.stats[number].first = index.stats[number].last = 0
            is_any = True
            continue
        index.ghosts[kept] = number
        kept += 1
    index.ghost_count = kept
    if is_any:
        index.version += 1


def find_ghosts(Index index):
    """After a load: list the subjects without live messages."""
    cdef uint32_t number, size
    cdef uint32_t count = 0
    for number in range(index.tree.number_stop):
        if index.stats[number].total == 0 and index.tree.name(number, &size) != NULL:
            count += 1
    free(index.ghosts)
    index.ghosts = <uint32_t*>malloc((count + 64) * 4)
    if index.ghosts == NULL:
        raise MemoryError
    index.ghost_capacity = count + 64
    index.ghost_count = 0
    for number in range(index.tree.number_stop):
        if index.stats[number].total == 0 and index.tree.name(number, &size) != NULL:
            index.stats[number].last = index.last_seq | STALE
            index.ghosts[index.ghost_count] = number
            index.ghost_count += 1


def remove_block(StreamEngine engine, block_id):
    """Forget a block whose rows are all dead; its path."""
    cdef Index index = engine.index
    cdef Py_ssize_t at
    cdef bytes path
    cdef BlockFile* file
    for at in range(index.block_count):
        if index.blocks[at].id == block_id:
            file = index.blocks[at].file
            path = file.path
            assert file != engine.file and not file.is_listed
            index.blocks[at].file = NULL
            index.drop_block(at)
            with nogil:                    # its image goes back to the system: that takes a millisecond
                free_block_file(file)
            return path
    raise KeyError(block_id)


def dead_blocks(StreamEngine engine):
    """Ids of sealed blocks that hold nothing alive and whose bytes are all committed to disk."""
    cdef Py_ssize_t at
    cdef Block* block
    cdef Index index = engine.index
    found = []
    for at in range(index.block_count):
        block = index.blocks[at]
        if block.is_sealed and block.live == 0 and not block.file.is_listed and block.file.users == 0:
            found.append(block.id)
    return found


def drop_images(StreamEngine engine):
    """Give back the images of sealed blocks whose bytes are all on disk: how many sealed blocks still have theirs."""
    cdef Py_ssize_t at, kept = 0
    cdef Block* block
    for at in range(engine.index.block_count):
        block = engine.index.blocks[at]
        if block.file.image == NULL or not block.is_sealed:
            continue
        if not block.file.is_listed:
            engine.log.drop_image(block.file)
        elif not engine.log.drop_written(block.file):
            kept += 1
    return kept


def parts_of(StreamEngine engine, block_id, spans):
    """The bytes of (offset, size) spans of a block that is in memory, joined."""
    cdef Block* block = _block(engine.index, block_id)
    cdef uint64_t start, size
    parts = []
    for start, size in spans:
        assert block.file.image != NULL and start + size <= block.size
        parts.append(PyBytes_FromStringAndSize(<char*>block.file.image + start, size))
    return b"".join(parts)


def overwrite(StreamEngine engine, uint64_t seq, random):
    """Secure erase, in memory and on disk: erased bit, random bytes for headers and payload, a valid checksum.

    The message is deleted already. Returns (descriptor, offset, bytes) to be written through the disk, or None when there is no
    record of it.
    """
    from penstock.format.record import RecordError, decode, encode_message
    cdef Py_ssize_t at = engine.index.block_of(seq)
    cdef Block* block
    cdef int64_t row
    cdef uint64_t start, stop
    cdef uint32_t* offsets
    cdef const uint8_t* found
    cdef bytes raw, new
    if at < 0:
        return None
    block = engine.index.blocks[at]
    row = engine.index.row_of(block, seq)
    if row < 0:
        return None
    offsets = engine.index.section(block, SECTION_OFFSETS)
    start = offsets[row]
    stop = offsets[row + 1] if row + 1 < block.count else block.size
    found = engine.bytes_at(block, start, stop)
    raw = found[:stop - start]
    bases = {"base_seq": block.base.seq, "base_time": block.base.time, "salt": block.base.salt}
    try:
        old = decode(raw, 0, **bases)
    except RecordError:
        return None                        # damaged: what is left of it is not to be read either
    if old["erased"]:
        return None
    headers = old["headers"]
    new = encode_message(
        old["seq"], old["time"], old["subject"], None if headers is None else random(len(headers)),
        random(len(old["payload"])), erased=True, has_ttl=old["has_ttl"], has_msg_id=old["has_msg_id"], **bases)
    assert len(new) == old["stop"], "an erased record keeps its size"
    if block.file.image != NULL:
        memcpy(block.file.image + start, <const char*>new, len(new))
    if row == block.count - 1 and <uint64_t>(start + len(new)) == block.size:
        memcpy(&block.last_checksum, <const char*>new + len(new) - 8, 8)
    return (block.id, start, new) if block.file.is_created else (block.id, -1, new)


def descriptor(StreamEngine engine, block_id):
    """An open descriptor of a block's file."""
    cdef Block* block = _block(engine.index, block_id)
    cdef int fd = engine.log.open_for_read(block.file)
    if fd < 0:
        raise OSError(-fd, "cannot open", (<bytes>block.file.path).decode())
    return fd


def idle_descriptors(StreamEngine engine, Py_ssize_t most):
    """Close descriptors of sealed blocks beyond the newest `most`."""
    cdef Py_ssize_t at
    cdef Block* block
    cdef Py_ssize_t open_count = 0
    at = engine.index.block_count - 1
    while at >= 0:
        block = engine.index.blocks[at]
        if block.file.fd >= 0 and block.is_sealed and not block.file.is_listed and block.file.users == 0:
            open_count += 1
            if open_count > most:
                engine.log.disk.close_file(block.file.fd)
                block.file.fd = -1
        at -= 1
    engine.log.opened = <uint32_t>min(open_count, most)


def cut_rows(StreamEngine engine, uint64_t seq):
    """In memory: forget every row above `seq` and the blocks that only held such."""
    cdef Index index = engine.index
    cdef Block* block
    index.change_start = index.change_stop = 0
    index.rollback(seq)
    index.floor = min(index.floor, seq + 1)
    index.first_seq = index.floor
    index.find_first()
    while index.block_count and index.blocks[index.block_count - 1].first_seq > seq:
        block = index.blocks[index.block_count - 1]
        engine.log.unlist(block.file)
        free_block_file(block.file)
        index.drop_block(index.block_count - 1)
    engine.log.start_at(seq)


def unlist(StreamEngine engine, block_id):
    """A block in memory has nothing to commit."""
    engine.log.unlist(_block(engine.index, block_id).file)


def continue_block(StreamEngine engine, const unsigned char[::1] data not None, uint64_t capacity, spans):
    """Make the last block the active one again, with its bytes in an image."""
    cdef Index index = engine.index
    cdef Block* block = index.blocks[index.block_count - 1]
    cdef BlockFile* file
    cdef BlockFile* old = block.file
    file = engine.log.new_file(block.id, old.path, max(capacity, <uint64_t>data.shape[0]))
    memcpy(file.image, &data[0], data.shape[0])
    file.is_created = True
    file.size = file.submitted = file.written = file.synced = file.committed = data.shape[0]
    free_block_file(old)
    block.file = file
    block.is_sealed = False
    block.is_evictable = False
    engine.active = block
    engine.file = file
    engine.spans = list(spans)
    engine.log.start_file(file)


def set_last_time(StreamEngine engine, int64_t time):
    engine.last_time = time


def last_position(StreamEngine engine):
    """(block id, bytes) where the stream's records end."""
    cdef Index index = engine.index
    if index.block_count == 0:
        return 0, 0
    return index.blocks[index.block_count - 1].id, index.blocks[index.block_count - 1].size


def row_count(Index index, block_id):
    return _block(index, block_id).count


def set_size(StreamEngine engine, block_id, uint64_t size):
    """A reader has seen more of a block's bytes."""
    cdef Block* block = _block(engine.index, block_id)
    block.size = size
    block.file.size = block.file.submitted = block.file.written = block.file.synced = size


def dead_and_live(Index index, block_id, uint32_t counted):
    """(bitmap, live, live bytes) of the first `counted` rows, as count_rest takes them; the rows after are not counted yet."""
    cdef Block* block = _block(index, block_id)
    cdef uint32_t row
    cdef uint32_t* sizes
    live, live_bytes = block.live, block.live_bytes
    if block.count > counted:
        sizes = index.section(block, SECTION_SIZES)
        for row in range(counted, block.count):
            live -= 1
            live_bytes -= sizes[row]
    bits = b"" if block.dead == NULL else PyBytes_FromStringAndSize(<char*>block.dead, (counted // 64 + 1) * 8)
    return bits, live, live_bytes


def sealed_block_of(StreamEngine engine, uint64_t seq):
    """The id of the sealed block that holds a sequence; 0 when it is in the active one."""
    cdef Py_ssize_t at = engine.index.block_of(seq)
    if at < 0 or not engine.index.blocks[at].is_sealed:
        return 0
    return engine.index.blocks[at].id
