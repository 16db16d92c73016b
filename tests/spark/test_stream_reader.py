"""The streaming reader, called as Spark calls it but in this process; real queries are in test_streaming.py."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from pyspark.sql.types import LongType, StringType, StructField, StructType

import penstock
from penstock import Database
from penstock.base.disk import Disk
from penstock.spark.errors import PenstockSparkError
from penstock.spark.source.offsets import SILENCE_NS
from penstock.spark.source.options import ReadOptions
from penstock.spark.source.stream_reader import PenstockStreamReader
from penstock.spark.source.tail import Tail

UNFINISHED = shutil.ignore_patterns("*.tmp")  # a summary that a thread is about to rename
SCHEMA = StructType([StructField("stream", StringType()), StructField("seq", LongType())])
Offset = dict[str, Any]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Database]:
    with penstock.open(tmp_path / "store", durability="os") as database:
        yield database


def fill(database: Database, name: str, count: int, size: int = 10, subject: str = "a") -> None:
    stream = database.stream(name, subjects=[f"{name}.>"])
    stream.publish_many((f"{name}.{subject}", b"x" * size) for _ in range(count))


def reader_of(path: str | os.PathLike[str], **options: object) -> PenstockStreamReader:
    texts = {name: str(value) for name, value in options.items()}
    return PenstockStreamReader(SCHEMA, ReadOptions.parse({"path": os.fspath(path)} | texts))


def rows(reader: PenstockStreamReader, start: Offset, end: Offset) -> list[tuple[str, int]]:
    found = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            found += list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return found


class Query:
    """What Spark does with a reader: offsets go through JSON, one batch follows the other."""

    def __init__(self, reader: PenstockStreamReader, start: Offset | None = None) -> None:
        self.reader = reader
        self.offset = start if start is not None else json.loads(json.dumps(reader.initialOffset()))
        self.taken: list[tuple[str, int]] = []

    def trigger(self, limit: Any = None) -> list[tuple[str, int]] | None:
        """The rows of one batch; None when there is none to run."""
        end = self.reader.latestOffset(self.offset, limit or self.reader.getDefaultReadLimit())
        end = json.loads(json.dumps(end))
        if end == self.offset:
            return None
        found = rows(self.reader, self.offset, end)
        self.offset = end
        self.taken += found
        return found

    def run(self) -> list[list[tuple[str, int]]]:
        """All batches until there is nothing more."""
        return list(iter(self.trigger, None))


def seqs(batches: list[list[tuple[str, int]]]) -> list[list[int]]:
    return [[seq for _, seq in batch] for batch in batches]


# ------------------------------------------------------------------------------------------------------- start and end


def test_a_query_reads_what_is_there_and_then_what_comes(store: Database) -> None:
    fill(store, "S", 100)
    query = Query(reader_of(store.path, stream="S"))
    assert seqs(query.run()) == [list(range(1, 101))]
    assert query.trigger() is None
    fill(store, "S", 5)
    assert seqs(query.run()) == [list(range(101, 106))]
    key = os.path.join(store.path, "$G", "S")
    assert set(query.offset) == {key}
    assert query.offset[key]["seq"] == 105 and query.offset[key]["base"] == 0


def test_the_start_is_earliest_latest_a_sequence_or_a_time(store: Database) -> None:
    fill(store, "S", 10)
    middle = time.time_ns()
    fill(store, "S", 10)
    store.stream("S").purge(seq=3)
    starts = {
        "startingOffsets=earliest": 3,
        "startingOffsets=latest": 21,
        "startingSeq=7": 7,
        "startingSeq=1": 3,
        f"startingTime={middle_text(middle)}": 11,
        "startingTime=2000-01-01": 3,
        "startingTime=2100-01-01": 21,
        "startingSeq=25": 25,
    }
    queries = {}
    for option, first in starts.items():
        name, _, value = option.partition("=")
        queries[option] = Query(reader_of(store.path, stream="S", **{name: value})), first
    fill(store, "S", 10)
    for option, (query, first) in queries.items():
        query.run()
        assert [seq for _, seq in query.taken] == list(range(first, 31)), option


def middle_text(ns: int) -> str:
    from penstock.base.duration import format_time

    return format_time(ns)


def test_the_end_is_a_sequence_or_a_time_and_the_query_then_idles(store: Database) -> None:
    fill(store, "S", 10)
    middle = time.time_ns()
    queries = {
        "seq": Query(reader_of(store.path, stream="S", endingSeq=15)),
        "time": Query(reader_of(store.path, stream="S", endingTime=middle_text(middle))),
        "later": Query(reader_of(store.path, stream="S", endingTime="2100-01-01")),
    }
    for query in queries.values():
        assert seqs(query.run()) == [list(range(1, 11))]
    for _ in range(3):
        fill(store, "S", 10)
        for query in queries.values():
            query.run()
    ends = {name: query.taken[-1][1] for name, query in queries.items()}
    assert ends == {"seq": 14, "time": 10, "later": 40}


def test_the_first_batch_is_the_same_after_a_crash(store: Database) -> None:
    """Its start is not in the checkpoint; `latest` would be somewhere else after the restart."""
    fill(store, "S", 50)
    query = Query(reader_of(store.path, stream="S", startingOffsets="latest"))
    fill(store, "S", 20)
    end = query.reader.latestOffset(query.offset, ReadAllAvailable())
    first = rows(query.reader, query.offset, end)
    assert [seq for _, seq in first] == list(range(51, 71))
    fill(store, "S", 30)
    again = reader_of(store.path, stream="S", startingOffsets="latest")
    assert again.initialOffset() != query.offset
    assert rows(again, again.initialOffset(), end) == first
    assert seqs(Query(again, end).run()) == [list(range(71, 101))]


# --------------------------------------------------------------------------------------------------------------- limits


def test_limits_of_messages_count_those_that_the_query_wants(store: Database) -> None:
    stream = store.stream("S", subjects=["S.>"])
    stream.publish_many((f"S.{'rare' if n % 10 == 0 else 'often'}", b"x") for n in range(1, 1001))
    stream.delete_many(range(200, 400))
    query = Query(reader_of(store.path, stream="S", maxMessagesPerTrigger=30))
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(30)
    batches = query.run()
    assert [len(batch) for batch in batches] == [30] * 26 + [20]
    assert [seq for _, seq in query.taken] == [*range(1, 200), *range(400, 1001)]
    rare = Query(reader_of(store.path, stream="S", maxMessagesPerTrigger=30, subjects="S.rare"))
    assert [len(batch) for batch in rare.run()] == [30, 30, 20]
    assert [seq for _, seq in rare.taken] == [*range(10, 200, 10), *range(400, 1001, 10)]


def test_limits_of_bytes_hold_over_blocks_and_one_large_message_goes_alone(store: Database) -> None:
    stream = store.stream("S", subjects=["S.>"])
    sizes = [random.Random(3).choice([10, 100, 3000]) for _ in range(400)]
    stream.publish_many(("S.a", b"x" * size) for size in sizes)
    query = Query(reader_of(store.path, stream="S", maxBytesPerTrigger=5000))
    assert query.reader.getDefaultReadLimit() == ReadMaxBytes(5000)
    batches = seqs(query.run())
    assert [seq for batch in batches for seq in batch] == list(range(1, 401))
    for batch, after in pairwise(batches):
        payloads = sum(sizes[seq - 1] for seq in batch)
        assert payloads < 5000
        assert payloads + sizes[after[0] - 1] + 60 * (len(batch) + 1) > 5000, "and as many as fit"
    lone = Query(reader_of(store.path, stream="S", maxBytesPerTrigger=50))
    assert {len(batch) for batch in lone.run()} == {1}


def test_limits_are_shared_by_the_streams(store: Database) -> None:
    for name, count in (("A", 5), ("B", 100), ("C", 100)):
        fill(store, name, count)
    query = Query(reader_of(store.path, maxMessagesPerTrigger=45))
    first = query.trigger()
    assert first is not None
    assert [sum(stream == name for stream, _ in first) for name in "ABC"] == [5, 20, 20]
    query.run()
    assert sorted(query.taken) == [("A", n) for n in range(1, 6)] + [(s, n) for s in "BC" for n in range(1, 101)]


def test_trigger_once_takes_everything_whatever_the_limits(store: Database) -> None:
    fill(store, "S", 100)
    query = Query(reader_of(store.path, maxMessagesPerTrigger=10, minMessagesPerTrigger=1000))
    assert len(query.trigger(ReadAllAvailable()) or []) == 100


def test_a_batch_waits_for_the_minimum_or_the_delay(store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 10**12
    monkeypatch.setattr(time, "monotonic_ns", lambda: now)
    fill(store, "S", 3)
    query = Query(reader_of(store.path, minMessagesPerTrigger=10, maxTriggerDelay="5m"))
    assert query.reader.getDefaultReadLimit() == ReadMinRows(10)
    assert seqs(query.run()) == [[1, 2, 3]], "a run's first batch does not wait"
    fill(store, "S", 9)
    assert query.run() == []
    fill(store, "S", 1)
    assert seqs(query.run()) == [list(range(4, 14))]
    fill(store, "S", 1)
    now += 5 * 60 * 10**9 - 1
    assert query.run() == []
    now += 1
    assert seqs(query.run()) == [[14]]


def test_a_quiet_subject_of_a_busy_stream_makes_no_empty_batches(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 10**12
    monkeypatch.setattr(time, "monotonic_ns", lambda: now)
    fill(store, "S", 3, subject="quiet")
    query = Query(reader_of(store.path, subjects="S.quiet"))
    query.run()
    fill(store, "S", 100)
    assert query.run() == []
    store.stream("S").purge(seq=50)
    assert query.run() == [], "what went was not for this query"
    now += SILENCE_NS
    assert query.run() == [[]], "once a minute the checkpoint follows"
    fill(store, "S", 1, subject="quiet")
    assert seqs(query.run()) == [[104]]


def test_available_now_stops_at_what_was_there_at_the_start(store: Database) -> None:
    fill(store, "A", 50)
    reader = reader_of(store.path, maxMessagesPerTrigger=20, minMessagesPerTrigger=10**6)
    reader.prepareForTriggerAvailableNow()
    fill(store, "A", 50)
    fill(store, "B", 50)
    query = Query(reader)
    assert [len(batch) for batch in query.run()] == [20, 20, 10]
    assert query.taken == [("A", n) for n in range(1, 51)]
    later = reader_of(store.path)
    later.prepareForTriggerAvailableNow()
    assert sorted(x for batch in Query(later, query.offset).run() for x in batch) == [
        *(("A", n) for n in range(51, 101)),
        *(("B", n) for n in range(1, 51)),
    ]


# ------------------------------------------------------------------------------------------------------------------ lag


def test_the_progress_shows_how_far_behind_each_stream_is(store: Database) -> None:
    fill(store, "A", 50, size=100)
    fill(store, "B", 3)
    query = Query(reader_of(store.path, maxMessagesPerTrigger=10))
    a, b = (os.path.join(store.path, "$G", name) for name in "AB")
    query.trigger()
    store.stream("A").delete(30)
    report = query.reader.reportLatestOffset()
    assert report is not None
    assert report[a]["seq"] == 50 and report[a]["messages_behind"] == 43
    assert 43 * 100 < report[a]["bytes_behind"] < 45 * 200
    assert report[b] == {"seq": 3, "messages_behind": 0, "bytes_behind": 0}
    query.run()
    assert (query.reader.reportLatestOffset() or {})[a]["messages_behind"] == 0
    json.dumps(report)


# ------------------------------------------------------------------------------------------------------------ data loss


def lose(store: Database) -> tuple[PenstockStreamReader, Offset]:
    fill(store, "S", 100)
    query = Query(reader_of(store.path, stream="S", endingSeq=21))
    query.run()
    store.stream("S").purge(seq=61)
    return reader_of(store.path, stream="S"), query.offset


def test_a_loss_fails_with_the_range_and_the_remedy(store: Database) -> None:
    reader, offset = lose(store)
    with pytest.raises(PenstockSparkError, match=r"DataLost: stream S in .*messages 21 to 60 are gone.*failOnDataLoss"):
        reader.latestOffset(offset, ReadAllAvailable())


def test_a_batch_that_is_run_again_after_a_loss_fails_too(store: Database) -> None:
    reader, offset = lose(store)
    end = {key: fields | {"seq": 50} for key, fields in offset.items()}
    with pytest.raises(PenstockSparkError, match="messages 21 to 50 are gone"):
        reader.partitions(offset, end)


def test_without_fail_on_data_loss_it_goes_on_with_one_line_in_the_log(
    store: Database, caplog: pytest.LogCaptureFixture
) -> None:
    _, offset = lose(store)
    query = Query(reader_of(store.path, stream="S", failOnDataLoss="false", maxMessagesPerTrigger=10), offset)
    with caplog.at_level(logging.WARNING):
        assert [seq for batch in seqs(query.run()) for seq in batch] == list(range(61, 101))
    assert len(caplog.messages) == 1 and "messages 21 to 60 are gone" in caplog.messages[0]


@pytest.mark.parametrize("limit", [{"max_msgs": 30}, {"max_bytes": 3000}, {"max_age": "100ms"}])
def test_limits_and_age_are_loss(store: Database, limit: dict[str, Any]) -> None:
    fill(store, "S", 100)
    query = Query(reader_of(store.path, stream="S", endingSeq=21))
    query.run()
    store.stream("S", **limit)
    while store.stream("S").state().first_seq == 1:  # age comes by itself
        fill(store, "S", 1)
    with pytest.raises(PenstockSparkError, match=r"DataLost: .*messages 21 to"):
        Query(reader_of(store.path, stream="S"), query.offset).run()


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_loss_between_planning_and_reading_is_noticed(store: Database, is_strict: bool) -> None:
    """The blocks that a task was to read are gone when it comes to them."""
    fill(store, "S", 30_000, size=1000)
    reader = reader_of(store.path, stream="S", failOnDataLoss=str(is_strict))
    start = reader.initialOffset()
    partitions = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    stream = store.stream("S")
    stream.purge(seq=25_001)
    while os.path.exists(partitions[0].value[0].blocks[0].path):  # a block goes some time after its last message
        stream.sync()
        fill(store, "S", 1)
    if is_strict:
        with pytest.raises(PenstockSparkError, match=r"StreamChanged: stream S in .*messages 1 to \d+ were removed"):
            list(reader.read(partitions[0]))
    else:
        found = [seq for one in partitions for batch in reader.read(one) for seq in batch["seq"].to_pylist()]
        assert found == sorted(set(found)) and set(range(25_001, 30_001)) <= set(found)


def test_messages_that_somebody_deleted_are_no_loss(store: Database) -> None:
    fill(store, "S", 100)
    query = Query(reader_of(store.path, stream="S", endingSeq=21))
    query.run()
    store.stream("S").delete_many([*range(1, 31), 50, 51, 100])
    again = Query(reader_of(store.path, stream="S"), query.offset)
    assert [seq for batch in seqs(again.run()) for seq in batch] == [*range(31, 50), *range(52, 100)]


def test_a_stream_made_anew_is_noticed(store: Database, caplog: pytest.LogCaptureFixture) -> None:
    fill(store, "S", 30)
    running = Query(reader_of(store.path, stream="S"))
    running.run()
    store.delete_stream("S")
    fill(store, "S", 50)
    with pytest.raises(PenstockSparkError, match=r"StreamRecreated: stream S .*deleted and made anew.*message 30"):
        running.run()
    with pytest.raises(PenstockSparkError, match="StreamRecreated"):
        reader_of(store.path, stream="S").partitions(running.offset, running.offset | bumped(running.offset, 40))
    again = Query(reader_of(store.path, stream="S", failOnDataLoss="false", maxMessagesPerTrigger=20), running.offset)
    assert [seq for batch in seqs(again.run()) for seq in batch] == list(range(1, 51))
    assert len(caplog.messages) == 1


def bumped(offset: Offset, seq: int) -> Offset:
    return {key: fields | {"seq": seq} for key, fields in offset.items()}


@pytest.mark.parametrize("refill", [0, 10, 100])
def test_a_truncated_stream_is_noticed_also_when_it_has_grown_again(store: Database, refill: int) -> None:
    fill(store, "S", 50)
    query = Query(reader_of(store.path, stream="S"))
    query.run()
    store.stream("S").rules.store.truncate(30)  # type: ignore[attr-defined]
    if refill:
        fill(store, "S", refill)
    with pytest.raises(PenstockSparkError, match=r"StreamTruncated: stream S .*message 50.*after 30 were taken back"):
        query.run()
    again = Query(reader_of(store.path, stream="S", failOnDataLoss="false"), query.offset)
    assert [seq for batch in seqs(again.run()) for seq in batch] == list(range(31, 31 + refill))


def test_a_writer_that_was_killed_and_comes_back_is_no_change(store: Database) -> None:
    """The epoch rises; the offset does not change for it, and the query goes on."""
    fill(store, "S", 50)
    copy = f"{store.path}-copy"
    shutil.copytree(store.path, copy, ignore=UNFINISHED)  # as a kill leaves it: not closed
    query = Query(reader_of(copy, stream="S"))
    query.run()
    with penstock.open(copy, durability="os") as again:
        assert again.stream("S").view().epoch == 1
        assert query.trigger() is None
        fill(again, "S", 10)
        assert seqs(query.run()) == [list(range(51, 61))]


# ------------------------------------------------------------------------------------------------------ several streams


def test_streams_that_appear_join_at_their_start(store: Database, tmp_path: Path) -> None:
    fill(store, "A", 10)
    with penstock.open(tmp_path / "second", durability="os") as second:
        fill(second, "A", 10)
        query = Query(reader_of(f"{store.path},{second.path}", startingOffsets="latest"))
        assert query.run() == []
        fill(store, "B", 20)
        fill(second, "A", 1)
        assert [sorted(batch) for batch in query.run()] == [[("A", 11), *(("B", n) for n in range(1, 21))]]
        store.stream("C", subjects=["C.>"])
        assert query.trigger() is None, "an empty stream makes no batch"


def test_a_stream_that_is_gone_fails_the_query_unless_told_otherwise(
    store: Database, caplog: pytest.LogCaptureFixture
) -> None:
    fill(store, "A", 10)
    fill(store, "B", 10)
    query = Query(reader_of(store.path))
    query.run()
    store.delete_stream("B")
    fill(store, "A", 10)
    with pytest.raises(PenstockSparkError, match=r"StreamMissing: stream B of .*not there any more"):
        query.run()
    again = Query(reader_of(store.path, failOnDataLoss="false"), query.offset)
    assert again.run() == [[("A", n) for n in range(11, 21)]]
    fill(store, "A", 1)
    assert again.run() == [[("A", 21)]]
    assert len(caplog.messages) == 1


def test_a_store_that_was_moved_goes_on_where_it_was(store: Database) -> None:
    fill(store, "S", 10)
    query = Query(reader_of(store.path))
    query.run()
    moved = f"{store.path}-moved"
    shutil.copytree(store.path, moved, ignore=UNFINISHED)
    with penstock.open(moved, durability="os") as database:
        fill(database, "S", 5)
        again = Query(reader_of(moved), query.offset)
        assert seqs(again.run()) == [list(range(11, 16))]


def test_of_two_copies_of_a_store_one_that_goes_is_not_taken_for_the_other(store: Database) -> None:
    fill(store, "S", 10)
    copy = f"{store.path}-copy"
    shutil.copytree(store.path, copy, ignore=UNFINISHED)
    query = Query(reader_of(f"{store.path},{copy}", failOnDataLoss="false"))
    assert len(query.trigger() or []) == 20
    shutil.rmtree(os.path.join(copy, "$G", "S"))
    fill(store, "S", 5)
    assert seqs(query.run()) == [list(range(11, 16))]


def test_a_stream_that_is_being_made_is_waited_for(store: Database) -> None:
    fill(store, "S", 10)
    query = Query(reader_of(store.path))
    query.run()
    root = os.path.join(store.path, "$G", "T")
    os.mkdir(root)
    assert query.trigger() is None
    for name in ("config.json", "config.copy.json"):
        shutil.copy(os.path.join(store.path, "$G", "S", name), root)
    assert query.trigger() is None


def test_a_stream_or_store_that_is_not_there_is_named(store: Database, tmp_path: Path) -> None:
    fill(store, "ORDERS", 1)
    with pytest.raises(PenstockSparkError, match=r"stream 'ORDER' not found in .*there are: ORDERS"):
        reader_of(store.path, stream="ORDER").initialOffset()
    with pytest.raises(PenstockSparkError, match=r"NotAStore: .*no such directory"):
        reader_of(tmp_path / "nowhere").initialOffset()


# --------------------------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize("is_indexed", [True, False])
def test_damage_at_the_first_message_of_a_batch_is_met(tmp_path: Path, is_indexed: bool) -> None:
    """Without its summaries the index has no row for the damaged message: a batch that begins there must read it."""
    root = tmp_path / "store" / "$G" / "S"
    with penstock.open(tmp_path / "store", durability="os") as database:
        database.stream("S", subjects=["S.>"]).publish_many(("S.a", b"message %03d" % n) for n in range(1, 101))
    block = root / "blocks" / "000001.blk"
    block.write_bytes(block.read_bytes().replace(b"message 050", b"MESSAGE 050"))
    if not is_indexed:
        for path in [*root.glob("blocks/*.sum"), root / "CHECKPOINT"]:
            path.unlink(missing_ok=True)
    query = Query(reader_of(tmp_path / "store", maxMessagesPerTrigger=49))
    assert seqs([query.trigger() or []]) == [list(range(1, 50))]
    with pytest.raises(PenstockSparkError, match=r"CorruptBlock: .*000001.blk at byte \d+: checksum differs"):
        query.trigger()
    again = Query(reader_of(tmp_path / "store", mode="skip"), query.offset)
    assert seqs(again.run()) == [list(range(51, 101))]


# ---------------------------------------------------------------------------------------------------------- the planner


class CountingDisk(Disk):
    """Which files were opened or read."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def open(self, path: Any, mode: str = "r") -> int:
        self.seen.append(os.fsdecode(path))
        return super().open(path, mode)

    def read_file(self, path: Any) -> bytes:
        self.seen.append(os.fsdecode(path))
        return super().read_file(path)


def test_an_idle_trigger_reads_no_block_and_costs_little(store: Database) -> None:
    fill(store, "S", 20_000, size=1000)
    disk = CountingDisk()
    tail = Tail(os.path.join(store.path, "$G", "S"), disk)
    disk.seen.clear()
    tail.refresh()
    assert {os.path.basename(path) for path in disk.seen} == {"HEAD"}
    query = Query(reader_of(store.path, stream="S"))
    query.run()
    took = []
    for _ in range(50):
        before = time.perf_counter()
        assert query.reader.latestOffset(query.offset, ReadAllAvailable()) == query.offset
        took.append(time.perf_counter() - before)
    assert min(took) < 0.001


def test_a_small_batch_reads_only_its_end_of_the_block(store: Database) -> None:
    fill(store, "S", 3000, size=1000)
    query = Query(reader_of(store.path, stream="S"))
    query.run()
    fill(store, "S", 3, size=1000)
    end = query.reader.latestOffset(query.offset, ReadAllAvailable())
    (partition,) = query.reader.partitions(query.offset, end)
    (part,) = partition.value
    assert 3000 < part.size < 5000
    assert (part.low, part.high) == (3001, 3004)


def test_partitions_are_by_bytes_and_small_streams_share_a_task(store: Database) -> None:
    fill(store, "BIG", 40_000, size=1000)
    for n in range(20):
        fill(store, f"SMALL{n}", 5)
    reader = reader_of(store.path, maxPartitionBytes="8m")
    partitions = reader.partitions({}, reader.latestOffset(reader.initialOffset(), ReadAllAvailable()))
    assert 5 <= len(partitions) <= 8
    assert sum(len(partition.value) for partition in partitions) <= len(partitions) + 20
    assert all(isinstance(partition, InputPartition) for partition in partitions)
    for asked, count in ((None, 1), (3, 3)):
        few = reader_of(store.path, stream="SMALL1", **({"minPartitions": asked} if asked else {}))
        assert len(few.partitions({}, few.latestOffset(few.initialOffset(), ReadAllAvailable()))) == count


@pytest.mark.parametrize("seed", range(4))
def test_backlogs_agree_with_a_walk_over_the_messages(store: Database, seed: int) -> None:
    """Counts, and where a number of messages or bytes ends, in several blocks with holes, filtered or not."""
    dice = random.Random(seed)
    stream = store.stream("S", subjects=["S.>"])
    for _ in range(5):
        stream.publish_many((f"S.{dice.choice('abc')}", b"x" * dice.randrange(2000)) for _ in range(2500))
        stream.delete_many(dice.sample(range(1, stream.state().last_seq + 1), 200))
        start = dice.randrange(1, stream.state().last_seq - 500)
        stream.delete_many(range(start, start + 400))
    found = [(message.seq, message.subject) for message in stream.read()]
    tail = Tail(os.path.join(store.path, "$G", "S"))
    assert len(tail.blocks()) > 1
    for _ in range(30):
        low, high = sorted(dice.sample(range(tail.last_seq + 1), 2))
        subjects = dice.choice([(), ("S.a",), ("S.a", "S.b"), ("S.*",)])
        wanted = [s for s, name in found if low < s <= high and (not subjects or "S.*" in subjects or name in subjects)]
        backlog = tail.backlog(low, high, subjects)
        assert backlog.messages() == len(wanted)
        count = dice.randrange(1, max(len(wanted), 2))
        assert backlog.after_messages(count) == (wanted[count - 1] if count < len(wanted) else high)
        size = backlog.size()
        cut = backlog.after_size(dice.randrange(1, size))
        assert low <= cut <= high
        assert backlog.after_size(size) == high
        first, second = tail.backlog(low, cut).size(), tail.backlog(cut, high).size()
        assert abs(first + second - size) < 4096 * len(tail.blocks()), "the parts are the whole, but for block headers"
        view = tail.view(low + 1, high + 1)
        assert view.dead is not None
        alive = {seq for seq, _ in found}
        for seq in range(max(low + 1, tail.first_seq), high + 1):
            assert (seq in view.dead) == (seq not in alive)
