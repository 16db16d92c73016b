"""Summaries are written by commit threads, and synced before a checkpoint lists them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.base.disk import Disk
from penstock.store.file_store import FileStore
from penstock.store.index.pending_summaries import PENDING_MAX, PendingSummaries
from penstock.store.index.summary import OFFSETS
from penstock.store.limits import Limits
from penstock.store.write.batch import Batch
from penstock.store.write.committer import Committer
from penstock.testing import CrashDisk

LIMITS = Limits(block_size=4096)


class Watched(Disk):
    """Records what is synced; calls `on_sync` at the first sync."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.on_sync = lambda: None
        self._paths: dict[int, str] = {}

    def open(self, path: str, mode: str = "r") -> int:
        fd = super().open(path, mode)
        self._paths[fd] = path
        return fd

    def sync(self, fd: int) -> None:
        self.synced.append(Path(self._paths.get(fd, "HEAD")).name)  # the one file that is opened in another way
        on_sync, self.on_sync = self.on_sync, lambda: None
        on_sync()
        super().sync(fd)


@pytest.fixture
def disk() -> Watched:
    return Watched()


@pytest.fixture
def loose(tmp_path: Path, disk: Watched) -> PendingSummaries:
    found = PendingSummaries(disk, str(tmp_path), Committer(), fail)
    for name in ("2.sum", "1.sum"):
        found.write(str(tmp_path / name), b"x")
    return found


def fail(path: str, error: OSError) -> None:
    raise AssertionError(path) from error


def refuse() -> None:
    raise OSError(errno.EIO, "no")


def test_each_is_synced_once(loose: PendingSummaries, disk: Watched) -> None:
    loose.sync()
    loose.sync()
    assert disk.synced == ["1.sum", "2.sum"] and len(loose) == 0


def test_one_that_is_written_again_meanwhile_stays_loose(
    tmp_path: Path, loose: PendingSummaries, disk: Watched
) -> None:
    disk.on_sync = lambda: loose.write(str(tmp_path / "1.sum"), b"y")
    loose.sync()
    assert len(loose) == 1
    loose.sync()
    assert disk.synced == ["1.sum", "2.sum", "1.sum"] and len(loose) == 0


def test_two_at_once(loose: PendingSummaries, disk: Watched) -> None:
    disk.on_sync = loose.sync
    loose.sync()
    assert len(loose) == 0


def test_one_of_a_block_that_is_gone(tmp_path: Path, loose: PendingSummaries, disk: Watched) -> None:
    (tmp_path / "1.sum").unlink()
    loose.sync()
    assert disk.synced == ["2.sum"] and len(loose) == 0


def test_one_that_cannot_be_synced_is_removed(tmp_path: Path, loose: PendingSummaries, disk: Watched) -> None:
    """The system reports a failed sync once: the next sync would succeed on a bad file."""
    disk.on_sync = refuse
    with pytest.raises(OSError, match="no"):
        loose.sync()
    assert not (tmp_path / "1.sum").exists()
    loose.sync()
    assert disk.synced == ["1.sum", "2.sum"] and len(loose) == 0


def test_a_store_tells_of_one_that_cannot_be_synced_and_opens_without_it(tmp_path: Path, disk: Watched) -> None:
    limits = Limits(block_size=1 << 20)
    store = FileStore(tmp_path / "s", bytes(16), limits=limits, durability="disk", disk=disk)
    for _ in range(15):
        store.append(Batch.of([("a", bytes(200_000))]))
    store.commit()
    disk.on_sync = refuse
    store.prepare_checkpoint()
    assert [finding.kind for finding in store.report.findings] == ["clean-up"]
    store.write_checkpoint()
    store.stop()
    again = FileStore(tmp_path / "s", bytes(16), limits=limits, durability="disk")
    assert [message.seq for message in again.read()] == list(range(1, 16))
    again.stop()


# Commit threads write them.


class Busy:
    """A store whose only commit thread is in a sync that does not end by itself."""

    def __init__(self, root: Path) -> None:
        self.disk = CrashDisk(root)
        self.root = root / "s"
        self.committer = Committer()
        self.store = FileStore(
            self.root, bytes(16), limits=LIMITS, durability="disk", disk=self.disk, committer=self.committer
        )
        self.disk.hold("sync_file")
        self.append()
        self.store.submit()  # starts the thread
        self.disk.wait_held()  # the thread does not look at what is appended now

    def append(self) -> None:
        self.store.append(Batch.of([("a", bytes(400))] * 100))  # ten blocks

    def fill(self) -> list[str]:
        """Seal more blocks; returns the names of the summaries that are not written yet."""
        before = self.store.files.next_block_id
        self.append()
        names = [f"{block_id:06}.sum" for block_id in range(before, self.store.files.next_block_id - 1)]
        missing = [name for name in names if not (self.root / "blocks" / name).exists()]
        assert len(missing) > 3, "the thread was not busy"
        self.disk.release()
        return missing

    def stop(self) -> None:
        self.disk.release()
        self.store.stop()
        self.committer.stop()


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Busy]:
    found = Busy(tmp_path)
    yield found
    found.stop()


def test_who_needs_rows_waits_for_their_summary(busy: Busy) -> None:
    for name in busy.fill():
        assert len(busy.store.files.load_section(int(name.split(".")[0]), OFFSETS, False)) % 4 == 0
        assert (busy.root / "blocks" / name).exists()
    assert not busy.store.report.findings, "the block was read instead"


def test_a_block_that_goes_leaves_no_summary(busy: Busy) -> None:
    missing = busy.fill()
    busy.store.purge()
    busy.store.sync()
    busy.store.after_commit()
    busy.stop()
    there = os.listdir(busy.root / "blocks")
    assert not set(missing) & set(there)
    assert {name.split(".")[0] for name in there if name.endswith(".sum")} <= {
        name.split(".")[0] for name in there if name.endswith(".blk")
    }


def test_a_stream_is_deleted_with_those_under_way(busy: Busy) -> None:
    busy.fill()
    busy.store.delete()
    assert not (busy.root / "blocks").exists()


def test_all_are_there_once_it_is_stopped(busy: Busy) -> None:
    missing = busy.fill()
    busy.stop()
    assert set(missing) <= set(os.listdir(busy.root / "blocks"))
    assert not [name for name in os.listdir(busy.root / "blocks") if name.endswith(".tmp")]


def test_a_mark_of_a_block_that_is_sealed_already_survives_a_kill(busy: Busy, tmp_path: Path) -> None:
    """The summary is written again with the mark: the older one would be valid, and would be used."""
    store = FileStore(tmp_path / "a", bytes(16), limits=LIMITS, durability="disk", committer=busy.committer)
    batch = Batch.of([("a", bytes(400), b"NATS/1.0\r\nNats-TTL: 1h\r\n\r\n")] * 12)  # beyond the end of a block
    for at in range(12):
        batch.mark(at, True, False, True)
    store.engine.append(batch, 0, 12, store.clock.now_ns())
    for at in range(12):
        store.note_id_and_expiry(batch.seq(at), store.engine.last_time, None, store.engine.last_time + 3600 * 10**9)
    store.commit()
    shutil.copytree(tmp_path / "a", tmp_path / "killed", ignore=shutil.ignore_patterns("*.tmp"))
    again = FileStore(tmp_path / "killed", bytes(16), limits=LIMITS, durability="disk")
    assert sorted(seq for seq, _ in again.wheel.entries()) == list(range(1, 13))
    again.stop()
    busy.disk.release()
    store.stop()


def test_not_more_than_a_few_wait(busy: Busy) -> None:
    busy.append()
    busy.append()
    assert len(busy.fill()) <= PENDING_MAX


@pytest.mark.parametrize("has_threads", [False, True])
def test_one_that_cannot_be_written_is_told_once(tmp_path: Path, disk: Watched, has_threads: bool) -> None:
    committer = Committer()
    store = FileStore(tmp_path / "s", bytes(16), durability="os" if has_threads else "disk", committer=committer)
    told: list[tuple[str, int | None]] = []
    loose = PendingSummaries(disk, str(tmp_path), committer, lambda path, error: told.append((path, error.errno)))
    path = str(tmp_path / "missing" / "1.sum")
    loose.write(path, b"x")
    loose.finish()
    loose.sync()
    assert told == [(path, errno.ENOENT)] and len(loose) == 0
    store.stop()
    committer.stop()


def test_the_last_of_one_path_stays(tmp_path: Path, disk: Watched) -> None:
    committer = Committer()
    store = FileStore(tmp_path / "s", bytes(16), durability="os", committer=committer)
    loose = PendingSummaries(disk, str(tmp_path), committer, fail)
    for n in range(200):
        loose.write(str(tmp_path / "1.sum"), b"%d" % n)
        loose.write(str(tmp_path / "2.sum"), b"%d" % n)
    loose.finish()
    assert (tmp_path / "1.sum").read_bytes() == (tmp_path / "2.sum").read_bytes() == b"199"
    store.stop()
    committer.stop()


def test_a_store_goes_on_without_one_that_could_not_be_written(tmp_path: Path) -> None:
    disk = CrashDisk(tmp_path)
    store = FileStore(tmp_path / "s", bytes(16), limits=LIMITS, durability="disk", disk=disk)
    disk.fail_at(1, errno.ENOSPC, kinds="rename_file")
    store.append(Batch.of([("a", bytes(400))] * 100))
    store.commit()
    assert [(finding.kind, Path(finding.path).name) for finding in store.report.findings] == [("rebuilt", "000001.sum")]
    assert [message.seq for message in store.read()] == list(range(1, 101))
    store.stop()
    again = FileStore(tmp_path / "s", bytes(16), limits=LIMITS, durability="disk")
    assert [message.seq for message in again.read()] == list(range(1, 101))
    again.stop()
