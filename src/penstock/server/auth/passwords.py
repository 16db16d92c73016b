"""Passwords as a configuration has them: in plain, or as a bcrypt hash."""

from __future__ import annotations

import hmac
import re

BCRYPT = re.compile(r"\$2[abxy]\$\d{2}\$.*")
BCRYPT_SIZE_MAX = 72  # bcrypt reads no more of a password


def is_bcrypt(stored: str) -> bool:
    return BCRYPT.match(stored) is not None


def check_plain(stored: str, given: str) -> bool:
    """Whether they are the same; how long it takes says nothing about where they differ."""
    return hmac.compare_digest(as_bytes(stored), as_bytes(given))


def check_bcrypt(stored: str, given: str) -> bool:
    """Whether the hash is of this password. Takes its time, by intent: call it in a thread."""
    import bcrypt

    try:
        return bcrypt.checkpw(as_bytes(given)[:BCRYPT_SIZE_MAX], as_bytes(stored))
    except ValueError:
        return False  # what looked like a hash is none: nobody has its password


def as_bytes(text: str) -> bytes:
    """JSON may bring half a surrogate pair; it is a wrong password, no reason to fail."""
    return text.encode("utf-8", "surrogatepass")
