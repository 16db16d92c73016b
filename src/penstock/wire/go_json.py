"""JSON, times and durations in the text that Go's libraries give them, as clients and tools of the reference see it.

Strings escape `<`, `>`, `&`, U+2028 and U+2029; a float without a fraction has none in the text; a time is RFC 3339 in
UTC with its fraction's trailing zeros left out. Durations as Go prints them ("1h2m3.5s") are `go_duration`; the
monitoring pages count up-time in another form ("1d2h3m4s"), which is `uptime`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.base.duration import NS_PER_SECOND, format_duration, format_time

ZERO_TIME = "0001-01-01T00:00:00Z"  # what Go prints for a time that was never set

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_EPOCH_DAY = datetime(1970, 1, 1, tzinfo=UTC).toordinal()
_ENCODER = msgspec.json.Encoder()
_SURROGATE = re.compile("[\ud800-\udfff]")
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)


def encode(value: Any) -> bytes:
    """The JSON of anything msgspec encodes, escaped as Go escapes it."""
    try:
        raw = _ENCODER.encode(value)
    except UnicodeEncodeError:
        raw = _ENCODER.encode(_shown(msgspec.to_builtins(value)))
    # These bytes stand in strings only, so they may be replaced in the whole text.
    if b"<" in raw:
        raw = raw.replace(b"<", b"\\u003c")
    if b">" in raw:
        raw = raw.replace(b">", b"\\u003e")
    if b"&" in raw:
        raw = raw.replace(b"&", b"\\u0026")
    if b"\xe2\x80" in raw:
        raw = raw.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return raw


def _shown(value: Any) -> Any:
    """The same where text holds bytes that are none (as surrogates): each shows as U+FFFD."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_shown(key): _shown(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(each) for each in value]
    return value


def go_float(value: float) -> int | float:
    """A float for `encode`: Go prints 2.0 as 2."""
    return int(value) if value.is_integer() and abs(value) < 1e21 else value


def time_text(ns: int) -> str:
    """Unix nanoseconds as Go's JSON has a time."""
    return format_time(ns)


def time_text_or_zero(ns: int) -> str:
    """As `time_text`, where 0 is a time that was never set."""
    return format_time(ns) if ns else ZERO_TIME


def parse_time(text: str) -> int:
    """Unix nanoseconds of a time in JSON, as strict as Go's decoder; digits finer than a nanosecond are left out.

    The zero time is 0, as in `time_text_or_zero`. Years outside 1677 to 2262 have no nanoseconds in 64 bits: they give
    the first or the last time there is, so that "before all" and "after all" keep their meaning.
    """
    if text == ZERO_TIME:
        return 0
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f'not a time: {text!r} (RFC 3339 with a zone, such as "2026-11-01T12:00:00.5Z")')
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    fraction, sign, zone_hour, zone_minute = found.groups()[6:]
    offset = int(zone_hour or 0) * 60 + int(zone_minute or 0)
    if hour > 23 or minute > 59 or second > 59 or int(zone_hour or 0) > 23 or int(zone_minute or 0) > 59:
        raise ValueError(f"not a time: {text!r} (its clock or zone is out of range)")
    try:
        # Year 0 is one of Go's; datetime's begin at 1. All that matters of it is that it is long ago, and a leap year.
        days = datetime(year or 4, month, day, tzinfo=UTC).toordinal() - _EPOCH_DAY
    except ValueError as error:
        raise ValueError(f"not a time: {text!r} ({error})") from None
    seconds = days * 86_400 + hour * 3600 + minute * 60 + second - (-offset if sign == "-" else offset) * 60
    ns = seconds * NS_PER_SECOND + int((fraction or "")[:9].ljust(9, "0"))
    return min(max(ns, _INT64_MIN), _INT64_MAX)


def go_duration(ns: int) -> str:
    """A duration as Go prints it: "1h2m3.5s", "250ms", "0s"."""
    return format_duration(ns)


def uptime(seconds: int) -> str:
    """How long something has run, as the monitoring pages say it: "4s", "3m4s", "1d2h3m4s", "1y0d0h0m0s"."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    years, day = divmod(days, 365)
    if years:
        return f"{years}y{day}d{hour}h{minute}m{second}s"
    if days:
        return f"{days}d{hour}h{minute}m{second}s"
    if hours:
        return f"{hours}h{minute}m{second}s"
    return f"{minutes}m{second}s" if minutes else f"{second}s"
