"""ConsumerLog: all consumers of one stream in an append-only log. Layout and rules: docs/format.md, "Consumer log".

The log is written with durability `os` even when the stream has another: the appending thread makes small writes, and a
background thread syncs within a second. A caller that needs more (a double ack, a create) calls `sync`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from penstock.base.disk import Disk
from penstock.errors import DiskFull, StoreError, WriteFailed
from penstock.store.consumer_log.entries import Entry, EntryReader, LogHeader, log_name, read_entries
from penstock.store.consumer_log.writer import ConsumerLogWriter
from penstock.store.open.report import Report
from penstock.store.write.committer import Committer


class ConsumerLog(ConsumerLogWriter):
    """The consumers of one stream, by number; open until `close`. Callers hold the stream's lock.

    Always true: memory is ahead of the files, never behind; an older file is removed only when the fold of a newer one
    and its directory entry are synced; nothing is created on disk before the first fold.
    """

    def __init__(
        self, disk: Disk, folder: str, stream_id: bytes, durability: str, committer: Committer, report: Report
    ) -> None:
        super().__init__(disk, folder, committer)
        self.disk, self.folder, self.stream_id = disk, folder, stream_id
        self.durability, self.report = durability, report
        found = EntryReader(disk, folder, stream_id, report)
        self.entries: dict[int, Entry] = found.entries
        self.next_number = found.highest + 1
        self._next_file_id = max((file.file_id for file in found.files), default=0) + 1
        self._old = [file.path for file in found.files]  # to be removed when the next fold is synced
        self._damaged = set(found.damaged)
        self._active = ""
        self.continue_counts({number: entry.count for number, entry in found.entries.items()})
        if found.damaged:
            self.require_fold()

    def forget_entries(self) -> None:
        """Free the entries that were read at the open, once the consumers are built from them."""
        self.entries = {}

    # Appending. The hot path, `note`, is in ConsumerLogWriter.

    def put(self, number: int, meta: bytes, state: bytes) -> None:
        """Record a new consumer, or the whole configuration and state of a known one."""
        super().put(number, meta, state)
        self.next_number = max(self.next_number, number + 1)

    def committed(self, position: int) -> bool:
        """Whether everything up to `position` is as durable as the stream promises."""
        if self.durability == "disk":
            return self.synced_position >= position
        return self.durability != "os" or self.written_position >= position

    def submit(self) -> int:
        """Have everything appended so far written; returns its position. Called at a tick's end, after any fold."""
        position = super().submit()
        if self._old and self.synced_position >= self.fold_position > 0:
            self._remove_old()
        return position

    def wait(self) -> None:
        """Commit everything that was appended, in this thread; raises when that fails."""
        self.submit()
        answer = self.flush(self.durability == "disk") if self.durability != "lazy" else 0
        if answer < 0 or not self.committed(self.position):
            raise self.failure() or WriteFailed("write", self.folder, errno.EIO)

    def failure(self) -> StoreError | None:
        """The write or sync that failed. Nothing is lost: the next fold begins a new file with every consumer."""
        failed = self.log.failure()
        if failed is None:
            return None
        code, op, path = failed
        return (DiskFull if code in (errno.ENOSPC, errno.EDQUOT) else WriteFailed)(op, path, code)

    # Folding.

    def fold(self, everyone: Iterable[tuple[int, bytes, bytes]]) -> None:
        """Begin a new file with (number, meta, state) of every consumer.

        The states hold all changes so far, including those that no `note` has recorded yet; they are not recorded
        again. `failure` reports an error.
        """
        consumers = list(everyone)
        try:
            self._make_folder()
        except OSError as error:
            self.fold_failed(error.errno or errno.EIO, self.folder)
            return
        file_id = self._next_file_id
        salt = int.from_bytes(os.urandom(8), "little") | 1
        path = os.path.join(self.folder, log_name(file_id))
        front = LogHeader(self.stream_id, file_id, salt).encode_front()
        self.begin(file_id, os.fsencode(path), front, salt, consumers, self.next_number - 1)
        self._next_file_id += 1
        if self._active:
            self._old.append(self._active)
        self._active = path
        self.attach()

    def _make_folder(self) -> None:
        """Create the folder. If it exists, sync its name anyway: its creator may have crashed before doing so."""
        if not self._active:
            self.disk.mkdir(self.folder)
            self.disk.sync_folder(os.path.dirname(self.folder))

    def _remove_old(self) -> None:
        """Remove the older files, once the fold that replaces them is on disk; damaged files are set aside."""
        self.release()
        while self._old:
            path = self._old[0]
            try:
                if path in self._damaged:
                    self._set_aside(path)
                elif os.path.exists(path):
                    self.disk.unlink(path)
            except OSError as error:
                self.report.add("clean-up", path, f"tried again later: {error}")
                return
            self._old.pop(0)

    def _set_aside(self, path: str) -> None:
        target, number = f"{path}.damaged", 1
        while os.path.exists(target):
            number += 1
            target = f"{path}.{number}.damaged"
        self.disk.rename(path, target)
        self.disk.sync_folder(self.folder)

    # The end.

    def close(self) -> None:
        """Write and sync everything, then close the files; raises on failure. The caller makes a due fold first."""
        try:
            self.detach()
            if self.position > 0:
                failed = self.flush(True) < 0 or self.synced_position < self.position
                if failed:
                    raise self.failure() or WriteFailed("close", self.folder, errno.EIO)
                if self._old and self.fold_position > 0:
                    self._remove_old()
        finally:
            self.let_go()

    def abandon(self) -> None:
        """Close the files without writing, as a crash would."""
        self.let_go()

    def delete(self) -> None:
        """Delete the log, together with its stream."""
        self.let_go()
        if os.path.isdir(self.folder):
            for name in sorted(os.listdir(self.folder)):
                self.disk.unlink(os.path.join(self.folder, name))
            self.disk.rmdir(self.folder)


__all__ = ["ConsumerLog", "Entry", "read_entries"]
