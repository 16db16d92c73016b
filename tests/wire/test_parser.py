"""The parser: both halves against each other; damaged bytes first, then every split of good ones."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.wire import parser as compiled
from twins import parser as reference

both_halves = pytest.mark.parametrize("kernel", [compiled, reference], ids=["compiled", "reference"])

# What odd commands are made of. Random bytes alone would seldom come past a verb.
PIECES = [
    *(b"PUB", b"HPUB", b"SUB", b"UNSUB", b"PING", b"PONG", b"CONNECT", b"INFO", b"+OK", b"-ERR", b"HMSG"),
    *(b"pub ", b"hPub ", b"PUB ", b"SUB\t", b"Unsub ", b"ping\n"),
    *(b" ", b"\t", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"\x00", b"\x0b", b"\x0d", b"\xff"),
    *(b"a", b"b.c", b">", b"{}", b"0", b"1", b"2", b"12", b"-1", b"+1", b"999999999", b"1000000000", b"xy"),
]
ODD = st.lists(st.sampled_from(PIECES) | st.binary(max_size=2), max_size=12).map(b"".join)
LIMITS = st.fixed_dictionaries(
    {
        "max_control_line": st.sampled_from([0, 1, 3, 8, 4096]),
        "max_payload": st.sampled_from([-1, 0, 1, 2, 1048576]),
        "headers_ok": st.booleans(),
    }
)

TOKEN = st.binary(min_size=1, max_size=9).filter(lambda token: not set(token) & set(b" \t\r\n"))
BLANKS = st.text(" \t", min_size=1, max_size=3).map(str.encode)
LINE_END = st.sampled_from([b"\r\n", b"\n", b" \r\n"])


def cased(draw: st.DrawFn, verb: bytes) -> bytes:
    return bytes(draw(st.sampled_from([byte, byte | 0x20])) if byte >= 0x40 else byte for byte in verb)


@st.composite
def commands(draw: st.DrawFn) -> tuple[bytes, dict[str, Any]]:
    """A good command in one of its spellings, and what it says."""
    op = draw(st.sampled_from(["PUB", "HPUB", "SUB", "UNSUB", "PING", "PONG", "CONNECT", "OK"]))
    if op in ("PING", "PONG", "OK"):
        tail = draw(st.binary(max_size=5)).replace(b"\n", b"")
        return cased(draw, b"+OK" if op == "OK" else op.encode()) + tail + b"\n", {"op": op}
    end = draw(LINE_END)
    if op == "CONNECT":
        text = draw(st.sampled_from([b"{}", b'{"verbose":false}']))
        spaces = b" " if end == b" \r\n" else b""
        return cased(draw, b"CONNECT") + draw(BLANKS) + text + end, {"op": op, "text": text + spaces}
    maybe = draw(st.none() | TOKEN)
    if op == "UNSUB":
        sid = draw(TOKEN)
        max_msgs = draw(st.none() | st.integers(0, 999_999_999))
        arguments = [sid] if max_msgs is None else [sid, b"%d" % max_msgs]
        fields: dict[str, Any] = {"op": op, "sid": sid, "max_msgs": max_msgs or 0}
    elif op == "SUB":
        subject, sid = draw(TOKEN), draw(TOKEN)
        arguments = [subject, *([maybe] if maybe else []), sid]
        fields = {"op": op, "subject": subject, "queue": maybe, "sid": sid}
    else:
        subject, payload = draw(TOKEN), draw(st.binary(max_size=20))
        headers = draw(st.binary(max_size=20)) if op == "HPUB" else None
        body = (headers or b"") + payload
        sizes = [b"%d" % len(headers)] if headers is not None else []
        arguments = [subject, *([maybe] if maybe else []), *sizes, b"%d" % len(body)]
        fields = {"op": "PUB", "subject": subject, "reply": maybe, "headers": headers, "payload": payload}
    line = cased(draw, op.encode()) + b"".join(draw(BLANKS) + argument for argument in arguments) + end
    return (line + body + b"\r\n" if op in ("PUB", "HPUB") else line), fields


def parse_all(kernel: ModuleType, chunks: list[bytes], **limits: Any) -> list[dict[str, Any]]:
    """Every command of a stream that comes in chunks, and the fault that ends it."""
    found: list[dict[str, Any]] = []
    buffer = b""
    for chunk in chunks:
        buffer += chunk
        while True:
            taken, fields = kernel.parse(buffer, **limits)
            if fields["op"] == "NONE":
                assert taken == 0
                assert fields["wanted"] == 0 or fields["wanted"] > len(buffer)
                break
            found.append(fields)
            if fields["op"] == "FAULT":
                assert taken == 0
                return found
            assert 0 < taken <= len(buffer)
            buffer = buffer[taken:]
    return found


@given(ODD, LIMITS)
@example(b"PUB \n", {"max_control_line": 0, "max_payload": 0, "headers_ok": True})
@example(b"HPUB a 1 0\r\n", {"max_control_line": 4096, "max_payload": 0, "headers_ok": False})
def test_the_halves_agree_on_damaged_bytes(data: bytes, limits: dict[str, Any]) -> None:
    assert compiled.parse(data, **limits) == reference.parse(data, **limits)


@both_halves
@given(data=ODD, cuts=st.lists(st.integers(0, 60), max_size=6), limits=LIMITS)
def test_damaged_bytes_say_the_same_however_they_are_split(
    kernel: ModuleType, data: bytes, cuts: list[int], limits: dict[str, Any]
) -> None:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[start:stop] for start, stop in pairwise(edges)]
    assert parse_all(kernel, chunks, **limits) == parse_all(kernel, [data], **limits)


@both_halves
@given(said=st.lists(commands(), max_size=4), cuts=st.lists(st.integers(0, 200), max_size=6))
def test_good_commands_are_read_however_they_are_spelled_and_split(
    kernel: ModuleType, said: list[tuple[bytes, dict[str, Any]]], cuts: list[int]
) -> None:
    data = b"".join(raw for raw, _ in said)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[start:stop] for start, stop in pairwise(edges)]
    assert parse_all(kernel, chunks) == [fields for _, fields in said]


@both_halves
@given(said=commands())
def test_every_prefix_of_a_good_command_wants_more(kernel: ModuleType, said: tuple[bytes, dict[str, Any]]) -> None:
    data, fields = said
    assert kernel.parse(data + b"PUB a 0\r\n\r\n") == (len(data), fields)
    for size in range(len(data)):
        taken, part = kernel.parse(data[:size])
        assert (taken, part["op"]) == (0, "NONE"), data[:size]
        assert part["wanted"] in (0, len(data))


@both_halves
def test_a_payload_says_how_much_is_wanted_once_its_line_is_there(kernel: ModuleType) -> None:
    assert kernel.parse(b"PUB a 1000\r") == (0, {"op": "NONE", "wanted": 0})
    assert kernel.parse(b"PUB a 1000\r\n") == (0, {"op": "NONE", "wanted": 1014})
    assert kernel.parse(b"PUB a 1000\r\n" + b"x" * 1001) == (0, {"op": "FAULT", "fault": "PARSE"})


@both_halves
@pytest.mark.parametrize(
    "verb", [b"PUB ", b"HPUB ", b"SUB ", b"UNSUB ", b"-ERR ", b"HMSG ", b"CONNECT", b"INFO", b"PING"]
)
def test_a_line_that_never_ends_is_refused_once_it_is_too_long(kernel: ModuleType, verb: bytes) -> None:
    """Else a client could have a server keep all it sends."""
    assert kernel.parse(verb + b"x" * 64, max_control_line=64)[1]["op"] == "NONE"
    assert kernel.parse(verb + b"x" * 65, max_control_line=64)[1] == {"op": "FAULT", "fault": "CONTROL_LINE"}
    assert kernel.parse(verb + b"x" * 65 + b"\r\n", max_control_line=64)[1] == {"op": "FAULT", "fault": "CONTROL_LINE"}
    if verb != b"PING":
        assert kernel.parse(verb + b" " * 66, max_control_line=64)[1] == {"op": "FAULT", "fault": "CONTROL_LINE"}


@both_halves
def test_a_limit_below_0_lets_any_payload_pass(kernel: ModuleType) -> None:
    assert kernel.parse(b"PUB a 999999999\r\n", max_payload=-1)[1] == {"op": "NONE", "wanted": 17 + 999_999_999 + 2}
    assert kernel.parse(b"PUB a 1\r\n", max_payload=0)[1] == {"op": "FAULT", "fault": "PAYLOAD"}


@both_halves
def test_the_halves_name_ops_and_faults_alike(kernel: ModuleType) -> None:
    assert kernel.OPS == reference.OPS
    assert kernel.FAULTS == reference.FAULTS


@pytest.mark.parametrize("total", [0, 9, 10, 99, 100, 1_048_576, 2**32, 2**64 - 1])
def test_the_line_before_a_message_says_its_sizes(total: int) -> None:
    assert compiled.format_msg_line(b"a.b", b"7", b"", -1, total) == b"MSG a.b 7 %d\r\n" % total
    assert compiled.format_msg_line(b"a.b", b"7", b"r", -1, total) == b"MSG a.b 7 r %d\r\n" % total
    assert compiled.format_msg_line(b"a.b", b"7", b"r", 0, total) == b"HMSG a.b 7 r 0 %d\r\n" % total
    assert compiled.format_msg_line(b"a.b", b"7", b"", total >> 1, total) == b"HMSG a.b 7 %d %d\r\n" % (
        total >> 1,
        total,
    )
