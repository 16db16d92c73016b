"""Checkpoint: the state of a stream at one position, written whole. Layout: docs/format.md, "CHECKPOINT"."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.base.xxh64 import xxh64_of
from penstock.format.bounds import ID_MAX, SEQ_MAX, ranges_hold, read_spans
from penstock.format.constants import CHECKPOINT_FIXED_SIZE, CHECKPOINT_MAGIC
from penstock.format.table_check import blocks_fault, subjects_fault
from penstock.store.index.summary import NUMBER_STOP

_FIXED = struct.Struct("<8s16sQQQQQqqQQQQ")
_SPAN = struct.Struct("<QQ")
_BLOCK = struct.Struct("<13Q3q4I")
_EXPIRY = struct.Struct("<Qq")
_COUNT = struct.Struct("<Q")
DENSE = 1 << 63  # in `generation`: the sequences of the rows run without a gap

Range = tuple[int, int]
RawRow = tuple[tuple[int, ...], bytes, bytes]


@dataclass(frozen=True, slots=True)
class BlockRow:
    """A block as the checkpoint lists it."""

    block_id: int
    generation: int
    first_seq: int
    last_seq: int
    seq_base: int
    base_seq: int
    salt: int
    size: int
    message_bytes: int
    live_bytes: int
    target_low: int
    target_high: int
    last_checksum: int
    base_time: int
    time_min: int
    time_max: int
    rows: int
    live: int
    is_dense: bool
    dead: bytes = b""
    subject_filter: bytes = b""


@dataclass(slots=True)
class Checkpoint:
    stream_id: bytes
    epoch: int
    block_id: int
    offset: int
    first_seq: int
    last_seq: int
    num_subjects: int
    last_time: int
    messages: int
    message_bytes: int
    numbering: int
    floor: int
    blocks: list[BlockRow] = field(default_factory=list)
    subjects: bytes | memoryview = b""
    expiries: list[tuple[int, int]] = field(default_factory=list)
    skips: list[Range] = field(default_factory=list)
    lost: list[Range] = field(default_factory=list)

    def encode(self) -> bytearray:
        rows, dead, filters = bytearray(), bytearray(), bytearray()
        for b in self.blocks:
            rows += _BLOCK.pack(
                b.block_id,
                b.generation | (DENSE if b.is_dense else 0),
                b.first_seq,
                b.last_seq,
                b.seq_base,
                b.base_seq,
                b.salt,
                b.size,
                b.message_bytes,
                b.live_bytes,
                b.target_low,
                b.target_high,
                b.last_checksum,
                b.base_time,
                b.time_min,
                b.time_max,
                b.rows,
                b.live,
                len(b.dead),
                len(b.subject_filter),
            )
            dead += b.dead
            filters += b.subject_filter
        expiries = b"".join(_EXPIRY.pack(*one) for one in self.expiries)
        skips = b"".join(
            _COUNT.pack(len(ranges)) + b"".join(_SPAN.pack(*one) for one in ranges)
            for ranges in (self.skips, self.lost)
        )
        # Of many subjects it is large: every byte is copied once.
        sections = [memoryview(section) for section in (rows, dead, self.subjects, expiries, filters, skips)]
        spans = bytearray()
        at = CHECKPOINT_FIXED_SIZE
        for section in sections:
            spans += _SPAN.pack(at, len(section))
            at += len(section) + -len(section) % 8
        out = bytearray(at + _COUNT.size)
        _FIXED.pack_into(
            out,
            0,
            CHECKPOINT_MAGIC,
            self.stream_id,
            self.epoch,
            self.block_id,
            self.offset,
            self.first_seq,
            self.last_seq,
            self.num_subjects,
            self.last_time,
            self.messages,
            self.message_bytes,
            self.numbering,
            self.floor,
        )
        out[_FIXED.size : _FIXED.size + len(spans)] = spans
        at = CHECKPOINT_FIXED_SIZE
        for section in sections:
            out[at : at + len(section)] = section
            at += len(section) + -len(section) % 8
        _COUNT.pack_into(out, at, xxh64_of(memoryview(out)[:at]))
        return out


def decode_checkpoint(data: bytes) -> Checkpoint | None:
    """The checkpoint in `data`; None when it does not hold."""
    opened = open_checkpoint(data)
    if opened is None:
        return None
    found, rows = opened
    for numbers, dead, subject_filter in rows:
        fields: tuple[Any, ...] = (
            numbers[0], numbers[1] & ~DENSE, *numbers[2:18], bool(numbers[1] & DENSE), dead, subject_filter,
        )  # fmt: skip
        found.blocks.append(BlockRow(*fields))
    return found


def open_checkpoint(data: bytes) -> tuple[Checkpoint, Iterator[RawRow]] | None:
    """The checkpoint without its blocks, and those as the numbers that stand in the file, dead rows and filter.

    A plan over very many blocks has no time for more.
    """
    if len(data) < CHECKPOINT_FIXED_SIZE + 8 or data[:8] != CHECKPOINT_MAGIC:
        return None
    view = memoryview(data)
    if xxh64_of(view[:-8]) != _COUNT.unpack_from(data, len(data) - 8)[0]:
        return None
    found = Checkpoint(*_FIXED.unpack_from(data)[1:])
    spans = read_spans(view[_FIXED.size : CHECKPOINT_FIXED_SIZE], CHECKPOINT_FIXED_SIZE, len(data) - _COUNT.size, 0)
    if spans is None:
        return None
    rows, dead, subjects, expiries, filters, skips = (view[offset : offset + size] for offset, size in spans)
    if not _counters_hold(found) or len(expiries) % _EXPIRY.size or not _take_skips(found, skips):
        return None
    found.subjects = subjects
    found.expiries = list(_EXPIRY.iter_unpack(expiries))
    totals = found.messages, found.message_bytes
    last = _BLOCK.unpack(rows[-_BLOCK.size :]) if len(rows) >= _BLOCK.size else (0,) * 8
    if (last[0], last[7]) != (found.block_id, found.offset):
        return None  # the position is where the last block ends
    if (
        blocks_fault(rows, dead, len(filters), found.floor, found.last_seq, *totals) is not None
        or subjects_fault(subjects, found.num_subjects, NUMBER_STOP, found.last_seq, found.messages) is not None
        or not all(0 < seq <= found.last_seq and expiry > 0 for seq, expiry in found.expiries)
    ):
        return None
    return found, _rows(rows, dead, filters)


def _counters_hold(found: Checkpoint) -> bool:
    """Whether the counters can be those of a stream; whether they are, its tables tell."""
    return (
        max(found.epoch, found.block_id) <= ID_MAX
        and found.last_seq <= SEQ_MAX
        and 1 <= found.floor <= found.first_seq <= found.last_seq + 1
        and found.messages <= found.last_seq + 1 - found.first_seq
        and 0 <= found.num_subjects < NUMBER_STOP
    )


def _take_skips(found: Checkpoint, section: memoryview) -> bool:
    """The ranges that were skipped, then those that were lost; False where they lie."""
    at = 0
    for ranges in (found.skips, found.lost):
        if len(section) - at < _COUNT.size:
            return False
        (count,) = _COUNT.unpack_from(section, at)
        at += _COUNT.size
        if count > (len(section) - at) // _SPAN.size:
            return False
        ranges.extend(_SPAN.iter_unpack(section[at : at + _SPAN.size * count]))
        at += _SPAN.size * count
        if not ranges_hold(ranges, found.last_seq):
            return False
    return at == len(section)


def _rows(rows: memoryview, dead: memoryview, filters: memoryview) -> Iterator[RawRow]:
    dead_at = filter_at = 0
    for numbers in _BLOCK.iter_unpack(rows):
        dead_stop, filter_stop = dead_at + numbers[18], filter_at + numbers[19]
        yield numbers, bytes(dead[dead_at:dead_stop]), bytes(filters[filter_at:filter_stop])
        dead_at, filter_at = dead_stop, filter_stop
