"""Summary: what a sealed block holds, so that opening and filtering need not read it. Layout: docs/format.md,
"Summary"."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.base.disk import Disk
from penstock.base.xxh64 import xxh64_of
from penstock.format.block_header import BlockHeader, decode_header
from penstock.format.bounds import MESSAGE_SIZE_MIN, SEQ_MAX, read_spans
from penstock.format.constants import (
    HEADER_SIZE,
    RECORDS_START,
    SUMMARY_FIXED_SIZE,
    SUMMARY_MAGIC,
    SUMMARY_SECTIONS,
)
from penstock.format.table_check import controls_fault, ids_and_expiries_fault, names_fault
from penstock.store.index.ids_and_expiries import IdsAndExpiries
from penstock.store.index.index import Index

OFFSETS, SIZES, SUBJECTS, SEQS, NAMES, CONTROLS, IDS, EXPIRIES, DAMAGE, FILTER = range(10)
NUMBER_STOP = 2**31 - 1  # subject numbers are below it
_FIXED = struct.Struct("<8s256sQQQqqIIQQQQ8s")
_ID = struct.Struct("<Iq16s")
_EXPIRY = struct.Struct("<Iq")
_RANGE = struct.Struct("<QQ")
_CHECKSUM = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Summary:
    """The fixed part of a summary and where its sections lie; `data` is the whole file."""

    header: BlockHeader
    data_size: int
    first_seq: int
    last_seq: int
    time_min: int
    time_max: int
    count: int
    is_dense: bool
    seq_base: int
    numbering: int
    message_bytes: int
    last_checksum: int
    spans: tuple[tuple[int, int], ...]
    data: memoryview

    def section(self, which: int) -> memoryview:
        offset, size = self.spans[which]
        return self.data[offset : offset + size]

    @property
    def ids(self) -> list[tuple[int, int, bytes]]:
        """(row, time, hash) of the messages with an id."""
        return list(_ID.iter_unpack(self.section(IDS)))

    @property
    def expiries(self) -> list[tuple[int, int]]:
        """(row, expiry) of the messages with a TTL."""
        return list(_EXPIRY.iter_unpack(self.section(EXPIRIES)))

    @property
    def damage(self) -> list[tuple[int, int]]:
        return list(_RANGE.iter_unpack(self.section(DAMAGE)))


def encode_summary(
    header: BlockHeader,
    facts: dict[str, int],
    numbering: int,
    rows: Sequence[bytes],
    names: bytes,
    controls: bytes,
    ids: bytes,
    expiries: bytes,
    damage: Sequence[tuple[int, int]],
    subject_filter: bytes,
) -> bytearray:
    """The bytes of a summary; `facts` are the block's, as Query.blocks() tells them, ids and expiries are packed."""
    sections = [
        *rows,
        names,
        controls,
        ids,
        expiries,
        b"".join(_RANGE.pack(*one) for one in damage),
        subject_filter,
    ]
    spans: list[int] = []
    size = SUMMARY_FIXED_SIZE
    for section in sections:
        spans += size, len(section)
        size += len(section) + _CHECKSUM.size + -len(section) % 8
    out = bytearray(size + _CHECKSUM.size)  # in place: whoever publishes waits for it
    _FIXED.pack_into(
        out,
        0,
        SUMMARY_MAGIC,
        header.encode(),
        facts["size"],
        facts["first_seq"],
        facts["last_seq"],
        facts["time_min"],
        facts["time_max"],
        facts["rows"],
        1 if facts["is_dense"] else 0,
        facts["seq_base"],
        numbering,
        facts["bytes"],
        facts["last_checksum"],
        b"",
    )
    assert _FIXED.size + 8 * len(spans) <= SUMMARY_FIXED_SIZE
    struct.pack_into(f"<{len(spans)}Q", out, _FIXED.size, *spans)
    for at, section in zip(spans[::2], sections, strict=True):
        stop = at + len(section)
        out[at:stop] = section
        _CHECKSUM.pack_into(out, stop, xxh64_of(section, header.salt))
    _CHECKSUM.pack_into(out, size, xxh64_of(memoryview(out)[:size], header.salt))
    return out


def decode_summary(data: bytes, path: str, number_stop: int = NUMBER_STOP) -> Summary | None:
    """The summary in `data`; None when it does not hold: also when its subjects have numbers from `number_stop` on.

    All but the four arrays is checked here, once. An array is checked when the index loads it (store/index/index.pyx,
    `rows_fault`).
    """
    if len(data) < SUMMARY_FIXED_SIZE + 8 or data[:8] != SUMMARY_MAGIC:
        return None
    fields = _FIXED.unpack_from(data)
    header = decode_header(fields[1][:HEADER_SIZE], path)
    if (
        header is None
        or xxh64_of(memoryview(data)[:-8], header.salt) != struct.unpack_from("<Q", data, len(data) - 8)[0]
    ):
        return None
    table = data[_FIXED.size : _FIXED.size + 16 * SUMMARY_SECTIONS]
    spans = read_spans(table, SUMMARY_FIXED_SIZE, len(data) - _CHECKSUM.size, _CHECKSUM.size)
    if spans is None:
        return None
    found = Summary(
        header=header,
        data_size=fields[2],
        first_seq=fields[3],
        last_seq=fields[4],
        time_min=fields[5],
        time_max=fields[6],
        count=fields[7],
        is_dense=bool(fields[8] & 1),
        seq_base=fields[9],
        numbering=fields[10],
        message_bytes=fields[11],
        last_checksum=fields[12],
        spans=tuple(spans),
        data=memoryview(data),
    )
    return found if _fault(found, number_stop) is None else None


def _fault(summary: Summary, number_stop: int) -> str | None:
    """What a summary says that no block can hold."""
    header, count, size = summary.header, summary.count, summary.data_size
    if not RECORDS_START <= size < 2**32 or count > (size - RECORDS_START) // MESSAGE_SIZE_MIN:
        return "the size of its block lies"
    sizes = [span[1] for span in summary.spans]
    if any(sizes[n] != count * 4 for n in (OFFSETS, SIZES, SUBJECTS)) or sizes[SEQS] != (
        0 if summary.is_dense else count * 4
    ):
        return "its arrays are not as long as it says"
    if not header.first_seq - 1 <= summary.last_seq <= SEQ_MAX:
        return "its last sequence lies"
    if count and not (
        header.first_seq <= summary.seq_base <= summary.last_seq
        and summary.time_min <= summary.time_max
        and (not summary.is_dense or count - 1 <= summary.last_seq - summary.seq_base)
    ):
        return "its sequences or its times lie"
    if sizes[DAMAGE] % _RANGE.size or any(max(span) >= 2**32 for span in summary.damage):
        return "its damaged ranges lie"
    return (
        names_fault(summary.section(NAMES), count, number_stop)
        or ids_and_expiries_fault(summary.section(IDS), summary.section(EXPIRIES), count)
        or controls_fault(summary.section(CONTROLS), header.base_seq, header.base_time, header.salt)
    )


def read_section(disk: Disk, path: str, which: int, salt: int) -> bytes | None:
    """One section of a summary, read alone; None when it does not hold."""
    fd = disk.open(path)
    try:
        table = disk.read(fd, 16 * SUMMARY_SECTIONS, _FIXED.size)
        if len(table) < 16 * SUMMARY_SECTIONS:
            return None
        # Sections follow one another: a flipped bit in the table must not lead to another one, whole in itself.
        spans = read_spans(table, SUMMARY_FIXED_SIZE, disk.size(fd) - _CHECKSUM.size, _CHECKSUM.size)
        if spans is None:
            return None
        offset, size = spans[which]
        data = disk.read(fd, size + 8, offset)
    finally:
        disk.close(fd)
    if len(data) != size + 8 or xxh64_of(memoryview(data)[:-8], salt) != struct.unpack_from("<Q", data, size)[0]:
        return None
    return data[:-8]


def ids_and_expiries_of(index: Index, summary: Summary) -> IdsAndExpiries:
    """What a summary lists of the messages with an id or a TTL."""
    return IdsAndExpiries.of_summary(index, summary.header.block_id, summary.section(IDS), summary.section(EXPIRIES))
