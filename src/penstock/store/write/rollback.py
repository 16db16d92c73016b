"""Rollback: what a store does when a commit, an append or a delete fails.

What is not committed is forgotten and cut out of the files, its owners are told, and the next write tries again.
"""

from __future__ import annotations

import errno
import os
import weakref
from typing import TYPE_CHECKING

from penstock.errors import DiskFull, StoreError, WriteFailed
from penstock.store.open.adoption import Adoption

if TYPE_CHECKING:
    from penstock.store.file_store import FileStore

FAILURES_MAX = 64  # failures that are remembered, for those who ask later what became of their messages


class Rollback:
    """Brings one store back to what is committed, under the store's lock.

    Always true: nothing new is written to the files before what was rolled back is cut out of them.
    """

    def __init__(self, store: FileStore) -> None:
        self.store: FileStore = weakref.proxy(store)  # it owns us, and is freed without the garbage collector
        self.uncut: list[tuple[str, int]] = []  # files that still hold what was rolled back; size 0: all of it

    def failure(self) -> WriteFailed:
        """What the log failed with."""
        store = self.store
        code, op, path = store.engine.log.failure() or (errno.EIO, "write", store.paths.root)
        if code in (errno.ENOSPC, errno.EDQUOT):
            return DiskFull(op, path, code)
        return WriteFailed(op, path, code)

    def after_error(self, error: BaseException) -> None:
        """An append or a delete raised half way."""
        if not isinstance(error, StoreError):
            cause = error
            error = WriteFailed("append", self.store.paths.root, getattr(error, "errno", None) or errno.EIO)
            error.__cause__ = cause
        self.run(error)

    def run(self, error: StoreError | None = None) -> None:
        """Forget all that is not committed; cut the files back to what is."""
        store = self.store
        reason = error or self.failure()

        def note(low: int, high: int) -> None:
            store.failures = [*store.failures[1 - FAILURES_MAX :], (low, high, reason)]

        kept, gone = store.engine.undo(note)
        seq = store.engine.committed_seq
        store.forget_above(seq)
        store.deletes.rolled_back()
        self.uncut += [(os.fsdecode(path), 0) for path, is_created in gone if is_created]
        self.uncut += [(store.block_path(block_id), size) for block_id, size, is_created in kept if is_created]
        store.active_ids.clear()
        store.clean_up(self.cut_files)
        store.deferred_writes.hold_again()
        for callback in store.on_rollback:
            callback(seq)

    def cut_files(self) -> None:
        """Take out of the files what was rolled back, and remove their summaries: the next open writes new ones."""
        store = self.store
        while self.uncut:
            path, size = self.uncut[-1]
            try:
                store.files.summaries.remove(path.removesuffix(".blk") + ".sum")
                if size == 0 and os.path.exists(path):
                    store.disk.unlink(path)
                elif size:
                    fd = store.disk.open(path, "w")
                    try:
                        store.disk.truncate(fd, size)
                        store.disk.sync(fd)
                    finally:
                        store.disk.close(fd)
            except OSError as error:
                store.engine.log.hold(error.errno or errno.EIO, path)
                raise self.failure() from error
            self.uncut.pop()

    def retry(self) -> None:
        """Before the next write after a failure: forget what was not committed, write again what was promised."""
        store = self.store
        error, log = self.failure(), store.engine.log
        if store.durability != "lazy" and log.has_uncommitted:
            self.run()
        log.clear_failure()
        self.cut_files()
        if os.path.exists(store.paths.adopt):
            Adoption(store).resume()
        if (log.is_owing or store.durability == "lazy") and store.engine.sync() < 0:
            raise self.failure() from error
