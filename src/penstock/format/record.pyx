"""One record as Python sees it: encode, measure, decode. Layout: docs/format.md, "Record".

Production code works on the inline functions of record.pxd; this is their door, for tools and tests.
"""
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize

from penstock.format.constants cimport FLAG_MSG_ID, FLAG_TTL


class RecordError(ValueError):
    """Bytes that are no whole record: the text names the offset and the reason."""


cdef Base _base(uint64_t base_seq, int64_t base_time, uint64_t salt):
    cdef Base base
    base.seq = base_seq
    base.time = base_time
    base.salt = salt
    return base


def encode_message(seq, time, bytes subject not None, bytes headers, bytes payload not None, *, base_seq=0,
                   base_time=0, salt=0, has_ttl=False, has_msg_id=False, erased=False):
    """The bytes of a message record; `headers` None means that it has none."""
    cdef Base base = _base(base_seq, base_time, salt)
    cdef uint64_t seq_delta = seq - base_seq
    cdef int64_t when = time
    cdef uint64_t time_zigzag = zigzag(<int64_t>(<uint64_t>when - <uint64_t>base.time))
    cdef bint has_headers = headers is not None
    cdef bytes head = headers if has_headers else b""
    cdef uint64_t body_size, checksum
    if len(subject) > SUBJECT_SIZE_MAX:
        raise RecordError(f"subject of {len(subject)} bytes: at most {SUBJECT_SIZE_MAX} fit")
    if len(subject) + len(head) + len(payload) > RECORD_SIZE_MAX - 65536:
        raise RecordError(f"message of {len(head) + len(payload)} bytes: at most {RECORD_SIZE_MAX - 131072} fit")
    cdef uint8_t flags = KIND_MESSAGE
    if has_headers:
        flags |= FLAG_HEADERS
    if erased:
        flags |= FLAG_ERASED
    if has_ttl:
        flags |= FLAG_TTL
    if has_msg_id:
        flags |= FLAG_MSG_ID
    cdef Py_ssize_t size = message_size(seq_delta, time_zigzag, <uint32_t>len(subject), <uint32_t>len(head), has_headers,
                                        <uint32_t>len(payload), &body_size)
    out = PyBytes_FromStringAndSize(NULL, size)
    message_write(<uint8_t*>PyBytes_AsString(out), &base, seq_delta, time_zigzag, flags, subject, <uint32_t>len(subject), head,
                  <uint32_t>len(head), payload, <uint32_t>len(payload), body_size, &checksum)
    return out


def encode_control(kind, reason, seq, time, value, ranges=(), *, base_seq=0, base_time=0, salt=0):
    """The bytes of a skip, delete, erase or floor record; `ranges` are half open, ascending, for delete."""
    cdef Base base = _base(base_seq, base_time, salt)
    cdef bytearray body = bytearray()
    cdef uint8_t scratch[20]
    cdef Py_ssize_t at
    cdef uint64_t position = 0, checksum
    if kind == KIND_DELETE:
        value = len(ranges)
        if value > DELETE_RANGES_MAX:
            raise RecordError(f"{value} ranges: a delete record holds at most {DELETE_RANGES_MAX}")
        for start, stop in ranges:
            if start < position or stop <= start:
                raise RecordError(f"range [{start}, {stop}): ranges ascend and are not empty")
            at = write_varint(scratch, 0, start - position)
            at = write_varint(scratch, at, stop - start)
            body += scratch[:at]
            position = stop
    out = PyBytes_FromStringAndSize(NULL, 64 + len(body))
    cdef bytes packed = bytes(body)
    at = control_write(<uint8_t*>PyBytes_AsString(out), &base, kind, reason, seq, time, value, packed, len(packed), &checksum)
    return out[:at]


def measure(const unsigned char[::1] block not None, Py_ssize_t start=0):
    """Offset just past the record at `start`, from its size field alone."""
    cdef Py_ssize_t body = 0, stop = block.shape[0], end
    if not 0 <= start < stop:
        raise RecordError(f"byte {start}: outside the {stop} bytes given")
    end = record_measure(&block[0], start, stop, &body)
    if end <= 0:
        raise RecordError(f"byte {start}: {'the record passes the end' if end == RECORD_TORN else 'its size lies'}")
    return end


def decode(const unsigned char[::1] block not None, Py_ssize_t start=0, *, base_seq=0, base_time=0, salt=0):
    """The record at `start` as a dict: kind, seq, time, stop and its own fields; RecordError names place and reason."""
    cdef Base base = _base(base_seq, base_time, salt)
    cdef Record record
    cdef Py_ssize_t stop = block.shape[0], at
    cdef uint64_t gap, length, position = 0
    cdef int answer
    if not 0 <= start < stop:
        raise RecordError(f"byte {start}: outside the {stop} bytes given")
    answer = record_decode(&block[0], start, stop, &base, &record)
    if answer == RECORD_TORN:
        raise RecordError(f"byte {start}: the record passes the end of the {stop} bytes given")
    if answer == RECORD_NEWER:
        raise RecordError(f"byte {start}: kind {record.kind} is of a newer format; use a newer penstock")
    if answer == RECORD_BAD:
        raise RecordError(f"byte {start}: the checksum differs or a length lies")
    view = memoryview(block)
    found = {"kind": record.kind, "seq": record.seq, "time": record.time, "stop": record.stop, "checksum": record.checksum}
    if record.kind == KIND_MESSAGE:
        found["subject"] = bytes(view[record.subject:record.subject + record.subject_size])
        found["headers"] = (bytes(view[record.headers:record.headers + record.headers_size])
                            if record.flags & FLAG_HEADERS else None)
        found["payload"] = bytes(view[record.payload:record.payload + record.payload_size])
        found["erased"] = bool(record.flags & FLAG_ERASED)
        found["has_ttl"] = bool(record.flags & FLAG_TTL)
        found["has_msg_id"] = bool(record.flags & FLAG_MSG_ID)
        return found
    found["reason"] = record.reason
    found["value"] = record.value
    if record.kind == KIND_DELETE:
        ranges = []
        at = record.ranges
        for _ in range(record.value):
            at = read_varint(&block[0], at, stop, &gap)
            at = read_varint(&block[0], at, stop, &length)
            position += gap
            ranges.append((position, position + length))
            position += length
        found["ranges"] = ranges
    return found
