"""load_options: a configuration file becomes Options. Names, defaults, checks and texts are nats-server's.

`load_options` reads the file, the flags override it, and `validation.complete_options` does the rest. Sections have
modules of their own: auth, accounts, tls, jetstream, websocket, unsupported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.base.duration import NS_PER_SECOND, format_duration
from penstock.server.conf.accounts import read_accounts
from penstock.server.conf.auth import Authorization, read_authorization
from penstock.server.conf.conf import ConfError, Node, digest_of, read_conf
from penstock.server.conf.jetstream import read_jetstream
from penstock.server.conf.tls import read_tls
from penstock.server.conf.unsupported import unsupported_section
from penstock.server.conf.validation import blank_options, note_ignored, note_unsupported
from penstock.server.conf.values import (
    Fault,
    Findings,
    Handler,
    duration_of,
    flag_of,
    go_type,
    int_of,
    into,
    keys,
    listen_of,
    map_of,
    map_texts_of,
    parse_duration,
    quote,
    text_of,
    texts_of,
)
from penstock.server.conf.websocket import read_websocket
from penstock.server.options import Options

INT32_MAX = 2**31 - 1
LAME_DUCK_MIN = 30.0
REFUSED = {
    "operator operators roots root root_operators root_operator": "operator",
    "resolver account_resolver accounts_resolver": "resolver",
    "resolver_tls": "resolver_tls",
    "resolver_preload": "resolver_preload",
    "resolver_pinned_accounts": "resolver_pinned_accounts",
    "trusted trusted_keys": "trusted_keys",
    "default_sentinel": "default_sentinel",
    "mappings maps": "mappings",
    "proxies": "proxies",
}


class BadConf(ConfError):
    """A file with errors: all of them, one per line, after the warnings."""

    def __init__(self, errors: list[str], warnings: list[str]) -> None:
        super().__init__("\n".join([*warnings, *errors]))
        self.errors = errors
        self.warnings = warnings


def load_options(path: str, environment: Mapping[str, str] | None = None) -> tuple[Options, list[str]]:
    """The options of the file at `path`, with its warnings. BadConf lists all errors."""
    tree = read_conf(path, environment)
    options = blank_options()
    options.config_file = path
    findings = Findings()
    if not tree:
        findings.warnings.append(f"{path}: config has no values or is empty")
    _read_top(tree, options, findings)
    if findings.errors:
        raise BadConf(findings.errors, findings.warnings)
    options.config_digest = digest_of(tree)
    for name in findings.unsupported:
        note_unsupported(options, name)
    for name in findings.idle:
        note_ignored(options, name)
    return options, findings.warnings


# -------------------------------------------------------------------------------------------------------- the top level


@dataclass(slots=True)
class _Later:
    """Values that are checked after the whole file was read: users can be in two sections, TLS in two keys."""

    authorization: Authorization | None = None
    places: dict[str, Node] = field(default_factory=dict)  # the place of each account's users in the file


def _read_top(tree: dict[str, Node], options: Options, findings: Findings) -> None:
    later = _Later()
    handlers: dict[str, Handler] = {}
    handlers.update(_addresses(options))
    handlers.update(_logging(options))
    handlers.update(_bounds(options, findings))
    handlers.update(_identity(options, findings))
    handlers.update(_sections(options, findings, later))
    for names, what in REFUSED.items():
        handlers[names] = _refused(what, findings)
    errors_before = len(findings.errors)
    findings.walk(tree, keys(handlers))
    if options.tls is not None:
        options.tls.allow_non_tls = options.allow_non_tls
    if len(findings.errors) == errors_before:
        _join_auth(options, later, findings)


def _refused(what: str, findings: Findings) -> Handler:
    return lambda node: findings.refuse(node, what)


def _addresses(options: Options) -> dict[str, Handler]:
    def listen(node: Node) -> None:
        options.host, options.port = listen_of(node)

    def http(node: Node) -> None:
        options.http_host, options.http_port = listen_of(node)

    def https(node: Node) -> None:
        options.http_host, options.https_port = listen_of(node)

    return {
        "listen": listen,
        "port": into(options, "port", int_of),
        "host net": into(options, "host", text_of),
        "client_advertise": into(options, "client_advertise", text_of),
        "http": http,
        "https": https,
        "http_port monitor_port": into(options, "http_port", int_of),
        "https_port": into(options, "https_port", int_of),
        "http_base_path": into(options, "http_base_path", text_of),
    }


def _logging(options: Options) -> dict[str, Handler]:
    def with_trace(name: str) -> Handler:
        def handler(node: Node) -> None:
            setattr(options, name, flag_of(node))
            options.trace = flag_of(node)

        return handler

    return {
        "debug": into(options, "debug", flag_of),
        "trace": into(options, "trace", flag_of),
        "trace_verbose": with_trace("trace_verbose"),
        "trace_headers": with_trace("trace_headers"),
        "logtime": into(options, "logtime", flag_of),
        "logtime_utc": into(options, "logtime_utc", flag_of),
        "logfile log_file": into(options, "log_file", text_of),
        "logfile_size_limit log_size_limit": into(options, "log_size_limit", int_of),
        "logfile_max_num log_max_num": into(options, "log_max_num", int_of),
        "syslog": into(options, "syslog", flag_of),
        "remote_syslog": into(options, "remote_syslog", text_of),
        "pidfile pid_file": into(options, "pid_file", text_of),
        "ports_file_dir": into(options, "ports_file_dir", text_of),
        "max_traced_msg_len": into(options, "max_traced_msg_len", int_of),
    }


def _bounds(options: Options, findings: Findings) -> dict[str, Handler]:
    def int32(name: str, default: int) -> Handler:
        def handler(node: Node) -> None:
            value = int_of(node)
            if value > INT32_MAX:
                raise Fault(node, f"{name} value is too big")
            setattr(options, name, value or default)

        return handler

    def connections(node: Node) -> None:
        options.max_connections = int_of(node) or -1

    def sub_tokens(node: Node) -> None:
        count = int_of(node)
        if count > 255:
            raise Fault(node, "max_sub_tokens value is too big")
        if count <= 0:
            raise Fault(node, "max_sub_tokens value can not be negative")
        options.max_sub_tokens = count

    def time(name: str, default: float) -> Handler:
        def handler(node: Node) -> None:
            setattr(options, name, duration_of(node, name, findings) or default)

        return handler

    def go_duration(node: Node, name: str) -> float:
        try:
            return parse_duration(text_of(node))
        except ValueError as error:
            raise Fault(node, f"error parsing {name}: {error}") from None

    def lame_duck(node: Node) -> None:
        seconds = go_duration(node, "lame_duck_duration")
        if seconds < LAME_DUCK_MIN:
            raise Fault(node, f"invalid lame_duck_duration of {_go(seconds)}, minimum is 30 seconds")
        options.lame_duck_duration = seconds

    def grace(node: Node) -> None:
        seconds = go_duration(node, "lame_duck_grace_period")
        if seconds < 0:
            raise Fault(node, "invalid lame_duck_grace_period, needs to be positive")
        options.lame_duck_grace_period = seconds or options.lame_duck_grace_period

    def write_timeout(node: Node) -> None:
        if text_of(node) not in ("default", "close", "retry"):
            raise Fault(node, "write_timeout must be 'default', 'close' or 'retry'")
        if node.value == "retry":
            findings.idle.append("write_timeout: retry")

    return {
        "max_control_line": int32("max_control_line", 4096),
        "max_payload": int32("max_payload", 1024 * 1024),
        "max_pending": into(options, "max_pending", lambda node: int_of(node) or 64 * 1024 * 1024),
        "max_connections max_conn": connections,
        "max_subscriptions max_subs": into(options, "max_subscriptions", int_of),
        "max_sub_tokens max_subscription_tokens": sub_tokens,
        "max_closed_clients": into(options, "max_closed_clients", lambda node: int_of(node) or 10_000),
        "ping_interval": time("ping_interval", 120.0),
        "ping_max": into(options, "ping_max", lambda node: int_of(node) or 2),
        "write_deadline": time("write_deadline", 10.0),
        "write_timeout": write_timeout,
        "lame_duck_duration": lame_duck,
        "lame_duck_grace_period": grace,
        "no_header_support": into(options, "no_header_support", flag_of),
        "disable_sublist_cache no_sublist_cache": into(options, "disable_sublist_cache", flag_of),
        "no_fast_producer_stall": into(options, "no_fast_producer_stall", flag_of),
    }


def _identity(options: Options, findings: Findings) -> dict[str, Handler]:
    def server_name(node: Node) -> None:
        if " " in text_of(node):
            raise Fault(node, "server name cannot contain spaces")
        options.server_name = text_of(node)

    def system_account(node: Node) -> None:
        if not isinstance(node.value, str):
            raise Fault(node, "system account name must be a string")
        options.system_account = node.value

    def idle(name: str) -> Handler:
        def handler(node: Node) -> None:
            findings.idle.append(name)

        return handler

    def number_without_effect(node: Node) -> None:
        int_of(node)

    def profiling(node: Node) -> None:
        if int_of(node):
            findings.idle.append("prof_port")

    def feature_flags(node: Node) -> None:
        if not isinstance(node.value, dict):
            raise Fault(node, f"error parsing feature flags: unsupported type {go_type(node.value)}")
        for key, inner in node.value.items():
            if not isinstance(inner.value, bool):
                text = f"error parsing feature flag {quote(key)}: expected bool, got {go_type(inner.value)}"
                raise Fault(inner, text)
        findings.idle.append("feature_flags")

    def js_domain(node: Node) -> None:
        if not isinstance(node.value, dict):
            raise Fault(node, f"error default_js_domain config: unsupported type {go_type(node.value)}")
        for inner in node.value.values():
            text_of(inner)
        findings.idle.append("default_js_domain")

    def ocsp(node: Node) -> None:
        mode = map_of(node).get("mode") if isinstance(node.value, dict) else None
        if node.value is not False and not (mode is not None and str(mode.value).lower() == "never"):
            findings.refuse(node, "ocsp")

    def proxy_protocol(node: Node) -> None:
        if flag_of(node):
            findings.refuse(node, "proxy_protocol")

    return {
        "server_name": server_name,
        "server_tags": into(options, "server_tags", lambda node: texts_of(node, "tags")),
        "server_metadata": into(options, "server_metadata", lambda node: map_texts_of(node, "metadata")),
        "system_account system": system_account,
        "no_system_account no_system no_sys_acc": into(options, "no_system_account", flag_of),
        "no_auth_user": into(options, "no_auth_user", text_of),
        "connect_error_reports reconnect_error_reports prof_block_rate": number_without_effect,
        "prof_port": profiling,
        "feature_flags": feature_flags,
        "default_js_domain": js_domain,
        "ocsp": ocsp,
        "ocsp_cache": idle("ocsp_cache"),
        "proxy_protocol": proxy_protocol,
    }


def _sections(options: Options, findings: Findings, later: _Later) -> dict[str, Handler]:
    def authorization(node: Node) -> None:
        later.authorization = read_authorization(node, findings)

    def accounts(node: Node) -> None:
        options.accounts, later.places = read_accounts(node, findings)

    def store_dir(node: Node) -> None:
        if options.jetstream.store_dir:
            raise Fault(node, "Duplicate 'store_dir' configuration")
        options.jetstream.store_dir = text_of(node)

    return {
        "authorization": authorization,
        "accounts": accounts,
        "store_dir storedir": store_dir,
        "jetstream": lambda node: read_jetstream(node, options.jetstream, findings),
        "tls": into(options, "tls", lambda node: read_tls(node, findings)),
        "allow_non_tls": into(options, "allow_non_tls", flag_of),
        "websocket ws": lambda node: read_websocket(node, options.websocket, findings),
        "cluster": unsupported_section("cluster", findings),
        "gateway": unsupported_section("gateway", findings),
        "leaf leafnodes": unsupported_section("leafnodes", findings),
        "mqtt": unsupported_section("mqtt", findings),
    }


def _join_auth(options: Options, later: _Later, findings: Findings) -> None:
    """Check the users of `authorization` and of all accounts together: no name twice, no single login in addition."""
    found = later.authorization
    seen: set[str] = set()

    def unique(names: list[tuple[str, str]], place: Node) -> None:
        for kind, name in names:
            if name in seen:
                findings.errors.append(f"{place.place}: Duplicate {kind} {quote(name)} detected")
            seen.add(name)

    for name, account in options.accounts.items():
        place = later.places.get(name)
        if place is not None:
            unique([("nkey", u.nkey) if u.nkey else ("user", u.username) for u in account.users], place)
    if found is None:
        return
    options.username, options.password, options.authorization = found.username, found.password, found.token
    options.auth_timeout = found.timeout
    options.default_permissions = found.default_permissions
    options.users = found.users or []
    has_others = found.users is not None or bool(seen)
    if (found.username or found.password) and found.token:
        findings.errors.append(f"{found.node.place}: Cannot have a user/pass and token")
    elif has_others and found.username:
        findings.errors.append(f"{found.node.place}: Can not have a single user/pass and a users array")
    elif has_others and found.token:
        findings.errors.append(f"{found.node.place}: Can not have a token and a users array")
    else:
        unique([("nkey", u.nkey) if u.nkey else ("user", u.username) for u in options.users], found.node)


def _go(seconds: float) -> str:
    return format_duration(round(seconds * NS_PER_SECOND))
