"""FakeClock moves only when told; SystemClock is the machine's."""

from __future__ import annotations

import time

import pytest

from penstock.base.clock import SYSTEM, Clock
from penstock.testing import FakeClock


def test_a_fake_clock_moves_only_when_told() -> None:
    fake = FakeClock(1000)
    clock: Clock = fake
    assert clock.now_ns() == clock.now_ns() == clock.wall_ns() == 1000
    assert fake.advance(5) == 1005
    assert fake.set(1007) == clock.now_ns() == 1007
    with pytest.raises(ValueError, match="time passes forward"):
        fake.advance(-10)


def test_a_jump_of_a_fake_clock_is_one_of_the_machines_clock_alone() -> None:
    clock = FakeClock(1000)
    clock.jump(-300)
    assert (clock.now_ns(), clock.wall_ns(), clock.offset_ns, clock.changes) == (1000, 700, -300, 1)
    clock.advance(50)
    clock.jump(1000)
    assert (clock.now_ns(), clock.wall_ns(), clock.changes) == (1050, 1750, 2)


def test_the_system_clock_tells_unix_nanoseconds() -> None:
    before = time.time_ns()
    wall = SYSTEM.wall_ns()
    assert abs(wall - before) < 1_000_000_000
    assert wall - SYSTEM.now_ns() <= SYSTEM.offset_ns
