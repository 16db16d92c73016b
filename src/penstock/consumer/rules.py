"""The rules that a consumer's configuration must keep, in the order in which nats-server checks them.

Codes and texts are those of nats-server 2.15.1, recorded in tests/parity/recorded/tables/consumer.json. A request goes
through `resolve` (does it agree with its subject?), then through `admit` (may the stream have this consumer?), which
chooses between `check_create` and `check_update`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from penstock import errors
from penstock.base.duration import format_duration
from penstock.base.subject import Filters, any_overlap, covers, is_valid_filter
from penstock.consumer.config import (
    FLOW_CONTROL_HEARTBEAT_NS,
    INACTIVE_THRESHOLD_NS,
    NO_CAPS,
    ConsumerCaps,
    ConsumerConfig,
    with_defaults,
    with_metadata,
)
from penstock.consumer.config_json import Action, CreateRequest
from penstock.consumer.filter_tree import FilterTree
from penstock.consumer.names import random_name
from penstock.errors import ConsumerCreateFailed, InvalidConfig, quote
from penstock.stream.config import REQUIRED_LEVEL, StreamConfig
from penstock.stream.config_rules import DESCRIPTION_SIZE_MAX, METADATA_SIZE_MAX, NAME_SIZE_MAX

HEARTBEAT_NS_MIN = 100_000_000
MAX_EXPIRES_NS_MIN = 1_000_000
NOT_IN_NAMES = frozenset(" \t\r\n\f.*>\\/\0")
GROUP_NAME = re.compile(r"[a-zA-Z0-9/_=-]{1,16}")
_NUMBER = re.compile(r"[+-]?[0-9]+")

Consumers = Mapping[str, ConsumerConfig]
"""The consumers of a stream by their names."""


class Admission(NamedTuple):
    """The result of a request: the consumer's name, its configuration, and its current one (None: it is new)."""

    name: str
    config: ConsumerConfig
    old: ConsumerConfig | None


def resolve(subject: str, request: CreateRequest) -> ConsumerConfig:
    """The configuration of a request on `subject` (without `$JS.API.`), whose names and filter must agree with it."""
    tokens = subject.split(".")
    config = request.config
    is_legacy_durable = tokens[1] == "DURABLE"
    if is_legacy_durable and len(tokens) != 5:
        raise errors.DurableNotInSubject
    stream, *rest = tokens[3:] if is_legacy_durable else tokens[2:]
    if stream != request.stream_name:
        raise errors.StreamNameMismatch
    name = rest[0] if rest else config.name
    if "/" in name or "\\" in name:
        raise errors.BadConsumerName
    if is_legacy_durable and not config.is_durable:
        raise errors.DurableNotSet
    if rest:
        if config.is_durable and config.durable_name != name:
            raise errors.DurableMismatch
        config = msgspec.structs.replace(config, name=name)
    elif config.is_durable:
        raise errors.EphemeralWithDurable
    tail = "" if is_legacy_durable else ".".join(rest[1:])
    if tail and config.filter_subjects:
        raise errors.MultipleFiltersInSubject
    if tail and tail != config.filter_subject:
        raise errors.FilterMismatch
    if config.num_replicas > 1:
        raise errors.ReplicasNotSupported
    return config


def admit(
    config: ConsumerConfig,
    stream: StreamConfig,
    consumers: Consumers,
    *,
    caps: ConsumerCaps = NO_CAPS,
    action: Action = "",
    pedantic: bool = False,
    has_subscriber: Callable[[str], bool] = lambda subject: False,
    make_name: Callable[[], str] = random_name,
) -> Admission:
    """The result of CREATE with `config` on a stream that has `consumers`; raises the ApiError that it answers with.

    `has_subscriber` says whether a deliver subject has a subscriber. A name generated for a consumer without one is not
    part of its configuration.
    """
    if config.direct and config.sourcing and config.name:
        config = _for_sourcing(config, stream, make_name)
    name = config.given_name
    old = consumers.get(name) if name else None
    if old is None:
        config = validate(config, stream, caps, pedantic=pedantic)
        if action == "update":
            raise errors.ConsumerDoesNotExist
        config = _check_new(config, stream, caps, consumers)
        while not name or name in consumers:
            name = make_name()
        return Admission(name, config, None)
    config = validate(_kept(old, config), stream, caps, pedantic=pedantic)
    if action == "create":
        config = _with_level_of(old, config)
        if config != old:
            raise errors.ConsumerAlreadyExists
    is_bound = old.deliver_subject != config.deliver_subject and has_subscriber(old.deliver_subject)
    return Admission(name, _check_change(old, config, stream, consumers, is_bound=is_bound), old)


def check_create(
    config: ConsumerConfig,
    stream: StreamConfig,
    caps: ConsumerCaps = NO_CAPS,
    *,
    consumers: Consumers | None = None,
    pedantic: bool = False,
) -> ConsumerConfig:
    """`config` as a new consumer beside `consumers` stores it; raises the ApiError that CREATE answers with."""
    return _check_new(validate(config, stream, caps, pedantic=pedantic), stream, caps, consumers or {})


def check_update(
    old: ConsumerConfig,
    new: ConsumerConfig,
    stream: StreamConfig,
    caps: ConsumerCaps = NO_CAPS,
    *,
    consumers: Consumers | None = None,
    pedantic: bool = False,
    is_bound: bool = False,
) -> ConsumerConfig:
    """`new` as the consumer with `old` stores it. `is_bound`: its deliver subject has a subscriber."""
    new = validate(_kept(old, new), stream, caps, pedantic=pedantic)
    return _check_change(old, new, stream, consumers or {}, is_bound=is_bound)


def validate(
    config: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps = NO_CAPS, *, pedantic: bool = False
) -> ConsumerConfig:
    """`config` with its defaults filled in; raises the ApiError of the first rule it breaks."""
    config = with_defaults(with_metadata(config), stream, caps, pedantic=pedantic)
    _check_names(config)
    _check_replicas(config, stream)
    _check_waits(config)
    if config.ack_policy == "flow_control":
        _check_flow_control_acks(config)
    if config.backoff and -1 != config.max_deliver < len(config.backoff):
        raise errors.BackoffBeyondMaxDeliver
    if len(config.description.encode("utf-8", "surrogatepass")) > DESCRIPTION_SIZE_MAX:
        raise errors.ConsumerDescriptionTooLong(DESCRIPTION_SIZE_MAX)
    if config.is_push:
        _check_push(config, stream)
    else:
        _check_pull(config, stream, caps)
    _check_limits(config, stream, caps)
    if config.direct:
        if not config.is_push:
            raise errors.DirectRequiresPush
        if config.is_durable:
            raise errors.DirectRequiresEphemeral
    _check_filters(config)
    _check_start(config)
    _check_sampling(config.sample_freq)
    if config.flow_control and config.idle_heartbeat == 0:
        raise errors.FlowControlNeedsHeartbeats
    if config.durable_name and config.name and config.name != config.durable_name:
        raise errors.DurableAndNameMismatch
    if (
        sum(len((key + value).encode("utf-8", "surrogatepass")) for key, value in config.metadata.items())
        > METADATA_SIZE_MAX
    ):
        raise errors.ConsumerMetadataTooLong(f"{METADATA_SIZE_MAX // 1024}KB")
    _check_priority(config)
    return config


# ------------------------------------------------------------------------------------------- beside the other consumers


def _check_new(
    config: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps, consumers: Consumers
) -> ConsumerConfig:
    counted = sum(other.is_counted for other in consumers.values())
    limit = caps.consumers_of(stream)
    if config.is_counted and 0 < limit <= counted:
        raise errors.MaxConsumersReached
    if stream.retention == "workqueue" and config.is_counted:
        if config.ack_policy not in ("explicit", "flow_control"):
            raise errors.WorkQueueRequiresExplicitAck
        if config.deliver_policy != "all":
            raise errors.WorkQueueNotDeliverAll
        if counted and not config.filters:
            raise errors.WorkQueueMultipleUnfiltered
        if counted and not _is_partition(config, consumers):
            raise errors.WorkQueueNotUnique
    if len(config.durable_name.encode("utf-8", "surrogatepass")) > NAME_SIZE_MAX:
        raise errors.ConsumerNameTooLong(NAME_SIZE_MAX)
    is_kept = stream.storage == "file" and not config.mem_storage
    if is_kept and len(config.name.encode("utf-8", "surrogatepass")) > NAME_SIZE_MAX:
        raise ConsumerCreateFailed("error creating store for consumer")  # nats-server names a folder after it
    if not config.is_durable and config.inactive_threshold == 0:
        config = msgspec.structs.replace(config, inactive_threshold=INACTIVE_THRESHOLD_NS)
    return config


def _check_change(
    old: ConsumerConfig, new: ConsumerConfig, stream: StreamConfig, consumers: Consumers, *, is_bound: bool
) -> ConsumerConfig:
    if stream.retention == "workqueue" and not _is_partition(new, consumers):
        raise errors.WorkQueueNotUnique
    for field, what in _FIXED_FIELDS:
        if getattr(old, field) != getattr(new, field):
            raise ConsumerCreateFailed(f"{what} can not be updated")
    if old.deliver_subject != new.deliver_subject:
        if not old.is_push:
            raise ConsumerCreateFailed("can not update pull consumer to push based")
        if not new.is_push:
            raise ConsumerCreateFailed("can not update push consumer to pull based")
        if is_bound:
            raise errors.ConsumerNameInUse
    if old.max_waiting != new.max_waiting:
        raise ConsumerCreateFailed("max waiting can not be updated")
    if new.inactive_threshold != old.inactive_threshold and new.inactive_threshold == 0 and not old.is_durable:
        new = msgspec.structs.replace(new, inactive_threshold=INACTIVE_THRESHOLD_NS)
    return new


def _for_sourcing(config: ConsumerConfig, stream: StreamConfig, make_name: Callable[[], str]) -> ConsumerConfig:
    """The configuration of a consumer that feeds another stream. On a work-queue or interest stream it becomes durable,
    under a fixed name, and acks by flow control; on other streams each gets a generated name."""
    if stream.retention == "limits":
        return msgspec.structs.replace(config, name=f"{config.name}-{make_name()}")
    return msgspec.structs.replace(
        config,
        direct=False,
        durable_name=config.name,
        ack_policy="flow_control",
        ack_wait=0,
        max_deliver=0,
        inactive_threshold=0,
    )


def _kept(old: ConsumerConfig, new: ConsumerConfig) -> ConsumerConfig:
    """`new` with the fields that a request cannot change: the pause, and for a sourcing consumer the start."""
    new = msgspec.structs.replace(new, pause_until=old.pause_until)
    if not (new.sourcing and new.is_durable):
        return new
    start = {field: getattr(old, field) for field in ("deliver_policy", "opt_start_seq", "opt_start_time")}
    return msgspec.structs.replace(new, **start)


def _is_partition(config: ConsumerConfig, consumers: Consumers) -> bool:
    """Whether the filters of this consumer overlap with no other consumer's."""
    if not config.filters:
        return True
    own = Filters(config.filters)
    others = [other for name, other in consumers.items() if name != config.given_name and other.is_counted]
    return not any(not other.filters or any_overlap(own, Filters(other.filters)) for other in others)


def _with_level_of(old: ConsumerConfig, new: ConsumerConfig) -> ConsumerConfig:
    """`new` with the API level of `old`, which a repeated CREATE does not contain."""
    metadata = {key: value for key, value in new.metadata.items() if key != REQUIRED_LEVEL}
    if REQUIRED_LEVEL in old.metadata:
        metadata[REQUIRED_LEVEL] = old.metadata[REQUIRED_LEVEL]
    return msgspec.structs.replace(new, metadata=metadata)


# ------------------------------------------------------------------------------------------------------ rules in parts


def _check_names(config: ConsumerConfig) -> None:
    if set(config.name) & NOT_IN_NAMES:
        raise InvalidConfig("consumer name can not contain '.', '*', '>', '\\', '/'")
    if set(config.durable_name) & NOT_IN_NAMES:
        raise InvalidConfig("consumer durable name can not contain '.', '*', '>', '\\', '/'")


def _check_replicas(config: ConsumerConfig, stream: StreamConfig) -> None:
    if config.num_replicas > stream.num_replicas:
        raise errors.ConsumerReplicasExceeded
    if config.num_replicas < 0:
        raise errors.NegativeReplicas
    if stream.retention != "limits" and config.num_replicas not in (0, stream.num_replicas):
        raise errors.ReplicasMustMatchStream


def _check_waits(config: ConsumerConfig) -> None:
    if any(wait < 0 for wait in config.backoff):
        raise errors.NegativeBackoff
    if config.ack_wait < 0:
        raise errors.NegativeAckWait


def _check_flow_control_acks(config: ConsumerConfig) -> None:
    if not config.is_push:
        raise errors.FlowControlAckRequiresPush
    if not config.flow_control:
        raise errors.FlowControlAckRequiresFlowControl
    if config.idle_heartbeat != FLOW_CONTROL_HEARTBEAT_NS:
        raise InvalidConfig("flow control ack policy heartbeat needs to be 1s")
    if config.max_ack_pending <= 0:
        raise errors.FlowControlAckRequiresMaxAckPending
    if config.ack_wait != 0 or config.backoff:
        raise errors.FlowControlAckRequiresNoAckWait
    if config.max_deliver > 0:
        raise errors.FlowControlAckRequiresNoMaxDeliver


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> None:
    if {"*", ">"} & set(config.deliver_subject.split(".")):
        raise errors.DeliverToWildcards
    if not is_valid_filter(config.deliver_subject):
        raise errors.BadDeliverSubject
    if any(covers(subject, config.deliver_subject) for subject in stream.subjects):
        raise errors.DeliverCycle
    if config.max_waiting != 0:
        raise errors.PushWithMaxWaiting
    if config.max_ack_pending > 0 and config.ack_policy == "none":
        raise errors.AckPolicyRequired
    if 0 < config.idle_heartbeat < HEARTBEAT_NS_MIN:
        raise errors.HeartbeatTooShort


def _check_pull(config: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> None:
    if config.ack_policy == "none" and stream.retention == "workqueue":
        raise errors.PullRequiresAck
    if config.rate_limit_bps > 0:
        raise errors.PullWithRateLimit
    if config.idle_heartbeat > 0:
        raise errors.HeartbeatRequiresPush
    if config.flow_control:
        raise errors.FlowControlRequiresPush
    if 0 < config.max_expires < MAX_EXPIRES_NS_MIN:
        raise errors.MaxExpiresTooShort
    if 0 < caps.request_batch < config.max_batch:
        raise errors.MaxRequestBatchExceeded(caps.request_batch)


def _check_limits(config: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> None:
    for limit in (caps.server_ack_pending, caps.account_ack_pending, stream.consumer_limits.max_ack_pending):
        if 0 < limit < config.max_ack_pending:
            raise errors.MaxAckPendingExceeded(limit)
    if 0 < stream.consumer_limits.inactive_threshold < config.inactive_threshold:
        raise errors.InactiveThresholdExceeded(format_duration(stream.consumer_limits.inactive_threshold))


def _check_filters(config: ConsumerConfig) -> None:
    if config.filter_subject and config.filter_subjects:
        raise errors.DuplicateFilters
    if "" in config.filter_subjects:
        raise errors.EmptyFilter
    heads = [head for head in map(_head, config.filters) if is_valid_filter(head)]
    tree = FilterTree(heads)
    twins = {head for head, count in Counter(heads).items() if count > 1}
    for subject in config.filters:
        if not is_valid_filter(subject):
            raise InvalidConfig("invalid subject")
        if subject in twins or tree.covers(subject):
            raise errors.OverlappingFilters


def _head(subject: str) -> str:
    """A filter up to its first >. Tokens after it are invalid, but nats-server reports overlaps first."""
    tokens = subject.split(".")
    return ".".join(tokens[: tokens.index(">") + 1]) if ">" in tokens else subject


def _check_start(config: ConsumerConfig) -> None:
    words = _POLICY_WORDS[config.deliver_policy]
    is_by_seq, is_by_time = config.deliver_policy == "by_start_sequence", config.deliver_policy == "by_start_time"
    if is_by_seq and config.opt_start_seq == 0:
        raise _not_set(words, "start sequence")
    if is_by_time and config.opt_start_time is None:
        raise _not_set(words, "start time")
    if config.opt_start_seq and not is_by_seq:
        raise _also_set(words, "start sequence" if is_by_time else "sequence")
    if config.opt_start_time is not None and not is_by_time:
        raise _also_set(words, "time")
    if config.deliver_policy == "last_per_subject" and not config.filters:
        raise _not_set(words, "filter subject")


def _not_set(policy: str, what: str) -> errors.BadDeliverPolicy:
    return errors.BadDeliverPolicy(f"consumer delivery policy is deliver {policy}, but optional {what} is not set")


def _also_set(policy: str, what: str) -> errors.BadDeliverPolicy:
    return errors.BadDeliverPolicy(
        f"consumer delivery policy is deliver {policy}, but optional start {what} is also set"
    )


def _check_sampling(text: str) -> None:
    if not text:
        return
    number = text.removesuffix("%")
    failed = f"strconv.Atoi: parsing {quote(number)}"
    if not _NUMBER.fullmatch(number):
        raise errors.BadSampling(f"{failed}: invalid syntax")
    if len(number.lstrip("+-0")) > 19 or not -(2**63) <= int(number) < 2**63:
        raise errors.BadSampling(f"{failed}: value out of range")
    if int(number) < 0:
        raise errors.BadSampling("<nil>")


def _check_priority(config: ConsumerConfig) -> None:
    if config.priority_policy == "none":
        if config.priority_groups:
            raise errors.PriorityGroupWithoutPolicy
        if config.priority_timeout > 0:
            raise errors.PriorityTimeoutWithoutPolicy
        return
    if config.is_push:
        raise errors.PushWithPriorityGroup
    if not config.priority_groups:
        raise errors.PriorityPolicyWithoutGroup
    for group in config.priority_groups:
        if not group:
            raise errors.EmptyGroupName
        if not GROUP_NAME.fullmatch(group):
            raise errors.BadGroupName


_POLICY_WORDS = {
    "all": "all",
    "last": "last",
    "new": "new",
    "by_start_sequence": "by start sequence",
    "by_start_time": "by start time",
    "last_per_subject": "last per subject",
}

# The fields that an update may not change, in the order of the checks, and what nats-server calls them.
_FIXED_FIELDS = (
    ("deliver_policy", "deliver policy"),
    ("mem_storage", "storage type"),
    ("direct", "direct"),
    ("sourcing", "sourcing"),
    ("opt_start_seq", "start sequence"),
    ("opt_start_ns", "start time"),
    ("ack_policy", "ack policy"),
    ("replay_policy", "replay policy"),
    ("idle_heartbeat", "heart beats"),
    ("flow_control", "flow control"),
)
