"""StreamIndex: the sequences of a stream according to its files, read on first use.

The check of a stream's small files always needs it; a run of blocks only if one is damaged, to tell what that costs.
"""

from __future__ import annotations

from penstock.base.disk import Disk
from penstock.base.ranges import subtract
from penstock.base.seq_set import SeqSet
from penstock.check.problem import Problem, Range, attempts
from penstock.errors import CorruptBlock
from penstock.format.paths import StreamPaths
from penstock.store.open.stream_folders import StreamFolder
from penstock.store.read.snapshot import Snapshot

SEQ_STOP = 2**63 - 1


class StreamIndex:
    """A snapshot of the stream, if its files allow one."""

    def __init__(self, disk: Disk, folder: StreamFolder, stream_id: bytes, has_writer: bool) -> None:
        self.disk, self.folder, self.stream_id, self.has_writer = disk, folder, stream_id, has_writer
        self._snapshot: Snapshot | None = None
        self._problem: Problem | None = None
        self._newly_lost = SeqSet()
        self._is_read = False

    def _read(self) -> None:
        if self._is_read:
            return
        self._is_read = True
        root = self.folder.root
        for _ in attempts():
            try:
                self._snapshot = Snapshot(root, self.stream_id, name=self.folder.name, disk=self.disk)
            except CorruptBlock as error:
                self._problem = Problem("damaged file", error.path, error.reason, error.offset)
                return
            except ValueError as error:
                text = f"the stream's state cannot be worked out: {error}"
                self._problem = Problem("damaged file", StreamPaths(root).checkpoint, text)
                return
            self._newly_lost = self._snapshot.unrecorded_losses()
            if not (self._newly_lost and self.has_writer):
                break  # else the writer went on while the files were read

    @property
    def snapshot(self) -> Snapshot | None:
        self._read()
        return self._snapshot

    @property
    def problem(self) -> Problem | None:
        """Why there is no snapshot."""
        self._read()
        return self._problem

    @property
    def newly_lost(self) -> SeqSet:
        """Lost sequences that nobody has recorded."""
        self._read()
        return self._newly_lost

    def recorded(self) -> SeqSet:
        """Committed sequences that are recorded as lost."""
        found, snapshot = SeqSet(), self.snapshot
        if snapshot is None:
            return found
        committed = snapshot.head.committed_seq if snapshot.head is not None else SEQ_STOP
        for first, last in snapshot.lost.ranges():
            for start, stop in subtract((first, min(last, committed) + 1), (self.newly_lost,)):
                found.add_range(start, stop - 1)
        return found

    def readable(self, start: int, stop: int) -> SeqSet:
        """The sequences in [start, stop) that are readable according to the index."""
        found, snapshot = SeqSet(), self.snapshot
        seq = snapshot.query.next_seq((), start, stop) if snapshot is not None and start < stop else 0
        while seq and snapshot is not None:
            found.add(seq)
            seq = snapshot.query.next_seq((), seq + 1, stop) if seq + 1 < stop else 0
        return found

    def newly_lost_in(self, start: int, stop: int) -> SeqSet:
        found = SeqSet()
        for first, last in self.newly_lost.ranges():
            if max(first, start) <= min(last, stop - 1):
                found.add_range(max(first, start), min(last, stop - 1))
        return found

    def cost_of(self, start: int, stop: int) -> list[Range]:
        """What damage to [start, stop) costs: what should be readable there, or is lost and not recorded."""
        if start >= stop:
            return []
        if self.snapshot is None:
            return [(start, stop)]
        gone = self.readable(start, stop)
        gone.update(self.newly_lost_in(start, stop))
        return half_open(gone)

    def first_seq_after(self, block_id: int) -> int | None:
        """Where the block after `block_id` begins; None where there is none."""
        headers = self.snapshot.headers if self.snapshot is not None else {}
        return min((header.first_seq for number, header in headers.items() if number > block_id), default=None)

    def last_seq_before(self, block_id: int) -> int:
        """The last sequence of the blocks before `block_id`; 0 where there are none."""
        if self.snapshot is None:
            return 0
        numbers = [number for number in self.snapshot.headers if number < block_id]
        return self.snapshot.query.block(max(numbers))["last_seq"] if numbers else 0

    def close(self) -> None:
        if self._snapshot is not None:
            self._snapshot.stop()


def half_open(seqs: SeqSet) -> list[Range]:
    return [(first, last + 1) for first, last in seqs.ranges()]


__all__ = ["SEQ_STOP", "StreamIndex", "half_open"]
