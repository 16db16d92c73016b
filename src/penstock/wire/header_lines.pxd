# The lines of a header block, and which of them have the same key. Rules: penstock/headers.py.
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memset

from penstock.base.arrow_buffer cimport ArrowBuffer, buffer_reserve
from penstock.base.xxh64 cimport xxh64

cdef enum:
    LINES_LINEAR_MAX = 16                  # more headers than this in one message are grouped by hash

cdef struct Line:                          # one header of a message
    const uint8_t* key
    const uint8_t* value
    uint32_t key_size
    uint32_t value_size
    int32_t next                           # the next line with the same key, -1: none
    int32_t last                           # of the first line of a key: its last line; -1: not a first line


cdef inline const uint8_t* line_end(const uint8_t* at, const uint8_t* stop) noexcept nogil:
    """Where the next CR LF stands, or `stop`."""
    while at < stop:
        at = <const uint8_t*>memchr(at, c"\r", stop - at)
        if at == NULL:
            return stop
        if stop - at >= 2 and at[1] == c"\n":
            return at
        at += 1
    return stop


cdef inline int split_lines(ArrowBuffer* buffer, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """The `Key: Value` lines of a header block into `buffer` as Line; how many, or -1 when memory is out."""
    cdef const uint8_t* stop = data + size
    cdef const uint8_t* at = line_end(data, stop)
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef const uint8_t* end
    cdef Line* line
    buffer.used = 0
    at = at + 2 if at < stop else stop     # the version line is not a header
    while at < stop:
        key = at
        while at < stop and at[0] > 0x20 and at[0] != c":" and at[0] != 0x7F:
            at += 1
        end = line_end(at, stop)
        if at == key and end == at:
            break                          # the blank line that ends the block
        if at > key and at < stop and at[0] == c":":
            value = at + 1
            while value < end and value[0] == c" ":
                value += 1
            if not buffer_reserve(buffer, sizeof(Line)):
                return -1
            line = <Line*>(buffer.data + buffer.used)
            line.key = key
            line.key_size = <uint32_t>(at - key)
            line.value = value
            line.value_size = <uint32_t>(end - value)
            buffer.used += sizeof(Line)
        at = end + 2 if end < stop else stop
    return <int>(buffer.used // <Py_ssize_t>sizeof(Line))


cdef inline bint _is_same_key(const Line* a, const Line* b) noexcept nogil:
    return a.key_size == b.key_size and memcmp(a.key, b.key, a.key_size) == 0


cdef inline int group_lines(Line* lines, int count, ArrowBuffer* slots) noexcept nogil:
    """Link lines of the same key; how many keys, or -1 when memory is out."""
    cdef int32_t* table
    cdef int32_t first
    cdef Py_ssize_t size = 64, slot = 0
    cdef int n, key_count = 0
    if count > LINES_LINEAR_MAX:
        while size < 2 * count:
            size *= 2
        slots.used = 0
        if not buffer_reserve(slots, size * 4):
            return -1
        memset(slots.data, 0xFF, size * 4)
    table = <int32_t*>slots.data
    for n in range(count):
        lines[n].next = -1
        lines[n].last = n
        if count > LINES_LINEAR_MAX:
            slot = <Py_ssize_t>(xxh64(lines[n].key, lines[n].key_size, 0) & <uint64_t>(size - 1))
            while table[slot] >= 0 and not _is_same_key(&lines[table[slot]], &lines[n]):
                slot = (slot + 1) & (size - 1)
            first = table[slot] if table[slot] >= 0 else n
            table[slot] = first
        else:
            first = 0
            while first < n and not (lines[first].last >= 0 and _is_same_key(&lines[first], &lines[n])):
                first += 1
        if first == n:
            key_count += 1
        else:
            lines[lines[first].last].next = n
            lines[first].last = n
            lines[n].last = -1
    return key_count
