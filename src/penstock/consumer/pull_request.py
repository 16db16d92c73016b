"""Pull requests: the payloads of CONSUMER.MSG.NEXT, and of an ack that asks for the next message.

A payload is empty (one message), a number (a batch), or a JSON object. Rules: the JetStream API of nats-server 2.15; a
request that is refused at once gets a status (`PullRefused`) with nats-server's text, recorded in
tests/parity/recorded/tables/consumer.json.
"""

from __future__ import annotations

import re

import msgspec

from penstock.base.duration import format_duration
from penstock.consumer.blanks import trim
from penstock.consumer.config import ConsumerConfig
from penstock.errors import InvalidJson, PullRefused
from penstock.stream.fields import Int64
from penstock.wire.go_decode import Struct, decode_one

PRIORITY_MAX = 9
_NUMBER = re.compile(rb"[+-]?[0-9]{1,40}")


class PullRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request as received, with the names of its JSON; durations are nanoseconds.

    `expires` 0: it waits for as long as its client is subscribed; below 0: it has expired already.
    """

    expires: Int64 = 0
    batch: Int64 = 0
    max_bytes: Int64 = 0
    no_wait: bool = False
    idle_heartbeat: Int64 = 0
    group: str = ""
    min_pending: Int64 = 0
    min_ack_pending: Int64 = 0
    id: str = ""
    priority: Int64 = 0

    @property
    def count(self) -> int:
        """The number of messages wanted; a missing batch, or one that is not above 0, means one."""
        return max(self.batch, 1)


_ONE = PullRequest(batch=1)
_FAST = msgspec.json.Decoder(PullRequest)
# nats-server's decoder has no name for this struct.
_REQUEST = Struct(
    "server.",
    {
        "expires": "time.Duration",
        "batch": "int",
        "max_bytes": "int",
        "no_wait": "bool",
        "idle_heartbeat": "time.Duration",
        "group": "string",
        "min_pending": "int64",
        "min_ack_pending": "int64",
        "id": "string",
        "priority": "int",
    },
)


def read_pull(payload: bytes, config: ConsumerConfig, pin_id: str = "") -> PullRequest:
    """The request in `payload` to a consumer; raises PullRefused if it is answered with a status at once.

    `pin_id` is the id of the client that the consumer is pinned to, if any.
    """
    if config.is_push:
        raise PullRefused(409, "Consumer is push based")
    body = trim(payload)
    request = parse_pull(body)
    _check_caps(request, config)
    if body.startswith(b"{"):
        _check_group(request, config, pin_id)
    return request


def parse_pull(payload: bytes) -> PullRequest:
    """The request in `payload`; raises PullRefused if its JSON or its heartbeat is invalid."""
    body = trim(payload)
    if not body.startswith(b"{"):
        if _NUMBER.fullmatch(body) and -(2**63) <= int(body) < 2**63:
            return PullRequest(batch=int(body))
        return _ONE
    try:
        request = _FAST.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        request = _parse_slowly(body)
    if request.idle_heartbeat > 0 and _twice(request.idle_heartbeat) > request.expires:
        raise PullRefused(400, "Bad Request - heartbeat value too large")
    return request


def _parse_slowly(body: bytes) -> PullRequest:
    """Parse what the fast decoder refuses: names in another case, unknown names, null, and invalid requests."""
    try:
        return PullRequest(**decode_one(body, _REQUEST))
    except InvalidJson as error:
        raise PullRefused(400, f"Bad Request - {error.why}") from None


def _twice(ns: int) -> int:
    """Twice a duration in 64 bits; it wraps around, as in nats-server."""
    return (2 * ns + 2**63) % 2**64 - 2**63


def _check_caps(request: PullRequest, config: ConsumerConfig) -> None:
    if 0 < config.max_batch < request.batch:
        raise PullRefused(409, f"Exceeded MaxRequestBatch of {config.max_batch}")
    if 0 < config.max_expires < request.expires:
        raise PullRefused(409, f"Exceeded MaxRequestExpires of {format_duration(config.max_expires)}")
    if 0 < config.max_bytes < request.max_bytes:
        raise PullRefused(409, f"Exceeded MaxRequestMaxBytes of {config.max_bytes}")


def _check_group(request: PullRequest, config: ConsumerConfig, pin_id: str) -> None:
    if (request.min_pending or request.min_ack_pending) and config.priority_policy != "overflow":
        raise PullRefused(400, "Bad Request - Not a Overflow Priority consumer")
    if request.id and config.priority_policy != "pinned_client":
        raise PullRefused(400, "Bad Request - Not a Pinned Client Priority consumer")
    if not 0 <= request.priority <= PRIORITY_MAX:
        raise PullRefused(400, f"Bad Request - Priority must be between 0 and {PRIORITY_MAX}")
    if config.priority_policy == "none":
        return
    if not request.group:
        raise PullRefused(400, "Bad Request - Priority Group missing")
    if request.group not in config.priority_groups:
        raise PullRefused(400, "Bad Request - Invalid Priority Group")
    if pin_id and request.id and request.id != pin_id:
        raise PullRefused(423, "Nats-Pin-Id mismatch")
