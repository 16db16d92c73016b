"""The configuration of a consumer under JetStream's names, and the defaults it gets.

Rules: the JetStream API of nats-server 2.15; `rules.py` checks them, `config_json.py` is JSON in and out.
"""

from __future__ import annotations

from typing import Any, Literal, get_args, get_type_hints

import msgspec

from penstock.base.duration import INT64_MAX, NS_PER_SECOND, duration_ns, parse_time
from penstock.consumer.moment import Moment
from penstock.errors import ConsumerCreateFailed, PedanticError
from penstock.stream.config import DYNAMIC_METADATA, REQUIRED_LEVEL, Int64, StreamConfig, UInt64

ACK_WAIT_NS = 30 * NS_PER_SECOND
MAX_WAITING = 512
MAX_ACK_PENDING = 1000
INACTIVE_THRESHOLD_NS = 5 * NS_PER_SECOND  # of an ephemeral consumer
PRIORITY_TIMEOUT_NS = 120 * NS_PER_SECOND
FLOW_CONTROL_HEARTBEAT_NS = NS_PER_SECOND
CONSUMERS_MAX = 1000  # of a stream, where nothing says otherwise

DeliverPolicy = Literal["all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"]
AckPolicy = Literal["none", "all", "explicit", "flow_control"]
ReplayPolicy = Literal["instant", "original"]
PriorityPolicy = Literal["none", "overflow", "pinned_client", "prioritized"]


class ConsumerConfig(msgspec.Struct, frozen=True):
    """Every field of a JetStream consumer, in the order of its JSON. Durations are nanoseconds.

    A fresh one may hold anything; `rules.check_create` and `rules.check_update` give one with its defaults filled in
    and every rule kept, and only such a one is stored.
    """

    durable_name: str = ""
    name: str = ""
    description: str = ""
    deliver_policy: DeliverPolicy = "all"
    opt_start_seq: UInt64 = 0
    opt_start_time: Moment | None = None
    ack_policy: AckPolicy = "none"
    ack_wait: Int64 = 0
    max_deliver: Int64 = 0
    backoff: tuple[Int64, ...] = ()
    filter_subject: str = ""
    filter_subjects: tuple[str, ...] = ()
    replay_policy: ReplayPolicy = "instant"
    rate_limit_bps: UInt64 = 0
    sample_freq: str = ""
    max_waiting: Int64 = 0
    max_ack_pending: Int64 = 0
    flow_control: bool = False
    headers_only: bool = False
    max_batch: Int64 = 0
    max_expires: Int64 = 0
    max_bytes: Int64 = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    idle_heartbeat: Int64 = 0
    inactive_threshold: Int64 = 0
    num_replicas: Int64 = 0
    mem_storage: bool = False
    direct: bool = False
    sourcing: bool = False
    metadata: dict[str, str] = {}
    pause_until: Moment | None = None
    priority_groups: tuple[str, ...] = ()
    priority_policy: PriorityPolicy = "none"
    priority_timeout: Int64 = 0

    @property
    def is_durable(self) -> bool:
        return bool(self.durable_name)

    @property
    def is_push(self) -> bool:
        """Whether messages go to a subject by themselves; otherwise they are asked for."""
        return bool(self.deliver_subject)

    @property
    def is_counted(self) -> bool:
        """Whether it counts among a stream's consumers; those that feed mirrors and sources do not."""
        return not (self.direct or self.sourcing)

    @property
    def given_name(self) -> str:
        """The name in the configuration; an ephemeral consumer may have none there."""
        return self.durable_name or self.name

    @property
    def filters(self) -> tuple[str, ...]:
        """The filters, however they were given; none: every message."""
        return (*self.filter_subjects, self.filter_subject) if self.filter_subject else self.filter_subjects

    @property
    def opt_start_ns(self) -> int | None:
        """The start time in Unix nanoseconds, whatever its zone; where 64 bits cannot hold it, before or after all."""
        return min(max(self.opt_start_time.ns, -INT64_MAX), INT64_MAX) if self.opt_start_time is not None else None

    @property
    def sample_percent(self) -> int:
        """How many of a hundred acks are told as a metric; 0: none."""
        return int(self.sample_freq.removesuffix("%") or 0)


class ConsumerCaps(msgspec.Struct, frozen=True):
    """What the server and the account allow; nothing above 0: no limit."""

    server_ack_pending: int = 0
    account_ack_pending: int = 0
    request_batch: int = 0
    account_consumers: int = 0
    default_consumers: int = CONSUMERS_MAX

    def consumers_of(self, stream: StreamConfig) -> int:
        """How many consumers the stream may have; 0 or less: any number."""
        account, own = self.account_consumers, stream.max_consumers
        if own > 0 and not 0 < account < own:
            return own
        return account if account > 0 else self.default_consumers


NO_CAPS = ConsumerCaps()

FIELD_TYPES: dict[str, Any] = get_type_hints(ConsumerConfig, include_extras=True)
ENUMS: dict[str, tuple[str, ...]] = {
    name: get_args(FIELD_TYPES[name]) for name in ("deliver_policy", "ack_policy", "replay_policy", "priority_policy")
}
DURATIONS = ("ack_wait", "max_expires", "idle_heartbeat", "inactive_threshold", "priority_timeout")
TIMES = ("opt_start_time", "pause_until")
LISTS = ("filter_subjects", "priority_groups")


def make_config(name: str = "", **fields: Any) -> ConsumerConfig:
    """A configuration from Python values: durations as "30s", timedelta or seconds, times as datetime or text, None =
    default. `name` makes it durable; a name of an ephemeral consumer is a field.

    It is not yet checked against the rules.
    """
    values: dict[str, Any] = {}
    for field, value in (("durable_name", name or None), *fields.items()):
        if field not in FIELD_TYPES:
            raise ConsumerCreateFailed(_unknown_field(field))
        if value is None:
            continue
        try:
            values[field] = msgspec.convert(_plain(field, value), FIELD_TYPES[field])
            msgspec.json.encode(values[field])  # half of a surrogate pair is no text
        except ValueError as error:  # msgspec.ValidationError and UnicodeEncodeError are
            raise ConsumerCreateFailed(f"{field}: {error}") from None
    return ConsumerConfig(**values)


def with_defaults(
    config: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps, *, pedantic: bool
) -> ConsumerConfig:
    """`config` with every default filled in. With `pedantic`, a value that would be changed silently is an error."""
    changes: dict[str, Any] = {}
    if config.max_deliver == 0 or config.max_deliver < -1:
        if pedantic and config.max_deliver:
            raise PedanticError("max_deliver must be set to -1")
        changes["max_deliver"] = -1
    for field, floor in _FLOORS.items():
        if getattr(config, field) < floor:
            if pedantic:
                raise PedanticError(f"{field} must {'be set to -1' if floor else 'not be negative'}")
            changes[field] = floor
    config = msgspec.structs.replace(config, **changes)
    return _with_limits(_with_waits(config, pedantic), stream, caps, pedantic)


def with_metadata(config: ConsumerConfig) -> ConsumerConfig:
    """`config` with its metadata as it is stored: the API level that it needs, and nothing of a server's replies."""
    level = 0
    if config.pause_until is not None and not config.pause_until.is_zero:
        level = 1
    if config.priority_policy != "none" or config.priority_timeout or config.priority_groups:
        level = 1
    if config.ack_policy == "flow_control":
        level = 4
    kept = {key: value for key, value in config.metadata.items() if key not in DYNAMIC_METADATA}
    return msgspec.structs.replace(config, metadata=kept | {REQUIRED_LEVEL: str(level)})


# --------------------------------------------------------------------------------------------------- defaults in parts

_FLOORS = {
    "max_waiting": 0,
    "max_ack_pending": -1,
    "max_batch": 0,
    "max_expires": 0,
    "max_bytes": 0,
    "idle_heartbeat": 0,
    "inactive_threshold": 0,
    "priority_timeout": 0,
}


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


# --------------------------------------------------------------------------------------------- friendly Python values


def _plain(field: str, value: Any) -> Any:
    """`value` as the field's own type: nanoseconds, a list, an enum in small letters."""
    if field in DURATIONS:
        return duration_ns(value)
    if field == "backoff":
        return [duration_ns(part) for part in value]
    if field in TIMES and not isinstance(value, Moment):
        return Moment(parse_time(value))
    if field in ENUMS and isinstance(value, str):
        return value.lower()
    if field in LISTS and isinstance(value, str):
        return (value,)
    return value


def _unknown_field(field: str) -> str:
    import difflib  # 7 ms that only a mistake should cost

    near = difflib.get_close_matches(field, FIELD_TYPES, n=1)
    return f"a consumer has no field {field!r}" + (f"; did you mean {near[0]!r}?" if near else "")
