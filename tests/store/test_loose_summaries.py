"""Summaries are synced before a checkpoint lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.kernel.batch import Batch
from penstock.kernel.disk import Disk
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.store.loose_summaries import LooseSummaries


class Watched(Disk):
    """Notes what is synced; the first one is told to `on_sync`."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.on_sync = lambda: None
        self._paths: dict[int, str] = {}

    def open(self, path: str, mode: str = "r") -> int:
        fd = super().open(path, mode)
        self._paths[fd] = path
        return fd

    def sync(self, fd: int) -> None:
        self.synced.append(Path(self._paths.get(fd, "HEAD")).name)  # the one file that is opened another way
        on_sync, self.on_sync = self.on_sync, lambda: None
        on_sync()
        super().sync(fd)


@pytest.fixture
def disk() -> Watched:
    return Watched()


@pytest.fixture
def loose(tmp_path: Path, disk: Watched) -> LooseSummaries:
    found = LooseSummaries(disk, str(tmp_path))
    for name in ("2.sum", "1.sum"):
        (tmp_path / name).write_bytes(b"x")
        found.add(str(tmp_path / name))
    return found


def test_each_is_synced_once(loose: LooseSummaries, disk: Watched) -> None:
    loose.sync()
    loose.sync()
    assert disk.synced == ["1.sum", "2.sum"] and len(loose) == 0


def test_one_that_is_written_again_meanwhile_stays_loose(tmp_path: Path, loose: LooseSummaries, disk: Watched) -> None:
    disk.on_sync = lambda: loose.add(str(tmp_path / "1.sum"))
    loose.sync()
    assert len(loose) == 1
    loose.sync()
    assert disk.synced == ["1.sum", "2.sum", "1.sum"] and len(loose) == 0


def test_two_at_once(loose: LooseSummaries, disk: Watched) -> None:
    disk.on_sync = loose.sync
    loose.sync()
    assert len(loose) == 0


def test_one_of_a_block_that_is_gone(tmp_path: Path, loose: LooseSummaries, disk: Watched) -> None:
    (tmp_path / "1.sum").unlink()
    loose.sync()
    assert disk.synced == ["2.sum"] and len(loose) == 0


def test_one_that_cannot_be_synced_is_removed(tmp_path: Path, loose: LooseSummaries, disk: Watched) -> None:
    """The system tells of a failed sync once: the next would take the file for good."""

    def fail() -> None:
        raise OSError(5, "no")

    disk.on_sync = fail
    with pytest.raises(OSError, match="no"):
        loose.sync()
    assert not (tmp_path / "1.sum").exists()
    loose.sync()
    assert disk.synced == ["1.sum", "2.sum"] and len(loose) == 0


def test_a_store_tells_of_one_that_cannot_be_synced_and_opens_without_it(tmp_path: Path, disk: Watched) -> None:
    def fail() -> None:
        raise OSError(5, "no")

    limits = Limits(block_size=1 << 20)
    store = FileStore(tmp_path / "s", bytes(16), limits=limits, durability="disk", disk=disk)
    for _ in range(15):
        store.append(Batch.of([("a", bytes(200_000))]))
    store.commit()
    disk.on_sync = fail
    store.prepare_checkpoint()
    assert [finding.kind for finding in store.report.findings] == ["clean-up"]
    store.write_checkpoint()
    store.stop()
    again = FileStore(tmp_path / "s", bytes(16), limits=limits, durability="disk")
    assert [message.seq for message in again.read()] == list(range(1, 16))
    again.stop()
