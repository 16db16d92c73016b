"""CheckpointWriter: when a store writes its checkpoint, and what goes into it. Layout: docs/format.md, "CHECKPOINT"."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from penstock.store.base import NEVER
from penstock.store.index import tables
from penstock.store.index.checkpoint import BlockRow, Checkpoint
from penstock.store.write import engine_blocks

if TYPE_CHECKING:
    from penstock.store.file_store import FileStore

SUBJECT_WEIGHT = 45  # bytes of a subject in a checkpoint, about
CHECKPOINT_WEIGHTS = 4  # times its own size in summaries are written between two checkpoints
CHECKPOINT_AFTER = 16 << 20  # bytes of summaries: a second of an open without one reads a gigabyte of them


class CheckpointWriter:
    """Writes the checkpoints of one store, under the store's lock."""

    def __init__(self, store: FileStore) -> None:
        self.store: FileStore = weakref.proxy(store)  # it owns us, and is freed without the garbage collector
        self.last_size = 0  # bytes of the last one that was written

    @property
    def is_due(self) -> bool:
        """Whether an open would read more summaries than the next checkpoint costs to write."""
        size = max(self.last_size, self.store.index.name_count * SUBJECT_WEIGHT)
        return self.store.files.summary_size > max(CHECKPOINT_WEIGHTS * size, CHECKPOINT_AFTER)

    def write_if_due(self) -> None:
        if self.is_due:
            self.store.clean_up(self.write)

    def write(self) -> None:
        """Write the checkpoint. It may run ahead of un-synced blocks: an open that finds them shorter does without."""
        store = self.store
        store.deletes.before_checkpoint()
        checkpoint = self._state()
        store.files.summaries.sync()
        data = checkpoint.encode()
        store.disk.write_file(store.paths.checkpoint, data)
        self.last_size = len(data)
        store.files.summary_size = 0

    def _state(self) -> Checkpoint:
        store = self.store
        index = store.index
        block_id, offset = engine_blocks.last_position(store.engine)
        ahead = store.clock.offset_ns
        expiries = [(seq, due + ahead) for seq, due in store.wheel.entries() if seq >= index.first_seq]
        return Checkpoint(
            stream_id=store.stream_id,
            epoch=store.epoch,
            block_id=block_id,
            offset=offset,
            first_seq=index.first_seq,
            last_seq=index.last_seq,
            num_subjects=index.name_count,
            last_time=store.engine.last_time,
            messages=index.messages,
            message_bytes=index.bytes,
            numbering=store.files.numbering,
            floor=index.floor,
            blocks=self._block_rows(),
            subjects=tables.pack_subjects(index),
            expiries=sorted(expiries + [(seq, NEVER) for seq in store.exempt if seq >= index.first_seq]),
            skips=[(first, last + 1) for first, last in store.skips.ranges() if last >= index.floor],
            lost=[(first, last + 1) for first, last in store.lost.ranges()],
        )

    def _block_rows(self) -> list[BlockRow]:
        store = self.store
        return [
            BlockRow(
                block_id=block["id"],
                generation=store.headers[block["id"]].generation,
                first_seq=block["first_seq"],
                last_seq=block["last_seq"],
                seq_base=block["seq_base"],
                base_seq=block["base_seq"],
                salt=block["salt"],
                size=block["size"],
                message_bytes=block["bytes"],
                live_bytes=block["live_bytes"],
                target_low=block["target_low"],
                target_high=block["target_high"],
                last_checksum=block["last_checksum"],
                base_time=block["base_time"],
                time_min=block["time_min"],
                time_max=block["time_max"],
                rows=block["rows"],
                live=block["live"],
                is_dense=block["is_dense"],
                dead=tables.dead_rows(store.index, block["id"]),
                subject_filter=store.filters.get(block["id"], b""),
            )
            for block in store.query.blocks()
        ]
