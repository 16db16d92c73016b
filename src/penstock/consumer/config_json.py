"""Consumer configurations as JSON: what the API takes and answers, and what the store keeps.

Rules: the JetStream API of nats-server 2.15. Reading is as strict as nats-server: an unknown field or one of another
type is 400/10025 with the text of Go's decoder. Writing follows the order and the omissions of the reference's struct.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any, Literal

import msgspec

from penstock.consumer.config import DURATIONS, ENUMS, FIELD_TYPES, LISTS, TIMES, ConsumerConfig
from penstock.consumer.moment import Moment, format_moment, parse_moment
from penstock.errors import InvalidJson, quote
from penstock.wire.go_decode import INTEGERS, Struct, decode, kind_of, plain
from penstock.wire.go_json import encode

Action = Literal["", "create", "update"]


class CreateRequest(msgspec.Struct, frozen=True):
    """The body of CONSUMER.CREATE: `action` "" creates or updates."""

    stream_name: str = ""
    config: ConsumerConfig = ConsumerConfig()
    action: Action = ""
    pedantic: bool = False


# Written even when they say nothing.
_ALWAYS = ("deliver_policy", "ack_policy", "replay_policy", "num_replicas")
_ACTIONS = ("create", "update", "")
_DURATION = "time.Duration"
_NUMBER = re.compile(r"-?[0-9]{1,20}")


def _place(field: str) -> str:
    return f"CreateConsumerRequest.config.{field}"


def _raw(value: Any) -> str:
    """A value as it was written, more or less: without the blanks of lists and objects."""
    return json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False)


def _enum(field: str, value: Any) -> str:
    """One of the words a field may have."""
    if field == "deliver_policy" and type(value) is str and value == "undefined":
        return "all"
    if type(value) is str and value in ENUMS[field]:
        return value
    if field == "priority_policy":
        raise InvalidJson(f"unknown priority policy: {_raw(value)}")
    raise InvalidJson(f"can not unmarshal {quote(_raw(value))}")


def _action(value: Any) -> str:
    if type(value) is str and value in _ACTIONS:
        return value
    raise InvalidJson(f"unknown consumer action: {_raw(value)}")


def _moment(field: str, value: Any) -> Moment | None:
    if value is None:
        return None
    if type(value) is not str:
        raise InvalidJson(
            f"json: cannot unmarshal {kind_of(value)} into Go struct field {_place(field)} of type time.Time"
        )
    return parse_moment(value)


def _durations(field: str, value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    if type(value) is not list:
        raise InvalidJson(
            f"json: cannot unmarshal {kind_of(value)} into Go struct field {_place(field)} of type []{_DURATION}"
        )
    return tuple(_duration(part, f"{_place(field)}.{index}") for index, part in enumerate(value))


def _duration(value: Any, place: str) -> int:
    if value is None:
        return 0
    low, stop = INTEGERS[_DURATION]
    if kind_of(value) != "number":
        raise InvalidJson(f"json: cannot unmarshal {kind_of(value)} into {place} of type {_DURATION}")
    if not _NUMBER.fullmatch(str(value)) or not low <= int(value) < stop:
        raise InvalidJson(f"json: cannot unmarshal number {value} into {place} of type {_DURATION}")
    return int(value)


# The Go type of each field, as its decoder names it in errors; what reads itself stands under its own name.
_SELF_READERS: dict[str, Any] = {
    **{field: partial(_enum, field) for field in ENUMS},
    **{field: partial(_moment, field) for field in TIMES},
    "backoff": partial(_durations, "backoff"),
}
_GO_TYPES: dict[str, str] = {
    **dict.fromkeys(FIELD_TYPES, "string"),
    **dict.fromkeys(("opt_start_seq", "rate_limit_bps"), "uint64"),
    **dict.fromkeys(DURATIONS, _DURATION),
    **dict.fromkeys(("max_deliver", "max_waiting", "max_ack_pending", "max_batch", "max_bytes", "num_replicas"), "int"),
    **dict.fromkeys(LISTS, "[]string"),
    "metadata": "map[string]string",
    **{name: "bool" for name, kind in FIELD_TYPES.items() if kind is bool},
    **{name: name for name in _SELF_READERS},
}
_CONFIG = Struct("server.ConsumerConfig", _GO_TYPES, ConsumerConfig, readers=_SELF_READERS)
REQUEST = Struct(
    "server.CreateConsumerRequest",
    {"stream_name": "string", "config": _CONFIG.go_type, "action": "action", "pedantic": "bool"},
    CreateRequest,
    {_CONFIG.go_type: _CONFIG},
    {"action": _action},
)


def decode_request(raw: bytes, *, strict: bool = True) -> CreateRequest:
    """The body of CONSUMER.CREATE, not yet checked by rules. Without `strict`, unknown fields are left out."""
    return CreateRequest(**decode(raw, REQUEST, strict=strict))


def decode_config(raw: bytes) -> ConsumerConfig:
    """A configuration that `encode_config` wrote."""
    return ConsumerConfig(**decode(raw, _CONFIG))


def encode_config(config: ConsumerConfig) -> bytes:
    """The JSON of `config` as nats-server writes it, escapes included."""
    return encode(to_dict(config))


def to_dict(config: ConsumerConfig) -> dict[str, Any]:
    """The `config` object of an API response."""
    fields: dict[str, Any] = {}
    for field in FIELD_TYPES:
        value = getattr(config, field)
        if field not in _ALWAYS and (not value or (field == "priority_policy" and value == "none")):
            continue
        if isinstance(value, Moment):
            value = format_moment(value)
        elif isinstance(value, tuple):
            value = list(value)
        elif field == "metadata":
            value = dict(sorted(value.items()))
        fields[field] = value
    return fields
