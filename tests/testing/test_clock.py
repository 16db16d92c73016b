"""FakeClock moves only when told; SystemClock is the machine's."""

from __future__ import annotations

import time

from penstock.interfaces import Clock, SystemClock
from penstock.testing import FakeClock


def test_a_fake_clock_moves_only_when_told() -> None:
    fake = FakeClock(1000)
    clock: Clock = fake
    assert clock.now_ns() == clock.now_ns() == 1000
    assert fake.advance(5) == 1005
    assert fake.advance(-10) == clock.now_ns() == 995
    fake.set(7)
    assert clock.now_ns() == 7


def test_the_system_clock_tells_unix_nanoseconds() -> None:
    clock: Clock = SystemClock()
    assert abs(clock.now_ns() - time.time_ns()) < 1_000_000_000
