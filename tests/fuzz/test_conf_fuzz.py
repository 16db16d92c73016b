"""The configuration reader on anything at all: it reads it, or says what is wrong; it neither raises nor hangs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.server.conf.conf import ConfError, digest_of, parse_conf, read_conf
from penstock.server.conf.options_file import load_options

SECONDS_MAX = 5.0
EXAMPLES = max(400, int(os.environ.get("N") or 0) // 500)  # a campaign counts sessions, and these are slower
PIECES = st.sampled_from(
    [
        *"{}[]()=:,;#/'\"\\$.-\n\r\t \0",
        *(
            "a",
            "b",
            "port",
            "include",
            "include c.conf",
            "$a",
            "$b",
            "$E",
            "$2a$x",
            "//",
            "1",
            "1k",
            "10mb",
            "1.5",
            "1.2.3.4",
        ),
        *(
            "true",
            "no",
            "\\x4",
            "\\x41",
            "\\n",
            "(\n",
            "\n)\n",
            "2026-11-15T00:00:00Z",
            "2026-",
            "é",
            "\x80",
            "²",
            "users",
        ),
        *(
            "authorization",
            "accounts",
            "jetstream",
            "tls",
            "websocket",
            "cluster",
            "leafnodes",
            "listen",
            "ping_interval",
        ),
        *("user", "password", "nkey", "permissions", "publish", "allow_responses", "max_mem", "limits", "cert_file"),
        *("a: [", "a {", "}", "]", "{user: x}", "a: $a", "enabled", "-1", "'5s'"),
    ]
)
DOCUMENTS = st.one_of(
    st.text(), st.lists(PIECES, max_size=60).map("".join), st.lists(PIECES, max_size=60).map(" ".join)
)
# Found by fuzzing, and kept.
FOUND = [
    "²",
    "a: ²",
    "a: -²",
    "a: 1.²",
    "a: 1²",
    "a { /",
    "a { /}",
    "/",
    "a: 1 /",
    "{{",
    "{ }}",
    "a: [$a]",
    "\0",
    "a: \0",
    "a: '\0'",
    "include \0",
    "include '\0'",
    "a: (\n\0\n)\n",
    'a: "\\x',
    "a: \\",
    "a: 1\\x41",
    "a: 5'",
    "}",
    "} }",
    "a: }",
    "a: ]",
    "authorization: $a",
    "listen: ':'",
    "listen: ':" + "9" * 5000 + "'",
    "jetstream { max_mem: '" + "9" * 5000 + "K' }",
    "ping_interval: '" + "9" * 5000 + "s'",
    "ping_interval: '-+s'",
    "tls { cert_file: '', key_file: '' }",
    "websocket { port: 1, no_tls: true, allowed_origins: ['http://[x'] }",
    "authorization { users: [ {nkey: '" + "é" * 56 + "'} ] }",
]


def read_both_ways(text: str, folder: Path) -> None:
    started = time.monotonic()
    try:
        digest_of(parse_conf(text, {"E": text[:50], "F": "$E"}, "c.conf"))
    except ConfError as error:
        assert str(error)
    path = folder / "c.conf"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        load_options(str(path), {})
    except ConfError as error:
        assert str(error)
    assert time.monotonic() - started < SECONDS_MAX


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@settings(max_examples=EXAMPLES, deadline=None, database=None)
@given(text=DOCUMENTS)
def test_any_text_is_read_or_refused(text: str, folder: Path) -> None:
    read_both_ways(text, folder)


@settings(max_examples=EXAMPLES, deadline=None, database=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes, folder: Path) -> None:
    path = folder / "b.conf"
    path.write_bytes(data)
    try:
        read_conf(str(path), {})
    except ConfError as error:
        assert str(error)


@pytest.mark.parametrize("text", FOUND)
def test_cases_that_were_found_stay_found(text: str, folder: Path) -> None:
    read_both_ways(text, folder)


@pytest.mark.parametrize(
    "piece", ["a: 1\n", "# x\n", "a: 'x'\n", '"a": [1, 2 ],', "\\x41", "$a ", "[", "a: b{", "  \t", "a\n"]
)
def test_a_large_file_takes_time_in_proportion(piece: str) -> None:
    """A reader that looks back over what it has read would take minutes for these."""
    text = "k: " * (piece[0] in "\\$[ ") + piece * (300_000 // len(piece))
    started = time.monotonic()
    try:
        parse_conf(text, {}, "large.conf")
    except ConfError as error:
        assert str(error)
    assert time.monotonic() - started < SECONDS_MAX
