"""JetStream's part of the monitoring pages: its configuration, its usage, its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.server.monitor.page import Page, ns
from penstock.wire.info import API_LEVEL

if TYPE_CHECKING:
    from penstock.server.server import Server

DEFAULT_MAX_CONSUMERS = 1000  # per stream, if neither the stream nor the configuration sets a limit


class JetStreamConfig(Page, kw_only=True):
    max_memory: int
    max_storage: int
    store_dir: str = ""
    sync_interval: int = 0
    sync_always: bool = False
    domain: str = ""
    compress_ok: bool = False
    unique_tag: str = ""
    strict: bool = False


class ApiStats(Page, kw_only=True):
    level: int
    total: int
    errors: int
    inflight: int = 0


class JetStreamStats(Page, kw_only=True):
    memory: int
    storage: int
    reserved_memory: int
    reserved_storage: int
    accounts: int
    ha_assets: int
    api: ApiStats


class JetStreamLimitsPage(Page, kw_only=True):
    max_request_batch: int = 0
    max_ack_pending: int = 0
    max_ha_assets: int = 0
    max_duplicate_window: int = 0
    default_max_consumers: int = 0


class JetStreamVarz(Page, kw_only=True):
    config: JetStreamConfig | None = None
    stats: JetStreamStats | None = None
    limits: JetStreamLimitsPage | None = None


NO_CONFIG = JetStreamConfig(max_memory=0, max_storage=0)
NO_STATS = JetStreamStats(
    memory=0,
    storage=0,
    reserved_memory=0,
    reserved_storage=0,
    accounts=0,
    ha_assets=0,
    api=ApiStats(level=0, total=0, errors=0),
)


def js_config(server: Server, with_store_dir: bool = True) -> JetStreamConfig:
    """JetStream's configuration. Heartbeats leave out the store's directory."""
    jetstream = server.jetstream
    assert jetstream is not None, "asked for only where JetStream is on"
    options = server.options.jetstream
    return JetStreamConfig(
        max_memory=jetstream.max_memory,
        max_storage=jetstream.max_storage,
        store_dir=jetstream.store_dir if with_store_dir else "",
        sync_interval=ns(options.sync_interval),
        sync_always=options.sync_always,
        domain=options.domain,
        compress_ok=options.max_memory > 0
        and options.max_storage > 0,  # as nats-server: if both limits were configured
        unique_tag=options.unique_tag,
        strict=options.strict,
    )


def js_stats(server: Server) -> JetStreamStats:
    jetstream = server.jetstream
    assert jetstream is not None, "asked for only where JetStream is on"
    return JetStreamStats(
        memory=jetstream.memory_used,
        storage=jetstream.storage_used,
        reserved_memory=jetstream.memory_reserved,
        reserved_storage=jetstream.storage_reserved,
        accounts=len(jetstream.accounts),
        ha_assets=0,
        api=ApiStats(
            level=API_LEVEL, total=jetstream.api_total, errors=jetstream.api_errors, inflight=jetstream.api_inflight
        ),
    )


def js_limits(server: Server) -> JetStreamLimitsPage:
    options = server.options.jetstream
    return JetStreamLimitsPage(
        max_request_batch=max(0, options.max_request_batch),
        max_ack_pending=max(0, options.max_ack_pending),
        max_ha_assets=max(0, options.max_ha_assets),
        max_duplicate_window=ns(options.duplicate_window),
        default_max_consumers=options.default_max_consumers or DEFAULT_MAX_CONSUMERS,
    )


def js_varz(server: Server, with_store_dir: bool = True) -> JetStreamVarz:
    if server.jetstream is None:
        return JetStreamVarz()
    return JetStreamVarz(config=js_config(server, with_store_dir), stats=js_stats(server), limits=js_limits(server))
