"""Subjects and filters: both halves against each other, and against models that try every subject."""

from __future__ import annotations

import itertools
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.base import subject as compiled
from twins import subject as reference

pytestmark = pytest.mark.parametrize("kernel", [compiled, reference], ids=["compiled", "reference"])

# Bytes around the dot, the wildcards and the limits of what a token may hold.
ANY_BYTES = st.lists(st.sampled_from([*b".*>ab-/", 0x20, 0x21, 0x7F, 0x80, 0xFF, 0]), max_size=12).map(bytes)
TOKENS = [b"a", b"b", b"*", b">", b"a*", b""]
DOTTED = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=5).map(b".".join)
FILTERS = DOTTED.filter(reference.is_valid_filter)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "it is empty"),
        (b"a" * 65536, "it is longer than 65535 bytes"),
        (b".", "it has an empty token"),
        (b"a.", "it has an empty token"),
        (b".a", "it has an empty token"),
        (b"a..b", "it has an empty token"),
        (b"a b", "it has a blank or a control character"),
        (b"a.\x00", "it has a blank or a control character"),
        (b"a.\t", "it has a blank or a control character"),
        (b"a\x7f", "it has a blank or a control character"),
        (b">.a", "it has a '>' that is not the last token"),
    ],
)
def test_what_is_no_filter_is_refused_with_its_reason(kernel: ModuleType, text: bytes, reason: str) -> None:
    assert not kernel.is_valid_filter(text)
    assert kernel.explain_filter(text) == reason
    assert not kernel.is_valid_subject(text)
    with pytest.raises(ValueError, match="filter 1, ") as raised:
        kernel.Filters([b"fine", text])
    assert str(raised.value).endswith(f": {reason}")
    assert len(str(raised.value)) < 600


def test_text_without_a_utf8_form_is_no_subject(kernel: ModuleType) -> None:
    assert not kernel.is_valid_subject("a.\ud800")
    assert not kernel.is_valid_filter("\udcff")
    with pytest.raises(ValueError, match="surrogates"):
        kernel.Filters(["\udcff"])


@pytest.mark.parametrize("wrong", [None, 5, ["a"], bytearray(b"a")])
def test_other_types_are_refused(kernel: ModuleType, wrong: object) -> None:
    with pytest.raises(TypeError):
        kernel.is_valid_subject(wrong)
    with pytest.raises(TypeError):
        kernel.Filters([wrong])


def test_a_single_filter_is_not_taken_for_a_list_of_letters(kernel: ModuleType) -> None:
    with pytest.raises(TypeError):
        kernel.Filters("orders")
    with pytest.raises(TypeError):
        kernel.Filters(b"orders")


@pytest.mark.parametrize(
    "text", ["a", "a.b", "a*", "*a.b>", "ä.ö", "$JS.API", "a" * 65535, b"\xff\xfe.\x80", "a.>>", "**"]
)
def test_these_are_subjects(kernel: ModuleType, text: bytes | str) -> None:
    assert kernel.is_valid_subject(text)
    assert kernel.is_valid_filter(text)
    assert kernel.is_literal_filter(text)
    assert kernel.matches(text, text)


@pytest.mark.parametrize("text", ["*", ">", "a.*", "*.a", "a.>", "*.*.>"])
def test_wildcards_are_for_filters_only(kernel: ModuleType, text: str) -> None:
    assert kernel.is_valid_filter(text)
    assert not kernel.is_literal_filter(text)
    assert not kernel.is_valid_subject(text)
    assert kernel.explain_subject(text) == "it has a wildcard token"


@pytest.mark.parametrize(
    ("subject", "pattern", "expected"),
    [
        ("a", ">", True),
        ("a.b.c", ">", True),
        ("a", "a.>", False),
        ("a.b", "a.>", True),
        ("a.b.c", "a.>", True),
        ("ab.c", "a.>", False),
        ("a.b", "*", False),
        ("a.b", "a.*", True),
        ("a.b.c", "a.*", False),
        ("a.b.c", "a.*.c", True),
        ("a.b.c", "*.*.*", True),
        ("a.b.c", "*.*.>", True),
        ("a.b", "*.*.>", False),
        ("a.b", "a.b.*", False),
        ("a.bc", "a.b", False),
        ("a.b", "a.bc", False),
        ("a.*b", "a.*b", True),
        ("a.xb", "a.*b", False),
        ("a.>b", "a.>b", True),
        ("ä.b", "*.b", True),
    ],
)
def test_a_filter_matches_whole_tokens(kernel: ModuleType, subject: str, pattern: str, expected: bool) -> None:
    assert kernel.matches(subject, pattern) is expected
    assert kernel.matches(subject.encode(), pattern.encode()) is expected
    assert kernel.Filters([pattern]).match(subject) is expected


@given(text=ANY_BYTES)
def test_any_bytes_are_judged_alike_by_both_halves(kernel: ModuleType, text: bytes) -> None:
    for name in ("is_valid_subject", "is_valid_filter", "is_literal_filter", "explain_subject", "explain_filter"):
        assert getattr(kernel, name)(text) == getattr(reference, name)(text)


@given(one=st.one_of(ANY_BYTES, DOTTED), other=st.one_of(ANY_BYTES, DOTTED))
@example(one=b"", other=b"")
@example(one=b"a.", other=b"a.>")
def test_any_bytes_match_cover_and_overlap_alike(kernel: ModuleType, one: bytes, other: bytes) -> None:
    for name in ("matches", "covers", "overlap"):
        assert getattr(kernel, name)(one, other) is getattr(reference, name)(one, other)


# Every subject of up to five tokens over an alphabet with a token that no filter names.
SUBJECTS = [b".".join(tokens) for n in range(1, 6) for tokens in itertools.product([b"a", b"b", b"z"], repeat=n)]
SMALL_FILTERS = st.lists(st.sampled_from([b"a", b"b", b"*", b">"]), min_size=1, max_size=3)


@given(a=SMALL_FILTERS.map(b".".join), b=SMALL_FILTERS.map(b".".join))
def test_cover_and_overlap_mean_what_they_say_of_every_subject(kernel: ModuleType, a: bytes, b: bytes) -> None:
    if not (kernel.is_valid_filter(a) and kernel.is_valid_filter(b)):
        return
    by_a = {subject for subject in SUBJECTS if kernel.matches(subject, a)}
    by_b = {subject for subject in SUBJECTS if kernel.matches(subject, b)}
    assert kernel.covers(a, b) == (by_b <= by_a)
    assert kernel.overlap(a, b) == bool(by_a & by_b)


@given(filters=st.lists(FILTERS, max_size=4), subject=st.one_of(DOTTED, ANY_BYTES))
def test_a_list_of_filters_matches_where_one_of_them_does(
    kernel: ModuleType, filters: list[bytes], subject: bytes
) -> None:
    packed = kernel.Filters(filters)
    assert packed.count == len(packed) == len(filters)
    assert packed.is_all == (not filters or b">" in filters)
    assert packed.is_literal == (len(filters) == 1 and kernel.is_literal_filter(filters[0]))
    assert packed.match(subject) == (packed.is_all or any(kernel.matches(subject, text) for text in filters))
    assert repr(packed) == f"Filters({filters!r})"


def test_no_filters_mean_everything(kernel: ModuleType) -> None:
    assert kernel.Filters().is_all
    assert kernel.Filters([]).match("a.b")
    assert kernel.Filters(["a", ">"]).match("z")


@given(DOTTED | ANY_BYTES, st.lists(DOTTED, max_size=4))
def test_the_name_of_a_subject_means_that_subject_alone(kernel: ModuleType, name: bytes, others: list[bytes]) -> None:
    """A stored subject may have a wildcard for a token; asked for by name, what it would match is another matter."""
    tokens = name.split(b".")
    is_name = all(token and all(byte > 0x20 and byte != 0x7F for byte in token) for token in tokens)
    assert kernel.is_valid_name(name) is is_name
    if not is_name:
        with pytest.raises(ValueError, match="filter 0"):
            kernel.Filters([name], exact=True)
        return
    alone = kernel.Filters([name], exact=True)
    assert alone.is_literal and not alone.is_all
    assert [alone.match(other) for other in [name, *others]] == [True, *(other == name for other in others)]
