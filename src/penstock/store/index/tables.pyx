"""The tables of summaries and of the checkpoint: an index's arrays to bytes and back. Layout: docs/format.md, "Summary", "CHECKPOINT".

summary.py and checkpoint.py pack the fixed parts; here are the loops over rows and subjects.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from penstock.base.bloom_filter cimport FilterBuilder
from penstock.base.prefetch cimport prefetch
from penstock.base.subject_dictionary cimport NO_NUMBER, SubjectDictionary, TreeCursor
from penstock.format.block_scan cimport BlockScan, ScanRow
from penstock.format.constants cimport RECORDS_START
from penstock.format.record cimport reference_size
from penstock.store.index.index cimport (
    SECTION_OFFSETS, SECTION_SEQS, SECTION_SIZES, SECTION_SUBJECTS, STALE, Block, Index,
)


cdef enum:
    LOOK_AHEAD = 12                        # names whose memory is fetched before they are needed


cdef void _hint_names(SubjectDictionary tree, const uint32_t* numbers, uint32_t n, uint32_t count) noexcept:
    """Names lie anywhere in memory: ask for those that come next."""
    if n + 16 < count:
        tree.hint_number(numbers[n + 16])
    if n + 8 < count:
        tree.hint_name(numbers[n + 8])


def rows_of(Index index, block_id, which):
    """One of a block's arrays as bytes."""
    cdef Block* block = index.find_block(block_id)
    cdef uint32_t* array
    if block.count == 0 or (which == SECTION_SEQS and block.is_dense):
        return b""
    array = index.section(block, which)
    return PyBytes_FromStringAndSize(<char*>array, <Py_ssize_t>block.count * 4)


def names_of(Index index, block_id):
    """A block's distinct subjects as its names section holds them, and the filter built of them."""
    cdef Block* block = index.find_block(block_id)
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
    cdef Block* block = index.find_block(block_id)
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
    cdef Block* block = index.find_block(block_id)
    cdef int n
    if not block.is_evictable:
        block.is_evictable = True
        block.capacity = block.count
        for n in range(4):
            if block.arrays[n] != NULL:
                index.resident += <uint64_t>block.count * 4


def dead_rows(Index index, block_id):
    """The bitmap of a block's dead rows (rows below the floor are not in it), or b""."""
    cdef Block* block = index.find_block(block_id)
    if block.dead == NULL or block.live == block.count:
        return b""
    return PyBytes_FromStringAndSize(<char*>block.dead, (block.count // 64 + 1) * 8)


def load_dead(Index index, block_id, const unsigned char[::1] bits not None, live, live_bytes):
    """Recovery from a checkpoint: a block's dead rows and what is left."""
    cdef Block* block = index.find_block(block_id)
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


def dead_and_live(Index index, block_id, uint32_t counted):
    """(bitmap, live, live bytes) of the first `counted` rows, as count_rest takes them; the rows after are not counted yet."""
    cdef Block* block = index.find_block(block_id)
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
    cdef Block* block = index.find_block(block_id)
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
