# One record: measured, decoded, encoded. Layout: docs/format.md, "Record".
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from penstock.format.constants cimport (
    BODY_SIZE_MIN, DELETE_RANGES_MAX, FLAG_ERASED, FLAG_HEADERS, FLAGS_UNUSED, KIND_DELETE, KIND_ERASE, KIND_FLOOR,
    KIND_MASK, KIND_MESSAGE, KIND_SKIP, REASON_SKIPPED, RECORD_SIZE_MAX, SUBJECT_SIZE_MAX,
)
from penstock.base.varint cimport read_varint, unzigzag, varint_size, write_varint, zigzag
from penstock.base.xxh64 cimport xxh64, xxh64_copying

cdef enum:
    RECORD_TORN = 0                        # passes the end of the buffer
    RECORD_BAD = -1                        # a size that lies, a checksum that differs
    RECORD_NEWER = -2                      # whole, but of a kind that this version does not know

cdef struct Base:
    uint64_t seq                           # records hold differences to these
    int64_t time
    uint64_t salt

cdef struct Record:
    Py_ssize_t start                       # offset of the record
    Py_ssize_t stop                        # offset past it
    uint64_t seq                           # absolute; for delete, erase and floor the next sequence
    int64_t time
    uint64_t checksum
    Py_ssize_t subject
    Py_ssize_t headers
    Py_ssize_t payload
    uint32_t subject_size
    uint32_t headers_size
    uint32_t payload_size
    uint8_t flags
    uint8_t kind
    uint8_t reason
    uint64_t value                         # skip: count · delete: ranges · erase: target · floor: floor
    Py_ssize_t ranges                      # delete: offset of the first range


cdef inline Py_ssize_t record_measure(const uint8_t* block, Py_ssize_t start, Py_ssize_t stop,
                                      Py_ssize_t* body) noexcept nogil:
    """Offset past the record at `start` by its size field alone; RECORD_TORN or RECORD_BAD."""
    cdef uint64_t size
    cdef Py_ssize_t at = read_varint(block, start, stop, &size)
    if at < 0:
        return RECORD_TORN if stop - start < 5 else RECORD_BAD
    if size < BODY_SIZE_MIN or size > RECORD_SIZE_MAX:
        return RECORD_BAD
    if size > <uint64_t>(stop - at):
        return RECORD_TORN
    body[0] = at
    return at + <Py_ssize_t>size


cdef inline int record_fields(const uint8_t* block, Py_ssize_t body, Py_ssize_t stop, const Base* base,
                              Record* out) noexcept nogil:
    """Take apart the whole record whose flags byte stands at `body`; 1, RECORD_BAD or RECORD_NEWER."""
    cdef Py_ssize_t end = stop - 8
    cdef uint64_t value
    cdef Py_ssize_t at = body + 1
    out.flags = block[body]
    out.kind = out.flags & KIND_MASK
    at = read_varint(block, at, end, &value)
    if at < 0 or value > 0x7FFFFFFFFFFFFFFFULL - base.seq:
        return RECORD_BAD
    out.seq = base.seq + value
    at = read_varint(block, at, end, &value)
    if at < 0:
        return RECORD_BAD
    out.time = <int64_t>(<uint64_t>base.time + <uint64_t>unzigzag(value))
    out.stop = stop
    if out.flags & FLAGS_UNUSED:
        return RECORD_NEWER
    if out.kind == KIND_MESSAGE:
        at = read_varint(block, at, end, &value)
        if at < 0 or value > SUBJECT_SIZE_MAX or <Py_ssize_t>value > end - at:
            return RECORD_BAD
        out.subject = at
        out.subject_size = <uint32_t>value
        at += <Py_ssize_t>value
        out.headers = at
        out.headers_size = 0
        if out.flags & FLAG_HEADERS:
            at = read_varint(block, at, end, &value)
            if at < 0 or <Py_ssize_t>value > end - at or value > RECORD_SIZE_MAX:
                return RECORD_BAD
            out.headers = at
            out.headers_size = <uint32_t>value
            at += <Py_ssize_t>value
        out.payload = at
        out.payload_size = <uint32_t>(end - at)
        return 1
    out.subject_size = out.headers_size = out.payload_size = 0
    if out.kind > KIND_FLOOR:
        return RECORD_NEWER
    if at >= end:
        return RECORD_BAD
    out.reason = block[at]
    if out.reason > REASON_SKIPPED:
        return RECORD_NEWER
    at = read_varint(block, at + 1, end, &out.value)
    if at < 0:
        return RECORD_BAD
    out.ranges = at
    if out.kind == KIND_DELETE:
        if out.value > DELETE_RANGES_MAX or not _ranges_whole(block, at, end, out.value):
            return RECORD_BAD
    elif at != end or out.value > 0x7FFFFFFFFFFFFFFFULL:
        return RECORD_BAD
    elif out.kind == KIND_SKIP and (out.value == 0 or out.value > 0x7FFFFFFFFFFFFFFFULL - out.seq):
        return RECORD_BAD
    return 1


cdef inline bint _ranges_whole(const uint8_t* block, Py_ssize_t at, Py_ssize_t end, uint64_t count) noexcept nogil:
    cdef uint64_t gap, length, position = 0
    while count:
        at = read_varint(block, at, end, &gap)
        if at < 0 or gap > 0x7FFFFFFFFFFFFFFFULL - position:
            return False
        position += gap
        at = read_varint(block, at, end, &length)
        if at < 0 or length == 0 or length > 0x7FFFFFFFFFFFFFFFULL - position:
            return False
        position += length
        count -= 1
    return at == end


cdef inline int record_decode(const uint8_t* block, Py_ssize_t start, Py_ssize_t stop, const Base* base,
                              Record* out) noexcept nogil:
    """Measure, verify and take apart the record at `start`: 1, or why not."""
    cdef Py_ssize_t body = 0
    cdef Py_ssize_t end = record_measure(block, start, stop, &body)
    cdef uint64_t checksum
    if end <= 0:
        return <int>end
    memcpy(&checksum, block + end - 8, 8)
    if xxh64(block + start, end - 8 - start, base.salt) != checksum:
        return RECORD_BAD
    out.start = start
    out.checksum = checksum
    return record_fields(block, body, end, base, out)


cdef inline Py_ssize_t message_size(uint64_t seq_delta, uint64_t time_zigzag, uint32_t subject_size,
                                    uint32_t headers_size, bint has_headers, uint32_t payload_size,
                                    uint64_t* body_size) noexcept nogil:
    """Bytes that the message's record takes; `body_size` gets what its size field says."""
    cdef uint64_t size = (1 + varint_size(seq_delta) + varint_size(time_zigzag) + varint_size(subject_size)
                          + subject_size + <uint64_t>payload_size + 8)
    if has_headers:
        size += varint_size(headers_size) + <uint64_t>headers_size
    body_size[0] = size
    return <Py_ssize_t>(size + varint_size(size))


cdef inline Py_ssize_t message_write(uint8_t* out, const Base* base, uint64_t seq_delta, uint64_t time_zigzag,
                                     uint8_t flags, const uint8_t* subject, uint32_t subject_size,
                                     const uint8_t* headers, uint32_t headers_size, const uint8_t* payload,
                                     uint32_t payload_size, uint64_t body_size, uint64_t* checksum) noexcept nogil:
    """Write a message record at `out`, which has room for it, and return its size."""
    cdef Py_ssize_t at = write_varint(out, 0, body_size)
    out[at] = flags
    at = write_varint(out, at + 1, seq_delta)
    at = write_varint(out, at, time_zigzag)
    at = write_varint(out, at, subject_size)
    memcpy(out + at, subject, subject_size)
    at += subject_size
    if flags & FLAG_HEADERS:
        at = write_varint(out, at, headers_size)
        memcpy(out + at, headers, headers_size)
        at += headers_size
    checksum[0] = xxh64_copying(out, at, payload, payload_size, base.salt)
    at += payload_size
    memcpy(out + at, checksum, 8)
    return at + 8


cdef inline Py_ssize_t control_write(uint8_t* out, const Base* base, uint8_t kind, uint8_t reason, uint64_t seq,
                                     int64_t time, uint64_t value, const uint8_t* ranges, Py_ssize_t ranges_size,
                                     uint64_t* checksum) noexcept nogil:
    """Write a skip, delete, erase or floor record; needs 64 + ranges_size bytes of room. Returns its size."""
    cdef uint64_t time_zigzag = zigzag(<int64_t>(<uint64_t>time - <uint64_t>base.time))
    cdef uint64_t body_size = (1 + varint_size(seq - base.seq) + varint_size(time_zigzag) + 1 + varint_size(value)
                               + <uint64_t>ranges_size + 8)
    cdef Py_ssize_t at = write_varint(out, 0, body_size)
    out[at] = kind
    at = write_varint(out, at + 1, seq - base.seq)
    at = write_varint(out, at, time_zigzag)
    out[at] = reason
    at = write_varint(out, at + 1, value)
    if ranges_size:
        memcpy(out + at, ranges, ranges_size)
        at += ranges_size
    checksum[0] = xxh64(out, at, base.salt)
    memcpy(out + at, checksum, 8)
    return at + 8


cdef inline uint32_t reference_size(uint32_t subject_size, uint32_t headers_size, uint32_t payload_size,
                                    bint in_memory) noexcept nogil:
    """What a message counts for limits: behaviours F6."""
    if in_memory:
        return subject_size + headers_size + payload_size + 16
    return 30 + subject_size + payload_size + (4 + headers_size if headers_size else 0)
