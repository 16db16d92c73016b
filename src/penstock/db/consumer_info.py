"""ConsumerInfo: a consumer's configuration and progress."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from penstock.consumer.config import ConsumerConfig
from penstock.consumer.consumer import Consumer

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Place:
    """A point in the deliveries of a consumer, and in its stream."""

    consumer_seq: int
    """The number of deliveries, redeliveries included."""
    stream_seq: int
    last_active_ns: int
    """When this last advanced; 0: not since the stream was opened."""


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """A consumer's configuration and progress."""

    stream: str
    name: str
    config: ConsumerConfig
    created_ns: int
    delivered: Place
    """The last delivery."""
    ack_floor: Place
    """Everything up to here is acknowledged."""
    num_pending: int
    """Matching messages that were not delivered yet."""
    num_ack_pending: int
    """Messages that were delivered and not acknowledged yet."""
    num_redelivered: int
    """How many of the unacknowledged ones were delivered more than once."""
    pause_remaining_ns: int
    """How long the pause still lasts; 0: not paused."""

    @property
    def created(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.created_ns // 1000)

    @property
    def is_paused(self) -> bool:
        return self.pause_remaining_ns > 0


def info_of(stream: str, consumer: Consumer, now_ns: int) -> ConsumerInfo:
    """The state of a consumer now. The caller holds the stream's lock."""
    engine, table = consumer.engine, consumer.table
    delivered_ns, acked_ns = consumer.wall_ns(engine.last_delivered_ns), consumer.wall_ns(engine.last_acked_ns)
    return ConsumerInfo(
        stream=stream,
        name=consumer.name,
        config=consumer.config,
        created_ns=consumer.created_ns,
        delivered=Place(table.delivered_consumer_seq, table.delivered_stream_seq, delivered_ns),
        ack_floor=Place(table.ack_floor_consumer_seq, table.ack_floor_stream_seq, acked_ns),
        num_pending=engine.num_pending,
        num_ack_pending=engine.num_ack_pending,
        num_redelivered=engine.num_redelivered,
        pause_remaining_ns=max(engine.paused_until_ns - consumer.wall_ns(now_ns), 0),
    )
