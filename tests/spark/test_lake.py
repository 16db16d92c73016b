"""lake: every row once, whatever happens on the way; what was deleted is told; a stream that changed is noticed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
import penstock.spark
from penstock.errors import NotAStore
from penstock.spark.pipelines import lake, lake_files
from penstock.spark.pipelines.manifest import Lake, LakeError, unpack
from penstock.testing import FakeClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 86400 * 10**9
HOUR = 3600 * 10**9


def publish(stream: Any, count: int, size: int = 40) -> None:
    stream.publish_many(
        [
            (f"orders.{n % 3}", b"%d " % n + bytes(size), {"K": [str(n), "b"]} if n % 4 == 0 else None)
            for n in range(count)
        ]
    )


def rows_of_lake(path: Path) -> pa.Table:
    """What the manifests name, less what they hide, in sequence order, read without Spark."""
    found = Lake(path)
    tables = []
    for stream in found.state().streams.values():
        hidden = unpack(stream.hidden)
        for file in stream.files:
            table = pq.ParquetFile(path / file.path).read()
            assert (table.num_rows, os.path.getsize(path / file.path)) == (file.rows, file.bytes)
            seqs = table.column("seq").to_pylist()
            assert (seqs[0], seqs[-1]) == (file.first_seq, file.last_seq) and seqs == sorted(seqs)
            times = table.column("ts_ns").to_pylist()
            assert (min(times), max(times)) == (file.min_ts_ns, file.max_ts_ns)
            tables.append(table.filter(pa.array([seq not in hidden for seq in seqs])))
    return pa.concat_tables(tables).sort_by([("stream", "ascending"), ("seq", "ascending")])


def assert_same(path: Path, *streams: Any) -> None:
    """The lake holds exactly these streams' rows."""
    expected = pa.concat_tables([stream.to_arrow() for stream in streams])
    assert rows_of_lake(path).to_pylist() == expected.to_pylist()


def test_an_export_holds_every_row_and_the_next_one_only_what_is_new(spark: SparkSession, tmp_path: Path) -> None:
    clock = FakeClock()
    with penstock.open(tmp_path / "store", durability="os", clock=clock) as db:
        orders, other = db.stream("ORDERS", subjects=["orders.>"]), db.stream("OTHER", subjects=["other"])
        publish(orders, 100)
        other.publish("other", b"x")
        clock.advance(DAY)
        publish(orders, 50)
        told: list[tuple[int, int]] = []
        done = lake.run(spark, db.path, tmp_path / "lake", on_progress=lambda at, of: told.append((at, of)))
        assert (done.exports, done.rows, told[-1][1]) == ((1,), 151, 2)
        assert [(one.stream, one.first, one.last, one.rows) for one in done.streams] == [
            ("ORDERS", 1, 150, 150),
            ("OTHER", 1, 1, 1),
        ]
        assert_same(tmp_path / "lake", orders, other)
        folders = {str(path.parent.relative_to(tmp_path / "lake")) for path in tmp_path.rglob("*.parquet")}
        assert folders == {
            "stream=ORDERS/day=2026-11-01",
            "stream=ORDERS/day=2026-11-02",
            "stream=OTHER/day=2026-11-01",
        }

        assert lake.run(spark, db.path, tmp_path / "lake").exports == ()
        publish(orders, 10)
        done = lake.run(spark, db.path, tmp_path / "lake", streams=["ORDERS"])
        assert (done.exports, done.rows, done.streams[0].first) == ((2,), 10, 151)
        assert_same(tmp_path / "lake", orders, other)
        frame = spark.read.parquet(str(tmp_path / "lake"))
        assert frame.where("day = '2026-11-01' AND stream = 'ORDERS'").count() == 100


def test_files_are_bounded_in_rows_and_bytes(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "store", durability="os") as db:
        stream = db.stream("ORDERS", subjects=["orders.>"])
        stream.publish_many([("orders.1", os.urandom(500)) for _ in range(1000)])
        lake.run(spark, db.path, tmp_path / "rows", max_rows=150)
        lake.run(spark, db.path, tmp_path / "bytes", max_bytes=60_000)
        assert_same(tmp_path / "rows", stream)
        assert_same(tmp_path / "bytes", stream)
    sizes = [file.rows for file in Lake(tmp_path / "rows").state().streams["ORDERS"].files]
    assert sizes == [150] * 6 + [100]
    files = Lake(tmp_path / "bytes").state().streams["ORDERS"].files
    assert max(file.bytes for file in files) <= 60_000 and 10 <= len(files) <= 14


def test_the_layout_is_chosen_once(spark: SparkSession, tmp_path: Path) -> None:
    clock = FakeClock()
    with penstock.open(tmp_path / "store", durability="os", clock=clock) as db:
        stream = db.stream("S", subjects=["a.*", "d", "e.*"])
        for subject in ("a.b", "a.c", "d"):
            stream.publish(subject, b"x", {"K": "v"})
            clock.advance(HOUR)
        options: dict[str, Any] = {"partition_by": ["token2", "hour"], "headers": "raw", "compression": "snappy"}
        lake.run(spark, db.path, tmp_path / "lake", **options)
        stream.publish("e.f", b"y")
        lake.run(spark, db.path, tmp_path / "lake")
        with pytest.raises(LakeError, match=r"made with partition_by=.*leave these settings out"):
            lake.run(spark, db.path, tmp_path / "lake", partition_by=["stream"])
    found = sorted(str(path.parent.relative_to(tmp_path / "lake")) for path in tmp_path.rglob("*.parquet"))
    assert found == [
        "token2=__HIVE_DEFAULT_PARTITION__/hour=2026-11-01-02",
        "token2=b/hour=2026-11-01-00",
        "token2=c/hour=2026-11-01-01",
        "token2=f/hour=2026-11-01-03",
    ]
    first = pq.ParquetFile(next((tmp_path / "lake" / "token2=b").rglob("*.parquet")))
    assert first.read().column("headers").to_pylist() == [b"NATS/1.0\r\nK: v\r\n\r\n"]
    assert first.metadata.row_group(0).column(0).compression == "SNAPPY"


def test_times_that_go_back_and_forth_do_not_make_a_file_each(tmp_path: Path) -> None:
    assert lake_files.escape("a=b/c:d %") == "a%3Db%2Fc%3Ad %25"
    batch = pa.record_batch(
        {
            "stream": ["S"] * 4,
            "subject": ["a"] * 4,
            "ts": pa.array([0, 86400_000_000, 0, 86400_000_000], pa.timestamp("us", tz="UTC")),
        }
    )
    found = {path: rows.num_rows for path, rows in lake_files._split(batch, ("stream", "day"))}
    assert found == {"stream=S/day=1970-01-01": 2, "stream=S/day=1970-01-02": 2}


# Killed, and run again.

KILLED = """
import os, signal, sys
import penstock.spark
from penstock.spark.pipelines import lake
from penstock.spark.pipelines.manifest import Lake

spark = penstock.spark.session(**{"spark.master": "local[2]"})
commit, rename, count = Lake.commit, os.rename, [0]

def die_in_the_middle(self, manifest):
    if manifest.export == 2:
        def stop_at_the_second(old, new):
            count[0] += str(new).endswith(".parquet")
            if count[0] == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            rename(old, new)
        os.rename = stop_at_the_second
    commit(self, manifest)

Lake.commit = die_in_the_middle
lake.run(spark, sys.argv[1], sys.argv[2], step_bytes=1, max_rows=40)
"""


def test_a_driver_killed_in_the_middle_leaves_every_row_to_be_there_once(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "store", durability="os") as db:
        streams = [db.stream(name, subjects=[f"{name}.>"]) for name in ("A", "B", "C")]
        for stream in streams:
            stream.publish_many([(f"{stream.name}.{n % 5}", b"%d" % n) for n in range(100)])
        done = subprocess.run([sys.executable, "-c", KILLED, db.path, str(tmp_path / "lake")], capture_output=True)
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
        assert_same(tmp_path / "lake", streams[0])  # the first step was through
        on_disk = [path for path in (tmp_path / "lake" / "stream=B").rglob("*.parquet")]
        assert on_disk  # moved there by the one that died
        assert lake.run(spark, db.path, tmp_path / "lake").rows == 200
        assert_same(tmp_path / "lake", *streams)
        assert not any(path.exists() for path in on_disk)
        found = spark.read.parquet(str(tmp_path / "lake"))  # nothing is there twice for those who do not ask us
        assert Counter((row.stream, row.seq) for row in found.select("stream", "seq").collect()) == Counter(
            (stream.name, seq) for stream in streams for seq in range(1, 101)
        )


def test_a_second_exporter_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "store", durability="os") as db:
        stream = db.stream("ORDERS", subjects=["orders.>"])
        publish(stream, 5)
        lake.run(spark, db.path, tmp_path / "lake")
        publish(stream, 5)
        with (
            Lake(tmp_path / "lake").locked(),
            pytest.raises(LakeError, match=rf"another export is at work \(pid {os.getpid()} "),
        ):
            lake.run(spark, db.path, tmp_path / "lake")
        first = Lake(tmp_path / "lake").manifest(1)
        Lake(tmp_path / "lake").staging(first.run)
        with pytest.raises(LakeError, match="written by another export meanwhile"):
            Lake(tmp_path / "lake").commit(type(first)(1, "x", "", "", [], []))
        assert lake.run(spark, db.path, tmp_path / "lake").rows == 5
        assert_same(tmp_path / "lake", stream)


def test_steps_and_states_come_to_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "STATE_EVERY", 2)
    with penstock.open(tmp_path / "store", durability="os") as db:
        streams = [db.stream(name, subjects=[f"{name}.>"]) for name in ("A", "B", "C")]
        for stream in streams:
            stream.publish_many([(f"{stream.name}.x", b"%d" % n) for n in range(10)])
        streams[0].delete(3)
        assert lake.run(spark, db.path, tmp_path / "lake", step_bytes=1).exports == (1, 2, 3)
        streams[0].delete(4)
        assert lake.run(spark, db.path, tmp_path / "lake").exports == (4,)
        assert_same(tmp_path / "lake", *streams)
    states = sorted((tmp_path / "lake" / "_lake" / "manifest").glob("*.state"))
    assert [state.name for state in states] == ["00000002.state", "00000004.state"]
    before = Lake(tmp_path / "lake").state()
    states[1].write_bytes(b"{")
    assert Lake(tmp_path / "lake").state() == before
    (tmp_path / "lake" / "_lake" / "manifest" / "00000003.json").unlink()
    with pytest.raises(LakeError, match=r"00000003\.json is missing"):
        Lake(tmp_path / "lake").state()


# Deletes.


def test_each_export_tells_the_deletes_since_the_last(spark: SparkSession, tmp_path: Path) -> None:
    clock = FakeClock()
    with penstock.open(tmp_path / "store", durability="os", clock=clock) as db:
        stream = db.stream("ORDERS", subjects=["orders.>"], max_age="1h", allow_rollup_hdrs=True)
        publish(stream, 30)
        clock.advance(HOUR // 2)
        publish(stream, 60)
        lake.run(spark, db.path, tmp_path / "lake")
        clock.advance(HOUR // 2 + 1)  # the first 30 age: the lake keeps them
        stream.delete(40)
        stream.delete_many([50, 51])
        stream.erase(60)
        stream.purge(seq=36)
        stream.publish("orders.1", b"all in one", {"Nats-Rollup": "sub"})
        done = lake.run(spark, db.path, tmp_path / "lake")
        deletes = Lake(tmp_path / "lake").manifest(2).streams[0].deletes
        assert {name: deletes[name] for name in ("user", "erase", "purge")} == {
            "user": [(40, 40), (50, 51)],
            "erase": [(60, 60)],
            "purge": [(31, 35)],
        }
        rolled = {seq for first, last in deletes["rollup"] for seq in range(first, last + 1)}
        assert rolled == {seq for seq in range(36, 91) if (seq - 31) % 3 == 1} - {50}
        assert done.streams[0].hidden == 4 + 5 + len(rolled)
        kept = [row["seq"] for row in rows_of_lake(tmp_path / "lake").to_pylist()]
        assert kept == list(range(1, 31)) + stream.to_arrow().column("seq").to_pylist()
        assert lake.run(spark, db.path, tmp_path / "lake").exports == ()
        stream.delete(41)
        stream.purge()
        assert lake.run(spark, db.path, tmp_path / "lake").streams[0].hidden > 10
        kept = [row["seq"] for row in rows_of_lake(tmp_path / "lake").to_pylist()]
        assert kept == list(range(1, 31))  # what had aged before the purge was not purged


def test_rows_whose_delete_is_told_by_no_block_any_more_are_hidden_and_those_that_limits_took_are_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Deletes of every kind beside max_msgs; before the next export all blocks that told of them are gone."""
    with penstock.open(tmp_path / "store", durability="os") as db:
        stream = db.stream("ORDERS", subjects=["orders.>"], max_msgs=3000, allow_rollup_hdrs=True)
        publish(stream, 3000)
        lake.run(spark, db.path, tmp_path / "lake")
        stream.delete_many(range(101, 201))
        stream.erase(205)
        stream.purge(seq=51)
        alive = {message.seq for message in stream.read()}
        stream.publish("orders.1", b"", headers={"Nats-Rollup": "sub"})
        rolled = alive - {message.seq for message in stream.read()}
        assert len(rolled) > 100
        for _ in range(24):
            publish(stream, 1000, size=1000)
            stream.sync()
            stream.store.after_commit()
        assert not list((tmp_path / "store").rglob("00000[12].blk"))
        done = lake.run(spark, db.path, tmp_path / "lake", unexplained="fail")
        assert done.streams[0].unexplained == 0
        deletes = Lake(tmp_path / "lake").manifest(2).streams[0].deletes
        assert deletes["purge"] == [(1, 50)]
        assert deletes["user"] == [(101, 200)]
        assert deletes["erase"] == [(205, 205)]
        hidden = {*range(1, 51), *range(101, 201), 205, *rolled}
        kept = {row["seq"] for row in rows_of_lake(tmp_path / "lake").to_pylist() if row["seq"] <= 3000}
        assert kept == set(range(1, 3001)) - hidden
        table = penstock.spark.table(spark, db.path, lake=tmp_path / "lake", stream="ORDERS", stop_seq=3001)
        assert {row["seq"] for row in table.select("seq").collect()} == kept


@pytest.mark.parametrize(
    ("max_msgs", "unexplained", "is_hidden"),
    [(-1, "auto", True), (1000, "auto", False), (1000, "hide", True), (-1, "keep", False)],
)
def test_rows_that_went_without_a_record_are_judged(
    spark: SparkSession, tmp_path: Path, max_msgs: int, unexplained: Any, is_hidden: bool
) -> None:
    """A purge, a crash that seals the block, and the block goes with the record that told of the purge; what was kept
    of it is lost, as in a store that an older version wrote."""
    db = penstock.open(tmp_path / "store", durability="os")
    stream = db.stream("ORDERS", subjects=["orders.>"], max_msgs=max_msgs)
    publish(stream, 60)
    lake.run(spark, db.path, tmp_path / "lake")
    stream.purge()
    abandon(db, stream)
    with penstock.open(tmp_path / "store", durability="os") as again:
        stream = again.get_stream("ORDERS")
        publish(stream, 5)
        stream.delete_many(range(61, 66))  # now the writer looks for blocks that are empty
        for _ in range(3):
            stream.sync()
            stream.store.after_commit()
        assert not list((tmp_path / "store").rglob("000001.blk"))
        (kept,) = (tmp_path / "store").rglob("DELETES")
        kept.unlink()
        with pytest.raises(LakeError, match="60 exported messages from 1 to 60 are gone"):
            lake.run(spark, db.path, tmp_path / "lake", unexplained="fail")
        done = lake.run(spark, db.path, tmp_path / "lake", unexplained=unexplained)
        deletes = Lake(tmp_path / "lake").manifest(2).streams[0].deletes
        assert deletes == ({"unexplained": [(1, 60)]} if is_hidden else {})
        assert done.streams[0].unexplained == (0 if is_hidden else 60)
        assert lake.run(spark, db.path, tmp_path / "lake", unexplained="fail").exports == ()  # told once


def abandon(db: Any, stream: Any) -> None:
    """The process ends here and now: what is closed after this has nothing to write."""
    stream.store.abandon()
    db.close()


# Another stream of the same name.


def test_a_stream_that_was_made_anew_or_cut_back_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "store", durability="os") as db:
        stream = db.stream("ORDERS", subjects=["orders.>"])
        publish(stream, 20)
        lake.run(spark, db.path, tmp_path / "lake")
        stream.store.truncate(15)  # type: ignore[attr-defined]
        with pytest.raises(LakeError, match="cut back to 15, and the lake has messages up to 20"):
            lake.run(spark, db.path, tmp_path / "lake")
        publish(stream, 20)
        with pytest.raises(LakeError, match="cut back to 15 and written anew"):
            lake.run(spark, db.path, tmp_path / "lake")
        done = lake.run(spark, db.path, tmp_path / "lake", changed="restart")
        assert done.rows == 35
        assert_same(tmp_path / "lake", stream)
        db.delete_stream("ORDERS")
        stream = db.stream("ORDERS", subjects=["orders.>"])
        publish(stream, 50)
        with pytest.raises(LakeError, match="stream ORDERS: it was deleted and made anew"):
            lake.run(spark, db.path, tmp_path / "lake")
        lake.run(spark, db.path, tmp_path / "lake", changed="restart")
        assert_same(tmp_path / "lake", stream)
        publish(stream, 5)
        assert lake.run(spark, db.path, tmp_path / "lake").rows == 5


def test_an_unclean_stop_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    db = penstock.open(tmp_path / "store", durability="os")
    publish(db.stream("ORDERS", subjects=["orders.>"]), 20)
    lake.run(spark, db.path, tmp_path / "lake")
    abandon(db, db.get_stream("ORDERS"))
    with penstock.open(tmp_path / "store", durability="os") as again:
        stream = again.get_stream("ORDERS")
        publish(stream, 7)
        assert lake.run(spark, again.path, tmp_path / "lake").rows == 7
        assert_same(tmp_path / "lake", stream)


# Following.


def test_follow_exports_until_it_is_told_to_stop(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "store", durability="os") as db:
        stream = db.stream("ORDERS", subjects=["orders.>"])
        publish(stream, 10)
        seen: list[int] = []

        def again(done: lake.Exported) -> None:
            seen.append(done.rows)
            publish(stream, 3)
            if len(seen) == 3:
                os.kill(os.getpid(), signal.SIGINT)

        before = signal.getsignal(signal.SIGINT)
        assert lake.follow(spark, db.path, tmp_path / "lake", interval=0, on_export=again) == 3
        assert seen == [10, 3, 3]
        assert signal.getsignal(signal.SIGINT) is before
        stop = threading.Event()
        lake.follow(spark, db.path, tmp_path / "lake", stop=stop, on_export=lambda _: stop.set())
        assert_same(tmp_path / "lake", stream)


# What cannot be.


def test_a_damaged_block_fails_the_export_or_is_skipped(spark: SparkSession, tmp_path: Path) -> None:
    before = penstock.open(tmp_path / "store", durability="os")
    publish(before.stream("ORDERS", subjects=["orders.>"]), 20)
    abandon(before, before.get_stream("ORDERS"))
    with penstock.open(tmp_path / "store", durability="os") as db:
        publish(db.get_stream("ORDERS"), 1)  # in a new block; the one before has its summary and is not looked at again
        block = next((tmp_path / "store").rglob("000001.blk"))
        data = bytearray(block.read_bytes())
        data[data.index(b"7 \0\0")] ^= 1
        block.write_bytes(data)
        with pytest.raises(Exception, match=r"CorruptBlock: .*000001\.blk at byte \d+: checksum differs"):
            lake.run(spark, db.path, tmp_path / "lake")
        assert not list((tmp_path / "lake").rglob("*.parquet"))
        assert lake.run(spark, db.path, tmp_path / "lake", mode="skip").rows == 20
        assert [row["seq"] for row in rows_of_lake(tmp_path / "lake").to_pylist()] == [
            seq for seq in range(1, 22) if seq != 8
        ]


def test_bad_input_is_told_in_a_line(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "store", durability="os") as db:
        publish(db.stream("ORDERS", subjects=["orders.>"]), 3)
    with pytest.raises(NotAStore):
        lake.run(spark, tmp_path / "nothing", tmp_path / "lake")
    assert not (tmp_path / "lake").exists()
    with pytest.raises(LakeError, match=r"partition_by 'week': there are stream, year, month, day, hour, subject"):
        lake.run(spark, tmp_path / "store", tmp_path / "lake", partition_by=["week"])
    with pytest.raises(LakeError, match="not empty and no lake"):
        lake.run(spark, tmp_path / "store", tmp_path)
    with pytest.raises(LakeError, match="can rename"):
        lake.run(spark, tmp_path / "store", "s3://bucket/lake")
    with pytest.raises(LakeError, match="max_rows=0"):
        lake.run(spark, tmp_path / "store", tmp_path / "lake", max_rows=0)
    lake.run(spark, tmp_path / "store", tmp_path / "lake")
    manifest = tmp_path / "lake" / "_lake" / "manifest" / "00000001.json"
    assert json.loads(manifest.read_bytes())["files"][0]["rows"] == 3
    manifest.write_bytes(manifest.read_bytes()[:100])
    with pytest.raises(LakeError, match=r"00000001\.json: .*restore it from a backup"):
        lake.run(spark, tmp_path / "store", tmp_path / "lake")
