"""SeqSet: both halves against each other and against Python's set; malformed encodings first."""

from __future__ import annotations

import random
from array import array
from types import ModuleType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.base import seq_set as compiled
from twins import seq_set as reference
from twins.varint import write_varint

both_halves = pytest.mark.parametrize("kernel", [compiled, reference], ids=["compiled", "reference"])

MAX = 2**64 - 1
SEQS = st.one_of(st.integers(0, 40), st.integers(MAX - 20, MAX), st.integers(0, MAX))
RANGES = st.builds(lambda first, size: (first, min(first + size, MAX)), SEQS, st.integers(0, 12))


def v(*values: int) -> bytes:
    return b"".join(write_varint(value) for value in values)


@both_halves
@pytest.mark.parametrize(
    ("data", "offset", "reason"),
    [
        (b"", 0, "varint"),
        (b"\x80", 0, "varint"),
        (b"\x80\x00", 0, "varint"),
        (b"\xff" * 9 + b"\x02", 0, "varint"),
        (b"\xff" * 11, 0, "varint"),
        (v(1), 0, "more ranges"),
        (v(2, 0, 1), 0, "more ranges"),
        (v(MAX, 0, 1), 0, "more ranges"),
        (v(1) + b"\x81\x00\x01", 1, "varint"),
        (v(1, 5) + b"\x80", 2, "varint"),
        (v(1, 5, 0), 2, "length 0"),
        (v(1, MAX, 2), 11, "passes"),
        (v(1, 2, MAX), 2, "passes"),
        (v(2, 0, MAX, 1, 1), 12, "passes"),
        (v(2, MAX, 1, 0, 1), 12, "passes"),
        (v(0, 0), 1, "bytes after"),
        (v(1, 0, 1, 0), 3, "bytes after"),
    ],
)
def test_a_malformed_encoding_is_refused_where_it_is_wrong(
    kernel: ModuleType, data: bytes, offset: int, reason: str
) -> None:
    with pytest.raises(ValueError, match=rf"at byte {offset}: .*{reason}"):
        kernel.SeqSet.decode(data)


@both_halves
@pytest.mark.parametrize("seq", [-1, 2**64, 2**70])
def test_numbers_that_are_no_sequences_are_refused(kernel: ModuleType, seq: int) -> None:
    seqs = kernel.SeqSet()
    for call in (
        seqs.add,
        seqs.remove,
        seqs.__contains__,
        lambda n: seqs.add_range(0, n),
        lambda n: list(seqs.iterate_from(n)),
    ):
        with pytest.raises(OverflowError):
            call(seq)
    assert seqs.count() == 0


@both_halves
def test_an_empty_range_and_falling_numbers_are_refused(kernel: ModuleType) -> None:
    seqs = kernel.SeqSet()
    with pytest.raises(ValueError, match="from 5 to 4 is empty"):
        seqs.add_range(5, 4)
    with pytest.raises(ValueError, match="item 2 is below"):
        seqs.add_many(array("Q", [1, 5, 4]))
    assert not seqs


@given(data=st.binary(max_size=30))
@example(data=v(2, 0, MAX, 0, 1))
def test_any_bytes_decode_alike(data: bytes) -> None:
    try:
        expected = reference.SeqSet.decode(data)
    except ValueError as error:
        with pytest.raises(ValueError, match="at byte") as raised:
            compiled.SeqSet.decode(data)
        assert str(raised.value) == str(error)
    else:
        assert compiled.SeqSet.decode(data).ranges() == expected.ranges()


@both_halves
def test_runs_merge_and_bridge(kernel: ModuleType) -> None:
    seqs = kernel.SeqSet()
    assert seqs.add(5)
    assert not seqs.add(5)
    assert seqs.add(7)
    assert seqs.ranges() == [(5, 5), (7, 7)]
    assert seqs.add(6)
    assert seqs.ranges() == [(5, 7)]
    assert seqs.add_range(1, 3) == 3
    assert seqs.add_range(2, 9) == 3
    assert seqs.ranges() == [(1, 9)]
    assert seqs.remove(4)
    assert not seqs.remove(4)
    assert seqs.ranges() == [(1, 3), (5, 9)]
    assert (seqs.first, seqs.last, seqs.range_count, len(seqs)) == (1, 9, 2, 8)


@both_halves
def test_it_is_exact_at_both_ends(kernel: ModuleType) -> None:
    seqs = kernel.SeqSet()
    assert seqs.add(0)
    assert seqs.add(MAX)
    assert 0 in seqs
    assert MAX in seqs
    assert 1 not in seqs
    assert MAX - 1 not in seqs
    assert list(seqs) == [0, MAX]
    assert list(seqs.iterate_from(1)) == [MAX]
    assert seqs.absent_from(MAX) is None
    assert seqs.absent_from(0) == 1
    assert kernel.SeqSet.decode(seqs.encode()) == seqs
    assert seqs.add_range(0, MAX) == 2**64 - 2
    assert seqs.count() == 2**64
    assert seqs.ranges() == [(0, MAX)]
    assert seqs.absent_from(0) is None
    assert kernel.SeqSet.decode(seqs.encode()) == seqs
    with pytest.raises(OverflowError):
        len(seqs)
    assert seqs.remove(0)
    assert seqs.remove(MAX)
    assert seqs.ranges() == [(1, MAX - 1)]
    assert seqs.add_range(0, 0) == 1
    assert seqs.add_range(MAX, MAX) == 1
    assert seqs.range_count == 1


@both_halves
def test_a_million_contiguous_numbers_cost_one_range(kernel: ModuleType) -> None:
    seqs = kernel.SeqSet()
    assert seqs.add_range(10, 10 + 999_999) == 1_000_000
    assert seqs.range_count == 1
    assert len(seqs.encode()) < 8
    assert seqs.memory() < 1000


def test_many_random_adds_and_removes_keep_count_and_order() -> None:
    seqs = compiled.SeqSet()
    numbers = list(range(0, 400_000, 2))
    random.Random(1).shuffle(numbers)
    for seq in numbers:
        assert seqs.add(seq)
    assert seqs.range_count == len(numbers)
    assert seqs.memory() < 40 * len(numbers)
    assert seqs.add_range(1, 399_997) == 199_999
    assert seqs.ranges() == [(0, 399_998)]
    random.Random(2).shuffle(numbers)
    for seq in numbers:
        assert seqs.remove(seq)
    assert seqs.range_count == 199_999
    for seq in range(1, 399_998, 2):
        assert seqs.remove(seq)
    assert seqs.ranges() == []
    assert not seqs


@both_halves
@given(ranges=st.lists(RANGES, max_size=12), others=st.lists(RANGES, max_size=12))
def test_copy_update_and_bytes_keep_the_set(
    kernel: ModuleType, ranges: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    one, other = kernel.SeqSet(), kernel.SeqSet()
    for first, last in ranges:
        one.add_range(first, last)
    for first, last in others:
        other.add_range(first, last)
    both = one.copy()
    assert both == one
    both.update(other)
    both.update(both)
    members = {seq for first, last in ranges + others for seq in range(first, last + 1)}
    assert list(both) == sorted(members)
    assert both.count() == len(members)
    assert (both == one) == (members == set(one))
    assert kernel.SeqSet.decode(both.encode()) == both
    assert both.encode() == reference.SeqSet.decode(both.encode()).encode()
    many = kernel.SeqSet()
    many.add_many(array("Q", sorted(members)))
    assert many == both
    assert one != object()
    both.clear()
    assert both == kernel.SeqSet()


class SeqSetMachine(RuleBasedStateMachine):
    """Any sequence of operations leaves both halves alike, across many leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.seqs, self.twin = compiled.SeqSet(), reference.SeqSet()

    @rule(seq=SEQS)
    def add(self, seq: int) -> None:
        assert self.seqs.add(seq) == self.twin.add(seq)

    @rule(bounds=RANGES)
    def add_range(self, bounds: tuple[int, int]) -> None:
        assert self.seqs.add_range(*bounds) == self.twin.add_range(*bounds)

    @rule(start=st.integers(0, 3000), count=st.integers(1, 700), step=st.integers(2, 5))
    def add_comb(self, start: int, count: int, step: int) -> None:
        merged = self.twin.copy()
        for seq in range(start, start + count * step, step):
            self.seqs.add(seq)
        merged._ranges = _joined(merged.ranges() + [(seq, seq) for seq in range(start, start + count * step, step)])
        self.twin = merged

    @rule(first=st.integers(0, 4000), size=st.integers(0, 4000))
    def add_wide(self, first: int, size: int) -> None:
        assert self.seqs.add_range(first, first + size) == self.twin.add_range(first, first + size)

    @rule(seq=SEQS)
    def remove(self, seq: int) -> None:
        assert self.seqs.remove(seq) == self.twin.remove(seq)

    @rule(part=st.integers(0, 9))
    def remove_some_firsts(self, part: int) -> None:
        for first, _ in self.twin.ranges()[part::10][:60]:
            assert self.seqs.remove(first)
            assert self.twin.remove(first)

    @rule(seq=SEQS)
    def seek(self, seq: int) -> None:
        assert self.seqs.absent_from(seq) == self.twin.absent_from(seq)
        assert self.seqs.present_from(seq) == self.twin.present_from(seq)
        assert (seq in self.seqs) == (seq in self.twin)

    @invariant()
    def alike(self) -> None:
        assert self.seqs.ranges() == self.twin.ranges()
        assert self.seqs.count() == self.twin.count()
        assert self.seqs.range_count == self.twin.range_count
        assert self.seqs.encode() == self.twin.encode()


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if out and first <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((first, last))
    return out


TestSeqSetMachine = SeqSetMachine.TestCase
TestSeqSetMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
