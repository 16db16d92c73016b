"""The `websocket` block of a configuration file."""

from __future__ import annotations

from penstock.server.conf.tls import read_tls
from penstock.server.conf.tree import Node
from penstock.server.conf.values import (
    Fault,
    Findings,
    duration_of,
    flag_of,
    go_type,
    int_of,
    into,
    keys,
    listen_of,
    map_of,
    parse_duration,
    text_of,
    texts_of,
)
from penstock.server.options import WebsocketOptions


def read_websocket(node: Node, options: WebsocketOptions, findings: Findings) -> None:
    if not isinstance(node.value, dict):
        raise Fault(node, f"Expected websocket to be a map, got {go_type(node.value)}")

    def listen(inner: Node) -> None:
        options.host, options.port = listen_of(inner)

    def headers(inner: Node) -> None:
        if not isinstance(inner.value, dict):
            raise Fault(inner, f"error parsing headers: unsupported type {go_type(inner.value)}")
        for key, value in inner.value.items():
            if not isinstance(value.value, str):
                raise Fault(value, f"error parsing header key {key}: unsupported type {go_type(value.value)}")
            options.headers[key] = value.value

    def ping_interval(inner: Node) -> None:
        duration_of(inner, "ping_interval", findings)
        findings.idle.append("websocket.ping_interval")

    findings.walk(
        node.value,
        keys(
            {
                "listen": listen,
                "port": into(options, "port", int_of),
                "host net": into(options, "host", text_of),
                "advertise": into(options, "advertise", text_of),
                "no_tls": into(options, "no_tls", flag_of),
                "tls": into(options, "tls", lambda inner: read_tls(inner, findings)),
                "same_origin": into(options, "same_origin", flag_of),
                "allowed_origins allowed_origin allow_origins allow_origin origins origin": into(
                    options, "allowed_origins", lambda inner: texts_of(inner, "allowed origins")
                ),
                "handshake_timeout": into(options, "handshake_timeout", _timeout),
                "compress compression": into(options, "compression", flag_of),
                "authorization authentication": lambda inner: _read_authorization(inner, options, findings),
                "jwt_cookie": into(options, "jwt_cookie", text_of),
                "user_cookie": into(options, "user_cookie", text_of),
                "pass_cookie": into(options, "pass_cookie", text_of),
                "token_cookie": into(options, "token_cookie", text_of),
                "no_auth_user": into(options, "no_auth_user", text_of),
                "headers": headers,
                "ping_interval": ping_interval,
            }
        ),
    )


def _timeout(node: Node) -> float:
    if isinstance(node.value, str):
        try:
            return parse_duration(node.value) or 2.0
        except ValueError as error:
            raise Fault(node, str(error)) from None
    if isinstance(node.value, bool) or not isinstance(node.value, int):
        raise Fault(node, f"error parsing handshake timeout: unsupported type {go_type(node.value)}")
    return float(node.value) or 2.0


def _read_authorization(node: Node, options: WebsocketOptions, findings: Findings) -> None:
    def timeout(inner: Node) -> None:
        is_number = isinstance(inner.value, int | float) and not isinstance(inner.value, bool)
        options.auth_timeout = float(inner.value) if is_number else 1.0  # type: ignore[arg-type]

    findings.walk(
        map_of(node),
        keys(
            {
                "user username": into(options, "username", text_of),
                "pass password": into(options, "password", text_of),
                "token": into(options, "token", text_of),
                "timeout": timeout,
            }
        ),
    )
