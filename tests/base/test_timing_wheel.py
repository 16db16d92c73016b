"""TimingWheel: both halves against each other; malformed encodings first, then clocks that jump."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.base import timing_wheel as compiled
from twins import timing_wheel as reference
from twins.varint import write_varint, zigzag

both_halves = pytest.mark.parametrize("kernel", [compiled, reference], ids=["compiled", "reference"])

SECOND = 2**30
TIME_MIN, TIME_MAX = -(2**63), 2**63 - 1
TIMES = st.one_of(
    st.integers(-5, 20),
    st.integers(-5 * SECOND, 20 * SECOND),
    st.integers(0, 9000).map(lambda n: n * SECOND),
    st.integers(TIME_MAX - 5, TIME_MAX),
    st.integers(TIME_MIN, TIME_MIN + 5),
    st.integers(TIME_MIN, TIME_MAX),
)
SEQS = st.one_of(st.integers(0, 10), st.integers(2**64 - 5, 2**64 - 1))


def v(*values: int) -> bytes:
    return b"".join(write_varint(value) for value in values)


@both_halves
@pytest.mark.parametrize(
    ("data", "offset", "reason"),
    [
        (b"", 0, "varint"),
        (b"\x80\x00", 0, "varint"),
        (v(1), 0, "more entries"),
        (v(2**64 - 1, 0, 0), 0, "more entries"),
        (v(1, 0) + b"\x80", 2, "varint"),
        (v(1) + b"\x80\x80\x80", 1, "varint"),
        (v(2, zigzag(TIME_MAX), 0, 1, 0), 12, "passes"),
        (v(2, 0, 0, 2**63, 0), 3, "passes"),
        (v(2, 0, zigzag(5), 0, zigzag(-1)), 4, "out of order"),
        (v(0, 0), 1, "bytes after"),
        (v(1, 0, 0, 0), 3, "bytes after"),
    ],
)
def test_a_malformed_encoding_is_refused_where_it_is_wrong(
    kernel: ModuleType, data: bytes, offset: int, reason: str
) -> None:
    with pytest.raises(ValueError, match=rf"at byte {offset}: .*{reason}"):
        kernel.TimingWheel.decode(data)


@given(data=st.binary(max_size=30))
@example(data=v(2, zigzag(TIME_MIN), 0, 2**64 - 1, 0))
def test_any_bytes_decode_alike(data: bytes) -> None:
    try:
        expected = reference.TimingWheel.decode(data)
    except ValueError as error:
        with pytest.raises(ValueError, match="at byte") as raised:
            compiled.TimingWheel.decode(data)
        assert str(raised.value) == str(error)
    else:
        assert compiled.TimingWheel.decode(data).entries() == expected.entries()


@both_halves
def test_sizes_that_are_no_powers_of_two_are_refused(kernel: ModuleType) -> None:
    for arguments in ({"slot_count": 0}, {"slot_count": 3}, {"slot_count": 2**21}, {"slot_ns": 0}, {"slot_ns": 10**9}):
        with pytest.raises(ValueError, match="power of two"):
            kernel.TimingWheel(**arguments)


@both_halves
@pytest.mark.parametrize(("seq", "expires_ns"), [(-1, 0), (2**64, 0), (0, 2**63), (0, -(2**63) - 1)])
def test_numbers_that_do_not_fit_are_refused(kernel: ModuleType, seq: int, expires_ns: int) -> None:
    wheel = kernel.TimingWheel()
    with pytest.raises(OverflowError):
        wheel.add(seq, expires_ns)
    with pytest.raises(OverflowError):
        wheel.remove(seq, expires_ns)
    assert len(wheel) == 0


@both_halves
def test_what_is_due_comes_in_order_and_no_more_than_asked(kernel: ModuleType) -> None:
    wheel = kernel.TimingWheel()
    for seq, expires_ns in ((4, 30), (3, 20), (2, 20), (1, SECOND * 3), (5, 10)):
        wheel.add(seq, expires_ns)
    assert wheel.next_expiry() == 10
    assert wheel.expire(9, 10) == []
    assert wheel.expire(30, 0) == wheel.expire(30, -1) == []
    assert wheel.expire(30, 3) == [(5, 10), (2, 20), (3, 20)]
    assert wheel.expire(30, 3) == [(4, 30)]
    assert wheel.next_expiry() == SECOND * 3
    assert wheel.expire(SECOND * 3 - 1, 10) == []
    assert wheel.expire(TIME_MAX, 10) == [(1, SECOND * 3)]
    assert wheel.next_expiry() is None
    assert wheel.count == 0


@both_halves
def test_a_clock_that_jumps_back_and_far_ahead(kernel: ModuleType) -> None:
    wheel = kernel.TimingWheel()
    wheel.add(1, 5000 * SECOND)
    assert wheel.expire(4000 * SECOND, 10) == []
    wheel.add(2, 10 * SECOND)
    assert wheel.next_expiry() == 10 * SECOND
    assert wheel.expire(9 * SECOND, 10) == []
    assert wheel.expire(10 * SECOND, 10) == [(2, 10 * SECOND)]
    wheel.add(3, TIME_MAX)
    wheel.add(4, TIME_MIN)
    assert wheel.expire(TIME_MIN, 10) == [(4, TIME_MIN)]
    assert wheel.expire(TIME_MAX - 1, 10) == [(1, 5000 * SECOND)]
    assert wheel.expire(TIME_MAX, 10) == [(3, TIME_MAX)]


@both_halves
def test_one_pair_may_be_in_it_twice(kernel: ModuleType) -> None:
    wheel = kernel.TimingWheel()
    wheel.add(1, 5)
    wheel.add(1, 5)
    assert wheel.remove(1, 5)
    assert wheel.entries() == [(1, 5)]
    assert wheel.remove(1, 5)
    assert not wheel.remove(1, 5)
    assert not wheel.remove(2, 5)


@both_halves
def test_entries_of_many_revolutions_share_a_slot(kernel: ModuleType) -> None:
    wheel = kernel.TimingWheel(slot_count=4, slot_ns=16)
    for n in range(200):
        wheel.add(n, (199 - n) * 64)
    assert wheel.expire(50 * 64, 1000) == [(199 - n, n * 64) for n in range(51)]
    assert wheel.next_expiry() == 51 * 64
    assert wheel.expire(10**6, 1000) == [(199 - n, n * 64) for n in range(51, 200)]


def test_an_entry_costs_little_and_its_memory_comes_back() -> None:
    wheel = compiled.TimingWheel()
    empty = wheel.memory()
    for seq in range(200_000):
        wheel.add(seq, 10**18 + seq * 1_000_000)
    assert wheel.memory() < 24 * 200_000 + 4096 * 64
    assert len(wheel.expire(TIME_MAX, 10**6)) == 200_000
    assert wheel.memory() < 4096 * 64
    wheel.clear()
    assert wheel.memory() == empty


class WheelMachine(RuleBasedStateMachine):
    """Any sequence of operations leaves both halves alike, whatever the slots' width."""

    def __init__(self) -> None:
        super().__init__()
        self.wheels = [compiled.TimingWheel(), compiled.TimingWheel(4, 1), compiled.TimingWheel(64, 2**20)]
        self.twin = reference.TimingWheel()
        self.all: list[compiled.TimingWheel | reference.TimingWheel] = [*self.wheels, self.twin]

    @rule(seq=SEQS, expires_ns=TIMES)
    def add(self, seq: int, expires_ns: int) -> None:
        for wheel in self.all:
            wheel.add(seq, expires_ns)

    @rule(start=TIMES, step=st.integers(-(2**31), 2**31), count=st.integers(1, 50))
    def add_many(self, start: int, step: int, count: int) -> None:
        for n in range(count):
            if TIME_MIN <= start + n * step <= TIME_MAX:
                for wheel in self.all:
                    wheel.add(n, start + n * step)

    @rule(seq=SEQS, expires_ns=TIMES)
    def remove(self, seq: int, expires_ns: int) -> None:
        assert len({wheel.remove(seq, expires_ns) for wheel in self.all}) == 1

    @rule(part=st.integers(0, 100))
    def remove_some(self, part: int) -> None:
        for seq, expires_ns in self.twin.entries()[part::3]:
            assert all(wheel.remove(seq, expires_ns) for wheel in self.all)

    @rule(now_ns=TIMES, limit=st.integers(0, 100))
    def expire(self, now_ns: int, limit: int) -> None:
        expected = self.twin.expire(now_ns, limit)
        for wheel in self.wheels:
            assert wheel.expire(now_ns, limit) == expected

    @invariant()
    def alike(self) -> None:
        data = self.twin.encode()
        assert reference.TimingWheel.decode(data).entries() == self.twin.entries()
        for wheel in self.wheels:
            assert wheel.entries() == self.twin.entries()
            assert wheel.next_expiry() == self.twin.next_expiry()
            assert wheel.count == self.twin.count
            assert wheel.encode() == data
            assert compiled.TimingWheel.decode(data).entries() == self.twin.entries()


TestWheelMachine = WheelMachine.TestCase
TestWheelMachine.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
