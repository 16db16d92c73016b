"""Checkpoint: the state of a stream at one position, written whole. Layout: docs/format.md, "CHECKPOINT"."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from penstock.kernel.constants import CHECKPOINT_FIXED_SIZE, CHECKPOINT_MAGIC
from penstock.kernel.xxh64 import xxh64_of

_FIXED = struct.Struct("<8s16sQQQQQqqQQQQ")
_SPAN = struct.Struct("<QQ")
_BLOCK = struct.Struct("<13Q3q4I")
_EXPIRY = struct.Struct("<Qq")
_COUNT = struct.Struct("<Q")
DENSE = 1 << 63  # in `generation`: the sequences of the rows run without a gap

Range = tuple[int, int]


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
    if len(data) < CHECKPOINT_FIXED_SIZE + 8 or data[:8] != CHECKPOINT_MAGIC:
        return None
    view = memoryview(data)
    if xxh64_of(view[:-8]) != _COUNT.unpack_from(data, len(data) - 8)[0]:
        return None
    found = Checkpoint(*_FIXED.unpack_from(data)[1:])
    sections = []
    for offset, size in _SPAN.iter_unpack(data[_FIXED.size : CHECKPOINT_FIXED_SIZE]):
        if offset + size > len(data) - 8:
            return None
        sections.append(view[offset : offset + size])
    rows, dead, subjects, expiries, filters, skips = sections
    dead_at = filter_at = 0
    for fields in _BLOCK.iter_unpack(rows):
        *numbers, dead_size, filter_size = fields
        numbers[1] &= ~DENSE
        is_dense = bool(fields[1] & DENSE)
        dead_rows = bytes(dead[dead_at : dead_at + dead_size])
        subject_filter = bytes(filters[filter_at : filter_at + filter_size])
        row: tuple[Any, ...] = (*numbers, is_dense, dead_rows, subject_filter)
        found.blocks.append(BlockRow(*row))
        dead_at += dead_size
        filter_at += filter_size
    found.subjects = subjects
    found.expiries = list(_EXPIRY.iter_unpack(expiries))
    at = 0
    for ranges in (found.skips, found.lost):
        (count,) = _COUNT.unpack_from(skips, at)
        ranges.extend(_SPAN.iter_unpack(skips[at + 8 : at + 8 + 16 * count]))
        at += 8 + 16 * count
    return found
