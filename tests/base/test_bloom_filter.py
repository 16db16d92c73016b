"""The Bloom filter of subjects: both halves build the same bytes, and it never says no wrongly."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base import bloom_filter as compiled
from twins import bloom_filter as plain
from twins import subject as rules

halves = pytest.mark.parametrize("half", [compiled, plain])

tokens = st.sampled_from(["a", "b", "c", "eu", "us", "x1", "größe"])
names = st.lists(st.one_of(tokens, st.sampled_from("*>")), min_size=1, max_size=11).map(".".join)
filters = st.lists(st.one_of(tokens, st.just("*")), min_size=1, max_size=11).flatmap(
    lambda parts: st.sampled_from([".".join(parts), ".".join([*parts, ">"]), ">"])
)


@halves
@pytest.mark.parametrize(
    "damaged", [b"", b"\x06", b"\x06" + bytes(63), b"\x05" + bytes(32), b"\x0d" + bytes(8192), b"\xff"]
)
def test_what_is_no_filter_excludes_nothing(half: ModuleType, damaged: bytes) -> None:
    assert half.may_match(damaged, "a.b") and half.may_match(damaged, b"a.*")


@halves
def test_text_that_has_no_utf8_form_excludes_nothing(half: ModuleType) -> None:
    assert half.may_match(half.build_filter(["a"]), "\ud800")


@given(st.lists(names, max_size=40), filters)
@settings(deadline=None)
def test_it_never_says_no_to_a_filter_that_matches(subjects: list[str], pattern: str) -> None:
    built = compiled.build_filter(subjects)
    assert built == plain.build_filter(subjects)
    answer = compiled.may_match(built, pattern)
    assert answer == plain.may_match(built, pattern)
    assert answer or not any(rules.matches(subject, pattern) for subject in subjects)


@given(st.lists(st.binary(max_size=30), max_size=20), st.binary(max_size=30))
@settings(deadline=None)
def test_any_bytes_are_a_name(subjects: list[bytes], pattern: bytes) -> None:
    built = compiled.build_filter(subjects)
    assert built == plain.build_filter(subjects)
    assert compiled.may_match(built, pattern) == plain.may_match(built, pattern)
    assert all(compiled.may_match(built, subject) for subject in subjects)


@pytest.mark.parametrize(
    ("count", "size"), [(0, 64), (20, 64), (63, 64), (64, 128), (1000, 1024), (4000, 4096), (9000, 4096)]
)
def test_the_size_follows_the_number_of_items(count: int, size: int) -> None:
    subjects = [f"a.{n}" for n in range(count)]
    built = compiled.build_filter(subjects)
    assert len(built) == 1 + size and built == plain.build_filter(subjects)


@halves
def test_it_skips_most_of_what_is_not_there(half: ModuleType) -> None:
    built = half.build_filter([f"orders.eu.{n}" for n in range(1000)])
    assert not half.may_match(built, "trades.>") and not half.may_match(built, "orders.us.*")
    assert half.may_match(built, "orders.*.7") and half.may_match(built, "*.eu.7") and half.may_match(built, ">")
    wrong = sum(half.may_match(built, f"orders.eu.{n}") for n in range(1000, 3000))
    assert wrong < 2000 * 0.06


def test_a_builder_begins_again() -> None:
    builder = compiled.FilterBuilder()
    builder.put("a.b")
    builder.put(b"a.b")
    assert builder.count == 2 and builder.finish() == plain.build_filter(["a.b"])
    builder.clear()
    assert builder.count == 0 and builder.finish() == plain.build_filter([])
