"""Evidence: what a stream's checkpoint and summaries still tell when blocks are damaged or gone.

Deletes only ever take away: a sequence that a checkpoint or a control record knew as deleted stays deleted.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field

from penstock.base.disk import Disk
from penstock.base.seq_set import SeqSet
from penstock.format.constants import KINDS
from penstock.format.head import Head
from penstock.format.paths import StreamPaths
from penstock.format.record import RecordError, decode
from penstock.store.index.checkpoint import BlockRow, decode_checkpoint
from penstock.store.index.summary import CONTROLS, SEQS, Summary, decode_summary

DELETE, ERASE, FLOOR = (KINDS.index(kind) for kind in ("delete", "erase", "floor"))


@dataclass(slots=True)
class Evidence:
    """What was known of the stream."""

    dead: SeqSet = field(default_factory=SeqSet)
    floor: int = 0
    missing: list[tuple[str, SeqSet]] = field(default_factory=list)  # blocks that should be there: path, live messages


def read_evidence(
    disk: Disk, paths: StreamPaths, stream_id: bytes, head: Head | None, doubted: Collection[str] = ()
) -> Evidence:
    """All that the files besides the blocks tell, but for those that are `doubted`. Missing blocks are named only where
    the checkpoint is up to date."""
    found = Evidence()
    is_used = os.path.exists(paths.checkpoint) and paths.checkpoint not in doubted
    data = disk.read_file(paths.checkpoint) if is_used else b""
    checkpoint = decode_checkpoint(data)
    if checkpoint is not None and checkpoint.stream_id == stream_id:
        found.floor = checkpoint.floor
        is_exact = head is not None and (checkpoint.block_id, checkpoint.offset) == (head.block_id, head.offset)
        for row in checkpoint.blocks:
            path = paths.block(row.block_id, row.generation)
            live = _living(row, _summary(disk, path), found.dead)
            if row.live and is_exact and not os.path.exists(path):
                found.missing.append((path, live))
    for name in sorted(os.listdir(paths.blocks)) if os.path.isdir(paths.blocks) else ():
        if name.endswith(".sum") and os.path.join(paths.blocks, name) not in doubted:
            summary = _summary(disk, os.path.join(paths.blocks, name))
            if summary is not None and summary.header.stream_id == stream_id:
                _add_controls(found, summary)
    return found


def _summary(disk: Disk, path: str) -> Summary | None:
    name = path.removesuffix(".blk").removesuffix(".sum") + ".sum"
    return decode_summary(disk.read_file(name), name) if os.path.exists(name) else None


def _living(row: BlockRow, summary: Summary | None, dead: SeqSet) -> SeqSet:
    """The sequences of a block's living rows, where it can be told which they had; those of the dead ones go to
    `dead`."""
    live = SeqSet()
    bits = [at * 8 + bit for at, byte in enumerate(row.dead) if byte for bit in range(8) if byte >> bit & 1]
    gone = [at for at in bits if at < row.rows]
    if row.is_dense:
        if row.rows:
            live.add_range(row.seq_base, row.seq_base + row.rows - 1)
        seqs = [row.seq_base + at for at in gone]
    elif summary is not None and summary.header.salt == row.salt and len(summary.section(SEQS)) == 4 * row.rows:
        differences = memoryview(summary.section(SEQS)).cast("I").tolist()
        for difference in differences:
            live.add(row.seq_base + difference)
        seqs = [row.seq_base + differences[at] for at in gone]
    else:
        return live
    for seq in seqs:
        live.remove(seq)
        dead.add(seq)
    return live


def _add_controls(found: Evidence, summary: Summary) -> None:
    header, data, at = summary.header, bytes(summary.section(CONTROLS)), 0
    while at < len(data):
        try:
            record = decode(data, at, base_seq=header.base_seq, base_time=header.base_time, salt=header.salt)
        except RecordError:
            return
        if record["kind"] == DELETE:
            for start, stop in record["ranges"]:
                found.dead.add_range(start, stop - 1)
        elif record["kind"] == ERASE:
            found.dead.add(record["value"])
        elif record["kind"] == FLOOR:
            found.floor = max(found.floor, record["value"])
        at = record["stop"]
