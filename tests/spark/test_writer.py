"""Writing from Spark: messages from columns, exactly once, and nothing left behind by a job that failed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock
import penstock.spark
from penstock.db.adopt import root_of


def make(path: Path, **config: Any) -> Path:
    with penstock.open(path, durability="os") as db:
        db.stream("S", **({"subjects": ["a.>"]} | config))
    return path


def numbers(spark: SparkSession, count: int, parts: int = 3) -> DataFrame:
    return spark.range(0, count, 1, parts).select(
        F.concat(F.lit("a."), (F.col("id") % 5).cast("string")).alias("subject"),
        F.col("id").cast("string").cast("binary").alias("payload"),
    )


def save(frame: DataFrame, path: Path, **options: str) -> None:
    frame.write.format("penstock").option("path", str(path)).option("stream", "S").options(**options).mode(
        "append"
    ).save()


def messages(path: Path) -> list[penstock.Message]:
    with penstock.open(path, read_only=True) as db:
        return list(db.get_stream("S").read())


def left_over(path: Path) -> list[str]:
    staging = Path(root_of(path, "S"), "staging")
    return [str(one.relative_to(staging)) for one in staging.rglob("*.blk")]


def refused(action: Any) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


@pytest.mark.parametrize("count", [0, 7, 100_000])
def test_rows_become_messages_in_the_order_of_the_partitions(spark: SparkSession, tmp_path: Path, count: int) -> None:
    path = make(tmp_path / "store")
    save(numbers(spark, count), path)
    found = messages(path)
    assert [msg.seq for msg in found] == list(range(1, count + 1))
    assert [(msg.subject, msg.data) for msg in found] == [(f"a.{n % 5}", b"%d" % n) for n in range(count)]
    save(numbers(spark, 10), path)
    assert [msg.data for msg in messages(path)[count:]] == [b"%d" % n for n in range(10)]
    assert not left_over(path)


def test_headers_and_times_come_from_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = make(tmp_path / "store")
    frame = spark.range(0, 4, 1, 1).select(
        F.lit("a.x").alias("where"),
        F.col("id").cast("string").alias("what"),
        F.when(F.col("id") > 0, F.create_map(F.lit("N"), F.array(F.col("id").cast("string"), F.lit("again")))).alias(
            "with"
        ),
        F.timestamp_micros(F.lit(1_700_000_000_123_456) + F.col("id")).alias("when"),
    )
    save(frame, path, subjectColumn="where", payloadColumn="what", headersColumn="with", timeColumn="when")
    found = messages(path)
    assert [msg.headers.to_dict() for msg in found] == [{}, *({"N": [str(n), "again"]} for n in (1, 2, 3))]
    assert [msg.time_ns for msg in found] == [(1_700_000_000_123_456 + n) * 1000 for n in range(4)]
    assert [msg.data for msg in found] == [b"0", b"1", b"2", b"3"]


def test_messages_come_from_expressions(spark: SparkSession, tmp_path: Path) -> None:
    path = make(tmp_path / "store")
    rows = spark.createDataFrame([("eu", 1), ("us", 2)], "region string, cents long")
    made = penstock.spark.messages(rows, subject="concat('a.', region)", headers="map('Cents', string(cents))")
    save(made, path)
    assert [(m.subject, m.data, m.headers.get("Cents")) for m in messages(path)] == [
        ("a.eu", b'{"region":"eu","cents":1}', "1"),
        ("a.us", b'{"region":"us","cents":2}', "2"),
    ]


def test_a_copy_keeps_what_it_was_given(spark: SparkSession, tmp_path: Path) -> None:
    """Read, write, read: subjects, headers, payloads and nanoseconds are the same."""
    source = make(tmp_path / "source")
    with penstock.open(source) as db:
        for n in range(50):
            db.get_stream("S").publish(f"a.{n}", os.urandom(n), {"K": [str(n), "ü"]} if n % 2 else None)
    target = make(tmp_path / "target")
    save(spark.read.format("penstock").load(str(source)), target, timeColumn="ts_ns")
    facts = [[(m.seq, m.subject, m.data, m.headers, m.time_ns) for m in messages(path)] for path in (source, target)]
    assert facts[0] == facts[1]


def test_one_subject_for_all_and_a_stream_that_is_made(spark: SparkSession, tmp_path: Path) -> None:
    frame = numbers(spark, 5).select("payload")
    save(frame, tmp_path / "new", subject="b.c", createSubjects="b.>, c")
    assert [msg.subject for msg in messages(tmp_path / "new")] == ["b.c"] * 5
    with penstock.open(tmp_path / "new", read_only=True) as db:
        assert db.get_stream("S").config.subjects == ("b.>", "c")


def test_a_process_that_writes_takes_the_batch_in(spark: SparkSession, tmp_path: Path) -> None:
    path = make(tmp_path / "store")
    with penstock.open(path) as db:
        stream = db.get_stream("S")
        stream.publish("a.x", b"before")
        save(numbers(spark, 1000), path)
        assert stream.publish("a.x", b"after").seq == 1002
        assert [msg.data for msg in stream.read(start_seq=1000)] == [b"998", b"999", b"after"]


def test_what_cannot_be_written_is_named_and_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = make(tmp_path / "store", max_msg_size=100, max_msgs=50, discard="new", allow_rollup_hdrs=True)
    frame = numbers(spark, 10)
    rollup = frame.withColumn("headers", F.create_map(F.lit("Nats-Rollup"), F.array(F.lit("sub"))))
    broken = frame.withColumn("headers", F.create_map(F.lit("a b"), F.array(F.lit("x"))))
    cases = [
        (frame.withColumn("subject", F.lit("b.x")), {}, "subject 'b.x' is not one of stream S's"),
        (frame.withColumn("subject", F.lit("a.>")), {}, "message #0 on 'a.>'"),
        (frame.withColumn("subject", F.lit(None).cast("string")), {}, "row 0 has no subject"),
        (frame.withColumn("payload", F.repeat(F.lit("x"), 101)), {}, "message size exceeds maximum allowed"),
        (rollup, {}, "has the header Nats-Rollup, which a bulk write cannot honour"),
        (broken, {}, "header key b'a b' is empty, or has a colon"),
        (numbers(spark, 51), {}, "maximum messages exceeded"),
        (frame.drop("payload"), {}, "no column 'payload' to write"),
        (frame.withColumn("payload", F.lit(1)), {}, "column payload is int"),
        (frame, {"payloadColum": "x"}, "did you mean payloadColumn?"),
        (frame, {"subject": "a.x", "subjectColumn": "subject"}, "are both given"),
        (frame, {"stream": "NONE"}, "there is no stream NONE"),
        (frame, {"path": str(tmp_path / "nowhere")}, "there is no stream S in"),
    ]
    for one, options, text in cases:
        given = {"path": str(path), "stream": "S"} | options
        error = refused(
            lambda one=one, given=given: one.write.format("penstock").options(**given).mode("append").save()
        )
        assert text in error, error
        assert messages(path) == []
        assert not left_over(path)
    assert 'use .mode("append")' in refused(
        lambda: frame.write.format("penstock").options(path=str(path), stream="S").mode("overwrite").save()
    )


def test_a_streaming_write_comes_once_whatever_happens(spark: SparkSession, tmp_path: Path) -> None:
    """Batches fail before and after their adoption, and the query begins again each time."""
    source, target = make(tmp_path / "source"), make(tmp_path / "target")
    with penstock.open(source) as db:
        db.get_stream("S").publish_many([(f"a.{n % 3}", b"%d" % n) for n in range(5000)])
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        query = (
            spark.readStream.format("penstock")
            .option("maxMessagesPerTrigger", "700")
            .load(str(source))
            .writeStream.format("penstock")
            .option("path", str(target))
            .option("stream", "S")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    # As if the driver had died after the adoption and before it noted the batch: it is brought again.
    commits = sorted(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()), key=lambda one: int(one.name)
    )
    for path in commits[-2:]:
        path.unlink()
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    run()
    with penstock.open(source) as db:
        db.get_stream("S").publish_many([("a.0", b"%d" % n) for n in range(5000, 6000)])
    run()
    assert [msg.data for msg in messages(target)] == [b"%d" % n for n in range(6000)]
    assert not left_over(target)
    (known,) = json.loads(Path(root_of(target, "S"), "BATCHES").read_bytes().splitlines()[0]).values()
    assert known["last_seq"] == 6000


def test_a_task_that_fails_is_tried_again_and_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    """Spark runs a task again after an error: local mode does so with `local[2,3]` only, so the second attempt is
    staged by hand."""
    from penstock.db.stage import Stage
    from penstock.store.write.batch import Batch

    path = make(tmp_path / "store")
    stray = Stage(root_of(path, "S"), "job-stray", "000000-x")
    stray.append(Batch.of([("a.x", b"never")]))
    stray.finish()
    save(numbers(spark, 10), path)
    assert len(messages(path)) == 10
    assert left_over(path) == ["job-stray/000000-x/blocks/000001.blk"]
    staging = Path(root_of(path, "S"), "staging")
    for folder in [*staging.rglob("*"), staging]:
        os.utime(folder, (0, 0))
    save(numbers(spark, 10), path)
    assert not left_over(path)
