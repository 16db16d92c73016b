"""Subject delete markers: they take the place of a subject's last message when it expires.

The rules are those of `subject_delete_marker_ttl`, as seen on nats-server 2.15.1. A marker is appended before the
message that it replaces is deleted, and both are in one commit: whatever part of it survives a crash, a subject never
disappears without its marker (recovery.py, `doubted`). A purge or a delete leaves no marker.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.duration import NS_PER_SECOND, format_duration
from penstock.errors import CorruptBlock
from penstock.format.constants import REASONS
from penstock.store.read.message import Message
from penstock.store.write.batch import Batch
from penstock.wire.headers import find

if TYPE_CHECKING:
    from penstock.store.base import Store

STEP_MAX = 4096  # messages handled in one step, so that other callers do not wait long
RETRY_NS = 100_000_000
MAX_AGE, TTL = REASONS.index("max_age"), REASONS.index("ttl")
log = logging.getLogger("penstock")


class Replaced(NamedTuple):
    """A stored marker, and the last sequence that its subject had before."""

    subject: bytes
    headers: bytes
    seq: int
    time: int
    previous_seq: int


def replace_expired(store: Store, now: int) -> int:
    """Delete expired messages and leave markers, without a commit; returns how many were deleted."""
    aged, is_more = _aged(store, now)
    expired = []
    committed_seq, is_early = store.engine.committed_seq, False
    for seq, expiry in store.wheel.expire(now, STEP_MAX):
        if seq <= committed_seq:
            expired.append(seq)
        else:  # not committed yet, so it cannot be read
            store.wheel.add(seq, expiry)
            is_early = True
    last: dict[str, Message] = {}
    counts: dict[str, int] = {}
    doomed = 0
    for seq in sorted({*aged, *expired}):
        try:
            message = store.engine.load(seq)
        except CorruptBlock:  # it was reported, and is deleted without a marker as its subject is not known
            continue
        if isinstance(message, Message):
            last[message.subject] = message
            counts[message.subject] = counts.get(message.subject, 0) + 1
            doomed += 1
    gone = [
        message
        for subject, message in last.items()
        if counts[subject] == store.query.total(_raw(subject)) and not is_marker(message.raw_headers)
    ]
    gone.sort(key=lambda message: message.seq)
    before = store.index.last_seq
    stored, refused = _append(store, gone, now)
    store.engine.delete_all(aged, MAX_AGE, now)
    store.engine.delete_all(expired, TTL, now)
    if refused:  # the stream was full; the deletes have made space
        late, refused = _append(store, refused, now)
        stored += late
    for message in refused:
        log.warning("stream %s: no delete marker could be stored for %s", store.name, message.subject)
    assert store.index.last_seq == before + len(stored)
    store.next_due = now if is_more or len(expired) == STEP_MAX else store.due_after(now)
    if is_early:
        store.next_due = max(store.next_due, now + RETRY_NS)
    if stored and store.on_replaced is not None:
        store.on_replaced(stored)
    return doomed


def is_marker(headers: bytes | None) -> bool:
    """Whether this message itself says that its subject is gone: no marker follows it."""
    if not headers:
        return False
    return bool(find(headers, b"Nats-Marker-Reason")) or find(headers, b"KV-Operation") == b"PURGE"


def _aged(store: Store, now: int) -> tuple[list[int], bool]:
    """(sequences of messages older than `max_age`, at most STEP_MAX; whether there are more)."""
    if not store.limits.max_age_ns or not store.index.messages:
        return [], False
    floor = min(store.ages.first_after(store.engine, now - store.limits.max_age_ns), store.engine.committed_seq + 1)
    found: list[int] = []
    seq = store.query.next_seq((), store.index.first_seq, floor)
    while seq:
        if seq not in store.exempt:
            if len(found) == STEP_MAX:
                return found, True
            found.append(seq)
        seq = store.query.next_seq((), seq + 1, floor)
    return found, False


def _append(store: Store, gone: list[Message], now: int) -> tuple[list[Replaced], list[Message]]:
    """Store a marker for each message's subject: (stored markers, messages whose marker was refused)."""
    ttl_ns = store.limits.marker_ttl_ns // NS_PER_SECOND * NS_PER_SECOND
    headers = (
        b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: %s\r\nNats-Rollup: sub\r\n\r\n"
        % format_duration(ttl_ns).encode()
    )
    batch = Batch.of([(_raw(message.subject), b"", headers) for message in gone])
    batch.takes_names = True
    for at in range(batch.count):
        batch.mark(at, True, False, True)
    store.engine.append(batch, 0, batch.count, now)
    stored, refused = [], []
    for at, message in enumerate(gone):
        if batch.status(at):
            refused.append(message)
            continue
        time = store.engine.last_time
        store.note_id_and_expiry(batch.seq(at), time, None, time + ttl_ns, now)
        stored.append(Replaced(batch.subject(at), headers, batch.seq(at), time, message.seq))
    return stored, refused


def _raw(subject: str) -> bytes:
    return subject.encode("utf-8", "surrogateescape")
