"""Part: a run of blocks of one stream, as one task reads it, and its rows as Arrow batches.

A part is planned by scan/plan.py in one process and read in another, some time later. The writer may meanwhile have
removed blocks (then what is left of the range is planned again) or taken sequences back (then the part fails).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.base.disk import Disk
from penstock.base.ranges import subtract
from penstock.base.seq_set import SeqSet
from penstock.errors import CorruptBlock, StoreError
from penstock.format.head import decode_head
from penstock.format.identity import read_identity
from penstock.format.paths import StreamPaths
from penstock.scan.rows import Damage, Scan
from penstock.scan.schema import HeadersAs, choose_columns, schema
from penstock.store.read.snapshot import Snapshot
from penstock.store.read.view import BlockView, StreamView, view_of

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 16384  # what Spark takes fastest: its JVM turns each batch into rows
BATCH_BYTES = 16 << 20
TRIES_MAX = 20

HeadersMode = Literal["map", "raw", "none"]
Mode = Literal["fail", "skip", "quarantine"]

log = logging.getLogger("penstock.scan")


class StreamChanged(StoreError):
    """The stream is no longer the one that was planned: it was recreated, or sequences were truncated."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one task reads: messages of one stream, as far as they were committed when the part was planned."""

    root: str
    """The stream's directory."""
    stream: str
    stream_id: bytes
    epoch: int
    low: int
    high: int
    """Sequences [low, high) and nothing else."""
    blocks: tuple[BlockView, ...]
    dead: bytes
    """The deleted sequences in [low, high), as SeqSet encodes them; b"": none."""
    size: int
    """Bytes to read."""


def part_columns(columns: Iterable[str] | None, headers: HeadersMode) -> tuple[str, ...]:
    """The columns that a part gives, in the table's order."""
    chosen = choose_columns(columns)
    return tuple(name for name in chosen if name != "headers") if headers == "none" else chosen


def part_schema(columns: Iterable[str] | None, headers: HeadersMode, mode: Mode) -> pa.Schema:
    """The Arrow schema of a part's batches; quarantine adds `damage`."""
    import pyarrow as pa

    found = schema(part_columns(columns, headers), _headers_as(headers))
    return found.append(pa.field("damage", pa.string())) if mode == "quarantine" else found


def read_part(
    part: Part,
    *,
    subjects: Sequence[str | bytes] | None = None,
    since: int | None = None,
    until: int | None = None,
    columns: Iterable[str] | None = None,
    headers: HeadersMode = "map",
    mode: Mode = "fail",
    batch_rows: int = BATCH_ROWS,
    batch_bytes: int = BATCH_BYTES,
    may_shrink: bool = True,
    disk: Disk | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a part, in sequence order.

    mode: a damaged place fails with CorruptBlock, is skipped with a warning in the log, or becomes a row of its own,
    with the place in the column `damage`, its bytes as the payload and the first sequence that it may have held.
    may_shrink: messages that a limit, age or a purge takes away while the part is read are left out; else they are
    StreamChanged.
    """
    disk = disk or Disk()
    chosen = part_columns(columns, headers)
    tries = damaged = 0
    while True:
        reading = Scan(
            view_of_part(part, disk),
            subjects=subjects,
            since=since,
            until=until,
            columns=chosen,
            headers=_headers_as(headers),
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
        )
        told = 0
        try:
            for batch in reading:
                yield _with_damage_column(batch) if mode == "quarantine" else batch
                if len(reading.damage) > told:
                    yield from _tell(part, reading.damage[told:], mode, chosen, headers, disk)
                    told = len(reading.damage)
            yield from _tell(part, reading.damage[told:], mode, chosen, headers, disk)
            damaged += len(reading.damage)
            if damaged:
                log.warning(
                    "stream %s: %d damaged places in messages %d to %d", part.stream, damaged, part.low, part.high - 1
                )
            return
        except FileNotFoundError:
            damaged += len(reading.damage)
            tries += 1
            if tries == TRIES_MAX:
                raise
            part, missing = _again(part, reading.next_seq, subjects, since, until, may_shrink, disk)
            damaged += len(missing)
            yield from _tell(part, missing, mode, chosen, headers, disk)


def view_of_part(part: Part, disk: Disk) -> StreamView:
    """The part as a view that a scan reads."""
    return StreamView(
        name=part.stream,
        stream_id=part.stream_id,
        epoch=part.epoch,
        first_seq=part.low,
        last_seq=part.high - 1,
        messages=0,
        bytes=part.size,
        blocks=part.blocks,
        dead=SeqSet.decode(part.dead) if part.dead else None,
        disk=disk,
    )


def check_unchanged(part: Part, disk: Disk) -> None:
    """StreamChanged unless the stream is still the one that was planned, with the same sequences given out."""
    paths = StreamPaths(part.root)
    name = f"stream {part.stream} in {os.path.dirname(os.path.dirname(part.root))}"
    if not os.path.isdir(part.root):
        raise StreamChanged(f"{name} was deleted while it was read: nothing of it is left")
    if read_identity(disk, paths).stream_id != part.stream_id:
        raise StreamChanged(f"{name} was deleted and made anew while it was read: run the query again")
    try:
        head = decode_head(disk.read_file(paths.head), part.stream_id)
    except FileNotFoundError:
        head = None  # a truncation removes it first
    if head is None or head.epoch != part.epoch:
        now = "gone" if head is None else str(head.epoch)
        raise StreamChanged(
            f"{name} was truncated, or recovered after a crash, while it was read (epoch {part.epoch}, now {now}): "
            f"messages {part.low} to {part.high - 1} may not be what they were; run the query again"
        )


def _again(
    part: Part,
    next_seq: int,
    subjects: Sequence[str | bytes] | None,
    since: int | None,
    until: int | None,
    may_shrink: bool,
    disk: Disk,
) -> tuple[Part, list[Damage]]:
    """The rest of a part that has lost a block, planned again as one part, and the blocks missing without a record."""
    from penstock.scan.plan import plan

    check_unchanged(part, disk)
    snapshot = Snapshot(part.root, part.stream_id, name=part.stream, disk=disk)
    try:
        view = view_of(snapshot)
        low = max(next_seq, part.low)
        missing = _missing(part, low, snapshot.lost)
    finally:
        snapshot.stop()
    check_unchanged(part, disk)
    if not may_shrink and view.first_seq > low:
        raise StreamChanged(
            f"stream {part.stream} in {os.path.dirname(os.path.dirname(part.root))}: messages {low} to "
            f"{min(view.first_seq, part.high) - 1} were removed while they were read: by a limit, their age or a purge"
        )
    found = plan(
        view, subjects=subjects, start_seq=low, stop_seq=part.high, since=since, until=until, max_bytes=1 << 62
    )
    if found:
        return found[0], missing
    empty = Part(part.root, part.stream, part.stream_id, part.epoch, low, max(low, part.high), (), b"", 0)
    return empty, missing


def _missing(part: Part, low: int, lost: SeqSet) -> list[Damage]:
    """The blocks whose files are gone though no record says that their messages are."""
    known = SeqSet.decode(part.dead) if part.dead else SeqSet()
    found = []
    for block in part.blocks:
        start, stop = max(block.first_seq, low), min(block.stop_seq, part.high)
        if start < stop and not os.path.exists(block.path):
            lacking = (lost.present_from(first) for first, _ in subtract((start, stop), (known,)))
            if any(seq is not None and seq < stop for seq in lacking):
                found.append(Damage(block.path, block.block_id, 0, 0, "the file is missing", start, stop))
    return found


def _tell(
    part: Part, found: list[Damage], mode: Mode, columns: tuple[str, ...], headers: HeadersMode, disk: Disk
) -> Iterator[pa.RecordBatch]:
    """Handle damage as the mode says: raise, warn, or return rows."""
    if not found:
        return
    check_unchanged(part, disk)  # what a truncation cut off is no damage
    if mode == "fail":
        raise CorruptBlock(found[0].path, found[0].offset, f"{found[0].reason}; mode skip or quarantine reads on")
    for one in found:
        log.warning("stream %s: %s", part.stream, describe(one))
    if mode == "quarantine":
        yield _damage_rows(part, found, columns, headers, disk)


def describe(damage: Damage) -> str:
    """The place of a damage in one line."""
    may = f"sequences {damage.seq_start} to {damage.seq_stop - 1}" if damage.seq_stop > damage.seq_start else "nothing"
    return f"{damage.path} at byte {damage.offset}: {damage.reason}; {damage.size} bytes, may have held {may}"


def _with_damage_column(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    return batch.append_column(pa.field("damage", pa.string()), pa.nulls(batch.num_rows, pa.string()))


def _damage_rows(
    part: Part, found: list[Damage], columns: tuple[str, ...], headers: HeadersMode, disk: Disk
) -> pa.RecordBatch:
    import pyarrow as pa

    rows = []
    for one in found:
        payload = _bytes_of(one, disk) if one.size else b""
        rows.append({"stream": part.stream, "seq": one.seq_start, "payload": payload, "damage": describe(one)})
    return pa.RecordBatch.from_pylist(rows, schema=part_schema(columns, headers, "quarantine"))


def _bytes_of(damage: Damage, disk: Disk) -> bytes:
    fd = disk.open(damage.path)
    try:
        return disk.read(fd, damage.size, damage.offset)
    finally:
        disk.close(fd)


def _headers_as(headers: HeadersMode) -> HeadersAs:
    return "raw" if headers == "raw" else "map"
