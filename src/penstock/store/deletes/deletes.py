"""Deletes: which messages were deleted from a stream since a position in its blocks, in log order, and why. Reads only.

The reasons are in the control records (docs/format.md, "Record"): in the summaries of sealed blocks, and in the last
block itself. For blocks that the writer has removed, DELETES holds the user's deletes. If there is no DELETES, or it
was begun later, the block's id is in `missing`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.base.disk import Disk
from penstock.base.seq_set import SeqSet
from penstock.errors import CorruptBlock
from penstock.format.block_header import BlockHeader, boot_id, decode_front
from penstock.format.block_scan import scan_block
from penstock.format.constants import KINDS, REASONS, RECORDS_START
from penstock.format.head import Head, decode_head
from penstock.format.paths import StreamPaths, parse_block_name
from penstock.format.record import decode
from penstock.format.table_check import controls_fault
from penstock.store.deletes.deletes_file import BY_USER, DeletesFile, read_kept
from penstock.store.index.summary import CONTROLS, read_section

if TYPE_CHECKING:
    from penstock.store.read.view import StreamView

DELETE, ERASE, FLOOR = (KINDS.index(kind) for kind in ("delete", "erase", "floor"))
GAP_MAX = 1000  # missing blocks that are listed for one gap
RETOLD = ("compact", "skipped")  # records that repeat the deletes of removed blocks, without the reason


@dataclass(frozen=True, slots=True)
class Position:
    """The last block whose control records were read; the next read begins with it again, at its start."""

    block_id: int
    salt: int


@dataclass(slots=True)
class Deletes:
    """The deletes in the records from a position on, and all of DELETES."""

    removals: list[tuple[str, int, int]] = field(default_factory=list)
    """(reason, start, stop), half open, in the order of the log; an erase has the reason `erase`."""
    missing: list[int] = field(default_factory=list)
    """Blocks whose records cannot be read any more."""
    position: Position | None = None
    """Where the next read begins."""
    reused_from: int | None = None
    """The lowest first sequence of the blocks of later epochs: sequences from there on were given out again."""
    forgotten_below: int = 1
    """DELETES has forgotten the reasons for sequences below this one."""

    def by_reason(self, gone: SeqSet, last: int) -> dict[str, SeqSet]:
        return by_reason(self.removals, gone, last, is_whole=not self.missing)


@dataclass(frozen=True, slots=True)
class Removal:
    """One range of a control record."""

    reason: str
    start: int
    stop: int
    is_floor: bool


@dataclass(slots=True)
class LogOfDeletes:
    """The deletes that the existing blocks record."""

    removals: list[Removal] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    position: Position | None = None
    reused_from: int | None = None


def read_deletes(
    root: str, stream_id: bytes, since: Position | None = None, epoch: int = 0, disk: Disk | None = None
) -> Deletes:
    """The messages deleted from the stream in `root`, from a position (None: all) up to what is committed now.

    `epoch` is the stream's epoch at the reader's last visit: blocks of later epochs show which sequences were reused.
    """
    disk, paths = disk or Disk(), StreamPaths(root)
    log = read_log(disk, paths, stream_id, since, epoch)
    # Read after the blocks: blocks removed in the meantime are in it by now.
    try:
        kept = read_kept(disk, paths, stream_id) or DeletesFile()
    except CorruptBlock:
        kept = DeletesFile()  # the writer reports the damage and sets the file aside at its next open
    found = Deletes(
        in_order(kept, log.removals), position=log.position, reused_from=log.reused_from, forgotten_below=kept.low
    )
    found.missing = [one for one in log.missing if not kept.since or one < kept.since]
    return found


def in_order(kept: DeletesFile, removals: Iterable[Removal]) -> list[tuple[str, int, int]]:
    """The removals in DELETES and then those of the log, without the floors that DELETES holds exactly."""
    found = list(kept.removals())
    for one in removals:
        if one.is_floor and one.reason in BY_USER:
            if one.stop <= kept.floor:
                continue
            found.append(("compact", 1, kept.floor))  # all deleted by then, even if no block records it any more
        found.append((one.reason, one.start, one.stop))
    return found


def read_log(
    disk: Disk, paths: StreamPaths, stream_id: bytes, since: Position | None = None, epoch: int = 0
) -> LogOfDeletes:
    """Read the control records of the existing blocks, from a position on."""
    found = LogOfDeletes()
    head = _read_head(disk, paths, stream_id)
    blocks = _list_blocks(paths, since.block_id if since else 1, head)
    last_id = max(blocks, default=since.block_id if since else 0)
    first_id = since.block_id if since else min(blocks, default=1)
    for block_id in _each(first_id, last_id, blocks):
        path = blocks.get(block_id)
        header = _read_header(disk, path, stream_id) if path else None
        if header is None or (since and block_id == since.block_id and header.salt != since.salt):
            found.missing.append(block_id)
            if header is None:
                continue
        assert path is not None
        limit = head.offset if head is not None and head.block_id == block_id else None
        removals = read_block(disk, path, header, is_last=block_id == last_id, limit=limit)
        if removals is None:
            found.missing.append(block_id)
            continue
        found.removals += removals
        found.position = Position(block_id, header.salt)
        if header.epoch > epoch and (found.reused_from is None or header.first_seq < found.reused_from):
            found.reused_from = header.first_seq
    found.position = found.position or since
    return found


def _each(first: int, last: int, blocks: dict[int, str]) -> Iterator[int]:
    """The ids from first to last; of a gap between blocks only the first GAP_MAX, as a file may have any name."""
    at = first
    for block_id in sorted(one for one in blocks if first <= one <= last):
        yield from range(at, min(block_id, at + GAP_MAX))
        yield block_id
        at = block_id + 1


def read_block(
    disk: Disk, path: str, header: BlockHeader, *, is_last: bool = False, limit: int | None = None
) -> list[Removal] | None:
    """The removals in the control records of one block; None when the block was removed meanwhile."""
    controls = _read_controls(disk, path, header, is_last=is_last, limit=limit)
    return None if controls is None else list(_removals(controls, header))


def _read_head(disk: Disk, paths: StreamPaths, stream_id: bytes) -> Head | None:
    """How far the writer has committed; None after a power cut, or if it never wrote: then all records count."""
    try:
        head = decode_head(disk.read_file(paths.head), stream_id)
    except FileNotFoundError:
        return None
    if head is None or (head.boot_id != boot_id() and not head.is_stopped) or not head.block_id:
        return None
    return head


def _list_blocks(paths: StreamPaths, first_id: int, head: Head | None) -> dict[int, str]:
    """The path of each block's highest generation, from a block id on."""
    best: dict[int, tuple[int, str]] = {}
    for name in os.listdir(paths.blocks) if os.path.isdir(paths.blocks) else ():
        parsed = parse_block_name(name)
        if parsed is None or parsed[0] < first_id or (head is not None and parsed[0] > head.block_id):
            continue
        if parsed[1] > best.get(parsed[0], (0, ""))[0]:
            best[parsed[0]] = parsed[1], os.path.join(paths.blocks, name)
    return {block_id: path for block_id, (_, path) in best.items()}


def _read_header(disk: Disk, path: str, stream_id: bytes) -> BlockHeader | None:
    try:
        fd = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        header = decode_front(disk.read(fd, RECORDS_START), path)
    finally:
        disk.close(fd)
    return header if header is not None and header.stream_id == stream_id else None


def _read_controls(
    disk: Disk, path: str, header: BlockHeader, *, is_last: bool, limit: int | None
) -> Iterable[bytes | memoryview] | None:
    """The bytes of a block's control records; None when the block was removed meanwhile."""
    if not is_last:
        try:
            section = read_section(disk, path.removesuffix(".blk") + ".sum", CONTROLS, header.salt)
        except FileNotFoundError:
            section = None
        if section is not None and controls_fault(section, header.base_seq, header.base_time, header.salt) is None:
            return [section]
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return None
    stop = len(data) if limit is None else min(limit, len(data))
    scan = scan_block(
        data,
        min(RECORDS_START, stop),
        stop,
        base_seq=header.base_seq,
        base_time=header.base_time,
        salt=header.salt,
        seq_min=header.first_seq,
    )
    return [memoryview(data)[at : at + size] for at, size in scan.control_spans()]


def _removals(controls: Iterable[bytes | memoryview], header: BlockHeader) -> Iterator[Removal]:
    for data in controls:
        at = 0
        while at < len(data):
            record: dict[str, Any] = decode(
                data, at, base_seq=header.base_seq, base_time=header.base_time, salt=header.salt
            )
            at, kind, reason = record["stop"], record["kind"], REASONS[record["reason"]]
            if kind == DELETE:
                yield from (Removal(reason, start, stop, False) for start, stop in record["ranges"])
            elif kind == ERASE:
                yield Removal("erase", record["value"], record["value"] + 1, False)
            elif kind == FLOOR:
                yield Removal(reason, 1, record["value"], True)


# Sets of sequences.


def gone_from(view: StreamView, last: int) -> SeqSet:
    """The sequences from 1 to `last` for which the view holds no message."""
    found = SeqSet()
    if view.first_seq > 1 and last:
        found.add_range(1, min(view.first_seq - 1, last))
    for first, stop in view.dead.ranges() if view.dead is not None else ():
        if first > last:
            break
        found.add_range(first, min(stop, last))
    if last > view.last_seq:
        found.add_range(view.last_seq + 1, last)
    return found


def without(some: SeqSet, other: SeqSet) -> SeqSet:
    """The sequences in `some` that are not in `other`."""
    left = SeqSet()
    for first, last in some.ranges():
        at: int | None = first
        while at is not None and at <= last:
            present = other.present_from(at)
            if present is None or present > last:
                left.add_range(at, last)
                break
            if present > at:
                left.add_range(at, present - 1)
            at = other.absent_from(present)
    return left


def by_reason(
    removals: Iterable[tuple[str, int, int]], gone: SeqSet, last: int, *, is_whole: bool = False
) -> dict[str, SeqSet]:
    """The sequences from 1 to `last` by the reason of their removal; the first removal of each counts.

    Sequences in `gone` were removed before; those found are added to it. Records that only repeat earlier removals
    (RETOLD) give no reason. But if all of the user's deletes are known (`is_whole`), the sequences that they repeat
    were removed before the later records, and not by a user.
    """
    found: dict[str, SeqSet] = {}
    for reason, start, stop in removals:
        stop = min(stop, last + 1)
        if start >= stop or (reason in RETOLD and not is_whole):
            continue
        if reason == "erase":
            # Its delete record came just before; the reader gets the reason `erase`.
            for other in found.values():
                if other.remove(start):
                    found.setdefault("erase", SeqSet()).add(start)
                    break
        if stop - start == 1:
            if gone.add(start):
                found.setdefault(reason, SeqSet()).add(start)
            continue
        taken = SeqSet()
        taken.add_range(start, stop - 1)
        new = without(taken, gone)
        if new:
            found.setdefault(reason, SeqSet()).update(new)
            gone.update(new)
    return {reason: seqs for reason, seqs in found.items() if seqs}
