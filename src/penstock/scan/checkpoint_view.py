"""The view of a stream from CHECKPOINT, HEAD and the blocks after it, without opening each block file.

A store of many terabytes has millions of blocks. The list in the checkpoint is trusted here: a listed block that the
writer has removed since has no live message, and a reader that misses a block reads all files of the stream instead.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.base.disk import Disk
from penstock.base.seq_set import SeqSet
from penstock.errors import StoreError
from penstock.format.block_header import BlockHeader, boot_id
from penstock.format.constants import RECORDS_START
from penstock.format.head import Head, decode_head
from penstock.format.paths import StreamPaths
from penstock.store.index.checkpoint import DENSE, Checkpoint, decode_checkpoint, open_checkpoint
from penstock.store.open.block_on_disk import BlockOnDisk
from penstock.store.open.recovery import CheckpointUnfit, Recovered, Recovery
from penstock.store.open.report import Report
from penstock.store.read.snapshot import Snapshot
from penstock.store.read.view import BlockView, StreamView, view_of

# The numbers of a block in the checkpoint, as docs/format.md has them.
ID, GENERATION, FIRST_SEQ, LAST_SEQ, SEQ_BASE, BASE_SEQ, SALT, SIZE = range(8)
BASE_TIME, TIME_MIN, TIME_MAX, ROWS, LIVE = range(13, 18)


BEGUN_MAX = 65536  # blocks that a writer begins between two checkpoints, at most


@contextmanager
def no_collection() -> Iterator[None]:
    """Run the block without the garbage collector, which finds nothing among very many small objects and takes half the
    time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def view_from_checkpoint(root: str, stream_id: bytes, name: str, disk: Disk) -> StreamView | None:
    """The view, or None where the files do not allow it: then a Snapshot reads them all."""
    paths = StreamPaths(root)
    if os.path.exists(paths.truncate):
        return None
    try:
        head = decode_head(disk.read_file(paths.head), stream_id)
        data = disk.read_file(paths.checkpoint)
    except FileNotFoundError:
        return None
    if head is None or not head.block_id or not (head.is_stopped or head.boot_id == boot_id()):
        return None  # after a power cut the blocks say what there is
    opened = open_checkpoint(data)
    if opened is None or opened[0].stream_id != stream_id or opened[0].last_seq > head.committed_seq:
        return None
    checkpoint, rows = opened
    if (checkpoint.block_id, checkpoint.offset, checkpoint.last_seq) == (
        head.block_id,
        head.offset,
        head.committed_seq,
    ):
        found = _listed_view(paths, name, head, checkpoint, rows, disk)
        if found is not None:
            return found
    return _tail_view(paths, stream_id, name, data, disk)


def _listed_view(
    paths: StreamPaths, name: str, head: Head, checkpoint: Checkpoint, rows: Any, disk: Disk
) -> StreamView | None:
    """The view when nothing came after the checkpoint, and no listed block has deleted rows or gaps: the list alone."""
    blocks: list[BlockView] = []
    first_seq, dead = checkpoint.first_seq, SeqSet()
    folder, expected = paths.blocks, checkpoint.first_seq
    for b, dead_rows, subject_filter in rows:
        if dead_rows or not b[GENERATION] & DENSE:
            return None
        if not b[LIVE]:
            continue
        generation = b[GENERATION] & ~DENSE
        path = f"{folder}/{b[ID]:06d}.blk" if generation == 1 else paths.block(b[ID], generation)
        low, stop = max(b[SEQ_BASE], first_seq), b[SEQ_BASE] + b[ROWS]
        if low > expected:
            dead.add_range(expected, low - 1)
        expected = stop
        blocks.append(
            BlockView(
                path,
                b[ID],
                b[BASE_SEQ],
                b[BASE_TIME],
                b[SALT],
                RECORDS_START,
                b[SIZE],
                low,
                stop,
                b[TIME_MIN],
                b[TIME_MAX],
                subject_filter if b[ID] != head.block_id else b"",  # the writer may go on in the last one
            )
        )
    if expected <= checkpoint.last_seq and blocks:
        dead.add_range(expected, checkpoint.last_seq)
    return StreamView(
        name=name,
        stream_id=head.stream_id,
        epoch=head.epoch,
        first_seq=first_seq,
        last_seq=checkpoint.last_seq,
        messages=checkpoint.messages,
        bytes=checkpoint.message_bytes,
        blocks=tuple(blocks),
        dead=dead,
        disk=disk,
    )


def _tail_view(paths: StreamPaths, stream_id: bytes, name: str, data: bytes, disk: Disk) -> StreamView | None:
    snapshot = _snapshot(paths, stream_id, name, data, disk)
    if snapshot is None:
        return None
    try:
        return view_of(snapshot)
    except FileNotFoundError:
        return None
    finally:
        snapshot.stop()


def open_snapshot(root: str, stream_id: bytes, name: str, disk: Disk) -> Snapshot:
    """The state of a stream for questions that need no message; stop it when they are answered."""
    paths = StreamPaths(root)
    try:
        found = _snapshot(paths, stream_id, name, disk.read_file(paths.checkpoint), disk)
    except FileNotFoundError:
        found = None
    return Snapshot(root, stream_id, name=name, disk=disk) if found is None else found


def _snapshot(paths: StreamPaths, stream_id: bytes, name: str, data: bytes, disk: Disk) -> CheckpointSnapshot | None:
    checkpoint = decode_checkpoint(data)
    if checkpoint is None or checkpoint.stream_id != stream_id or not checkpoint.blocks:
        return None
    if os.path.exists(paths.truncate):
        return None
    try:
        return CheckpointSnapshot(paths.root, stream_id, name, checkpoint, disk)
    except (CheckpointUnfit, FileNotFoundError, StoreError, ValueError):
        return None  # the Snapshot that comes next says what is wrong, if anything is


class CheckpointSnapshot(Snapshot):
    """A snapshot that believes the checkpoint's list of blocks."""

    def __init__(self, root: str, stream_id: bytes, name: str, checkpoint: Checkpoint, disk: Disk) -> None:
        self.checkpoint = checkpoint
        super().__init__(root, stream_id, name=name, disk=disk)

    def _recover(self, limit: tuple[int, int] | None, head: Head | None) -> tuple[Report, Recovered]:
        if limit is None or head is None or head.committed_seq < self.checkpoint.last_seq:
            raise CheckpointUnfit("HEAD lies before it")
        report, headers = Report(), dict[int, BlockHeader]()
        engine = self._begin(headers)
        return report, CheckpointRecovery(self, engine, report, headers, head).run(limit)


class CheckpointRecovery(Recovery):
    """A recovery that takes headers and sizes of listed blocks from the checkpoint."""

    def __init__(
        self, snapshot: CheckpointSnapshot, engine: Any, report: Report, headers: dict[int, BlockHeader], head: Head
    ) -> None:
        super().__init__(snapshot.disk, snapshot.paths, snapshot.stream_id, engine, report, headers, None, head)
        self.checkpoint = snapshot.checkpoint
        self.told_size = len(self.checkpoint.subjects)

    def read_checkpoint(self) -> Checkpoint | None:
        return self.checkpoint

    def list_blocks(self) -> list[BlockOnDisk]:
        """The listed blocks, and those that the writer has begun since: their numbers go up to HEAD's."""
        assert self.head is not None
        *listed, last = self.checkpoint.blocks
        paths, stream_id, epoch = self.paths, self.stream_id, self.checkpoint.epoch
        blocks = [
            BlockOnDisk(
                paths.block(row.block_id, row.generation),
                BlockHeader(
                    stream_id, row.block_id, epoch, row.base_seq, row.first_seq, row.base_time, row.salt, row.generation
                ),
                row.size,
            )
            for row in listed
        ]
        if self.head.block_id - last.block_id > BEGUN_MAX:
            raise CheckpointUnfit("HEAD is far behind it")  # or it lies: who lists the folder sees
        for block_id in range(last.block_id, self.head.block_id + 1):
            path = paths.block(block_id, last.generation if block_id == last.block_id else 1)
            if block_id in (last.block_id, self.head.block_id) or os.path.exists(path):
                found = self.read_front(block_id, path)
                if found is not None:
                    blocks.append(found)
        self.highest_id = self.head.block_id
        return self.in_order(blocks)
