"""The configuration of a consumer under JetStream's names, and its defaults. The struct is the table of its fields.

Rules: the JetStream API of nats-server 2.15; `rules.py` checks them, `config_json.py` is JSON in and out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from penstock.base.duration import INT64_MAX, NS_PER_SECOND, parse_time
from penstock.consumer.moment import Moment
from penstock.errors import ConsumerCreateFailed, PedanticError
from penstock.stream.config import DYNAMIC_METADATA, REQUIRED_LEVEL, StreamConfig
from penstock.stream.fields import (
    ALWAYS,
    Duration,
    Field,
    Floor,
    Go,
    Int,
    Int64,
    Level,
    UInt64,
    fields_of,
    plain_value,
    required_level,
    unknown_field,
)

ACK_WAIT_NS = 30 * NS_PER_SECOND
MAX_WAITING = 512
MAX_ACK_PENDING = 1000
INACTIVE_THRESHOLD_NS = 5 * NS_PER_SECOND  # for an ephemeral consumer
PRIORITY_TIMEOUT_NS = 120 * NS_PER_SECOND
FLOW_CONTROL_HEARTBEAT_NS = NS_PER_SECOND
CONSUMERS_MAX = 1000  # per stream, unless the stream or the account sets a limit

DeliverPolicy = Literal["all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"]
AckPolicy = Literal["none", "all", "explicit", "flow_control"]
ReplayPolicy = Literal["instant", "original"]
PriorityPolicy = Literal["none", "overflow", "pinned_client", "prioritized"]
Time = Annotated[Moment | None, Go("time.Time")]


class ConsumerConfig(msgspec.Struct, frozen=True):
    """Every field of a JetStream consumer, in the order of its JSON (`penstock.stream.fields` explains the notes).

    A new one may hold anything. `rules.check_create` and `rules.check_update` return one with its defaults filled in
    and every rule kept, and only such a one is stored.
    """

    durable_name: str = ""
    name: str = ""
    description: str = ""
    deliver_policy: Annotated[DeliverPolicy, ALWAYS] = "all"
    opt_start_seq: UInt64 = 0
    opt_start_time: Time = None
    ack_policy: Annotated[AckPolicy, ALWAYS, Level(4, "flow_control")] = "none"
    ack_wait: Duration = 0
    max_deliver: Int = 0
    backoff: Annotated[tuple[Int64, ...], Go("[]time.Duration")] = ()
    filter_subject: str = ""
    filter_subjects: tuple[str, ...] = ()
    replay_policy: Annotated[ReplayPolicy, ALWAYS] = "instant"
    rate_limit_bps: UInt64 = 0
    sample_freq: str = ""
    max_waiting: Annotated[Int, Floor(0)] = 0
    max_ack_pending: Annotated[Int, Floor(-1)] = 0
    flow_control: bool = False
    headers_only: bool = False
    max_batch: Annotated[Int, Floor(0)] = 0
    max_expires: Annotated[Duration, Floor(0)] = 0
    max_bytes: Annotated[Int, Floor(0)] = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    idle_heartbeat: Annotated[Duration, Floor(0)] = 0
    inactive_threshold: Annotated[Duration, Floor(0)] = 0
    num_replicas: Annotated[Int, ALWAYS] = 0
    mem_storage: bool = False
    direct: bool = False
    sourcing: bool = False
    metadata: dict[str, str] = {}
    pause_until: Annotated[Time, Level(1)] = None
    priority_groups: Annotated[tuple[str, ...], Level(1)] = ()
    priority_policy: Annotated[PriorityPolicy, Level(1)] = "none"
    priority_timeout: Annotated[Duration, Floor(0), Level(1)] = 0

    @property
    def is_durable(self) -> bool:
        return bool(self.durable_name)

    @property
    def is_push(self) -> bool:
        """Whether the server sends messages to a subject; otherwise clients pull them."""
        return bool(self.deliver_subject)

    @property
    def is_counted(self) -> bool:
        """Whether it counts towards the limit on consumers; those that feed mirrors and sources do not."""
        return not (self.direct or self.sourcing)

    @property
    def given_name(self) -> str:
        """The name in the configuration; empty for an ephemeral consumer that the server names."""
        return self.durable_name or self.name

    @property
    def filters(self) -> tuple[str, ...]:
        """The filters from both fields; without any, the consumer delivers every message."""
        return (*self.filter_subjects, self.filter_subject) if self.filter_subject else self.filter_subjects

    @property
    def opt_start_ns(self) -> int | None:
        """The start time in Unix nanoseconds, clamped to 64 bits."""
        return min(max(self.opt_start_time.ns, -INT64_MAX), INT64_MAX) if self.opt_start_time is not None else None

    @property
    def sample_percent(self) -> int:
        """The percentage of acks that are published as metrics; 0: none."""
        return int(self.sample_freq.removesuffix("%") or 0)


class ConsumerCaps(msgspec.Struct, frozen=True):
    """Limits of the server and the account; 0 or less: no limit."""

    server_ack_pending: int = 0
    account_ack_pending: int = 0
    request_batch: int = 0
    account_consumers: int = 0
    default_consumers: int = CONSUMERS_MAX

    def consumers_of(self, stream: StreamConfig) -> int:
        """The most consumers that the stream may have; 0 or less: any number."""
        account, own = self.account_consumers, stream.max_consumers
        if own > 0 and not 0 < account < own:
            return own
        return account if account > 0 else self.default_consumers


NO_CAPS = ConsumerCaps()

FIELDS: dict[str, Field] = fields_of(ConsumerConfig)


def make_config(name: str = "", **fields: Any) -> ConsumerConfig:
    """A configuration from Python values: durations as "30s", timedelta or seconds, times as datetime or text, None for
    the default. `name` makes it durable; the name of an ephemeral consumer is a field.

    It is not yet checked against the rules.
    """
    values: dict[str, Any] = {}
    for field, value in (("durable_name", name or None), *fields.items()):
        if field not in FIELDS:
            raise ConsumerCreateFailed(unknown_field("consumer", ConsumerConfig, field))
        if value is None:
            continue
        try:
            values[field] = msgspec.convert(_plain_value(FIELDS[field], value), FIELDS[field].type)
            msgspec.json.encode(values[field])  # raises for half of a surrogate pair
        except ValueError as error:  # msgspec.ValidationError and UnicodeEncodeError are
            raise ConsumerCreateFailed(f"{field}: {error}") from None
    return ConsumerConfig(**values)


def _plain_value(field: Field, value: Any) -> Any:
    if field.go_type == "time.Time" and not isinstance(value, Moment):
        return Moment(parse_time(value))
    return plain_value(field, value)


def with_defaults(
    config: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps, *, pedantic: bool
) -> ConsumerConfig:
    """`config` with every default filled in. If the request is pedantic, a value that would be changed is an error."""
    changes: dict[str, Any] = {}
    if config.max_deliver == 0 or config.max_deliver < -1:
        if pedantic and config.max_deliver:
            raise PedanticError("max_deliver must be set to -1")
        changes["max_deliver"] = -1
    for field in FIELDS.values():
        if field.floor is not None and getattr(config, field.name) < field.floor:
            if pedantic:
                raise PedanticError(f"{field.name} must {'be set to -1' if field.floor else 'not be negative'}")
            changes[field.name] = field.floor
    config = msgspec.structs.replace(config, **changes)
    return _with_limits(_with_waits(config, pedantic), stream, caps, pedantic)


def with_metadata(config: ConsumerConfig) -> ConsumerConfig:
    """`config` with its metadata as stored: with the API level that the consumer needs, without what servers add to
    replies."""
    is_paused = config.pause_until is not None and not config.pause_until.is_zero
    level = required_level(config if is_paused else msgspec.structs.replace(config, pause_until=None))
    kept = {key: value for key, value in config.metadata.items() if key not in DYNAMIC_METADATA}
    return msgspec.structs.replace(config, metadata=kept | {REQUIRED_LEVEL: str(level)})


# --------------------------------------------------------------------------------------------------- defaults in parts


def _with_waits(config: ConsumerConfig, pedantic: bool) -> ConsumerConfig:
    max_waiting, ack_wait = config.max_waiting, config.ack_wait
    if not config.is_push and max_waiting == 0:
        max_waiting = MAX_WAITING
    if ack_wait == 0 and config.ack_policy in ("explicit", "all"):
        ack_wait = ACK_WAIT_NS
    if config.backoff:
        if pedantic and ack_wait != config.backoff[0]:
            raise PedanticError("first backoff value has to equal batch AckWait")
        ack_wait = config.backoff[0]
    return msgspec.structs.replace(config, max_waiting=max_waiting, ack_wait=ack_wait)


def _with_limits(config: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps, pedantic: bool) -> ConsumerConfig:
    changes: dict[str, Any] = {}
    for field in ("max_ack_pending", "inactive_threshold"):
        if getattr(config, field) == 0:
            limit = getattr(stream.consumer_limits, field)
            if pedantic and limit > 0:
                raise PedanticError(f"{field} must be set if it's configured in stream limits")
            changes[field] = limit
    if changes.get("max_ack_pending") == 0 and config.ack_policy != "none":
        bounds = (caps.server_ack_pending, caps.account_ack_pending)
        changes["max_ack_pending"] = min([MAX_ACK_PENDING, *(bound for bound in bounds if bound > 0)])
    if not config.is_push and config.max_batch == 0 and caps.request_batch > 0:
        if pedantic:
            raise PedanticError("max_request_batch must be set if it's JetStream limits are set")
        changes["max_batch"] = caps.request_batch
    if config.priority_policy == "pinned_client" and config.priority_timeout == 0:
        changes["priority_timeout"] = PRIORITY_TIMEOUT_NS
    if config.ack_policy == "flow_control" and not pedantic:
        changes |= {"flow_control": True, "idle_heartbeat": FLOW_CONTROL_HEARTBEAT_NS}
    return msgspec.structs.replace(config, **changes)
