"""The pipeline verify: every checksum of a store in Spark tasks, and what damage costs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.disk import Disk
from penstock.check.store import check_store
from penstock.consumer.config import make_config
from penstock.consumer.rules import admit
from penstock.errors import NotAStore, StreamNotFound
from penstock.format.checked_file import write_checked
from penstock.format.paths import StreamPaths
from penstock.spark.pipelines import verify

BIG = 200_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """ORDERS has small messages, headers, a delete and an erase; BIG has two blocks."""
    path = tmp_path / "data"
    with penstock.open(path, durability="os") as db:
        orders = db.stream("ORDERS", subjects=["orders.>"])
        orders.publish_many([(f"orders.{n % 5}", b"order %d!" % n, {"N": str(n)}) for n in range(1, 101)])
        orders.delete(7)
        orders.erase(9)
        big = db.stream("BIG", subjects=["big.*"])
        big.consumers.create(admit(make_config("one", ack_policy="explicit"), big.config, {}))
        big.consumers.flush()
        for n in range(1, 61):
            big.publish("big.a", b"message %03d " % n + bytes([n]) * BIG)
    return path


def check(spark: Any, root: Path, **options: Any) -> tuple[verify.Verified, list[dict[str, Any]]]:
    found = verify.run(spark, root, **options)
    return found, [row.asDict() for row in found.damage.collect()]


def flip(path: Path, at: int | bytes) -> int:
    data = bytearray(path.read_bytes())
    at = data.index(at) if isinstance(at, bytes) else at
    data[at] ^= 1
    path.write_bytes(data)
    return at


def test_a_sound_store_is_counted_as_the_single_process_counts_it(spark: Any, root: Path) -> None:
    calls: list[tuple[int, int]] = []
    found, damage = check(spark, root, on_progress=lambda done, total: calls.append((done, total)))
    assert found.is_ok and damage == []
    plain = {one.name: one for one in check_store(str(root)).streams}
    streams = found.check.streams
    assert [(one.name, one.blocks, one.messages, one.controls) for one in streams] == [
        (name, plain[name].blocks, plain[name].messages, plain[name].controls) for name in ("BIG", "ORDERS")
    ]
    assert sum(one.blocks for one in streams) == 3 and sum(one.messages for one in streams) == 160
    assert sum(one.bytes for one in streams) > 60 * BIG
    assert calls and calls[-1][0] == calls[-1][1] == found.tasks


def test_flipped_bits_are_named_by_file_offset_and_sequence(spark: Any, root: Path) -> None:
    """In a sealed block, in the last block, and among small records; in one job."""
    blocks = root / "$G" / "BIG" / "blocks"
    wanted = []
    for path, needle, stream, seq in (
        (blocks / "000001.blk", b"message 020", "BIG", 20),
        (blocks / "000002.blk", b"message 058", "BIG", 58),
        (root / "$G" / "ORDERS" / "blocks" / "000001.blk", b"order 33!", "ORDERS", 33),
    ):
        wanted.append((stream, str(path), flip(path, needle), seq))
    found, damage = check(spark, root)
    assert not found.is_ok
    assert [(row["stream"], row["path"], row["first_seq"], row["last_seq"], row["messages"]) for row in damage] == [
        (stream, path, seq, seq, 1) for stream, path, _, seq in wanted
    ]
    for row, (_, _, at, _) in zip(damage, wanted, strict=True):
        assert row["offset"] <= at < row["offset"] + row["size"] and not row["known"]
        assert row["block"] == int(os.path.basename(row["path"])[:6])


def test_every_other_checksum_is_looked_at(spark: Any, root: Path, tmp_path: Path) -> None:
    places = [
        ("blocks/000001.blk", 20), ("blocks/000002.blk", 4096 + 30), ("blocks/000001.sum", 600), ("CHECKPOINT", 50),
        ("HEAD", 40), ("HEAD", 2048 + 40), ("config.json", 30), ("BATCHES", 3),
        ("consumers/000001.log", 8300),
    ]  # fmt: skip
    paths = StreamPaths(str(root / "$G" / "BIG"))
    write_checked(Disk(), paths.batches, {"query": {"batch": 1, "first_seq": 1, "last_seq": 2}})
    for name, at in places:
        flip(root / "$G" / "BIG" / name, at)
    found, damage = check(spark, root, streams=["BIG"])
    assert not found.is_ok
    said = sorted({os.path.relpath(row["path"], root / "$G" / "BIG") for row in damage})
    assert said == sorted({name for name, _ in places})
    assert len(damage) == len(places)


def test_a_block_without_any_header_costs_what_it_held(spark: Any, root: Path) -> None:
    blocks = root / "$G" / "BIG" / "blocks"
    for name, at in (("000001.blk", 20), ("000001.blk", 4096 + 30), ("000001.sum", 600)):
        flip(blocks / name, at)
    found, damage = check(spark, root, streams=["BIG"])
    assert not found.is_ok
    by_path = {row["path"]: (row["first_seq"], row["last_seq"], row["messages"]) for row in damage}
    assert by_path == {str(blocks / "000001.blk"): (1, 41, 41), str(blocks / "000001.sum"): (None, None, 0)}


def test_damage_that_a_repair_has_recorded_is_known(spark: Any, root: Path) -> None:
    from penstock.cli import main

    flip(root / "$G" / "BIG" / "blocks" / "000001.blk", b"message 020")
    assert main(["repair", str(root)]) in (0, 1)
    found, damage = check(spark, root)
    assert found.is_ok
    assert all(row["known"] for row in damage)


def test_all_kinds_of_damage_are_what_the_single_process_finds(spark: Any, root: Path) -> None:
    """In the same words; tests/check/test_both_sides.py compares each kind alone."""
    stream = root / "$G" / "BIG"
    flip(stream / "blocks" / "000001.blk", b"message 020")
    for name, at in (("blocks/000002.blk", 20), ("CHECKPOINT", 50), ("HEAD", 40), ("config.json", 30)):
        flip(stream / name, at)
    (stream / "DELETES").write_bytes(b"nonsense")
    (root / "$G" / "ORDERS" / "blocks" / "000001.blk").unlink()
    found, damage = check(spark, root, max_bytes=1)
    plain = check_store(str(root))
    for one, other in zip(found.check.streams, plain.streams, strict=True):
        assert one.problems == other.problems and sorted(one.notes) == sorted(other.notes)
        assert (one.blocks, one.messages, one.lost) == (other.blocks, other.messages, other.lost)
    assert [row["reason"] for row in damage] == [one.text for one in plain.damage]
    assert len(damage) >= 7


def test_missing_and_cut_blocks(spark: Any, root: Path) -> None:
    blocks = root / "$G" / "BIG" / "blocks"
    whole = (blocks / "000001.blk").read_bytes()
    (blocks / "000001.blk").write_bytes(whole[:1_000_000])
    found, damage = check(spark, root, streams=["BIG"])
    assert not found.is_ok
    assert [(row["first_seq"], row["last_seq"]) for row in damage if "ends early" in row["reason"]] == [(5, 41)]
    (blocks / "000001.blk").unlink()
    (blocks / "000001.sum").unlink()
    found, damage = check(spark, root, streams=["BIG"])
    assert not found.is_ok
    assert {(row["first_seq"], row["last_seq"]) for row in damage} == {(1, 41)}


def test_what_is_no_store_is_said_before_spark_begins(spark: Any, root: Path, tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        verify.run(spark, tmp_path / "nothing")
    with pytest.raises(StreamNotFound, match="BIG, ORDERS"):
        verify.run(spark, root, streams=["OTHER"])


def test_a_store_without_streams(spark: Any, tmp_path: Path) -> None:
    penstock.open(tmp_path / "empty").close()
    found, damage = check(spark, tmp_path / "empty")
    assert found.is_ok and damage == [] and found.check.streams == []


def test_beside_a_writer_nothing_beyond_head_counts(spark: Any, root: Path) -> None:
    with penstock.open(root, durability="os") as db:
        stream = db.stream("ORDERS")
        stream.publish("orders.1", b"later")
        found, damage = check(spark, root, streams=["ORDERS"])
        assert found.is_ok and damage == []
        assert sum(one.messages for one in found.check.streams) == 101
