"""The machine's clock is set while consumers wait, or between a stop and a start: no one waits for an hour because of
it, and nothing is redelivered before it is due.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import penstock
from penstock.testing import FakeClock
from penstock.testing.clock import START_NS

S = 10**9
HOUR = 3600 * S
BACK, FORWARD = -HOUR, HOUR
jumps = pytest.mark.parametrize("jump", [BACK, FORWARD], ids=["back", "forward"])


class Bench:
    """A stream with ten messages, under a clock that can be set."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock = root, FakeClock()
        self.stream = self._open()
        self.stream.publish_many([("s.a", b"%d" % n) for n in range(10)])

    def _open(self) -> penstock.Stream:
        self.database = penstock.open(self.root, durability="os", clock=self.clock)
        return self.database.stream("S", subjects=["s.>"])

    def reopen(self, jump: int = 0, kill: bool = False) -> None:
        """Stop, or kill, and start again in another process; the machine's clock is set meanwhile."""
        if kill:
            self.stream.store.abandon()
            self.stream.consumers.abandon()
        self.database.close()
        self.clock = FakeClock(self.clock.wall_ns() + jump)
        self.stream = self._open()

    def fetch(self, batch: int = 10, **options: Any) -> list[int]:
        return [message.seq for message in self.stream.consumer("c", **options).fetch(batch, timeout=0)]


@pytest.fixture
def bench(root: Path) -> Iterator[Bench]:
    bench = Bench(root)
    yield bench
    bench.database.close()


# While it runs.


@jumps
def test_ack_wait_does_not_jump(bench: Bench, jump: int) -> None:
    assert bench.fetch(2, ack_wait="6s") == [1, 2]
    bench.clock.advance(S)
    bench.clock.jump(jump)
    assert bench.fetch(2) == [3, 4]
    for second, due in ((5, []), (6, [1, 2]), (7, [3, 4])):
        bench.clock.set(START_NS + second * S)
        assert bench.fetch(len(due) or 1) == (due or [5]), second


@jumps
def test_backoff_and_progress_do_not_jump(bench: Bench, jump: int) -> None:
    consumer = bench.stream.consumer("c", backoff=["2s", "10s"], max_deliver=5)
    (message,) = consumer.fetch(1, timeout=0)
    bench.clock.jump(jump)
    bench.clock.advance(S)
    message.in_progress()
    bench.clock.advance(2 * S)
    assert bench.fetch(1) == [1]
    bench.clock.jump(-jump)
    bench.clock.advance(9 * S)
    assert consumer._inner.engine.next_due_ns == START_NS + 13 * S
    bench.clock.advance(S)
    assert bench.fetch(1) == [1]


@jumps
def test_a_delayed_nak_does_not_jump(bench: Bench, jump: int) -> None:
    consumer = bench.stream.consumer("c", ack_wait="6s", max_ack_pending=1)
    (message,) = consumer.fetch(1, timeout=0)
    message.nak(delay="20s")
    bench.clock.jump(jump)
    bench.clock.advance(19 * S)
    assert bench.fetch(1) == []
    bench.clock.advance(S)
    assert bench.fetch(1) == [1]


def test_a_pause_ends_by_the_machines_clock(bench: Bench) -> None:
    """A pause lasts until a time of the clock, also if it was requested as a duration."""
    consumer = bench.stream.consumer("c")
    info = consumer.pause("2h")
    assert info.pause_remaining_ns == 2 * HOUR
    bench.clock.jump(FORWARD)
    assert consumer.info().pause_remaining_ns == HOUR
    assert bench.fetch(1) == []
    bench.clock.jump(FORWARD)
    assert bench.fetch(1) == [1]
    bench.clock.jump(BACK)
    assert bench.fetch(1) == []
    consumer.pause(datetime.fromtimestamp((bench.clock.wall_ns() - S) / 1e9, UTC))
    assert bench.fetch(1) == [2]


def test_who_waits_for_the_end_of_a_pause_looks_at_the_clock(bench: Bench) -> None:
    """The thread sleeps for a second at most, because the clock may be set meanwhile."""
    consumer = bench.stream.consumer("c")
    consumer.pause("2h")
    found: list[int] = []
    looks: list[float | None] = []
    is_waiting = threading.Event()
    wait_s = consumer._wait_s

    def noted(now: int) -> float | None:
        looks.append(wait_s(now))
        if len(looks) == 2:
            is_waiting.set()
        return looks[-1]

    with patch.object(consumer, "_wait_s", noted):
        reader = threading.Thread(target=lambda: found.extend(one.seq for one in consumer.fetch(1, timeout=600)))
        reader.start()
        assert is_waiting.wait(60)
        with bench.stream.locked():  # the thread has looked, and nothing is due
            bench.clock.jump(2 * HOUR)
        reader.join(timeout=60)
    assert found == [1] and looks[:2] == [1.0, 1.0]


def test_replay_keeps_its_rhythm(bench: Bench) -> None:
    bench.clock.advance(4 * S)
    bench.stream.publish("s.b")
    consumer = bench.stream.consumer("c", replay_policy="original", filter="s.b", ack_wait="1h")
    bench.stream.publish("s.b")
    assert [one.seq for one in consumer.fetch(5, timeout=0)] == [11, 12]
    replayed = bench.stream.consumer(
        "d", replay_policy="original", ack_wait="1h", deliver_policy="by_start_sequence", opt_start_seq=10
    )
    assert [one.seq for one in replayed.fetch(5, timeout=0)] == [10]
    bench.clock.jump(FORWARD)
    bench.clock.advance(3 * S)
    assert replayed.fetch(5, timeout=0) == []
    bench.clock.advance(S)
    assert [one.seq for one in replayed.fetch(5, timeout=0)] == [11, 12]


@jumps
def test_what_is_not_used_goes_after_its_threshold(bench: Bench, jump: int) -> None:
    bench.clock.jump(jump)
    bench.stream.consumer("c", inactive_threshold="10m").close()
    bench.clock.jump(jump)
    bench.clock.advance(600 * S)
    bench.stream.consumer("other").close()
    assert "c" in bench.stream.consumers()
    bench.clock.advance(S)
    bench.stream.consumer("other").close()
    assert "c" not in bench.stream.consumers()


def test_what_is_told_of_a_consumer_has_the_machines_times(bench: Bench) -> None:
    consumer = bench.stream.consumer("c")
    consumer.fetch(1, timeout=0)[0].ack()
    bench.clock.jump(FORWARD)
    info = consumer.info()
    assert info.delivered.last_active_ns == info.ack_floor.last_active_ns == bench.clock.wall_ns()
    assert bench.stream.consumer("d").info().created_ns == bench.clock.wall_ns()
    assert bench.stream.consumer("d").info().delivered.last_active_ns == 0


# Stopped, and started again.


@pytest.mark.parametrize("kill", [False, True])
def test_after_a_jump_back_between_stop_and_start_nothing_waits_longer_than_ack_wait(bench: Bench, kill: bool) -> None:
    assert bench.fetch(2, ack_wait="6s") == [1, 2]
    bench.clock.advance(S)
    bench.reopen(BACK, kill)
    assert bench.fetch(1) == [3]
    bench.clock.advance(6 * S - 1)
    assert bench.fetch(1) == [4]
    bench.clock.advance(1)
    assert bench.fetch(3) == [1, 2, 3]


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("folds", [False, True])
def test_after_a_jump_back_a_wait_that_was_prolonged_is_bounded_too(bench: Bench, kill: bool, folds: bool) -> None:
    """The delivery itself was long ago and does not reveal the jump; that its wait was prolonged just now does."""
    consumer = bench.stream.consumer("c", ack_wait="6s")
    (message,) = consumer.fetch(1, timeout=0)
    for _ in range(2000):
        bench.clock.advance(5 * S)
        message.in_progress()
    if folds:
        assert bench.stream.consumers.log is not None
        bench.stream.consumers.log.require_fold()
        bench.stream.consumers.flush()
    bench.reopen(BACK, kill)
    bench.clock.advance(6 * S)
    assert bench.fetch(1) == [1]


def test_a_delayed_nak_waits_on_over_a_stop(bench: Bench) -> None:
    """If the clock was not set back, the requested delay counts, however long it is."""
    (message,) = bench.stream.consumer("c", ack_wait="6s", max_ack_pending=1).fetch(1, timeout=0)
    message.nak(delay="1h")
    bench.reopen(jump=60 * S)
    bench.clock.advance(HOUR - 61 * S)
    assert bench.fetch(1) == []
    bench.clock.advance(S)
    assert bench.fetch(1) == [1]


def test_a_delayed_nak_is_cut_to_ack_wait_where_the_clock_went_back(bench: Bench) -> None:
    (message,) = bench.stream.consumer("c", ack_wait="6s", max_ack_pending=1).fetch(1, timeout=0)
    message.nak(delay="1h")
    bench.reopen(BACK)
    bench.clock.advance(6 * S)
    assert bench.fetch(1) == [1]


def test_after_a_jump_forward_between_stop_and_start_only_what_is_due_by_the_clock_comes(bench: Bench) -> None:
    consumer = bench.stream.consumer("c", ack_wait="30m", backoff=["30m", "3h"], max_deliver=9)
    consumer.fetch(2, timeout=0)
    bench.clock.advance(1800 * S)
    assert bench.fetch(1) == [1]  # redelivered: its next wait is 3 h
    bench.reopen(FORWARD)
    assert bench.fetch(3) == [2, 3, 4]


@jumps
@pytest.mark.parametrize("kill", [False, True])
def test_a_jump_while_it_ran_does_not_make_everything_due_after_it(bench: Bench, jump: int, kill: bool) -> None:
    """Deliveries before and after the jump are both reported in the clock's new times."""
    assert bench.fetch(1, ack_wait="20s") == [1]
    bench.clock.jump(jump)
    bench.clock.advance(5 * S)
    assert bench.fetch(1) == [2]
    bench.reopen(S, kill)
    assert bench.fetch(1) == [3]
    bench.clock.advance(14 * S)
    assert bench.fetch(1) == [1]
    bench.clock.advance(5 * S)
    assert bench.fetch(1) == [2]


@jumps
def test_a_jump_long_ago_is_not_seen_any_more(bench: Bench, jump: int) -> None:
    bench.clock.jump(jump)
    bench.clock.advance(24 * HOUR)
    assert bench.fetch(2, ack_wait="20s") == [1, 2]
    bench.clock.advance(5 * S)
    bench.reopen(S)
    assert bench.fetch(1) == [3]
    bench.clock.advance(14 * S)
    assert bench.fetch(2) == [1, 2]
