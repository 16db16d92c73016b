"""Header blocks with a status, which a server sends in place of a message. Rules: docs/wire.md.

`NATS/1.0 404 No Messages` CRLF, then perhaps headers, then CRLF; a message with one has no payload.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from penstock.wire.headers import VERSION

_STATUS = re.compile(rb"NATS/1\.0[ \t]+([0-9]{3})(?:[ \t]+([^\r\n]*?))?[ \t]*\r\n")


class Status(NamedTuple):
    """A status: its number, and its words, which may be none."""

    code: int
    text: str


def status_block(code: int, text: str = "", headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """The header block of a status. What it is made of is the server's own, and is not checked."""
    lines = [f"NATS/1.0 {code} {text}" if text else f"NATS/1.0 {code}"]
    lines += [f"{key}: {value}" for key, value in headers]
    return "\r\n".join((*lines, "", "")).encode("utf-8", "surrogateescape")


def no_responders(subject: bytes) -> bytes:
    """The request had no subscribers: its publisher gets this on the reply subject."""
    return b"NATS/1.0 503\r\nNats-Subject: " + subject + b"\r\n\r\n"


def parse_status(block: bytes) -> Status | None:
    """The status of a header block, or None where it has none."""
    if not block.startswith(VERSION):
        return None
    found = _STATUS.match(block)
    if found is None:
        return None
    return Status(int(found[1]), (found[2] or b"").decode("utf-8", "surrogateescape"))
