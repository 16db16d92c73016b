"""What commit threads wait for, as the operating system sees it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import penstock

FUTEX = {"x86_64": 202, "aarch64": 98}.get(os.uname().machine)
WAITS, CLOCK_REALTIME = {9, 9 | 128}, 256  # FUTEX_WAIT_BITSET, perhaps private; with the clock that can be set
TASKS = Path("/proc/self/task")


def timed_waits() -> list[int]:
    """The futex operations with a timeout in which threads of this process wait."""
    found = []
    for task in TASKS.iterdir():
        try:
            number, *arguments = (task / "syscall").read_text().split()
        except (OSError, ValueError):
            continue  # the thread has ended
        if number.isdigit() and int(number) == FUTEX and len(arguments) > 4:
            operation, until = int(arguments[1], 16), int(arguments[3], 16)
            if until and operation & ~CLOCK_REALTIME in WAITS:
                found.append(operation)
    return found


@pytest.mark.skipif(FUTEX is None, reason="the number of the futex call is not known for this machine")
def test_commit_threads_do_not_wait_by_the_machines_clock(tmp_path: Path) -> None:
    """When the clock was set back an hour, the wait of a second for the next sync took an hour."""
    try:
        (TASKS / str(os.getpid()) / "syscall").read_text()
    except OSError as error:
        pytest.skip(f"this system does not say what threads wait in: {error.strerror}")
    before = len(timed_waits())
    with penstock.open(tmp_path / "store", durability="os") as database:
        database.stream("S", subjects=["s"]).publish("s")
        until = time.monotonic() + 30
        while len(found := timed_waits()) <= before:
            assert time.monotonic() < until, "no commit thread waits"
        assert not any(operation & CLOCK_REALTIME for operation in found)
