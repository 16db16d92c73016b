"""Limits: what a stream's configuration tells its store."""

from __future__ import annotations

from dataclasses import dataclass

DURABILITIES = ("disk", "os", "lazy")  # when a publish is acknowledged: synced, written, taken


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a stream (docs/behaviours.md, F6). -1: no limit."""

    subjects: tuple[str, ...] = ()
    block_size: int = 8 << 20
    max_msgs: int = -1
    max_bytes: int = -1
    max_age_ns: int = 0
    max_msgs_per_subject: int = -1
    max_msg_size: int = -1
    discard_new: bool = False
    discard_new_per_subject: bool = False
    first_seq: int = 1
    marker_ttl_ns: int = 0  # how long a marker lives that takes the place of a subject's last message; 0: none does
