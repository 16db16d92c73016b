"""LooseSummaries: those that were written since the last checkpoint, and are not synced yet."""

from __future__ import annotations

import threading
from itertools import count

from penstock.kernel.disk import Disk


class LooseSummaries:
    """What a checkpoint lists is opened without a look at the block: its summary has to be on the disk before.

    Always true: one that was written again while it was synced is still loose.
    """

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk, self._folder = disk, folder
        self._lock = threading.Lock()
        self._writes = count()
        self._loose: dict[str, int] = {}  # by path: which write it was

    def __len__(self) -> int:
        return len(self._loose)

    def add(self, path: str) -> None:
        """The summary at `path` was written."""
        with self._lock:
            self._loose[path] = next(self._writes)

    def sync(self) -> None:
        """Sync those that are loose now. From any thread, and without the stream's lock: there may be hundreds."""
        with self._lock:
            found = dict(self._loose)
        if not found:
            return
        for path in sorted(found):
            try:
                fd = self._disk.open(path, "w")
            except FileNotFoundError:  # its block is gone
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
                if self._loose.get(path) == write:  # another sync may have been quicker
                    del self._loose[path]
