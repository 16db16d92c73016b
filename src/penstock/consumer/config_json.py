"""Consumer configurations as JSON: what the API receives and answers, and what the store keeps.

Rules: the JetStream API of nats-server 2.15. Reading is as strict as nats-server: an unknown field or one of another
type is 400/10025 with the text of Go's decoder. Writing follows the order and the omissions of nats-server's struct.
Both are derived from the fields of `ConsumerConfig`.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any, Literal

import msgspec

from penstock.consumer.config import FIELDS, ConsumerConfig
from penstock.consumer.moment import Moment, format_moment, parse_moment
from penstock.errors import InvalidJson, quote
from penstock.stream.fields import go_struct, to_json
from penstock.wire.go_decode import INTEGERS, Struct, decode, kind_of, plain
from penstock.wire.go_json import encode

Action = Literal["", "create", "update"]


class CreateRequest(msgspec.Struct, frozen=True):
    """The body of CONSUMER.CREATE: `action` "" creates or updates."""

    stream_name: str = ""
    config: ConsumerConfig = ConsumerConfig()
    action: Action = ""
    pedantic: bool = False


_ACTIONS = ("create", "update", "")
_DURATION = "time.Duration"
_NUMBER = re.compile(r"-?[0-9]{1,20}")


def _place(field: str) -> str:
    return f"CreateConsumerRequest.config.{field}"


def _raw(value: Any) -> str:
    """A value as the request has it, but without the blanks in lists and objects."""
    return json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False)


def _enum(field: str, value: Any) -> str:
    """The word for `field`; InvalidJson if it is none of those allowed."""
    if field == "deliver_policy" and type(value) is str and value == "undefined":
        return "all"
    if type(value) is str and value in FIELDS[field].values:
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


_READERS: dict[str, Any] = {
    **{name: partial(_enum, name) for name, field in FIELDS.items() if field.values},
    **{name: partial(_moment, name) for name, field in FIELDS.items() if field.go_type == "time.Time"},
    "backoff": partial(_durations, "backoff"),
}
_CONFIG = go_struct("server.ConsumerConfig", ConsumerConfig, readers=_READERS)
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
    written = to_json(config)
    return {name: format_moment(value) if isinstance(value, Moment) else value for name, value in written.items()}
