"""STREAM: create, update, delete, info, list."""

from __future__ import annotations

import asyncio
import logging
import re
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from penstock.api.call import Answer, Call, Endpoint, Fields
from penstock.api.stream_info import info_fields
from penstock.api.stream_lock import read_locked, read_locked_blocking
from penstock.api.usage import check_window, within_window
from penstock.base.subject import is_valid_filter
from penstock.consumer.requests import check_limits
from penstock.errors import (
    ReplicasNotSupported,
    StoreClosed,
    StoreError,
    StreamCreateFailed,
    StreamDeleteFailed,
    StreamNameInUse,
    StreamNameMismatch,
    StreamNotFound,
    StreamUpdateFailed,
)
from penstock.stream.config import StreamConfig
from penstock.stream.config_json import decode_request
from penstock.stream.config_rules import check_new, check_update, collide, same, validate
from penstock.wire.go_decode import Struct
from penstock.wire.go_json import encode

if TYPE_CHECKING:
    from penstock.api.account import JetStreamAccount
    from penstock.broker.streams.endpoint import StreamEndpoint

log = logging.getLogger("penstock.api")
NAMES_MAX = 1024
LIST_MAX = 256
SUBJECTS_AT_ONCE = 300  # more are checked beside the loop: each is compared with each other
SUBJECTS_MAX = 100_000
SLICE = 8  # streams described in one tick
SUBJECT_SLICE = 2048  # subjects named in one tick

_INFO = Struct(
    "server.JSApiStreamInfoRequest", {"offset": "int", "deleted_details": "bool", "subjects_filter": "string"}
)
_NAMES = Struct("server.JSApiStreamNamesRequest", {"offset": "int", "subject": "string"})
_LIST = Struct("server.JSApiStreamListRequest", {"offset": "int", "subject": "string"})
_NAMES_STORAGE = re.compile(rb'"storage"\s*:', re.IGNORECASE)
_NO_PAGE = {"total": 0, "offset": 0, "limit": 0}


# Create, update, delete.


async def create(call: Call) -> Fields:
    account = call.account
    config, pedantic = decode_request(call.payload, strict=call.strict)
    if config.name != call.names[0]:
        raise StreamNameMismatch
    check_new(config)
    config = within_window(config, account.jetstream.window_ns_max, pedantic=pedantic)
    async with account.changes:
        account.check_counts(config)
        if _NAMES_STORAGE.search(call.payload):
            account.check_create(config)  # nats-server checks its limits first, if the storage is given
        checked = await _validated(account, config, pedantic)
        endpoint = account.streams.get(config.name)
        is_new = endpoint is None
        if endpoint is None:
            account.check_create(checked)
            endpoint = await _create(account, config, pedantic)
        elif not same(endpoint.stream.config, checked):
            raise StreamNameInUse
    await endpoint.settled()
    fields = await read_locked(endpoint, lambda: {**info_fields(endpoint), "did_create": True})
    if is_new:
        account.tell_soon(config.name, "create")
    return fields


async def _create(account: JetStreamAccount, config: StreamConfig, pedantic: bool) -> StreamEndpoint:
    try:
        await asyncio.to_thread(account.database.create_stream, config, pedantic=pedantic)
    except (StoreError, OSError) as error:
        log.warning("stream %s of account %s cannot be created: %s", config.name, account.account.name, error)
        raise StreamCreateFailed from error
    account.follow(config.name)
    return account.stream(config.name)


async def update(call: Call) -> Fields:
    account = call.account
    config, pedantic = decode_request(call.payload, strict=call.strict)
    config = within_window(config, account.jetstream.window_ns_max, pedantic=pedantic)
    late: ReplicasNotSupported | None = None
    try:
        await _validated(account, config, pedantic)
    except ReplicasNotSupported as error:
        late = error  # only reported for a stream that exists
    if config.name != call.names[0]:
        raise StreamNameMismatch
    async with account.changes:
        endpoint = account.stream(config.name)
        if late is not None:
            raise late
        old = endpoint.stream.config
        checked = await asyncio.to_thread(check_update, old, config, pedantic=pedantic)
        account.check_update(old, checked)
        await read_locked(endpoint, lambda: check_limits(old, checked, endpoint.stream.consumers.configs))
        try:
            await asyncio.to_thread(account.database.update_stream, config, pedantic=pedantic)
        except (StoreError, OSError) as error:
            raise StreamUpdateFailed(str(error)) from error
        account.follow(config.name)
    await endpoint.settled()
    fields = await read_locked(endpoint, lambda: info_fields(endpoint, domain=account.jetstream.domain))
    account.tell_soon(config.name, "modify")
    return fields


async def _validated(account: JetStreamAccount, config: StreamConfig, pedantic: bool) -> StreamConfig:
    """The configuration with its defaults. Rules of streams and of the account are checked in nats-server's order."""
    try:
        if len(config.subjects or ()) > SUBJECTS_AT_ONCE:
            checked = await asyncio.to_thread(validate, config, pedantic=pedantic)
        else:
            checked = validate(config, pedantic=pedantic)
    except ReplicasNotSupported:
        account.check_max_bytes(config)
        raise
    check_window(checked, account.jetstream.window_ns_max)
    account.check_max_bytes(checked)
    return checked


async def delete(call: Call) -> Fields:
    call.refuse_body()
    await delete_stream(call.account, call.names[0])
    return {"success": True}


async def delete_stream(account: JetStreamAccount, name: str) -> None:
    """Delete a stream, and publish an advisory."""
    async with account.changes:
        if name in account.failed:
            await _delete_failed(account, name)
            return
        endpoint = account.stream(name)
        await endpoint.drain()  # later publishes have no responders
        consumers = list(endpoint.stream.consumers.by_name)
        try:
            await asyncio.to_thread(account.database.delete_stream, name)
        except (StoreError, OSError) as error:
            raise StreamDeleteFailed(str(error)) from error
        finally:
            account.follow(name)
            if name in account.streams:  # it could not be deleted: accept messages again
                endpoint.configure()
    for consumer in consumers:
        endpoint.events.changed(consumer, "delete")
    account.jetstream.advisories.stream_action(account.account, name, "delete")  # before the answer, unlike the others


async def _delete_failed(account: JetStreamAccount, name: str) -> None:
    """Delete a stream that could not be opened; nothing uses it."""
    try:
        await asyncio.to_thread(account.database.delete_stream, name)
    except (StoreError, OSError) as error:
        raise StreamDeleteFailed(str(error)) from error
    account.failed.pop(name, None)
    account.jetstream.advisories.stream_action(account.account, name, "delete")


# Info and lists.


def info(call: Call) -> Answer:
    wanted = call.decode(_INFO) if call.is_json else {}
    endpoint = call.account.stream(call.names[0])
    return _info(call, endpoint, wanted)


async def _info(call: Call, endpoint: StreamEndpoint, wanted: Fields) -> Fields:
    await endpoint.settled()
    jetstream = call.account.jetstream
    has_details = wanted.get("deleted_details", False)

    def look() -> Fields:
        return info_fields(endpoint, domain=jetstream.domain, leader=jetstream.server_name, has_details=has_details)

    fields = await read_locked(endpoint, look)
    page: Fields = dict(_NO_PAGE)
    subjects = wanted.get("subjects_filter", "")
    if subjects and is_valid_filter(subjects):
        offset = max(wanted.get("offset", 0), 0)
        total, shown = await _subjects(endpoint, subjects, offset)
        if total:
            page = {"total": total, "offset": offset, "limit": SUBJECTS_MAX}
            if shown:
                fields["state"] = _with_subjects(fields["state"], shown)
    return {**page, **fields}


async def _subjects(endpoint: StreamEndpoint, subject: str, offset: int) -> tuple[int, bytes]:
    """The number of matching subjects, and a page of them with their counts as JSON. There may be millions."""
    query = endpoint.stream.store.query
    numbers = await asyncio.to_thread(read_locked_blocking, endpoint, lambda: query.live_numbers([subject]))
    total = len(numbers) // 4
    parts: list[bytes] = []
    for start in range(offset, min(offset + SUBJECTS_MAX, total), SUBJECT_SLICE):
        stop = min(start + SUBJECT_SLICE, offset + SUBJECTS_MAX)
        found = await read_locked(endpoint, partial(query.totals_of, numbers, start, stop))
        if found:
            parts.append(encode(found)[1:-1])
        await asyncio.sleep(0)
    return total, b"{" + b",".join(parts) + b"}" if parts else b""


def _with_subjects(state: Fields, subjects: bytes) -> Fields:
    """The state with the counts of subjects inserted."""
    found: Fields = {}
    for key, value in state.items():
        found[key] = value
        if key == "num_subjects":
            found["subjects"] = msgspec.Raw(subjects)
    return found


def names(call: Call) -> Fields:
    found, offset = _page(call, _NAMES)
    shown = found[offset : offset + NAMES_MAX]
    return {"total": len(found), "offset": offset, "limit": NAMES_MAX, "streams": shown or None}


def listing(call: Call) -> Answer:
    found, offset = _page(call, _LIST)
    return _listing(call, found, offset)


async def _listing(call: Call, found: list[str], offset: int) -> Fields:
    parts: list[bytes] = []
    domain = call.account.jetstream.domain
    for at, name in enumerate(found[offset : offset + LIST_MAX], 1):
        endpoint = call.account.streams.get(name)
        if endpoint is None:
            continue  # it went meanwhile
        try:
            await endpoint.settled()
            fields = await read_locked(endpoint, lambda: info_fields(endpoint, domain=domain, has_versions=False))  # noqa: B023
        except (StoreClosed, StreamNotFound):
            continue  # just now
        parts.append(encode(fields))
        if at % SLICE == 0:
            await asyncio.sleep(0)
    streams = msgspec.Raw(b"[" + b",".join(parts) + b"]")
    return {"total": len(found), "offset": offset, "limit": LIST_MAX, "streams": streams}


def _page(call: Call, struct: Struct) -> tuple[list[str], int]:
    """The sorted names of the requested streams, and the index where the page begins."""
    wanted = call.decode(struct) if call.is_json else {}
    subject = wanted.get("subject", "")
    streams = call.account.streams
    found = sorted(streams)
    if subject:
        found = [name for name in found if _takes(streams[name].stream.config, subject)]
    return found, min(max(wanted.get("offset", 0), 0), len(found))


def _takes(config: StreamConfig, subject: str) -> bool:
    return any(collide(subject, own) for own in config.subjects)


ENDPOINTS = (
    Endpoint("STREAM.CREATE", 1, "stream_create_response", create),
    Endpoint("STREAM.UPDATE", 1, "stream_update_response", update),
    Endpoint("STREAM.DELETE", 1, "stream_delete_response", delete),
    Endpoint("STREAM.INFO", 1, "stream_info_response", info, _NO_PAGE),
    Endpoint("STREAM.NAMES", 0, "stream_names_response", names, {**_NO_PAGE, "streams": None}),
    Endpoint("STREAM.LIST", 0, "stream_list_response", listing, {**_NO_PAGE, "streams": []}),
)
