"""The configuration of a stream under JetStream's names, and the rules it must keep.

Rules: the JetStream API of nats-server 2.15; codes and texts are those of nats-server 2.15.1, recorded in
tests/stream/parity_cases.json. JSON in and out is in `config_json.py`. What JetStream has and this version of Penstock
does not is refused by name (`FeatureMissing`), never taken and ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec

from penstock.base.duration import NS_PER_SECOND, duration_ns
from penstock.base.subject import (
    Filters,
    any_overlap,
    covers,
    first_overlap,
    is_literal_filter,
    is_valid_filter,
    overlap,
)
from penstock.errors import (
    BadStreamName,
    BadTransformDestination,
    BadTransformSource,
    FeatureMissing,
    InvalidConfig,
    NegativeReplicas,
    PedanticError,
    ReplicasNotSupported,
    SubjectOverlap,
    quote,
)
from penstock.store.limits import DURABILITIES
from penstock.stream.transform import BadTransform, SubjectTransform, check_destination, check_text

NAME_SIZE_MAX = 255
DESCRIPTION_SIZE_MAX = 4096
METADATA_SIZE_MAX = 128 * 1024
REPLICAS_MAX = 5
AGE_NS_MIN = 100_000_000
DUPLICATE_WINDOW_NS = 120_000_000_000
FIRST_SEQ_STOP = 2**63

BLOCK_SIZE_MIN = 32_000
BLOCK_SIZE_MEDIUM = 4 * 1024 * 1024
BLOCK_SIZE_MAX = 8 * 1024 * 1024

REQUIRED_LEVEL = "_nats.req.level"
DURABILITY = "penstock.durability"  # ours, in a stream's metadata: when its publishes are acknowledged
DYNAMIC_METADATA = ("_nats.ver", "_nats.level")  # only in replies of a server; never stored

Retention = Literal["limits", "interest", "workqueue"]
Discard = Literal["old", "new"]
Storage = Literal["file", "memory"]
Compression = Literal["none", "s2"]
PersistMode = Literal["default", "async"]

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
UInt64 = Annotated[int, msgspec.Meta(ge=0)]


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a cluster should put the stream; kept, and of no effect on a single server."""

    cluster: str = ""
    tags: tuple[str, ...] = ()
    preferred: str = ""


class ConsumerLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Defaults and bounds for the consumers of the stream."""

    inactive_threshold: Int64 = 0
    max_ack_pending: Int64 = 0


class SubjectTransformConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the subjects of incoming messages become before anything else is done with them (`transform.py`)."""

    src: str = ""
    dest: str = ""


class Republish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where messages are published again once they are stored."""

    src: str = ""
    dest: str = ""
    headers_only: bool = False


class StreamConfig(msgspec.Struct, frozen=True):
    """Every field of a JetStream stream, in the order of its JSON. Durations are nanoseconds.

    A fresh one may hold anything; `check_create` and `check_update` give one with its defaults filled in and every
    rule kept, and only such a one is stored.
    """

    name: str = ""
    description: str = ""
    subjects: tuple[str, ...] = ()
    retention: Retention = "limits"
    max_consumers: Int64 = 0
    max_msgs: Int64 = 0
    max_bytes: Int64 = 0
    max_age: Int64 = 0
    max_msgs_per_subject: Int64 = 0
    max_msg_size: Int32 = 0
    discard: Discard = "old"
    storage: Storage = "file"
    num_replicas: Int64 = 0
    no_ack: bool = False
    duplicate_window: Int64 = 0
    placement: Placement | None = None
    mirror: dict[str, Any] | None = None
    sources: tuple[dict[str, Any], ...] = ()
    compression: Compression = "none"
    first_seq: UInt64 = 0
    subject_transform: SubjectTransformConfig | None = None
    republish: Republish | None = None
    allow_direct: bool = False
    mirror_direct: bool = False
    discard_new_per_subject: bool = False
    sealed: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    consumer_limits: ConsumerLimits = ConsumerLimits()
    allow_msg_ttl: bool = False
    subject_delete_marker_ttl: Int64 = 0
    allow_msg_counter: bool = False
    allow_atomic: bool = False
    allow_msg_schedules: bool = False
    persist_mode: PersistMode = "default"
    allow_batched: bool = False
    metadata: dict[str, str] = {}


FIELD_TYPES: dict[str, Any] = get_type_hints(StreamConfig, include_extras=True)
ENUMS: dict[str, tuple[str, ...]] = {
    name: get_args(FIELD_TYPES[name]) for name in ("retention", "discard", "storage", "compression", "persist_mode")
}
DURATIONS = ("max_age", "duplicate_window", "subject_delete_marker_ttl")


def make_config(name: str, **fields: Any) -> StreamConfig:
    """A configuration from Python values: durations as "7d", timedelta or seconds, one subject as text, None = default.

    It is not yet checked against the rules: `check_create` does that.
    """
    values: dict[str, Any] = {}
    for field, value in (("name", name), *fields.items()):
        if field not in FIELD_TYPES:
            raise InvalidConfig(_unknown_field(field))
        if value is None:
            continue
        try:
            values[field] = msgspec.convert(_plain(field, value), FIELD_TYPES[field])
        except ValueError as error:  # msgspec.ValidationError is one
            raise InvalidConfig(f"{field}: {error}") from None
    return StreamConfig(**values)


def check_create(config: StreamConfig, *, pedantic: bool = False) -> StreamConfig:
    """`config` as a new stream would hold it; raises the ApiError that CREATE answers with."""
    check_new(config)
    return validate(config, pedantic=pedantic)


def check_new(config: StreamConfig) -> None:
    """What CREATE looks at before anything else."""
    if "/" in config.name or "\\" in config.name:
        raise BadStreamName
    if config.sealed:
        raise InvalidConfig("stream configuration for create can not be sealed")
    if config.mirror_direct and config.mirror is None:
        raise InvalidConfig("stream has no mirror but does have mirror direct")


def check_update(old: StreamConfig, new: StreamConfig, *, pedantic: bool = False) -> StreamConfig:
    """`new` as the stream with configuration `old` would hold it; raises the ApiError that UPDATE answers with."""
    new = validate(new, pedantic=pedantic)
    if new.name != old.name:
        raise InvalidConfig("stream configuration name must match original")
    if new.storage != old.storage:
        raise InvalidConfig("stream configuration update can not change storage type")
    if new.retention != old.retention and "workqueue" in (new.retention, old.retention):
        raise InvalidConfig("stream configuration update can not change retention policy to/from workqueue")
    if old.sealed and not new.sealed:
        raise InvalidConfig("stream configuration update can not unseal a sealed stream")
    if old.deny_delete and not new.deny_delete:
        raise InvalidConfig("stream configuration update can not cancel deny message deletes")
    if old.deny_purge and not new.deny_purge:
        raise InvalidConfig("stream configuration update can not cancel deny purge")
    if old.allow_msg_ttl and not new.allow_msg_ttl:
        raise InvalidConfig("message TTL status can not be disabled")
    if old.persist_mode != new.persist_mode:
        raise InvalidConfig("stream configuration update can not change persist mode")
    if old.metadata.get(DURABILITY) != new.metadata.get(DURABILITY):
        raise InvalidConfig(f"stream configuration update can not change {DURABILITY}")
    if not new.sealed:
        return new
    return msgspec.structs.replace(
        new, max_age=0, discard="new", deny_delete=True, deny_purge=True, allow_rollup_hdrs=False
    )


def validate(config: StreamConfig, *, pedantic: bool = False) -> StreamConfig:
    """`config` with its defaults filled in; raises the ApiError of the first rule it breaks.

    With `pedantic`, a value that would be changed silently is an error instead.
    """
    config = msgspec.structs.replace(config, metadata=_static_metadata(config))
    _check_texts(config)
    _check_enums(config)
    _check_features(config)
    if config.persist_mode == "async" and config.num_replicas > 1:
        raise InvalidConfig("async persist mode is not supported on replicated streams")
    replicas = _check_replicas(config)
    limits = {field: _limit(config, field, pedantic) for field in LIMITS}
    window = _duplicate_window(config, pedantic)
    if config.deny_purge and config.allow_rollup_hdrs:
        raise InvalidConfig("roll-ups require the purge permission")
    if config.discard_new_per_subject:
        if config.discard != "new":
            raise InvalidConfig("discard new per subject requires discard new policy to be set")
        if limits["max_msgs_per_subject"] <= 0:
            raise InvalidConfig("discard new per subject requires max msgs per subject > 0")
    config = _with_markers(config, pedantic)
    if config.persist_mode == "async" and config.storage != "file":
        raise InvalidConfig("async persist mode is only supported on file storage")
    subjects = config.subjects or (config.name,)
    if config.subjects:
        _check_subjects(config, replicas)
    if config.first_seq >= FIRST_SEQ_STOP:
        raise InvalidConfig(f"first_seq {config.first_seq} is too large: sequences stay below 2^63")
    if config.subject_transform is not None:
        _check_transform(config.subject_transform)
    config = msgspec.structs.replace(config, subjects=subjects)
    if config.republish is not None:
        config = msgspec.structs.replace(config, republish=_check_republish(config, config.republish, pedantic))
    placement = None if config.placement == Placement() else config.placement
    if placement is not None and placement.preferred:
        raise InvalidConfig("preferred server not permitted in placement")
    if replicas > 1:
        raise ReplicasNotSupported
    return msgspec.structs.replace(
        config, num_replicas=replicas, duplicate_window=window, placement=placement, **limits
    )


def same(old: StreamConfig, new: StreamConfig) -> bool:
    """Whether CREATE with `new` finds the stream it wants in `old`: both checked, versions in metadata ignored."""
    return _without_versions(old) == _without_versions(new)


def check_overlap(config: StreamConfig, others: Iterable[StreamConfig]) -> None:
    """Raise SubjectOverlap where another stream takes a subject of this one."""
    if not config.subjects:
        return
    own = Filters(config.subjects)
    for other in others:
        if other.name != config.name and other.subjects and any_overlap(own, Filters(other.subjects)):
            raise SubjectOverlap


def block_size(config: StreamConfig, payload_size_max: int = 1024 * 1024) -> int:
    """The size at which a block of this stream is sealed (jetstream-api.md, 9.3, "Block size")."""
    if config.max_bytes > 0:
        total = config.max_bytes
    elif config.max_msgs > 0:
        total = config.max_msgs * _record_size_estimate(config, payload_size_max)
    elif config.max_msgs_per_subject > 0 or config.retention != "limits":
        return BLOCK_SIZE_MEDIUM
    else:
        return BLOCK_SIZE_MAX
    size = -(-(total // 4 + 1) // 100) * 100
    if size <= BLOCK_SIZE_MIN:
        return BLOCK_SIZE_MIN
    return BLOCK_SIZE_MAX if size >= BLOCK_SIZE_MAX else BLOCK_SIZE_MEDIUM


# ------------------------------------------------------------------------------------------------------ rules in parts

LIMITS = ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers")

# What JetStream has and this version does not: the field, what it would bring, and the values that ask for nothing.
MISSING_FEATURES: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("mirror", "mirrors", (None,)),
    ("sources", "sources", ((),)),
    ("allow_msg_counter", "counters", (False,)),
    ("allow_atomic", "atomic batches", (False,)),
    ("allow_msg_schedules", "message schedules", (False,)),
    ("allow_batched", "fast batches", (False,)),
    ("compression", "compression of blocks", ("none",)),
)


def _check_texts(config: StreamConfig) -> None:
    name = _utf8("name", config.name)
    if not config.name or set(config.name) & set(" \t\r\n\f.*>\\/\0"):
        raise InvalidConfig("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if len(name) > NAME_SIZE_MAX:
        raise InvalidConfig(f"stream name is too long, maximum allowed is {NAME_SIZE_MAX}")
    if len(_utf8("description", config.description)) > DESCRIPTION_SIZE_MAX:
        raise InvalidConfig(f"stream description is too long, maximum allowed is {DESCRIPTION_SIZE_MAX}")
    if sum(len(_utf8("metadata", key + value)) for key, value in config.metadata.items()) > METADATA_SIZE_MAX:
        raise InvalidConfig(f"stream metadata exceeds maximum size of {METADATA_SIZE_MAX} bytes")
    if DURABILITY in config.metadata:
        if config.metadata[DURABILITY] not in DURABILITIES:
            raise InvalidConfig(f"{DURABILITY} {config.metadata[DURABILITY]!r}: one of {', '.join(DURABILITIES)}")
        if config.storage == "memory":
            raise InvalidConfig(f"{DURABILITY}: a stream in memory has none")
    if config.placement is not None:
        _utf8("placement", "".join((config.placement.cluster, config.placement.preferred, *config.placement.tags)))


def _check_enums(config: StreamConfig) -> None:
    for field, values in ENUMS.items():
        if getattr(config, field) not in values:
            raise InvalidConfig(f"invalid {field}: {getattr(config, field)!r} is none of {', '.join(values)}")


def _check_features(config: StreamConfig) -> None:
    for field, what, without in MISSING_FEATURES:
        if getattr(config, field) not in without:
            raise FeatureMissing(field, what)


def _check_replicas(config: StreamConfig) -> int:
    if config.num_replicas > REPLICAS_MAX:
        raise InvalidConfig(f"maximum replicas is {REPLICAS_MAX}")
    if config.num_replicas < 0:
        raise NegativeReplicas
    return config.num_replicas or 1


def _limit(config: StreamConfig, field: str, pedantic: bool) -> int:
    value: int = getattr(config, field)
    if pedantic and value < -1:
        raise PedanticError(f"{field} must be set to -1")
    return value if value > 0 else -1


def _duplicate_window(config: StreamConfig, pedantic: bool) -> int:
    age, window = config.max_age, config.duplicate_window
    if age < 0:
        raise InvalidConfig("max age can not be negative")
    if 0 < age < AGE_NS_MIN:
        raise InvalidConfig("max age needs to be >= 100ms")
    if window == 0:
        if not 0 < age < DUPLICATE_WINDOW_NS:
            return DUPLICATE_WINDOW_NS
        if pedantic:
            raise PedanticError("duplicate window cannot be bigger than max age")
        return age
    if window < 0:
        raise InvalidConfig("duplicates window can not be negative")
    if 0 < age < window:
        raise InvalidConfig("duplicates window can not be larger then max age")
    if window < AGE_NS_MIN:
        raise InvalidConfig("duplicates window needs to be >= 100ms")
    return window


def _with_markers(config: StreamConfig, pedantic: bool) -> StreamConfig:
    """Subject delete markers expire themselves, and take the place of what was there: they need TTLs and roll-ups."""
    if config.subject_delete_marker_ttl < 0:
        raise InvalidConfig("subject delete marker TTL must not be negative")
    if config.subject_delete_marker_ttl == 0:
        return config
    if config.subject_delete_marker_ttl < NS_PER_SECOND:
        raise InvalidConfig("subject delete marker TTL must be at least 1 second")
    if not config.allow_msg_ttl:
        if pedantic:
            raise InvalidConfig("subject delete marker cannot be set if message TTLs are disabled")
        config = msgspec.structs.replace(config, allow_msg_ttl=True)
    if not config.allow_rollup_hdrs:
        if pedantic:
            raise InvalidConfig("subject delete marker cannot be set if roll-ups are disabled")
        config = msgspec.structs.replace(config, allow_rollup_hdrs=True, deny_purge=False)
    return config


def _check_transform(transform: SubjectTransformConfig) -> None:
    if transform.src and not is_valid_filter(transform.src):
        raise BadTransformSource(transform.src)
    try:
        if transform.dest:
            check_destination(transform.src, transform.dest)
    except BadTransform as error:
        raise BadTransformDestination(str(error)) from None


def _check_republish(config: StreamConfig, republish: Republish, pedantic: bool) -> Republish:
    """`republish` as it is stored; a message that it publishes must not come back into the stream."""
    if not republish.src:
        if pedantic:
            raise PedanticError("republish source can not be empty")
        republish = msgspec.structs.replace(republish, src=">")
    transform = config.subject_transform
    if republish.src == republish.dest == ">" and transform is not None and config.subjects == (transform.src,):
        # Everything, under the subjects that the transform gives.
        if pedantic:
            raise PedanticError("implicit republish based on subject transform")
        republish = msgspec.structs.replace(republish, src=transform.dest, dest=transform.dest)
    if any(collide(republish.dest, subject) for subject in config.subjects):
        raise InvalidConfig("stream configuration for republish destination forms a cycle")
    try:
        if republish.dest:
            check_text(republish.dest)
            SubjectTransform(republish.src, republish.dest)
    except BadTransform:
        raise InvalidConfig(
            f"stream configuration for republish with transform from '{republish.src}' to '{republish.dest}' not valid"
        ) from None
    return republish


def collide(one: str, other: str) -> bool:
    """Whether some subject could match both. They need not be filters: their tokens are compared as they are."""
    tokens, others = one.split("."), other.split(".")
    for a, b in zip(tokens, others, strict=False):
        if ">" not in (a, b) and a != b and not ("*" in (a, b) and a and b):
            return False
    return len(tokens) == len(others) or ">" in min(tokens, others, key=len)


def _check_subjects(config: StreamConfig, replicas: int) -> None:
    valid = [subject for subject in config.subjects if is_valid_filter(subject)]
    pair = first_overlap(Filters(valid))  # tens of thousands of subjects fit into a request
    overlaps = (valid[pair[0]], valid[pair[1]]) if pair is not None else None
    for index, subject in enumerate(config.subjects):
        if not is_valid_filter(subject):
            raise InvalidConfig("invalid subject")
        if subject == ">":
            if not config.no_ack:
                raise InvalidConfig("capturing all subjects requires no-ack to be true")
            if replicas != 1:
                raise InvalidConfig("capturing all subjects requires replicas of 1")
        if not config.no_ack:
            _check_reserved(subject)
        if pair is not None and overlaps is not None and index == pair[0]:
            raise InvalidConfig(f"subject {quote(overlaps[0])} overlaps with {quote(overlaps[1])}")


def _check_reserved(subject: str) -> None:
    if any(overlap(subject, space) for space in ("$JS.>", "$JSC.>", "$NRG.>")) and not covers("$JS.EVENT.>", subject):
        raise InvalidConfig("subjects that overlap with jetstream api require no-ack to be true")
    if overlap(subject, "$SYS.>") and not covers("$SYS.ACCOUNT.>", subject):
        raise InvalidConfig("subjects that overlap with system api require no-ack to be true")


def _static_metadata(config: StreamConfig) -> dict[str, str]:
    """The metadata as it is stored: the API level that the stream needs, and nothing of a server's replies."""
    has_ttl = config.allow_msg_ttl or config.subject_delete_marker_ttl > 0
    level = 2 if config.persist_mode == "async" else 1 if has_ttl else 0
    kept = {key: value for key, value in config.metadata.items() if key not in DYNAMIC_METADATA}
    return kept | {REQUIRED_LEVEL: str(level)}


def _without_versions(config: StreamConfig) -> StreamConfig:
    hidden = (REQUIRED_LEVEL, *DYNAMIC_METADATA)
    kept = {key: value for key, value in config.metadata.items() if key not in hidden}
    return msgspec.structs.replace(config, metadata=kept)


def _record_size_estimate(config: StreamConfig, payload_size_max: int) -> int:
    """What one message may take at most, as the reference guesses it."""
    literal = [len(subject.encode()) for subject in config.subjects if is_literal_filter(subject)]
    payload = config.max_msg_size if config.max_msg_size > 0 else payload_size_max
    return 22 + 8 + max(literal, default=256) + 4 + payload


def _utf8(field: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidConfig(f"{field}: {text!r} is not valid Unicode text") from None


# --------------------------------------------------------------------------------------------- friendly Python values


def _plain(field: str, value: Any) -> Any:
    """`value` as the field's own type: nanoseconds, a list, an enum in small letters."""
    if field in DURATIONS:
        return duration_ns(value)
    if field in ENUMS and isinstance(value, str):
        return value.lower()
    if field in ("subjects", "sources") and isinstance(value, str | dict):
        return (value,)
    if field == "consumer_limits" and isinstance(value, dict) and "inactive_threshold" in value:
        return value | {"inactive_threshold": duration_ns(value["inactive_threshold"])}
    return value


def _unknown_field(field: str) -> str:
    import difflib  # 7 ms that only a mistake should cost

    near = difflib.get_close_matches(field, FIELD_TYPES, n=1)
    return f"a stream has no field {field!r}" + (f"; did you mean {near[0]!r}?" if near else "")
