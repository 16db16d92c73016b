"""BlockScan in plain Python: the records of a block's bytes, with what was damaged. Rules: docs/format.md, "Record"."""

from __future__ import annotations

from twins.record import (
    BAD,
    BODY_SIZE_MIN,
    ERASED,
    HEADERS,
    MESSAGE,
    MSG_ID,
    NEWER,
    SKIP,
    TTL,
    decode_at,
)

SEQ_MAX = 2**63 - 1
SEQ_SPAN_MAX = 2**32 - 1


class BlockScan:
    """The records between two offsets of a block.

    Always true: messages ascend in offset and strictly in seq; every byte between start and stop belongs to a whole
    record, to a damaged range or to the torn tail.
    """

    def __init__(self, start: int) -> None:
        self.stop = start
        self.torn = 0
        self.is_newer = False
        self.last_checksum = 0
        self._messages: list[tuple[int, int, int, int, int]] = []
        self._controls: list[tuple[int, int]] = []
        self._damage: list[tuple[int, int]] = []

    @property
    def count(self) -> int:
        return len(self._messages)

    @property
    def control_count(self) -> int:
        return len(self._controls)

    @property
    def damage_count(self) -> int:
        return len(self._damage)

    def messages(self) -> list[tuple[int, int, int, int, int]]:
        """The message records as (offset, size, seq, time, flags)."""
        return self._messages

    def control_spans(self) -> list[tuple[int, int]]:
        """The control records as (offset, size)."""
        return self._controls

    def damaged(self) -> list[tuple[int, int]]:
        """The damaged ranges as (offset, size)."""
        return self._damage


def scan_block(
    block: bytes,
    start: int,
    stop: int,
    *,
    base_seq: int = 0,
    base_time: int = 0,
    salt: int = 0,
    seq_min: int = 0,
    seq_stop: int = SEQ_MAX,
) -> BlockScan:
    """Walk and verify the records in block[start:stop]."""
    if not 0 <= start <= stop <= len(block):
        raise ValueError(f"[{start}, {stop}) is not inside the {len(block)} bytes given")
    block = bytes(block)
    base = base_seq, base_time, salt
    scan, at = BlockScan(start), start
    while at < stop:
        why, record = decode_at(block, at, stop, *base)
        if not why and record["kind"] == MESSAGE and (not record["subject"] or record["seq"] - base_seq > SEQ_SPAN_MAX):
            why = BAD  # whole, and yet nothing that a writer of ours has written
        if not why and record["seq"] >= seq_min:
            kind, seq = record["kind"], record["seq"]
            # A control record may speak of the next block's first sequence: it names the next one to be given out.
            if seq > seq_stop or (seq == seq_stop and kind in (MESSAGE, SKIP)):
                break
            if kind == MESSAGE:
                flags = _flags(record)
                scan._messages.append((at, record["stop"] - at, seq, record["time"], flags))
                seq_min = seq + 1
            else:
                scan._controls.append((at, record["stop"] - at))
                seq_min = seq + min(record["value"], SEQ_MAX - seq) if kind == SKIP else seq
            scan.last_checksum = record["checksum"]
            at = scan.stop = record["stop"]
            continue
        if why == NEWER:
            scan.is_newer = True
            return scan
        found = _next_whole(block, at + 1, stop, base, seq_min, seq_stop)
        if found < 0:
            break
        scan._damage.append((at, found - at))
        at = found
    scan.torn = stop - scan.stop if block[scan.stop : stop].strip(b"\0") else 0
    return scan


def _flags(record: dict[str, object]) -> int:
    """The flags byte of a message that was decoded."""
    return (
        (HEADERS if record["headers"] is not None else 0)
        | (ERASED if record["erased"] else 0)
        | (TTL if record["has_ttl"] else 0)
        | (MSG_ID if record["has_msg_id"] else 0)
    )


def _next_whole(block: bytes, start: int, stop: int, base: tuple[int, int, int], seq_min: int, seq_max: int) -> int:
    """Offset of the next whole record at or after `start` with a sequence in [seq_min, seq_max]; -1: none."""
    for at in range(start, stop):
        if block[at] >= BODY_SIZE_MIN:
            why, record = decode_at(block, at, stop, *base)
            if not why and seq_min <= record["seq"] <= seq_max:
                return at
    return -1
