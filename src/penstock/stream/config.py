"""The configuration of a stream under JetStream's names. The struct is the table of its fields (`fields.py`).

Rules: the JetStream API of nats-server 2.15. `config_rules.py` checks them, `config_json.py` is JSON in and out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from penstock.errors import InvalidConfig
from penstock.stream.fields import (
    ALWAYS,
    Duration,
    Field,
    Go,
    Int,
    Int32,
    Int64,
    Level,
    Missing,
    UInt64,
    fields_of,
    plain_value,
    unknown_field,
)

REQUIRED_LEVEL = "_nats.req.level"
DURABILITY = "penstock.durability"  # ours, in a stream's metadata: when its publishes are acknowledged
DYNAMIC_METADATA = ("_nats.ver", "_nats.level")  # only in replies of a server; never stored

Retention = Literal["limits", "interest", "workqueue"]
Discard = Literal["old", "new"]
Storage = Literal["file", "memory"]
Compression = Literal["none", "s2"]
PersistMode = Literal["default", "async"]


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a cluster should put the stream; stored, and without effect on a single server."""

    cluster: str = ""
    tags: tuple[str, ...] = ()
    preferred: str = ""


class ConsumerLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Defaults and bounds for the consumers of the stream."""

    inactive_threshold: Duration = 0
    max_ack_pending: Int = 0


class SubjectTransformConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the subject of an incoming message is rewritten before it is stored (`transform.py`)."""

    src: Annotated[str, ALWAYS] = ""
    dest: Annotated[str, ALWAYS] = ""


class Republish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where messages are published again once they are stored."""

    src: str = ""
    dest: Annotated[str, ALWAYS] = ""
    headers_only: bool = False


class StreamConfig(msgspec.Struct, frozen=True):
    """Every field of a JetStream stream, in the order of its JSON.

    A new one may hold anything. `check_create` and `check_update` return one with its defaults filled in and every rule
    kept, and only such a one is stored.
    """

    name: Annotated[str, ALWAYS] = ""
    description: str = ""
    subjects: tuple[str, ...] = ()
    retention: Annotated[Retention, ALWAYS] = "limits"
    max_consumers: Annotated[Int, ALWAYS] = 0
    max_msgs: Annotated[Int64, ALWAYS] = 0
    max_bytes: Annotated[Int64, ALWAYS] = 0
    max_age: Annotated[Duration, ALWAYS] = 0
    max_msgs_per_subject: Annotated[Int64, ALWAYS] = 0
    max_msg_size: Int32 = 0
    discard: Annotated[Discard, ALWAYS] = "old"
    storage: Annotated[Storage, ALWAYS] = "file"
    num_replicas: Annotated[Int, ALWAYS] = 0
    no_ack: bool = False
    duplicate_window: Duration = 0
    placement: Annotated[Placement | None, Go("server.Placement")] = None
    mirror: Annotated[dict[str, Any] | None, Go("server.StreamSource"), Missing("mirrors")] = None
    sources: Annotated[tuple[dict[str, Any], ...], Go("[]*server.StreamSource"), Missing("sources")] = ()
    compression: Annotated[Compression, ALWAYS, Missing("compression of blocks")] = "none"
    first_seq: UInt64 = 0
    subject_transform: Annotated[SubjectTransformConfig | None, Go("server.SubjectTransformConfig")] = None
    republish: Annotated[Republish | None, Go("server.RePublish")] = None
    allow_direct: Annotated[bool, ALWAYS] = False
    mirror_direct: Annotated[bool, ALWAYS] = False
    discard_new_per_subject: bool = False
    sealed: Annotated[bool, ALWAYS] = False
    deny_delete: Annotated[bool, ALWAYS] = False
    deny_purge: Annotated[bool, ALWAYS] = False
    allow_rollup_hdrs: Annotated[bool, ALWAYS] = False
    consumer_limits: Annotated[ConsumerLimits, ALWAYS, Go("server.StreamConsumerLimits")] = ConsumerLimits()
    allow_msg_ttl: Annotated[bool, ALWAYS, Level(1)] = False
    subject_delete_marker_ttl: Annotated[Duration, Level(1)] = 0
    allow_msg_counter: Annotated[bool, Missing("counters")] = False
    allow_atomic: Annotated[bool, Missing("atomic batches")] = False
    allow_msg_schedules: Annotated[bool, Missing("message schedules")] = False
    persist_mode: Annotated[PersistMode, Level(2)] = "default"
    allow_batched: Annotated[bool, Missing("fast batches")] = False
    metadata: dict[str, str] = {}


FIELDS: dict[str, Field] = fields_of(StreamConfig)


def make_config(name: str, **fields: Any) -> StreamConfig:
    """A configuration from Python values: durations as "7d", timedelta or seconds, one subject as text, None = default.

    It is not yet checked against the rules: `check_create` does that.
    """
    values: dict[str, Any] = {}
    for field, value in (("name", name), *fields.items()):
        if field not in FIELDS:
            raise InvalidConfig(unknown_field("stream", StreamConfig, field))
        if value is None:
            continue
        try:
            values[field] = msgspec.convert(plain_value(FIELDS[field], value), FIELDS[field].type)
        except ValueError as error:  # msgspec.ValidationError is one
            raise InvalidConfig(f"{field}: {error}") from None
    return StreamConfig(**values)
