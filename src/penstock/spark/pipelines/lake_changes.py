"""Changes of a stream since a lake's last export: whether it is still the same stream, and which rows were deleted.

Age and limits remove nothing from a lake; deletes, purges, rollups and erasures hide its rows. Rules: docs/lake.md.
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
    """The rows that the store has removed from those that a lake has, or is about to have."""

    hidden: dict[str, SeqSet] = field(default_factory=dict)
    unexplained: SeqSet = field(default_factory=SeqSet)
    gone: SeqSet = field(default_factory=SeqSet)
    position: Position | None = None


def what_changed(view: StreamView, known: StreamInLake | None, found: Deletes) -> str | None:
    """Why the stream is not the one that the lake has rows of; None: it is the same."""
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
    """Rows removed since the last export, of those that are in the lake or will be after this export."""
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
        # An age record may cover a message that was deleted earlier, if the block with its delete record is gone.
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
    """Rows that a user may have deleted without a surviving record.

    There are none, except in stores that an older version wrote or that lost DELETES, and below the point up to which
    DELETES had to drop its entries.
    """
    if found.missing:
        return seqs
    doubtful = SeqSet()
    for first, last in seqs.ranges():
        if first < found.forgotten_below:
            doubtful.add_range(first, min(last, found.forgotten_below - 1))
    return doubtful


def has_limits(folder: str, disk: Disk) -> bool:
    """Whether limits or age may remove messages from this stream; otherwise only a delete can have removed one."""
    config = read_identity(disk, StreamPaths(folder)).config
    limits = ("max_age", "max_msgs", "max_bytes", "max_msgs_per_subject")
    return (
        any(int(config.get(name) or 0) > 0 for name in limits)
        or config.get("retention", "limits") != "limits"
        or bool(config.get("allow_msg_ttl"))
    )
