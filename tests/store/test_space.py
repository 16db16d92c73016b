"""Space on the disk: a writer that fills its blocks has the next one set aside, and gives back what it did not use."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.kernel.batch import Batch
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits

MIB = 1 << 20


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


def _taken(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_dead_blocks_that_wait_for_a_sync_are_not_looked_at_with_every_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publish once cost more with every block that waited, which a background sync sets free once a second."""
    looks: list[int] = []
    retire = FileStore._retire
    monkeypatch.setattr(FileStore, "_retire", lambda store: (looks.append(1), retire(store))[1])
    limits = Limits(block_size=20_000, max_msgs_per_subject=1)
    store = FileStore(tmp_path / "s", bytes(16), limits=limits, durability="os")
    for _ in range(2000):
        store.append(Batch.of([("a", bytes(200))]))
        store.commit()
    blocks = 2000 * 220 // 20_000
    assert len(looks) <= 3 * blocks
    store.stop()
