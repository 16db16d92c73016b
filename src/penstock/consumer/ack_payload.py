"""What a client says about a message: the payload of an ack. Rules: the JetStream API of nats-server 2.15.

Where nothing is meant (`UNKNOWN`) nothing happens, but who asked for an answer gets it.
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
    """An ack as it was said.

    `delay_ns` is a nak's, None where it has none or one that cannot be read (`bad_delay` is that): the message comes
    again at once. `reason` is a term's, `request` the pull request of a next.
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
    """The ack that a payload says."""
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
