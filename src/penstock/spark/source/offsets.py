"""Offsets: how far a streaming query has read in each stream, and how much its next batch takes.

Pure functions, without files or Spark. An offset is JSON in the query's checkpoint, per stream:

    {"<directory of the stream>": {"seq": 120, "epoch": 3, "base": 20, "base_epoch": 2, "stream_id": "6f0c…"}}

  seq        the last sequence of the batch
  epoch      the stream's epoch when the batch was planned; -1 while the stream has not reached `base`
  base       the sequence after which the query began: Spark does not keep the start of a query's first batch, so the
             end offset carries it; `base` or `base_epoch` changes when the query had to begin again elsewhere
  base_epoch the stream's epoch at that time
  stream_id  the stream's id: a stream that was deleted and recreated has another

No field changes without new messages, or Spark would run empty batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from penstock.errors import StoreError

NOT_YET = -1  # epoch of an offset that lies beyond the stream's end
SILENCE_NS = 60 * 10**9  # how long an offset may stay behind messages that do not match the query


class BadOffset(StoreError):
    """A checkpoint holds an offset that another source wrote."""


class StreamTrouble(StoreError):
    """A stream has changed since the query last read it; `what` tells the event, the text also what to do."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        super().__init__(
            f"{what}. Start the query with a new checkpoint directory, or set failOnDataLoss=false {remedy}"
        )


class DataLost(StreamTrouble):
    """Messages that the query had not read yet were removed: by a limit, by age, or by a purge."""


class StreamRecreated(StreamTrouble):
    """The stream was deleted and recreated since the query last read it."""


class StreamTruncated(StreamTrouble):
    """Sequences that the query has read were rolled back."""


class StreamMissing(StreamTrouble):
    """A stream that the query has read does not exist any more."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """How far a query has read in one stream: it has seen every message in (base, seq]."""

    seq: int
    epoch: int
    base: int
    base_epoch: int
    stream_id: str

    @property
    def run(self) -> tuple[str, int, int]:
        """Where the query began in which stream; consecutive batches share it."""
        return self.stream_id, self.base_epoch, self.base


Offsets = dict[str, StreamOffset]


def encode_offsets(offsets: Offsets) -> dict[str, Any]:
    return {key: asdict(offset) for key, offset in sorted(offsets.items())}


def decode_offsets(data: Mapping[str, Any]) -> Offsets:
    """Parse the offsets of a checkpoint; BadOffset when another source, or a later version, has written it."""
    found: Offsets = {}
    for key, fields in data.items():
        try:
            offset = StreamOffset(**fields)
        except TypeError:
            offset = None
        if (
            offset is None
            or type(offset.stream_id) is not str
            or not all(type(one) is int for one in (offset.seq, offset.epoch, offset.base, offset.base_epoch))
            or not 0 <= offset.base <= offset.seq
        ):
            raise BadOffset(
                f"the checkpoint's offset for {key!r} is {fields!r}, not one of the penstock source "
                f"({', '.join(StreamOffset.__slots__)}): start the query with a checkpoint directory of its own"
            )
        found[key] = offset
    return found


def range_of(key: str, start: Offsets, end: Offsets) -> tuple[int, int]:
    """The sequences [low, high) of a stream in the batch between two offsets.

    The start of a first batch is computed again after a crash and may differ then; the base in its end offset decides.
    """
    before, after = start.get(key), end[key]
    if before is not None and before.run == after.run:
        return before.seq + 1, after.seq + 1
    return after.base + 1, after.seq + 1


# --------------------------------------------------------------------------------------- what happened to the stream


class StreamNow(Protocol):
    """The current state of a stream."""

    @property
    def label(self) -> str:
        """The stream and its store, as messages name them."""

    @property
    def stream_id(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def floor(self) -> int:
        """Limits, age and purges have removed everything below it; deletes of single messages do not move it."""

    @property
    def first_seq(self) -> int: ...
    @property
    def last_seq(self) -> int: ...
    def rewritten_from(self, epoch: int) -> int | None:
        """The lowest sequence that was assigned in a later epoch."""


@dataclass(frozen=True, slots=True)
class Change:
    """Why a query cannot simply continue, and where it continues if failOnDataLoss is off."""

    error: StreamTrouble
    resume: StreamOffset


def find_change(offset: StreamOffset, now: StreamNow) -> Change | None:
    """What happened to a stream since a query reached `offset`; None if that is harmless."""
    if offset.stream_id != now.stream_id:
        return Change(
            StreamRecreated(
                f"{now.label} was deleted and made anew: the checkpoint stands at message {offset.seq} of stream id "
                f"{offset.stream_id}, the stream there now has id {now.stream_id}",
                f"to go on with the new stream's first message, {now.first_seq}",
            ),
            begin_at(now, now.first_seq - 1),
        )
    if offset.epoch != NOT_YET:
        rewritten = now.rewritten_from(offset.epoch) if now.epoch > offset.epoch else None
        if now.last_seq < offset.seq or (rewritten is not None and rewritten <= offset.seq):
            resume = min(now.last_seq, offset.seq if rewritten is None else rewritten - 1)
            return Change(
                StreamTruncated(
                    f"{now.label} was truncated, or lost its end in a crash: the checkpoint stands at message "
                    f"{offset.seq} (epoch {offset.epoch}), of which those after {resume} were taken back; the stream "
                    f"ends at {now.last_seq} now (epoch {now.epoch})",
                    f"to go on after message {resume}",
                ),
                begin_at(now, resume),
            )
    lost = lost_range(now, offset.seq + 1, now.last_seq + 1)
    return Change(lost, offset) if lost else None


def lost_range(now: StreamNow, low: int, high: int) -> DataLost | None:
    """The error for messages in [low, high) that were removed other than by an explicit delete."""
    stop = min(now.floor, high)
    if stop <= low:
        return None
    what = f"message {low} is" if stop == low + 1 else f"messages {low} to {stop - 1} are"
    return DataLost(
        f"{now.label}: {what} gone before the query has read them: a limit, their age or a purge took them, and the "
        f"stream begins at {now.first_seq} now",
        "to go on with what is left; to avoid it, keep messages for longer or let the query run more often",
    )


def begin_at(now: StreamNow, base: int) -> StreamOffset:
    """The offset of a query that begins after `base`."""
    return StreamOffset(base, now.epoch if base <= now.last_seq else NOT_YET, base, now.epoch, now.stream_id)


def advance(offset: StreamOffset, now: StreamNow, seq: int) -> StreamOffset:
    """The offset after a batch up to `seq`; unchanged if the batch does not advance it."""
    return replace(offset, seq=seq, epoch=now.epoch) if seq > offset.seq else offset


# ---------------------------------------------------------------------------------------- the size of the next batch


class Backlog(Protocol):
    """The messages in (low, high] of a stream that the query has not read yet."""

    @property
    def low(self) -> int: ...
    @property
    def high(self) -> int: ...
    def messages(self) -> int:
        """How many messages match the query."""

    def size(self) -> int:
        """Bytes of all messages, matching or not; an estimate where it would take reading them."""

    def after_messages(self, count: int) -> int:
        """The sequence up to which there are `count` matching messages; `high` when there are no more."""

    def after_size(self, size: int) -> int:
        """The sequence up to which there are at most `size` bytes."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of one batch over all streams together; None: no limit."""

    messages: int | None = None
    size: int | None = None


def share(limit: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """Share a limit fairly: streams that need little get it all, the others get equal shares.

    A remainder that cannot be shared evenly goes to the streams that need most, so that no stream starves.
    """
    shares: dict[str, int] = {}
    left = limit
    for place, (key, want) in enumerate(sorted(wanted.items(), key=lambda one: (one[1], one[0]))):
        shares[key] = min(want, left // (len(wanted) - place))
        left -= shares[key]
    return shares


def admit(backlogs: Mapping[str, Backlog], limits: BatchLimits) -> dict[str, int]:
    """The last sequence of each stream in the next batch. If there are messages, the batch takes at least one."""
    ends = {key: backlog.high for key, backlog in backlogs.items()}
    if limits.messages is not None:
        counts = {key: backlog.messages() for key, backlog in backlogs.items()}
        if sum(counts.values()) > limits.messages:
            for key, count in share(limits.messages, counts).items():
                ends[key] = backlogs[key].after_messages(count) if count else backlogs[key].low
    if limits.size is not None:
        sizes = {key: backlog.size() for key, backlog in backlogs.items()}
        if sum(sizes.values()) > limits.size:
            for key, size in share(limits.size, sizes).items():
                ends[key] = min(ends[key], backlogs[key].after_size(size))
    waiting = [key for key, backlog in backlogs.items() if backlog.high > backlog.low]
    if waiting and all(ends[key] <= backlogs[key].low for key in waiting):
        longest = max(waiting, key=lambda key: (backlogs[key].size(), key))
        ends[longest] = backlogs[longest].after_messages(1)  # a single message larger than the limit
    return ends


class Pace:
    """When to run a batch: at once with `messages_min` pending messages, else after `delay_ns`.

    Messages that do not match the query advance its offset only once a minute, so that a query for a quiet subject of a
    busy stream runs no empty batches; the first batch of a run never waits.
    """

    def __init__(self, messages_min: int | None, delay_ns: int) -> None:
        self.messages_min = messages_min or 1
        self.delay_ns = delay_ns if messages_min else SILENCE_NS
        self.last_ns: int | None = None

    def is_due(self, messages: int, now_ns: int) -> bool:
        if messages >= self.messages_min or self.last_ns is None:
            return True
        return now_ns - self.last_ns >= (self.delay_ns if messages else max(self.delay_ns, SILENCE_NS))

    def went(self, now_ns: int) -> None:
        """A batch was planned."""
        self.last_ns = now_ns
