"""Reload: compares two configurations, and decides whether the changes need a restart (as nats-server does)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from penstock.base.duration import NS_PER_SECOND, format_duration
from penstock.errors import PenstockError
from penstock.server.log.lifecycle import friendly_bytes
from penstock.server.log.log import Log
from penstock.server.options import JetStreamOptions, Options, TlsOptions

NO_FILE = "can only reload config when a file is provided using -c or --config"


class ReloadError(PenstockError):
    """A change needs a restart: nothing was changed."""


@dataclass(frozen=True, slots=True)
class Change:
    """One changed option; `name` is its path in Options, `text` the log line that reports it."""

    name: str
    old: Any
    new: Any
    text: str


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _duration(value: float) -> str:
    return format_duration(round(value * NS_PER_SECOND))


# Options that may change, and nats-server's log line for the change.
_CHANGING: dict[str, Callable[[Any], str]] = {
    "trace": lambda v: f"trace = {_plain(v)}",
    "trace_verbose": lambda v: f"trace_verbose = {_plain(v)}",
    "trace_headers": lambda v: f"trace_headers = {_plain(v)}",
    "debug": lambda v: f"debug = {_plain(v)}",
    "logtime": lambda v: f"logtime = {_plain(v)}",
    "logtime_utc": lambda v: f"logtime_utc = {_plain(v)}",
    "log_file": lambda v: f"log_file = {v}",
    "syslog": lambda v: f"syslog = {_plain(v)}",
    "remote_syslog": lambda v: f"remote_syslog = {v}",
    "username": lambda v: "authorization username",
    "password": lambda v: "authorization password",
    "authorization": lambda v: "authorization token",
    "auth_timeout": lambda v: f"authorization timeout = {v:g}",
    "users": lambda v: "authorization users",
    "default_permissions": lambda v: "authorization users",
    "accounts": lambda v: "accounts",
    "server_tags": lambda v: "tags",
    "server_metadata": lambda v: "metadata",
    "max_connections": lambda v: f"max_connections = {v}",
    "pid_file": lambda v: f"pid_file = {v}",
    "ports_file_dir": lambda v: f"ports_file_dir = {v}",
    "max_control_line": lambda v: f"max_control_line = {v}",
    "max_payload": lambda v: f"max_payload = {v}",
    "ping_interval": lambda v: f"ping_interval = {_duration(v)}",
    "ping_max": lambda v: f"ping_max = {v}",
    "write_deadline": lambda v: f"write_deadline = {_duration(v)}",
    "client_advertise": lambda v: f"client_advertise = {v}",
    "max_traced_msg_len": lambda v: f"max_traced_msg_len = {v}",
    "no_fast_producer_stall": lambda v: f"fast producers will {'not ' if v else ''}be stalled",
}
# Options that may not change, and their names in nats-server's error.
_FIXED = {
    "host": "Host",
    "port": "Port",
    "dont_listen": "DontListen",
    "server_name": "ServerName",
    "http_host": "HTTPHost",
    "http_port": "HTTPPort",
    "https_port": "HTTPSPort",
    "http_base_path": "HTTPBasePath",
    "system_account": "SystemAccount",
    "no_system_account": "NoSystemAccount",
    "max_pending": "MaxPending",
    "max_subscriptions": "MaxSubs",
    "max_sub_tokens": "MaxSubTokens",
    "max_closed_clients": "MaxClosedClients",
    "no_header_support": "NoHeaderSupport",
    "disable_sublist_cache": "NoSublistCache",
    "lame_duck_duration": "LameDuckDuration",
    "lame_duck_grace_period": "LameDuckGracePeriod",
    "log_size_limit": "LogSizeLimit",
    "log_max_num": "LogMaxFiles",
}
_FIXED_JETSTREAM = {
    "domain": "JetStreamDomain",
    "strict": "NoJetStreamStrict",
    "sync_interval": "SyncInterval",
    "sync_always": "SyncAlways",
    "durability": "Durability",
    "unique_tag": "JetStreamUniqueTag",
    "request_queue_limit": "JetStreamRequestQueueLimit",
    "max_ack_pending": "JetStreamLimits",
    "max_request_batch": "JetStreamLimits",
    "max_ha_assets": "JetStreamLimits",
    "duplicate_window": "JetStreamLimits",
    "default_max_consumers": "JetStreamLimits",
    "max_buffered_msgs": "StreamMaxBufferedMsgs",
    "max_buffered_size": "StreamMaxBufferedSize",
}
_LOG_SINK = frozenset(("log_file", "syslog", "remote_syslog"))
_LOG_FORM = frozenset(("trace", "trace_verbose", "debug", "logtime", "logtime_utc"))


def compare_options(old: Options, new: Options) -> list[Change]:
    """The changes, in the order of Options. ReloadError names the first option that may not change."""
    changes = []
    for name, tell in _CHANGING.items():
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            changes.append(Change(name, before, after, f"Reloaded: {tell(after)}"))
    for name, shown in _FIXED.items():
        before, after = getattr(old, name), getattr(new, name)
        is_any_port = name in ("port", "http_port", "https_port") and after == -1
        if before != after and not is_any_port:
            raise _refused(shown, before, after)
    _check_no_auth_user(old, new)
    _check_websocket(old, new)
    return changes + _compare_tls(old.tls, new.tls) + _compare_jetstream(old.jetstream, new.jetstream)


def _refused(shown: str, before: Any, after: Any) -> ReloadError:
    return ReloadError(f"config reload not supported for {shown}: old={_plain(before)}, new={_plain(after)}")


def _check_no_auth_user(old: Options, new: Options) -> None:
    before, after = old.no_auth_user, new.no_auth_user
    # It may go, together with the user that it named.
    is_gone = before and not after and all(user.username != before for user in new.every_user())
    if before != after and not is_gone:
        raise _refused("NoAuthUser", before, after)


def _check_websocket(old: Options, new: Options) -> None:
    before, after = replace(old.websocket, tls=None), replace(new.websocket, tls=None)
    if after.port == -1:
        after.port = before.port
    if before != after:
        raise ReloadError("config reload not supported for Websocket: only its certificates can change")


def _compare_tls(old: TlsOptions | None, new: TlsOptions | None) -> list[Change]:
    """A server with TLS always reads its certificates again, even if their paths are the same."""
    if new is None:
        return [Change("tls", old, new, "Reloaded: tls = disabled")] if old is not None else []
    changes = [Change("tls", old, new, "Reloaded: tls = enabled")]
    if old is not None and old.timeout != new.timeout:
        changes.append(Change("tls.timeout", old.timeout, new.timeout, f"Reloaded: tls timeout = {new.timeout:g}"))
    if old is not None and old.pinned_certs != new.pinned_certs:
        text = f"Reloaded: {len(new.pinned_certs)} pinned_certs"
        changes.append(Change("tls.pinned_certs", old.pinned_certs, new.pinned_certs, text))
    return changes


def _compare_jetstream(old: JetStreamOptions, new: JetStreamOptions) -> list[Change]:
    changes = []
    if old.enabled != new.enabled:
        changes.append(Change("jetstream.enabled", old.enabled, new.enabled, "Reloaded: JetStream"))
    if not old.enabled or not new.enabled:
        return changes
    if old.store_dir != new.store_dir:
        raise ReloadError("config reload not supported for jetstream storage directory")
    for name, shown in (("max_memory", "max_mem_store"), ("max_storage", "max_file_store")):
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        if after == -1:
            raise ReloadError("config reload not supported for jetstream max memory and max store")
        if before == -1:
            raise ReloadError("config reload not supported for jetstream dynamic max memory and store")
        if after < before:
            raise ReloadError("config reload not supported for decreasing jetstream max memory and store")
        text = f"Reloaded: JetStream {shown} = {friendly_bytes(after)}"
        changes.append(Change(f"jetstream.{name}", before, after, text))
    for name, shown in _FIXED_JETSTREAM.items():
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            raise _refused(shown, before, after)
    return changes


def apply_to_log(log: Log, options: Options, changes: list[Change]) -> None:
    """The part of a reload that concerns the log itself."""
    names = {change.name for change in changes}
    if names & _LOG_SINK:
        log.replace(options)
    elif names & _LOG_FORM:
        log.configure(options)
