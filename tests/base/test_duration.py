"""Durations and times: exact to the nanosecond, and a clear error for everything else."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.base.duration import (
    duration_ns,
    format_duration,
    format_time,
    parse_duration,
    parse_go_duration,
    parse_time,
)

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines that test are busy

S = 1_000_000_000
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("-0", 0),
        ("1ns", 1),
        ("1us", 1_000),
        ("1µs", 1_000),
        ("1μs", 1_000),
        ("250ms", 250_000_000),
        ("1.5s", 1_500_000_000),
        (".5s", 500_000_000),
        ("5.s", 5 * S),
        ("+5s", 5 * S),
        ("-1s", -S),
        ("1h30m", 5400 * S),
        ("1h1h", 7200 * S),
        ("0.000000001s", 1),
        ("0.0000000019s", 1),
        ("9223372036854775807ns", 2**63 - 1),
        ("-9223372036854775808ns", -(2**63)),
    ],
)
def test_go_durations(text: str, ns: int) -> None:
    assert parse_go_duration(text) == ns
    assert parse_duration(text) == ns


@pytest.mark.parametrize(
    ("text", "ns"), [("7d", 7 * 86400 * S), ("2w", 14 * 86400 * S), ("1d12h", 129600 * S), (" 1s ", S)]
)
def test_our_own_units(text: str, ns: int) -> None:
    assert parse_duration(text) == ns
    with pytest.raises(ValueError, match="not a duration"):
        parse_go_duration(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "+",
        "-",
        "s",
        ".s",
        "5",
        "00",
        "1 s",
        "1S",
        "1y",
        "1s1",
        "--1s",
        "1_0s",
        "١s",
        "1e3s",
        "x",
        "1s\n1s",
        "inf",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["9223372036854775808ns", "300000h" * 20, "9" * 5000 + "s", "99999999999w"])
def test_a_duration_past_63_bits_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="292 years"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        ("7d", 7 * 86400 * S),
        (timedelta(days=1, microseconds=1), 86400 * S + 1000),
        (timedelta(microseconds=-1), -1000),
        (60, 60 * S),
        (0.1, 100_000_000),
        (1e-9, 1),
        (-0.5, -500_000_000),
    ],
)
def test_python_values_are_seconds(value: Any, ns: int) -> None:
    assert duration_ns(value) == ns


@pytest.mark.parametrize("value", [None, True, b"1s", [], float("nan"), float("inf"), 10**10, 1e300, timedelta.max])
def test_python_values_that_are_no_duration(value: Any) -> None:
    with pytest.raises(ValueError):
        duration_ns(value)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1100, "1.1µs"),
        (250_000_000, "250ms"),
        (1_500_000_000, "1.5s"),
        (60 * S, "1m0s"),
        (3600 * S, "1h0m0s"),
        (-S, "-1s"),
        (3661 * S + 1, "1h1m1.000000001s"),
        (2**63 - 1, "2562047h47m16.854775807s"),
    ],
)
def test_durations_print_as_go_prints_them(ns: int, text: str) -> None:
    assert format_duration(ns) == text


@relaxed
@given(INT64)
def test_a_printed_duration_reads_back_exactly(ns: int) -> None:
    assert parse_go_duration(format_duration(ns)) == ns


@relaxed
@given(st.text())
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    try:
        assert -(2**63) <= parse_duration(text) < 2**63
    except ValueError:
        pass


NOON = 1_793_534_400 * S  # 2026-11-01T12:00:00Z


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        ("2026-11-01T12:00:00Z", NOON),
        ("2026-11-01 12:00", NOON),
        ("2026-11-01t12:00:00z", NOON),
        ("2026-11-01T12:00:00.123456789Z", NOON + 123_456_789),
        ("2026-11-01T12:00:00.5", NOON + 500_000_000),
        ("2026-11-01T14:00:00+02:00", NOON),
        ("2026-11-01T06:30:00-0530", NOON),
        ("2026-11-01", NOON - 12 * 3600 * S),
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59.999999999Z", -1),
        (datetime(2026, 11, 1, 12), NOON),
        (datetime(2026, 11, 1, 12, tzinfo=UTC), NOON),
        (datetime(2026, 11, 1, 14, 0, 0, 1, tzinfo=timezone(timedelta(hours=2))), NOON + 1000),
        (date(2026, 11, 1), NOON - 12 * 3600 * S),
        (NOON, NOON),
        ("-1h", 5 * S - 3600 * S),
        ("+1s", 6 * S),
        ("7d ago", 5 * S - 7 * 86400 * S),
        ("now", 5 * S),
    ],
)
def test_times(value: Any, ns: int) -> None:
    assert parse_time(value, now_ns=5 * S) == ns


def test_without_a_clock_relative_times_use_the_system_s() -> None:
    assert parse_time("-1h") < parse_time("now")


@pytest.mark.parametrize(
    "value",
    [
        "",
        "7d",
        "1h",
        "yesterday",
        "2026-13-01",
        "2026-02-30",
        "2026-11-01T25:00",
        "2026-11-01T12:60",
        "ago",
        "-7d ago",
        "2026-11-01T12:00:00.1234567890Z",
        "2026-11-01T12:00:00+25:00",
        "1500-01-01",
        "2300-01-01",
        "2026-11-01Z",
        "12:00",
        None,
        True,
        1.5,
        b"2026-11-01",
        2**63,
        -(2**63) - 1,
        datetime.max,
        "9999-12-31T23:59:59Z",
        "-99999999999d",
    ],
)
def test_what_is_no_time_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):
        parse_time(value)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (NOON + 120_000_000, "2026-11-01T12:00:00.12Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
    ],
)
def test_times_print_as_the_reference_prints_them(ns: int, text: str) -> None:
    assert format_time(ns) == text


@relaxed
@given(INT64)
def test_a_printed_time_reads_back_exactly(ns: int) -> None:
    assert parse_time(format_time(ns)) == ns


@relaxed
@given(st.text())
def test_any_text_is_a_time_or_a_value_error(text: str) -> None:
    try:
        assert -(2**63) <= parse_time(text) < 2**63
    except ValueError:
        pass
