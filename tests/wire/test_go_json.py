"""wire/go_json: the text Go's libraries give JSON, times and durations."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire import go_json


@pytest.mark.parametrize(
    "value, text",
    [
        ({"a": "x.>", "b": ["<&>"]}, b'{"a":"x.\\u003e","b":["\\u003c\\u0026\\u003e"]}'),
        ("\u2028\u2029\u2030é", '"\\u2028\\u2029\u2030é"'.encode()),
        ('\b\f\n\r\t\x01\x7f"\\/', b'"\\b\\f\\n\\r\\t\\u0001\x7f\\"\\\\/"'),
        ({"cpu": go_json.go_float(2.0), "load": go_json.go_float(0.5)}, b'{"cpu":2,"load":0.5}'),
        (b"\xff\xfe", b'"//4="'),
    ],
)
def test_json_is_escaped_as_go_escapes_it(value: object, text: bytes) -> None:
    assert go_json.encode(value) == text


@given(st.recursive(st.text() | st.integers(-(2**63), 2**64 - 1) | st.booleans() | st.none(), st.lists))
def test_what_is_encoded_reads_back(value: object) -> None:
    assert json.loads(go_json.encode(value)) == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_time_reads_back(ns: int) -> None:
    assert go_json.parse_time(go_json.time_text(ns)) == ns


def test_a_time_that_was_never_set_is_gos_zero_time_and_reads_back_as_0() -> None:
    assert go_json.time_text_or_zero(0) == "0001-01-01T00:00:00Z"
    assert go_json.parse_time("0001-01-01T00:00:00Z") == 0
    assert go_json.time_text(0) == "1970-01-01T00:00:00Z"
    assert go_json.time_text_or_zero(1_500_000_000) == "1970-01-01T00:00:01.5Z"


@pytest.mark.parametrize(
    "text, ns",
    [
        ("1970-01-01T01:00:00.000000001+01:00", 1),
        ("1969-12-31T23:59:59.9999999999Z", -1),
        ("0000-02-29T00:00:00Z", -(2**63)),
        ("9999-12-31T23:59:59Z", 2**63 - 1),
    ],
)
def test_zones_fine_digits_and_far_years_are_read(text: str, ns: int) -> None:
    assert go_json.parse_time(text) == ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-01",
        "2026-11-01T12:00:00",
        "2026-11-01t12:00:00z",
        "2026-11-01 12:00:00Z",
        "2026-11-01T12:00Z",
        "2026-11-01T12:00:00,5Z",
        "2026-11-01T12:00:00.Z",
        "2026-02-30T12:00:00Z",
        "2026-11-01T24:00:00Z",
        "2026-11-01T12:60:00Z",
        "2026-11-01T12:00:60Z",
        "2026-11-01T12:00:00+24:00",
        "2026-11-01T12:00:00+0100",
        "2026-11-01T12:00:00Z ",
    ],
)
def test_a_time_that_gos_decoder_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a time"):
        go_json.parse_time(text)


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0, "0s"),
        (59, "59s"),
        (60, "1m0s"),
        (3600, "1h0m0s"),
        (93_784, "1d2h3m4s"),
        (365 * 86_400, "1y0d0h0m0s"),
    ],
)
def test_uptime_names_every_unit_below_its_largest(seconds: int, text: str) -> None:
    assert go_json.uptime(seconds) == text


@pytest.mark.parametrize("ns, text", [(3_723_500_000_000, "1h2m3.5s"), (0, "0s"), (250_000_000, "250ms"), (1, "1ns")])
def test_durations_print_as_go_prints_them(ns: int, text: str) -> None:
    assert go_json.go_duration(ns) == text
