"""The subjects on which a consumer receives acks and flow control answers.

`$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>` is the reply subject of a
delivered message. A longer form has domain and account before the stream, and perhaps more tokens at its end; current
clients may send it, we only read it. Rules: the JetStream API of nats-server 2.15, with its tolerance for numbers.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from penstock.consumer.names import DIGITS

ACK = "$JS.ACK"
FLOW_CONTROL = "$JS.FC"
NO_NUMBER = 2**64 - 1  # nats-server's value for a token that is not a number: a sequence that no message has
NO_DOMAIN = "_"

_HASH_SIZE = 8
_SHORT, _LONG_MIN = 9, 11  # tokens


class AckSubject(NamedTuple):
    """One delivery: the message, its consumer, the number of deliveries, and how many messages matched after it."""

    stream: str
    consumer: str
    delivered: int
    stream_seq: int
    consumer_seq: int
    time_ns: int
    pending: int


def format_ack_subject(ack: AckSubject) -> str:
    """The reply subject of a delivery."""
    return ".".join((ACK, ack.stream, ack.consumer, *map(str, ack[2:])))


def parse_ack_subject(subject: str) -> AckSubject | None:
    """The delivery that an ack on `subject` refers to, in either form; None if it is no such subject."""
    tokens = subject.split(".")
    if (len(tokens) != _SHORT and len(tokens) < _LONG_MIN) or tokens[:2] != ["$JS", "ACK"]:
        return None
    at = 2 if len(tokens) == _SHORT else 4
    return AckSubject(tokens[at], tokens[at + 1], *map(_number, tokens[at + 2 : at + 7]))


def ack_filters(stream: str, consumer: str, account: str, domain: str = "") -> tuple[str, str]:
    """The filters to which a consumer subscribes for acks: the short form and the long one."""
    long = ".".join((ACK, domain or NO_DOMAIN, account_hash(account), stream, consumer))
    return f"{ACK}.{stream}.{consumer}.*.*.*.*.*", f"{long}.*.*.*.*.>"


def format_flow_control_subject(stream: str, consumer: str, token: str) -> str:
    """The reply subject of a flow control request; `token` comes from `names.random_token`."""
    return f"{FLOW_CONTROL}.{stream}.{consumer}.{token}"


def flow_control_filters(stream: str, consumer: str, account: str, domain: str = "") -> tuple[str, str]:
    """The filters to which a consumer subscribes for answers to its flow control requests: the short form and the long
    one."""
    long = ".".join((FLOW_CONTROL, domain or NO_DOMAIN, account_hash(account), stream, consumer))
    return f"{FLOW_CONTROL}.{stream}.{consumer}.*", f"{long}.*"


def account_hash(account: str) -> str:
    """The token that stands for an account in the long forms."""
    digest = hashlib.sha256(account.encode("utf-8", "surrogateescape")).digest()
    return "".join(DIGITS[byte % len(DIGITS)] for byte in digest[:_HASH_SIZE])


def _number(token: str) -> int:
    """A 64-bit number; one that is too large wraps around, as in nats-server."""
    return int(token) % 2**64 if token.isascii() and token.isdigit() and len(token) <= 4000 else NO_NUMBER
