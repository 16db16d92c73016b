"""One record in plain Python: encode, measure, decode. Layout: docs/format.md, "Record"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twins.varint import read_varint, unzigzag, write_varint, zigzag
from twins.xxh64 import xxh64_of

MESSAGE, SKIP, DELETE, ERASE, FLOOR = range(5)
KIND_MASK, HEADERS, ERASED, TTL, MSG_ID, UNUSED = 7, 8, 16, 32, 64, 128
BODY_SIZE_MIN = 11  # flags, seq, time and checksum
RECORD_SIZE_MAX = (64 << 20) + (64 << 10)
SUBJECT_SIZE_MAX = 65535
DELETE_RANGES_MAX = 4096
REASON_MAX = 12  # skipped
SEQ_MAX = 2**63 - 1
TORN, BAD, NEWER = "torn", "bad", "newer"


class RecordError(ValueError):
    """Bytes that are no whole record: the text names the offset and the reason."""


def encode_message(
    seq: int,
    time: int,
    subject: bytes,
    headers: bytes | None,
    payload: bytes,
    *,
    base_seq: int = 0,
    base_time: int = 0,
    salt: int = 0,
    has_ttl: bool = False,
    has_msg_id: bool = False,
    erased: bool = False,
) -> bytes:
    """The bytes of a message record; `headers` None means that it has none."""
    if len(subject) > SUBJECT_SIZE_MAX:
        raise RecordError(f"subject of {len(subject)} bytes: at most {SUBJECT_SIZE_MAX} fit")
    if len(subject) + len(headers or b"") + len(payload) > RECORD_SIZE_MAX - 65536:
        raise RecordError(f"message of {len(headers or b'') + len(payload)} bytes does not fit")
    flags = MESSAGE | (HEADERS if headers is not None else 0) | (ERASED if erased else 0)
    flags |= (TTL if has_ttl else 0) | (MSG_ID if has_msg_id else 0)
    body = write_varint(len(subject)) + subject
    if headers is not None:
        body += write_varint(len(headers)) + headers
    return _finish(flags, seq - base_seq, time - base_time, body + payload, salt)


def encode_control(
    kind: int,
    reason: int,
    seq: int,
    time: int,
    value: int,
    ranges: Sequence[tuple[int, int]] = (),
    *,
    base_seq: int = 0,
    base_time: int = 0,
    salt: int = 0,
) -> bytes:
    """The bytes of a skip, delete, erase or floor record; `ranges` are half open, ascending, for delete."""
    body, position = b"", 0
    if kind == DELETE:
        value = len(ranges)
        if value > DELETE_RANGES_MAX:
            raise RecordError(f"{value} ranges: a delete record holds at most {DELETE_RANGES_MAX}")
        for start, stop in ranges:
            if start < position or stop <= start:
                raise RecordError(f"range [{start}, {stop}): ranges ascend and are not empty")
            body += write_varint(start - position) + write_varint(stop - start)
            position = stop
    return _finish(kind, seq - base_seq, time - base_time, bytes([reason]) + write_varint(value) + body, salt)


def _finish(flags: int, seq_delta: int, time_delta: int, body: bytes, salt: int) -> bytes:
    if not 0 <= seq_delta < 2**64:
        raise OverflowError(f"{seq_delta} is no difference of sequences")
    inner = bytes([flags]) + write_varint(seq_delta) + write_varint(zigzag(_signed(time_delta))) + body
    record = write_varint(len(inner) + 8) + inner
    return record + xxh64_of(record, salt).to_bytes(8, "little")


def _signed(value: int) -> int:
    """A number of 64 bits as it wraps around."""
    return (value + 2**63) % 2**64 - 2**63


def measure_at(block: bytes, start: int, stop: int) -> tuple[str, int, int]:
    """("", flags' offset, offset past the record), or why not."""
    size, at = read_varint(block, start, stop)
    if at < 0:
        return (TORN if stop - start < 5 else BAD), 0, 0
    if not BODY_SIZE_MIN <= size <= RECORD_SIZE_MAX:
        return BAD, 0, 0
    return ("", at, at + size) if size <= stop - at else (TORN, 0, 0)


def decode_at(
    block: bytes, start: int, stop: int, base_seq: int, base_time: int, salt: int
) -> tuple[str, dict[str, Any]]:
    """("", the record's fields), or why there is none."""
    why, at, end = measure_at(block, start, stop)
    if why:
        return why, {}
    checksum = int.from_bytes(block[end - 8 : end], "little")
    if xxh64_of(block[start : end - 8], salt) != checksum:
        return BAD, {}
    return _fields(block, at, end, base_seq, base_time, checksum)


def _fields(
    block: bytes, body: int, stop: int, base_seq: int, base_time: int, checksum: int
) -> tuple[str, dict[str, Any]]:
    end, flags = stop - 8, block[body]
    kind = flags & KIND_MASK
    seq, at = read_varint(block, body + 1, end)
    if at < 0 or seq > SEQ_MAX - base_seq:
        return BAD, {}
    time, at = read_varint(block, at, end)
    if at < 0:
        return BAD, {}
    found: dict[str, Any] = {
        "kind": kind,
        "seq": base_seq + seq,
        "time": _signed(base_time + unzigzag(time)),
        "stop": stop,
        "checksum": checksum,
    }
    if flags & UNUSED or kind > FLOOR:
        return NEWER, found
    if kind == MESSAGE:
        return _message_fields(block, at, end, flags, found)
    if at >= end:
        return BAD, {}
    found["reason"] = block[at]
    if found["reason"] > REASON_MAX:
        return NEWER, found
    found["value"], at = read_varint(block, at + 1, end)
    if at < 0 or (kind != DELETE and (at != end or found["value"] > SEQ_MAX)):
        return BAD, {}
    if kind == SKIP and not 0 < found["value"] <= SEQ_MAX - found["seq"]:
        return BAD, {}
    if kind == DELETE:
        ranges = _ranges(block, at, end, found["value"])
        if ranges is None:
            return BAD, {}
        found["ranges"] = ranges
    return "", found


def _message_fields(block: bytes, at: int, end: int, flags: int, found: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    size, at = read_varint(block, at, end)
    if at < 0 or size > SUBJECT_SIZE_MAX or size > end - at:
        return BAD, {}
    found["subject"], at = block[at : at + size], at + size
    found["headers"] = None
    if flags & HEADERS:
        size, at = read_varint(block, at, end)
        if at < 0 or size > end - at:
            return BAD, {}
        found["headers"], at = block[at : at + size], at + size
    found["payload"] = block[at:end]
    found["erased"], found["has_ttl"], found["has_msg_id"] = (bool(flags & one) for one in (ERASED, TTL, MSG_ID))
    return "", found


def _ranges(block: bytes, at: int, end: int, count: int) -> list[tuple[int, int]] | None:
    """A delete record's ranges, which take exactly the bytes up to `end`."""
    found, position = [], 0
    if count > DELETE_RANGES_MAX:
        return None
    for _ in range(count):
        gap, at = read_varint(block, at, end)
        if at < 0 or gap > SEQ_MAX - position:
            return None
        position += gap
        length, at = read_varint(block, at, end)
        if at < 0 or not 0 < length <= SEQ_MAX - position:
            return None
        found.append((position, position + length))
        position += length
    return found if at == end else None


def measure(block: bytes, start: int = 0) -> int:
    """Offset just past the record at `start`, from its size field alone."""
    block = _checked(block, start)
    why, _, end = measure_at(block, start, len(block))
    if why:
        raise RecordError(f"byte {start}: {'the record passes the end' if why == TORN else 'its size lies'}")
    return end


def decode(block: bytes, start: int = 0, *, base_seq: int = 0, base_time: int = 0, salt: int = 0) -> dict[str, Any]:
    """The record at `start` as a dict: kind, seq, time, stop and its own fields; RecordError names place and reason."""
    block = _checked(block, start)
    why, found = decode_at(block, start, len(block), base_seq, base_time, salt)
    if why == TORN:
        raise RecordError(f"byte {start}: the record passes the end of the {len(block)} bytes given")
    if why == NEWER:
        raise RecordError(f"byte {start}: kind {found['kind']} is of a newer format; use a newer penstock")
    if why == BAD:
        raise RecordError(f"byte {start}: the checksum differs or a length lies")
    return found


def _checked(block: bytes, start: int) -> bytes:
    block = bytes(block)
    if not 0 <= start < len(block):
        raise RecordError(f"byte {start}: outside the {len(block)} bytes given")
    return block
