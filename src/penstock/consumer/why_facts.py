"""Gathers the facts that `why.py` explains, about a consumer or a message, from a stream's store. Used under the
stream's lock."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.base.disk import Disk
from penstock.base.subject import Filters, any_overlap
from penstock.consumer.consumer import Consumer
from penstock.consumer.why import ConsumerFacts, Delivery, Listeners, MessageFacts
from penstock.errors import ReadError
from penstock.format.paths import StreamPaths
from penstock.store.base import Store
from penstock.store.deletes.deletes import RETOLD, read_deletes
from penstock.store.read.message import Message
from penstock.stream.config import StreamConfig
from penstock.wire.headers import find
from penstock.wire.ttl import TTL_NEVER, parse_ttl

GIVEN_UP_MAX = 1000  # further ones are not listed


def consumer_facts(
    stream: StreamConfig, store: Store, consumer: Consumer, wall_ns: int, listeners: Listeners | None = None
) -> ConsumerFacts:
    """A consumer's progress, with times of the machine's clock; `listeners` are its subscribers on a server."""
    engine, table, config = consumer.engine, consumer.table, consumer.config
    filters = config.filters
    captured = stream.subjects if stream.subject_transform is None else ()  # stored subjects may differ
    state = table.state()
    return ConsumerFacts(
        stream=stream.name,
        name=consumer.name,
        config=config,
        now_ns=wall_ns,
        first_seq=store.index.first_seq,
        last_seq=store.index.last_seq,
        subjects_overlap=not filters or not captured or any_overlap(Filters(filters), Filters(captured)),
        matching=store.num_pending(1, filters) if filters else store.index.messages,
        delivered_seq=table.delivered_stream_seq,
        ack_floor_seq=table.ack_floor_stream_seq,
        next_seq=engine.next_seq,
        num_pending=engine.num_pending,
        num_ack_pending=engine.num_ack_pending,
        next_due_ns=engine.next_due_ns and engine.next_due_ns + engine.offset_ns,
        given_up=tuple(seq for seq in state.redelivered if seq not in state.pending)[:GIVEN_UP_MAX],
        listeners=listeners,
    )


def message_facts(
    stream: StreamConfig, store: Store, consumers: Iterable[Consumer], seq: int, wall_ns: int, removal: str = ""
) -> MessageFacts:
    """What is known about one sequence; `removal` is the result of `removal_of`."""
    message: Message | None = None
    if 0 < seq <= store.index.last_seq:
        try:
            message = store.load(seq)
        except ReadError:
            message = None  # the reason is found below
    everyone = tuple(consumers)
    matching = frozenset(one.name for one in everyone if message is not None and _wants(one, message))
    if message is None and not removal:
        removal = "lost" if seq in store.lost else "skipped" if store.was_skipped(seq) else ""
    return MessageFacts(
        stream=stream.name,
        seq=seq,
        now_ns=wall_ns,
        first_seq=store.index.first_seq,
        last_seq=store.index.last_seq,
        is_stored=message is not None,
        subject=message.subject if message is not None else "",
        time_ns=message.time_ns if message is not None else 0,
        size=len(message.data) + len(message.raw_headers or b"") if message is not None else 0,
        expires_ns=_expires_ns(stream, store, message) if message is not None else 0,
        removal=removal,
        keeps_reasons=stream.storage == "file",
        deliveries=tuple(_delivery(one, seq) for one in everyone),
        matching=matching,
    )


def removal_of(paths: StreamPaths, stream_id: bytes, seq: int, disk: Disk | None = None) -> str:
    """Why a message is gone, according to the stream's files; "" if they do not tell. Reads only, and needs no lock,
    but may take long.

    The first record that removed the message counts; a record that repeats earlier removals counts only if there is no
    other.
    """
    reason = retold = ""
    for name, start, stop in read_deletes(paths.root, stream_id, disk=disk).removals:
        if start <= seq < stop:
            if name == "erase":
                return name
            if name in RETOLD:
                retold = retold or name
            else:
                reason = reason or name
    return reason or retold


def _wants(consumer: Consumer, message: Message) -> bool:
    filters = consumer.config.filters
    return not filters or Filters(filters).match(message.subject)


def _expires_ns(stream: StreamConfig, store: Store, message: Message) -> int:
    """When the message expires; 0: never."""
    ages_ns = stream.max_age
    if stream.allow_msg_ttl and message.raw_headers is not None:
        ttl_ns = parse_ttl(find(message.raw_headers, b"Nats-TTL") or b"")
        if ttl_ns == TTL_NEVER:
            return 0
        if ttl_ns:
            ages_ns = min(ttl_ns, ages_ns) if ages_ns > 0 else ttl_ns
    taken_ns = store.ages.taken(message.seq, message.time_ns) + store.clock.offset_ns
    return taken_ns + ages_ns if ages_ns > 0 else 0


def _delivery(consumer: Consumer, seq: int) -> Delivery:
    table = consumer.table
    pending = table.get(seq) if seq > 0 else None
    again = table.redelivered(seq) if seq > 0 else 0
    _, due_ns, deliveries, delivered_ns = pending or (0, 0, again, 0)
    offset_ns = consumer.engine.offset_ns if pending else 0
    return Delivery(
        name=consumer.name,
        config=consumer.config,
        created_ns=consumer.created_ns,
        delivered_seq=table.delivered_stream_seq,
        delivered_count=table.delivered_consumer_seq,
        ack_floor_seq=table.ack_floor_stream_seq,
        deliveries=deliveries,
        is_pending=pending is not None,
        is_given_up=pending is None and again > 0,
        delivered_ns=delivered_ns + offset_ns,
        due_ns=due_ns + offset_ns,
    )
