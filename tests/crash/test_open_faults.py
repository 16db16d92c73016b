"""A disk that fails while a crashed store is opened: every n-th call, once or from there on; then it works again.

What was acknowledged is readable as soon as reads work; a disk that only refuses writes does not prevent an open;
writing resumes by itself. `N=` sets the opens in all (default 3,000).
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from penstock.errors import StoreError, WriteFailed
from penstock.store.file_store import FileStore
from penstock.testing import READ_KINDS, SPACE_KINDS, SYNC_KINDS, CrashDisk, CrashImage, crash_images
from support.crash_cases import (
    DURABILITIES,
    SCENARIOS,
    Driver,
    Window,
    booted,
    campaign_size,
    check_goes_on,
    check_window,
    chunk_seed,
    contents,
    open_store,
    opened,
    window_at,
)
from support.crash_recording import explain, record

pytestmark = pytest.mark.campaign
CASES = [(name, durability) for name in SCENARIOS for durability in DURABILITIES]
FAULTS: dict[str, tuple[int, frozenset[str] | None, bool]] = {  # errno, kinds, short
    "full": (errno.ENOSPC, SPACE_KINDS, False),
    "short": (errno.ENOSPC, frozenset({"pwrite"}), True),
    "read-only": (errno.EROFS, SPACE_KINDS | {"unlink_file", "remove_dir"}, False),
    "sync": (errno.EIO, SYNC_KINDS, False),
    "broken": (errno.EIO, None, False),
    "unreadable": (errno.EIO, READ_KINDS, False),
}
OPENS = campaign_size(3_000)
IMAGES = max(2, OPENS // len(CASES) // 10)


@pytest.mark.parametrize(("name", "durability"), CASES)
def test_a_disk_that_fails_at_an_open_costs_nothing(scratch: Path, name: str, durability: str) -> None:
    seed = chunk_seed("open faults", name, durability)
    driver, disk = record(scratch, name, durability, seed)
    (scratch / "images").mkdir()
    number = seed
    for image in crash_images(disk, scratch / "images", count=IMAGES, seed=seed):
        for _ in range(10):
            number += 7
            fault = list(FAULTS)[number % len(FAULTS)]
            shutil.copytree(image.path, scratch / "run2")
            try:
                Attempt(driver, image, scratch / "run2" / "stream", fault, number).run()
            except BaseException as error:
                explain(error, name, durability, seed, driver, image)
                error.add_note(f"fault {fault}, attempt {number}")
                raise
            shutil.rmtree(scratch / "run2")
        image.remove()


class Attempt:
    """One open of one image with one fault."""

    def __init__(self, driver: Driver, image: CrashImage, path: Path, fault: str, number: int) -> None:
        self.path, self.durability, self.limits = path, driver.durability, driver.limits
        self.boots = int(image.is_power_cut)
        self.window: Window = window_at(driver.states, image.mark, driver.durability, image.is_power_cut)
        self.code, self.kinds, self.is_short = FAULTS[fault]
        self.nth = number // len(FAULTS) % 12 + 1
        self.is_persistent = number // 5 % 3 > 0
        self.ending = number % 3
        self.can_read = self.kinds is not None and not self.kinds & READ_KINDS
        self.was_cutting = (path / "TRUNCATE").exists()

    def run(self) -> None:
        disk = CrashDisk(self.path.parent)
        disk.fail_at(self.nth, self.code, kinds=self.kinds, persistent=self.is_persistent, short=self.is_short)
        with booted(self.boots):
            try:
                store = open_store(self.path, self.durability, self.limits, disk)
            except (OSError, StoreError) as error:
                assert disk.fired, repr(error)
                assert not self.can_read or self.was_cutting or not self.path.exists(), f"it can be read: {error!r}"
            else:
                if self.use(store, disk):
                    return
        disk.clear_faults()
        with opened(self.path, self.durability, self.limits, self.boots) as store:
            live = check_window(store, self.window)
            check_goes_on(self.path, self.durability, self.limits, store, live)

    def use(self, store: FileStore, disk: CrashDisk) -> bool:
        """The store is open, on a disk that may still fail; returns whether the store was written to afterwards."""
        try:
            self.read(store)
            disk.clear_faults()
            if self.ending == 1:
                if store.has_deferred_writes:
                    store.retry()
                check_goes_on(self.path, self.durability, self.limits, store, check_window(store, self.window))
            elif self.ending == 2:
                store.stop()
            return self.ending == 1
        finally:
            store.abandon()  # a kill, unless `ending` has stopped it

    def read(self, store: FileStore) -> dict[int, tuple[str, bytes | None, bytes]]:
        if store.has_deferred_writes:
            assert any(one.kind == "put off" for one in store.report.findings)
        try:
            live = check_window(store, self.window)
        except (OSError, StoreError) as error:
            assert not self.can_read, f"it can be read: {error!r}"
            return {}
        if store.has_deferred_writes and self.is_persistent:
            with pytest.raises(WriteFailed):
                store.store("refused", b"")
        return live


def test_what_is_put_off_is_told_once_and_done_by_the_next_write(scratch: Path) -> None:
    driver = Driver(scratch / "stream", "disk", SCENARIOS["plain"][1], 1)
    driver.open()
    for _ in range(9):
        driver.append(4)
    shutil.copytree(driver.path, scratch / "killed" / "stream")
    driver.close()
    disk = CrashDisk(scratch / "killed")
    disk.fail_at(1, errno.ENOSPC, kinds=SPACE_KINDS, persistent=True)
    store = open_store(scratch / "killed" / "stream", "disk", driver.limits, disk)
    assert store.has_deferred_writes and contents(store) == driver.live
    (told,) = [str(one) for one in store.report.findings if one.kind == "put off"]
    assert "No space left on device" in told and "HEAD" in told
    for _ in range(3):
        with pytest.raises(WriteFailed, match="No space left"):
            store.store("refused", b"")
    store.commit()
    store.sync()
    assert store.has_deferred_writes, "a commit of nothing changes nothing"
    disk.clear_faults()
    assert store.store("taken", b"") == driver.last_seq + 1
    assert not store.has_deferred_writes
    assert len([one for one in store.report.findings if one.kind == "put off"]) == 1
    store.stop()
