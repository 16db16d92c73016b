"""StreamInfo: a stream's configuration, state and creation time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.store.state import StoreState
from penstock.stream.config import StreamConfig
from penstock.stream.config_json import to_dict
from penstock.wire.go_json import time_text, time_text_or_zero
from penstock.wire.info import API_LEVEL, VERSION

if TYPE_CHECKING:
    from penstock.broker.streams.endpoint import StreamEndpoint
    from penstock.db.stream import Stream

Fields = dict[str, Any]


def info_fields(
    endpoint: StreamEndpoint,
    *,
    domain: str = "",
    leader: str = "",
    has_versions: bool = True,
    has_details: bool = False,
) -> Fields:
    """The fields of a StreamInfo. The caller has waited until all appends are durable, and holds the stream's lock.

    has_versions: the metadata names our version, as in replies about one stream. leader: the leader's name, if the
    reply has one. has_details: lists deleted sequences.
    """
    stream = endpoint.stream
    store = stream.store
    state = store.state() if has_details else store.fast_state()
    fields: Fields = {
        "config": config_fields(stream.config, has_versions=has_versions),
        "created": time_text(stream.identity.created_ns),
        "state": state_fields(
            state,
            has_details=has_details,
            is_file=stream.config.storage == "file",
            is_fresh=state.last_seq == 0 and not endpoint.began_at and not endpoint.was_purged,
            consumer_count=count_of(stream),
        ),
    }
    if domain:
        fields["domain"] = domain
    if leader:
        fields["cluster"] = {"leader": leader}
    fields["ts"] = time_text(store.clock.wall_ns())
    return fields


def count_of(stream: Stream) -> int:
    """The number of a stream's consumers, without those that feed mirrors and sources."""
    return sum(not consumer.config.direct for consumer in stream.consumers)


def config_fields(config: StreamConfig, *, has_versions: bool) -> Fields:
    fields = to_dict(config)
    if has_versions:
        told = {"_nats.level": str(API_LEVEL), "_nats.ver": VERSION}
        fields["metadata"] = dict(sorted((config.metadata | told).items()))
    return fields


def state_fields(state: StoreState, *, has_details: bool, is_file: bool, is_fresh: bool, consumer_count: int) -> Fields:
    """`is_fresh`: the stream never held a message, has no configured first sequence, and was not purged."""
    fields: Fields = {
        "messages": state.messages,
        "bytes": state.bytes,
        "first_seq": 0 if is_fresh else state.first_seq,
        "first_ts": time_text_or_zero(state.first_time),
        "last_seq": state.last_seq,
        "last_ts": time_text_or_zero(state.last_time),
    }
    if state.num_subjects:
        fields["num_subjects"] = state.num_subjects
    num_deleted = state.num_deleted if state.messages else 0
    deleted: list[int] = []
    if has_details and state.messages and state.deleted is not None:
        deleted = [seq for first, last in state.deleted.ranges() for seq in range(first, last + 1)]
    if has_details and is_fresh and is_file:
        num_deleted, deleted = 1, [0]  # as nats-server reports for a file stream that never held a message
    if num_deleted:
        fields["num_deleted"] = num_deleted
    if deleted:
        fields["deleted"] = deleted
    lost = [seq for first, last in state.lost.ranges() for seq in range(first, last + 1)] if state.lost else []
    if lost:
        fields["lost"] = {"msgs": lost, "bytes": 0}
    fields["consumer_count"] = consumer_count
    return fields
