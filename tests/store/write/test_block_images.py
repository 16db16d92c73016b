"""Block images: the memory in which a block is filled is reused for the next block as soon as the file has
its bytes.
"""

from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.errors import StoreError
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.store.write.batch import Batch
from penstock.store.write.engine_blocks import drop_images
from penstock.testing import CrashDisk

BATCH = [("a", bytes([n]) * 60_000) for n in range(40)]


def open_store(root: Path, durability: str, disk: CrashDisk | None = None) -> FileStore:
    return FileStore(root / "s", bytes(16), limits=Limits(block_size=256 << 10), durability=durability, disk=disk)


@pytest.mark.parametrize("durability", ["os", "lazy"])
def test_a_sealed_block_that_is_written_needs_no_image(tmp_path: Path, durability: str) -> None:
    """With `lazy`, all blocks of a second once kept their images until the background sync: a gigabyte of
    fresh memory.
    """
    store = open_store(tmp_path, durability)
    store.append(Batch.of(BATCH))
    store.engine.write_out()
    assert drop_images(store.engine) == 0
    assert [message.data for message in store.read()] == [data for _, data in BATCH]
    store.stop()


def test_what_is_not_written_keeps_its_image(tmp_path: Path) -> None:
    store = open_store(tmp_path, "lazy")
    store.append(Batch.of(BATCH))
    assert drop_images(store.engine) > 5
    assert [message.data for message in store.read()] == [data for _, data in BATCH]
    store.stop()


@pytest.mark.parametrize("durability", ["os", "lazy"])
def test_a_sync_that_fails_is_made_good_without_the_images(tmp_path: Path, durability: str) -> None:
    disk = CrashDisk(tmp_path)
    store = open_store(tmp_path, durability, disk)
    store.append(Batch.of(BATCH))
    store.engine.write_out()
    assert drop_images(store.engine) == 0
    disk.fail_at(1, errno.EIO, kinds="sync_file")
    with pytest.raises(StoreError, match="EIO"):
        store.sync()
    disk.clear_faults()
    store.retry()
    store.sync()
    store.stop()
    again = open_store(tmp_path, durability)
    assert [message.data for message in again.read()] == [data for _, data in BATCH]
    again.stop()


def test_a_block_that_somebody_is_at_keeps_its_image(tmp_path: Path) -> None:
    """A thread that walks over the block may be about to write it again from the image, because a concurrent sync
    failed.
    """
    disk = CrashDisk(tmp_path)
    store = open_store(tmp_path, "os", disk)
    store.append(Batch.of(BATCH))
    store.engine.write_out()
    with ThreadPoolExecutor(1) as pool, disk.holding("sync_file"):
        under_way = pool.submit(store.sync)
        disk.wait_held()
        kept = drop_images(store.engine)
        disk.release()
        under_way.result()
    assert kept == 1 and drop_images(store.engine) == 0
    store.stop()
