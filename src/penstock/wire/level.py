"""The level of the JetStream API that is spoken here, and requests that ask for more."""

from __future__ import annotations

import re

from penstock.wire.headers import find
from penstock.wire.info import API_LEVEL

_NUMBER = re.compile(rb"[+-]?[0-9]{1,18}")


def asks_too_much(headers: bytes | None) -> bool:
    """Whether a request wants a level above ours, or one that is no number."""
    if headers is None or b"Nats-Required-Api-Level" not in headers:
        return False
    wanted = find(headers, b"Nats-Required-Api-Level")
    if not wanted:
        return False
    return _NUMBER.fullmatch(wanted) is None or int(wanted) > API_LEVEL
