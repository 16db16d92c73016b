"""Generated names: for consumers without one, for flow control requests, and for texts by their hash.

They consist of letters and digits.
"""

from __future__ import annotations

import hashlib
import secrets

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
NAME_SIZE = 8
TOKEN_SIZE = 4


def random_name() -> str:
    """A name for a consumer, as long as those of nats-server."""
    return "".join(secrets.choice(DIGITS) for _ in range(NAME_SIZE))


def random_token() -> str:
    """The last token of a flow control subject."""
    return "".join(secrets.choice(DIGITS) for _ in range(TOKEN_SIZE))


def hash_name(text: str) -> str:
    """A name derived from `text`, as long as a consumer's."""
    return "".join(DIGITS[byte % len(DIGITS)] for byte in hashlib.sha256(text.encode()).digest()[:NAME_SIZE])
