"""JSON requests as Go's decoder reads them: every text here was answered by nats-server 2.15.1."""

from __future__ import annotations

import re
import time

import pytest

from penstock.errors import InvalidJson
from penstock.wire.go_decode import Struct, decode, decode_one, is_empty_object

GET = Struct(
    "server.JSApiMsgGetRequest",
    {
        "seq": "uint64",
        "last_by_subj": "string",
        "batch": "int",
        "start_time": "time.Time",
        "multi_last": "[]string",
        "no_hdr": "bool",
    },
)


@pytest.mark.parametrize(
    "raw, why",
    [
        (b"[", "unexpected EOF"),
        (b"{", "unexpected EOF"),
        (b'{"seq"', "unexpected EOF"),
        (b"{} x", "invalid character 'x' looking for beginning of value at offset 4"),
        (b"x", "invalid character 'x' looking for beginning of value at offset 1"),
        (b"{x}", "invalid character 'x' looking for beginning of object key string at offset 2"),
        (b'{"seq" 1}', "invalid character '1' after object key at offset 8"),
        (b'{"seq":1 "a"}', "invalid character '\"' after object key:value pair at offset 10"),
        (b'{"seq":1,}', "invalid character '}' looking for beginning of object key string at offset 10"),
        (b'{"multi_last":["a" "b"]}', "invalid character '\"' after array element at offset 20"),
        (b'{"seq":tru}', "invalid character '}' in literal true (expecting 'e') at offset 11"),
        (b'{"seq":-}', "invalid character '}' in numeric literal at offset 9"),
        (b'{"seq":1.}', "invalid character '}' in numeric literal at offset 10"),
        (b'{"seq":1e}', "invalid character '}' in numeric literal at offset 10"),
        (b'{"last_by_subj":"\n"}', "invalid character '\\n' in string at offset 18"),
        (b'{"last_by_subj":"\\x"}', "invalid escape sequence `\\x` in string at offset 19"),
        (b'{"last_by_subj":"\\u12g4"}', "invalid escape sequence `\\u12g4` in string at offset 23"),
        (b"{'seq':1}", "invalid character '\\'' looking for beginning of object key string at offset 2"),
        (b'{"foo":1}', 'json: unknown field "foo"'),
        (b"[]", "json: cannot unmarshal array into Go value of type server.JSApiMsgGetRequest"),
        (b'{"seq":"a"}', "json: cannot unmarshal string into Go struct field JSApiMsgGetRequest.seq of type uint64"),
        (b'{"seq":-1}', "json: cannot unmarshal number -1 into Go struct field JSApiMsgGetRequest.seq of type uint64"),
        (
            b'{"start_time":5}',
            "json: cannot unmarshal number into Go struct field JSApiMsgGetRequest.start_time of type time.Time",
        ),
        (
            b'{"start_time":"20x"}',
            'parsing time "20x" as "2006-01-02T15:04:05Z07:00": cannot parse "20x" as "2006"',
        ),
        (
            b'{"start_time":"2026-11-15T15:00:00"}',
            'parsing time "2026-11-15T15:00:00" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00"',
        ),
        (b'{"start_time":"2026-13-15T15:00:00Z"}', 'parsing time "2026-13-15T15:00:00Z": month out of range'),
        (b'{"start_time":"2026-02-30T15:00:00Z"}', 'parsing time "2026-02-30T15:00:00Z": day out of range'),
        (b'{"start_time":"2026-13-15T5:00:00Z"}', 'parsing time "2026-13-15T5:00:00Z": month out of range'),
        (b'{"foo":1,"start_time":"x"}', 'json: unknown field "foo"'),
        (b'{"batch":"z","q":1}',
         "json: cannot unmarshal string into Go struct field JSApiMsgGetRequest.batch of type int"),
        (b'{"start_time":"2026-11-15T15:00:00+25:00"}',
         'parsing time "2026-11-15T15:00:00+25:00": time zone offset hour out of range'),
    ],
)  # fmt: skip
def test_what_go_refuses_is_refused_in_its_words(raw: bytes, why: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        decode(raw, GET)
    assert caught.value.description == f"invalid JSON: {why}"


@pytest.mark.parametrize(
    "raw, fields",
    [
        (b"", {}),
        (b" \n", {}),
        (b"null", {}),
        (b"{}", {}),
        (b'{"SEQ":3}', {"seq": 3}),
        (b'{"seq":1,"seq":2}', {"seq": 2}),
        (b'{"seq":null,"no_hdr":true}', {"no_hdr": True}),
        (b'{"seq":1}{"batch":2}', {"seq": 1, "batch": 2}),
        (b'{"multi_last":["a",null]}', {"multi_last": ("a", "")}),
        (b'{"start_time":"1970-01-01T00:00:01Z"}', {"start_time": 10**9}),
        (b'{"start_time":"1970-01-01T0:00:01,5Z"}', {"start_time": 1_500_000_000}),
    ],
)
def test_what_go_takes_is_taken(raw: bytes, fields: dict[str, object]) -> None:
    assert decode(raw, GET) == fields


def test_without_strict_unknown_fields_are_left_out() -> None:
    assert decode(b'{"foo":[1,{"a":2}],"seq":4}', GET, strict=False) == {"seq": 4}
    with pytest.raises(InvalidJson, match="unexpected end of JSON input"):
        decode(b'{"foo":', GET, strict=False)
    with pytest.raises(InvalidJson, match="invalid character 'x' after top-level value"):
        decode(b'{"seq":1} x', GET, strict=False)


def test_null_in_a_map_is_an_empty_text() -> None:
    texts = Struct("server.Texts", {"metadata": "map[string]string"})
    assert decode(b'{"metadata":{"a":null,"b":"c"}}', texts) == {"metadata": {"a": "", "b": "c"}}


@pytest.mark.parametrize("raw", [b"[" * 1_000_000, b'{"a":' * 200_000, b'["a",' * 200_000])
def test_a_bomb_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidJson):
        decode(raw, GET)
    with pytest.raises(InvalidJson):
        decode_one(raw, GET)
    assert not is_empty_object(raw)


def test_only_an_object_without_fields_is_empty() -> None:
    assert is_empty_object(b"{}") and is_empty_object(b" { } ")
    assert not any(map(is_empty_object, (b"", b" ", b"[]", b"null", b'{"a":1}', b"{} {}", b"x")))


M = 1 << 20


@pytest.mark.parametrize(
    "raw, told",
    [
        (b"[1" + b",1" * (M // 2), "unexpected EOF"),  # once a second and more: the loop stood still
        (b"{" + b'"a":1,' * (M // 7) + b'"a":1}', 'json: unknown field "a"'),
        (b"{}" * (M // 2), "JSON is malformed"),
        (b"[" * M, "exceeded max depth at offset 10001"),
        (b'{"multi_last":[1' + b",1" * (M // 2) + b"]}", "json: cannot unmarshal number into "),
        (b'{"seq":"' + b"x" * M + b'"}', "json: cannot unmarshal string into Go struct field JSApiMsgGetRequest.seq"),
        (b'{"seq":1.5' + b" " * M + b"}", "json: cannot unmarshal number 1.5 into Go struct field "),
    ],
)  # fmt: skip
def test_a_long_text_is_refused_in_no_time(raw: bytes, told: str) -> None:
    began = time.process_time()
    with pytest.raises(InvalidJson, match="invalid JSON: " + re.escape(told)):
        decode(raw, GET)
    assert time.process_time() - began < 0.5


def test_a_long_text_is_read_like_a_short_one() -> None:
    raw = b'{"SEQ":7,"no_hdr":true,"multi_last":["a",null],"start_time":"1970-01-01T00:00:01Z"' + b" " * M + b"}"
    assert decode(raw, GET) == {"seq": 7, "no_hdr": True, "multi_last": ("a", ""), "start_time": 10**9}
    assert decode(b" " * M, GET) == {}
