"""The metadata tables: what the library says of a store, and no message read for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

import penstock
from penstock.consumer.config import make_config
from penstock.consumer.rules import admit
from penstock.spark.source.tables import COLUMNS, read_table, table_ddl
from penstock.store.open.stream_folders import list_streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tables") / "data"
    with (
        patch("penstock.stream.stream.block_size", lambda config: 2000),
        penstock.open(path, durability="os") as db,
    ):
        stream = db.stream("A", subjects=["a.>"])
        stream.publish_many([(f"a.{n % 4}", b"payload %d" % n) for n in range(1, 301)])
        stream.delete_many([5, 6, 77])
        consumers = stream.consumers
        for name, fields in (
            ("all", {"ack_policy": "explicit", "max_deliver": 1}),
            ("some", {"filter_subject": "a.1", "deliver_policy": "last_per_subject"}),
        ):
            consumers.create(admit(make_config(name, **fields), stream.config, consumers.configs))
        engine = consumers.by_name["all"].engine
        for one in engine.take(0, 12)[:10]:
            engine.ack(one.message.seq, one.consumer_seq, 1)
        engine.collect_due(60 * 10**9)
        engine.take(61 * 10**9, 3)
        consumers.touch_all()
        consumers.flush()
        db.stream("B", subjects=["b"]).publish("b", b"x")
        db.stream("EMPTY", subjects=["c"])
    return str(path)


def load(spark: SparkSession, path: str, table: str, **options: Any) -> DataFrame:
    return spark.read.format("penstock").option("table", table).options(**options).load(path)


def test_streams_say_what_the_library_says(spark: SparkSession, store: str) -> None:
    rows = {row.stream: row for row in load(spark, store, "streams").collect()}
    assert sorted(rows) == ["A", "B", "EMPTY"]
    with penstock.open(store, read_only=True) as db:
        for name, row in rows.items():
            state = db.stream(name).state()
            assert (row.messages, row.bytes, row.first_seq, row.last_seq) == (
                state.messages, state.bytes, state.first_seq, state.last_seq,
            )  # fmt: skip
            assert (row.num_subjects, row.num_deleted) == (state.num_subjects, state.num_deleted)
            assert row.disk_bytes == state.disk_bytes
            assert json.loads(row.config)["name"] == name
    assert rows["A"].first_ts <= rows["A"].last_ts and rows["EMPTY"].first_ts is None


def test_blocks_add_up_to_the_stream(spark: SparkSession, store: str) -> None:
    frame = load(spark, store, "blocks", stream="A").orderBy("block")
    rows = frame.collect()
    assert len(rows) > 4 and sum(row.messages for row in rows) == 297 and sum(row.num_deleted for row in rows) == 3
    assert [row.first_seq for row in rows[1:]] == [row.last_seq + 1 for row in rows[:-1]]
    assert all(Path(row.path).stat().st_size >= row.disk_bytes and row.first_ts <= row.last_ts for row in rows)
    assert all(row.is_sealed for row in rows), "nobody writes"


def test_subjects_have_their_counts(spark: SparkSession, store: str) -> None:
    found = {row.subject: row for row in load(spark, store, "subjects", stream="A", subjects="a.*").collect()}
    assert {name: row.messages for name, row in found.items()} == {"a.0": 75, "a.1": 73, "a.2": 74, "a.3": 75}
    assert (found["a.0"].first_seq, found["a.0"].last_seq) == (4, 300)
    names = load(spark, store, "subjects").select("subject").where("messages = 1").collect()
    assert [row.subject for row in names] == ["b"]


def test_consumers_have_their_place_and_their_lag(spark: SparkSession, store: str) -> None:
    """The first took 15 of 297, acknowledged ten, gave up two; the second waits for the last on its subject."""
    rows = {row.consumer: row for row in load(spark, store, "consumers").collect()}
    assert sorted(rows) == ["all", "some"]
    one, other = rows["all"], rows["some"]
    assert (one.stream, one.ack_policy, one.is_durable, one.is_push, one.filters) == ("A", "explicit", True, False, [])
    assert (one.delivered_seq, one.delivered_consumer_seq, one.num_ack_pending) == (17, 15, 3)
    assert (one.num_given_up, one.num_pending, one.paused_until) == (2, 297 - 15, None)
    assert (other.filters, other.num_pending, other.delivered_seq < 298) == (["a.1"], 1, True)


@pytest.mark.parametrize("table", list(COLUMNS))
def test_a_table_reads_no_block_but_the_last(store: str, table: Any) -> None:
    """With its sealed blocks out of the way a closed stream still answers."""
    folder = next(one for one in list_streams(store) if one.name == "A")
    blocks = sorted((Path(folder.root) / "blocks").glob("*.blk"))
    wanted = list(read_table(table, store, folder))
    for block in blocks[1:-1]:
        block.rename(block.with_suffix(".away"))
    try:
        assert list(read_table(table, store, folder)) == wanted
    finally:
        for block in blocks[1:-1]:
            block.with_suffix(".away").rename(block)


def test_a_table_keeps_its_columns() -> None:
    """They are documented: a change here is a change for users."""
    assert table_ddl("subjects") == (
        "store STRING, account STRING, stream STRING, subject STRING, "
        "messages BIGINT, first_seq BIGINT, last_seq BIGINT"
    )
    assert list(COLUMNS["blocks"])[:7] == ["store", "account", "stream", "block", "path", "first_seq", "last_seq"]


def test_a_running_writer_is_seen(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data", durability="os") as db:
        stream = db.stream("S", subjects=["s.>"])
        stream.publish_many([("s.1", b"x")] * 5)
        [folder] = list_streams(str(tmp_path / "data"))
        [block] = read_table("blocks", "data", folder)
        assert (block["messages"], block["is_sealed"]) == (5, False)
        stream.publish("s.2", b"y")
        [row] = read_table("streams", "data", folder)
        assert row["messages"] == 6
        assert [one["subject"] for one in read_table("subjects", "data", folder)] == ["s.1", "s.2"]
