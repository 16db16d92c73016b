"""Unique names of 22 characters (0-9, A-Z, a-z), and short names derived from longer ones."""

from __future__ import annotations

import os
from hashlib import sha256

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SIZE = 22

# Every byte as a digit. Eight digits come from five bytes and the others from four: 130 of 131 bits remain.
_DIGIT_OF_BYTE = bytes(ord(DIGITS[byte % 62]) for byte in range(256))


def make_nuid() -> str:
    """A new name that cannot be guessed."""
    return os.urandom(SIZE).translate(_DIGIT_OF_BYTE).decode("ascii")


def short_name(text: str, size: int = 8) -> str:
    """The name that always belongs to `text`, as the reference shortens names (of ephemeral consumers, of accounts)."""
    return sha256(text.encode("utf-8", "surrogateescape")).digest()[:size].translate(_DIGIT_OF_BYTE).decode("ascii")
