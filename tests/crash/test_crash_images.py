"""Crash images: cut after any disk call, with un-synced changes dropped, reordered and torn; then open what is left.

`N=` sets the states in all (default 1,000), `SEED=` another campaign. A failure names scenario, durability, seed, cut
and mode: `crash_image(disk, path, cut=…, mode=…, seed=…)` makes the same image again. (In `lazy` the background
thread writes when it likes: run the scenario again until the cut fits.)
"""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.testing import CrashDisk, CrashImage, crash_images
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
STATES = campaign_size(1_000)
TWICE_PER_CASE = max(1, STATES // 5 // 4 // len(CASES))  # images whose recovery is cut again, four times each
PER_CASE = max(1, -(-STATES // len(CASES)) - 4 * TWICE_PER_CASE)


def check_epoch(driver: Driver, mark: int | None, epoch: int) -> None:
    """An unclean stop raises the epoch."""
    states, acked = driver.states, mark or 0
    after = states[min(acked + 1, len(states) - 1)]
    assert epoch >= states[acked].epoch
    if states[acked].is_open and after.is_open:
        assert epoch > states[acked].epoch, "the epoch tells of the unclean stop"


def check_image(driver: Driver, image: CrashImage) -> None:
    window = window_at(driver.states, image.mark, driver.durability, image.is_power_cut)
    check_erased(driver, image)
    with opened(image.path / "stream", driver.durability, driver.limits, image.is_power_cut) as store:
        live = check_window(store, window)
        check_epoch(driver, image.mark, store.epoch)
        check_goes_on(image.path / "stream", driver.durability, driver.limits, store, live)


def check_erased(driver: Driver, image: CrashImage) -> None:
    """No file contains what was erased and acknowledged."""
    gone = [
        one for step, erased in driver.erased.items() if step <= (image.mark or 0) for one in erased if len(one) > 12
    ]
    for path in image.path.rglob("*") if gone else ():
        data = path.read_bytes() if path.is_file() else b""
        assert not any(one in data for one in gone), f"an erased payload is still in {path.name}"


@pytest.mark.parametrize(("name", "durability"), CASES)
def test_a_crash_keeps_what_was_acknowledged(scratch: Path, name: str, durability: str) -> None:
    """Nothing acknowledged is lost or wrong, nothing deleted comes back, sequences continue, the next open works."""
    seed = chunk_seed("images", name, durability)
    driver, disk = record(scratch, name, durability, seed)
    for image in crash_images(disk, _made(scratch / "images"), count=PER_CASE, seed=seed):
        try:
            check_image(driver, image)
        except BaseException as error:
            explain(error, name, durability, seed, driver, image)
            raise
        image.remove()


@pytest.mark.parametrize(("name", "durability"), CASES)
def test_a_crash_of_the_recovery_keeps_it_too(scratch: Path, name: str, durability: str) -> None:
    """Crash again during the recovery; what the recovered store served must survive a power cut."""
    seed = chunk_seed("twice", name, durability)
    driver, disk = record(scratch, name, durability, seed)
    for number, image in enumerate(crash_images(disk, _made(scratch / "images"), count=TWICE_PER_CASE, seed=seed)):
        window = window_at(driver.states, image.mark, durability, image.is_power_cut)
        second = CrashDisk(image.path)
        try:
            with booted(image.is_power_cut):
                store = open_store(image.path / "stream", durability, driver.limits, second)
            try:
                served = contents(store)
                second.mark((served, store.epoch))
            finally:
                store.abandon()
        except BaseException as error:
            explain(error, name, durability, seed, driver, image)
            raise
        for again in crash_images(second, _made(scratch / f"twice{number}"), count=4, seed=seed + number):
            try:
                with opened(
                    again.path / "stream", durability, driver.limits, image.is_power_cut + again.is_power_cut
                ) as store:
                    live = check_window(store, window)
                    check_epoch(driver, image.mark, store.epoch)
                    if again.mark is not None:
                        assert live == again.mark[0], "what was served once is served again"
                        assert store.epoch >= again.mark[1]
                    check_goes_on(again.path / "stream", durability, driver.limits, store, live)
            except BaseException as error:
                explain(error, name, durability, seed, driver, image, again)
                raise
            again.remove()
        image.remove()


def _made(path: Path) -> Path:
    path.mkdir()
    return path


def test_the_window_of_a_lazy_kill_begins_at_the_last_flush(scratch: Path) -> None:
    """The check of the campaign itself: it must not demand less than the durability promises."""
    driver = Driver(scratch / "stream", "lazy", SCENARIOS["plain"][1], 1)
    driver.open()
    driver.append(1)
    driver.flush()
    driver.append(1)
    driver.close()
    states = driver.states
    assert set(window_at(states, 4, "lazy", False).must) == {1}
    assert set(window_at(states, 4, "lazy", True).must) == set()
    assert set(window_at(states, 4, "os", False).states[0].live) == {1}
    assert set(Window([states[4]]).must) == {1, 2}
