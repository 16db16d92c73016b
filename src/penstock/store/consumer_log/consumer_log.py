"""ConsumerLog: all consumers of one stream in an append-only log. Layout and rules: docs/format.md, "Consumer log".

It is written as durability `os` says, whatever the stream's: small writes by the thread that appends, a sync in the
background within a second. Who waits for more (a double ack, a create) asks for a `sync`.
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
    """The consumers of one stream, by number; open until `close`. The owner calls it under the stream's lock.

    Always true: memory is ahead of the files, never behind; an older file goes only when the fold of a newer one is
    synced, with its name; nothing is made on the disk before the first fold.
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
        self._old = [file.path for file in found.files]  # to go when the next fold is synced
        self._damaged = set(found.damaged)
        self._active = ""
        self.continue_counts({number: entry.count for number, entry in found.entries.items()})
        if found.damaged:
            self.require_fold()

    def forget_entries(self) -> None:
        """What was found at the open is taken: give its memory back."""
        self.entries = {}

    # Appending: `note`, the hot path, is the log_writer's own.

    def put(self, number: int, meta: bytes, state: bytes) -> None:
        """A new consumer, or one whose configuration or state is told anew."""
        super().put(number, meta, state)
        self.next_number = max(self.next_number, number + 1)

    def committed(self, position: int) -> bool:
        """Whether all up to `position` is as durable as the stream promises."""
        if self.durability == "disk":
            return self.synced_position >= position
        return self.durability != "os" or self.written_position >= position

    def submit(self) -> int:
        """At the end of a turn, after a fold that was wanted: the position that all of it has."""
        position = super().submit()
        if self._old and self.synced_position >= self.fold_position > 0:
            self._remove_old()
        return position

    def wait(self) -> None:
        """Commit all that was appended, in this thread; raises when that fails."""
        self.submit()
        answer = self.flush(self.durability == "disk") if self.durability != "lazy" else 0
        if answer < 0 or not self.committed(self.position):
            raise self.failure() or WriteFailed("write", self.folder, errno.EIO)

    def failure(self) -> StoreError | None:
        """The write or sync that failed. Nothing is lost: the next fold begins a new file with all that there is."""
        failed = self.log.failure()
        if failed is None:
            return None
        code, op, path = failed
        return (DiskFull if code in (errno.ENOSPC, errno.EDQUOT) else WriteFailed)(op, path, code)

    # Folding.

    def fold(self, everyone: Iterable[tuple[int, bytes, bytes]]) -> None:
        """Begin a new file with (number, meta, state) of every consumer that there is.

        The states hold all changes so far, also those that no `note` has told yet: these are not told again. What fails
        is told by `failure`.
        """
        told = list(everyone)
        try:
            self._make_folder()
        except OSError as error:
            self.fold_failed(error.errno or errno.EIO, self.folder)
            return
        file_id = self._next_file_id
        salt = int.from_bytes(os.urandom(8), "little") | 1
        path = os.path.join(self.folder, log_name(file_id))
        front = LogHeader(self.stream_id, file_id, salt).encode_front()
        self.begin(file_id, os.fsencode(path), front, salt, told, self.next_number - 1)
        self._next_file_id += 1
        if self._active:
            self._old.append(self._active)
        self._active = path
        self.attach()

    def _make_folder(self) -> None:
        """Whoever made the folder may have been stopped before its name was on the disk."""
        if not self._active:
            self.disk.mkdir(self.folder)
            self.disk.sync_folder(os.path.dirname(self.folder))

    def _remove_old(self) -> None:
        """The fold that takes their place is on the disk: older files go; what was damaged is set aside."""
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
        """Write and sync all, then let go of the files; raises what failed. A fold that is wanted comes before."""
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
        """Let go of the files without writing: as a crash would."""
        self.let_go()

    def delete(self) -> None:
        """Remove the log for good, with the stream."""
        self.let_go()
        if os.path.isdir(self.folder):
            for name in sorted(os.listdir(self.folder)):
                self.disk.unlink(os.path.join(self.folder, name))
            self.disk.rmdir(self.folder)


__all__ = ["ConsumerLog", "Entry", "read_entries"]
