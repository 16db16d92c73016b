"""table: a lake and the tail of a store as one DataFrame, one row for each sequence as of the call."""

from __future__ import annotations

import random
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
import penstock.spark
from penstock.base.seq_set import SeqSet
from penstock.spark.pipelines import lake
from penstock.spark.pipelines.manifest import LakeError, LakeFile
from penstock.spark.table import Span, bit_words, cut_ranges, sort_files
from penstock.testing import FakeClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR = 3600 * 10**9


def publish(stream: Any, count: int) -> None:
    stream.publish_many([(f"s.{n % 3}", b"%d" % n, {"K": ["a", str(n)]} if n % 2 else None) for n in range(count)])


def seqs(frame: DataFrame) -> list[int]:
    return sorted(row.seq for row in frame.select("seq").collect())


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_the_table_is_the_stream_whether_exported_or_not(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "store", durability="os") as db:
        stream = db.stream("S", subjects=["s.>"])
        publish(stream, 50)
        lake.run(spark, db.path, tmp_path / "lake")
        exported = penstock.spark.table(spark, db.path, lake=tmp_path / "lake", stream="S")
        assert "BatchScan penstock" not in plan_of(exported)  # all of it is in the lake
        publish(stream, 20)
        stream.delete(60)
        frame = penstock.spark.table(spark, db.path, lake=tmp_path / "lake", stream="S")
        source = spark.read.format("penstock").option("path", db.path).load()
        assert frame.schema == source.schema
        assert sorted(map(tuple, frame.collect()), key=lambda row: row[1]) == sorted(
            map(tuple, source.collect()), key=lambda row: row[1]
        )
        publish(stream, 5)
        assert seqs(frame) == [seq for seq in range(1, 71) if seq != 60]  # as of the call


def test_nothing_hidden_costs_nothing_and_no_plan_shuffles(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "store", durability="os") as db:
        stream = db.stream("S", subjects=["s.>"])
        publish(stream, 30)
        lake.run(spark, db.path, tmp_path / "lake", max_rows=10)
        clean = plan_of(penstock.spark.table(spark, db.path, lake=tmp_path / "lake"))
        assert "Filter (" not in clean and clean.count("FileScan parquet") == 1
        stream.delete(15)
        stream.purge(seq=11)
        frame = penstock.spark.table(spark, db.path, lake=tmp_path / "lake")
        assert seqs(frame) == [11, 12, 13, 14, *range(16, 31)]
        touched = plan_of(frame)
        assert touched.count("FileScan parquet") == 2 and "Exchange" not in touched and "Python" not in touched
        assert len(frame.inputFiles()) == 2  # of the purged file nothing is read


def test_many_hidden_rows_are_joined_away_without_a_shuffle(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("penstock.spark.table"), "SINGLES_MAX", 3)
    with penstock.open(tmp_path / "store", durability="os") as db:
        stream = db.stream("S", subjects=["s.>"])
        publish(stream, 500)
        lake.run(spark, db.path, tmp_path / "lake")
        gone = {*range(1, 500, 7), *range(60, 140), 63, 64, 127, 128}
        stream.delete_many(gone)
        frame = penstock.spark.table(spark, db.path, lake=tmp_path / "lake")
        assert "BroadcastHashJoin" in plan_of(frame) and "Exchange hash" not in plan_of(frame)
        assert seqs(frame) == [seq for seq in range(1, 501) if seq not in gone]


def test_whatever_is_done_between_exports_the_table_is_right(spark: SparkSession, tmp_path: Path) -> None:
    """Publish, delete, purge, erase, age and export in any order; a model says what is to be seen."""
    clock, dice = FakeClock(), random.Random(20261115)
    with penstock.open(tmp_path / "store", durability="os", clock=clock) as db:
        stream = db.stream("S", subjects=["s.>"], max_age="10h")
        exported, live, payloads = set[int](), set[int](), dict[int, bytes]()
        deleted = set[int]()
        for step in range(60):
            what = dice.choices(["publish", "delete", "erase", "purge", "age", "export"], [5, 4, 2, 1, 2, 2])[0]
            if what == "publish":
                first = stream.state().last_seq + 1
                for ack in stream.publish_many([("s.x", b"%d-%d" % (step, n)) for n in range(dice.randrange(1, 30))]):
                    assert ack is not None
                    live.add(ack.seq)
                    payloads[ack.seq] = b"%d-%d" % (step, ack.seq - first)
            elif what == "age":
                clock.advance(dice.randrange(4 * HOUR))
                live = {message.seq for message in stream.read()}
            elif what == "export":
                lake.run(spark, db.path, tmp_path / "lake", max_rows=dice.randrange(5, 50))
                exported |= live
            elif live:
                some = dice.sample(sorted(live), min(len(live), dice.randrange(1, 6)))
                if what == "delete":
                    stream.delete_many(some)
                elif what == "erase":
                    some = some[:1]
                    stream.erase(some[0])
                else:
                    stream.purge(seq=some[0])
                    some = [seq for seq in live if seq < some[0]]
                live -= set(some)
                deleted |= set(some)
            if (step % 12 == 11 or step == 59) and exported:
                frame = penstock.spark.table(spark, db.path, lake=tmp_path / "lake", stream=["S"])
                found = {row.seq: bytes(row.payload) for row in frame.collect()}
                assert found == {seq: payloads[seq] for seq in (exported | live) - deleted}, f"step {step}"
        assert exported - live - deleted, "some rows are only in the lake"


def test_bounds_spare_files_and_columns_can_be_chosen(spark: SparkSession, tmp_path: Path) -> None:
    clock = FakeClock()
    with penstock.open(tmp_path / "store", durability="os", clock=clock) as db:
        stream, other = db.stream("S", subjects=["s.>"]), db.stream("T", subjects=["t"])
        for _ in range(4):
            publish(stream, 10)
            clock.advance(HOUR)
            lake.run(spark, db.path, tmp_path / "lake", streams=["S"])
        publish(stream, 10)
        other.publish("t", b"x")
        frame = penstock.spark.table(
            spark, db.path, lake=tmp_path / "lake", stream="S", columns=["subject", "seq"], start_seq=15, stop_seq=45
        )
        assert frame.columns == ["seq", "subject"]
        assert seqs(frame) == list(range(15, 45))
        assert len(frame.inputFiles()) == 3
        since = clock.now_ns() - 2 * HOUR
        frame = penstock.spark.table(spark, db.path, lake=tmp_path / "lake", stream="S", since=since)
        assert seqs(frame) == list(range(21, 51))
        both = penstock.spark.table(spark, db.path, lake=tmp_path / "lake")
        assert {(row.stream, row["count"]) for row in both.groupBy("stream").count().collect()} == {("S", 50), ("T", 1)}
        assert penstock.spark.table(spark, db.path, stream="T").count() == 1  # no lake at all
        empty = penstock.spark.table(spark, db.path, lake=tmp_path / "lake", stream="S", start_seq=1000)
        assert empty.count() == 0 and empty.columns[1] == "seq"


def test_a_lake_of_another_stream_is_not_taken_for_this_one(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "store", durability="os") as db:
        publish(db.stream("S", subjects=["s.>"]), 10)
        lake.run(spark, db.path, tmp_path / "lake")
        db.delete_stream("S")
        publish(db.stream("S", subjects=["s.>"]), 20)
        with pytest.raises(LakeError, match="stream S: it was deleted and made anew"):
            penstock.spark.table(spark, db.path, lake=tmp_path / "lake")
        with pytest.raises(LakeError, match="is no lake"):
            penstock.spark.table(spark, db.path, lake=tmp_path / "nothing")


# Pure parts.


def file_of(first: int, last: int) -> LakeFile:
    return LakeFile(f"{first}.parquet", "S", last - first + 1, 1, first, last, first * 10, last * 10)


def set_of(members: set[int]) -> SeqSet:
    found = SeqSet()
    for one in members:
        found.add(one)
    return found


FILES = st.lists(st.integers(1, 40), min_size=1, max_size=8, unique=True).map(
    lambda ends: [file_of(first, stop - 1) for first, stop in zip(sorted(ends), [*sorted(ends)[1:], 50], strict=True)]
)


@given(FILES, st.sets(st.integers(1, 60)))
def test_files_are_sorted_by_what_is_hidden_in_them(files: list[LakeFile], hidden: set[int]) -> None:
    whole, touched = sort_files(files, set_of(hidden))
    for file in files:
        held = set(range(file.first_seq, file.last_seq + 1))
        assert (file in whole) == (not held & hidden)
        assert (file in touched) == bool(held & hidden and held - hidden)
    cuts = {seq for first, last in cut_ranges(set_of(hidden), touched) for seq in range(first, last + 1)}
    assert cuts == {seq for file in touched for seq in range(file.first_seq, file.last_seq + 1)} & hidden


@given(st.sets(st.integers(1, 300)))
def test_words_have_the_bits_of_their_sequences(hidden: set[int]) -> None:
    words = bit_words(set_of(hidden).ranges())
    assert all(-(2**63) <= bits < 2**63 for bits in words.values())
    assert {word * 64 + bit for word, bits in words.items() for bit in range(64) if bits >> bit & 1} == hidden


@given(FILES, st.integers(0, 60), st.integers(0, 60))
def test_no_file_with_a_wanted_row_is_spared(files: list[LakeFile], start: int, stop: int) -> None:
    for file in files:
        held = range(file.first_seq, file.last_seq + 1)
        assert Span(start_seq=start, stop_seq=stop).may_hold(file) or not any(start <= seq < stop for seq in held)
        assert Span(since=start * 10, until=stop * 10).may_hold(file) or not any(start <= seq < stop for seq in held)
