"""Durations and points in time as people write them, turned into exact integer nanoseconds.

Durations follow Go's time.ParseDuration ("1h30m", "1.5s", "250ms", "-1s") plus our "7d" and "2w"; a Python number means
seconds. Times are Unix nanoseconds in UTC: RFC 3339 with up to nine fractional digits, dates, datetimes, or relative to
now ("-1h", "7d ago"). Text never passes through a float (behaviours.md, R5). JSON needs none of this: there a duration
is an integer of nanoseconds already.
"""

from __future__ import annotations

import math
import re
import time
from datetime import UTC, date, datetime, timedelta

NS_PER_SECOND = 1_000_000_000
INT64_MAX = 2**63 - 1

Duration = str | int | float | timedelta
Time = str | int | datetime | date

_GO_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, the micro sign
    "μs": 1_000,  # U+03BC, the Greek letter
    "ms": 1_000_000,
    "s": NS_PER_SECOND,
    "m": 60 * NS_PER_SECOND,
    "h": 3600 * NS_PER_SECOND,
}
_OUR_UNITS = _GO_UNITS | {"d": 86_400 * NS_PER_SECOND, "w": 7 * 86_400 * NS_PER_SECOND}
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([a-zµμ]+)")
_EXAMPLES = 'such as "1h30m", "1.5s", "250ms" or "7d"'


def parse_go_duration(text: str) -> int:
    """Nanoseconds of a Go duration, exactly as time.ParseDuration accepts it; anything else is a ValueError."""
    return _parse(text, _GO_UNITS)


def parse_duration(text: str) -> int:
    """Nanoseconds of a duration in text: Go's units, and d (24 hours) and w."""
    return _parse(text.strip(), _OUR_UNITS)


def duration_ns(value: Duration) -> int:
    """Nanoseconds of a duration as the Python API takes it: text, a timedelta, or a number of seconds."""
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, timedelta):
        seconds = value.days * 86_400 + value.seconds
        return _bounded(seconds * NS_PER_SECOND + value.microseconds * 1_000, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"not a duration: {value!r} ({_EXAMPLES}, a timedelta, or a number of seconds)")
    if isinstance(value, int):
        return _bounded(value * NS_PER_SECOND, value)
    if not math.isfinite(value):
        raise ValueError(f"not a duration: {value!r}")
    numerator, denominator = value.as_integer_ratio()
    return _bounded(_round(numerator * NS_PER_SECOND, denominator), value)


def format_duration(ns: int) -> str:
    """The duration as Go prints it: "1h0m0s", "1m0s", "1.5s", "250ms", "0s"."""
    sign, rest = ("-", -ns) if ns < 0 else ("", ns)
    if rest < NS_PER_SECOND:
        for unit, size in (("ms", 1_000_000), ("µs", 1_000)):
            if rest >= size:
                return f"{sign}{_decimal(rest, size)}{unit}"
        return f"{sign}{rest}ns" if rest else "0s"
    minutes, seconds_ns = divmod(rest, 60 * NS_PER_SECOND)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(seconds_ns, NS_PER_SECOND)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else sign + text


def parse_time(value: Time, now_ns: int | None = None) -> int:
    """Unix nanoseconds of a point in time.

    A datetime or text without a zone is UTC, not local time: the same call means the same anywhere. An int is taken as
    Unix nanoseconds. Relative text counts from `now_ns`, which is the clock's where it is not given.
    """
    if isinstance(value, bool):
        raise ValueError(f"not a time: {value!r}")
    if isinstance(value, int):
        return _bounded_time(value, value)
    if isinstance(value, datetime):
        whole = value if value.tzinfo else value.replace(tzinfo=UTC)
        return _bounded_time(_datetime_ns(whole), value)
    if isinstance(value, date):
        return _bounded_time(_datetime_ns(datetime(value.year, value.month, value.day, tzinfo=UTC)), value)
    if isinstance(value, str):
        return _parse_time_text(value, now_ns)
    raise ValueError(f"not a time: {value!r} (a datetime, an ISO 8601 text, or Unix nanoseconds)")


def format_time(ns: int) -> str:
    """RFC 3339 in UTC with the fraction's trailing zeros left out, as JetStream's JSON has it."""
    seconds, fraction = divmod(ns, NS_PER_SECOND)
    whole = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    digits = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{whole:%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + digits + "Z"


# A time is a date, then perhaps a clock time, then perhaps a zone. Seconds may be left out; the fraction may not pass
# nine digits, since a tenth would be lost.
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?"
    r"\s*([Zz]|[+-][0-9]{2}:?[0-9]{2})?)?"
)


def _parse_time_text(text: str, now_ns: int | None) -> int:
    stripped = text.strip()
    found = _TIME.fullmatch(stripped)
    if found is None:
        return _parse_relative(stripped, now_ns)
    day, hour, minute, second, fraction, zone = found.groups()
    try:
        start = datetime.fromisoformat(day).replace(tzinfo=UTC)
        clock = timedelta(hours=_below(24, hour), minutes=_below(60, minute), seconds=_below(60, second))
        offset = timedelta()
        if zone and zone not in "Zz":
            offset = timedelta(hours=_below(24, zone[1:3]), minutes=_below(60, zone[-2:]))
    except ValueError as error:
        raise ValueError(f"not a time: {text!r} ({error})") from None
    ns = _datetime_ns(start) + (clock // timedelta(seconds=1)) * NS_PER_SECOND + int((fraction or "").ljust(9, "0"))
    offset_ns = (offset // timedelta(seconds=1)) * NS_PER_SECOND
    return _bounded_time(ns + offset_ns if zone and zone[0] == "-" else ns - offset_ns, text)


def _parse_relative(text: str, now_ns: int | None) -> int:
    """ "-1h" and "7d ago" count back from now, "now" is now; "7d" alone would not say which way, so it is refused."""
    now = time.time_ns() if now_ns is None else now_ns
    if text == "now":
        return now
    try:
        if text.endswith(" ago"):
            ago = parse_duration(text[: -len(" ago")])
            if ago >= 0:
                return _bounded_time(now - ago, text)
        elif text[:1] in "+-" and text:
            return _bounded_time(now + parse_duration(text), text)
    except ValueError:
        pass
    raise ValueError(
        f'not a time: {text!r} (such as "2026-11-01", "2026-11-01T12:00:00.5Z", "-1h" or "7d ago"; UTC without a zone)'
    )


def _below(limit: int, digits: str | None) -> int:
    number = int(digits or 0)
    if number >= limit:
        raise ValueError(f"{digits} is out of range")
    return number


def _datetime_ns(value: datetime) -> int:
    since = value - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * NS_PER_SECOND + since.microseconds * 1_000


def _parse(text: str, units: dict[str, int]) -> int:
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    total, position = 0, 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None or not (part[1] or part[2]):
            raise ValueError(f"not a duration: {text!r} ({_EXAMPLES})")
        if part[3] not in units:
            raise ValueError(f"not a duration: {text!r} has the unknown unit {part[3]!r} (units: {', '.join(units)})")
        unit, fraction = units[part[3]], part[2] or ""
        if len(part[1]) > 20:
            raise ValueError(f"{text[:40]!r} is too long a duration: the longest is 292 years")
        total += int(part[1] or 0) * unit
        fraction = fraction[:18]  # finer than a nanosecond in any unit
        total += int(fraction or 0) * unit // 10 ** len(fraction)
        position = part.end()
    if position == 0:
        raise ValueError(f"not a duration: {text!r} ({_EXAMPLES})")
    return _bounded(-total if text[0] == "-" else total, text)


def _decimal(ns: int, unit: int) -> str:
    """`ns / unit` with no trailing zeros, exactly."""
    whole, fraction = divmod(ns, unit)
    digits = f"{fraction:0{len(str(unit)) - 1}d}".rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


def _round(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)


def _bounded(ns: int, value: object) -> int:
    if not -INT64_MAX - 1 <= ns <= INT64_MAX:
        raise ValueError(f"{value!r} is too long a duration: the longest is 292 years")
    return ns


def _bounded_time(ns: int, value: object) -> int:
    if not -INT64_MAX - 1 <= ns <= INT64_MAX:
        raise ValueError(f"{value!r} is out of range: times reach from 1677 to 2262")
    return ns
