"""Offsets: how far a streaming query has come in each stream, and how much of the rest its next batch takes.

Pure: no file and no Spark here. An offset is JSON in the query's checkpoint, per stream:

    {"<directory of the stream>": {"seq": 120, "epoch": 3, "base": 20, "base_epoch": 2, "stream_id": "6f0c…"}}

  seq        the last sequence of the batch
  epoch      of the stream when the batch was planned; -1 while the stream has not come as far as `base`
  base       the sequence after which the query began: Spark keeps no start of a query's first batch, so its end tells
             it; it changes, or base_epoch does, when the query had to begin again elsewhere
  base_epoch the stream's epoch at that time
  stream_id  of the stream: a stream that was deleted and made anew has another

Nothing in it changes without data, or Spark would run empty batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from penstock.errors import StoreError

NOT_YET = -1  # epoch of an offset that lies beyond the stream's end
SILENCE_NS = 60 * 10**9  # how long an offset may stay behind messages of which the query wants none


class BadOffset(StoreError):
    """A checkpoint holds an offset that is not one of this source."""


class StreamTrouble(StoreError):
    """A stream is not what the query left; `what` happened, and what to do about it."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        super().__init__(
            f"{what}. Start the query with a new checkpoint directory, or set failOnDataLoss=false {remedy}"
        )


class DataLost(StreamTrouble):
    """Messages that the query had not read yet are gone: by a limit, by age, or purged."""


class StreamRecreated(StreamTrouble):
    """The stream was deleted and made anew since the query last read it."""


class StreamTruncated(StreamTrouble):
    """Sequences that the query has read were taken back."""


class StreamMissing(StreamTrouble):
    """A stream that the query has read is not there any more."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """How far a query has come in one stream: it has seen every message in (base, seq]."""

    seq: int
    epoch: int
    base: int
    base_epoch: int
    stream_id: str

    @property
    def run(self) -> tuple[str, int, int]:
        """Batches that follow one another have the same."""
        return self.stream_id, self.base_epoch, self.base


Offsets = dict[str, StreamOffset]


def encode_offsets(offsets: Offsets) -> dict[str, Any]:
    return {key: asdict(offset) for key, offset in sorted(offsets.items())}


def decode_offsets(data: Mapping[str, Any]) -> Offsets:
    """What a checkpoint holds; BadOffset when another source, or a later version, has written it."""
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

    The start of a first batch is worked out again after a crash and may differ then; what its end says counts.
    """
    before, after = start.get(key), end[key]
    if before is not None and before.run == after.run:
        return before.seq + 1, after.seq + 1
    return after.base + 1, after.seq + 1


# -------------------------------------------------------------------------------- what happened to the stream meanwhile


class StreamNow(Protocol):
    """A stream as it is now."""

    @property
    def label(self) -> str:
        """The stream and its store, as messages name them."""

    @property
    def stream_id(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def floor(self) -> int:
        """Below it limits, age and purges have left nothing. Deletes of single messages do not move it."""

    @property
    def first_seq(self) -> int: ...
    @property
    def last_seq(self) -> int: ...
    def rewritten_from(self, epoch: int) -> int | None:
        """The lowest sequence that was given out in a later epoch."""


@dataclass(frozen=True, slots=True)
class Change:
    """Why a query cannot simply go on, and where it goes on all the same if it is told to."""

    error: StreamTrouble
    resume: StreamOffset


def find_change(offset: StreamOffset, now: StreamNow) -> Change | None:
    """What happened to a stream since a query came to `offset`, unless that is harmless."""
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
    """The error for those of [low, high) that are gone for another reason than that somebody deleted them."""
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
    """The offset after a batch up to `seq`; the same one where that is no further."""
    return replace(offset, seq=seq, epoch=now.epoch) if seq > offset.seq else offset


# -------------------------------------------------------------------------------------------- what the next batch takes


class Backlog(Protocol):
    """The messages in (low, high] of a stream that wait for the query."""

    @property
    def low(self) -> int: ...
    @property
    def high(self) -> int: ...
    def messages(self) -> int:
        """How many there are that the query wants."""

    def size(self) -> int:
        """Their bytes, wanted or not, as well as they are known without reading them."""

    def after_messages(self, count: int) -> int:
        """The sequence up to which there are `count` wanted messages; `high` when there are no more."""

    def after_size(self, size: int) -> int:
        """The sequence up to which there are at most `size` bytes."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The most that one batch takes of all streams together; None: no limit."""

    messages: int | None = None
    size: int | None = None


def share(limit: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """A limit shared out fairly: who wants little gets it, the others get the same.

    What cannot be shared evenly goes to those that want most, so that no stream waits for ever.
    """
    shares: dict[str, int] = {}
    left = limit
    for place, (key, want) in enumerate(sorted(wanted.items(), key=lambda one: (one[1], one[0]))):
        shares[key] = min(want, left // (len(wanted) - place))
        left -= shares[key]
    return shares


def admit(backlogs: Mapping[str, Backlog], limits: BatchLimits) -> dict[str, int]:
    """The last sequence of each stream in the next batch. With anything there, at least one message is taken."""
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
        ends[longest] = backlogs[longest].after_messages(1)  # one message that is larger than the limit
    return ends


class Pace:
    """When a batch is worth its while: at once with `messages_min` waiting, else after `delay_ns`.

    Messages that the query does not want move its offset once a minute only, so that a quiet subject of a busy stream
    makes no empty batches; the first batch of a run never waits.
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
