"""The `Nats-TTL` header: how long a message lives. Rules: those of the reference server, tried on it."""

from __future__ import annotations

from penstock.base.duration import NS_PER_SECOND, parse_go_duration

TTL_NEVER = -1
TTL_NS_MAX = 2**62
"""146 years. A longer TTL is held for so long, so that time + TTL stays within 63 bits."""


def parse_ttl(value: bytes) -> int | None:
    """Nanoseconds of a `Nats-TTL` value: whole seconds, -1 for never, 0 for none ("00"), None for one that is bad.

    Seconds as digits, or a Go duration of at least a second, whose fraction of a second is dropped.
    """
    if value.isdigit() and value != b"0":  # "0" alone is a Go duration, and too short
        seconds = parse_digits(value)
        if seconds is None or seconds >= 2**63:
            return None
        return min(seconds * NS_PER_SECOND, TTL_NS_MAX)
    text = value.decode("utf-8", "surrogateescape")
    if text.lower() == "never":
        return TTL_NEVER
    try:
        ns = parse_go_duration(text)
    except ValueError:
        return None
    if ns < NS_PER_SECOND:
        return None
    return min(ns - ns % NS_PER_SECOND, TTL_NS_MAX)


def parse_digits(value: bytes) -> int | None:
    """A number of ASCII digits, or None. One of over twenty digits fits no sequence and no TTL, so it is None too."""
    significant = value.lstrip(b"0")
    if not value or len(significant) > 20 or not value.isdigit():
        return None
    return int(significant or b"0")
