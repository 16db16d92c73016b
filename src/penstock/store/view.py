"""StreamView: a stream's files at one moment, for readers: which blocks, up to which byte, which sequences are gone."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.kernel.disk import Disk
from penstock.kernel.seq_set import SeqSet


@dataclass(frozen=True, slots=True)
class BlockView:
    """One block file, as far as it is committed."""

    path: str
    block_id: int
    base_seq: int
    base_time: int
    salt: int
    start: int
    """Where the records begin."""
    stop: int
    """Committed bytes."""
    first_seq: int
    """The lowest sequence that may be taken from here."""
    stop_seq: int
    """One past the highest."""
    time_min: int
    time_max: int
    """Of messages; time_min > time_max: not known."""
    subject_filter: bytes
    """Of kernel/subject_filter; b"": not known."""


@dataclass(frozen=True, slots=True)
class StreamView:
    """A stream as its readers see it.

    Always true: blocks ascend in sequence; nothing in them above `last_seq` counts.
    """

    name: str
    stream_id: bytes
    epoch: int
    first_seq: int
    last_seq: int
    """The last committed sequence."""
    messages: int
    bytes: int
    blocks: tuple[BlockView, ...]
    dead: SeqSet | None
    """Deleted sequences between first_seq and last_seq; nobody changes the set while the view is used."""
    disk: Disk
