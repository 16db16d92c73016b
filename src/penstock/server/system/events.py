"""The messages of the system account: the sending server, the event, and the server's statistics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.base.clock import SYSTEM
from penstock.server.monitor.accstatz import AccountStat, TrafficByKind, account_stat
from penstock.server.monitor.closed import account_name, user_name
from penstock.server.monitor.connz import rtt_shown
from penstock.server.monitor.js_facts import JetStreamVarz, js_varz
from penstock.server.monitor.page import FEATURE_FLAGS, Page
from penstock.server.monitor.process import cores, resident_bytes, usable_cores
from penstock.server.monitor.varz import ByKind, subscription_count
from penstock.wire import go_json
from penstock.wire.info import VERSION
from penstock.wire.nuid import make_nuid

if TYPE_CHECKING:
    from penstock.broker.account import Account
    from penstock.server.connection import Connection
    from penstock.server.server import Server

_ADVISORY = "io.nats.server.advisory.v1."
_HAS_JETSTREAM = 7  # nats-server's flags: JetStream, binary snapshots, Raft traffic in the account


class ServerInfo(Page, kw_only=True):
    """The server, as the first part of every message describes it."""

    name: str
    host: str
    id: str
    domain: str = ""
    ver: str
    tags: list[str] = []
    metadata: dict[str, str] = {}
    feature_flags: dict[str, bool] = {}
    jetstream: bool
    flags: int
    seq: int
    time: str


class ClientInfo(Page, kw_only=True):
    start: str = ""
    host: str = ""
    id: int = 0
    acc: str = ""
    user: str = ""
    name: str = ""
    lang: str = ""
    ver: str = ""
    rtt: int = 0
    stop: str = ""
    name_tag: str = ""
    kind: str = ""
    client_type: str = ""


class MsgBytes(Page, kw_only=True):
    msgs: int
    bytes: int


class ConnectEvent(Page, kw_only=True):
    type: str
    id: str
    timestamp: str
    server: ServerInfo
    client: ClientInfo


class DisconnectEvent(Page, kw_only=True):
    type: str
    id: str
    timestamp: str
    server: ServerInfo
    client: ClientInfo
    sent: MsgBytes
    received: MsgBytes
    reason: str


class AccountConnections(Page, kw_only=True):
    type: str
    id: str
    timestamp: str
    server: ServerInfo
    acc: str
    name: str
    conns: int
    leafnodes: int
    total_conns: int
    num_subscriptions: int
    sent: TrafficByKind
    received: TrafficByKind
    slow_consumers: int


class ServerStats(Page, kw_only=True):
    start: str
    mem: int
    cores: int
    cpu: int | float
    connections: int
    total_connections: int
    active_accounts: int
    subscriptions: int
    sent: MsgBytes
    sent_to_clients: MsgBytes
    received: MsgBytes
    received_from_clients: MsgBytes
    slow_consumers: int
    slow_consumer_stats: ByKind | None = None
    stale_connections: int = 0
    stale_connection_stats: ByKind | None = None
    stalled_clients: int = 0
    active_servers: int = 0
    jetstream: JetStreamVarz | None = None
    gomaxprocs: int = 0


class StatsMessage(Page, kw_only=True):
    server: ServerInfo
    statsz: ServerStats


def server_info(server: Server, seq: int) -> ServerInfo:
    options = server.options
    has_jetstream = server.jetstream is not None or options.jetstream.enabled  # also while it stops
    return ServerInfo(
        name=server.name,
        host=server.info.host,
        id=server.id,
        domain=options.jetstream.domain if has_jetstream else "",
        ver=VERSION,
        tags=list(options.server_tags),
        metadata=dict(sorted(options.server_metadata.items())),
        feature_flags=FEATURE_FLAGS,
        jetstream=has_jetstream,
        flags=_HAS_JETSTREAM if has_jetstream else 0,
        seq=seq,
        time=go_json.time_text(time.time_ns()),
    )


def connect_event(connection: Connection, server: ServerInfo) -> ConnectEvent:
    return ConnectEvent(
        type=_ADVISORY + "client_connect",
        id=make_nuid(),
        timestamp=go_json.time_text(time.time_ns()),
        server=server,
        client=_client_info(connection, 0),
    )


def disconnect_event(connection: Connection, server: ServerInfo, reason: str) -> DisconnectEvent:
    """The event of a disconnect: what the client published is `sent`, what it was delivered is `received`."""
    client = connection.client
    now_ns = time.time_ns()
    return DisconnectEvent(
        type=_ADVISORY + "client_disconnect",
        id=make_nuid(),
        timestamp=go_json.time_text(now_ns),
        server=server,
        client=_client_info(connection, now_ns),
        sent=MsgBytes(msgs=client.in_msgs, bytes=client.in_bytes),
        received=MsgBytes(msgs=client.out_msgs, bytes=client.out_bytes),
        reason=reason,
    )


def account_connections(account: Account, server: ServerInfo, leaving: int = 0) -> AccountConnections:
    """The number of the account's connections; `leaving` of those that it still lists are being closed."""
    stat: AccountStat = account_stat(account)
    stat.conns -= leaving
    stat.total_conns -= leaving
    return AccountConnections(
        type=_ADVISORY + "account_connections",
        id=make_nuid(),
        timestamp=go_json.time_text(time.time_ns()),
        server=server,
        **{name: getattr(stat, name) for name in stat.__struct_fields__},
    )


def stats_message(server: Server, info: ServerInfo) -> StatsMessage:
    router = server.router
    sent, received = (
        MsgBytes(msgs=router.out_msgs, bytes=router.out_bytes),
        MsgBytes(msgs=router.in_msgs, bytes=router.in_bytes),
    )
    stats = ServerStats(
        start=go_json.time_text(server.start_ns),
        mem=resident_bytes(),
        cores=cores(),
        cpu=go_json.go_float(server.monitor.usage.update()),
        connections=len(server.connections),
        total_connections=server.total_connections,
        active_accounts=sum(1 for account in server.accounts.values() if account.clients),
        subscriptions=subscription_count(server),
        sent=sent,
        sent_to_clients=sent,
        received=received,
        received_from_clients=received,
        slow_consumers=server.slow_consumers,
        slow_consumer_stats=_by_kind(server.slow_consumers),
        stale_connections=server.stale_connections,
        stale_connection_stats=_by_kind(server.stale_connections),
        stalled_clients=server.stalls,
        active_servers=1,
        jetstream=js_varz(server, with_store_dir=False) if server.jetstream is not None else None,
        gomaxprocs=usable_cores(),
    )
    return StatsMessage(server=info, statsz=stats)


def _by_kind(clients: int) -> ByKind | None:
    return ByKind(clients=clients, routes=0, gateways=0, leafs=0) if clients else None


def _client_info(connection: Connection, stop_ns: int) -> ClientInfo:
    account = account_name(connection)
    return ClientInfo(
        start=go_json.time_text(connection.start_ns + SYSTEM.offset_ns),
        host=connection.ip,
        id=connection.client.cid,
        acc=account,
        user=user_name(connection),
        name=connection.name,
        lang=connection.lang,
        ver=connection.version,
        rtt=rtt_shown(connection.rtt_ns) if stop_ns else 0,
        stop=go_json.time_text(stop_ns) if stop_ns else "",
        name_tag=account,
        kind="Client",
        client_type=connection.kind,
    )
