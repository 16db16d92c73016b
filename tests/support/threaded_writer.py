"""A writer whose batches are committed by commit threads: shared by the campaigns on them."""

from __future__ import annotations

import errno
import gc
import random
from pathlib import Path

from penstock.errors import StoreError
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.store.write.batch import Batch
from penstock.store.write.committer import Committer
from penstock.testing import CrashDisk

STREAM_ID = bytes(16)


class Writer:
    """Appends batch after batch without waiting for the disk, as a server does, and records what is durable."""

    def __init__(self, root: Path, disk: CrashDisk, limits: Limits, size: int) -> None:
        """`size` is the size of a message's payload without the nine digits before it."""
        gc.collect()  # the previous run is a reference cycle that holds tens of megabytes of its disk's log
        self.root, self.disk, self.size, self.committer = root, disk, size, Committer()
        self.store = FileStore(root, STREAM_ID, limits=limits, durability="disk", disk=disk, committer=self.committer)
        self.under_way: list[tuple[int, int]] = []  # (position, sequence)
        self.durable: list[int] = []
        self.lost = 0

    def publish(self, seq_hint: int, begins: bool = False) -> None:
        """Publish two messages; with `begins`, this thread starts their commit."""
        batch = Batch.of([("a", b"%09d" % seq_hint + bytes(self.size))] * 2)
        try:
            self.store.append(batch)
        except StoreError:
            self.lost += 1
            return
        self.under_way.append((self.store.submit(begins), batch.seqs()[-1]))

    def hurt(self, chance: random.Random, share: float, kind: str, within: int) -> None:
        """Now and then make one of the next calls of a kind fail."""
        if chance.random() < share:
            self.disk.clear_faults()
            code = errno.ENOSPC if chance.random() < 0.5 else errno.EIO
            self.disk.fail_at(chance.randint(1, within), code, kinds=kind, short=kind == "pwrite")

    def look(self) -> bool:
        """Whether something was rolled back since the last look."""
        has_failed = self.store.engine.log.failure() is not None
        if has_failed:
            try:
                self.store.retry()
            except StoreError:
                return False
        committed = self.store.committed_position
        while self.under_way and self.under_way[0][0] <= committed:
            position, seq = self.under_way.pop(0)
            try:
                self.store.check_position(position)
            except StoreError:
                self.lost += 1
                continue
            self.durable.append(seq)
            self.disk.mark(seq)
        return has_failed

    def wait(self) -> bool:
        """Wait until no commit is running; returns whether something was rolled back."""
        has_failed = False
        while self.under_way:
            has_failed |= self.look()
        return has_failed

    def finish(self) -> None:
        self.disk.clear_faults()
        self.wait()
        self.store.after_commit()

    def stop(self) -> None:
        self.store.stop()
        self.committer.stop()
