"""Stream configurations as JSON: what the API receives and answers, and what the store keeps.

Rules: the JetStream API of nats-server 2.15. Reading is as strict as nats-server: an unknown field or one of another
type is 400/10025 with the text of Go's decoder; field names match in any case, the last of a repeated field counts,
null leaves the default. Writing follows the order and the omissions of nats-server's struct. Both are derived from the
fields of `StreamConfig`.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from penstock.errors import InvalidJson, quote
from penstock.stream.config import FIELDS, StreamConfig
from penstock.stream.fields import go_struct, to_json
from penstock.wire.go_decode import decode, kind_of, plain
from penstock.wire.go_json import encode


def _enum(name: str, value: Any) -> str:
    """The word for field `name`; InvalidJson if it is none of those allowed."""
    values = FIELDS[name].values
    if name == "compression":
        if value is not None and type(value) is not str:
            raise InvalidJson(f"json: cannot unmarshal {kind_of(value)} into Go value of type string")
        if value not in values:
            raise InvalidJson("unknown compression algorithm")
        return str(value)
    if type(value) is str:
        text = value.lower() if name == "discard" else value
        if text in values:
            return text
        if name == "persist_mode" and not text:
            return "default"
    raise InvalidJson(f"can not unmarshal {quote(json.dumps(plain(value), separators=(',', ':'), ensure_ascii=False))}")


REQUEST = go_struct(
    "server.StreamConfigRequest",
    StreamConfig,
    others={"pedantic": "bool"},
    readers={name: partial(_enum, name) for name, field in FIELDS.items() if field.values},
)


def decode_request(raw: bytes, *, strict: bool = True) -> tuple[StreamConfig, bool]:
    """The configuration of a CREATE or UPDATE request, and whether the request is pedantic. Rules are not yet checked.

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
    return to_json(config)
