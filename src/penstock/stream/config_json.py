"""Stream configurations as JSON: what the API takes and answers, and what the store keeps.

Rules: the JetStream API of nats-server 2.15. Reading is as strict as nats-server: an unknown field or one
of another type is 400/10025 with the text of Go's decoder; field names match in any case, the last of a repeated field
counts, null leaves the default. Writing follows the order and the omissions of the reference's struct.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from penstock.errors import InvalidJson, quote
from penstock.stream.config import ENUMS, FIELD_TYPES, ConsumerLimits, Placement, StreamConfig
from penstock.wire import go_json

# The Go type of each field, as its decoder names it in errors.
_INTEGERS = {
    "int": (-(2**63), 2**63),
    "int64": (-(2**63), 2**63),
    "int32": (-(2**31), 2**31),
    "uint64": (0, 2**64),
    "time.Duration": (-(2**63), 2**63),
}
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
    **dict.fromkeys(ENUMS, "enum"),
    "pedantic": "bool",
}
_NESTED: dict[str, tuple[type[Placement] | type[ConsumerLimits], dict[str, str]]] = {
    "server.Placement": (Placement, {"cluster": "string", "tags": "[]string", "preferred": "string"}),
    "server.StreamConsumerLimits": (ConsumerLimits, {"inactive_threshold": "time.Duration", "max_ack_pending": "int"}),
}
_ROOT = "StreamConfigRequest"

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


class _Number(str):
    """A number as it was written: 1e3 and 9223372036854775808 are refused by their text."""

    __slots__ = ()


class _Pairs(list[tuple[str, Any]]):
    """An object with its fields in order, repeated ones included."""

    __slots__ = ()


def decode_request(raw: bytes) -> tuple[StreamConfig, bool]:
    """The configuration of a CREATE or UPDATE request, and whether it asks to be pedantic. Not yet checked by rules."""
    values = _object(_load(raw), _GO_TYPES, _ROOT, "server.StreamConfigRequest")
    pedantic = bool(values.pop("pedantic", False))
    return StreamConfig(**values), pedantic


def decode_config(raw: bytes) -> StreamConfig:
    """A configuration that `encode_config` wrote."""
    return decode_request(raw)[0]


def encode_config(config: StreamConfig) -> bytes:
    """The JSON of `config` as nats-server writes it, escapes included."""
    return go_json.encode(to_dict(config))


def to_dict(config: StreamConfig) -> dict[str, Any]:
    """The `config` object of an API response."""
    fields: dict[str, Any] = {}
    for field in FIELD_TYPES:
        value = getattr(config, field)
        if field not in _ALWAYS and (not value or value == "default"):
            continue
        if isinstance(value, msgspec.Struct):
            parts = msgspec.to_builtins(value).items()
            value = {key: list(part) if isinstance(part, tuple) else part for key, part in parts if part}
        elif isinstance(value, tuple):
            value = list(value)
        elif field == "metadata":
            value = dict(sorted(value.items()))
        fields[field] = value
    return fields


def _load(raw: bytes) -> Any:
    if not raw.strip(b" \t\r\n"):
        return None
    try:
        return json.loads(
            raw.decode("utf-8", "replace"),
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_refuse_constant,
            object_pairs_hook=_Pairs,
        )
    except RecursionError:
        raise InvalidJson("exceeded max depth") from None
    except ValueError as error:
        raise InvalidJson(str(error)) from None


def _refuse_constant(text: str) -> None:
    raise ValueError(f"invalid character {text[0]!r} looking for beginning of value")


def _object(value: Any, types: dict[str, str], path: str, go_type: str) -> dict[str, Any]:
    """The fields of a JSON object by their own names; the first mistake in the order of the text is raised."""
    if value is None:
        return {}
    if not isinstance(value, _Pairs):
        raise _mismatch(value, path, go_type)
    fields: dict[str, Any] = {}
    for written, part in value:
        name = written if written in types else written.lower()
        if name not in types:
            raise InvalidJson(f"json: unknown field {quote(_text(written))}")
        if part is None and types[name] != "enum":
            continue
        fields[name] = _value(part, types[name], name, f"{path}.{name}")
    return fields


def _value(value: Any, go_type: str, name: str, path: str) -> Any:
    if go_type in _INTEGERS:
        return _integer(value, go_type, path)
    if go_type == "enum":
        return _enum(value, name)
    if go_type in _NESTED:
        kind, types = _NESTED[go_type]
        return kind(**_object(value, types, path, go_type))
    if go_type == "string" and type(value) is str:
        return _text(value)
    if go_type == "bool" and isinstance(value, bool):
        return value
    if go_type == "[]string" and type(value) is list:
        return tuple(_element(part, f"{path}.{index}") for index, part in enumerate(value))
    if go_type == "map[string]string" and isinstance(value, _Pairs):
        return {_text(key): _value(part, "string", key, f"{path}.{key}") for key, part in value if part is not None}
    if go_type.startswith("[]*server.") and type(value) is list:
        return tuple(_plain(part) for part in value)
    if go_type.startswith("server.") and isinstance(value, _Pairs):
        return _plain(value)
    raise _mismatch(value, path, go_type)


def _integer(value: Any, go_type: str, path: str) -> int:
    low, stop = _INTEGERS[go_type]
    if not isinstance(value, _Number):
        raise _mismatch(value, path, go_type)
    if re.fullmatch(r"-?[0-9]{1,20}", value) and low <= int(value) < stop:
        return int(value)
    raise InvalidJson(f"json: cannot unmarshal number {value} into Go struct field {path} of type {go_type}")


def _enum(value: Any, name: str) -> str:
    if name == "compression":
        if value is not None and type(value) is not str:
            raise InvalidJson(f"json: cannot unmarshal {_kind(value)} into Go value of type string")
        if value not in ENUMS[name]:
            raise InvalidJson("unknown compression algorithm")
        return str(value)
    if type(value) is str:
        text = value.lower() if name == "discard" else value
        if text in ENUMS[name]:
            return text
        if name == "persist_mode" and not text:
            return "default"
    raise InvalidJson(f"can not unmarshal {quote(_dump(value))}")


def _element(value: Any, path: str) -> str:
    if value is None:
        return ""
    if type(value) is not str:
        raise InvalidJson(f"json: cannot unmarshal {_kind(value)} into {path} of type string")
    return _text(value)


def _mismatch(value: Any, path: str, go_type: str) -> InvalidJson:
    place = "Go value" if path == _ROOT else f"Go struct field {path}"
    return InvalidJson(f"json: cannot unmarshal {_kind(value)} into {place} of type {go_type}")


def _kind(value: Any) -> str:
    if isinstance(value, _Number):
        return "number"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, _Pairs):
        return "object"
    return "array" if isinstance(value, list) else "string"


def _dump(value: Any) -> str:
    """The JSON text of a value that was read, without blanks."""
    return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """A value that was read as ordinary Python."""
    if isinstance(value, _Number):
        return int(value) if re.fullmatch(r"-?[0-9]{1,20}", value) else float(value)
    if isinstance(value, _Pairs):
        return {_text(key): _plain(part) for key, part in value}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return _text(value) if isinstance(value, str) else value


def _text(value: str) -> str:
    """Half of a surrogate pair is no character; Go's decoder puts U+FFFD in its place."""
    return re.sub("[\ud800-\udfff]", "\ufffd", value)
