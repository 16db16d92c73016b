"""The records of a consumer log in plain Python. Layout and rules: docs/format.md, "Consumer log"."""

from __future__ import annotations

from dataclasses import dataclass, field

from twins.varint import read_varint, write_varint
from twins.xxh64 import xxh64_of

PUT, NOTE, REMOVE, END = 1, 2, 3, 4
KIND_MAX = 15  # what a newer version may write
NUMBER_MAX = 2**62 - 1  # one more can always be given out
SIZE_MIN, SIZE_MAX = 11, (64 << 20) + (64 << 10)
Record = tuple[int, int, int, int, bytes]  # offset, kind, number, count, body


def encode_record(kind: int, number: int, count: int, body: bytes, salt: int) -> bytes:
    rest = bytes([kind]) + write_varint(number) + write_varint(count) + body
    data = write_varint(len(rest) + 8) + rest
    return data + xxh64_of(data, salt).to_bytes(8, "little")


@dataclass(slots=True)
class ConsumerLogScan:
    records: list[Record] = field(default_factory=list)
    damage: list[tuple[int, int]] = field(default_factory=list)
    stop: int = 0
    torn: int = 0
    is_newer: bool = False


def whole_at(log: bytes, start: int, salt: int) -> tuple[Record, int] | None:
    """The record at `start` and where it ends, if one stands there."""
    size, at = read_varint(log, start)
    if at < 0 or not SIZE_MIN <= size <= min(SIZE_MAX, len(log) - at):
        return None
    end, kind = at + size, log[at]
    number, at = read_varint(log[: end - 8], at + 1)
    if at < 0 or not 1 <= kind <= KIND_MAX:
        return None
    count, at = read_varint(log[: end - 8], at)
    if max(number, count) > NUMBER_MAX:
        return None
    if at < 0 or xxh64_of(log[start : end - 8], salt) != int.from_bytes(log[end - 8 : end], "little"):
        return None
    return (start, kind, number, count, log[at : end - 8]), end


def scan_records(log: bytes, start: int, stop: int, salt: int) -> ConsumerLogScan:
    log, at = log[:stop], start
    scan = ConsumerLogScan(stop=start)
    while at < stop:
        found = next(((n, whole) for n in range(at, stop) if (whole := whole_at(log, n, salt)) is not None), None)
        if found is None:
            break
        offset, (record, end) = found
        if offset > at:
            scan.damage.append((at, offset - at))
        if record[1] > END:
            scan.is_newer = True
            return scan
        scan.records.append(record)
        at = scan.stop = end
    if log[scan.stop :].strip(b"\0"):
        scan.torn = stop - scan.stop
    return scan


def split_put(body: bytes) -> tuple[bytes, bytes]:
    """(meta, state) in the body of a put record."""
    size, at = read_varint(body, 0)
    if at < 0 or size > len(body) - at:
        raise ValueError("a put record whose meta is longer than itself")
    return body[at : at + size], body[at + size :]
