"""Bounds: what a number in a file may be at most, and how its sections lie. Rules: docs/format.md.

A checksum says that a file is as it was written, not that what it says is true. So every number is held against
these before anything is allocated, read or given out by it; a file that says otherwise does not hold.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import msgspec

SEQ_MAX = 2**63 - 1
ID_MAX = 2**62 - 1  # of blocks and files, epochs, consumers' numbers: one more can always be given out
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
LEAP_MAX = 2**40
"""So many sequences beyond what the blocks hold are believed: HEAD, the checkpoint and a consumer know of some that
a power cut took."""
MESSAGE_SIZE_MIN = 14  # bytes of the smallest message record: a block has no more rows than fit
_SPAN = struct.Struct("<QQ")


def read_spans(table: bytes | memoryview, start: int, stop: int, trailer: int) -> list[tuple[int, int]] | None:
    """(offset, size) of the sections that a table lists; None unless they follow each other from `start` to `stop`.

    Each is followed by `trailer` bytes, and the next begins at a multiple of 8: as they are written, and in no other
    way.
    """
    found, at = [], start
    for offset, size in _SPAN.iter_unpack(table):
        if offset != at or size > stop - at:
            return None
        found.append((offset, size))
        at += size + trailer
        at += -at % 8
    return found if at == stop else None


def ranges_hold(ranges: Iterable[tuple[int, int]], last_seq: int) -> bool:
    """Whether half open ranges rise, hold something, and end at or below `last_seq`."""
    low = 0
    for start, stop in ranges:
        if not low <= start < stop <= last_seq + 1:
            return False
        low = stop
    return True


def decode_json(body: bytes, kind: Any) -> Any:
    """JSON as a type has it; ValueError says what is wrong, however deep, large or odd it is."""
    try:
        return msgspec.json.decode(body, type=kind)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
