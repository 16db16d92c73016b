"""The requests besides CREATE that change a consumer: pause, unpin, reset; and the check of a stream's limits against
its consumers.

Rules: the JetStream API of nats-server 2.15; answers are recorded in tests/parity/recorded/tables/consumer.json.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock import errors
from penstock.consumer.config import ConsumerConfig, with_metadata
from penstock.consumer.moment import Moment, parse_moment
from penstock.consumer.rules import GROUP_NAME, Consumers
from penstock.errors import InvalidJson, InvalidReset, StreamUpdateFailed
from penstock.stream.config import StreamConfig
from penstock.wire.go_decode import Struct, decode, decode_one, kind_of


def _pause_until(value: Any) -> Moment | None:
    if value is None:
        return None
    if type(value) is not str:
        place = "Go struct field JSApiConsumerPauseRequest.pause_until"
        raise InvalidJson(f"json: cannot unmarshal {kind_of(value)} into {place} of type time.Time")
    return parse_moment(value)


_PAUSE = Struct(
    "server.JSApiConsumerPauseRequest", {"pause_until": "pause_until"}, readers={"pause_until": _pause_until}
)
_UNPIN = Struct("server.JSApiConsumerUnpinRequest", {"group": "string"})
_RESET = Struct("server.JSApiConsumerResetRequest", {"seq": "uint64"})


def decode_pause(raw: bytes, *, strict: bool = True) -> Moment | None:
    """The end of the pause that a PAUSE request asks for, in UTC; None: the consumer resumes, as it does for any body
    that is not JSON."""
    if raw.lstrip(b" \t\r\n")[:1] not in (b"{", b"["):
        return None
    until: Moment | None = decode(raw, _PAUSE, strict=strict).get("pause_until")
    return None if until is None or until.is_zero else Moment(until.ns)


def with_pause(config: ConsumerConfig, until: Moment | None) -> ConsumerConfig:
    """`config` paused until a time, even one in the past; None: not paused."""
    return with_metadata(msgspec.structs.replace(config, pause_until=until))


def decode_unpin(raw: bytes) -> str:
    """The priority group of an UNPIN request."""
    group: str = decode_one(raw, _UNPIN).get("group", "")
    if not group:
        raise InvalidJson("consumer group not specified")
    if not GROUP_NAME.fullmatch(group):
        raise errors.BadGroupName
    return group


def check_unpin(group: str, config: ConsumerConfig) -> None:
    """Raise if the consumer has no such group."""
    if group not in config.priority_groups:
        raise errors.BadPriorityGroup


def decode_reset(raw: bytes) -> int:
    """The sequence of a RESET request; 0: back to the ack floor."""
    seq: int = decode_one(raw, _RESET).get("seq", 0) if raw else 0
    return seq


def reset_seq(config: ConsumerConfig, seq: int, ack_floor_seq: int, seq_at: Callable[[int], int]) -> int:
    """Where a consumer continues after RESET to `seq`; `seq_at` gives the first sequence at or after a time.

    Raises InvalidReset if that lies before the consumer's configured start, or if its deliver policy has no fixed
    start.
    """
    if seq == 0:
        return ack_floor_seq + 1
    if config.deliver_policy == "by_start_sequence":
        if seq < config.opt_start_seq:
            raise InvalidReset("below start seq")
    elif config.deliver_policy == "by_start_time":
        if seq < seq_at(config.opt_start_ns or 0):
            raise InvalidReset("below start time")
    elif config.deliver_policy != "all":
        raise InvalidReset("not allowed")
    return seq


def check_limits(old: StreamConfig, new: StreamConfig, consumers: Consumers) -> None:
    """Raise if an update of a stream's consumer limits would leave a consumer outside them."""
    before, after = old.consumer_limits, new.consumer_limits
    fields = ("inactive_threshold", "max_ack_pending")
    if not any(0 < getattr(after, field) != getattr(before, field) for field in fields):
        return
    outside = [
        name
        for name, config in consumers.items()
        if any(0 < getattr(after, field) < getattr(config, field) for field in fields)
    ]
    if outside:
        raise StreamUpdateFailed(f"change to limits violates consumers: {', '.join(outside)}")
