"""After a rollback nothing counts as written that is not on disk: the next commit writes it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import StoreError
from penstock.store.consumer_log.consumer_log import ConsumerLog
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.store.open.report import Report
from penstock.store.write.batch import Batch
from penstock.store.write.committer import Committer
from penstock.testing import CrashDisk

LIMITS = Limits(block_size=4 << 20)
LARGE = bytes(150_000)


def open_store(root: Path, durability: str, disk: CrashDisk | None = None) -> FileStore:
    return FileStore(root / "s", bytes(16), limits=LIMITS, durability=durability, disk=disk)


@pytest.fixture
def committer() -> Iterator[Committer]:
    made = Committer()
    yield made
    made.stop()


def test_lazy_keeps_what_was_appended_before_an_append_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path, "lazy")
    store.append(Batch.of([("a", LARGE)] * 10))
    store.engine.write_out()
    store.append(Batch.of([("a", LARGE)] * 10))

    def fail(*_: object) -> None:
        raise OSError(errno.ENOMEM, "no memory for a block")

    with monkeypatch.context() as patch:
        patch.setattr(store, "new_block", fail)
        with pytest.raises((OSError, StoreError)):
            store.append(Batch.of([("a", LARGE)] * 30))
    last = store.state().last_seq
    store.stop()
    again = open_store(tmp_path, "lazy")
    assert [message.seq for message in again.read()] == list(range(1, last + 1))
    again.stop()


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_a_stream_whose_first_commit_was_rolled_back_goes_on(tmp_path: Path, durability: str) -> None:
    disk = CrashDisk(tmp_path)
    store = open_store(tmp_path, durability, disk)
    disk.fail_at(1, errno.ENOSPC, kinds="pwrite")
    with pytest.raises(StoreError):
        store.append(Batch.of([("a", LARGE)] * 20))
        store.commit()
    disk.clear_faults()
    store.append(Batch.of([("a", b"small")] * 3))
    store.sync()
    store.stop()
    again = open_store(tmp_path, durability)
    assert [message.data for message in again.read()] == [b"small"] * 3
    again.stop()


def test_a_consumer_log_whose_file_failed_begins_another(tmp_path: Path, committer: Committer) -> None:
    disk = CrashDisk(tmp_path)
    folder = tmp_path / "s" / "consumers"
    os.mkdir(tmp_path / "s")
    log = ConsumerLog(disk, str(folder), bytes(16), "os", committer, Report())
    log.fold([(1, b"meta", bytes(300_000))])
    log.wait()
    disk.fail_at(1, errno.ENOSPC, kinds="pwrite")
    log.put(1, b"meta", bytes(1000))
    with pytest.raises((OSError, StoreError)):
        log.wait()
    disk.clear_faults()
    log.retry()
    log.fold([(1, b"meta", bytes(1000))])
    log.close()
    assert [path.stat().st_size > 2000 for path in sorted(folder.iterdir())][-1]
