"""DeletesFile: a user's deletes whose delete records vanished when their blocks were removed.

The file DELETES. Layout: docs/format.md, "DELETES". It only answers why a message is gone; the stream works the same
without it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from penstock.base.disk import Disk
from penstock.base.seq_set import SeqSet
from penstock.errors import CorruptBlock
from penstock.format.bounds import ID_MAX, SEQ_MAX
from penstock.format.checked_file import read_checked, write_checked
from penstock.format.paths import StreamPaths

BY_USER = ("user", "purge", "rollup", "erase")
_Seq = Annotated[int, msgspec.Meta(ge=1, le=SEQ_MAX)]


class _File(msgspec.Struct):
    """The contents of DELETES."""

    format: int
    stream_id: str
    since: Annotated[int, msgspec.Meta(ge=0, le=ID_MAX)]
    low: _Seq
    floor: _Seq
    sets: dict[str, str]


RANGES_MAX = 65536  # about half a megabyte; beyond that the lower half is forgotten
FORMAT = 1


@dataclass(slots=True)
class DeletesFile:
    """Sets of sequences by reason.

    Always true: the sets do not overlap, and each holds only messages that were live when they were deleted.
    """

    since: int = 0
    """The reasons in all removed blocks from this id on were kept; 0: nothing was kept yet."""
    low: int = 1
    """The reasons for sequences below this one are forgotten."""
    floor: int = 1
    """The messages that floor records up to this sequence deleted are in the sets."""
    sets: dict[str, SeqSet] = field(default_factory=lambda: {reason: SeqSet() for reason in BY_USER})

    def add(self, reason: str, first: int, last: int) -> None:
        """Add a range. For a message that was deleted and erased, the reason `erase` counts."""
        erased = self.sets["erase"]
        if reason == "erase":
            for seqs in self.sets.values():
                seqs.remove(first)
        self.sets[reason].add_range(first, last)
        at = erased.present_from(first) if reason != "erase" else None
        while at is not None and at <= last:
            self.sets[reason].remove(at)
            at = erased.present_from(at + 1)

    def removals(self) -> Iterator[tuple[str, int, int]]:
        """(reason, start, stop), half open."""
        for reason, seqs in self.sets.items():
            yield from ((reason, first, last + 1) for first, last in seqs.ranges())

    def cut_above(self, seq: int) -> None:
        """Forget the sequences above `seq`: they will be given out again."""
        self.floor, self.low = min(self.floor, seq + 1), min(self.low, seq + 1)
        for reason, seqs in self.sets.items():
            self.sets[reason] = _between(seqs, 1, seq)

    def trim(self) -> None:
        """Keep the file small: with too many ranges the lower half is dropped."""
        if sum(seqs.range_count for seqs in self.sets.values()) <= RANGES_MAX:
            return
        starts = sorted(first for seqs in self.sets.values() for first, _ in seqs.ranges())
        self.low = max(self.low, starts[-(RANGES_MAX // 2)])
        for reason, seqs in self.sets.items():
            self.sets[reason] = _between(seqs, self.low, 2**63 - 1)


def _between(seqs: SeqSet, low: int, high: int) -> SeqSet:
    found = SeqSet()
    for first, last in seqs.ranges():
        if last >= low and first <= high:
            found.add_range(max(first, low), min(last, high))
    return found


def write_kept(disk: Disk, paths: StreamPaths, stream_id: bytes, kept: DeletesFile) -> None:
    """Write DELETES, whole or not at all, and sync it."""
    kept.trim()
    sets = {reason: base64.b64encode(seqs.encode()).decode() for reason, seqs in kept.sets.items() if seqs}
    value = {"format": FORMAT, "stream_id": stream_id.hex(), "since": kept.since, "low": kept.low, "floor": kept.floor}
    write_checked(disk, paths.deletes, value | {"sets": sets})


def read_kept(disk: Disk, paths: StreamPaths, stream_id: bytes) -> DeletesFile | None:
    """Read DELETES; None when there is no such file. Raises CorruptBlock when it is damaged."""
    found = read_checked(disk, paths.deletes, _File)
    if found is None:
        return None
    if found.format != FORMAT:
        raise CorruptBlock(paths.deletes, 0, f"format {found.format} is not known here")
    if found.stream_id != stream_id.hex():
        raise CorruptBlock(paths.deletes, 0, "it belongs to another stream")
    kept = DeletesFile(found.since, found.low, found.floor)
    try:
        for reason in BY_USER:
            if reason in found.sets:
                kept.sets[reason] = SeqSet.decode(base64.b64decode(found.sets[reason]))
    except ValueError as error:
        raise CorruptBlock(paths.deletes, 0, f"it is not what it should be: {error}") from error
    if any((seqs.last or 0) >= SEQ_MAX or seqs.first == 0 for seqs in kept.sets.values()):
        raise CorruptBlock(paths.deletes, 0, "it is not what it should be: no stream has such sequences")
    return kept
