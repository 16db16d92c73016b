"""Subject transforms: what each function makes, what a transform keeps apart, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.subject import is_valid_name
from penstock.stream.transform import CACHED_MAX, BadTransform, SubjectTransform, check_destination, check_text


def made(src: str, dest: str, subject: str) -> str | None:
    found = SubjectTransform(src, dest).apply(subject.encode())
    return None if found is None else found.decode()


@pytest.mark.parametrize(
    ("src", "dest", "subject", "expected"),
    [
        ("t.*", "u.$1", "t.a", "u.a"),
        ("t.*.*", "u.{{wildcard(2)}}.{{wildcard(1)}}", "t.a.b", "u.b.a"),
        ("t.*", "u.{{ Wildcard( 1 ) }}", "t.a", "u.a"),
        ("t.>", "u.>", "t.a.b", "u.a.b"),
        ("t.*.>", "u.$1.x.>", "t.a.b.c", "u.a.x.b.c"),
        ("", "all.>", "t.a", "all.t.a"),
        (">", ">", "t.a", "t.a"),
        ("t.a", "u", "t.a", "u"),
        ("t.*", "u.$1", "t.a.b", None),
        ("t.*", "u.$1", "x.a", None),
        ("t.*", "u.$", "t.a", "u.$"),
        ("t.*", "u.$x", "t.a", "u.$x"),
        ("t.*", "u.$0", "t.a", "u.t"),
        ("t.*", "u.{{wildcard(1)}}x", "t.a", "u.{{wildcard(1)}}x"),
        ("t.*", "u.{{split(1,-)}}", "t.-a--b-", "u.a.b"),
        ("t.*", "u.{{split(1,)}}", "t.abc", "u.a.b.c"),
        ("t.*", "u.{{splitFromLeft(1,2)}}", "t.abcde", "u.ab.cde"),
        ("t.*", "u.{{splitFromRight(1,2)}}", "t.abcde", "u.abc.de"),
        ("t.*", "u.{{splitFromLeft(1,9)}}", "t.abcde", "u.abcde"),
        ("t.*", "u.{{sliceFromLeft(1,2)}}", "t.abcde", "u.ab.cd.e"),
        ("t.*", "u.{{sliceFromRight(1,2)}}", "t.abcde", "u.a.bc.de"),
        ("t.*", "u.{{sliceFromRight(1,2)}}", "t.abcd", "u.ab.cd"),
        ("t.*", "u.{{left(1,2)}}", "t.abcde", "u.ab"),
        ("t.*", "u.{{right(1,2)}}", "t.abcde", "u.de"),
        ("t.*", "u.{{left(1,0)}}", "t.abcde", "u.abcde"),
        ("t.*", "u.{{partition(0,1)}}", "t.abcde", "u.0"),
        ("t.*", "u.{{random(1)}}", "t.abcde", "u.0"),
        ("t.*", "u.{{random(0)}}", "t.abcde", "u.0"),
    ],
)
def test_what_a_transform_makes(src: str, dest: str, subject: str, expected: str | None) -> None:
    assert made(src, dest, subject) == expected


def test_a_partition_is_the_hash_that_other_servers_use() -> None:
    """FNV-1a, 32 bits, over the tokens in the order in which they are named."""
    parts = SubjectTransform("t.*.*", "{{partition(10,1)}}.{{partition(10,2,1)}}.{{partition(10)}}.$1.$2")
    assert parts.apply(b"t.cat.dog") == b"%d.%d.%d.cat.dog" % (fnv(b"cat"), fnv(b"dogcat"), fnv(b"t.cat.dog"))


def fnv(data: bytes) -> int:
    found = 2166136261
    for byte in data:
        found = (found ^ byte) * 16777619 % 2**32
    return found % 10


def test_a_random_token_is_drawn_each_time() -> None:
    draw = SubjectTransform("t.*", "u.{{random(1000)}}")
    assert len({draw.apply(b"t.a") for _ in range(50)}) > 10


@pytest.mark.parametrize(
    ("src", "dest", "text"),
    [
        ("t.*", "u.$2", "invalid mapping destination: wildcard index out of range in $2: [2]"),
        ("t.a", "$1", "invalid mapping destination: wildcard index out of range in $1"),
        ("t.*", "{{foo(1)}}", "invalid mapping destination: unknown function in {{foo(1)}}"),
        ("t.*", "{{wildcard()}}", "invalid mapping destination: not enough arguments passed to the function in {{wil"),
        ("t.*", "u.*", "invalid subject"),
        ("t.>", "u", "invalid subject"),
        ("t..a", "u", "invalid subject"),
        ("t.*", "u x", "invalid mapping destination: invalid transform"),
        ("t.*", "u..x", "invalid mapping destination: invalid transform"),
    ],
)
def test_what_makes_no_transform_is_refused_in_the_words_of_the_reference(src: str, dest: str, text: str) -> None:
    with pytest.raises(BadTransform) as caught:
        check_destination(src, dest)
    assert str(caught.value).startswith(text)


def test_transforms_are_values() -> None:
    assert SubjectTransform("", "u.>") == SubjectTransform(">", "u.>") != SubjectTransform(">", "v.>")
    assert len({SubjectTransform("t.*", "u.$1"), SubjectTransform("t.*", "u.$1")}) == 1
    assert repr(SubjectTransform("t.*", "u.$1")) == "SubjectTransform('t.*', 'u.$1')"


def test_memory_stays_bounded_with_many_subjects() -> None:
    transform = SubjectTransform("t.*", "u.$1")
    for n in range(2 * CACHED_MAX + 5):
        assert transform.apply(b"t.%d" % n) == b"u.%d" % n
    assert len(transform._cache) <= CACHED_MAX


@given(st.text("ab-.*>$", max_size=12).map(lambda text: text.encode()))
def test_any_subject_gives_a_name_or_nothing(subject: bytes) -> None:
    """`>>>.b` has no wildcard for a token, and its slices may be one."""
    for dest in ("u.$1", "u.{{split(1,-)}}x", "u.{{sliceFromRight(1,2)}}", "u.{{partition(3)}}"):
        found = SubjectTransform("*.b", dest).apply(subject)
        assert found is None or is_valid_name(found), (subject, dest)


@pytest.mark.parametrize("char", [chr(n) for n in range(256) if chr(n) not in ".*>{}"] + ["\u2028", "é", "€"])
def test_a_destination_has_no_character_that_no_subject_has(char: str) -> None:
    """What is refused here could be sent nowhere: a line end in it would end the line that a subscriber reads."""
    for dest in (f"a{char}b.>", f"{char}.>", f"a.$1{char}.>"):
        if is_valid_name(f"a{char}b"):
            check_text(dest)
        else:
            with pytest.raises(BadTransform):
                check_text(dest)
            with pytest.raises(BadTransform):
                check_destination("t.*.>", dest)


def test_the_text_of_a_function_is_no_part_of_the_subject() -> None:
    check_text("u.{{ wildcard( 1 ) }}.{{split(1, )}}")
