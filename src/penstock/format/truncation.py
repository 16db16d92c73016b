"""The plan of a truncation (TRUNCATE): what is to be cut off, and what the records that go said of the messages that
stay.

It is written before the first file is touched, and followed again by the next open until it is done. A plan that
does not fit the stream is not followed: it would take messages that nobody asked to take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from penstock.base.disk import Disk
from penstock.base.seq_set import SeqSet
from penstock.errors import CorruptBlock
from penstock.format.bounds import ID_MAX, SEQ_MAX, ranges_hold
from penstock.format.checked_file import read_checked, write_checked
from penstock.format.paths import StreamPaths

_Seq = Annotated[int, msgspec.Meta(ge=0, le=SEQ_MAX)]


class _File(msgspec.Struct):
    """What stands in TRUNCATE."""

    seq: _Seq
    floor: Annotated[int, msgspec.Meta(ge=1, le=SEQ_MAX)]
    epoch: Annotated[int, msgspec.Meta(ge=0, le=ID_MAX)]
    dead: str
    skips: list[tuple[_Seq, _Seq]]
    keeps: _Seq | None = None  # older versions did not say


@dataclass(frozen=True, slots=True)
class Cut:
    """A truncation under way: all above `seq` goes. `dead` and `skips` speak of what is below."""

    seq: int
    floor: int
    epoch: int
    dead: SeqSet
    skips: SeqSet
    keeps: int | None
    """How many messages stay."""

    def explained(self) -> SeqSet:
        """The sequences of which no record need be left."""
        found = self.dead.copy()
        found.update(self.skips)
        if self.floor > 1:
            found.add_range(1, self.floor - 1)
        return found


def write_cut(disk: Disk, paths: StreamPaths, cut: Cut) -> None:
    """Write the plan down, whole or not at all."""
    skips = cut.skips.ranges()
    dead = cut.dead.encode().hex()
    plan = {"seq": cut.seq, "floor": cut.floor, "epoch": cut.epoch, "dead": dead, "skips": skips, "keeps": cut.keeps}
    write_checked(disk, paths.truncate, plan)


def read_cut(disk: Disk, paths: StreamPaths) -> Cut | None:
    """The plan in TRUNCATE; None when there is none, CorruptBlock when it cannot be one."""
    found = read_checked(disk, paths.truncate, _File)
    if found is None:
        return None
    try:
        dead = SeqSet.decode(bytes.fromhex(found.dead))
    except ValueError as error:
        raise CorruptBlock(paths.truncate, 0, f"it is not what it should be: {error}") from error
    skips = [(first, last + 1) for first, last in found.skips]
    if (
        found.floor > found.seq + 1
        or not ranges_hold(((first, last + 1) for first, last in dead.ranges()), found.seq)
        or not ranges_hold(skips, found.seq)
    ):
        raise CorruptBlock(paths.truncate, 0, f"it speaks of messages above {found.seq}, which it cuts off")
    skipped = SeqSet()
    for start, stop in skips:
        skipped.add_range(start, stop - 1)
    return Cut(found.seq, found.floor, found.epoch, dead, skipped, found.keeps)
