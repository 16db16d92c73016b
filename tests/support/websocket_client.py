"""A WebSocket client that sees bytes: the request as written, the head of the answer, frames of every kind."""

from __future__ import annotations

import struct
from typing import Any

from support.wire_client import WAIT, Closed, Frame, WireClient

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
UPGRADE = {
    "Host": "127.0.0.1",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
}
SHOWN = {"upgrade", "connection", "sec-websocket-accept", "sec-websocket-extensions", "sec-websocket-version", "x-own"}
BINARY, TEXT, CONTINUED, CLOSE, PING, PONG = 2, 1, 0, 8, 9, 10
NAMES = {CLOSE: "close", PING: "ping", PONG: "pong"}


def request(changes: dict[str, str | None], line: str = "GET / HTTP/1.1") -> bytes:
    """An upgrade request; a header with the value None is left out."""
    headers = {**UPGRADE, **changes}
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return ("\r\n".join([line, *lines]) + "\r\n\r\n").encode()


def frame(opcode: int, payload: bytes, is_masked: bool = True, is_final: bool = True, reserved: int = 0) -> bytes:
    first = (0x80 if is_final else 0) | reserved << 4 | opcode
    mask = b"\x01\x02\x03\x04" if is_masked else b""
    bit = 0x80 if is_masked else 0
    if len(payload) < 126:
        head = struct.pack(">BB", first, bit | len(payload))
    elif len(payload) < 1 << 16:
        head = struct.pack(">BBH", first, bit | 126, len(payload))
    else:
        head = struct.pack(">BBQ", first, bit | 127, len(payload))
    if is_masked:
        payload = bytes(byte ^ mask[n % 4] for n, byte in enumerate(payload))
    return head + mask + payload


class WebSocketWire(WireClient):
    """Frames of the NATS protocol inside binary frames; control frames in between are returned as `WS` frames."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._bytes = b""
        self._controls: list[Frame] = []

    def upgrade(self, data: bytes) -> dict[str, Any]:
        """Send the request; returns the head of the answer: status line, the headers that matter, the body."""
        super().send(data)
        try:
            while b"\r\n\r\n" not in self._bytes:
                self._fill()
        except Closed:
            return {"closed": self._bytes.decode("latin-1")}
        head, _, self._bytes = self._bytes.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        answer = {"status": status, "headers": {name: headers[name] for name in sorted(headers) if name in SHOWN}}
        if "101" in status:
            return answer
        try:
            while len(self._bytes) < int(headers.get("content-length", "100000")):
                self._fill()
        except Closed:
            answer["end"] = "closed"
        return answer | {"text": self._bytes.decode("latin-1")}

    def send(self, data: bytes) -> None:
        super().send(frame(BINARY, data))

    def send_raw(self, data: bytes) -> None:
        super().send(data)

    def receive(self, wait: float = WAIT) -> Frame:
        if self._controls:
            return self._controls.pop(0)
        try:
            return super().receive(wait)
        except _Control:
            return self._controls.pop(0)

    def _fill(self) -> None:
        self._pending, kept = b"", self._pending
        try:
            super()._more()
        finally:
            self._bytes += self._pending
            self._pending = kept

    def _take(self, size: int) -> bytes:
        while len(self._bytes) < size:
            self._fill()
        data, self._bytes = self._bytes[:size], self._bytes[size:]
        return data

    def _more(self) -> None:
        first, second = self._take(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack(">H", self._take(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", self._take(8))
        assert not second & 0x80, "a server does not mask"
        payload = self._take(size)
        opcode = first & 0x0F
        if opcode in NAMES:
            code = f"{struct.unpack('>H', payload[:2])[0]} " if opcode == CLOSE and len(payload) >= 2 else ""
            text = payload[2:] if code else payload
            self._controls.append(Frame("WS", text=f"{NAMES[opcode]} {code}".encode() + text))
            raise _Control
        self._pending += payload


class _Control(Exception):
    """A control frame arrived instead of data."""
