"""decode: JSON payloads as columns; what is no JSON is told."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.spark.errors import PenstockSparkError
from penstock.spark.pipelines import decode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAYLOADS = [
    b'{"id": 1, "tags": ["a", "b"], "subject": "x"}',
    b'{"id": 2, "price": 1.5}',
    b"not json",
    b'{"id": "three"}',
    b"",
    b"\xff\xfe",
    b'{"id": 7, "more": {"deep": true}}',
]


@pytest.fixture
def store(tmp_path: Path) -> str:
    with penstock.open(tmp_path / "store", durability="os") as db:
        stream = db.stream("S", subjects=["s.>"])
        stream.publish_many([(f"s.{n}", payload) for n, payload in enumerate(PAYLOADS)])
        return db.path


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.orderBy("seq").collect()]


def test_a_given_schema_decides_what_fits(spark: SparkSession, store: str) -> None:
    frame = spark.read.format("penstock").option("path", store).load()
    found = rows(decode.decode(frame, schema="id long, tags array<string>"))
    assert [row["id"] for row in found] == [1, 2, None, None, None, None, 7]
    assert [row["_corrupt"] is not None for row in found] == [False, False, True, True, True, True, False]
    assert found[2]["_corrupt"] == "not json" and found[0]["tags"] == ["a", "b"] and "payload" not in found[0]
    assert found[0]["subject"] == "s.0"
    dropped = decode.decode(frame, schema="id long", on_bad="drop", prefix="p_")
    assert [row["p_id"] for row in rows(dropped)] == [1, 2, 7] and "_corrupt" not in dropped.columns
    nested = decode.decode(frame, schema="id long, subject string", into="data")
    assert rows(nested)[0]["data"] == {"id": 1, "subject": "x"}
    with pytest.raises(Exception, match=r"MALFORMED_RECORD|Malformed"):
        decode.decode(frame, schema="id long", on_bad="fail").collect()


def test_the_schema_is_inferred_from_what_is_json(spark: SparkSession, store: str) -> None:
    frame = spark.read.format("penstock").option("path", store).load()
    schema = decode.infer_schema(frame)
    assert schema.simpleString() == (
        "struct<id:string,more:struct<deep:boolean>,price:double,subject:string,tags:array<string>>"
    )
    assert decode.infer_schema(frame, sample=2).simpleString().startswith("struct<id:bigint,price:double")
    found = decode.decode(frame, sample=2)
    assert found.columns[-5:] == ["id", "price", "payload_subject", "tags", "_corrupt"]
    assert rows(found)[0]["payload_subject"] == "x"
    with pytest.raises(PenstockSparkError, match="none of the first 1 payloads is a JSON object"):
        decode.infer_schema(frame.where("seq = 3"))


def test_the_pipeline_writes_parquet_and_counts(spark: SparkSession, store: str, tmp_path: Path) -> None:
    done = decode.run(spark, store, tmp_path / "out", stream="S", schema="id long")
    assert (done.rows, done.bad, done.schema) == (7, 4, "id bigint")
    assert [row["id"] for row in rows(spark.read.parquet(done.output))] == [1, 2, None, None, None, None, 7]
    done = decode.run(spark, store, tmp_path / "out2", schema="id long", on_bad="drop", partition_by=["stream"])
    assert (done.rows, done.bad) == (3, 4)
    assert (tmp_path / "out2" / "stream=S").is_dir()
    done = decode.run(
        spark, store, tmp_path / "out", subjects=["s.0", "s.1"], on_bad="fail", mode="overwrite", stop_seq=3
    )
    assert (done.rows, done.bad) == (2, 0)
    with pytest.raises(PenstockSparkError, match="already exists"):
        decode.run(spark, store, tmp_path / "out", schema="id long")


def test_bad_options_are_told(spark: SparkSession, store: str) -> None:
    frame = spark.read.format("penstock").option("path", store).load()
    for options, text in (
        ({"schema": "id lang"}, "is no DDL"),
        ({"schema": "_corrupt string"}, "have a field '_corrupt'"),
        ({"schema": "id long", "on_bad": "hide"}, "column, drop or fail"),
        ({"schema": "id long, ID long"}, "differ only in case: ID"),
        ({"sample": 0}, "at least 1"),
    ):
        with pytest.raises(PenstockSparkError, match=text):
            decode.decode(frame, **options)  # type: ignore[arg-type]


def test_a_payload_that_is_nested_too_deeply_is_no_object() -> None:
    """It once ended the inference of everybody's schema with a RecursionError."""
    assert not decode._is_object("[" * 200_000)
    assert not decode._is_object('{"a":' * 200_000)
