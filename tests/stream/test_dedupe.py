"""The duplicate window: right at its edges, right after a roll back, and the same as a simple model."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.stream.dedupe import DedupeWindow

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines that test are busy


def h(n: int) -> bytes:
    return n.to_bytes(16, "big")


def test_an_id_is_known_until_its_window_ends() -> None:
    window = DedupeWindow(100)
    window.add(h(1), 7, 1000)
    assert window.lookup(h(1), 1000) == 7
    assert window.lookup(h(1), 1099) == 7
    assert window.lookup(h(1), 1100) is None
    assert window.lookup(h(2), 1000) is None


def test_an_id_may_come_again_after_its_window() -> None:
    window = DedupeWindow(100)
    window.add(h(1), 1, 0)
    window.add(h(1), 2, 500)
    assert window.lookup(h(1), 550) == 2
    assert window.prune(550) == 0, "the old entry went with the add"
    assert len(window) == 1


def test_a_roll_back_forgets_what_was_never_committed() -> None:
    window = DedupeWindow(100)
    for seq in range(1, 11):
        window.add(h(seq), seq, seq)
    window.forget_above(4)
    assert [window.lookup(h(seq), 10) for seq in (4, 5, 10)] == [4, None, None]
    assert len(window) == 4
    window.add(h(5), 5, 11)
    assert window.lookup(h(5), 11) == 5


def test_the_window_can_change() -> None:
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


def test_memory_follows_the_window() -> None:
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


def test_a_clock_that_goes_back_keeps_every_answer_inside_the_window() -> None:
    window = DedupeWindow(100)
    window.add(h(1), 1, 1000)
    window.add(h(2), 2, 900)
    assert window.lookup(h(2), 999) == 2
    assert window.lookup(h(2), 1000) is None
    assert window.lookup(h(1), 1000) == 1


STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "prune", "rollback", "look"]), st.integers(0, 8), st.integers(0, 60))
)


@relaxed
@given(STEPS, st.integers(1, 100))
def test_it_agrees_with_a_list_of_what_was_stored(steps: list[tuple[str, int, int]], window_ns: int) -> None:
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
