"""Stream configurations as JSON: what the API takes and answers, and what the store keeps.

Rules: the JetStream API of nats-server 2.15. Reading is as strict as nats-server: an unknown field or one
of another type is 400/10025 with the text of Go's decoder; field names match in any case, the last of a repeated field
counts, null leaves the default. Writing follows the order and the omissions of the reference's struct.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import msgspec

from penstock.errors import InvalidJson, quote
from penstock.stream.config import (
    ENUMS,
    FIELD_TYPES,
    ConsumerLimits,
    Placement,
    Republish,
    StreamConfig,
    SubjectTransformConfig,
)
from penstock.wire.go_decode import Struct, decode, kind_of, plain
from penstock.wire.go_json import encode

# The Go type of each field, as its decoder names it in errors.
_GO_TYPES = {
    **dict.fromkeys(("name", "description"), "string"),
    "subjects": "[]string",
    **dict.fromkeys(("max_consumers", "num_replicas"), "int"),
    **dict.fromkeys(("max_msgs", "max_bytes", "max_msgs_per_subject"), "int64"),
    **dict.fromkeys(("max_age", "duplicate_window", "subject_delete_marker_ttl"), "time.Duration"),
    "max_msg_size": "int32",
    "first_seq": "uint64",
    "placement": "server.Placement",
    "consumer_limits": "server.StreamConsumerLimits",
    "mirror": "server.StreamSource",
    "sources": "[]*server.StreamSource",
    "subject_transform": "server.SubjectTransformConfig",
    "republish": "server.RePublish",
    "metadata": "map[string]string",
    **{name: "bool" for name, kind in FIELD_TYPES.items() if kind is bool},
    **{name: f"server.{name}" for name in ENUMS},
    "pedantic": "bool",
}
_PLACEMENT = Struct("server.Placement", {"cluster": "string", "tags": "[]string", "preferred": "string"}, Placement)
_CONSUMER_LIMITS = Struct(
    "server.StreamConsumerLimits", {"inactive_threshold": "time.Duration", "max_ack_pending": "int"}, ConsumerLimits
)

_TRANSFORM = Struct("server.SubjectTransformConfig", {"src": "string", "dest": "string"}, SubjectTransformConfig)
_REPUBLISH = Struct("server.RePublish", {"src": "string", "dest": "string", "headers_only": "bool"}, Republish)

# Of a nested object: what is written even when it is empty.
_ALWAYS_NESTED = {"subject_transform": ("src", "dest"), "republish": ("dest",)}

# Written even when zero; every other field only when it says something.
_ALWAYS = frozenset(
    {
        "name",
        "retention",
        "max_consumers",
        "max_msgs",
        "max_bytes",
        "max_age",
        "max_msgs_per_subject",
        "discard",
        "storage",
        "num_replicas",
        "compression",
        "allow_direct",
        "mirror_direct",
        "sealed",
        "deny_delete",
        "deny_purge",
        "allow_rollup_hdrs",
        "consumer_limits",
        "allow_msg_ttl",
    }
)


def _enum(name: str, value: Any) -> str:
    """One of the words a field may have."""
    if name == "compression":
        if value is not None and type(value) is not str:
            raise InvalidJson(f"json: cannot unmarshal {kind_of(value)} into Go value of type string")
        if value not in ENUMS[name]:
            raise InvalidJson("unknown compression algorithm")
        return str(value)
    if type(value) is str:
        text = value.lower() if name == "discard" else value
        if text in ENUMS[name]:
            return text
        if name == "persist_mode" and not text:
            return "default"
    raise InvalidJson(f"can not unmarshal {quote(json.dumps(plain(value), separators=(',', ':'), ensure_ascii=False))}")


REQUEST = Struct(
    "server.StreamConfigRequest",
    _GO_TYPES,
    StreamConfig,
    {struct.go_type: struct for struct in (_PLACEMENT, _CONSUMER_LIMITS, _TRANSFORM, _REPUBLISH)},
    {f"server.{name}": partial(_enum, name) for name in ENUMS},
)


def decode_request(raw: bytes, *, strict: bool = True) -> tuple[StreamConfig, bool]:
    """The configuration of a CREATE or UPDATE request, and whether it asks to be pedantic. Not yet checked by rules.

    Without `strict`, unknown fields are left out.
    """
    values = decode(raw, REQUEST, strict=strict)
    pedantic = bool(values.pop("pedantic", False))
    return StreamConfig(**values), pedantic


def decode_config(raw: bytes) -> StreamConfig:
    """A configuration that `encode_config` wrote."""
    return decode_request(raw)[0]


def encode_config(config: StreamConfig) -> bytes:
    """The JSON of `config` as nats-server writes it, escapes included."""
    return encode(to_dict(config))


def to_dict(config: StreamConfig) -> dict[str, Any]:
    """The `config` object of an API response."""
    fields: dict[str, Any] = {}
    for field in FIELD_TYPES:
        value = getattr(config, field)
        if field not in _ALWAYS and (not value or value == "default"):
            continue
        if isinstance(value, msgspec.Struct):
            parts = msgspec.to_builtins(value).items()
            kept = _ALWAYS_NESTED.get(field, ())
            value = {key: list(part) if isinstance(part, tuple) else part for key, part in parts if part or key in kept}
        elif isinstance(value, tuple):
            value = list(value)
        elif field == "metadata":
            value = dict(sorted(value.items()))
        fields[field] = value
    return fields
