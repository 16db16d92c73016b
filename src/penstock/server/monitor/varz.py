"""Varz: the server's identity, its configuration and its counters."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.base.clock import SYSTEM
from penstock.server.monitor.js_facts import JetStreamVarz, js_varz
from penstock.server.monitor.page import FEATURE_FLAGS, Page, ns, uptime_text
from penstock.server.monitor.process import cores, resident_bytes, usable_cores
from penstock.wire import go_json
from penstock.wire.info import PROTO, RUNTIME, VERSION

if TYPE_CHECKING:
    from penstock.server.monitor.monitor import Monitor
    from penstock.server.options import WebsocketOptions
    from penstock.server.server import Server


class Nothing(Page, kw_only=True):
    """The section of a feature that this server does not have."""


class WebsocketVarz(Page, kw_only=True):
    host: str = ""
    port: int = 0
    advertise: str = ""
    no_auth_user: str = ""
    jwt_cookie: str = ""
    handshake_timeout: int = 0
    auth_timeout: int | float = 0
    no_tls: bool = False
    tls_map: bool = False
    tls_pinned_certs: list[str] = []
    same_origin: bool = False
    allowed_origins: list[str] = []
    compression: bool = False


class ByKind(Page, kw_only=True):
    """A count for each kind of connection; ours are all clients."""

    clients: int
    routes: int
    gateways: int
    leafs: int


class DiskWaits(Page, kw_only=True):
    waiters: int
    waits: int
    wait_time: int
    max_wait_time: int


class Varz(Page, kw_only=True):
    server_id: str
    server_name: str
    version: str
    proto: int
    go: str
    host: str
    port: int
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    connect_urls: list[str] = []
    ws_connect_urls: list[str] = []
    max_connections: int
    max_subscriptions: int = 0
    ping_interval: int
    ping_max: int
    http_host: str
    http_port: int
    http_base_path: str
    https_port: int
    auth_timeout: int | float
    max_control_line: int
    max_payload: int
    max_pending: int
    cluster: Nothing
    gateway: Nothing
    leaf: Nothing
    mqtt: Nothing
    websocket: WebsocketVarz
    jetstream: JetStreamVarz
    tls_timeout: int | float
    write_deadline: int
    start: str
    now: str
    uptime: str
    mem: int
    cores: int
    gomaxprocs: int
    cpu: int | float
    connections: int
    total_connections: int
    routes: int
    remotes: int
    leafnodes: int
    in_msgs: int
    in_bytes: int
    in_client_msgs: int
    in_client_bytes: int
    out_msgs: int
    out_bytes: int
    out_client_msgs: int
    out_client_bytes: int
    slow_consumers: int
    stale_connections: int
    stalled_clients: int
    subscriptions: int
    http_req_stats: dict[str, int]
    config_load_time: str
    config_digest: str
    tags: list[str] = []
    metadata: dict[str, str] = {}
    feature_flags: dict[str, bool] = {}
    system_account: str = ""
    slow_consumer_stats: ByKind
    stale_connection_stats: ByKind
    disk_io_wait_stats: DiskWaits
    tls_cert_not_after: str = ""


def make_varz(server: Server, monitor: Monitor) -> Varz:
    options, router = server.options, server.router
    now_ns = time.time_ns()
    return Varz(
        server_id=server.id,
        server_name=server.name,
        version=VERSION,
        proto=PROTO,
        go=RUNTIME,
        host=server.info.host,
        port=server.info.port,
        auth_required=server.authenticator.required,  # even if INFO says otherwise because of `no_auth_user`
        tls_required=server.tls_required,
        tls_verify=server.tls_verify,
        connect_urls=list(server.connect_urls),
        ws_connect_urls=list(server.ws_connect_urls),
        max_connections=options.max_connections,
        max_subscriptions=options.max_subscriptions,
        ping_interval=ns(options.ping_interval),
        ping_max=options.ping_max,
        http_host=options.http_host,
        http_port=options.http_port,
        http_base_path=options.http_base_path,
        https_port=options.https_port,
        auth_timeout=go_json.go_float(float(options.auth_timeout)),
        max_control_line=options.max_control_line,
        max_payload=options.max_payload,
        max_pending=options.max_pending,
        cluster=Nothing(),
        gateway=Nothing(),
        leaf=Nothing(),
        mqtt=Nothing(),
        websocket=_websocket(options.websocket, server.ws_port),
        jetstream=js_varz(server),
        tls_timeout=go_json.go_float(float(options.tls.timeout if options.tls else 2)),
        write_deadline=ns(options.write_deadline),
        start=go_json.time_text(server.start_ns),
        now=go_json.time_text(now_ns),
        uptime=uptime_text(server.began_ns, SYSTEM.now_ns()),
        mem=resident_bytes(),
        cores=cores(),
        gomaxprocs=usable_cores(),
        cpu=go_json.go_float(monitor.usage.update()),
        connections=len(server.connections),
        total_connections=server.total_connections,
        routes=0,
        remotes=0,
        leafnodes=0,
        in_msgs=router.in_msgs,
        in_bytes=router.in_bytes,
        in_client_msgs=router.in_msgs,
        in_client_bytes=router.in_bytes,
        out_msgs=router.out_msgs,
        out_bytes=router.out_bytes,
        out_client_msgs=router.out_msgs,
        out_client_bytes=router.out_bytes,
        slow_consumers=server.slow_consumers,
        stale_connections=server.stale_connections,
        stalled_clients=server.stalls,
        subscriptions=subscription_count(server),
        http_req_stats=dict(sorted(monitor.requests.items())),
        config_load_time=go_json.time_text(server.config_load_ns),
        config_digest=options.config_digest,
        tags=list(options.server_tags),
        metadata=dict(sorted(options.server_metadata.items())),
        feature_flags=FEATURE_FLAGS,
        system_account=server.system.name if server.system is not None else "",
        slow_consumer_stats=ByKind(clients=server.slow_consumers, routes=0, gateways=0, leafs=0),
        stale_connection_stats=ByKind(clients=server.stale_connections, routes=0, gateways=0, leafs=0),
        disk_io_wait_stats=DiskWaits(waiters=0, waits=0, wait_time=0, max_wait_time=0),
        tls_cert_not_after=server.tls_not_after,
    )


def subscription_count(server: Server) -> int:
    return sum(account.sublist.count for account in server.accounts.values())


def _websocket(options: WebsocketOptions, port: int) -> WebsocketVarz:
    if not options.port:
        return WebsocketVarz()
    tls = options.tls
    return WebsocketVarz(
        host=options.host,
        port=port,
        advertise=options.advertise,
        no_auth_user=options.no_auth_user,
        jwt_cookie=options.jwt_cookie,
        handshake_timeout=ns(options.handshake_timeout),
        auth_timeout=go_json.go_float(float(options.auth_timeout)),
        no_tls=options.no_tls,
        tls_map=tls.verify_and_map if tls else False,
        tls_pinned_certs=sorted(tls.pinned_certs) if tls else [],
        same_origin=options.same_origin,
        allowed_origins=list(options.allowed_origins),
        compression=options.compression,
    )
