"""The rows that scan/columns.pyx makes of a block's bytes, in plain Python.

A row is a dict of stream, seq, ts (microseconds, rounded down), ts_ns, subject, headers and payload. Rules for damage:
docs/format.md, "Record"; for headers: penstock/wire/headers.py; text that is not UTF-8 shows as \\xNN.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.format.record import RecordError, decode, measure

MESSAGE, SKIP = 0, 1
SEQ_MAX = 2**63 - 1
TIME_MIN, TIME_STOP = -(2**63), 2**63


class _Filters(Protocol):
    def match(self, subject: bytes) -> bool: ...


class _Dead(Protocol):
    def __contains__(self, seq: int) -> bool: ...


@dataclass(slots=True)
class Rows:
    rows: list[dict[str, Any]] = field(default_factory=list)
    next_offset: int = 0
    finished: bool = False
    damage: list[tuple[int, int]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    torn: int | None = None
    seq_next: int = 0


def text_of(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def headers_of(raw: bytes | None) -> list[tuple[str, list[str]]] | None:
    """The header block as (key, values) pairs, each key once; None where there is none."""
    if raw is None:
        return None
    gathered: dict[bytes, list[str]] = {}
    for line in raw.split(b"\r\n")[1:]:
        if not line:
            break
        found = re.match(rb"([^\x00-\x20:\x7f]+): *(.*)", line, re.DOTALL)
        if found:
            gathered.setdefault(found[1], []).append(text_of(found[2]))
    return [(text_of(key), values) for key, values in gathered.items()]


def read_rows(
    block: bytes,
    start: int,
    stop: int,
    *,
    base_seq: int = 0,
    base_time: int = 0,
    salt: int = 0,
    seq_next: int = 0,
    min_seq: int = 0,
    stop_seq: int | None = None,
    min_time: int | None = None,
    stop_time: int | None = None,
    filters: _Filters | None = None,
    dead: _Dead | None = None,
    stream: str = "",
    max_rows: int = 65536,
    max_bytes: int = 32 << 20,
) -> Rows:
    """The next batch of rows; the same arguments and answers as read_columns with all columns."""
    data, out, used = bytes(block)[:stop], Rows(next_offset=start, seq_next=seq_next), 0
    seq_end = SEQ_MAX + 1 if stop_seq is None else stop_seq
    time_start = TIME_MIN if min_time is None else min_time
    time_end = TIME_STOP if stop_time is None else stop_time

    def whole(offset: int) -> dict[str, Any] | None:
        try:
            record = decode(data, offset, base_seq=base_seq, base_time=base_time, salt=salt)
        except RecordError as error:
            if "newer" in str(error):
                raise
            return None
        return record if record["seq"] >= out.seq_next else None

    while len(out.rows) < max_rows and not out.finished:
        at = out.next_offset
        if at >= stop:
            out.finished = True
            break
        record = whole(at)
        if record is None:
            _pass_damage(data, out, whole, stop_seq)
            continue
        seq, is_message = record["seq"], record["kind"] == MESSAGE
        if seq > seq_end or (seq == seq_end and record["kind"] <= SKIP):
            out.finished = True
            break
        if is_message and not record["erased"] and seq >= min_seq and time_start <= record["time"] < time_end:
            is_row = (dead is None or seq not in dead) and (filters is None or filters.match(record["subject"]))
            size = len(record["subject"]) + len(record["headers"] or b"") + len(record["payload"])
            if is_row and out.rows and used + size > max_bytes:
                break
            if is_row:
                used += size
                out.rows.append(_row(record, stream))
        if record["kind"] == SKIP:
            seq = min(seq + record["value"], SEQ_MAX)
        out.seq_next = seq + 1 if is_message else seq
        out.next_offset = record["stop"]
    out.finished = out.finished or out.next_offset >= stop
    return out


def _pass_damage(data: bytes, out: Rows, whole: Any, stop_seq: int | None) -> None:
    """Go to the next whole record whose sequence does not fall; what lies between is damaged."""
    at, found = out.next_offset, None
    for offset in range(at + 1, len(data)):
        try:
            record = whole(offset)
        except RecordError:
            continue  # of a newer kind: not taken for a record here
        if record is not None:
            found = record
            out.next_offset = offset
            break
    if found is None:
        out.next_offset, out.finished = len(data), True
        if _is_torn(data, at) or not any(data[at:]):
            out.torn = at
            return
    out.damage.append((at, out.next_offset - at))
    seq_found = found["seq"] if found is not None else stop_seq or 0
    out.gaps.append((out.seq_next, max(out.seq_next, seq_found)))


def _is_torn(data: bytes, at: int) -> bool:
    try:
        measure(data, at)
    except RecordError as error:
        return "passes the end" in str(error)
    return False


def _row(record: dict[str, Any], stream: str) -> dict[str, Any]:
    return {
        "stream": stream,
        "seq": record["seq"],
        "ts": record["time"] // 1000,
        "ts_ns": record["time"],
        "subject": text_of(record["subject"]),
        "headers": headers_of(record["headers"]),
        "raw_headers": record["headers"],
        "payload": record["payload"],
    }
