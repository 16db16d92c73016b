"""What the files of a stream record about its consumers, without the process that runs them: for `penstock inspect` and
Spark."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.consumer.consumer import Consumer, decode_meta, table_of
from penstock.store.consumer_log.entries import Entry, read_entries
from penstock.store.open.report import Report
from penstock.store.read.block_cache import BlockCache
from penstock.store.read.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class ConsumerOverview:
    """One consumer as last stored; times are Unix nanoseconds, 0: never."""

    name: str
    is_durable: bool
    is_push: bool
    filters: tuple[str, ...]  # none: everything
    deliver_policy: str
    ack_policy: str
    delivered_stream_seq: int
    delivered_consumer_seq: int
    ack_floor_stream_seq: int
    ack_floor_consumer_seq: int
    num_ack_pending: int
    num_redelivered: int
    num_pending: int  # messages not delivered yet: its lag
    given_up: tuple[int, ...]  # messages that reached max_deliver without an ack
    created_ns: int
    paused_until_ns: int


def read_consumers(snapshot: Snapshot, report: Report | None = None) -> list[ConsumerOverview]:
    """The consumers of a stream, by name, compared with its current messages; what is invalid goes to `report`."""
    consumers = load_consumers(snapshot, report)
    try:
        return [_overview(consumer) for consumer in consumers]
    finally:
        for consumer in consumers:
            consumer.engine.close()


def load_consumers(snapshot: Snapshot, report: Report | None = None) -> list[Consumer]:
    """The same consumers in their running form, by name: for inspection, not for delivery. The caller closes their
    engines."""
    report = report if report is not None else Report()
    # The consumers first: every message that they have received is then in the stream.
    entries = read_entries(snapshot.disk, snapshot.paths.consumers, snapshot.stream_id, report)
    if not entries:
        return []
    snapshot.refresh()
    found: dict[str, Consumer] = {}
    for number, entry in sorted(entries.items()):
        try:
            one = _consumer(snapshot, number, entry)
        except ValueError as error:
            report.add("set aside", snapshot.paths.consumers, f"consumer number {number} cannot be read: {error}")
            continue
        if one.name in found:
            found[one.name].engine.close()
        found[one.name] = one  # the higher number is the newer one
    return [found[name] for name in sorted(found)]


def _consumer(snapshot: Snapshot, number: int, entry: Entry) -> Consumer:
    meta = decode_meta(entry.meta)
    table = table_of(meta, entry.state, entry.notes, snapshot.index.last_seq)
    consumer = Consumer(meta, number, snapshot, table, BlockCache())
    consumer.engine.reconcile()  # pending messages may have left the stream since
    return consumer


def _overview(consumer: Consumer) -> ConsumerOverview:
    config, engine, table = consumer.config, consumer.engine, consumer.table
    state = table.state()
    return ConsumerOverview(
        name=consumer.name,
        is_durable=config.is_durable,
        is_push=config.is_push,
        filters=config.filters,
        deliver_policy=config.deliver_policy,
        ack_policy=config.ack_policy,
        delivered_stream_seq=table.delivered_stream_seq,
        delivered_consumer_seq=table.delivered_consumer_seq,
        ack_floor_stream_seq=table.ack_floor_stream_seq,
        ack_floor_consumer_seq=table.ack_floor_consumer_seq,
        num_ack_pending=table.pending_count,
        num_redelivered=table.redelivered_count,
        num_pending=engine.num_pending,
        given_up=tuple(seq for seq in state.redelivered if seq not in state.pending),
        created_ns=consumer.created_ns,
        paused_until_ns=engine.paused_until_ns,
    )


__all__ = ["ConsumerOverview", "load_consumers", "read_consumers"]
