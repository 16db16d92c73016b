"""Columns: the records of a block's bytes as Arrow buffers, every checksum verified, no Python object per message.

It works in chunks of a few hundred rows: `walk_rows` verifies records and notes where their parts lie, then one loop
per wanted column copies that part of the chunk, which is still in the cache. Layout: docs/format.md, "Record". Text
shows bytes that are not UTF-8 as \\xNN. Header rules: wire/headers.py. The twin:
tests/twins/columns.py.
"""
cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_WRITABLE
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

from penstock.format.block_scan cimport next_whole
from penstock.format.constants cimport FLAG_ERASED, FLAG_HEADERS, KIND_MESSAGE, KIND_SKIP
from penstock.wire.header_lines cimport Line, group_lines, split_lines
from penstock.format.record cimport RECORD_NEWER, RECORD_TORN, Base, Record, record_decode
from penstock.base.arrow_buffer cimport ArrowBuffer, buffer_reserve, buffer_resize
from penstock.base.seq_set cimport SeqRange, SeqSet
from penstock.base.subject cimport Filters
from penstock.base.text cimport copy, is_ascii, write_text

from penstock.format.record import RecordError

cdef enum:                                 # what can be asked for
    COLUMN_STREAM = 1
    COLUMN_SEQ = 2
    COLUMN_TS = 4
    COLUMN_TS_NS = 8
    COLUMN_SUBJECT = 16
    COLUMN_HEADERS = 32                    # as a map
    COLUMN_PAYLOAD = 64
    COLUMN_HEADERS_RAW = 128               # as the bytes of the header block

COLUMN_BITS = {
    "stream": COLUMN_STREAM,
    "seq": COLUMN_SEQ,
    "ts": COLUMN_TS,
    "ts_ns": COLUMN_TS_NS,
    "subject": COLUMN_SUBJECT,
    "headers": COLUMN_HEADERS,
    "payload": COLUMN_PAYLOAD,
}
HEADERS_RAW = COLUMN_HEADERS_RAW
BATCH_BYTES_MAX = 1 << 30

cdef enum:
    CHUNK_ROWS = 256
    SPARES_MAX = 4                         # of each kind of room
    DAMAGE_SIZE = 32                       # offset, size, and the sequences that it may have held
    TEXT_BYTES_MAX = 0x1FFFFFFF            # \xNN makes four of one: then they still fit 32-bit offsets

cdef enum:                                 # why walk_rows came back
    WALK_MORE = 0                          # the chunk is full
    WALK_FULL = 1                          # the batch is full
    WALK_DONE = 2                          # the end of the block, or of what was asked for
    WALK_NEWER = -1
    WALK_NO_MEMORY = -2

cdef enum:                                 # what the rooms hold
    ROOM_SEQ, ROOM_TS, ROOM_TS_NS
    ROOM_STREAM_OFFSETS, ROOM_STREAM
    ROOM_SUBJECT_OFFSETS, ROOM_SUBJECT
    ROOM_PAYLOAD_OFFSETS, ROOM_PAYLOAD
    ROOM_HEADERS_VALID, ROOM_HEADERS_OFFSETS
    ROOM_HEADERS                           # raw
    ROOM_KEY_OFFSETS, ROOM_KEYS, ROOM_LIST_OFFSETS, ROOM_VALUE_OFFSETS, ROOM_VALUES
    ROOM_DAMAGE, ROOM_LINES, ROOM_SLOTS    # scratch
    ROOM_COUNT

cdef struct Row:
    uint64_t seq
    int64_t time
    const uint8_t* subject
    const uint8_t* headers
    const uint8_t* payload
    uint32_t subject_size
    uint32_t headers_size
    uint32_t payload_size
    uint32_t flags

cdef struct Walk:
    const uint8_t* block
    Py_ssize_t at
    Py_ssize_t stop
    Base base
    uint64_t seq_next                      # no later record lies below
    uint64_t seq_min                       # rows: seq_min <= seq < seq_stop
    uint64_t seq_stop
    int64_t time_min                       # rows: time_min <= time <= time_max
    int64_t time_max
    SeqRange dead_range                    # the first deleted range that does not end below the current record
    uint32_t subject_mask                  # all ones where the size counts towards bytes_max, 0 where not
    uint32_t headers_mask
    uint32_t payload_mask
    int64_t row_count
    int64_t row_count_max
    int64_t bytes
    int64_t bytes_max
    int64_t text_bytes
    Py_ssize_t torn
    ArrowBuffer rooms[ROOM_COUNT]


# Memory ---------------------------------------------------------------------------------------------------------------


@cython.final
cdef class Spares:
    """The memory of batches that are gone, for the next ones of the same scan.

    Fresh memory costs a page fault per 4 KiB; where threads allocate, that is as much as all the rest. Always true: it
    is touched only under the GIL; it lives as long as the scan or one of its batches.
    """

    cdef ArrowBuffer rooms[ROOM_DAMAGE][SPARES_MAX]
    cdef int counts[ROOM_DAMAGE]

    def __dealloc__(self):
        cdef int kind, n
        for kind in range(ROOM_DAMAGE):
            for n in range(self.counts[kind]):
                free(self.rooms[kind][n].base)

    cdef bint put(self, int kind, const ArrowBuffer* room) noexcept:
        if self.counts[kind] == SPARES_MAX:
            return False
        self.rooms[kind][self.counts[kind]] = room[0]
        self.counts[kind] += 1
        return True

    cdef void take(self, int kind, ArrowBuffer* room) noexcept:
        if self.counts[kind]:
            self.counts[kind] -= 1
            room[0] = self.rooms[kind][self.counts[kind]]
            room.used = 0


@cython.final
cdef class Memory:
    """Read-only bytes that pyarrow.py_buffer takes without a copy; aligned to 64."""

    cdef ArrowBuffer room
    cdef Py_ssize_t stride
    cdef Spares spares
    cdef int kind

    def __init__(self):
        raise TypeError("made by read_columns")

    def __dealloc__(self):
        if self.spares is None or not self.spares.put(self.kind, &self.room):
            free(self.room.base)

    def __len__(self):
        return self.room.used

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        if flags & PyBUF_WRITABLE == PyBUF_WRITABLE:
            raise BufferError("column memory is read-only")
        self.stride = 1
        buffer.buf = self.room.data
        buffer.obj = self
        buffer.len = self.room.used
        buffer.itemsize = 1
        buffer.readonly = 1
        buffer.ndim = 1
        buffer.format = NULL
        if flags & PyBUF_FORMAT:
            buffer.format = "B"
        buffer.shape = &self.room.used
        buffer.strides = &self.stride
        buffer.suboffsets = NULL
        buffer.internal = NULL

    def __releasebuffer__(self, Py_buffer* buffer):
        pass


cdef void rooms_predict(Walk* walk, Py_ssize_t start) noexcept nogil:
    """After the first chunk: make the rooms as large as the batch will need if the rest is like it."""
    cdef double factor = <double>(walk.stop - start) / <double>(walk.at - start)
    cdef Py_ssize_t capacity
    cdef ArrowBuffer* room
    cdef int index
    factor = min(factor, <double>walk.row_count_max / <double>walk.row_count)
    if walk.bytes:
        factor = min(factor, <double>walk.bytes_max / <double>walk.bytes)
    factor = max(factor, 1.0)
    for index in range(ROOM_DAMAGE):
        room = &walk.rooms[index]
        capacity = <Py_ssize_t>(<double>room.used * factor * 1.04) + 4096
        if room.used > 4 and room.capacity < capacity:
            buffer_resize(room, capacity)


cdef Memory room_take(Walk* walk, int kind, Spares spares):
    """The room's bytes as an object that owns them; the room is empty afterwards."""
    cdef Memory memory = Memory.__new__(Memory)
    cdef ArrowBuffer* room = &walk.rooms[kind]
    if room.base == NULL or room.capacity - room.used > (room.used >> 3) + 4096:
        if not buffer_resize(room, room.used) and room.base == NULL:
            raise MemoryError
    memory.room = room[0]
    memory.spares = spares
    memory.kind = kind
    memset(room, 0, sizeof(ArrowBuffer))
    return memory


# Rows -----------------------------------------------------------------------------------------------------------------


cdef bint is_zero(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    return size == 0 or (data[0] == 0 and memcmp(data, data + 1, size - 1) == 0)


cdef int pass_damage(Walk* walk, int answer) noexcept nogil:
    """Go to the next whole record and note what lies between; WALK_MORE, or why the walk ends."""
    cdef Py_ssize_t at = walk.at, found
    cdef ArrowBuffer* room = &walk.rooms[ROOM_DAMAGE]
    cdef uint64_t* entry
    cdef uint64_t seq_found = walk.seq_stop if walk.seq_stop <= <uint64_t>INT64_MAX else 0
    cdef Record record
    cdef int state = WALK_MORE
    if answer == RECORD_NEWER:
        return WALK_NEWER
    found = next_whole(walk.block, at + 1, walk.stop, &walk.base, walk.seq_next, <uint64_t>INT64_MAX)
    if found < 0:
        state = WALK_DONE
        found = walk.stop
        if answer == RECORD_TORN or is_zero(walk.block + at, walk.stop - at):
            walk.torn = at
            walk.at = found
            return state
    elif record_decode(walk.block, found, walk.stop, &walk.base, &record) == 1:
        seq_found = record.seq
    if not buffer_reserve(room, DAMAGE_SIZE):
        return WALK_NO_MEMORY
    entry = <uint64_t*>(room.data + room.used)
    entry[0] = <uint64_t>at
    entry[1] = <uint64_t>(found - at)
    entry[2] = walk.seq_next
    entry[3] = max(walk.seq_next, seq_found)
    room.used += DAMAGE_SIZE
    walk.at = found
    return state


cdef inline bint is_dead(Walk* walk, SeqSet dead, uint64_t seq) noexcept nogil:
    """Whether `seq` was deleted; asked in rising order, so the set is searched once per range and not once per row."""
    if seq > walk.dead_range.last and not dead.next_range(seq, &walk.dead_range):
        walk.dead_range.first = walk.dead_range.last = 0xFFFFFFFFFFFFFFFFULL
    return seq >= walk.dead_range.first


cdef int walk_rows(Walk* walk, Row* rows, int count_max, Filters filters, SeqSet dead, int* state) noexcept nogil:
    """Verify records from walk.at on and note those that are rows, at most `count_max`; how many."""
    cdef Record record
    cdef const uint8_t* block = walk.block
    cdef Py_ssize_t at = walk.at, stop = walk.stop
    cdef bint is_filtered = filters is not None, has_dead = dead is not None
    cdef int64_t size
    cdef int count = 0, answer
    cdef Row* row
    state[0] = WALK_MORE
    while count < count_max:
        if at >= stop:
            state[0] = WALK_DONE
            break
        answer = record_decode(block, at, stop, &walk.base, &record)
        if answer != 1 or record.seq < walk.seq_next:
            walk.at = at
            state[0] = pass_damage(walk, answer)
            at = walk.at
            if state[0] != WALK_MORE:
                break
            continue
        # A control record names the next sequence to be given out, which may be the first of the next block.
        if record.seq >= walk.seq_stop and (record.kind <= KIND_SKIP or record.seq > walk.seq_stop):
            state[0] = WALK_DONE
            break
        if record.kind != KIND_MESSAGE:
            walk.seq_next = record.seq
            if record.kind == KIND_SKIP:
                walk.seq_next += min(record.value, <uint64_t>INT64_MAX - record.seq)
            at = record.stop
            continue
        if (record.seq >= walk.seq_min and not record.flags & FLAG_ERASED
                and walk.time_min <= record.time <= walk.time_max
                and not (has_dead and is_dead(walk, dead, record.seq))
                and not (is_filtered and not filters.matches(block + record.subject, record.subject_size))):
            size = (<int64_t>(record.subject_size & walk.subject_mask) + (record.headers_size & walk.headers_mask)
                    + (record.payload_size & walk.payload_mask))
            if walk.row_count and (walk.bytes + size > walk.bytes_max or walk.text_bytes > TEXT_BYTES_MAX
                                   - <int64_t>record.subject_size - <int64_t>record.headers_size):
                state[0] = WALK_FULL
                break
            walk.bytes += size
            walk.text_bytes += <int64_t>record.subject_size + <int64_t>record.headers_size
            walk.row_count += 1
            row = &rows[count]
            row.seq = record.seq
            row.time = record.time
            row.subject = block + record.subject
            row.headers = block + record.headers
            row.payload = block + record.payload
            row.subject_size = record.subject_size
            row.headers_size = record.headers_size
            row.payload_size = record.payload_size
            row.flags = record.flags
            count += 1
        walk.seq_next = record.seq + 1
        at = record.stop
    walk.at = at
    return count


# Columns: each takes one chunk of rows; False when memory is out ------------------------------------------------------


cdef bint put_seq(ArrowBuffer* room, const Row* rows, int count) noexcept nogil:
    cdef int64_t* out
    cdef int n
    if not buffer_reserve(room, count * 8):
        return False
    out = <int64_t*>(room.data + room.used)
    for n in range(count):
        out[n] = <int64_t>rows[n].seq
    room.used += count * 8
    return True


cdef bint put_ts_ns(ArrowBuffer* room, const Row* rows, int count) noexcept nogil:
    cdef int64_t* out
    cdef int n
    if not buffer_reserve(room, count * 8):
        return False
    out = <int64_t*>(room.data + room.used)
    for n in range(count):
        out[n] = rows[n].time
    room.used += count * 8
    return True


cdef bint put_ts(ArrowBuffer* room, const Row* rows, int count) noexcept nogil:
    """Microseconds, rounded down."""
    cdef int64_t* out
    cdef int64_t time
    cdef int n
    if not buffer_reserve(room, count * 8):
        return False
    out = <int64_t*>(room.data + room.used)
    for n in range(count):
        time = rows[n].time
        out[n] = time // 1000 - (time % 1000 < 0)
    room.used += count * 8
    return True


cdef bint put_subject(Walk* walk, const Row* rows, int count) noexcept nogil:
    cdef ArrowBuffer* offsets = &walk.rooms[ROOM_SUBJECT_OFFSETS]
    cdef ArrowBuffer* room = &walk.rooms[ROOM_SUBJECT]
    cdef const uint8_t* stop = walk.block + walk.stop
    cdef Py_ssize_t total = 0, begin = room.used
    cdef Py_ssize_t at = begin
    cdef int32_t* out
    cdef int n
    for n in range(count):
        total += rows[n].subject_size
    if not buffer_reserve(offsets, count * 4) or not buffer_reserve(room, total):
        return False
    out = <int32_t*>(offsets.data + offsets.used)
    for n in range(count):
        copy(room.data + at, rows[n].subject, rows[n].subject_size, stop)
        at += rows[n].subject_size
        out[n] = <int32_t>at
    if not is_ascii(room.data + begin, total):
        if not buffer_reserve(room, total * 4):
            return False
        at = begin
        for n in range(count):
            at += write_text(room.data + at, rows[n].subject, rows[n].subject_size)
            out[n] = <int32_t>at
    room.used = at
    offsets.used += count * 4
    return True


cdef bint put_payload(Walk* walk, const Row* rows, int count) noexcept nogil:
    cdef ArrowBuffer* offsets = &walk.rooms[ROOM_PAYLOAD_OFFSETS]
    cdef ArrowBuffer* room = &walk.rooms[ROOM_PAYLOAD]
    cdef const uint8_t* stop = walk.block + walk.stop
    cdef Py_ssize_t total = 0, at = room.used
    cdef int32_t* out
    cdef int n
    for n in range(count):
        total += rows[n].payload_size
    if not buffer_reserve(offsets, count * 4) or not buffer_reserve(room, total):
        return False
    out = <int32_t*>(offsets.data + offsets.used)
    for n in range(count):
        copy(room.data + at, rows[n].payload, rows[n].payload_size, stop)
        at += rows[n].payload_size
        out[n] = <int32_t>at
    room.used = at
    offsets.used += count * 4
    return True


cdef bint put_headers_raw(Walk* walk, const Row* rows, int count) noexcept nogil:
    cdef ArrowBuffer* offsets = &walk.rooms[ROOM_HEADERS_OFFSETS]
    cdef ArrowBuffer* room = &walk.rooms[ROOM_HEADERS]
    cdef Py_ssize_t total = 0, at = room.used
    cdef int32_t* out
    cdef int n
    for n in range(count):
        total += rows[n].headers_size
    if not buffer_reserve(offsets, count * 4) or not buffer_reserve(room, total):
        return False
    out = <int32_t*>(offsets.data + offsets.used)
    for n in range(count):
        memcpy(room.data + at, rows[n].headers, rows[n].headers_size)
        at += rows[n].headers_size
        out[n] = <int32_t>at
    room.used = at
    offsets.used += count * 4
    return True


cdef int64_t put_valid(ArrowBuffer* room, const Row* rows, int count, int64_t row_index) noexcept nogil:
    """One bit per row: it has headers. How many have none, or -1 when memory is out."""
    cdef Py_ssize_t size = (row_index + count + 7) // 8
    cdef int64_t null_count = 0, index
    cdef int n
    if not buffer_reserve(room, size - room.used):
        return -1
    memset(room.data + room.used, 0, size - room.used)
    room.used = size
    for n in range(count):
        if rows[n].flags & FLAG_HEADERS:
            index = row_index + n
            room.data[index >> 3] |= <uint8_t>(1 << (index & 7))
        else:
            null_count += 1
    return null_count


# Headers as a map: list offsets per message, keys, list offsets per key, values ---------------------------------------


cdef inline void put_text(ArrowBuffer* offsets, ArrowBuffer* room, const uint8_t* data, Py_ssize_t size, bint is_checked,
                          const uint8_t* stop) noexcept nogil:
    """One more text; the rooms have been made large enough."""
    if is_checked:
        room.used += write_text(room.data + room.used, data, size)
    else:
        copy(room.data + room.used, data, size, stop)
        room.used += size
    (<int32_t*>(offsets.data + offsets.used))[0] = <int32_t>room.used
    offsets.used += 4


cdef bint put_map(Walk* walk, const Row* row, bint is_checked) noexcept nogil:
    """The keys and values of one message."""
    cdef ArrowBuffer* keys = &walk.rooms[ROOM_KEYS]
    cdef ArrowBuffer* key_offsets = &walk.rooms[ROOM_KEY_OFFSETS]
    cdef ArrowBuffer* lists = &walk.rooms[ROOM_LIST_OFFSETS]
    cdef ArrowBuffer* values = &walk.rooms[ROOM_VALUES]
    cdef ArrowBuffer* value_offsets = &walk.rooms[ROOM_VALUE_OFFSETS]
    cdef const uint8_t* stop = walk.block + walk.stop
    cdef Py_ssize_t bytes_max = <Py_ssize_t>row.headers_size * (4 if is_checked else 1)
    cdef int count = split_lines(&walk.rooms[ROOM_LINES], row.headers, row.headers_size)
    cdef Line* lines = <Line*>walk.rooms[ROOM_LINES].data
    cdef int n, line
    if count < 0 or (count > 1 and group_lines(lines, count, &walk.rooms[ROOM_SLOTS]) < 0):
        return False
    if not (buffer_reserve(keys, bytes_max) and buffer_reserve(values, bytes_max) and buffer_reserve(key_offsets, count * 4)
            and buffer_reserve(lists, count * 4) and buffer_reserve(value_offsets, count * 4)):
        return False
    if count == 1:
        lines[0].next = -1
        lines[0].last = 0
    for n in range(count):
        if lines[n].last < 0:
            continue
        put_text(key_offsets, keys, lines[n].key, lines[n].key_size, is_checked, stop)
        line = n
        while line >= 0:
            put_text(value_offsets, values, lines[line].value, lines[line].value_size, is_checked, stop)
            line = lines[line].next
        (<int32_t*>(lists.data + lists.used))[0] = <int32_t>(value_offsets.used // 4 - 1)
        lists.used += 4
    return True


cdef bint put_headers(Walk* walk, const Row* rows, int count) noexcept nogil:
    cdef ArrowBuffer* offsets = &walk.rooms[ROOM_HEADERS_OFFSETS]
    cdef ArrowBuffer* keys = &walk.rooms[ROOM_KEYS]
    cdef ArrowBuffer* key_offsets = &walk.rooms[ROOM_KEY_OFFSETS]
    cdef ArrowBuffer* values = &walk.rooms[ROOM_VALUES]
    cdef Py_ssize_t before[5]
    cdef Py_ssize_t offsets_used = offsets.used
    cdef bint is_checked = False
    cdef int n, pass_index
    if not buffer_reserve(offsets, count * 4):
        return False
    for n in range(5):
        before[n] = walk.rooms[ROOM_KEY_OFFSETS + n].used
    # ASCII is taken as it is; where a chunk has anything else it is done again, character by character.
    for pass_index in range(2):
        for n in range(count):
            if rows[n].headers_size and not put_map(walk, &rows[n], is_checked):
                return False
            (<int32_t*>(offsets.data + offsets.used))[0] = <int32_t>(key_offsets.used // 4 - 1)
            offsets.used += 4
        if is_checked or (is_ascii(keys.data + before[1], keys.used - before[1])
                          and is_ascii(values.data + before[4], values.used - before[4])):
            break
        is_checked = True
        offsets.used = offsets_used
        for n in range(5):
            walk.rooms[ROOM_KEY_OFFSETS + n].used = before[n]
    return True


cdef bint put_stream(Walk* walk, const uint8_t* name, Py_ssize_t size) noexcept nogil:
    """The same text for every row."""
    cdef ArrowBuffer* offsets = &walk.rooms[ROOM_STREAM_OFFSETS]
    cdef ArrowBuffer* room = &walk.rooms[ROOM_STREAM]
    cdef Py_ssize_t total = size * walk.row_count, put = size
    cdef int32_t* out
    cdef int64_t n
    if not buffer_reserve(offsets, walk.row_count * 4) or not buffer_reserve(room, total):
        return False
    out = <int32_t*>(offsets.data + offsets.used)
    for n in range(walk.row_count):
        out[n] = <int32_t>((n + 1) * size)
    if total:
        memcpy(room.data, name, size)
        while put < total:                 # what is there doubles
            memcpy(room.data + put, room.data, min(put, total - put))
            put += min(put, total - put)
    offsets.used += walk.row_count * 4
    room.used = total
    return True


cdef bint open_offsets(ArrowBuffer* room) noexcept nogil:
    """Offsets begin with 0."""
    if not buffer_reserve(room, 4):
        return False
    (<int32_t*>room.data)[0] = 0
    room.used = 4
    return True


cdef int read_batch(Walk* walk, Filters filters, SeqSet dead, int columns, int64_t* null_count) noexcept nogil:
    """Rows into columns until the batch is full or the block is at its end: WALK_*."""
    cdef Row rows[CHUNK_ROWS]
    cdef Py_ssize_t start = walk.at
    cdef int64_t row_index = 0, nulls
    cdef int count, state = WALK_MORE, index
    for index in range(ROOM_DAMAGE):
        if index in (ROOM_STREAM_OFFSETS, ROOM_SUBJECT_OFFSETS, ROOM_PAYLOAD_OFFSETS, ROOM_HEADERS_OFFSETS,
                     ROOM_KEY_OFFSETS, ROOM_LIST_OFFSETS, ROOM_VALUE_OFFSETS):
            if not open_offsets(&walk.rooms[index]):
                return WALK_NO_MEMORY
    while state == WALK_MORE and row_index < walk.row_count_max:
        count = walk_rows(walk, rows, <int>min(<int64_t>CHUNK_ROWS, walk.row_count_max - row_index), filters, dead,
                          &state)
        if columns & COLUMN_SEQ and not put_seq(&walk.rooms[ROOM_SEQ], rows, count):
            return WALK_NO_MEMORY
        if columns & COLUMN_TS and not put_ts(&walk.rooms[ROOM_TS], rows, count):
            return WALK_NO_MEMORY
        if columns & COLUMN_TS_NS and not put_ts_ns(&walk.rooms[ROOM_TS_NS], rows, count):
            return WALK_NO_MEMORY
        if columns & COLUMN_SUBJECT and not put_subject(walk, rows, count):
            return WALK_NO_MEMORY
        if columns & COLUMN_PAYLOAD and not put_payload(walk, rows, count):
            return WALK_NO_MEMORY
        if columns & (COLUMN_HEADERS | COLUMN_HEADERS_RAW):
            nulls = put_valid(&walk.rooms[ROOM_HEADERS_VALID], rows, count, row_index)
            if nulls < 0:
                return WALK_NO_MEMORY
            null_count[0] += nulls
            if columns & COLUMN_HEADERS_RAW:
                if not put_headers_raw(walk, rows, count):
                    return WALK_NO_MEMORY
            elif not put_headers(walk, rows, count):
                return WALK_NO_MEMORY
        if row_index == 0 and state == WALK_MORE:
            rooms_predict(walk, start)
        row_index += count
    return state


# The door -------------------------------------------------------------------------------------------------------------


@cython.final
cdef class Columns:
    """One batch: the buffers of its columns, and where the next one begins.

    Always true: every row comes from a record whose checksum holds; buffers are as long as what they hold.
    """

    cdef readonly Py_ssize_t row_count
    cdef readonly Py_ssize_t next_offset
    cdef readonly bint finished
    cdef readonly list damage              # (offset, size)
    cdef readonly list gaps                # per damage: the sequences [start, stop) that it may have held
    cdef readonly object torn              # where the torn tail begins, or None
    cdef readonly object seq_next
    cdef readonly dict buffers
    cdef readonly Py_ssize_t headers_null_count

    def __init__(self):
        raise TypeError("made by read_columns")


cdef int64_t _clamp(object value, int64_t low, int64_t high):
    return max(low, min(high, value))


def read_columns(const unsigned char[::1] block not None, Py_ssize_t start, Py_ssize_t stop, *, base_seq=0, base_time=0,
                 salt=0, seq_next=0, min_seq=0, stop_seq=None, min_time=None, stop_time=None, Filters filters=None,
                 SeqSet dead=None, int columns=127, stream="", max_rows=65536, max_bytes=32 << 20,
                 Spares spares=None):
    """The next batch of the records in block[start:stop]; until `finished`, go on from its next_offset and seq_next.

    Rows are messages with min_seq <= seq < stop_seq and min_time <= time < stop_time (nanoseconds) that match `filters`
    and are neither erased nor in `dead`. `max_bytes` counts the subject, header and payload bytes that are asked for;
    a single larger row stands alone. `spares` lends the memory of earlier batches. RecordError: a record of a newer
    format.
    """
    cdef Columns batch = Columns.__new__(Columns)
    cdef Walk walk
    cdef bytes name = (stream.encode("utf-8", "surrogateescape") if isinstance(stream, str) else bytes(stream)).decode(
        "utf-8", "backslashreplace").encode()
    cdef const uint8_t* name_at = name
    cdef Py_ssize_t name_size = len(name)
    cdef int64_t null_count = 0
    cdef int state = WALK_DONE, index
    cdef uint64_t* entry
    if not 0 <= start <= stop <= block.shape[0]:
        raise ValueError(f"[{start}, {stop}) is not inside the {block.shape[0]} bytes given")
    if max_rows < 1 or not 1 <= max_bytes <= BATCH_BYTES_MAX:
        raise ValueError(f"max_rows={max_rows}, max_bytes={max_bytes}: at least 1, at most {BATCH_BYTES_MAX} bytes")
    if filters is not None and filters.is_all:
        filters = None
    memset(&walk, 0, sizeof(Walk))
    walk.at = start
    walk.stop = stop
    walk.base.seq = base_seq
    walk.base.time = base_time
    walk.base.salt = salt
    walk.seq_next = seq_next
    walk.seq_min = _clamp(min_seq, 0, INT64_MAX)
    walk.seq_stop = <uint64_t>INT64_MAX + 1 if stop_seq is None else <uint64_t>_clamp(stop_seq, 0, INT64_MAX)
    walk.time_min = INT64_MIN if min_time is None else _clamp(min_time, INT64_MIN, INT64_MAX)
    walk.time_max = INT64_MAX if stop_time is None else _clamp(stop_time - 1, INT64_MIN, INT64_MAX)
    walk.subject_mask = 0xFFFFFFFF if columns & COLUMN_SUBJECT else 0
    walk.headers_mask = 0xFFFFFFFF if columns & (COLUMN_HEADERS | COLUMN_HEADERS_RAW) else 0
    walk.payload_mask = 0xFFFFFFFF if columns & COLUMN_PAYLOAD else 0
    walk.bytes_max = max_bytes
    walk.row_count_max = min(max_rows, 0x7FFFFFFF // max(1, name_size), 1 << 26)
    walk.torn = -1
    if stop_time is not None and stop_time <= INT64_MIN:
        walk.seq_stop = 0                  # no time lies before that
    if dead is not None and (dead.leaf_count == 0 or not dead.next_range(0, &walk.dead_range)):
        dead = None
    if spares is not None:
        for index in range(ROOM_DAMAGE):
            spares.take(index, &walk.rooms[index])
    try:
        if start < stop:
            walk.block = &block[0]
        with nogil:
            state = read_batch(&walk, filters, dead, columns, &null_count)
            if state >= 0 and columns & COLUMN_STREAM and not put_stream(&walk, name_at, name_size):
                state = WALK_NO_MEMORY
        if state == WALK_NO_MEMORY:
            raise MemoryError
        if state == WALK_NEWER:
            raise RecordError(f"byte {walk.at}: a record of a newer format; use a newer penstock")
        batch.row_count = walk.row_count
        batch.next_offset = walk.at
        batch.finished = state == WALK_DONE or walk.at >= stop
        batch.seq_next = walk.seq_next
        batch.torn = walk.torn if walk.torn >= 0 else None
        batch.headers_null_count = null_count
        batch.damage = []
        batch.gaps = []
        for index in range(<int>(walk.rooms[ROOM_DAMAGE].used // DAMAGE_SIZE)):
            entry = <uint64_t*>(walk.rooms[ROOM_DAMAGE].data + index * DAMAGE_SIZE)
            batch.damage.append((entry[0], entry[1]))
            batch.gaps.append((entry[2], entry[3]))
        batch.buffers = take_buffers(&walk, columns, spares)
    finally:
        for index in range(ROOM_COUNT):
            free(walk.rooms[index].base)
    return batch


cdef tuple take_rooms(Walk* walk, Spares spares, kinds):
    return tuple([room_take(walk, kind, spares) for kind in kinds])


cdef dict take_buffers(Walk* walk, int columns, Spares spares):
    cdef dict taken = {}
    if columns & COLUMN_STREAM:
        taken["stream"] = take_rooms(walk, spares, (ROOM_STREAM_OFFSETS, ROOM_STREAM))
    if columns & COLUMN_SEQ:
        taken["seq"] = take_rooms(walk, spares, (ROOM_SEQ,))
    if columns & COLUMN_TS:
        taken["ts"] = take_rooms(walk, spares, (ROOM_TS,))
    if columns & COLUMN_TS_NS:
        taken["ts_ns"] = take_rooms(walk, spares, (ROOM_TS_NS,))
    if columns & COLUMN_SUBJECT:
        taken["subject"] = take_rooms(walk, spares, (ROOM_SUBJECT_OFFSETS, ROOM_SUBJECT))
    if columns & COLUMN_HEADERS_RAW:
        taken["headers"] = take_rooms(walk, spares, (ROOM_HEADERS_VALID, ROOM_HEADERS_OFFSETS, ROOM_HEADERS))
    elif columns & COLUMN_HEADERS:
        taken["headers"] = take_rooms(walk, spares, (
            ROOM_HEADERS_VALID, ROOM_HEADERS_OFFSETS, ROOM_KEY_OFFSETS, ROOM_KEYS, ROOM_LIST_OFFSETS,
            ROOM_VALUE_OFFSETS, ROOM_VALUES))
    if columns & COLUMN_PAYLOAD:
        taken["payload"] = take_rooms(walk, spares, (ROOM_PAYLOAD_OFFSETS, ROOM_PAYLOAD))
    return taken
