"""The rules that a stream's configuration must keep, and the defaults it gets.

Rules: the JetStream API of nats-server 2.15; codes and texts are those of nats-server 2.15.1, recorded in
tests/parity/recorded/tables/stream.json. A feature of JetStream that this version does not have is refused by name
(`FeatureMissing`), never accepted and ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import ne
from typing import Any

import msgspec

from penstock.base.duration import NS_PER_SECOND
from penstock.base.subject import (
    Filters,
    any_overlap,
    covers,
    first_overlap,
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
from penstock.stream.config import (
    DURABILITY,
    DYNAMIC_METADATA,
    FIELDS,
    REQUIRED_LEVEL,
    Placement,
    Republish,
    StreamConfig,
    SubjectTransformConfig,
)
from penstock.stream.fields import required_level
from penstock.stream.transform import BadTransform, SubjectTransform, check_destination, check_text

NAME_SIZE_MAX = 255
DESCRIPTION_SIZE_MAX = 4096
METADATA_SIZE_MAX = 128 * 1024
REPLICAS_MAX = 5
AGE_NS_MIN = 100_000_000
DUPLICATE_WINDOW_NS = 120_000_000_000
FIRST_SEQ_STOP = 2**63


def check_create(config: StreamConfig, *, pedantic: bool = False) -> StreamConfig:
    """`config` as a new stream stores it; raises the ApiError that CREATE answers with."""
    check_new(config)
    return validate(config, pedantic=pedantic)


def check_new(config: StreamConfig) -> None:
    """The rules that CREATE checks before all others."""
    if "/" in config.name or "\\" in config.name:
        raise BadStreamName
    if config.sealed:
        raise InvalidConfig("stream configuration for create can not be sealed")
    if config.mirror_direct and config.mirror is None:
        raise InvalidConfig("stream has no mirror but does have mirror direct")


def check_update(old: StreamConfig, new: StreamConfig, *, pedantic: bool = False) -> StreamConfig:
    """`new` as the stream with configuration `old` stores it; raises the ApiError that UPDATE answers with."""
    new = validate(new, pedantic=pedantic)
    for field, is_refused, description in UPDATE_RULES:
        if is_refused(getattr(old, field), getattr(new, field)):
            raise InvalidConfig(description)
    if old.metadata.get(DURABILITY) != new.metadata.get(DURABILITY):
        raise InvalidConfig(f"stream configuration update can not change {DURABILITY}")
    if not new.sealed:
        return new
    return msgspec.structs.replace(
        new, max_age=0, discard="new", deny_delete=True, deny_purge=True, allow_rollup_hdrs=False
    )


def validate(config: StreamConfig, *, pedantic: bool = False) -> StreamConfig:
    """`config` with its defaults filled in; raises the ApiError of the first rule it breaks.

    If the request is pedantic, a value that would be filled in or changed is an error instead.
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
    """Whether CREATE with `new` describes the stream that exists with `old`. Both are checked; versions are ignored."""
    return _without_versions(old) == _without_versions(new)


def check_overlap(config: StreamConfig, others: Iterable[StreamConfig]) -> None:
    """Raise SubjectOverlap if another stream stores subjects of this one."""
    if not config.subjects:
        return
    own = Filters(config.subjects)
    for other in others:
        if other.name != config.name and other.subjects and any_overlap(own, Filters(other.subjects)):
            raise SubjectOverlap


# ------------------------------------------------------------------------------------------------------ rules in parts


def _is_withdrawn(old: bool, new: bool) -> bool:
    return old and not new


def _enters_or_leaves_workqueue(old: str, new: str) -> bool:
    return old != new and "workqueue" in (old, new)


LIMITS = ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers")
"""Zero or less means no limit, which is stored as -1; in the order in which nats-server looks at them."""

UPDATE_RULES: tuple[tuple[str, Callable[[Any, Any], bool], str], ...] = (
    ("name", ne, "stream configuration name must match original"),
    ("storage", ne, "stream configuration update can not change storage type"),
    (
        "retention",
        _enters_or_leaves_workqueue,
        "stream configuration update can not change retention policy to/from workqueue",
    ),
    ("sealed", _is_withdrawn, "stream configuration update can not unseal a sealed stream"),
    ("deny_delete", _is_withdrawn, "stream configuration update can not cancel deny message deletes"),
    ("deny_purge", _is_withdrawn, "stream configuration update can not cancel deny purge"),
    ("allow_msg_ttl", _is_withdrawn, "message TTL status can not be disabled"),
    ("persist_mode", ne, "stream configuration update can not change persist mode"),
)
"""What an update may not do: the field, whether the change from the old value to the new one is refused, the error. In
nats-server's order; a field without a line may change."""


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
    for field in FIELDS.values():
        if field.go_type == "string":
            _utf8(field.name, getattr(config, field.name))
    if config.placement is not None:
        _utf8("placement", "".join((config.placement.cluster, config.placement.preferred, *config.placement.tags)))


def _check_enums(config: StreamConfig) -> None:
    for field in FIELDS.values():
        value = getattr(config, field.name)
        if field.values and value not in field.values:
            raise InvalidConfig(f"invalid {field.name}: {value!r} is none of {', '.join(field.values)}")


def _check_features(config: StreamConfig) -> None:
    for field in FIELDS.values():
        if field.missing_feature and getattr(config, field.name) != field.default:
            raise FeatureMissing(field.name, field.missing_feature)


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
    """Subject delete markers have a TTL and replace all older messages of a subject: they need TTLs and roll-ups."""
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
    """`republish` as it is stored; a message that it publishes must not enter the stream again."""
    if not republish.src:
        if pedantic:
            raise PedanticError("republish source can not be empty")
        republish = msgspec.structs.replace(republish, src=">")
    transform = config.subject_transform
    if republish.src == republish.dest == ">" and transform is not None and config.subjects == (transform.src,):
        # Republish every message, under the subject that the transform gave it.
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
    """Whether some subject could match both. They need not be valid filters: tokens are compared as they are."""
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
    """The metadata as it is stored: with the API level that the stream needs, without what servers add to replies."""
    kept = {key: value for key, value in config.metadata.items() if key not in DYNAMIC_METADATA}
    return kept | {REQUIRED_LEVEL: str(required_level(config))}


def _without_versions(config: StreamConfig) -> StreamConfig:
    hidden = (REQUIRED_LEVEL, *DYNAMIC_METADATA)
    kept = {key: value for key, value in config.metadata.items() if key not in hidden}
    return msgspec.structs.replace(config, metadata=kept)


def _utf8(field: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidConfig(f"{field}: {text!r} is not valid Unicode text") from None
