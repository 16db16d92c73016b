"""The duplicate window in both implementations: correct at its edges, after a rollback, and compared with a simple
model.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.store.index.ids_and_expiries import IdsAndExpiries
from penstock.store.write import dedupe
from twins import dedupe as reference

Window = type[dedupe.DedupeWindow] | type[reference.DedupeWindow]
both = pytest.mark.parametrize("DedupeWindow", [dedupe.DedupeWindow, reference.DedupeWindow], ids=["compiled", "plain"])
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the CI machines are busy


def h(n: int) -> bytes:
    return n.to_bytes(16, "big")


@both
def test_an_id_is_known_until_its_window_ends(DedupeWindow: Window) -> None:
    window = DedupeWindow(100)
    window.add(h(1), 7, 1000)
    assert window.lookup(h(1), 1000) == 7
    assert window.lookup(h(1), 1099) == 7
    assert window.lookup(h(1), 1100) is None
    assert window.lookup(h(2), 1000) is None


@both
def test_an_id_may_come_again_after_its_window(DedupeWindow: Window) -> None:
    window = DedupeWindow(100)
    window.add(h(1), 1, 0)
    window.add(h(1), 2, 500)
    assert window.lookup(h(1), 550) == 2
    assert window.prune(550) == 0, "the old entry went with the add"
    assert len(window) == 1


@both
def test_a_roll_back_forgets_what_was_never_committed(DedupeWindow: Window) -> None:
    window = DedupeWindow(100)
    for seq in range(1, 11):
        window.add(h(seq), seq, seq)
    window.forget_above(4)
    assert [window.lookup(h(seq), 10) for seq in (4, 5, 10)] == [4, None, None]
    assert len(window) == 4
    window.add(h(5), 5, 11)
    assert window.lookup(h(5), 11) == 5


@both
def test_the_window_can_change(DedupeWindow: Window) -> None:
    window = DedupeWindow(100)
    window.add(h(1), 1, 0)
    window.window_ns = 10
    assert window.lookup(h(1), 50) is None
    window.window_ns = 1000
    assert window.lookup(h(1), 50) == 1, "not pruned yet, so it is known again"
    window.window_ns = 0
    window.add(h(2), 2, 50)
    assert len(window) == 0 and window.window_ns == 0
    assert window.lookup(h(2), 50) is None


@both
def test_memory_follows_the_window(DedupeWindow: Window) -> None:
    window = DedupeWindow(100)
    for n in range(10_000):
        window.add(h(n), n, n)
    assert len(window) <= 101
    assert window.prune(20_000, 50) == 50
    window.prune(20_000)
    assert len(window) == 0
    window.add(h(1), 1, 0)
    window.clear()
    assert len(window) == 0


@both
def test_a_clock_that_goes_back_keeps_every_answer_inside_the_window(DedupeWindow: Window) -> None:
    window = DedupeWindow(100)
    window.add(h(1), 1, 1000)
    window.add(h(2), 2, 900)
    assert window.lookup(h(2), 999) == 2
    assert window.lookup(h(2), 1000) is None
    assert window.lookup(h(1), 1000) == 1


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "prune", "rollback", "look"]), st.integers(0, 8), st.integers(0, 60))
)


@both
@relaxed
@given(steps=STEPS, window_ns=st.integers(1, 100))
def test_it_agrees_with_a_list_of_what_was_stored(
    DedupeWindow: Window,
    steps: list[tuple[str, int, int]],
    window_ns: int,
) -> None:
    window, stored, now, seq = DedupeWindow(window_ns), list[tuple[int, int, int]](), 0, 0
    for kind, key, passed in steps:
        now += passed
        known = [at for k, at, time in stored if k == key and now - time < window_ns]
        expected = known[-1] if known else None
        assert window.lookup(h(key), now) == expected
        if kind == "add" and expected is None:
            seq += 1
            window.add(h(key), seq, now)
            stored.append((key, seq, now))
        elif kind == "prune":
            window.prune(now)
            assert len(window) == len({k for k, _, time in stored if now - time < window_ns})
        elif kind == "rollback":
            seq = max(seq - key, 0)
            window.forget_above(seq)
            stored = [entry for entry in stored if entry[1] <= seq]


@relaxed
@given(
    st.lists(st.tuples(st.sampled_from(["add", "add", "add", "back", "prune"]), st.integers(0, 40), st.integers(0, 9)))
)
def test_both_halves_hold_the_same_when_ids_come_again(steps: list[tuple[str, int, int]]) -> None:
    """Also for an id that is added while it is known, which a stream never does."""
    ours, plain, now, seq = dedupe.DedupeWindow(50), reference.DedupeWindow(50), 0, 0
    for kind, key, passed in steps:
        now += passed
        for window in (ours, plain):
            if kind == "add":
                window.add(h(key), seq + 1, now)
            elif kind == "back":
                window.forget_above(max(seq - key % 4, 0))
            else:
                window.prune(now, key % 4)
        seq += kind == "add"
        assert len(ours) == len(plain)
        assert [ours.lookup(h(n), now) for n in range(41)] == [plain.lookup(h(n), now) for n in range(41)]


def test_memory_comes_back_when_the_rate_falls() -> None:
    window = dedupe.DedupeWindow(1000)
    for n in range(100_000):
        window.add(h(n), n + 1, 0)
    assert 100_000 * 48 < window.memory_size < 100_000 * 96
    assert window.lookup(h(99_999), 0) == 100_000 and len(window) == 100_000
    for n in range(100_000, 200_000):
        window.add(h(n), n + 1, 2000 + n // 100)
    assert window.memory_size < 100_000 * 96
    window.clear()
    assert window.memory_size < 10_000


def test_ids_are_loaded_in_bulk() -> None:
    marks = IdsAndExpiries([(1, 10, h(1), 0), (2, 20, None, 99), (3, 30, h(3), 0), (4, 40, h(1), 0)])
    window = dedupe.DedupeWindow(100)
    window.load(marks, 30, 50, 0)
    assert [window.lookup(h(n), 50) for n in (1, 2, 3)] == [4, None, 3]
    with pytest.raises(ValueError, match="16 bytes"):
        window.add(b"short", 1, 1)


def test_ids_with_a_time_that_is_still_to_come_count_from_the_load() -> None:
    """The machine's clock was set back since they were stored; it is 1000 ahead of the monotonic time."""
    window = dedupe.DedupeWindow(100)
    window.load(IdsAndExpiries([(1, 1010, h(1), 0), (2, 1060, h(2), 0), (3, 9999, h(3), 0)]), 0, 50, 1000)
    assert [window.lookup(h(n), 109) for n in (1, 2, 3)] == [1, 2, 3]
    assert [window.lookup(h(n), 110) for n in (1, 2, 3)] == [None, 2, 3]
    assert [window.lookup(h(n), 150) for n in (1, 2, 3)] == [None, None, None]


def test_marks_come_into_the_order_of_their_sequences() -> None:
    marks = IdsAndExpiries([(3, 30, h(3), 0), (1, 10, None, 50)])
    marks.extend([(3, 31, h(4), 7), (2, 20, h(2), 0)])
    marks.extend(IdsAndExpiries([(9, 90, None, 5)]))
    marks.put_in_order()
    found = list(marks)
    assert [mark[0] for mark in found] == [1, 2, 3, 9] and len(marks) == 4
    assert found[:2] == [(1, 10, None, 50), (2, 20, h(2), 0)] and marks.has_expiries()
    marks.clear()
    assert list(marks) == [] and not marks.has_expiries()
    with pytest.raises(ValueError, match="16 bytes"):
        marks.append(1, 1, b"short", 0)
