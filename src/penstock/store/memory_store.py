"""MemoryStore: the same blocks, images and index as FileStore, and no files (docs/behaviours.md, F13)."""

from __future__ import annotations

import os

from penstock.base.clock import SYSTEM, Clock
from penstock.base.disk import Disk
from penstock.format.block_header import BlockHeader
from penstock.store.base import Store
from penstock.store.index import loading
from penstock.store.index.index import Index
from penstock.store.limits import Limits
from penstock.store.write import engine_blocks
from penstock.store.write.commit_log import CommitLog
from penstock.store.write.engine import StreamEngine

DURABLE_MEMORY = 3
BLOCK_SIZE_MAX = 1 << 20  # small, so that deleted messages give their memory back soon


class MemoryStore(Store):
    """A stream that lives as long as its process."""

    type = "memory"

    def __init__(self, name: str, limits: Limits | None = None, clock: Clock | None = None) -> None:
        limits = limits or Limits()
        engine = StreamEngine(self, Index(True), CommitLog(Disk(), name, DURABLE_MEMORY, None))
        super().__init__(name, clock or SYSTEM, engine, limits)
        self.next_block_id = 1
        self.configure(limits)
        if limits.first_seq > 1:
            self.compact(limits.first_seq)

    def configure(self, limits: Limits) -> None:
        size = min(limits.block_size, BLOCK_SIZE_MAX)
        super().configure(Limits(**{name: getattr(limits, name) for name in limits.__slots__} | {"block_size": size}))

    def commit(self) -> None:
        super().commit()
        self.after_commit()

    def after_commit(self) -> None:
        if self.index.emptied and not self.engine.is_closed:
            self._retire()

    def _retire(self) -> None:
        self.index.emptied = False
        for block_id in engine_blocks.dead_blocks(self.engine):
            engine_blocks.remove_block(self.engine, block_id)
        loading.free_unused_numbers(self.index)

    def erase(self, seq: int) -> bool:
        if not self.remove(seq):
            return False
        engine_blocks.overwrite(self.engine, seq, os.urandom)
        return True

    def truncate(self, seq: int) -> None:
        """Delete everything above `seq`; the next sequence follows it. 0 begins anew."""
        if not 0 <= seq < 2**63:
            raise ValueError(f"sequence {seq}: sequences are below 2^63")
        if seq >= self.index.last_seq:
            return
        self.engine.seal_active()
        engine_blocks.cut_rows(self.engine, seq)
        self.forget_above(seq)

    def stop(self) -> None:
        if not self.engine.is_closed:
            self.release()

    delete = stop

    def new_block(self, first_seq: int, time: int) -> tuple[int, bytes, bytes, int]:
        block_id = self.next_block_id
        self.next_block_id += 1
        salt = int.from_bytes(os.urandom(8), "little") | 1
        header = BlockHeader(bytes(16), block_id, 0, first_seq, first_seq, time, salt)
        return block_id, self.block_path(block_id).encode(), header.encode_front(), salt

    def block_sealed(self, block_id: int, spans: list[tuple[int, int]]) -> None:
        """Nothing to write: the block stays in memory until it is empty."""
        engine_blocks.unlist(self.engine, block_id)

    def commit_failed(self, position: int) -> None:
        raise AssertionError("there is no disk that could fail")

    def retry(self) -> None:
        raise AssertionError("there is no disk that could fail")
