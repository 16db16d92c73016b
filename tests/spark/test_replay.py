"""replay: a filtered range of a stream, transformed, into another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock.spark.errors import PenstockSparkError
from penstock.spark.pipelines import lake, replay

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def fill(root: Path) -> str:
    with penstock.open(root, durability="os") as db:
        stream = db.stream("S", subjects=["s.>"])
        stream.publish_many([(f"s.{n % 2}", b"%d" % n, {"K": [str(n)]} if n % 4 == 0 else None) for n in range(20)])
        db.stream("T", subjects=["t.>"])
        return db.path


def to_t(frame: DataFrame) -> DataFrame:
    """What the tests replay with, also by name."""
    from pyspark.sql import functions as f

    return frame.withColumn("subject", f.concat(f.lit("t."), f.col("seq")))


def test_a_filtered_range_comes_transformed_with_headers_and_times(spark: SparkSession, tmp_path: Path) -> None:
    path = fill(tmp_path / "store")
    done = replay.run(
        spark, path, path, stream="S", to_stream="T", subjects=["s.0"], start_seq=3, stop_seq=12,
        where="seq <> 7", transform=to_t, keep_times=True,
    )  # fmt: skip
    assert (done.rows, done.target) == (4, f"{path}/T")
    with penstock.open(path, read_only=True) as db:
        source = {message.seq: message for message in db.stream("S").read()}
        found = list(db.stream("T").read())
        assert sorted(message.subject for message in found) == ["t.11", "t.3", "t.5", "t.9"]
        for message in found:
            before = source[int(message.subject[2:])]
            assert (message.data, message.headers, message.time_ns) == (before.data, before.headers, before.time_ns)


def test_another_store_gets_what_the_lake_has_kept(spark: SparkSession, tmp_path: Path) -> None:
    path = fill(tmp_path / "store")
    lake.run(spark, path, tmp_path / "lake")
    with penstock.open(path, durability="os") as db:
        db.stream("S").delete(2)
    with penstock.open(tmp_path / "other", durability="os") as db:
        db.stream("COPY", subjects=["s.>"])
    done = replay.run(spark, path, tmp_path / "other", stream="S", to_stream="COPY", lake=tmp_path / "lake")
    assert done.rows == 19
    with penstock.open(tmp_path / "other", read_only=True) as db:
        assert [message.data for message in db.stream("COPY").read()] == [b"%d" % n for n in range(20) if n != 1]


def test_what_is_no_transform_is_told(spark: SparkSession, tmp_path: Path) -> None:
    path = fill(tmp_path / "store")
    (tmp_path / "own.py").write_text("def twice(frame):\n    return frame.union(frame)\nname = 1\n")
    frame = spark.read.format("penstock").option("path", path).option("stream", "S").load()
    assert replay.apply(f"{tmp_path}/own.py:twice", frame).count() == 40
    for transform, text in (
        ("nothing", "module:function is wanted"),
        ("no.such:thing", "No module named 'no'"),
        (f"{tmp_path}/own.py:name", "has no function 'name'"),
        (f"{tmp_path}/none.py:name", "No such file"),
        (lambda _: 5, "the transform gave a int"),
        (lambda frame: frame.drop("payload"), "gave no column payload, only stream, seq"),
    ):
        with pytest.raises(PenstockSparkError, match=text):
            replay.run(spark, path, path, stream="S", to_stream="T", transform=transform)  # type: ignore[arg-type]
    with pytest.raises(PenstockSparkError, match="neither ts_ns nor ts"):
        replay.written_columns(["subject", "payload"], True)
    assert replay.written_columns(["ts", "payload", "subject", "seq"], True) == ["subject", "payload", "ts"]
