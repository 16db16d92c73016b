"""How the library opens, creates, changes and deletes the consumers of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from penstock.base.duration import Duration, Time
from penstock.consumer import rules
from penstock.consumer.config import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    PriorityPolicy,
    ReplayPolicy,
    make_config,
)
from penstock.db.consumer import Consumer, flush, sweep_orphans, wait_durable
from penstock.db.database import check_name
from penstock.errors import ConsumerNotFound, ReadOnlyStore

if TYPE_CHECKING:
    from penstock.consumer.consumers import Consumers
    from penstock.db.stream import Stream


class ConsumerOptions(TypedDict, total=False):
    """The options of a consumer, under JetStream's names; `filter` stands for filter_subject and filter_subjects."""

    filter: str | Sequence[str] | None
    """Subjects to deliver; the default is all of them."""
    deliver_policy: DeliverPolicy
    """Where it starts: "all" (the default), "last", "new", "last_per_subject", "by_start_sequence",
    "by_start_time". It cannot be changed later."""
    opt_start_seq: int
    opt_start_time: Time
    ack_policy: AckPolicy
    """"explicit" (the default): each message by itself; "all": an ack covers earlier messages too; "none": no acks."""
    ack_wait: Duration
    """How long to wait for an ack before the message is delivered again; the default is 30 s."""
    max_deliver: int
    """The most deliveries of one message; -1: no limit."""
    backoff: Sequence[Duration]
    """The ack_wait after the first, the second … delivery."""
    max_ack_pending: int
    """The most messages that may wait for an ack at a time; the default is 1,000, -1: no limit."""
    replay_policy: ReplayPolicy
    """"original": at the pace at which the messages were stored."""
    headers_only: bool
    """Deliver no payload; the header Nats-Msg-Size gives its size."""
    inactive_threshold: Duration
    """The consumer is deleted after this long without use."""
    description: str
    metadata: dict[str, str]
    max_batch: int
    max_bytes: int
    max_expires: Duration
    max_waiting: int
    mem_storage: bool
    """Keep its state in memory only: the consumer is gone when the store is closed."""
    num_replicas: int
    pause_until: Time
    rate_limit_bps: int
    sample_freq: str
    flow_control: bool
    idle_heartbeat: Duration
    deliver_subject: str
    """A server pushes messages to this subject; nothing can be fetched from such a consumer."""
    deliver_group: str
    priority_groups: Sequence[str]
    priority_policy: PriorityPolicy
    priority_timeout: Duration


def open_consumer(stream: Stream, name: str | None, options: ConsumerOptions) -> Consumer:
    """Open or create a consumer: an existing one with that name, updated where the options differ, or a new one."""
    with stream.locked():
        stream.check_open()
        consumers = stream.consumers
        if stream._is_beside:
            return _open_beside(stream, consumers, name, options)
        sweep_orphans(stream)
        remove_inactive(stream)
        known = consumers.by_name.get(name) if name is not None else None
        if known is not None and not options:
            return Consumer(stream, known, is_owner=False)
        config = _new_config(name, options) if known is None else _changed_config(known.config, options)
        inner = consumers.create(rules.admit(config, stream.config, consumers.configs))
        handle = Consumer(stream, inner, is_owner=name is None)
        position = flush(stream)
    handle._wake()
    wait_durable(stream, position)
    return handle


def _open_beside(stream: Stream, consumers: Consumers, name: str | None, options: ConsumerOptions) -> Consumer:
    if name is None or options:
        raise ReadOnlyStore(stream._database.path, f"a consumer of stream {stream.name} cannot be made or changed")
    if name not in consumers.by_name:
        raise _not_found(stream, name)
    return Consumer(stream, consumers.by_name[name], is_owner=False)


def delete_consumer(stream: Stream, name: str) -> None:
    with stream.locked():
        stream.check_open()
        if name not in stream.consumers.by_name:
            raise _not_found(stream, name)
        if stream._is_beside:
            raise ReadOnlyStore(stream._database.path, "it was opened read-only")
        stream.consumers.delete(name)
        position = flush(stream)
    if stream.listeners:
        stream.tell_listeners()
    wait_durable(stream, position)


def remove_inactive(stream: Stream) -> None:
    """Delete consumers whose inactive_threshold has passed. A server checks this all the time; without one, it is done
    whenever a consumer is opened."""
    consumers = stream.consumers
    if consumers.on_change:
        return
    now = stream.store.clock.now_ns()
    for consumer in consumers:
        threshold = consumer.config.inactive_threshold
        last = max(stream._opened_ns, consumer.made_ns, consumer.last_active_ns)
        if 0 < threshold < now - last and not consumer.keepers:
            consumers.delete(consumer.name)


def _new_config(name: str | None, options: ConsumerOptions) -> ConsumerConfig:
    defaults: dict[str, Any] = {"ack_policy": "explicit"}
    if name is None:  # it is deleted with its handle: no state need be stored
        return make_config(**(defaults | {"mem_storage": True} | _fields(options)))
    check_name(name, "consumer")
    return msgspec.structs.replace(make_config(name, **(defaults | _fields(options))), name=name)


def _changed_config(config: ConsumerConfig, options: ConsumerOptions) -> ConsumerConfig:
    fields = _fields(options)
    fresh = make_config(**fields)
    return msgspec.structs.replace(config, **{field: getattr(fresh, field) for field in fields})


def _fields(options: ConsumerOptions) -> dict[str, Any]:
    """The options under JetStream's names."""
    fields: dict[str, Any] = dict(options)
    if "filter" in fields:
        wanted = fields.pop("filter")
        is_one = wanted is None or isinstance(wanted, str)
        fields["filter_subject"] = wanted or "" if is_one else ""
        fields["filter_subjects"] = () if is_one else tuple(wanted)
    return fields


def _not_found(stream: Stream, name: str) -> ConsumerNotFound:
    others = ", ".join(sorted(stream.consumers.by_name)) or "none"
    return ConsumerNotFound(f"consumer {name!r} not found in stream {stream.name}; there are: {others}")
