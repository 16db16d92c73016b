"""Disk space: a writer that fills its blocks preallocates the next one, and releases what it did not use."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.store.deletes.block_removal import BlockRemoval
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.store.read.snapshot import Snapshot
from penstock.store.write.batch import Batch
from penstock.store.write.committer import Committer
from penstock.store.write.engine_blocks import dead_blocks
from penstock.testing import CrashDisk

KIB, MIB = 1 << 10, 1 << 20


def test_a_block_of_a_busy_writer_is_set_aside_and_the_rest_given_back(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "s", bytes(16), limits=Limits(block_size=2 * MIB), durability="disk")
    for _ in range(5):
        store.append(Batch.of([("a", bytes(MIB - 1000))]))
        store.commit()
    first, *_, active = sorted((tmp_path / "s" / "blocks").glob("*.blk"))
    if _taken(active) <= active.stat().st_size + MIB // 2:
        pytest.skip("this file system sets no space aside")
    assert _taken(first) <= first.stat().st_size + MIB // 4
    store.stop()
    assert _taken(active) <= active.stat().st_size + MIB // 4
    again = FileStore(tmp_path / "s", bytes(16), limits=Limits(block_size=2 * MIB))
    assert [again.load(seq).seq for seq in range(1, 6)] == [1, 2, 3, 4, 5]
    again.stop()


def test_a_store_that_is_written_to_now_and_then_takes_what_it_needs(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "s", bytes(16), limits=Limits(block_size=2 * MIB), durability="disk")
    store.append(Batch.of([("a", b"x")]))
    store.commit()
    assert sum(_taken(path) for path in (tmp_path / "s" / "blocks").iterdir()) < MIB // 4
    store.stop()


def test_zeros_stand_ahead_of_small_commits_and_are_cut_off_again(tmp_path: Path) -> None:
    """The sync of a commit that does not make the file longer is cheaper; readers take the zeros for the end of the
    block.
    """
    root, limits = tmp_path / "s", Limits(block_size=256 * KIB)
    store = FileStore(root, bytes(16), limits=limits, durability="disk")
    lengths = set()
    for n in range(200):
        store.append(Batch.of([("a", b"%d" % n)]))
        store.commit()
        (block,) = (root / "blocks").glob("*.blk")
        if n >= 4:  # the first few are as long as their content
            lengths.add(block.stat().st_size)
        size = store.query.disk_bytes()
        assert 0 <= block.stat().st_size - size <= 16 * KIB and not any(block.read_bytes()[size:])
    assert len(lengths) <= 2
    beside = Snapshot(root, bytes(16))
    assert [one.data for one in beside.read()] == [b"%d" % n for n in range(200)]
    (root / "HEAD").rename(root / "HEAD.away")  # a file without a summary is read to its end
    assert len(list(Snapshot(root, bytes(16)).read())) == 200
    (root / "HEAD.away").rename(root / "HEAD")
    store.abandon()  # as after a crash: the zeros are still there
    again = FileStore(root, bytes(16), limits=limits, durability="disk")
    assert block.stat().st_size == again.query.disk_bytes() == size and not again.report.findings
    for _ in range(200, 2000):  # into the next block
        again.append(Batch.of([("a", bytes(300))]))
        again.commit()
    *sealed, active = sorted((root / "blocks").glob("*.blk"))
    assert len(sealed) > 1 and not any(path.read_bytes().endswith(bytes(8)) for path in sealed)
    again.stop()
    assert not active.read_bytes().endswith(bytes(8))
    last = FileStore(root, bytes(16), limits=limits)
    assert [one.seq for one in last.read()] == list(range(1, 2001)) and not last.report.findings
    last.stop()


def test_zeros_stand_ahead_up_to_the_end_of_a_block(tmp_path: Path) -> None:
    blocks = tmp_path / "s" / "blocks"
    store = FileStore(tmp_path / "s", bytes(16), limits=Limits(block_size=80 * KIB), durability="disk")
    grown: dict[str, list[int]] = {}  # the file size of each block while it was active
    for n in range(300):
        store.append(Batch.of([("a", b"%0900d" % n)]))
        store.commit()
        block = max(blocks.glob("*.blk"))
        lengths = grown.setdefault(block.name, [])
        if block.stat().st_size not in lengths:
            lengths.append(block.stat().st_size)
    assert len(grown) > 3
    assert all(len(lengths) < 12 for lengths in grown.values())  # of about eighty commits each
    assert [one.data for one in store.read()] == [b"%0900d" % n for n in range(300)]
    store.stop()


def test_the_space_of_a_sealed_block_is_given_back_without_the_owner(tmp_path: Path) -> None:
    """The appending thread does not wait for the release, and nobody removes the block before it is done."""
    disk, committer = CrashDisk(tmp_path), Committer()
    store = FileStore(
        tmp_path / "s",
        bytes(16),
        limits=Limits(block_size=64 * KIB, max_msgs=1),
        durability="disk",
        disk=disk,
        committer=committer,
    )
    with disk.holding("truncate_file"):
        while disk.calls["truncate_file"] == 0:
            store.append(Batch.of([("a", bytes(900))]))
            position = store.submit(begins=True)
            while store.committed_position < position and disk.calls["truncate_file"] == 0:
                pass
        sealed = store.query.blocks()[0]
        assert sealed["is_sealed"] and sealed["live"] == 0
        store.append(Batch.of([("a", b"x")]))
        last = store.submit(begins=True)
        assert not dead_blocks(store.engine)
    while store.committed_position < last:
        pass
    assert dead_blocks(store.engine) == [sealed["id"]]
    store.stop()
    committer.stop()


def _taken(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_dead_blocks_that_wait_for_a_sync_are_not_looked_at_with_every_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead blocks are removed by the background sync, once a second. A publish once became slower with every block that
    waited for it.
    """
    looks: list[int] = []
    plan = BlockRemoval.plan
    monkeypatch.setattr(BlockRemoval, "plan", lambda removal: (looks.append(1), plan(removal))[1])
    limits = Limits(block_size=20_000, max_msgs_per_subject=1)
    store = FileStore(tmp_path / "s", bytes(16), limits=limits, durability="os")
    for _ in range(2000):
        store.append(Batch.of([("a", bytes(200))]))
        store.commit()
    blocks = 2000 * 220 // 20_000
    assert len(looks) <= 3 * blocks
    store.stop()
