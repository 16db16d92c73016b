"""Names that are made up: of consumers that were given none, and of flow control requests. Letters and digits."""

from __future__ import annotations

import secrets

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
NAME_SIZE = 8
TOKEN_SIZE = 4


def random_name() -> str:
    """A name for a consumer, as long as the reference's."""
    return "".join(secrets.choice(DIGITS) for _ in range(NAME_SIZE))


def random_token() -> str:
    """The end of a flow control subject."""
    return "".join(secrets.choice(DIGITS) for _ in range(TOKEN_SIZE))
