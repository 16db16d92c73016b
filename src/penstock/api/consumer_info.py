"""ConsumerInfo: a consumer's configuration, its position and its counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.consumer.config import ConsumerConfig
from penstock.consumer.config_json import to_dict
from penstock.wire.go_json import time_text, time_text_or_zero
from penstock.wire.info import API_LEVEL, VERSION

if TYPE_CHECKING:
    from penstock.broker.streams.endpoint import StreamEndpoint
    from penstock.consumer.consumer import Consumer

Fields = dict[str, Any]
DURATION_MAX = 2**63 - 1


def info_fields(
    endpoint: StreamEndpoint, consumer: Consumer, *, has_config: bool = True, has_versions: bool = True
) -> Fields:
    """The fields of a ConsumerInfo. The caller holds the stream's lock.

    has_versions: the metadata names our version, as in replies about one consumer.
    """
    config, engine = consumer.config, consumer.engine
    table = engine.table
    delivered_ns, acked_ns = consumer.wall_ns(engine.last_delivered_ns), consumer.wall_ns(engine.last_acked_ns)
    wall_ns = endpoint.stream.store.clock.wall_ns()
    delivery = endpoint.deliveries.get(consumer.name)
    fields: Fields = {
        "stream_name": endpoint.name,
        "name": consumer.name,
        "created": time_text(consumer.created_ns),
    }
    if has_config:
        fields["config"] = config_fields(config, has_versions=has_versions)
    fields |= {
        "delivered": _place(table.delivered_consumer_seq, table.delivered_stream_seq, delivered_ns),
        "ack_floor": _place(table.ack_floor_consumer_seq, table.ack_floor_stream_seq, acked_ns),
        "num_ack_pending": engine.num_ack_pending,
        "num_redelivered": 0 if config.max_deliver == 1 else engine.num_redelivered,  # such a one never redelivers
        "num_waiting": delivery.num_waiting if delivery is not None and not config.is_push else 0,
        "num_pending": engine.num_pending,
    }
    if delivery is not None and delivery.is_push_bound:
        fields["push_bound"] = True
    if (remaining := pause_remaining(config, wall_ns)) > 0:
        fields |= {"paused": True, "pause_remaining": remaining}
    fields["ts"] = time_text(wall_ns)
    if config.priority_groups:
        fields["priority_groups"] = [_group(config, delivery.groups() if delivery is not None else [])]
    return fields


def config_fields(config: ConsumerConfig, *, has_versions: bool) -> Fields:
    fields = to_dict(config)
    if has_versions:
        told = {"_nats.level": str(API_LEVEL), "_nats.ver": VERSION}
        fields["metadata"] = dict(sorted((config.metadata | told).items()))
    return fields


def pause_remaining(config: ConsumerConfig, wall_ns: int) -> int:
    """How much longer the consumer is paused, in nanoseconds that fit Go's int64; 0: it is not paused."""
    return min(max(config.pause_until.ns - wall_ns, 0), DURATION_MAX) if config.pause_until is not None else 0


def _place(consumer_seq: int, stream_seq: int, last_ns: int) -> Fields:
    fields: Fields = {"consumer_seq": consumer_seq, "stream_seq": stream_seq}
    if last_ns:
        fields["last_active"] = time_text(last_ns)
    return fields


def _group(config: ConsumerConfig, pins: list[tuple[str, str, int]]) -> Fields:
    """The first priority group, the only one that nats-server reports, and its pinned client."""
    fields: Fields = {"group": config.priority_groups[0]}
    pin_id, since_ns = next(((pin, ns) for _, pin, ns in pins if pin), ("", 0))
    if pin_id:
        fields["pinned_client_id"] = pin_id
    fields["pinned_ts"] = time_text_or_zero(since_ns)
    return fields
