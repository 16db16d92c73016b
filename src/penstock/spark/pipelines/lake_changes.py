"""What has become of a stream since a lake last looked: is it still the same, and which rows were deleted.

Age and limits take nothing from a lake; deletes, purges, rollups and erasures hide its rows. Rules: docs/lake.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from penstock.base.disk import Disk
from penstock.base.seq_set import SeqSet
from penstock.format.identity import read_identity
from penstock.format.paths import StreamPaths
from penstock.spark.pipelines.manifest import LakeError, StreamInLake, unpack
from penstock.store.deletes.deletes import Deletes, Position, gone_from, without
from penstock.store.deletes.deletes_file import BY_USER

if TYPE_CHECKING:
    from penstock.store.read.view import StreamView

Unexplained = Literal["auto", "keep", "hide", "fail"]


@dataclass(slots=True)
class Removed:
    """What the store has taken away of the rows that a lake has, or is about to have."""

    hidden: dict[str, SeqSet] = field(default_factory=dict)
    unexplained: SeqSet = field(default_factory=SeqSet)
    gone: SeqSet = field(default_factory=SeqSet)
    position: Position | None = None


def what_changed(view: StreamView, known: StreamInLake | None, found: Deletes) -> str | None:
    """Why the stream is not the one that the lake has rows of; None: it is."""
    if known is None:
        return None
    if view.stream_id.hex() != known.stream_id:
        return "it was deleted and made anew since the last export"
    if view.last_seq < known.last:
        return f"it was cut back to {view.last_seq}, and the lake has messages up to {known.last}"
    if found.reused_from is not None and found.reused_from <= known.last:
        return (
            f"it was cut back to {found.reused_from - 1} and written anew, and the lake has messages up to {known.last}"
        )
    return None


def what_went(
    view: StreamView, folder: str, known: StreamInLake | None, found: Deletes, unexplained: Unexplained
) -> Removed:
    """What has gone since the last export of the rows that are in the lake, or will be with this one."""
    before, last = SeqSet(), known.last if known else 0
    for first, stop in unpack(known.gone).ranges() if known else ():
        if first <= last:
            before.add_range(first, min(stop, last))
    now = gone_from(view, view.last_seq)
    gone = before.copy()
    for first, stop in now.ranges():
        if stop > last:  # these will not be exported
            gone.add_range(max(first, last + 1), stop)
    reasons = found.by_reason(gone, view.last_seq)
    hidden = {reason: seqs for reason, seqs in reasons.items() if reason in BY_USER}
    left = _doubtful(without(now, gone), found)
    if unexplained in ("hide", "fail"):
        # A record of age may stand for a message whose delete, told in a block that is gone, came first.
        for reason, seqs in reasons.items():
            if reason not in BY_USER:
                left.update(_doubtful(seqs, found))
    gone.update(now)
    if left:
        if unexplained == "fail":
            raise LakeError(
                f"stream {view.name}: {len(left)} exported messages from {left.first} to {left.last} are gone, and the "
                f"blocks that said why are gone too; unexplained=hide hides them in the lake, unexplained=keep does not"
            )
        if unexplained == "hide" or (unexplained == "auto" and not has_limits(folder, view.disk)):
            for seqs in hidden.values():
                left = without(left, seqs)
            hidden["unexplained"], left = left, SeqSet()
    return Removed(hidden, left, gone, found.position)


def _doubtful(seqs: SeqSet, found: Deletes) -> SeqSet:
    """Those that a user may have taken away without anybody knowing: none, but in stores that an older version wrote
    or that lost DELETES, and below what DELETES had to forget."""
    if found.missing:
        return seqs
    doubtful = SeqSet()
    for first, last in seqs.ranges():
        if first < found.forgotten_below:
            doubtful.add_range(first, min(last, found.forgotten_below - 1))
    return doubtful


def has_limits(folder: str, disk: Disk) -> bool:
    """Whether messages may go from this stream by themselves; else only a delete can have taken one."""
    config = read_identity(disk, StreamPaths(folder)).config
    limits = ("max_age", "max_msgs", "max_bytes", "max_msgs_per_subject")
    return (
        any(int(config.get(name) or 0) > 0 for name in limits)
        or config.get("retention", "limits") != "limits"
        or bool(config.get("allow_msg_ttl"))
    )
