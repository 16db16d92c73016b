"""Passwords of a configuration: in plain text, or as a bcrypt hash."""

from __future__ import annotations

import hmac
import re

BCRYPT = re.compile(r"\$2[abxy]\$\d{2}\$.*")
BCRYPT_SIZE_MAX = 72  # bcrypt ignores the rest of a password


def is_bcrypt(stored: str) -> bool:
    return BCRYPT.match(stored) is not None


def check_plain(stored: str, given: str) -> bool:
    """Whether both are equal, in constant time."""
    return hmac.compare_digest(as_bytes(stored), as_bytes(given))


def check_bcrypt(stored: str, given: str) -> bool:
    """Whether the hash is of this password. Slow on purpose: call it in a thread."""
    import bcrypt

    try:
        return bcrypt.checkpw(as_bytes(given)[:BCRYPT_SIZE_MAX], as_bytes(stored))
    except ValueError:
        return False  # not a valid hash: no password matches


def as_bytes(text: str) -> bytes:
    """The password as bytes. Half a surrogate pair from JSON must be a wrong password, not a failure."""
    return text.encode("utf-8", "surrogatepass")
