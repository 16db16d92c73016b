"""HEAD: how far the writer has come. Layout: docs/format.md, "HEAD"."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from penstock.base.xxh64 import xxh64_of
from penstock.format.bounds import ID_MAX, SEQ_MAX
from penstock.format.constants import HEAD_MAGIC, HEAD_OPEN, HEAD_SLOT_SIZE, HEAD_SLOT_STRIDE, HEAD_STOPPED

_SLOT = struct.Struct("<8sQ16s16sQQQQQQQ16sQ")


@dataclass(frozen=True, slots=True)
class Head:
    counter: int
    stream_id: bytes
    boot_id: bytes
    epoch: int
    block_id: int
    offset: int
    committed_seq: int
    assigned_seq: int
    synced_seq: int
    state: int

    @property
    def is_stopped(self) -> bool:
        """The writer closed the stream in good order."""
        return self.state == HEAD_STOPPED


def decode_head(data: bytes, stream_id: bytes) -> Head | None:
    """The newer of the two slots that hold, if it is this stream's."""
    best: Head | None = None
    for at in (0, HEAD_SLOT_STRIDE):
        slot = data[at : at + HEAD_SLOT_SIZE]
        if len(slot) < HEAD_SLOT_SIZE or slot[:8] != HEAD_MAGIC:
            continue
        fields = _SLOT.unpack(slot)
        if xxh64_of(slot[:-8]) != fields[12] or fields[2] != stream_id:
            continue
        head = Head(fields[1], *fields[2:11])
        if _holds(head) and (best is None or head.counter > best.counter):
            best = head
    return best


def _holds(head: Head) -> bool:
    """Whether a writer can have come so far."""
    return (
        max(head.counter, head.epoch, head.block_id) <= ID_MAX
        and max(head.committed_seq, head.assigned_seq, head.synced_seq) <= SEQ_MAX
        and head.offset < 2**32
        and head.state in (HEAD_OPEN, HEAD_STOPPED)
    )
