"""Streaming queries on a real Spark: beside a writer, stopped, killed and restarted from their checkpoints."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock import Database

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WAIT_S = 240  # on a machine that does much else at the same time


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Database]:
    with penstock.open(tmp_path / "store", durability="os") as database:
        database.stream("S", subjects=["S.>"])
        yield database


def fill(database: Database, count: int, name: str = "S") -> None:
    database.stream(name).publish_many((f"{name}.{n % 3}", b"x" * 100) for n in range(count))


def source(spark: SparkSession, path: str, **options: object) -> DataFrame:
    reading = spark.readStream.format("penstock").option("path", path)
    for name, value in options.items():
        reading = reading.option(name, str(value))
    return reading.load()


def to_parquet(frame: DataFrame, tmp_path: Path, **trigger: Any) -> StreamingQuery:
    """Spark's own exactly-once file sink, of the columns that tell rows apart."""
    writing = frame.select("stream", "seq", "subject").writeStream.format("parquet")
    writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
    if trigger:
        writing = writing.trigger(**trigger)
    return writing.start(str(tmp_path / "out"))


def run_once(frame: DataFrame, tmp_path: Path) -> StreamingQuery:
    """Everything that is there now, and the query has ended."""
    query = to_parquet(frame, tmp_path, availableNow=True)
    assert query.awaitTermination(WAIT_S)
    return query


def written(spark: SparkSession, tmp_path: Path) -> list[int]:
    return sorted(row.seq for row in spark.read.parquet(str(tmp_path / "out")).collect())


def test_available_now_keeps_to_its_limit_and_to_what_was_there(
    spark: SparkSession, store: Database, tmp_path: Path
) -> None:
    fill(store, 100)
    frame = source(spark, store.path, stream="S", maxMessagesPerTrigger=40)
    query = run_once(frame, tmp_path)
    assert [progress["numInputRows"] for progress in query.recentProgress] == [40, 40, 20]
    (lag,) = json.loads(query.recentProgress[0]["sources"][0]["latestOffset"]).values()
    assert lag["seq"] == 100 and lag["messages_behind"] == 60 and lag["bytes_behind"] > 60 * 100
    fill(store, 30)
    query = run_once(frame, tmp_path)
    assert [progress["numInputRows"] for progress in query.recentProgress] == [30]
    assert written(spark, tmp_path) == list(range(1, 131))


def test_stops_and_restarts_beside_a_writer_lose_and_repeat_nothing(
    spark: SparkSession, store: Database, tmp_path: Path
) -> None:
    """The query is stopped at any moment, three times; then it catches up."""
    done, total = threading.Event(), [0]

    def write() -> None:
        while not done.is_set():
            fill(store, 50)
            total[0] += 50
            done.wait(0.01)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        dice = random.Random(7)
        for _ in range(3):
            frame = source(spark, store.path, stream="S", maxMessagesPerTrigger=dice.choice([70, 1000, 10**6]))
            query = to_parquet(frame, tmp_path, processingTime="50 milliseconds")
            wait_for(query, lambda query=query: len(query.recentProgress) >= 2)  # type: ignore[misc]
            query.stop()
    finally:
        done.set()
        writer.join()
    run_once(source(spark, store.path, stream="S"), tmp_path)
    assert written(spark, tmp_path) == list(range(1, total[0] + 1))


def wait_for(query: StreamingQuery, is_so: Callable[[], bool]) -> None:
    """Until it is so; the query's own error where it fails meanwhile."""
    for _ in range(WAIT_S * 20):
        if is_so():
            return
        assert not query.awaitTermination(0.05), "the query has ended"
    raise AssertionError("the query has not come so far")


KILLED_QUERY = """
import os, sys, threading
from penstock.spark import session

def keep(batch, number):
    rows = [str(row.seq) for row in batch.select("seq").collect()]
    with open(os.path.join(sys.argv[2], f"{number}.first" if number == 1 else str(number)), "w") as file:
        file.write(" ".join(rows))
    if number == 1:
        print("in batch 1", flush=True)
        threading.Event().wait()

spark = session(**{"spark.master": "local[2]", "spark.driver.memory": "512m"})
frame = spark.readStream.format("penstock").option("path", sys.argv[1]).option("maxMessagesPerTrigger", "400").load()
frame.writeStream.foreachBatch(keep).option("checkpointLocation", sys.argv[3]).start().awaitTermination()
"""


def test_a_query_killed_in_the_middle_runs_the_same_batch_again(
    spark: SparkSession, store: Database, tmp_path: Path
) -> None:
    """SIGKILL to Python and the JVM while a batch is under way; the writer goes on, another session takes over."""
    fill(store, 1000)
    out, checkpoint = tmp_path / "out", str(tmp_path / "checkpoint")
    out.mkdir()
    command = [sys.executable, "-c", KILLED_QUERY, store.path, str(out), checkpoint]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "in batch 1\n"
        fill(store, 500)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def keep(batch: DataFrame, number: int) -> None:
        (out / str(number)).write_text(" ".join(str(row.seq) for row in batch.select("seq").collect()))

    frame = source(spark, store.path, maxMessagesPerTrigger=400)
    writing = frame.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
    assert writing.trigger(availableNow=True).start().awaitTermination(WAIT_S)
    files = {path.name: [int(seq) for seq in path.read_text().split()] for path in out.iterdir()}
    assert sorted(files.pop("1.first")) == sorted(files["1"]) == list(range(401, 801))
    assert Counter(seq for seqs in files.values() for seq in seqs) == Counter(range(1, 1501))
    assert all(len(seqs) <= 400 for seqs in files.values())


def test_a_loss_stops_the_query_with_one_clear_line(spark: SparkSession, store: Database, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    fill(store, 100)
    run_once(source(spark, store.path, stream="S", endingSeq=51), tmp_path)
    store.stream("S").purge(seq=81)
    query = to_parquet(source(spark, store.path, stream="S"), tmp_path, availableNow=True)
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination(WAIT_S)
    assert "messages 51 to 80 are gone" in str(failed.value) and "failOnDataLoss=false" in str(failed.value)
    run_once(source(spark, store.path, stream="S", failOnDataLoss="false"), tmp_path)
    assert written(spark, tmp_path) == [*range(1, 51), *range(81, 101)]


def test_all_streams_of_a_store_with_one_that_comes_later(spark: SparkSession, store: Database, tmp_path: Path) -> None:
    fill(store, 10)
    frame = source(spark, store.path)
    run_once(frame, tmp_path)
    store.stream("T", subjects=["T.>"])
    fill(store, 5, "T")
    fill(store, 5)
    run_once(frame, tmp_path)
    found = sorted((row.stream, row.seq) for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert found == [("S", n) for n in range(1, 16)] + [("T", n) for n in range(1, 6)]


def test_an_idle_query_runs_no_batches(spark: SparkSession, store: Database, tmp_path: Path) -> None:
    fill(store, 10)
    query = to_parquet(source(spark, store.path, stream="S"), tmp_path, processingTime="10 milliseconds")
    try:
        wait_for(query, lambda: any(p["numInputRows"] for p in query.recentProgress))
        assert not query.awaitTermination(1)
        fill(store, 10)
        wait_for(query, lambda: len([p for p in query.recentProgress if p["numInputRows"]]) == 2)
        assert len(os.listdir(tmp_path / "checkpoint" / "offsets")) <= 5, "two batches, and what belongs to them"
    finally:
        query.stop()
    assert written(spark, tmp_path) == list(range(1, 21))
