"""CONSUMER: pause and resume, unpin, reset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api.call import Answer, Call, Endpoint, Fields, Unanswered
from penstock.api.consumer_info import info_fields, pause_remaining
from penstock.api.consumers import IDENTITY, find_consumer, identity_header, written
from penstock.api.stream_lock import change_locked
from penstock.consumer.moment import ZERO_NS, Moment, format_moment
from penstock.consumer.requests import check_unpin, decode_pause, decode_reset, decode_unpin, reset_seq, with_pause
from penstock.wire.headers import find

if TYPE_CHECKING:
    from penstock.broker.streams.endpoint import StreamEndpoint

_NEVER = Moment(ZERO_NS)
_NOT_PAUSED = {"paused": False, "pause_until": format_moment(_NEVER)}


def pause(call: Call) -> Answer:
    until = decode_pause(call.payload, strict=call.strict)
    return _pause(call.account.stream(call.names[0]), call.names[1], until)


async def _pause(endpoint: StreamEndpoint, name: str, until: Moment | None) -> Fields:
    consumers = endpoint.stream.consumers

    def change() -> tuple[Fields, int]:
        consumer = find_consumer(endpoint, name)
        old, new = consumer.config, with_pause(consumer.config, until)
        if new != old:
            consumers.set_config(consumer, new)
            if (old.pause_until or _NEVER).ns != (until or _NEVER).ns:
                endpoint.events.paused(consumer)
        fields: Fields = {"paused": False, "pause_until": format_moment(until or _NEVER)}
        if (remaining := pause_remaining(new, endpoint.stream.store.clock.wall_ns())) > 0:
            fields |= {"paused": True, "pause_remaining": remaining}
        return fields, written(endpoint, consumer)

    fields, position = await change_locked(endpoint, change)
    await endpoint.consumers_durable(position)
    return fields


def unpin(call: Call) -> Answer:
    group = decode_unpin(call.payload)
    return _unpin(call.account.stream(call.names[0]), call.names[1], group)


async def _unpin(endpoint: StreamEndpoint, name: str, group: str) -> Fields:
    def change() -> Fields:
        consumer = find_consumer(endpoint, name)
        check_unpin(group, consumer.config)
        if name in endpoint.deliveries:
            endpoint.deliveries[name].unpin(group)
        endpoint.events.unpinned(consumer, group, "admin")
        return {}

    return await change_locked(endpoint, change)


def reset(call: Call) -> Answer:
    """In nats-server each consumer subscribes to this subject: without a consumer there is no reply."""
    endpoint = call.account.streams.get(call.names[0])
    if endpoint is None or call.names[1] not in endpoint.stream.consumers.by_name:
        raise Unanswered
    return _reset(call, endpoint, decode_reset(call.payload))


async def _reset(call: Call, endpoint: StreamEndpoint, wanted: int) -> Fields:
    await endpoint.settled()
    stream = endpoint.stream

    def change() -> tuple[Fields, int]:
        consumer = stream.consumers.by_name.get(call.names[1])
        if consumer is None:
            raise Unanswered
        floor = consumer.engine.table.ack_floor_stream_seq
        seq = reset_seq(consumer.config, wanted, floor, stream.store.seq_from_time)
        stream.consumers.reset(consumer, seq)
        if consumer.name in endpoint.deliveries:
            endpoint.deliveries[consumer.name].reset()
        return {**info_fields(endpoint, consumer), "reset_seq": seq}, written(endpoint, consumer)

    fields, position = await change_locked(endpoint, change)
    await endpoint.consumers_durable(position)
    if call.request.headers is not None and find(call.request.headers, IDENTITY.encode()) is not None:
        call.headers = identity_header(endpoint)
    return fields


ENDPOINTS = (
    Endpoint("CONSUMER.PAUSE", 2, "consumer_pause_response", pause, _NOT_PAUSED),
    Endpoint("CONSUMER.UNPIN", 2, "consumer_unpin_response", unpin),
    Endpoint("CONSUMER.RESET", 2, "consumer_reset_response", reset, {"reset_seq": 0}, is_uncounted=True),
)
