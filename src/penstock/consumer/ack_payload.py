"""The payload of an ack: what a client reports about a message. Rules: the JetStream API of nats-server 2.15.

A payload without a meaning (`UNKNOWN`) changes nothing, but a client that asked for an answer gets one.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from penstock.base.duration import parse_go_duration
from penstock.consumer.blanks import trim
from penstock.errors import InvalidJson
from penstock.wire.go_decode import Struct, decode_one


class AckKind(Enum):
    """The verb of an ack."""

    ACK = "+ACK"
    NAK = "-NAK"
    PROGRESS = "+WPI"
    TERM = "+TERM"
    NEXT = "+NXT"
    UNKNOWN = ""


class Ack(NamedTuple):
    """An ack as received.

    `delay_ns` belongs to a nak: None if it has none, or one that cannot be read (then `bad_delay` holds it), and the
    message is delivered again at once. `reason` belongs to a term, `request` is the pull request of a next.
    """

    kind: AckKind
    delay_ns: int | None = None
    bad_delay: bytes = b""
    reason: str = ""
    request: bytes = b""


ACK = Ack(AckKind.ACK)
NAK = Ack(AckKind.NAK)
PROGRESS = Ack(AckKind.PROGRESS)
UNKNOWN = Ack(AckKind.UNKNOWN)

_WHOLE = {b"": ACK, b"+ACK": ACK, b"+OK": ACK, b"-NAK": NAK, b"+WPI": PROGRESS}
_NAK_OPTIONS = Struct("server.ConsumerNakOptions", {"delay": "time.Duration"})


def parse_ack(payload: bytes) -> Ack:
    """The ack in a payload."""
    whole = _WHOLE.get(payload)
    if whole is not None:
        return whole
    if payload.startswith(b"+NXT"):
        return Ack(AckKind.NEXT, request=payload[4:])
    if payload.startswith(b"-NAK"):
        return _parse_nak(trim(payload[4:]))
    if payload.startswith(b"+TERM"):
        return Ack(AckKind.TERM, reason=trim(payload[5:]).decode("utf-8", "replace"))
    return UNKNOWN


def _parse_nak(argument: bytes) -> Ack:
    if not argument:
        return NAK
    try:
        if argument.startswith(b"{"):
            return Ack(AckKind.NAK, delay_ns=decode_one(argument, _NAK_OPTIONS).get("delay", 0))
        return Ack(AckKind.NAK, delay_ns=parse_go_duration(argument.decode("utf-8", "surrogateescape")))
    except (InvalidJson, ValueError):
        return Ack(AckKind.NAK, bad_delay=argument)
