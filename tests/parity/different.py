"""Where we differ from the real server on purpose: by group and case, with the reason (docs/parity.md lists them)."""

from __future__ import annotations

DIFFERENT: dict[str, dict[str, str]] = {
    "permissions": {
        "subscribe a wildcard": "s.> is let in where s.* is allowed, as there, but hears only what is allowed",
    },
    "stream_create": {
        "a first sequence of 2^64 - 1": "a first sequence of 2^63 and above is refused: the next one would not fit",
    },
}
