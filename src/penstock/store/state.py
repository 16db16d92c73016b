"""StoreState: what a stream holds, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.seq_set import SeqSet


@dataclass(frozen=True, slots=True)
class StoreState:
    """The state of a stream (docs/behaviours.md, F3). Times are Unix nanoseconds, 0 when there is no message."""

    messages: int
    bytes: int  # by the formula of nats-server, as limits count them
    first_seq: int
    last_seq: int
    first_time: int
    last_time: int
    num_subjects: int
    num_deleted: int  # sequences between first and last that hold no message
    deleted: SeqSet | None = None  # those, in the full state
    lost: SeqSet | None = None  # sequences that damage took
    disk_bytes: int = 0  # what our files really take


@dataclass(frozen=True, slots=True)
class SubjectState:
    messages: int
    first_seq: int
    last_seq: int
