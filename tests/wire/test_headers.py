"""The header block: strict writing, reading of anything, and a lookup that needs no decoding."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import BadHeader
from penstock.wire.headers import Headers, decode, encode, find, remove, strip_status

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines that test are busy

KEYS = st.text(st.characters(min_codepoint=0x21, exclude_characters=":\x7f", exclude_categories=["Cs"]), min_size=1)
VALUES = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])).map(lambda text: text.lstrip(" "))
# Bytes that look like headers more often than chance would have it.
PIECES = st.sampled_from(
    [b"NATS/1.0", b"\r\n", b"\r", b"\n", b":", b" ", b"Key", b"Nats-Msg-Id", b"\xff", b"\0", b" 503"]
)
BLOCKS = st.one_of(
    st.binary(), st.lists(PIECES).map(b"".join), st.lists(PIECES).map(lambda p: b"NATS/1.0\r\n" + b"".join(p))
)


def test_a_block_is_written_as_the_protocol_has_it() -> None:
    assert encode({"A": "1", "B": ["2", b"3"]}) == b"NATS/1.0\r\nA: 1\r\nB: 2\r\nB: 3\r\n\r\n"
    assert encode({}) == encode(None) == encode({"A": []}) == b""
    assert encode({"A": ""}) == b"NATS/1.0\r\nA: \r\n\r\n"


def test_headers_are_read_in_order_with_their_case() -> None:
    headers = decode(b"NATS/1.0\r\nB:  x y \r\na:1\r\nB: 2\r\nA:\r\n\r\n")
    assert headers.is_valid
    assert list(headers) == ["B", "a", "A"]
    assert headers["B"] == headers.get_all("B") == ["x y ", "2"]
    assert (headers.get("B"), headers.get("b"), headers.get("A")) == ("x y ", None, "")
    assert len(headers) == 3 and "a" in headers and "b" not in headers
    assert headers == {"B": ["x y ", "2"], "a": ["1"], "A": [""]}
    assert dict(headers.items()) == headers.to_dict() == {key: headers[key] for key in headers.keys()}  # noqa: SIM118
    assert headers.get_all("none") == []
    with pytest.raises(KeyError):
        headers["none"]


def test_headers_cannot_be_changed() -> None:
    headers = decode(b"NATS/1.0\r\nA: 1\r\n\r\n")
    headers["A"].append("2")
    headers.to_dict()["A"].append("3")
    assert headers == {"A": ["1"]}
    with pytest.raises(AttributeError):
        headers.raw = b""
    assert pickle.loads(pickle.dumps(headers)) == headers
    assert hash(headers) == hash(decode(b"NATS/1.0\r\nA:1\r\n\r\n"))
    assert headers != 5 and repr(headers) == "Headers({'A': ['1']})"


def test_headers_that_were_read_are_written_as_they_came() -> None:
    raw = b"NATS/1.0\r\nB:  x \r\nA:1\r\n\r\n"
    assert encode(decode(raw)) == raw


@pytest.mark.parametrize("key", ["", "a b", "a:b", "a\r", "a\nb", "\t", "a\0", "\x7f", 5, None, b"a"])
def test_keys_that_would_break_the_block_are_refused(key: Any) -> None:
    with pytest.raises(BadHeader):
        encode({key: "1"})


@pytest.mark.parametrize("value", ["a\r\nB: 2", "a\n", "\r", b"a\nb", 5, None, ["a", "b\n"], [5], [["a"]]])
def test_values_that_would_break_the_block_are_refused(value: Any) -> None:
    with pytest.raises((BadHeader, TypeError)):
        encode({"A": value})


@pytest.mark.parametrize(
    "raw",
    [
        b"x",
        b"NATS/1.0",
        b"NATS/1.0\r\n",
        b"NATS/1.0\r\nA: 1",
        b"NATS/1.0\r\nA: 1\r\n",
        b"NATS/1.0\r\nA 1\r\n\r\n",
        b"NATS/1.0\r\n: 1\r\n\r\n",
        b"NATS/1.0\r\nA : 1\r\n\r\n",
        b"NATS/1.0\r\nA: 1\r\n\r\nB: 2\r\n\r\n",
        b"NATS/2.0\r\nA: 1\r\n\r\n",
        b"NATS/1.0x\r\nA: 1\r\n\r\n",
        b"A: 1\r\n\r\n",
    ],
)
def test_malformed_blocks_are_told_apart(raw: bytes) -> None:
    headers = decode(raw)
    assert not headers.is_valid
    assert headers.raw == raw
    assert "B" not in headers


@pytest.mark.parametrize(
    "raw", [b"", b"NATS/1.0\r\n\r\n", b"NATS/1.0 503\r\n\r\n", b"NATS/1.0 100 Idle\r\nA: 1\r\n\r\n"]
)
def test_blocks_with_a_status_or_nothing_are_valid(raw: bytes) -> None:
    assert decode(raw).is_valid


@relaxed
@given(st.dictionaries(KEYS, st.lists(VALUES, min_size=1)))
def test_what_is_written_is_read_back(headers: dict[str, list[str]]) -> None:
    raw = encode(headers)
    again = decode(raw)
    assert again == headers and again.is_valid
    assert list(again) == list(headers)
    for key, values in headers.items():
        assert find(raw, key.encode()) == values[0].encode()


@relaxed
@given(BLOCKS, st.sampled_from([b"Key", b"Nats-Msg-Id", b"", b":"]))
def test_any_bytes_can_be_read(raw: bytes, key: bytes) -> None:
    headers = decode(raw)
    assert headers.raw == raw
    for name in headers:
        assert find(raw, name.encode("utf-8", "surrogateescape")) == headers[name][0].encode("utf-8", "surrogateescape")
    if headers.is_valid:
        assert decode(encode(headers.to_dict())) == headers
    find(raw, key), strip_status(raw), decode(strip_status(raw))
    assert find(remove(raw, b"Key"), b"Key") is None or not raw.endswith(b"\r\n")


def test_find_needs_the_start_of_a_line_and_the_whole_key() -> None:
    raw = b"NATS/1.0\r\nX-Key: 1\r\nKey-X: 2\r\nA: Key: 3\r\nB: \nKey: 4\r\nKey : 5\r\nKey:   6 \r\nKey: 7\r\n\r\n"
    assert find(raw, b"Key") == b"6 "
    assert find(raw, b"key") is None
    assert find(raw, b"NATS/1.0") is None
    assert find(b"", b"Key") is None
    assert find(b"NATS/1.0\r\nKey: cut", b"Key") == b"cut"


def test_remove_takes_every_line_of_a_key() -> None:
    raw = b"NATS/1.0\r\nA: 1\r\nB: 2\r\nA: 3\r\n\r\n"
    assert remove(raw, b"A") == b"NATS/1.0\r\nB: 2\r\n\r\n"
    assert remove(remove(raw, b"A"), b"B") == b""
    assert remove(raw, b"C") == raw


def test_a_status_is_not_kept() -> None:
    assert strip_status(b"NATS/1.0 503 No\r\nA: 1\r\n\r\n") == b"NATS/1.0\r\nA: 1\r\n\r\n"
    assert strip_status(b"NATS/1.0 503\r\n\r\n") == b""
    assert strip_status(b"NATS/1.0\r\nA: 1\r\n\r\n") == b"NATS/1.0\r\nA: 1\r\n\r\n"
    assert isinstance(decode(b""), Headers)
