"""Problem: one thing in a store that is not as it was written; and the results of a check by part, stream and store.

Damage that was recorded (the block's summary lists the place, the stream's lost sequences include what it cost) is
known, and no longer a reason to fail.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from penstock.base.ranges import subtract
from penstock.base.seq_set import SeqSet
from penstock.format.paths import StreamPaths, parse_block_name
from penstock.store.open.report import format_ranges
from penstock.store.open.stream_folders import StreamFolder, shown_names

TRIES = 3
PAUSE_S = 0.05
Range = tuple[int, int]  # half open


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is not as it was written."""

    # damaged records · damaged header · damaged file · damaged consumers · missing file · unreadable block ·
    # lost sequences
    kind: str
    path: str
    text: str
    offset: int = 0
    size: int = 0
    seqs: tuple[Range, ...] = ()  # the messages that it costs
    is_known: bool = False  # recorded by an open or a repair

    @property
    def block_id(self) -> int:
        """The id of the block whose file is `path`; 0 for every other file."""
        parsed = parse_block_name(os.path.basename(self.path))
        return parsed[0] if parsed is not None else 0


@dataclass(slots=True, kw_only=True)
class PartCheck:
    """What was read in one part of a stream, and what is wrong there."""

    blocks: int = 0
    messages: int = 0  # message records whose checksum holds
    controls: int = 0
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lost: list[Range] = field(default_factory=list)  # recorded as lost
    newly_lost: list[Range] = field(default_factory=list)  # lost, and not recorded yet
    # A block has damaged records, or its summary disagrees with it. The checkpoint may then know more than the blocks,
    # and its differences from them are ignored.
    is_damaged: bool = False
    checkpoint_problems: list[Problem] = field(default_factory=list)
    checkpoint_notes: list[str] = field(default_factory=list)

    def add(
        self, kind: str, path: str, text: str, offset: int = 0, size: int = 0, seqs: Iterable[Range] = (),
        is_known: bool = False,
    ) -> None:  # fmt: skip
        self.problems.append(Problem(kind, path, text, offset, size, tuple(seqs), is_known))


@dataclass(slots=True)
class StreamCheck(PartCheck):
    """All parts of one stream together."""

    folder: StreamFolder

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def paths(self) -> StreamPaths:
        return StreamPaths(self.folder.root)

    @property
    def damage(self) -> list[Problem]:
        return [problem for problem in self.problems if not problem.is_known]

    @property
    def known(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.is_known]

    @classmethod
    def of_parts(cls, folder: StreamFolder, parts: Iterable[PartCheck]) -> StreamCheck:
        found = cls(folder)
        for part in parts:
            found.blocks += part.blocks
            found.messages += part.messages
            found.controls += part.controls
            found.bytes += part.bytes
            found.problems += part.problems
            found.notes += part.notes
            found.lost += part.lost
            found.newly_lost += part.newly_lost
            found.is_damaged |= part.is_damaged
            found.checkpoint_problems += part.checkpoint_problems
            found.checkpoint_notes += part.checkpoint_notes
        if not found.is_damaged:
            found.problems += found.checkpoint_problems
            found.notes += found.checkpoint_notes
        found._add_unexplained()
        found.problems.sort(key=lambda problem: (problem.path, problem.offset))
        return found

    def _add_unexplained(self) -> None:
        """Lost sequences that no damaged place accounts for: a file is missing or was set aside."""
        explained = SeqSet()
        for problem in self.problems:
            for start, stop in problem.seqs:
                explained.add_range(start, stop - 1)
        for span in self.newly_lost:
            for start, stop in subtract(span, (explained,)):
                text = f"{format_ranges([(start, stop)])}: no record tells what became of them"
                self.add("lost sequences", self.folder.root, text, seqs=[(start, stop)])


@dataclass(slots=True)
class StoreCheck:
    root: str
    holder: dict[str, object] | None  # the process that writes to the store
    problems: list[Problem] = field(default_factory=list)  # of the store itself
    streams: list[StreamCheck] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def damage(self) -> list[Problem]:
        return self.problems + [problem for stream in self.streams for problem in stream.damage]

    @property
    def known(self) -> list[Problem]:
        return [problem for stream in self.streams for problem in stream.known]

    @property
    def is_ok(self) -> bool:
        return not self.damage

    def total(self, what: Callable[[StreamCheck], int]) -> int:
        return sum(map(what, self.streams))

    def shown(self) -> list[tuple[str, StreamCheck]]:
        """The streams, each with its name for display."""
        names = shown_names(stream.folder for stream in self.streams)
        return [(names[stream.folder], stream) for stream in self.streams]


def attempts() -> Iterator[int]:
    """Reads to try before something is called damaged, with a pause between them: a writer may be in the middle of
    changing it."""
    for number in range(TRIES):
        if number:
            time.sleep(PAUSE_S)
        yield number


__all__ = ["PartCheck", "Problem", "Range", "StoreCheck", "StreamCheck", "attempts"]
