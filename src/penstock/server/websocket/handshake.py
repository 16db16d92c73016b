"""Handshake of a WebSocket: an HTTP request is upgraded or refused. Texts and order of the checks are nats-server's.

`Handshake.receive` takes bytes in pieces of any size. A refused client may send another request on the same connection
until its handshake times out; one that sends more than a request before it is answered is disconnected.
"""

from __future__ import annotations

import base64
import hashlib
import http
import ipaddress
from dataclasses import dataclass
from email.utils import formatdate
from urllib.parse import urlsplit

import h11

from penstock.server.auth.auth import NOTHING, Credentials
from penstock.server.options import WebsocketOptions

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
HEAD_SIZE_MAX = 64 * 1024
COMPRESSION = "permessage-deflate"
PORTS = {"http": "80", "https": "443"}

Headers = list[tuple[str, str]]  # names in lower case


@dataclass(frozen=True, slots=True)
class Upgrade:
    """An accepted request, and the properties of the frames that follow."""

    reply: bytes
    is_compressed: bool = False
    is_masked: bool = True  # frames from the client are
    is_browser: bool = False  # likely; it gets small frames
    is_compressed_whole: bool = False  # Safari does not read fragments of a compressed message
    client_ip: str = ""  # forwarded by a proxy; "": none
    cookies: Credentials = NOTHING


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused request."""

    reply: bytes
    reason: str  # for the log; "": not worth a line
    is_final: bool = False  # the connection ends


class Handshake:
    """Reads one connection up to its upgrade."""

    def __init__(self, options: WebsocketOptions, is_tls: bool) -> None:
        self.options = options
        self.is_tls = is_tls
        self._reader = new_reader()

    def receive(self, data: bytes) -> Upgrade | Refusal | None:
        """The result of the next request; None if it is incomplete. After a refusal, call with b"" for the next one."""
        try:
            if data:
                self._reader.receive_data(data)
            event = self._reader.next_event()
            if not isinstance(event, h11.Request):
                return None
            rest = self._reader.next_event()
        except h11.RemoteProtocolError as error:
            return unreadable(error.with_traceback(None))  # a frame of h11's has it, and all that was received
        pending, _ = self._reader.trailing_data
        self._reader = new_reader()
        if pending:
            self._reader.receive_data(pending)
        found = self._judge(event)
        if not isinstance(rest, h11.EndOfMessage):
            # The request has a body, which is not read.
            return Refusal(b"" if isinstance(found, Upgrade) else found.reply, "request has a body", is_final=True)
        if isinstance(found, Upgrade) and pending:
            return Refusal(b"", "client sent data before handshake is complete", is_final=True)
        return found

    def _judge(self, request: h11.Request) -> Upgrade | Refusal:
        options = self.options
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
        path = request.target.decode("latin-1").partition("?")[0]
        if path.endswith("/mqtt"):
            return refusal(404, "mqtt websocket endpoint not enabled")
        if request.method != b"GET":
            return refusal(405, "request method must be GET")
        host = first(headers, "host")
        if not host:
            return refusal(400, "'Host' missing in request")
        if not has_token(headers, "upgrade", "websocket"):
            return refusal(400, "invalid value for header 'Upgrade'")
        if not has_token(headers, "connection", "upgrade"):
            return refusal(400, "invalid value for header 'Connection'")
        key = first(headers, "sec-websocket-key")
        if not key:
            return refusal(400, "key missing")
        if not is_key(key):
            return refusal(400, "invalid websocket key")
        if not has_token(headers, "sec-websocket-version", "13"):
            return refusal(400, "invalid version")
        why = self._why_not_from(first(headers, "origin") or first(headers, "sec-websocket-origin"), host)
        if why:
            return refusal(403, f"origin not allowed: {why}")
        is_compressed = options.compression and offers_compression(headers)
        is_masked = first(headers, "nats-no-masking") != "true"
        agent = first(headers, "user-agent")
        reply = accept(key, is_compressed, is_masked, options.headers)
        if path.endswith("/leafnode"):
            return Refusal(reply, "Not configured to accept leaf node connections", is_final=True)
        return Upgrade(
            reply,
            is_compressed,
            is_masked,
            agent.startswith("Mozilla/"),
            "Version/" in agent and "Safari/" in agent,
            forwarded_for(headers),
            self._credentials(headers),
        )

    def _why_not_from(self, origin: str, host: str) -> str:
        """Why a page of this origin may not connect; "" if it may. Only browsers send an origin."""
        options = self.options
        if not origin or not (options.same_origin or options.allowed_origins):
            return ""
        try:
            scheme, name, port = parse_origin(origin)
            if options.same_origin:
                own = "https" if self.is_tls else "http"
                if (scheme, name, port) != (own, *host_and_port(own, host)):
                    return "not same origin"
        except ValueError as error:
            return str(error)
        if options.allowed_origins and (scheme, name, port) not in map(parse_origin, options.allowed_origins):
            return "not in the allowed list"
        return ""

    def _credentials(self, headers: Headers) -> Credentials:
        """The credentials in the configured cookies; the last cookie of a name counts."""
        options = self.options
        found: dict[str, str] = {}
        for name, value in headers:
            if name == "cookie":
                for part in value.split(";"):
                    cookie, separator, text = part.strip(" \t").partition("=")
                    if cookie and separator:
                        found[cookie] = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
        return Credentials(
            found.get(options.user_cookie, ""), found.get(options.pass_cookie, ""), found.get(options.token_cookie, "")
        )


def new_reader() -> h11.Connection:
    return h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_SIZE_MAX)


def refusal(status: int, reason: str) -> Refusal:
    phrase = http.HTTPStatus(status).phrase
    body = f"{phrase}\n"
    head = (
        f"HTTP/1.1 {status} {phrase}\r\nContent-Type: text/plain; charset=utf-8\r\nSec-Websocket-Version: 13\r\n"
        f"X-Content-Type-Options: nosniff\r\nDate: {formatdate(usegmt=True)}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return Refusal((head + body).encode(), reason)


def unreadable(error: h11.RemoteProtocolError) -> Refusal:
    """The refusal of bytes that are not an HTTP request."""
    text = "400 Bad Request"
    if error.error_status_hint == 431:
        text = "431 Request Header Fields Too Large"
    elif "Host" in str(error):
        text = "400 Bad Request: missing required Host header"
    head = f"HTTP/1.1 {text}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
    return Refusal((head + text).encode(), "", is_final=True)


def accept(key: str, is_compressed: bool, is_masked: bool, more: dict[str, str]) -> bytes:
    proof = base64.b64encode(hashlib.sha1(key.encode("latin-1") + GUID, usedforsecurity=False).digest()).decode()
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {proof}",
    ]
    if is_compressed:
        # Every message by itself: no memory is kept per connection between them.
        lines.append(f"Sec-WebSocket-Extensions: {COMPRESSION}; server_no_context_takeover; client_no_context_takeover")
    if not is_masked:
        lines.append("Nats-No-Masking: true")
    lines += [f"{name}: {value}" for name, value in more.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def first(headers: Headers, name: str) -> str:
    return next((value for given, value in headers if given == name), "")


def tokens(headers: Headers, name: str, separator: str = ",") -> list[str]:
    return [part.strip(" \t") for given, value in headers if given == name for part in value.split(separator)]


def has_token(headers: Headers, name: str, wanted: str) -> bool:
    return any(token.lower() == wanted for token in tokens(headers, name))


def offers_compression(headers: Headers) -> bool:
    offered = tokens(headers, "sec-websocket-extensions")
    return any(part.strip(" \t").lower() == COMPRESSION for offer in offered for part in offer.split(";"))


def is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == 16
    except ValueError:
        return False


def forwarded_for(headers: Headers) -> str:
    """The client's address that a proxy forwarded."""
    given = first(headers, "x-forwarded-for")
    try:
        ipaddress.ip_address(given)
    except ValueError:
        return ""
    return given


def parse_origin(text: str) -> tuple[str, str, str]:
    """Scheme, host and port of an origin; ValueError if it is not one."""
    parts = urlsplit(text)
    if not parts.scheme or not parts.netloc:
        raise ValueError(f'parse "{text}": invalid URI for request')
    return parts.scheme, *host_and_port(parts.scheme, parts.netloc.rpartition("@")[2])


def host_and_port(scheme: str, text: str) -> tuple[str, str]:
    """`example.com:80`, `[::1]:80`; without a port it is the scheme's."""
    default = PORTS["https" if scheme == "https" else "http"]
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return (host.lower(), rest[1:]) if rest.startswith(":") else (text.lower(), default)
    host, separator, port = text.partition(":")
    if ":" in port:
        raise ValueError(f"address {text}: too many colons in address")
    return host.lower(), port if separator else default
