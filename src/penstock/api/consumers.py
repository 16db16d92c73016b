"""CONSUMER: create, info, list, delete."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from penstock.api.call import Answer, Call, Endpoint, Fields
from penstock.api.consumer_info import info_fields, pause_remaining
from penstock.api.stream_lock import change_locked, read_locked
from penstock.broker.consumers.dispatcher import LET_GO_SLICE
from penstock.consumer.config_json import CreateRequest, decode_request
from penstock.consumer.names import hash_name
from penstock.consumer.rules import admit, resolve
from penstock.errors import ConsumerNotFound, StreamIdentityMismatch
from penstock.wire.go_decode import Struct
from penstock.wire.go_json import encode, time_text
from penstock.wire.headers import find

if TYPE_CHECKING:
    from penstock.broker.streams.endpoint import StreamEndpoint
    from penstock.consumer.config import ConsumerConfig
    from penstock.consumer.consumer import Consumer

NAMES_MAX = 1024
LIST_MAX = 256
SLICE = 16  # consumers described in one tick
IDENTITY = "Nats-Stream-Identity"
_PAGE = Struct("server.JSApiConsumersRequest", {"offset": "int"})
_NO_PAGE = {"total": 0, "offset": 0, "limit": 0, "consumers": []}


# Create and delete.


def create(call: Call) -> Answer:
    request = decode_request(call.payload, strict=call.strict)
    config = resolve(call.subject, request)
    endpoint = call.account.stream(request.stream_name)
    if config.direct or config.sourcing:
        _check_identity(call, endpoint)
    return _create(call, endpoint, config, request)


def _check_identity(call: Call, endpoint: StreamEndpoint) -> None:
    """A request from a mirror or source may name the stream's identity, and its reply has that identity."""
    identity = identity_of(endpoint)
    wanted = find(call.request.headers, IDENTITY.encode()) if call.request.headers is not None else None
    if wanted and wanted.decode("utf-8", "replace") != identity:
        raise StreamIdentityMismatch(identity)
    call.headers = identity_header(endpoint)


def identity_header(endpoint: StreamEndpoint) -> bytes:
    return f"NATS/1.0\r\n{IDENTITY}: {identity_of(endpoint)}\r\n\r\n".encode()


def identity_of(endpoint: StreamEndpoint) -> str:
    """The identity that distinguishes a stream from an earlier one of its name; derived from the creation time."""
    return hash_name(time_text(endpoint.stream.identity.created_ns))


async def _create(call: Call, endpoint: StreamEndpoint, config: ConsumerConfig, request: CreateRequest) -> Fields:
    await endpoint.settled()  # earlier publishes are counted
    consumers = endpoint.stream.consumers

    def make() -> tuple[Consumer, Fields, int]:
        admission = admit(
            config,
            endpoint.stream.config,
            consumers.configs,
            caps=call.account.consumer_caps,
            action=request.action,
            pedantic=request.pedantic,
            has_subscriber=lambda subject: _is_bound(endpoint, config.given_name),
        )
        old, new = admission.old, admission.config
        consumer = consumers.by_name[admission.name] if old == new else consumers.create(admission)
        fields = info_fields(endpoint, consumer)
        if old is not None and old.deliver_subject != new.deliver_subject:
            fields.pop("push_bound", None)  # nats-server has not checked yet whether the new one has a subscriber
        return consumer, fields, written(endpoint, consumer)

    consumer, fields, position = await change_locked(endpoint, make)
    await endpoint.consumers_durable(position)
    if pause_remaining(consumer.config, endpoint.stream.store.clock.wall_ns()):
        endpoint.events.paused(consumer)
    return fields


def written(endpoint: StreamEndpoint, consumer: Consumer) -> int:
    """The consumer log's position after a change of `consumer`; 0 for one in memory, which need not be awaited."""
    return endpoint.flush_consumers() if consumer.number else 0


def _is_bound(endpoint: StreamEndpoint, name: str) -> bool:
    """Whether the consumer's deliver subject has a subscriber."""
    delivery = endpoint.deliveries.get(name)
    return delivery is not None and delivery.is_push_bound


def delete(call: Call) -> Answer:
    call.refuse_body()
    endpoint = call.account.stream(call.names[0])
    return _delete(endpoint, call.names[1])


async def _delete(endpoint: StreamEndpoint, name: str) -> Fields:
    consumers = endpoint.stream.consumers

    def remove() -> tuple[Consumer, int, int]:
        find_consumer(endpoint, name)
        gone = consumers.delete(name, lets_go=False)
        return gone, consumers.let_go(gone, LET_GO_SLICE), written(endpoint, gone)

    gone, seq, position = await change_locked(endpoint, remove)
    while seq:
        await asyncio.sleep(0)
        seq = await change_locked(endpoint, lambda: consumers.let_go(gone, LET_GO_SLICE, seq))  # noqa: B023
    gone.engine.release()
    await endpoint.consumers_durable(position)
    return {"success": True}


# Info and lists.


def find_consumer(endpoint: StreamEndpoint, name: str) -> Consumer:
    """The consumer with this name; ConsumerNotFound otherwise. The caller holds the stream's lock."""
    consumer = endpoint.stream.consumers.by_name.get(name)
    if consumer is None:
        raise ConsumerNotFound
    return consumer


def info(call: Call) -> Answer:
    call.refuse_body()
    endpoint = call.account.stream(call.names[0])
    return _info(endpoint, call.names[1])


async def _info(endpoint: StreamEndpoint, name: str) -> Fields:
    await endpoint.settled()
    return await read_locked(endpoint, lambda: info_fields(endpoint, find_consumer(endpoint, name)))


def names(call: Call) -> Fields:
    _, found, offset = _page(call)
    return {"total": len(found), "offset": offset, "limit": NAMES_MAX, "consumers": found[offset : offset + NAMES_MAX]}


def listing(call: Call) -> Answer:
    endpoint, found, offset = _page(call)
    return _listing(endpoint, found, offset)


async def _listing(endpoint: StreamEndpoint, found: list[str], offset: int) -> Fields:
    await endpoint.settled()
    parts: list[bytes] = []
    shown = found[offset : offset + LIST_MAX]
    by_name = endpoint.stream.consumers.by_name

    def describe(some: list[str]) -> list[Fields]:
        return [info_fields(endpoint, by_name[name], has_versions=False) for name in some if name in by_name]

    for start in range(0, len(shown), SLICE):
        some = shown[start : start + SLICE]
        parts += map(encode, await read_locked(endpoint, lambda: describe(some)))  # noqa: B023
        await asyncio.sleep(0)
    consumers = msgspec.Raw(b"[" + b",".join(parts) + b"]")
    return {"total": len(found), "offset": offset, "limit": LIST_MAX, "consumers": consumers}


def _page(call: Call) -> tuple[StreamEndpoint, list[str], int]:
    """A stream, the sorted names of its consumers, and the index where the page begins."""
    wanted = call.decode(_PAGE) if call.is_json else {}
    endpoint = call.account.stream(call.names[0])
    found = sorted(consumer.name for consumer in endpoint.stream.consumers if not consumer.config.direct)
    return endpoint, found, min(max(wanted.get("offset", 0), 0), len(found))


ENDPOINTS = (
    Endpoint("CONSUMER.CREATE", 1, "consumer_create_response", create, takes_more=True),
    Endpoint("CONSUMER.DURABLE.CREATE", 2, "consumer_create_response", create),
    Endpoint("CONSUMER.DELETE", 2, "consumer_delete_response", delete),
    Endpoint("CONSUMER.INFO", 2, "consumer_info_response", info),
    Endpoint("CONSUMER.NAMES", 1, "consumer_names_response", names, _NO_PAGE),
    Endpoint("CONSUMER.LIST", 1, "consumer_list_response", listing, _NO_PAGE),
)
