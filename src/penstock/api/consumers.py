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
    from penstock.broker.streams.endpoint import Intake
    from penstock.consumer.config import ConsumerConfig
    from penstock.consumer.consumer import Consumer

NAMES_MAX = 1024
LIST_MAX = 256
SLICE = 16  # consumers described in one turn of the loop
IDENTITY = "Nats-Stream-Identity"
_PAGE = Struct("server.JSApiConsumersRequest", {"offset": "int"})
_NO_PAGE = {"total": 0, "offset": 0, "limit": 0, "consumers": []}


# Create and delete.


def create(call: Call) -> Answer:
    request = decode_request(call.payload, strict=call.strict)
    config = resolve(call.subject, request)
    intake = call.account.stream(request.stream_name)
    if config.direct or config.sourcing:
        _check_identity(call, intake)
    return _create(call, intake, config, request)


def _check_identity(call: Call, intake: Intake) -> None:
    """A request from a mirror or source may name the stream's identity, and its reply has that identity."""
    identity = identity_of(intake)
    wanted = find(call.request.headers, IDENTITY.encode()) if call.request.headers is not None else None
    if wanted and wanted.decode("utf-8", "replace") != identity:
        raise StreamIdentityMismatch(identity)
    call.headers = identity_header(intake)


def identity_header(intake: Intake) -> bytes:
    return f"NATS/1.0\r\n{IDENTITY}: {identity_of(intake)}\r\n\r\n".encode()


def identity_of(intake: Intake) -> str:
    """The identity that distinguishes a stream from an earlier one of its name; derived from the creation time."""
    return hash_name(time_text(intake.stream.identity.created_ns))


async def _create(call: Call, intake: Intake, config: ConsumerConfig, request: CreateRequest) -> Fields:
    await intake.settled()  # earlier publishes are counted
    consumers = intake.stream.consumers

    def make() -> tuple[Consumer, Fields, int]:
        admission = admit(
            config,
            intake.stream.config,
            consumers.configs,
            caps=call.account.consumer_caps,
            action=request.action,
            pedantic=request.pedantic,
            has_subscriber=lambda subject: _is_bound(intake, config.given_name),
        )
        old, new = admission.old, admission.config
        consumer = consumers.by_name[admission.name] if old == new else consumers.create(admission)
        fields = info_fields(intake, consumer)
        if old is not None and old.deliver_subject != new.deliver_subject:
            fields.pop("push_bound", None)  # nats-server has not checked yet whether the new one has a subscriber
        return consumer, fields, written(intake, consumer)

    consumer, fields, position = await change_locked(intake, make)
    await intake.consumers_durable(position)
    if pause_remaining(consumer.config, intake.stream.store.clock.wall_ns()):
        intake.news.paused(consumer)
    return fields


def written(intake: Intake, consumer: Consumer) -> int:
    """The consumer log's position after a change of `consumer`; 0 for one in memory, which need not be awaited."""
    return intake.flush_consumers() if consumer.number else 0


def _is_bound(intake: Intake, name: str) -> bool:
    """Whether the consumer's deliver subject has a subscriber."""
    delivery = intake.deliveries.get(name)
    return delivery is not None and delivery.is_push_bound


def delete(call: Call) -> Answer:
    call.refuse_body()
    intake = call.account.stream(call.names[0])
    return _delete(intake, call.names[1])


async def _delete(intake: Intake, name: str) -> Fields:
    consumers = intake.stream.consumers

    def remove() -> tuple[Consumer, int, int]:
        find_consumer(intake, name)
        gone = consumers.delete(name, lets_go=False)
        return gone, consumers.let_go(gone, LET_GO_SLICE), written(intake, gone)

    gone, seq, position = await change_locked(intake, remove)
    while seq:
        await asyncio.sleep(0)
        seq = await change_locked(intake, lambda: consumers.let_go(gone, LET_GO_SLICE, seq))  # noqa: B023
    gone.engine.release()
    await intake.consumers_durable(position)
    return {"success": True}


# Info and lists.


def find_consumer(intake: Intake, name: str) -> Consumer:
    """The consumer with this name; ConsumerNotFound otherwise. The caller holds the stream's lock."""
    consumer = intake.stream.consumers.by_name.get(name)
    if consumer is None:
        raise ConsumerNotFound
    return consumer


def info(call: Call) -> Answer:
    call.refuse_body()
    intake = call.account.stream(call.names[0])
    return _info(intake, call.names[1])


async def _info(intake: Intake, name: str) -> Fields:
    await intake.settled()
    return await read_locked(intake, lambda: info_fields(intake, find_consumer(intake, name)))


def names(call: Call) -> Fields:
    _, found, offset = _page(call)
    return {"total": len(found), "offset": offset, "limit": NAMES_MAX, "consumers": found[offset : offset + NAMES_MAX]}


def listing(call: Call) -> Answer:
    intake, found, offset = _page(call)
    return _listing(intake, found, offset)


async def _listing(intake: Intake, found: list[str], offset: int) -> Fields:
    await intake.settled()
    parts: list[bytes] = []
    shown = found[offset : offset + LIST_MAX]
    by_name = intake.stream.consumers.by_name

    def describe(some: list[str]) -> list[Fields]:
        return [info_fields(intake, by_name[name], has_versions=False) for name in some if name in by_name]

    for start in range(0, len(shown), SLICE):
        some = shown[start : start + SLICE]
        parts += map(encode, await read_locked(intake, lambda: describe(some)))  # noqa: B023
        await asyncio.sleep(0)
    consumers = msgspec.Raw(b"[" + b",".join(parts) + b"]")
    return {"total": len(found), "offset": offset, "limit": LIST_MAX, "consumers": consumers}


def _page(call: Call) -> tuple[Intake, list[str], int]:
    """A stream, the sorted names of its consumers, and the index where the page begins."""
    wanted = call.decode(_PAGE) if call.is_json else {}
    intake = call.account.stream(call.names[0])
    found = sorted(consumer.name for consumer in intake.stream.consumers if not consumer.config.direct)
    return intake, found, min(max(wanted.get("offset", 0), 0), len(found))


ENDPOINTS = (
    Endpoint("CONSUMER.CREATE", 1, "consumer_create_response", create, takes_more=True),
    Endpoint("CONSUMER.DURABLE.CREATE", 2, "consumer_create_response", create),
    Endpoint("CONSUMER.DELETE", 2, "consumer_delete_response", delete),
    Endpoint("CONSUMER.INFO", 2, "consumer_info_response", info),
    Endpoint("CONSUMER.NAMES", 1, "consumer_names_response", names, _NO_PAGE),
    Endpoint("CONSUMER.LIST", 1, "consumer_list_response", listing, _NO_PAGE),
)
