"""The times of an ack table: those in memory never jump, those on disk are times of the machine's clock."""

from __future__ import annotations

import random

import pytest

from penstock.base.clock import Clock
from penstock.consumer import ack_table as compiled
from penstock.consumer.ack_table import ALL, EXPLICIT
from twins import ack_table as reference


class Machine(Clock):
    """`now_ns` is set by the test; the machine's clock is ahead of it by `offset_ns`."""

    def __init__(self, offset_ns: int = 0) -> None:
        self.offset_ns = offset_ns


def following(offset_ns: int, policy: int = EXPLICIT) -> compiled.AckTable:
    table = compiled.AckTable(policy)
    table.logged = True
    table.follow(Machine(offset_ns), 0, 0)
    return table


def test_what_is_written_down_has_the_machines_times() -> None:
    """Both implementations convert them: in changes and in the whole state."""
    table = following(1000)
    table.deliver(1, 100, 200)
    table.deliver(2, 101, 301)
    table.redeliver(1, 250, 350)
    table.set_deadline(2, 777)
    notes = table.changes()
    for kernel in (compiled, reference):
        again = kernel.AckTable()
        again.apply(notes)
        assert again.get(1) == (1, 1350, 2, 1250) and again.get(2) == (2, 1777, 1, 1101)
        whole = kernel.AckTable.decode(table.encode())
        assert whole.state() == again.state()
    assert table.get(1) == (1, 350, 2, 250), "in memory they stay what they are"


def test_changes_may_tell_the_time_alone() -> None:
    table = following(0)
    assert not table.has_moved
    table.deliver(1, 100, 200)
    assert not table.has_moved, "a delivery tells its time"
    table.set_deadline(1, 900)
    assert table.has_moved
    table.note_time(800)
    notes = table.changes()
    assert not table.has_moved
    for kernel in (compiled, reference):
        again = kernel.AckTable()
        again.apply(notes)
        assert again.get(1) == (1, 900, 1, 100)
    read = compiled.AckTable()
    read.apply(notes)
    read.follow(Machine(), 700, 50)
    assert read.get(1) == (1, 750, 1, 100), "at 700, who says that it was 800 tells that the clock went back"


@pytest.mark.parametrize("offset", [0, 10_000, -10_000])
@pytest.mark.parametrize("seed", range(20))
def test_a_table_that_was_read_goes_by_the_clock(offset: int, seed: int) -> None:
    rng = random.Random(seed)
    written = compiled.AckTable()
    written.logged = True
    now, wait, behind = 5000, 300, rng.choice([0, 0, 100, 1000])
    for seq in range(1, 200):
        now += rng.randrange(3)
        written.deliver(seq, now, now + wait)
        if rng.random() < 0.3:
            written.ack(rng.randint(1, seq))
        if rng.random() < 0.2 and written.get(other := rng.randint(1, seq)):
            written.redeliver(other, now, now + rng.choice([wait, 5]))
        if rng.random() < 0.2:
            written.set_deadline(rng.randint(1, seq), now + rng.choice([1, wait, 4000]))
    written.note_time(now)
    table = compiled.AckTable.decode(compiled.AckTable().encode())
    table.apply(written.changes())
    then = now - behind  # the machine's clock at the open
    table.follow(Machine(offset), then - offset, wait)
    due: dict[int, int] = {}
    for seq, (_, last) in written.state().pending.items():
        _, deadline, _, _ = written.get(seq) or (0, 0, 0, 0)
        due[seq] = deadline - max(last - then, 0)
        if behind:
            due[seq] = min(due[seq], then + wait)
        found = table.get(seq)
        assert found is not None and (found[1], found[3]) == (due[seq] - offset, min(last, then) - offset)
    for at in sorted({*due.values()}):
        expected = sorted(seq for seq in due if due[seq] <= at)
        assert sorted(table.due(at - offset, 1000)) == expected
        assert table.next_due() == min((one - offset for seq, one in due.items() if seq not in expected), default=None)
        for seq in expected:
            del due[seq]


def test_what_waits_for_nothing_waits_on() -> None:
    forever = 2**62 - 1
    written = compiled.AckTable(ALL)
    written.logged = True
    written.deliver(1, 9000, forever)
    table = compiled.AckTable(ALL)
    table.apply(written.changes())
    table.follow(Machine(500), 1000, 50)
    assert table.get(1) == (1, forever, 1, 1000)
