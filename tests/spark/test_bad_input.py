"""Bad input: each gives one clear line in the driver, and none a Python traceback alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.spark.errors import PenstockSparkError
from penstock.spark.source.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bad") / "data"
    with penstock.open(path, durability="os") as db:
        db.stream("ORDERS", subjects=["o"]).publish_many([("o", b"payload %d" % n) for n in range(1, 21)])
    return str(path)


def told(run: Callable[[], Any]) -> str:
    """The text of the error that the driver gets, without Spark's own words around it."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        run()
    text = str(caught.value)
    assert "Traceback" not in text, text
    lines = [line for line in text.splitlines() if "PenstockSparkError: " in line]
    assert lines, text
    return lines[0].partition("PenstockSparkError: ")[2]


def test_a_missing_path_and_one_that_is_no_store(spark: SparkSession, tmp_path: Path) -> None:
    read = spark.read.format("penstock")
    text = told(lambda: read.load(str(tmp_path / "none")).count())
    assert text == f"NotAStore: {tmp_path / 'none'} is not a Penstock store: there is no such directory"
    (tmp_path / "other").mkdir()
    text = told(lambda: read.load(str(tmp_path / "other")).count())
    assert "is not a Penstock store: there is no PENSTOCK file in it" in text
    assert "no store: give its directory" in told(lambda: spark.read.format("penstock").load())


def test_an_unknown_stream_and_an_unknown_option(spark: SparkSession, store: str) -> None:
    text = told(lambda: spark.read.format("penstock").load(store, stream="ORDER").count())
    assert text == f"StreamNotFound: stream 'ORDER' not found in {store}; there are: ORDERS"
    text = told(lambda: spark.read.format("penstock").option("startSeq", 3).load(store))
    assert text.startswith("unknown option 'startseq' of format penstock: did you mean startingSeq")


def test_a_schema_that_does_not_fit(spark: SparkSession, store: str) -> None:
    text = told(lambda: spark.read.format("penstock").schema("seq INT, subject STRING").load(store).count())
    assert "column seq does not fit. Choose from: stream STRING, seq BIGINT, ts TIMESTAMP" in text
    text = told(lambda: spark.read.format("penstock").schema("sequence BIGINT").load(store).count())
    assert "column sequence does not fit" in text
    text = told(
        lambda: spark.read.format("penstock").option("table", "subjects").schema("count BIGINT").load(store).count()
    )
    assert "does not fit table=subjects: column count" in text and "messages BIGINT" in text


def test_a_damaged_block_fails_the_query_with_its_place(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data", durability="os") as db:
        db.stream("S", subjects=["s"]).publish_many([("s", b"payload %d" % n) for n in range(1, 21)])
    block = tmp_path / "data" / "$G" / "S" / "blocks" / "000001.blk"
    data = bytearray(block.read_bytes())
    data[data.index(b"payload 7")] ^= 1
    block.write_bytes(data)
    text = told(lambda: spark.read.format("penstock").load(str(tmp_path / "data")).count())
    assert text.startswith(f"CorruptBlock: {block} at byte ") and "checksum differs" in text
    assert "mode" in text, "it says how to read on"


def test_a_stream_that_changes_under_a_query(spark: SparkSession, tmp_path: Path) -> None:
    """Planned, then truncated before a task reads: the query fails and says that it can be run again."""
    with penstock.open(tmp_path / "data", durability="os") as db:
        stream = db.stream("S", subjects=["s"])
        stream.publish_many([("s", b"payload %d" % n) for n in range(1, 21)])
        frame = spark.read.format("penstock").load(str(tmp_path / "data"))
        planned = frame.rdd  # the partitions are fixed now
        assert planned.getNumPartitions() == 1
        stream.rules.store.truncate(10)
        stream.publish_many([("s", b"other")] * 30)
        text = told(planned.count)
        assert (
            "stream S in" in text and "truncated, or recovered after a crash" in text and "run the query again" in text
        )
        assert spark.read.format("penstock").load(str(tmp_path / "data")).count() == 40
        again = spark.read.format("penstock").load(str(tmp_path / "data")).rdd
        assert again.getNumPartitions() >= 1
        db.delete_stream("S")
        assert "was deleted while it was read" in told(again.count)


# What needs no Spark to be told.


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingSeq": "x"}, "option startingSeq='x': a whole number is wanted"),
        ({"startingSeq": "-1"}, "option startingSeq='-1': a number from 0 on"),
        ({"minPartitions": "0"}, "a number from 1 on"),
        ({"maxPartitionBytes": "64 apples"}, "a size is wanted, such as"),
        ({"startingTime": "yesterday"}, "not a time: 'yesterday'"),
        ({"maxTriggerDelay": "10 minutes"}, "not a duration"),
        ({"mode": "ignore"}, "one of fail, skip, quarantine is wanted"),
        ({"headers": "json"}, "one of map, raw, none is wanted"),
        ({"table": "message"}, "one of messages, blocks, subjects, streams, consumers is wanted"),
        ({"failOnDataLoss": "1"}, "true or false is wanted"),
        ({"subjects": "a..b"}, "option subjects='a..b'"),
        ({"columns": "seq,paylod"}, "no column 'paylod': did you mean payload?"),
        ({"columns": "seq,headers", "headers": "none"}, "drop one"),
        ({"startingSeq": "9", "endingSeq": "8"}, "option startingSeq lies after endingSeq"),
        ({"stream": " , "}, "option stream is empty"),
        ({"table": "blocks", "mode": "skip"}, "option mode does not go with table=blocks"),
        ({"strem": "S"}, "did you mean stream?"),
        ({"maxMessagesPerTriger": "3"}, "did you mean maxMessagesPerTrigger or"),
        ({"zzz": "S"}, "there are account, columns"),
        ({"path": "s3://bucket/data"}, "s3://bucket/data is no directory"),
        ({"path": "[1]"}, "a list of texts is wanted"),
        ({"path": "[oops"}, "option path='[oops'"),
    ],
    ids=str,
)
def test_options_are_checked(options: dict[str, str], text: str) -> None:
    with pytest.raises(PenstockSparkError) as caught:
        ReadOptions.parse({"path": "data"} | options)
    assert text in str(caught.value)


def test_options_are_read() -> None:
    found = ReadOptions.parse(
        {
            "PATH": '["a,b", "c"]', "streams": "X, Y", "subjects": "a.*,b.>", "columns": "payload,seq",
            "maxpartitionbytes": "16MiB", "maxBytesPerTrigger": "2g", "startingtime": "2026-11-01", "endingSeq": "77",
            "maxTriggerDelay": "1m", "failondataloss": "FALSE", "startingOffsets": "Latest",
        }
    )  # fmt: skip
    assert found.paths == ("a,b", "c") and found.streams == ("X", "Y") and found.subjects == ("a.*", "b.>")
    assert ReadOptions.parse({"path": "file:///data%20a,file:/b"}).paths == ("/data a", "/b")
    assert found.columns == ("seq", "payload") and found.max_partition_bytes == 16 << 20
    assert found.max_bytes_per_trigger == 2 << 30 and found.starting_time == 1_793_491_200 * 10**9
    assert found.ending_seq == 77 and found.max_trigger_delay == 60 * 10**9
    assert found.fail_on_data_loss is False and found.starting_offsets == "latest"
