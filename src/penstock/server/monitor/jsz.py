"""Jsz: JetStream's accounts, streams and consumers, and their usage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.api import consumer_info
from penstock.api.stream_info import count_of, info_fields
from penstock.api.stream_lock import read_locked
from penstock.errors import StreamNotFound, quote
from penstock.server.monitor.js_facts import (
    NO_CONFIG,
    NO_STATS,
    ApiStats,
    JetStreamConfig,
    JetStreamLimitsPage,
    js_config,
    js_limits,
    js_stats,
)
from penstock.server.monitor.page import NoAnswer, Page, RequestError, now_text, yield_to_loop
from penstock.wire import go_json

if TYPE_CHECKING:
    from penstock.broker.streams.endpoint import StreamEndpoint
    from penstock.consumer.consumer import Consumer
    from penstock.server.monitor.query import Query
    from penstock.server.server import Server

LIMIT = 1024  # accounts by default
STREAM_SLICE = 16  # streams described before the loop does other work


@dataclass(slots=True)
class JszOptions:
    account: str = ""
    accounts: bool = False
    streams: bool = False
    consumer: bool = False
    direct_consumer: bool = False
    config: bool = False
    leader_only: bool = False
    offset: int = 0
    limit: int = 0
    raft: bool = False
    stream_leader_only: bool = False

    @classmethod
    def of_query(cls, query: Query) -> JszOptions:
        return cls(
            accounts=query.boolean("accounts"),
            streams=query.boolean("streams"),
            consumer=query.boolean("consumers"),
            direct_consumer=query.boolean("direct-consumers"),
            config=query.boolean("config"),
            offset=query.integer("offset"),
            limit=query.integer("limit"),
            leader_only=query.boolean("leader-only"),
            raft=query.boolean("raft"),
            stream_leader_only=query.boolean("stream-leader-only"),
            account=query.text("acc"),
        )


class StreamDetail(Page, kw_only=True):
    name: str
    created: str
    cluster: dict[str, str]
    config: dict[str, Any] = {}
    state: dict[str, Any]
    consumer_detail: list[dict[str, Any]] = []
    direct_consumer_detail: list[dict[str, Any]] = []  # those that feed mirrors and sources


class AccountDetail(Page, kw_only=True):
    name: str
    id: str
    memory: int
    storage: int
    reserved_memory: int
    reserved_storage: int
    accounts: int
    ha_assets: int
    api: ApiStats
    stream_detail: list[msgspec.Raw] = []  # StreamDetail, encoded as it was made


class Jsz(Page, kw_only=True):
    memory: int
    storage: int
    reserved_memory: int
    reserved_storage: int
    accounts: int
    ha_assets: int
    api: ApiStats
    server_id: str
    now: str
    disabled: bool = False
    config: JetStreamConfig
    limits: JetStreamLimitsPage | None = None
    streams: int
    streams_leader: int = 0
    consumers: int
    consumers_leader: int = 0
    messages: int
    bytes: int
    account_details: list[AccountDetail] = []
    total: int


async def make_jsz(server: Server, options: JszOptions) -> Jsz:
    jetstream = server.jetstream
    stats = NO_STATS if jetstream is None else js_stats(server)
    page = Jsz(
        **{name: getattr(stats, name) for name in stats.__struct_fields__},
        server_id=server.id,
        now=now_text(),
        config=NO_CONFIG,
        streams=0,
        consumers=0,
        messages=0,
        bytes=0,
        total=0,
    )
    if jetstream is None:
        if options.leader_only:
            raise NoAnswer("filtered response: not leader")
        page.disabled = True
        return page
    page.config, page.limits = js_config(server), js_limits(server)
    page.total = len(jetstream.accounts)
    with_streams = options.streams or options.consumer
    for account in list(jetstream.accounts.values()):
        await _add_totals(page, account, options.raft)
    if options.account in jetstream.accounts:
        shown = [options.account]
    elif options.accounts or (with_streams and not options.account):
        shown = list(jetstream.accounts)
        if options.limit >= 0:
            offset = max(0, options.offset)
            shown = sorted(shown)[offset : offset + (options.limit or LIMIT)]
    else:
        shown = []
    for name in shown:
        if name in jetstream.accounts:
            page.account_details.append(await _account_detail(server, name, with_streams, options))
    return page


async def make_jsz_account(server: Server, options: JszOptions) -> AccountDetail:
    """One account alone, as `$SYS.REQ.ACCOUNT.<name>.JSZ` answers."""
    if server.jetstream is None:
        raise RequestError("jetstream not enabled")
    if options.account not in server.accounts:
        raise RequestError(f"account {quote(options.account)} not found")
    if options.account not in server.jetstream.accounts:
        raise RequestError(f"account {quote(options.account)} not jetstream enabled")
    return await _account_detail(server, options.account, options.streams, options)


async def _add_totals(page: Jsz, account: Any, with_leaders: bool) -> None:
    streams = [endpoint.stream for endpoint in account.streams.values()]
    page.streams += len(streams)
    page.streams_leader += len(streams) if with_leaders else 0
    for at, stream in enumerate(streams, 1):
        index = stream.store.index
        consumers = count_of(stream)
        page.consumers += consumers
        page.consumers_leader += consumers if with_leaders else 0
        page.messages += index.messages
        page.bytes += index.bytes
        if at % (STREAM_SLICE * 16) == 0:
            await yield_to_loop()


async def _account_detail(server: Server, name: str, with_streams: bool, options: JszOptions) -> AccountDetail:
    assert server.jetstream is not None
    account = server.jetstream.accounts[name]
    detail = AccountDetail(
        name=name,
        id=name,
        memory=account.memory_used,
        storage=account.storage_used,
        reserved_memory=account.limits.max_memory % 2**64,  # -1, no limit, is shown as Go's unsigned
        reserved_storage=account.limits.max_storage % 2**64,
        accounts=0,
        ha_assets=0,
        api=ApiStats(level=0, total=account.api_total, errors=account.api_errors),
    )
    if with_streams:
        for at, endpoint in enumerate(list(account.streams.values()), 1):
            try:
                page = await read_locked(endpoint, lambda: _stream_detail(server, endpoint, options))  # noqa: B023
                if options.consumer:
                    await _add_consumers(page, endpoint, options)
            except StreamNotFound:
                continue  # it was deleted just now
            detail.stream_detail.append(msgspec.Raw(go_json.encode(page)))
            if at % STREAM_SLICE == 0:
                await yield_to_loop()
    return detail


def _stream_detail(server: Server, endpoint: StreamEndpoint, options: JszOptions) -> StreamDetail:
    """A stream's details, including appended messages that are not yet synced. The caller holds the stream's lock."""
    fields = info_fields(endpoint, leader=server.name, has_versions=False)
    return StreamDetail(
        name=endpoint.name,
        created=fields["created"],
        cluster=fields["cluster"],
        config=fields["config"] if options.config else {},
        state=fields["state"],
    )


async def _add_consumers(page: StreamDetail, endpoint: StreamEndpoint, options: JszOptions) -> None:
    """Add the stream's consumers, a slice at a time."""
    everyone = list(endpoint.stream.consumers)

    def describe(some: list[Consumer]) -> None:
        for consumer in some:
            told = consumer_info.info_fields(endpoint, consumer, has_config=options.config, has_versions=False)
            if not consumer.config.direct:
                page.consumer_detail.append(told)
            elif options.direct_consumer:
                page.direct_consumer_detail.append(told)

    for start in range(0, len(everyone), STREAM_SLICE):
        some = [one for one in everyone[start : start + STREAM_SLICE] if not one.is_deleted]
        await read_locked(endpoint, lambda: describe(some))  # noqa: B023
        await yield_to_loop()
