"""Trace: every command of the protocol as a line of the log, in both directions (`-V`).

Connections that are accepted while tracing is on have these classes. Others are not slowed down: there is no check per
command.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from penstock.server.connection import Connection, shown_snippet
from penstock.server.websocket.connection import WebsocketConnection

LINE_SIZE_MAX = 64 * 1024  # a longer line is not a command
SECRETS = re.compile(rb'("(?:pass|auth_token|jwt|sig|proxy_sig)"\s*:\s*)"(?:[^"\\]|\\.)*"', re.IGNORECASE)
SECRET_FIELDS = frozenset(("pass", "auth_token", "jwt", "sig", "proxy_sig"))
REDACTED = "[REDACTED]"
KNOWN = frozenset((b"PUB", b"HPUB", b"SUB", b"UNSUB", b"PING", b"PONG", b"MSG", b"HMSG"))
WITH_PAYLOAD = frozenset((b"PUB", b"HPUB", b"MSG", b"HMSG"))


class Tracer:
    """Splits the bytes of one direction of a connection into commands; they may arrive in any pieces."""

    def __init__(self, arrow: str, tell: Callable[[str], None], payload_max: int) -> None:
        self.arrow = arrow
        self.tell = tell
        self.payload_max = payload_max
        self._rest = b""  # a line that has no end yet
        self._wanted = 0  # missing bytes of a payload, including its line end
        self._payload = bytearray()
        self._size = 0  # of the payload
        self._is_lost = False

    def take(self, data: bytes) -> None:
        at = 0
        while at < len(data) and not self._is_lost:
            if self._wanted:
                at = self._take_payload(data, at)
                continue
            stop = data.find(b"\n", at)
            if stop < 0:
                self._rest += data[at:]
                self._is_lost = len(self._rest) > LINE_SIZE_MAX
                return
            self._take_line((self._rest + data[at:stop]).rstrip(b"\r"))
            self._rest = b""
            at = stop + 1

    def _take_line(self, line: bytes) -> None:
        words = line.split()
        if not words:
            return
        verb = words[0].upper()
        if verb == b"INFO":
            return  # nats-server does not show it either
        if line[:7].upper() == b"CONNECT":  # a blank need not follow
            line = line[:7] + without_secrets(line[7:])
        elif verb == b"-ERR":
            line = b"-ERR " + line[4:].strip().strip(b"'")
        elif verb == b"+OK":
            line = b"OK"
        elif verb not in KNOWN:  # the rest may be a password: a misspelt CONNECT, a browser's request
            first = shown_snippet(words[0])
            line = first if line == first else first.removesuffix(b"...") + b"..."
        self.tell(f"{self.arrow} [{line.decode('utf-8', 'replace')}]")
        if verb in WITH_PAYLOAD and words[-1].isdigit() and len(words[-1]) < 10:
            self._size = int(words[-1])
            self._wanted = self._size + 2
            self._payload.clear()

    def _take_payload(self, data: bytes, at: int) -> int:
        stop = min(at + self._wanted, len(data))
        room = (min(self.payload_max, self._size) if self.payload_max > 0 else self._size) - len(self._payload)
        self._payload += data[at : min(stop, at + room)] if room > 0 else b""
        self._wanted -= stop - at
        if not self._wanted and self._size:
            shown = _quote(bytes(self._payload))
            more = "..." if len(self._payload) < self._size else ""
            self.tell(f'{self.arrow} MSG_PAYLOAD: ["{shown}{more}"]')
        return stop


def without_secrets(connect: bytes) -> bytes:
    """The text of CONNECT without passwords and tokens. Names match in any case, and may be written with escapes; a
    text that parses differently from how it looks is not shown at all."""
    shown = SECRETS.sub(rb'\1"[REDACTED]"', connect)
    try:
        fields = json.loads(shown, object_pairs_hook=list)
    except (ValueError, RecursionError):
        fields = None
    is_plain = isinstance(fields, list) and all(
        isinstance(field, tuple) and (field[0].lower() not in SECRET_FIELDS or field[1] == REDACTED) for field in fields
    )
    return shown if is_plain else b" " + REDACTED.encode()


def _quote(payload: bytes) -> str:
    """Bytes as Go quotes them, without the quotes."""
    text = payload.decode("utf-8", "surrogateescape")
    if text.isprintable() and '"' not in text and "\\" not in text:
        return text
    escaped = json.dumps(text, ensure_ascii=False)[1:-1]
    escaped = re.sub(r"\\u00([0-9a-f]{2})", r"\\x\1", escaped)
    return re.sub("[\udc80-\udcff]", lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", escaped)


def _tell(connection: Connection) -> Callable[[str], None]:
    def tell(text: str) -> None:
        server = connection.server
        if connection.account is not server.system or connection.account is None or server.log.is_trace_verbose:
            server.log.trace(f"{connection.label} - {text}")

    return tell


class TracedConnection(Connection):
    """A connection whose commands are logged."""

    is_straight = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        size = self.server.options.max_traced_msg_len
        self._in, self._out = Tracer("<<-", _tell(self), size), Tracer("->>", _tell(self), size)
        self._view = memoryview(b"")

    def get_buffer(self, hint: int) -> memoryview:
        self._view = super().get_buffer(hint)
        return self._view

    def buffer_updated(self, size: int) -> None:
        self._in.take(bytes(self._view[:size]))
        super().buffer_updated(size)

    def feed(self, data: bytes) -> None:
        self._in.take(data)
        super().feed(data)

    def send(self, data: bytes) -> None:
        self._out.take(data)
        super().send(data)


class TracedWebsocketConnection(WebsocketConnection):
    """The same behind a WebSocket."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        size = self.server.options.max_traced_msg_len
        self._in, self._out = Tracer("<<-", _tell(self), size), Tracer("->>", _tell(self), size)

    def feed(self, data: bytes) -> None:
        self._in.take(data)
        super().feed(data)

    def send(self, data: bytes) -> None:
        self._out.take(data)
        super().send(data)
