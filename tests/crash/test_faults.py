"""Every n-th disk call fails: EIO, a full disk, a write cut short, a failed sync; once, or from there on.

By default a part of the calls is tried, spread over all of them; `N=0` tries every one until none fires, `N=k` every
k-th. A failure names scenario, durability, fault and n.
"""

from __future__ import annotations

import errno
import itertools
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from penstock.errors import CorruptBlock, StoreError, WriteFailed
from penstock.store.limits import Limits
from penstock.testing import READ_KINDS, SPACE_KINDS, SYNC_KINDS, CrashDisk
from support.crash_cases import (
    DURABILITIES,
    SYNCED,
    WRITTEN,
    Content,
    Driver,
    State,
    Window,
    campaign_size,
    check_counters,
    chunk_seed,
    contents,
    opened,
)

pytestmark = pytest.mark.campaign
STRIDE = campaign_size(9) or 1

FAULTS: dict[str, tuple[int, frozenset[str] | None, bool]] = {  # errno, kinds, short
    "eio": (errno.EIO, None, False),
    "enospc": (errno.ENOSPC, SPACE_KINDS, False),
    "short": (errno.ENOSPC, frozenset({"pwrite"}), True),
    "sync": (errno.EIO, SYNC_KINDS, False),
    "read": (errno.EIO, READ_KINDS, False),
}


def basic(d: Driver) -> list[Callable[[], None]]:
    return [
        d.append,
        lambda: d.append(3),
        lambda: d.append(4),
        d.remove,
        lambda: d.append(5),
        d.sync,
        d.reopen,
        d.append,
    ]


def limits(d: Driver) -> list[Callable[[], None]]:
    return [
        lambda: d.append(1, "rare.1"),
        *[lambda: d.append(3)] * 4,
        lambda: d.append(1, "rare.2"),
        *[lambda: d.append(4)] * 4,
    ]


def erases(d: Driver) -> list[Callable[[], None]]:
    return [lambda: d.append(5), d.erase, lambda: d.append(4), d.skip, d.erase, d.flush, d.append]


def truncates(d: Driver) -> list[Callable[[], None]]:
    return [*[lambda: d.append(4)] * 3, d.remove_many, d.truncate, d.append]


def checkpoints(d: Driver) -> list[Callable[[], None]]:
    return [
        lambda: d.append(5),
        d.checkpoint,
        d.append,
        d.reopen,
        lambda: d.append(3),
        d.remove_many,
        d.reopen,
        d.append,
    ]


def deletes(d: Driver) -> list[Callable[[], None]]:
    return [
        *[lambda: d.append(4)] * 3,
        d.remove_many,
        d.purge_subject,
        d.compact,
        d.append,
        d.purge,
        d.append,
        d.compact_beyond,
    ]


SCENARIOS: dict[str, tuple[Callable[[Driver], list[Callable[[], None]]], Limits]] = {
    "basic": (basic, Limits(block_size=500)),
    "limits": (limits, Limits(block_size=400, max_msgs_per_subject=1)),
    "erases": (erases, Limits(block_size=500)),
    "truncates": (truncates, Limits(block_size=500)),
    "checkpoints": (checkpoints, Limits(block_size=500)),
    "deletes": (deletes, Limits(block_size=500)),
}
# Steps of more than one commit: an error may leave the first of them done.
PARTIAL = {"erase", "truncate"}


@dataclass
class Attempt:
    """A driver whose steps may fail: after an error the visible contents are those from before.

    A restart may find the contents that failed steps would have led to, until a later step has succeeded.
    """

    driver: Driver
    disk: CrashDisk
    can_read: bool  # the fault does not affect reads

    def step(self, step: Callable[[], None]) -> None:
        d = self.driver
        if d.store is None or d.store.engine.is_closed:
            self.open()
        before = d.states[-1]
        d.aimed = None
        try:
            step()
        except (StoreError, OSError) as error:
            self.check_error(error)
            if d.aimed is not None:
                before = d.states[-1]  # `reopen` may have got as far as its stop
                d.states.append(
                    replace(d.aimed, what=f"failed {d.aimed.what}", safety=min(d.aimed.safety, before.safety))
                )
            if d.store is None or d.store.engine.is_closed:
                self.open()
            else:
                self.settle(before)
        self.look()

    def check_error(self, error: BaseException) -> None:
        """It is one of our errors, and says what failed and where."""
        assert self.disk.fired, f"no fault has fired: {error!r}"
        if isinstance(error, WriteFailed):
            assert error.op and error.path and error.errno in (errno.EIO, errno.ENOSPC), repr(error)
        elif isinstance(error, OSError):
            assert error.errno in (errno.EIO, errno.ENOSPC), repr(error)
            assert error.filename, f"the error names no file: {error!r}"
        else:
            assert isinstance(error, CorruptBlock), repr(error)

    def settle(self, before: State) -> None:
        """A step failed while the store stays open: continue from the visible contents, if they are permitted."""
        d = self.driver
        assert d.store is not None
        if not self.can_read:
            self.disk.clear_faults()
        failed = d.states[-1]
        live = contents(d.store)
        if failed.what.split()[1] in PARTIAL:
            assert live in (before.live, failed.live), f"a {failed.what} left something between"
        else:
            assert live == before.live, f"a {failed.what} changed what is visible"
        last_seq = d.store.fast_state().last_seq
        assert last_seq >= before.last_seq
        d.states.append(State(f"failed {failed.what}", live, last_seq, d.store.epoch, before.safety, True))

    def look(self) -> None:
        """Everything acknowledged is readable; a read that fails raises an error."""
        d = self.driver
        if d.store is None or d.store.engine.is_closed:
            return
        try:
            live = contents(d.store)
        except (OSError, StoreError) as error:
            assert not self.can_read, f"reads are not at fault: {error!r}"
            self.check_error(error)
            return
        assert live == d.live, f"after {d.states[-1].what}: {sorted(live.items() ^ d.live.items())[:3]}"

    def open(self) -> None:
        """Open again; if that fails, remove the fault, and then it works."""
        d = self.driver
        if d.store is not None:
            d.store.abandon()
            d.store = None
        window = self.window()
        try:
            d.open()
        except (StoreError, OSError) as error:
            self.check_error(error)
            self.disk.clear_faults()
            d.open()
        self.take_over(window)

    def window(self) -> Window:
        """What a restart may find: `lazy` goes back to what was written; failed steps may or may not have happened."""
        states = self.driver.states
        start = len(states) - 1
        while start and (states[start].safety < WRITTEN or states[start].what.startswith("failed")):
            start -= 1
        return Window(states[start:])

    def take_over(self, window: Window) -> None:
        """Continue the model from the store's contents, if they are permitted."""
        d = self.driver
        assert d.store is not None
        try:
            live = contents(d.store)
        except (OSError, StoreError) as error:
            self.check_error(error)
            self.disk.clear_faults()
            live = contents(d.store)
        check_found(live, window)
        last_seq = d.store.fast_state().last_seq
        assert last_seq >= window.last_seq
        d.states.append(State("open again", live, last_seq, d.store.epoch, SYNCED, True))


def check_found(live: dict[int, Content], window: Window) -> None:
    lost = {seq for seq, one in window.must.items() if live.get(seq) != one}
    assert not lost, f"acknowledged and gone: {sorted(lost)}"
    wrong = {seq for seq, one in live.items() if not window.allows(seq, one)}
    assert not wrong, f"deleted or never published: {sorted(wrong)}"


def run_one(scratch: Path, name: str, durability: str, fault: str, persistent: bool, n: int, seed: int) -> bool:
    """One run with the n-th call failing; returns whether the fault fired."""
    make, bounds = SCENARIOS[name]
    code, kinds, short = FAULTS[fault]
    root = scratch / "run"
    root.mkdir()
    disk = CrashDisk(root)
    driver = Driver(root / "stream", durability, bounds, seed, disk)
    attempt = Attempt(driver, disk, kinds is not None and not kinds & READ_KINDS)
    disk.fail_at(n, code, kinds=kinds, persistent=persistent, short=short)
    try:
        attempt.open()
        for step in make(driver):
            attempt.step(step)
        has_fired = disk.fired > 0
        if n % 3 != 0 and driver.store is not None and not driver.store.engine.is_closed:
            # The fault is gone: writing resumes by itself. Otherwise the process dies while the disk is still failing.
            disk.clear_faults()
            driver.append(2)
            attempt.look()
            driver.sync()
            check_counters(driver.store, driver.live)
            if n % 3 == 1:
                driver.stop()
        window = attempt.window()
    finally:
        driver.close()
    with opened(root / "stream", durability, bounds) as store:
        live = contents(store)
        check_found(live, window)
        if n % 3 != 0:
            assert live == driver.live
        check_counters(store, live)
        assert store.fast_state().last_seq >= window.last_seq
        assert store.store("after", b"after") == max(store.fast_state().last_seq, window.last_seq + 1)
    return has_fired


@pytest.mark.parametrize("persistent", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_disk_call_that_fails_costs_nothing_acknowledged(
    scratch: Path, name: str, durability: str, fault: str, persistent: bool
) -> None:
    """Each step is refused clearly or done; everything stays readable; writing resumes by itself; the next open has it
    all.
    """
    seed = chunk_seed("faults", name)
    offset = chunk_seed("offset", name, durability, fault, persistent) % STRIDE
    for n in itertools.count(1 + offset, STRIDE):
        try:
            has_fired = run_one(scratch, name, durability, fault, persistent, n, seed)
        except BaseException as error:
            error.add_note(f"{name}, {durability}, {fault}, {'lasting' if persistent else 'once'}, n={n}, seed {seed}")
            raise
        shutil.rmtree(scratch / "run")
        if not has_fired:
            break
