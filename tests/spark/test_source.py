"""format("penstock"): rows, columns, filters and partitions of a batch read, on a real Spark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.base.subject import Filters
from penstock.scan.plan import open_views
from penstock.spark.source.filters import Pushed, push
from penstock.spark.source.options import ReadOptions
from penstock.spark.source.source import plan_read
from penstock.testing import FakeClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BLOCK = 2000
START = 1_700_000_000_000_000_000
STEP = 1_000_000_500  # half a microsecond beyond a second: bounds in microseconds must be exact
COUNT = 400


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Stream A with 400 messages in small blocks, a little over a second apart, some deleted; B with 10."""
    path, clock = tmp_path_factory.mktemp("store") / "data", FakeClock(START)
    with (
        patch("penstock.stream.stream.block_size", lambda config: BLOCK),
        penstock.open(path, durability="os", clock=clock) as db,
    ):
        first = db.stream("A", subjects=["a.>"])
        for n in range(1, COUNT + 1):
            headers = {"N": str(n)} if n % 10 == 0 else None
            first.publish(f"a.{'eu' if n % 2 else 'us'}.{n % 5}", b"payload %d" % n, headers=headers)
            clock.advance(STEP)
        first.delete_many([11, 12, 200])
        db.stream("B", subjects=["b.>"]).publish_many([("b.x", b"other %d" % n) for n in range(10)])
    return str(path)


def load(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    return spark.read.format("penstock").options(**options).load(path)


def seqs(frame: DataFrame) -> list[int]:
    return sorted(row.seq for row in frame.select("seq").collect())


ALIVE = [seq for seq in range(1, COUNT + 1) if seq not in (11, 12, 200)]


def test_every_row_is_what_the_library_reads(spark: SparkSession, store: str) -> None:
    frame = load(spark, store, stream="A")
    rows = sorted(frame.collect(), key=lambda row: row.seq)
    with penstock.open(store, read_only=True) as db:
        wanted = db.stream("A").to_arrow().to_pylist()
    assert len(rows) == len(ALIVE)
    for row, message in zip(rows, wanted, strict=True):
        assert row.stream == "A" and row.seq == message["seq"] and row.ts_ns == message["ts_ns"]
        assert row.ts.timestamp() * 1_000_000 == pytest.approx(message["ts_ns"] // 1000, abs=1)
        assert (row.subject, bytes(row.payload)) == (message["subject"], message["payload"])
        assert row.headers == (None if message["headers"] is None else dict(message["headers"]))


def test_it_is_found_without_registration_and_in_sql(spark: SparkSession, store: str) -> None:
    """A new session of the same JVM has nothing registered."""
    other = spark.newSession()
    other.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    options = f"path '{store}', stream 'A', subjects 'a.eu.>', pushdown 'true'"
    other.sql(f"CREATE TEMPORARY VIEW orders USING penstock OPTIONS ({options})")
    [row] = other.sql("SELECT count(*) AS n, min(seq) AS low FROM orders WHERE seq > 100").collect()
    assert (row.n, row.low) == (150, 101)


def test_streams_and_stores_are_chosen(spark: SparkSession, store: str, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "two", durability="os") as db:
        db.stream("C", subjects=["c"]).publish_many([("c", b"x")] * 3)
    two = str(tmp_path / "two")
    counts = lambda frame: {row.stream: row["count"] for row in frame.groupBy("stream").count().collect()}  # noqa: E731
    assert counts(load(spark, store)) == {"A": len(ALIVE), "B": 10}
    assert counts(load(spark, store, stream="B")) == {"B": 10}
    assert counts(load(spark, f"{store},{two}")) == {"A": len(ALIVE), "B": 10, "C": 3}
    both = spark.read.format("penstock").option("pushdown", "true").load([store, two])
    assert counts(both.where("stream in ('B', 'C', 'nowhere')")) == {"B": 10, "C": 3}
    assert counts(load(spark, store, pushdown="true").where("stream = 'nowhere'")) == {}


def test_columns_come_by_schema_or_option(spark: SparkSession, store: str) -> None:
    read = spark.read.format("penstock").option("stream", "A")
    swapped = read.schema("subject STRING, seq BIGINT").load(store)
    assert swapped.columns == ["subject", "seq"]
    assert sorted(swapped.collect(), key=lambda row: row.seq)[0] == ("a.eu.1", 1)
    assert read.schema("seq BIGINT NOT NULL").load(store).agg({"seq": "sum"}).collect()[0][0] == sum(ALIVE)
    assert load(spark, store, columns="seq,ts_ns").columns == ["seq", "ts_ns"]
    assert load(spark, store, headers="none").columns == ["stream", "seq", "ts", "ts_ns", "subject", "payload"]
    [raw] = load(spark, store, stream="A", headers="raw").where("seq = 10").collect()
    assert bytes(raw.headers) == b"NATS/1.0\r\nN: 10\r\n\r\n"


def at(seq: int, micros: int = 0) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=(START + (seq - 1) * STEP) // 1000 + micros)
    return f"timestamp'{moment:%Y-%m-%d %H:%M:%S.%f}+00:00'"


def ns(seq: int) -> int:
    return START + (seq - 1) * STEP


FILTERS = [
    "seq > 17 and seq <= 23",
    "seq = 200 or seq = 201",
    "seq in (5, 7, 11)",
    f"ts >= {at(50)}",
    f"ts > {at(50)}",
    f"ts > {at(50, -1)} and ts < {at(52, 1)}",
    f"ts <= {at(51)}",
    f"ts < {at(51)}",
    f"ts = {at(52)}",
    f"ts_ns >= {ns(60)} and ts_ns < {ns(70)}",
    "subject = 'a.eu.1'",
    "subject in ('a.eu.1', 'a.us.2', 'nothing', 'not.*')",
    "subject = 'a.eu.*'",
    "subject like 'a.eu.%'",
    "subject like 'a.e%' and subject like 'a.eu.1%'",
    "subject like '%.2' and seq < 50",
    "subject like 'a.eu.%' and subject = 'a.us.2'",
    "subject is not null and payload is not null and headers is not null",
    "not (seq < 390)",
    "seq > 9223372036854775806",
    "ts > timestamp'9999-01-01' or seq < 3",
    "ts > timestamp'9000-01-01'",
    "ts < timestamp'9000-01-01' and seq < 5",
    "seq % 7 = 0 and seq between 10 and 100",
]


def test_filters_give_what_they_give_without_pushdown(spark: SparkSession, store: str) -> None:
    """All of them in one job, each on a read of its own. Of a read that takes none over Spark judges the rows."""
    from pyspark.sql.functions import array_sort, collect_list, expr, lit

    pushed = [
        load(spark, store, stream="A", pushdown="true").where(condition).select(lit(n).alias("n"), "seq")
        for n, condition in enumerate(FILTERS)
    ]
    together = reduce(type(pushed[0]).unionAll, pushed).groupBy("n").agg(array_sort(collect_list("seq")).alias("seqs"))
    found = {row.n: row.seqs for row in together.collect()}
    [wanted] = (
        load(spark, store, stream="A")
        .agg(*(array_sort(collect_list(expr(f"if({one}, seq, null)"))).alias(f"n{n}") for n, one in enumerate(FILTERS)))
        .collect()
    )
    for n, condition in enumerate(FILTERS):
        assert found.get(n, []) == wanted[f"n{n}"], condition


def test_one_dataframe_may_be_used_again_and_again(spark: SparkSession, store: str) -> None:
    """Spark 4.3 keeps pushed filters with the DataFrame: with them every use of it gave the rows of one."""
    frame = load(spark, store, stream="A", columns="seq")
    low, high = frame.where("seq < 4"), frame.where("seq > 398")
    assert seqs(low) == [1, 2, 3]
    assert seqs(low.union(high)) == [1, 2, 3, 399, 400]
    assert frame.count() == len(ALIVE)


def test_a_filter_that_is_taken_over_is_not_left_to_spark(spark: SparkSession, store: str) -> None:
    taken = f"seq > 5 and ts >= {at(50)} and subject like 'a.eu.%' and stream = 'A'"
    plan_text = load(spark, store, pushdown="true").where(taken)._jdf.queryExecution().executedPlan().toString()
    assert " Filter " not in plan_text, plan_text
    kept = (
        load(spark, store, pushdown="true").where("subject like '%.2'")._jdf.queryExecution().executedPlan().toString()
    )
    assert " Filter " in kept, kept


def test_options_narrow_the_read(spark: SparkSession, store: str) -> None:
    assert seqs(load(spark, store, stream="A", startingSeq=390, endingSeq=395)) == [390, 391, 392, 393, 394]
    start, stop = ns(20), ns(25)
    assert seqs(load(spark, store, stream="A", startingTime=f"{_rfc(start)}", endingTime=_rfc(stop))) == [
        20,
        21,
        22,
        23,
        24,
    ]
    assert seqs(load(spark, store, subjects="a.*.1,b.x", startingSeq=395)) == [396]
    both = load(spark, store, subjects="a.eu.>", pushdown="true").where("subject in ('a.eu.1', 'a.us.2') and seq < 20")
    assert seqs(both) == [1]


def _rfc(moment: int) -> str:
    from penstock.base.duration import format_time

    return format_time(moment)


def test_partitions_are_runs_of_blocks(spark: SparkSession, store: str) -> None:
    view = open_views(store, ["A"])[0]
    assert len(view.blocks) > 5
    assert load(spark, store, stream="A").rdd.getNumPartitions() == 1, "little data: one task"
    assert load(spark, store, stream="A", minPartitions=4).rdd.getNumPartitions() == 4
    assert load(spark, store, stream="A", maxPartitionBytes="4k").rdd.getNumPartitions() >= 3
    many = load(spark, store, stream="A", minPartitions=50)
    assert many.rdd.getNumPartitions() >= 45, "more than blocks: they are split by sequence"
    assert seqs(many) == ALIVE


def test_blocks_out_of_range_are_not_planned(store: str) -> None:
    view = open_views(store, ["A"])[0]
    options = ReadOptions.parse({"path": store, "stream": "A"})
    narrow = plan_read(options, Pushed(since=ns(200), until=ns(210)))
    assert sum(len(part.blocks) for part in narrow) <= 2 < len(view.blocks)
    assert plan_read(options, Pushed(start_seq=10**9)) == []


def test_beside_a_writer_no_row_is_torn(spark: SparkSession, tmp_path: Path) -> None:
    code = (
        "import sys, penstock\n"
        f"with penstock.open({str(tmp_path / 'data')!r}, durability='os') as db:\n"
        "    stream = db.stream('S', subjects=['s.>'])\n"
        "    stream.publish('s.0', b'payload 1'); print('go', flush=True)\n"
        "    n = 2\n"
        "    while not sys.stdin.closed and n < 3_000_000:\n"
        "        stream.publish_many([(f's.{k % 3}', b'payload %d' % k) for k in range(n, n + 50)])\n"
        "        n += 50\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    ) as writer:
        try:
            assert writer.stdout is not None and writer.stdout.readline() == "go\n"
            counts = []
            for _ in range(3):
                frame = load(spark, str(tmp_path / "data"), minPartitions=2)
                [row] = frame.selectExpr(
                    "count(*) AS n", "max(seq) AS high",
                    "count_if(cast(payload AS STRING) != concat('payload ', seq)) AS torn",
                ).collect()  # fmt: skip
                assert row.torn == 0 and row.n == row.high, "whole messages, and none is missing"
                counts.append(row.n)
            assert counts == sorted(counts) and counts[-1] > counts[0]
        finally:
            writer.kill()


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A store with one byte flipped in the payload of message 5."""
    path = tmp_path / "data"
    with penstock.open(path, durability="os") as db:
        db.stream("S", subjects=["s"]).publish_many([("s", b"payload %d" % n) for n in range(1, 21)])
    block = path / "$G" / "S" / "blocks" / "000001.blk"
    data = bytearray(block.read_bytes())
    data[data.index(b"payload 5") + 3] ^= 1
    block.write_bytes(data)
    yield str(path), 5


def test_damage_is_skipped_or_quarantined(spark: SparkSession, damaged: tuple[str, int]) -> None:
    path, seq = damaged
    good = [n for n in range(1, 21) if n != seq]
    assert seqs(load(spark, path, mode="skip")) == good
    frame = load(spark, path, mode="quarantine")
    assert frame.columns[-1] == "damage"
    assert seqs(frame.where("damage is null")) == good
    [bad] = frame.where("damage is not null").collect()
    assert bad.seq == seq and bad.subject is None and b"paymoad 5" in bytes(bad.payload)
    assert "000001.blk at byte" in bad.damage and "checksum differs" in bad.damage
    timed = load(spark, path, mode="quarantine", pushdown="true").where("ts > timestamp'2000-01-01'")
    assert seqs(timed) == good, "a row that stands for damage has no time"


# Filters as pure logic.

SUBJECTS = ["a.b", "a.b.c", "a.bc", "a", "b.a.x", "a.b.cc"]


@settings(deadline=None)
@given(
    subjects=st.lists(st.sampled_from(["a.>", "*.b", "a.b.*", ">", "b.>"]), max_size=2),
    equal=st.none() | st.lists(st.sampled_from([*SUBJECTS, ""]), max_size=3),
    prefixes=st.lists(st.sampled_from(["a", "a.", "a.b", "a.b.", "b", "", "*", "a.."]), max_size=3),
)
def test_subject_filters_together_mean_all_of_them(
    subjects: list[str], equal: list[str] | None, prefixes: list[str]
) -> None:
    from pyspark.sql.datasource import In, StringStartsWith

    pushed = Pushed(subjects=tuple(subjects))
    filters: list[Any] = [StringStartsWith(("subject",), prefix) for prefix in prefixes]
    if equal is not None:
        filters.append(In(("subject",), tuple(equal)))
    assert push(filters, pushed) == []
    scanned = Filters(pushed.scan_subjects)
    for subject in SUBJECTS:
        wanted = (
            (not subjects or Filters(subjects).match(subject))
            and (equal is None or subject in equal)
            and all(subject.startswith(prefix) for prefix in prefixes)
        )
        found = (
            not pushed.is_nothing
            and (not pushed.scan_subjects or scanned.match(subject))
            and all(subject.startswith(prefix) for prefix in pushed.left_prefixes)
        )
        assert found == wanted, subject


def test_a_name_with_a_wildcard_in_it_is_left_to_spark() -> None:
    from pyspark.sql.datasource import In

    wanted = In(("subject",), ("a.b", "a.*"))
    pushed = Pushed()
    assert push([wanted], pushed) == [wanted], "our filter of that text would take more"
    assert not pushed.is_nothing and not pushed.scan_subjects


@settings(deadline=None)
@given(
    kind=st.sampled_from(["EqualTo", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"]),
    micros=st.integers(-10, 10),
    stored=st.integers(-12_000, 12_000),
)
def test_a_time_in_microseconds_is_an_exact_range_of_nanoseconds(kind: str, micros: int, stored: int) -> None:
    import operator

    from pyspark.sql import datasource

    compare = {
        "EqualTo": operator.eq,
        "GreaterThan": operator.gt,
        "GreaterThanOrEqual": operator.ge,
        "LessThan": operator.lt,
        "LessThanOrEqual": operator.le,
    }[kind]
    value = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    pushed = Pushed()
    assert push([getattr(datasource, kind)(("ts",), value)], pushed) == []
    found = (pushed.since is None or stored >= pushed.since) and (pushed.until is None or stored < pushed.until)
    assert found == compare(stored // 1000, micros)
