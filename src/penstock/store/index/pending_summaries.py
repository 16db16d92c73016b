"""PendingSummaries: those that were written since the last checkpoint, and are not synced yet."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import count

from penstock.base.disk import Disk
from penstock.store.write.committer import Committer
from penstock.store.write.deferred_file import DeferredFile

PENDING_MAX = 8  # so many of a stream wait for a thread that has time; then the stream waits for them


class PendingSummaries:
    """Summaries on their way to the disk: a commit thread writes each, and a checkpoint has them synced.

    What a checkpoint lists is opened without a look at the block: its summary has to be on the disk before.
    Always true: one that was written again while it was synced is still pending; no two of one path are under way.
    """

    def __init__(
        self, disk: Disk, folder: str, committer: Committer, on_failure: Callable[[str, OSError], None]
    ) -> None:
        """`on_failure` is told of each that could not be written: without it the block itself is read."""
        self._disk, self._folder = disk, folder
        self._committer, self._on_failure = committer, on_failure
        self._lock = threading.Lock()
        self._writes = count()
        self._unsynced: dict[str, int] = {}  # by path: which write it was
        self._unwritten: dict[str, DeferredFile] = {}  # handed over, and not known to be written; the oldest first

    def __len__(self) -> int:
        return len(self._unsynced)

    def write(self, path: str, data: bytearray) -> None:
        """Have the summary at `path` written. Whoever reads or removes it says `wait` before."""
        self.wait(path)
        file = DeferredFile(self._disk, path, data)
        with self._lock:
            self._unsynced[path] = next(self._writes)
            self._unwritten[path] = file
            if not self._committer.write_later(file):  # before anybody else sees it
                file.write_now()
            due = [other for other, pending in self._unwritten.items() if pending.is_done]
            due += list(self._unwritten)[: max(0, len(self._unwritten) - PENDING_MAX)]
        for each in due:
            self.wait(each)

    def wait(self, path: str) -> None:
        """Return when the summary at `path` is written, if it was handed over."""
        with self._lock:
            file = self._unwritten.get(path)
        if file is None:
            return
        self._committer.wait_for_file(file)
        with self._lock:
            is_first = self._unwritten.get(path) is file
            if is_first:
                del self._unwritten[path]
        if is_first:
            try:
                file.check()
            except OSError as error:
                self._on_failure(path, error)

    def finish(self) -> None:
        """Return when nothing is under way any more."""
        with self._lock:
            paths = list(self._unwritten)
        for path in paths:
            self.wait(path)

    def close(self) -> None:
        """`finish`, for good: the store that would be told of a failure goes."""
        self.finish()
        self._on_failure = _ignore

    def sync(self) -> None:
        """Sync those that are pending now. From any thread, and without the stream's lock: there may be hundreds."""
        with self._lock:
            found = dict(self._unsynced)
        if not found:
            return
        for path in sorted(found):
            self.wait(path)
            try:
                fd = self._disk.open(path, "w")
            except FileNotFoundError:  # its block is gone, or it could not be written
                continue
            try:
                self._disk.sync(fd)
            except OSError:
                # Told once: the next sync would find nothing amiss. Without its summary the block itself is read.
                self._disk.unlink(path)
                raise
            finally:
                self._disk.close(fd)
        self._disk.sync_folder(self._folder)
        with self._lock:
            for path, write in found.items():
                if self._unsynced.get(path) == write:  # another sync may have been quicker
                    del self._unsynced[path]

    def remove(self, path: str) -> None:
        """Remove the summary at `path`, if it is there."""
        self.wait(path)
        if os.path.exists(path):
            self._disk.unlink(path)


def _ignore(path: str, error: OSError) -> None:
    """Nothing is under way any more."""
