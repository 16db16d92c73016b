"""PenstockStreamReader: one, several or all streams of a store as the source of a streaming query.

Spark keeps one reader in a planning process of the driver for as long as the query runs. At each trigger Spark asks it
where the next batch ends (`latestOffset`) and for the parts of that batch (`partitions`), which other processes `read`.
For the layout of an offset see spark/source/offsets.py. Messages keep their sequences, so a batch that runs again is
the same.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.scan.part import read_part
from penstock.scan.plan import plan
from penstock.spark.errors import as_one_line
from penstock.spark.source.offsets import (
    BatchLimits,
    Offsets,
    Pace,
    StreamMissing,
    StreamOffset,
    StreamTrouble,
    admit,
    advance,
    begin_at,
    decode_offsets,
    encode_offsets,
    find_change,
    lost_range,
    range_of,
)
from penstock.spark.source.source import RowFormat
from penstock.spark.source.tail import Tail, TailBacklog, Tails
from penstock.spark.source.tasks import SPLIT_BYTES, settle_worker, task_bytes

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from penstock.scan.part import Part
    from penstock.spark.source.options import ReadOptions
    from penstock.store.read.view import StreamView

DELAY_NS = 15 * 60 * 10**9  # default of maxTriggerDelay with minMessagesPerTrigger

log = logging.getLogger("penstock.spark")


class PenstockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming read.

    Always true: nothing is open until the query asks for an offset, so the copies in tasks hold no file; every offset
    that was returned is a position in streams whose identity was checked.
    """

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self.options = options
        self.format = RowFormat(schema, options)
        self._pace = Pace(options.min_messages_per_trigger, _or(options.max_trigger_delay, DELAY_NS))
        self._tails: Tails | None = None
        self._initial: Offsets | None = None
        self._position: Offsets = {}
        self._joined: dict[str, StreamOffset] = {}
        self._seen: dict[str, int] = {}
        self._targets: dict[str, int] | None = None
        self._ends: dict[str, tuple[str, int]] = {}
        self._warned: set[tuple[str, int, type[StreamTrouble]]] = set()

    # Where a query begins.

    def initialOffset(self) -> dict[str, Any]:
        """The start of the first batch; constant for the life of this process."""
        with as_one_line():
            if self._initial is None:
                tails = self._refreshed()
                self._opened().check_named()
                self._initial = {root: begin_at(tail, self._base(tail)) for root, tail in tails.items()}
                self._position = self._initial
            return encode_offsets(self._initial)

    def _base(self, tail: Tail) -> int:
        """The sequence after which the query begins, according to the options."""
        options = self.options
        base = tail.last_seq if options.starting_offsets == "latest" else tail.first_seq - 1
        if options.starting_time is not None:
            base = max(base, tail.seq_from_time(options.starting_time) - 1)
        if options.starting_seq is not None:
            base = max(base, options.starting_seq - 1)
        return base

    # The end of the next batch.

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit that Spark passes to `latestOffset`; it only says that one exists, the options have its value."""
        options = self.options
        if options.max_messages_per_trigger is not None:
            return ReadMaxRows(options.max_messages_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_messages_per_trigger is not None:
            return ReadMinRows(options.min_messages_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the target: messages stored and streams created after this call are not read."""
        with as_one_line():
            self._targets = {root: tail.last_seq for root, tail in self._refreshed().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with as_one_line():
            before = decode_offsets(start)
            tails = self._refreshed()
            self._opened().check_named(before)
            positions, by_key = self._go_on(before, tails)
            backlogs = {
                key: tail.backlog(positions[key].seq, self._end(tail), self.options.subjects)
                for key, tail in by_key.items()
            }
            is_all = isinstance(limit, ReadAllAvailable)
            after = dict(before)
            if self._is_due(backlogs, is_all):
                for key, end in admit(backlogs, BatchLimits() if is_all else self._limits()).items():
                    if end > positions[key].seq:
                        after[key] = advance(positions[key], by_key[key], end)
            self._position = positions | after
            return encode_offsets(after)

    def _limits(self) -> BatchLimits:
        return BatchLimits(self.options.max_messages_per_trigger, self.options.max_bytes_per_trigger)

    def _is_due(self, backlogs: dict[str, TailBacklog], is_all: bool) -> bool:
        """Whether there are messages, and enough of them to be worth a batch."""
        if all(backlog.high == backlog.low for backlog in backlogs.values()):
            return False
        now = time.monotonic_ns()
        messages = sum(backlog.messages() for backlog in backlogs.values())
        # A trigger that runs once, or up to a target, takes all available messages.
        may_wait = self._targets is None and not (is_all and self.options.min_messages_per_trigger is not None)
        if may_wait and not self._pace.is_due(messages, now):
            if not messages:  # none matches the query: if they are removed, the query loses nothing
                self._seen |= {key: backlog.high for key, backlog in backlogs.items()}
            return False
        self._pace.went(now)
        return True

    def _go_on(self, before: Offsets, tails: dict[str, Tail]) -> tuple[Offsets, dict[str, Tail]]:
        """Each stream and its offset, by the offset's key; new streams begin at their start."""
        known = {key: _find(key, before, tails) for key in before}
        offsets = before | self._joining(before, [tail for tail in tails.values() if tail not in known.values()])
        positions: Offsets = {}
        by_key: dict[str, Tail] = {}
        for key, offset in offsets.items():
            tail = known[key] if key in known else tails[key.partition("#")[0]]
            if tail is None:
                self._missing(key)
                continue
            change = find_change(offset, tail)
            positions[key], by_key[key] = change.resume if change else offset, tail
            if change is not None and change.resume is not offset:
                self._seen.pop(key, None)
                self._told_or_raised(key, offset.seq, change.error)
            elif change is not None and self._seen.get(key, 0) + 1 < tail.floor:
                self._told_or_raised(key, offset.seq, change.error)
        return positions, by_key

    def _joining(self, before: Offsets, new: list[Tail]) -> Offsets:
        """Streams missing from the checkpoint: they begin where they did when they were first seen."""
        for tail in new:
            key = tail.root if tail.root not in before else f"{tail.root}#{tail.stream_id}"
            joined = self._joined.get(key)
            if joined is None or joined.stream_id != tail.stream_id:
                self._joined[key] = begin_at(tail, tail.first_seq - 1)
        roots = {tail.root for tail in new}
        return {key: one for key, one in self._joined.items() if key not in before and key.partition("#")[0] in roots}

    def _end(self, tail: Tail) -> int:
        """The last sequence that the query may read now."""
        end = tail.last_seq
        if self._targets is not None:
            end = min(end, self._targets.get(tail.root, 0))
        if self.options.ending_seq is not None:
            end = min(end, self.options.ending_seq - 1)
        if self.options.ending_time is not None:
            end = min(end, self._end_by_time(tail, self.options.ending_time))
        return end

    def _end_by_time(self, tail: Tail, time_ns: int) -> int:
        """The last sequence before a time; looked up again until the stream has reached that time, then cached."""
        stream_id, end = self._ends.get(tail.root, ("", 0))
        if stream_id != tail.stream_id:
            end = tail.seq_from_time(time_ns) - 1
            if end < tail.last_seq:
                self._ends[tail.root] = (tail.stream_id, end)
        return end

    # The batch.

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with as_one_line():
            before, after = decode_offsets(start), decode_offsets(end)
            tails = self._refreshed()
            self._position = after
            views = []
            for key, offset in after.items():
                low, high = range_of(key, before, after)
                if low >= high:
                    continue
                tail = _find(key, after, tails)
                if tail is None:
                    self._missing(key)
                elif self._holds(key, offset, tail, low, high):
                    views.append((tail.view(low, high), low, high))
            return [InputPartition(tuple(parts)) for parts in self._plan(views)]

    def _holds(self, key: str, end: StreamOffset, tail: Tail, low: int, high: int) -> bool:
        """Whether the range of a planned batch, perhaps planned before a restart, still belongs to that stream."""
        change = find_change(end, tail)
        if change is not None and change.resume is not end:
            self._told_or_raised(key, low - 1, change.error)
            return False
        lost = lost_range(tail, max(low, self._seen.get(key, 0) + 1), high)
        if lost is not None:
            self._told_or_raised(key, low - 1, lost)
        return True

    def _plan(self, views: list[tuple[StreamView, int, int]]) -> Iterator[list[Part]]:
        """The parts of a batch by task: bounded in size, and one task per core if there is enough to read."""
        options = self.options
        total = sum(block.stop - block.start for view, _, _ in views for block in view.blocks)
        target = task_bytes(total, options)
        parts = [
            part
            for view, low, high in views
            for part in plan(view, subjects=options.subjects, start_seq=low, stop_seq=high, max_bytes=target)
        ]
        return _packed(parts, min(target, SPLIT_BYTES))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options, rows = self.options, self.format
        settle_worker()
        with as_one_line():
            for part in partition.value:
                for batch in read_part(
                    part,
                    subjects=options.subjects,
                    columns=rows.columns,
                    headers=options.headers,
                    mode=options.mode,
                    may_shrink=not options.fail_on_data_loss,
                ):
                    yield rows.shape(batch)

    # Metrics in the query's progress.

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Per stream: its last sequence, and how much of it lies beyond the current batch."""
        with as_one_line():
            if self._tails is None:
                return None
            tails = self._tails.now()
            report: dict[str, Any] = {}
            for key, offset in self._position.items():
                tail = _find(key, self._position, tails)
                if tail is None or tail.stream_id != offset.stream_id:
                    continue
                end = self._end(tail)
                behind = tail.backlog(offset.seq, end, self.options.subjects)
                report[key] = {
                    "seq": tail.last_seq,
                    "messages_behind": behind.messages(),
                    "bytes_behind": behind.size(),
                }
            return report

    def stop(self) -> None:
        if self._tails is not None:
            self._tails.close()
            self._tails = None

    # Streams.

    def _opened(self) -> Tails:
        if self._tails is None:
            self._tails = Tails(self.options.paths, self.options.streams, self.options.account)
        return self._tails

    def _refreshed(self) -> dict[str, Tail]:
        return self._opened().refresh()

    def _missing(self, key: str) -> None:
        store = os.path.dirname(os.path.dirname(key))
        self._told_or_raised(
            key,
            0,
            StreamMissing(
                f"stream {os.path.basename(key)} of {store}, which the query has read, is not there any more (or not "
                "among the streams that it is asked for now)",
                "to go on without it",
            ),
        )

    def _told_or_raised(self, key: str, seq: int, error: StreamTrouble) -> None:
        """failOnDataLoss: raise the error, or log one line for each event."""
        if self.options.fail_on_data_loss:
            raise error
        if (key, seq, type(error)) not in self._warned:
            self._warned.add((key, seq, type(error)))
            log.warning("failOnDataLoss=false, the query goes on: %s", error.what)


def _find(key: str, offsets: Offsets, tails: dict[str, Tail]) -> Tail | None:
    """The stream of an offset: in its directory, or in another with the same id if the store was moved."""
    stream_id, there = offsets[key].stream_id, tails.get(key)
    if there is not None and there.stream_id == stream_id:
        return there
    moved = (tail for root, tail in tails.items() if tail.stream_id == stream_id and root not in offsets)
    return next(moved, there)


def _packed(parts: list[Part], size_max: int) -> Iterator[list[Part]]:
    """Parts of many small streams, grouped so that not every one of them becomes a task."""
    group: list[Part] = []
    size = 0
    for part in parts:
        if group and size + part.size > size_max:
            yield group
            group, size = [], 0
        group.append(part)
        size += part.size
    if group:
        yield group


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
