"""The pipeline migrate: old files and Parquet become streams, in parallel, with their sequences and times."""

from __future__ import annotations

import base64
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.cli import main
from penstock.errors import MaxMsgsExceeded
from penstock.spark.pipelines import migrate
from penstock.spark.pipelines.jsonl_parts import Range, cut, lines_of, parse_range
from penstock.spark.pipelines.migrate import MigrationRefused, Survey


def line(seq: int, subject: str = "orders.eu", payload: bytes = b"x", **more: Any) -> bytes:
    fields = {
        "Sequence": seq, "Subject": subject, "PayloadBase64": base64.b64encode(payload).decode(),
        "TimestampUtc": f"2024-05-06T07:08:{seq % 60:02d}.123456700Z", **more,
    }  # fmt: skip
    return json.dumps(fields).encode() + b"\n"


def write(folder: Path, lines: list[bytes]) -> Path:
    folder.mkdir(parents=True)
    path = folder / "messages.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def rows(path: Path, stream: str) -> list[tuple[Any, ...]]:
    with penstock.open(path, read_only=True) as db:
        found = db.get_stream(stream)
        return [(one.seq, one.time_ns, one.subject, one.raw_headers, one.data) for one in found.read()]


def old_lines(seed: int) -> list[bytes]:
    """Gaps, headers, lines that do not parse, lines that go back."""
    rng = random.Random(seed)
    lines, seq = [], rng.choice([0, 0, 40])
    for n in range(400):
        seq += rng.choice([1, 1, 1, 1, 5])
        kind = rng.random()
        if kind < 0.03:
            lines.append(b"{broken\n")
        elif kind < 0.06:
            lines.append(line(max(1, seq - rng.randrange(1, 90)), payload=b"back"))
        elif kind < 0.08:
            lines.append(b"\n")
        else:
            more = {"Headers": {"A": str(n)}} if n % 7 == 0 else {}
            lines.append(line(seq, f"orders.{n % 3}.x", os.urandom(rng.randrange(300)), **more))
    return lines


@pytest.mark.parametrize("seed", [1, 2])
def test_lines_become_what_one_process_makes_of_them(spark: Any, tmp_path: Path, seed: int) -> None:
    source = write(tmp_path / "old" / "ORDERS", old_lines(seed))
    found = migrate.run(spark, tmp_path / "data", tmp_path / "old", max_bytes=9_000)
    assert source.exists()
    main(["migrate", str(tmp_path / "plain"), str(tmp_path / "old")])
    plain = tmp_path / "plain" / "$G" / "ORDERS" / "messages.jsonl.damaged"
    (one,) = found.streams
    assert rows(tmp_path / "data", "ORDERS") == rows(tmp_path / "plain", "ORDERS")
    assert one.messages == len(rows(tmp_path / "plain", "ORDERS"))
    assert Path(one.set_aside).read_bytes() == plain.read_bytes() and one.bad
    assert main(["verify", str(tmp_path / "data")]) == 0
    with penstock.open(tmp_path / "data") as db:
        state = db.stream("ORDERS").state()
        assert state.last_seq == one.last_seq and db.stream("ORDERS").config.subjects == ("orders.>",)
        assert db.stream("ORDERS").publish("orders.new", b"next").seq == one.last_seq + 1
    assert not (tmp_path / "data" / "$G" / "ORDERS" / "staging").exists()


@pytest.mark.parametrize("layout", ["column", "folders"])
def test_parquet_keeps_sequences_times_and_headers(spark: Any, tmp_path: Path, layout: str) -> None:
    import pyarrow as pa
    from pyarrow import dataset

    with penstock.open(tmp_path / "first", durability="os") as db:
        for name in ("A", "B"):
            stream = db.stream(name, subjects=[f"{name}.>"])
            stream.publish_many(
                [(f"{name}.{n % 4}", b"%d" % n, {"K": ["a", str(n)]} if n % 2 else None) for n in range(500)]
            )
            stream.delete_many([1, 2, 17, 499])
    assert main(["export", str(tmp_path / "first"), "-f", "parquet", "-o", str(tmp_path / "out")]) == 0
    if layout == "folders":
        hive = dataset.partitioning(pa.schema([("stream", pa.string())]), flavor="hive")
        whole = dataset.dataset(tmp_path / "out", format="parquet")
        dataset.write_dataset(whole, tmp_path / "hive", format="parquet", partitioning=hive)
        (tmp_path / "out").rename(tmp_path / "away")
        (tmp_path / "hive").rename(tmp_path / "out")
    found = migrate.run(spark, tmp_path / "second", tmp_path / "out")
    assert [(one.stream, one.messages, one.bad) for one in found.streams] == [("A", 496, 0), ("B", 496, 0)]
    for name in ("A", "B"):
        assert rows(tmp_path / "second", name) == rows(tmp_path / "first", name)


def test_parquet_rows_that_cannot_be_taken_are_set_aside(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame(
        [
            (1, 5, "a.b", b"1"),
            (2, 6, "a..b", b"2"),
            (3, 7, "a.c", b"3"),
            (3, 8, "a.c", b"again"),
            (600_000, 9, "a.d", b"4"),
        ],
        "seq long, ts_ns long, subject string, payload binary",
    )
    frame.write.parquet(str(tmp_path / "in"))
    with pytest.raises(MigrationRefused, match="say what the stream is called"):
        migrate.run(spark, tmp_path / "data", tmp_path / "in")
    found = migrate.run(spark, tmp_path / "data", tmp_path / "in", stream="S")
    assert [row[0] for row in rows(tmp_path / "data", "S")] == [1, 3, 600_000]
    (one,) = found.streams
    assert one.bad == 2 and not found.is_whole
    assert "seq 2: " in Path(one.set_aside).read_text() and "there twice" in Path(one.set_aside).read_text()


def test_what_cannot_be_migrated(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "old" / "S", [line(1)])
    write(tmp_path / "empty" / "E", [b"nothing\n"])
    with penstock.open(tmp_path / "data") as db:
        db.stream("S", subjects=["s"]).publish("s", b"here")
    with pytest.raises(MigrationRefused, match="holds messages already"):
        migrate.run(spark, tmp_path / "data", tmp_path / "old")
    with pytest.raises(MigrationRefused, match="nothing in it is a message"):
        migrate.run(spark, tmp_path / "data", tmp_path / "empty")
    with pytest.raises(MigrationRefused, match="no such file"):
        migrate.run(spark, tmp_path / "data", tmp_path / "missing")
    with pytest.raises(MigrationRefused, match="no OTHER/"):
        migrate.run(spark, tmp_path / "data", tmp_path / "old", stream="OTHER")


def test_a_migration_that_is_refused_leaves_nothing_behind(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "old" / "S", [line(n) for n in range(1, 6)])
    with penstock.open(tmp_path / "data") as db:
        db.stream("S", subjects=["orders.>"], max_msgs=2, discard="new")
    with pytest.raises(MaxMsgsExceeded):
        migrate.run(spark, tmp_path / "data", tmp_path / "old")
    with penstock.open(tmp_path / "data") as db:
        assert db.stream("S").state().last_seq == 0
        db.stream("S", max_msgs=10)
    assert not (tmp_path / "data" / "$G" / "S" / "staging").exists()
    assert migrate.run(spark, tmp_path / "data", tmp_path / "old").streams[0].messages == 5


LINES = st.lists(st.sampled_from([b"", b"a", b"bb\r", b"ccc" * 5, b"\x00\xff"]), max_size=30)


@settings(deadline=None)
@given(LINES, st.booleans(), st.integers(1, 40))
def test_ranges_hold_every_line_once(tmp_path_factory: Any, lines: list[bytes], ends: bool, most: int) -> None:
    data = b"\n".join(lines) + (b"\n" if ends else b"")
    path = tmp_path_factory.mktemp("lines") / "file"
    path.write_bytes(data)
    found = [one for part in cut(str(path), len(data), most) for one in lines_of(part)]
    assert found == data.splitlines(keepends=True) if b"\r" not in data else b"".join(found) == data
    assert all(one.endswith(b"\n") for one in found[:-1])


@settings(deadline=None)
@given(st.lists(st.integers(1, 60), max_size=40), st.integers(1, 400))
def test_ranges_take_the_same_lines_as_one_reader(tmp_path_factory: Any, seqs: list[int], most: int) -> None:
    """A line is taken when it lies above all before it, whoever reads those."""
    path = tmp_path_factory.mktemp("lines") / "file"
    path.write_bytes(b"".join(line(seq) for seq in seqs))
    size = path.stat().st_size
    whole_bad: list[tuple[int, str, bytes]] = []
    whole = [one.seq for one in parse_range(Range(0, str(path), 0, size), whole_bad)]
    parts, lines = [], []
    for part in cut(str(path), size, most):
        own = [json.loads(one)["Sequence"] for one in lines_of(part)]
        lines.append(len(own))
        if own:
            parts.append((part.part, len(own), max(own)))
    survey = Survey(tuple(parts), (), tuple(lines))
    bad: list[tuple[int, str, bytes]] = []
    taken = []
    for part in cut(str(path), size, most):
        told = Range(part.part, part.path, part.start, part.stop, survey.floors().get(part.part, 0),
                     survey.numbers()[part.part])  # fmt: skip
        taken += [one.seq for one in parse_range(told, bad)]
    assert taken == whole
    assert [(number, text) for number, _, text in bad] == [(number, text) for number, _, text in whole_bad]
