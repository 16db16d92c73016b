"""The machine's clock is set while a stream is open, or between two opens: messages expire when their real age is
reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.testing import FakeClock
from penstock.testing.clock import START_NS

S = 10**9
HOUR = 3600 * S
BACK, FORWARD = -HOUR, HOUR
jumps = pytest.mark.parametrize("jump", [BACK, FORWARD], ids=["back", "forward"])


class Bench:
    """One stream, in files or in memory, under a clock that can be set."""

    def __init__(self, root: Path, storage: str) -> None:
        self.root, self.storage, self.clock = root, storage, FakeClock()
        self.database: penstock.Database | None = None

    def open(self, **options: Any) -> penstock.Stream:
        self.database = penstock.open(self.root, durability="os", clock=self.clock)
        if "S" in self.database.streams():
            return self.database.stream("S")
        return self.database.stream("S", subjects=["s.>"], storage=self.storage, **options)

    def reopen(self, jump: int = 0, kill: bool = False) -> penstock.Stream:
        """Stop, or kill, and start again in another process; the machine's clock is set meanwhile."""
        assert self.database is not None
        if kill:
            self.database.stream("S").store.abandon()
            self.database.stream("S").consumers.abandon()
        self.database.close()
        self.clock = FakeClock(self.clock.wall_ns() + jump)
        return self.open()


@pytest.fixture(params=["file", "memory"])
def bench(request: pytest.FixtureRequest, root: Path) -> Iterator[Bench]:
    bench = Bench(root, request.param)
    yield bench
    if bench.database is not None:
        bench.database.close()


@pytest.fixture
def files(root: Path) -> Iterator[Bench]:
    bench = Bench(root, "file")
    yield bench
    if bench.database is not None:
        bench.database.close()


def live(stream: penstock.Stream) -> list[int]:
    return [message.seq for message in stream.read()]


# While it runs.


@jumps
def test_max_age_counts_from_when_a_message_was_taken(bench: Bench, jump: int) -> None:
    stream = bench.open(max_age="8s")
    stream.publish("s.a")
    bench.clock.advance(3 * S)
    stream.publish("s.b")
    bench.clock.jump(jump)
    assert live(stream) == [1, 2]
    bench.clock.advance(2 * S)
    stream.publish("s.c")  # at 5 s
    for second, expected in ((7, [1, 2, 3]), (8, [2, 3]), (10, [2, 3]), (11, [3]), (12, [3])):
        bench.clock.set(START_NS + second * S)
        assert live(stream) == expected, second
    # while the clock is behind, ages are known to within a part of max_age
    bench.clock.set(START_NS + 13 * S + 8 * S // 1024)
    assert live(stream) == []


@jumps
def test_what_is_due_next_is_not_moved_by_a_jump(bench: Bench, jump: int) -> None:
    stream = bench.open(max_age="8s")
    stream.publish("s.a")
    bench.clock.jump(jump)
    assert live(stream) == [1]
    assert stream.store.next_due <= START_NS + 8 * S
    bench.clock.advance(8 * S)
    assert live(stream) == []


@jumps
def test_a_ttl_counts_from_when_a_message_was_taken(bench: Bench, jump: int) -> None:
    stream = bench.open(allow_msg_ttl=True)
    stream.publish("s.before", headers={"Nats-TTL": "5s"})
    bench.clock.advance(2 * S)
    bench.clock.jump(jump)
    stream.publish("s.after", headers={"Nats-TTL": "5s"})
    stream.publish("s.never", headers={"Nats-TTL": "never"})
    for second, expected in ((4, [1, 2, 3]), (5, [2, 3]), (6, [2, 3]), (7, [3])):
        bench.clock.set(START_NS + second * S)
        assert live(stream) == expected, second


@jumps
def test_the_duplicate_window_does_not_jump(bench: Bench, jump: int) -> None:
    stream = bench.open(duplicate_window="10s")
    stream.publish("s.a", headers={"Nats-Msg-Id": "1"})
    bench.clock.jump(jump)
    stream.publish_many([("s.a", b"", {"Nats-Msg-Id": "2"}), ("s.a", b"", {"Nats-Msg-Id": "1"})])
    bench.clock.advance(9 * S)
    assert stream.publish("s.a", headers={"Nats-Msg-Id": "1"}).duplicate
    assert stream.publish("s.a", headers={"Nats-Msg-Id": "2"}).duplicate
    bench.clock.advance(S)
    assert not stream.publish("s.a", headers={"Nats-Msg-Id": "1"}).duplicate
    assert not stream.publish("s.a", headers={"Nats-Msg-Id": "2"}).duplicate


@jumps
def test_the_duplicate_window_of_an_id_beside_other_headers_does_not_jump(bench: Bench, jump: int) -> None:
    stream = bench.open(duplicate_window="10s", allow_msg_ttl=True)
    stream.publish("s.a")
    bench.clock.jump(jump)
    bench.clock.advance(S)
    headers = {"Nats-Msg-Id": "1", "Nats-TTL": "1h"}
    stream.publish("s.a", headers=headers)
    bench.clock.advance(10 * S - 1)
    assert stream.publish("s.a", headers=headers).duplicate
    bench.clock.advance(1)
    assert not stream.publish("s.a", headers=headers).duplicate


def test_times_of_messages_are_the_machines_and_do_not_go_back(bench: Bench) -> None:
    stream = bench.open()
    stream.publish("s.a")
    bench.clock.jump(BACK)
    bench.clock.advance(S)
    stream.publish("s.b")
    bench.clock.advance(HOUR)
    stream.publish("s.c")
    bench.clock.jump(FORWARD)
    stream.publish("s.d")
    times = [message.time_ns - START_NS for message in stream.read()]
    assert times == [0, 0, S, S + HOUR]


def test_ages_of_messages_that_all_have_one_time_are_told_apart(bench: Bench) -> None:
    """While the clock is behind the last time, new messages get that last time, however old they are."""
    stream = bench.open(max_age="64s")
    stream.publish("s.a")
    bench.clock.jump(BACK)
    for _ in range(200):
        bench.clock.advance(S)
        stream.publish("s.a")
    found = live(stream)
    assert len({message.time_ns for message in stream.read()}) == 1
    assert found in (list(range(138, 202)), list(range(137, 202)))


def test_a_jump_back_by_years_keeps_a_bounded_number_of_ages(bench: Bench) -> None:
    stream = bench.open(max_age="1000s")
    stream.publish("s.a")
    bench.clock.jump(-10 * 365 * 24 * HOUR)
    for _ in range(20_000):
        bench.clock.advance(S // 2)
        stream.publish("s.a")
    assert 1990 <= len(live(stream)) <= 2003
    assert len(stream.store.ages._firsts) < 1100


def test_ages_are_known_to_a_minute_where_nothing_expires_yet(bench: Bench) -> None:
    stream = bench.open()
    stream.publish("s.a")
    bench.clock.jump(-10 * 365 * 24 * HOUR)
    for _ in range(10_000):
        bench.clock.advance(HOUR)
        stream.publish("s.a")
    assert len(stream.store.ages._firsts) <= 4097
    stream.update(max_age="240h")
    assert 240 <= len(live(stream)) <= 245


def test_many_jumps_are_told_apart(bench: Bench) -> None:
    stream = bench.open(max_age="10s")
    for turn in range(100):
        bench.clock.jump((-1) ** turn * turn * HOUR)
        bench.clock.advance(S)
        stream.publish("s.a")
    assert len(live(stream)) in (10, 11)


def test_delete_markers_come_when_a_message_is_old_enough(bench: Bench) -> None:
    stream = bench.open(max_age="10s", subject_delete_marker_ttl="5s", allow_msg_ttl=True)
    stream.publish("s.a")
    bench.clock.advance(2 * S)
    bench.clock.jump(BACK)
    bench.clock.advance(7 * S)
    assert live(stream) == [1]
    bench.clock.advance(S)
    assert live(stream) == [2]  # the marker
    bench.clock.advance(5 * S)
    assert live(stream) == []


def test_a_truncation_forgets_the_ages_of_what_it_takes_alone(bench: Bench) -> None:
    stream = bench.open(max_age="10s")
    stream.publish("s.a")
    bench.clock.jump(BACK)
    bench.clock.advance(5 * S)
    stream.publish("s.b")
    stream.store.truncate(1)
    bench.clock.advance(4 * S)
    stream.publish("s.c")
    bench.clock.advance(2 * S)
    assert live(stream) == [2]
    bench.clock.advance(9 * S)
    assert live(stream) == []


@jumps
def test_a_sequence_that_is_given_again_has_an_age_of_its_own(bench: Bench, jump: int) -> None:
    stream = bench.open(max_age="10s")
    stream.publish_many([("s.a", b""), ("s.b", b"")])
    bench.clock.jump(jump)
    stream.publish("s.c")
    stream.store.truncate(1)
    bench.clock.advance(5 * S)
    stream.publish("s.d")
    bench.clock.advance(5 * S)
    assert live(stream) == [2]
    bench.clock.advance(4 * S)
    assert live(stream) == [2]
    bench.clock.advance(S + 10 * S // 1024)
    assert live(stream) == []


# Stopped, and started again.


@pytest.mark.parametrize("kill", [False, True])
def test_what_has_a_time_to_come_was_taken_by_the_open(files: Bench, kill: bool) -> None:
    stream = files.open(max_age="8s", allow_msg_ttl=True)
    stream.publish("s.a")
    stream.publish("s.b", headers={"Nats-TTL": "5s"})
    files.clock.advance(S)
    stream = files.reopen(BACK, kill)
    start = files.clock.now_ns()
    files.clock.set(start + 2 * S)
    stream.publish("s.c")
    for second, expected in ((4, [1, 2, 3]), (5, [1, 3]), (7, [1, 3]), (8, [3]), (9, [3]), (11, [])):
        files.clock.set(start + second * S)
        assert live(stream) == expected, second


@pytest.mark.parametrize("kill", [False, True])
def test_a_jump_while_it_ran_does_not_outlive_it(files: Bench, kill: bool) -> None:
    """A message stored after the jump has the last time, which is an hour ahead of the clock."""
    stream = files.open(max_age="8s", allow_msg_ttl=True, duplicate_window="8s")
    stream.publish("s.a")
    files.clock.jump(BACK)
    files.clock.advance(4 * S)
    stream.publish("s.b", headers={"Nats-TTL": "5s", "Nats-Msg-Id": "b"})
    files.clock.advance(S)
    stream = files.reopen(0, kill)
    assert live(stream) == [1, 2]
    assert stream.publish("s.b", headers={"Nats-Msg-Id": "b"}).duplicate
    files.clock.advance(5 * S)
    assert live(stream) == [1]
    files.clock.advance(3 * S)
    assert live(stream) == []
    assert not stream.publish("s.b", headers={"Nats-Msg-Id": "b"}).duplicate


def test_a_ttl_goes_on_over_a_stop(files: Bench) -> None:
    """The checkpoint stores when it is due by the clock of the writer, whatever time the message has."""
    stream = files.open(allow_msg_ttl=True)
    stream.publish("s.a")
    files.clock.jump(BACK)
    stream.publish("s.b", headers={"Nats-TTL": "50s"})
    stream.store.engine.seal_active()
    stream.publish("s.c")
    files.clock.advance(20 * S)
    stream = files.reopen()
    files.clock.advance(29 * S)
    assert live(stream) == [1, 2, 3]
    files.clock.advance(S)
    assert live(stream) == [1, 3]


def test_an_older_message_keeps_its_age_where_a_later_one_has_a_time_to_come(files: Bench) -> None:
    """The clock was a year ahead for a moment: earlier messages did not become a year old because of that."""
    stream = files.open(max_age="10s")
    stream.publish("s.a")
    files.clock.advance(5 * S)
    files.clock.jump(365 * 24 * HOUR)
    stream.publish("s.b")
    files.clock.jump(-365 * 24 * HOUR)
    stream = files.reopen()
    files.clock.advance(4 * S)
    assert live(stream) == [1, 2]
    files.clock.advance(S)
    assert live(stream) == [2]
    files.clock.advance(5 * S)
    assert live(stream) == []


def test_after_a_jump_forward_between_stop_and_start_the_stored_times_count(files: Bench) -> None:
    stream = files.open(max_age="30m")
    stream.publish("s.a")
    assert live(files.reopen(FORWARD)) == []


def test_pictures_beside_a_writer_tell_its_times(files: Bench) -> None:
    stream = files.open()
    stream.publish("s.a")
    files.clock.jump(FORWARD)
    stream.publish("s.b")
    with penstock.open(files.root, read_only=True) as beside:
        times = [message.time_ns for message in beside.stream("S").read()]
    assert times == [START_NS, START_NS + HOUR]


# Queries by time.


def test_relative_times_count_from_the_machines_clock(bench: Bench) -> None:
    stream = bench.open()
    stream.publish("s.a")
    bench.clock.jump(FORWARD)
    stream.publish("s.b")
    assert [message.seq for message in stream.read(since="-1m")] == [2]
    assert stream.seq_at("-1m") == 2 and stream.seq_at("-2h") == 1


def test_markers_of_deleted_keys_go_by_the_machines_clock(root: Path) -> None:
    clock = FakeClock()
    with penstock.open(root, clock=clock, durability="os") as database:
        bucket = database.key_value("K")
        bucket.put("a", b"1")
        bucket.delete("a")
        clock.jump(FORWARD)
        assert bucket.purge_deletes("30m") == 1
