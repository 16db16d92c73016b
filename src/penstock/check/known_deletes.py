"""What a stream's checkpoint and summaries record about its messages when blocks are damaged or missing.

Deletes are never undone: a sequence that a checkpoint or a control record has as deleted stays deleted.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from penstock.base.disk import Disk
from penstock.base.seq_set import SeqSet
from penstock.format.constants import KINDS
from penstock.format.paths import StreamPaths
from penstock.format.record import RecordError, decode
from penstock.store.index.checkpoint import BlockRow, Checkpoint, decode_checkpoint
from penstock.store.index.summary import CONTROLS, SEQS, Summary, decode_summary

DELETE, ERASE, FLOOR = (KINDS.index(kind) for kind in ("delete", "erase", "floor"))


@dataclass(slots=True)
class KnownDeletes:
    dead: SeqSet = field(default_factory=SeqSet)
    floor: int = 0


def read_known_deletes(disk: Disk, paths: StreamPaths, stream_id: bytes, damaged: Collection[str] = ()) -> KnownDeletes:
    """The deletes that the checkpoint and the summaries record, without the files in `damaged`."""
    found = KnownDeletes()
    is_used = os.path.exists(paths.checkpoint) and paths.checkpoint not in damaged
    checkpoint = decode_checkpoint(disk.read_file(paths.checkpoint)) if is_used else None
    if checkpoint is not None and checkpoint.stream_id == stream_id:
        found.floor = checkpoint.floor
        for row in checkpoint.blocks:
            found.dead.update(_rows(row, _read_summary(disk, paths.block(row.block_id, row.generation)))[1])
    for name in sorted(os.listdir(paths.blocks)) if os.path.isdir(paths.blocks) else ():
        path = os.path.join(paths.blocks, name)
        if name.endswith(".sum") and path not in damaged:
            summary = _read_summary(disk, path)
            if summary is not None and summary.header.stream_id == stream_id:
                _add_controls(found, summary)
    return found


def missing_blocks(disk: Disk, paths: StreamPaths, checkpoint: Checkpoint) -> Iterator[tuple[str, SeqSet]]:
    """The blocks that a checkpoint lists with live messages, and that are not there: path, and those messages as far as
    they are known."""
    for row in checkpoint.blocks:
        path = paths.block(row.block_id, row.generation)
        if row.live and not os.path.exists(path):
            yield path, _rows(row, _read_summary(disk, path))[0]


def _read_summary(disk: Disk, path: str) -> Summary | None:
    name = path.removesuffix(".blk").removesuffix(".sum") + ".sum"
    return decode_summary(disk.read_file(name), name) if os.path.exists(name) else None


def _rows(row: BlockRow, summary: Summary | None) -> tuple[SeqSet, SeqSet]:
    """The sequences of a block's live and dead rows. Both are empty where the summary, which has the sequences of a
    block with gaps, is gone."""
    live, dead = SeqSet(), SeqSet()
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
        return live, dead
    for seq in seqs:
        live.remove(seq)
        dead.add(seq)
    return live, dead


def _add_controls(found: KnownDeletes, summary: Summary) -> None:
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


__all__ = ["KnownDeletes", "missing_blocks", "read_known_deletes"]
