"""Trims blanks around the payloads that clients send, as Go does."""

from __future__ import annotations

_ASCII = b"\t\n\v\f\r "
_SPACES = "".join(map(chr, range(0x2000, 0x200B)))  # from en quad to hair space
_BLANKS = f"{_ASCII.decode()}\x85\xa0\u1680{_SPACES}\u2028\u2029\u202f\u205f\u3000"


def trim(raw: bytes) -> bytes:
    """`raw` without blanks at its ends, those of Unicode included."""
    found = raw.strip(_ASCII)
    if found.isascii():
        return found
    return found.decode("utf-8", "surrogateescape").strip(_BLANKS).encode("utf-8", "surrogateescape")
