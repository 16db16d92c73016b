"""Which of many filters overlap: the compiled search against each compared with each other."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.subject import Filters, any_overlap, first_overlap
from twins.subject import overlap

FILTERS = st.builds(
    lambda tokens, tail: ".".join([*tokens, ">"] if tail else tokens),
    st.lists(st.sampled_from(["a", "b", "ab", "*"]), min_size=1, max_size=4),
    st.booleans(),
)


@settings(deadline=None, max_examples=400)
@given(st.lists(FILTERS, max_size=8))
def test_the_first_two_that_overlap_are_found(filters: list[str]) -> None:
    pairs = ((i, j) for i in range(len(filters)) for j in range(i + 1, len(filters)))
    expected = next(((i, j) for i, j in pairs if overlap(filters[i], filters[j])), None)
    assert first_overlap(Filters(filters)) == expected


@settings(deadline=None, max_examples=400)
@given(st.lists(FILTERS, max_size=5), st.lists(FILTERS, max_size=5))
def test_two_lists_overlap_where_two_of_them_do(some: list[str], others: list[str]) -> None:
    assert any_overlap(Filters(some), Filters(others)) == any(overlap(a, b) for a in some for b in others)


def test_sixty_thousand_literals_take_no_time() -> None:
    """A request may hold as many: compared in Python, they held the server up for half an hour."""
    began = time.perf_counter()
    names = [f"b.{n}" for n in range(60_000)]
    assert first_overlap(Filters([*names, "b.7"])) == (7, 60_000)
    assert first_overlap(Filters([*names, "b.*"])) == (0, 60_000)
    assert first_overlap(Filters(names)) is None
    assert time.perf_counter() - began < 5
