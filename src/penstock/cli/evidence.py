"""Evidence: what a stream's checkpoint and summaries still tell when blocks are damaged or gone.

Deletes only ever take away: a sequence that a checkpoint or a control record knew as deleted stays deleted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.kernel.constants import KINDS
from penstock.kernel.disk import Disk
from penstock.kernel.record import RecordError, decode
from penstock.kernel.seq_set import SeqSet
from penstock.store.checkpoint import BlockRow, decode_checkpoint
from penstock.store.head import Head
from penstock.store.layout import StreamPaths
from penstock.store.summary import CONTROLS, SEQS, Summary, decode_summary

DELETE, ERASE, FLOOR = (KINDS.index(kind) for kind in ("delete", "erase", "floor"))


@dataclass(slots=True)
class Evidence:
    """What was known of the stream."""

    dead: SeqSet = field(default_factory=SeqSet)
    floor: int = 0
    missing: list[tuple[str, SeqSet]] = field(default_factory=list)  # blocks that should be there: path, live messages


def read_evidence(disk: Disk, paths: StreamPaths, stream_id: bytes, head: Head | None) -> Evidence:
    """All that the files besides the blocks tell. Missing blocks are named only where the checkpoint is up to date."""
    found = Evidence()
    data = disk.read_file(paths.checkpoint) if os.path.exists(paths.checkpoint) else b""
    checkpoint = decode_checkpoint(data)
    if checkpoint is not None and checkpoint.stream_id == stream_id:
        found.floor = checkpoint.floor
        is_exact = head is not None and (checkpoint.block_id, checkpoint.offset) == (head.block_id, head.offset)
        for row in checkpoint.blocks:
            path = paths.block(row.block_id, row.generation)
            live = SeqSet()
            for seq, is_dead in _rows(row, _summary(disk, path)):
                (found.dead if is_dead else live).add(seq)
            if row.live and is_exact and not os.path.exists(path):
                found.missing.append((path, live))
    for name in sorted(os.listdir(paths.blocks)) if os.path.isdir(paths.blocks) else ():
        if name.endswith(".sum"):
            summary = _summary(disk, os.path.join(paths.blocks, name))
            if summary is not None and summary.header.stream_id == stream_id:
                _add_controls(found, summary)
    return found


def _summary(disk: Disk, path: str) -> Summary | None:
    name = path.removesuffix(".blk").removesuffix(".sum") + ".sum"
    return decode_summary(disk.read_file(name), name) if os.path.exists(name) else None


def _rows(row: BlockRow, summary: Summary | None) -> Iterator[tuple[int, bool]]:
    """(sequence, is dead) of a block's rows, where it can be told which sequences they had."""
    seqs: list[int] | range
    if row.is_dense:
        seqs = range(row.seq_base, row.seq_base + row.rows)
    elif summary is not None and summary.header.salt == row.salt and len(summary.section(SEQS)) == 4 * row.rows:
        seqs = [row.seq_base + difference for difference in memoryview(summary.section(SEQS)).cast("I").tolist()]
    else:
        return
    for at, seq in enumerate(seqs):
        yield seq, bool(row.dead) and bool(row.dead[at >> 3] >> (at & 7) & 1)


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
