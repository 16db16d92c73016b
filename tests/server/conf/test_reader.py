"""The reader of nats-server's configuration format: what it understands, and how it says what it does not."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.server.conf.conf import ConfError, Node, parse_conf, read_conf
from penstock.server.conf.tree import DEPTH_MAX, NODES_MAX


def plain(value: Any) -> Any:
    """The tree without its places."""
    if isinstance(value, Node):
        return plain(value.value)
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def read(text: str, **environment: str) -> Any:
    return plain(parse_conf(text, environment, "test.conf"))


def why(text: str, **environment: str) -> str:
    with pytest.raises(ConfError) as caught:
        parse_conf(text, environment, "test.conf")
    return str(caught.value)


@pytest.mark.parametrize(
    "text", ["a = 1", "a: 1", "a 1", "a=1", "a:1", "a: 1;", "a: 1,", "{a: 1}", "a\n1", '"a" = 1', "'a' 1"]
)
def test_a_key_and_its_value_are_parted_in_many_ways(text: str) -> None:
    assert read(text) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1k", 1000),
        ("1kb", 1024),
        ("1KiB", 1024),
        ("2m", 2_000_000),
        ("2MB", 2 * 1024**2),
        ("3Gi", 3 * 1024**3),
        ("1t", 10**12),
        ("1pb", 1024**5),
        ("1e", 10**18),
        ("-5", -5),
        ("-1k", -1000),
        ("2.5", 2.5),
        ("-2.5", -2.5),
        ("true", True),
        ("YES", True),
        ("on", True),
        ("off", False),
        ("No", False),
        ("hello", "hello"),
        ("'true'", "true"),
        ('"$X"', "$X"),
        ("10s", "10s"),
        ("'1m30s'", "1m30s"),
        ("127.0.0.1:4222", "127.0.0.1:4222"),
        ("nats://a:1", "nats://a:1"),
        ("foo.bar.>", "foo.bar.>"),
        ('"a\\tb\\x41\\"\\\\"', 'a\tbA"\\'),
        ("'a\\tb'", "a\\tb"),
        ('"grün"', "grün"),
        ('"gr\\xc3\\xbcn"', "grün"),
        ("$2a$10$abc/def.", "$2a$10$abc/def."),
        ("2026-11-15T15:04:05Z", datetime(2026, 11, 15, 15, 4, 5, tzinfo=UTC)),
        ("(\nline one\n  line two\n)\n", "\nline one\n  line two\n"),
        ("[]", []),
        ("{}", {}),
        ("[1, 2 ]", [1, 2]),
        ("[1]", [1]),
        ("[a\nb\n]", ["a", "b"]),
        ("[{a: 1}, {a: 2}]", [{"a": 1}, {"a": 2}]),
        ("{b: {c: [x]}}", {"b": {"c": ["x"]}}),
    ],
)
def test_values_have_the_reference_s_types(text: str, value: Any) -> None:
    assert read(f"key: {text}") == {"key": value}
    assert type(read(f"key: {text}")["key"]) is type(value)


def test_comments_stand_anywhere_between_things() -> None:
    text = "# one\na: 1 # two\n// three\nb { # four\n c: 2 // five\n # six\n d: [ # seven\n 1 # eight\n 2 ]\n}\n# nine"
    assert read(text) == {"a": 1, "b": {"c": 2, "d": [1, 2]}}


def test_an_url_is_no_comment() -> None:
    assert read("a: http://x/y") == {"a": "http://x/y"}


def test_a_variable_is_a_key_of_this_block_or_of_one_around_it() -> None:
    assert read("A: 1\nb { A: 2\n c: $A\n d { e: $A } }\nf: $A") == {
        "A": 1,
        "b": {"A": 2, "c": 2, "d": {"e": 2}},
        "f": 1,
    }


def test_a_variable_may_come_from_the_environment_with_its_type() -> None:
    assert read("a: $N\nb: $T\nc: $L", N="5mb", T="text", L="[1, 2 ]") == {"a": 5 * 1024**2, "b": "text", "c": [1, 2]}


def test_a_variable_of_the_environment_may_name_another_but_not_itself() -> None:
    assert read("a: $A", A="$B", B="7") == {"a": 7}
    assert "variable reference cycle for 'A'" in why("a: $A", A="$B", B="$A")


def test_a_variable_that_nobody_knows_is_an_error_with_its_line() -> None:
    assert why("x: 1\na: $NOPE") == "variable reference for 'NOPE' on line 2 can not be found (test.conf:2:4)"


def test_a_value_knows_its_place() -> None:
    tree = parse_conf("a: 1\n\n  b {\n    c: [ x,\n y ]\n}", {}, "f.conf")
    inner = plain_map(tree["b"])
    assert (tree["a"].place, tree["b"].place, inner["c"].place) == ("f.conf:1:0", "f.conf:3:3", "f.conf:4:5")
    items = inner["c"].value
    assert isinstance(items, list)
    assert [item.place for item in items] == ["f.conf:4:10", "f.conf:5:2"]


def plain_map(node: Node) -> dict[str, Node]:
    assert isinstance(node.value, dict)
    return node.value


def test_files_include_others_by_paths_from_where_they_stand(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "main.conf").write_text("a: 1\ninclude sub/one.conf\nm { include 'sub/two.conf'\n x: 1 }\nlast: $b\n")
    (tmp_path / "sub" / "one.conf").write_text('b: 2\ninclude "two.conf"\n')
    (tmp_path / "sub" / "two.conf").write_text("c: 3\n")
    tree = read_conf(str(tmp_path / "main.conf"), {})
    assert plain(tree) == {"a": 1, "b": 2, "c": 3, "m": {"c": 3, "x": 1}, "last": 2}
    assert tree["c"].place == f"{tmp_path}/sub/two.conf:1:0"


def test_a_file_that_includes_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("include b.conf\n")
    (tmp_path / "b.conf").write_text("include ./a.conf\n")
    with pytest.raises(ConfError, match=r"include cycle: .*a.conf includes .*b.conf includes .*a.conf"):
        read_conf(str(tmp_path / "a.conf"), {})


def test_files_that_include_each_other_without_end_are_bounded(tmp_path: Path) -> None:
    """Each file includes the next one twice: 2**30 readings without a bound."""
    for n in range(30):
        (tmp_path / f"c{n}").write_text(f"include c{n + 1}\n" * 2)
    (tmp_path / "c30").write_text("a: 1\n")
    with pytest.raises(ConfError, match="more than 1000 files are included"):
        read_conf(str(tmp_path / "c0"), {})


def test_a_pipe_without_a_writer_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.conf").write_text("include pipe\n")
    with pytest.raises(ConfError, match="pipe is not a regular file"):
        read_conf(str(tmp_path / "a.conf"), {})


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfError, match=r"^open .*/nope.conf: no such file or directory$"):
        read_conf(str(tmp_path / "nope.conf"), {})
    with pytest.raises(ConfError, match="is a directory"):
        read_conf(str(tmp_path), {})


def test_variables_that_multiply_each_other_are_bounded() -> None:
    """Ten of the one before, twenty times: 10**20 values without a bound."""
    lines = ["a0: [x]"] + [f"a{n}: [{', '.join([f'$a{n - 1}'] * 10)}]" for n in range(1, 21)]
    assert f"more than {NODES_MAX} values" in why("\n".join(lines))


@pytest.mark.parametrize("text", ["a: " + "[" * 100_000, "a {" * 5000, "{" * 5000, "a: [{" * 3000])
def test_nesting_is_bounded(text: str) -> None:
    assert f"nested deeper than {DEPTH_MAX}" in why(text)


def test_variables_cannot_nest_deeper_either() -> None:
    lines = ["a0: [x]"] + [f"a{n}: [$a{n - 1}]" for n in range(1, 200)]
    assert f"nested deeper than {DEPTH_MAX}" in why("\n".join(lines))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 99999999999999999999", "integer '99999999999999999999' is out of the range"),
        ("a: 9999999p", "integer '9999999p' is out of the range"),
        ("a: " + "9" * 5000, "is out of the range"),
        ("a: 1" + "0" * 400 + ".5", "is out of the range"),
        ("a: 1kbb", "expected integer, but got '1kbb'"),
        ("a: 2026-13-45T00:00:00Z", "expected Zulu formatted DateTime, but got '2026-13-45T00:00:00Z'"),
        ("a { b }", "The key 'b' has no value"),
        ("a", "config is invalid (test.conf:1:1)"),
        ("a { b: 1", 'Expected a map value terminator "," or a map terminator "}"'),
        ("include [x]", "Expected include value but found start of an array"),
        ('include "x', "Unexpected EOF in double quoted include"),
    ],
)
def test_mistakes_are_told_with_their_place(text: str, message: str) -> None:
    told = why(text)
    assert message in told
    assert "test.conf:1:" in told
