"""A client that sees bytes: a blocking socket, frames as the server wrote them, and no automatic answers."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass

WAIT = 5.0  # seconds to wait for a frame


class Closed(Exception):
    """The server has closed the connection."""


class Silent(Exception):
    """Nothing arrived in time."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame from the server. `text` is what follows the verb; a message also has its parts."""

    verb: str
    text: bytes = b""
    subject: bytes = b""
    sid: bytes = b""
    reply: bytes | None = None
    headers: bytes | None = None
    payload: bytes = b""


class WireClient:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pending = b""
        self._is_closed = False

    def send(self, data: bytes) -> None:
        """Send all of it; if the server has closed the connection, the next `receive` notices."""
        try:
            self._socket.sendall(data)
        except OSError:
            return

    def finish_sending(self) -> None:
        """Half-close: the server reads the end of our bytes."""
        self._socket.shutdown(socket.SHUT_WR)

    def receive(self, wait: float = WAIT) -> Frame:
        """The next frame; raises `Closed` at the end, `Silent` if none arrives."""
        self._socket.settimeout(wait)
        line = self._read_line()
        verb, _, rest = line.partition(b" ")
        if verb not in (b"MSG", b"HMSG"):
            return Frame(verb.decode("latin-1"), text=rest)
        words = [word for word in rest.split(b" ") if word]
        count = 2 if verb == b"HMSG" else 1
        names, sizes = words[:-count], [int(word) for word in words[-count:]]
        assert 2 <= len(names) <= 3, line
        body = self._read_exactly(sizes[-1])
        assert self._read_exactly(2) == b"\r\n", line
        reply = names[2] if len(names) == 3 else None
        if verb == b"MSG":
            return Frame("MSG", subject=names[0], sid=names[1], reply=reply, payload=body)
        headers, payload = body[: sizes[0]], body[sizes[0] :]
        return Frame("HMSG", subject=names[0], sid=names[1], reply=reply, headers=headers, payload=payload)

    def secure(self, context: ssl.SSLContext) -> None:
        try:
            self._socket = context.wrap_socket(self._socket, server_hostname="localhost")
        except OSError:
            self._is_closed = True

    def close(self) -> None:
        self._socket.close()

    def _more(self) -> None:
        if self._is_closed:
            raise Closed
        try:
            data = self._socket.recv(1 << 18)
        except TimeoutError as e:
            raise Silent from e
        except OSError as e:  # reset by the server, or a TLS alert
            raise Closed from e
        if not data:
            raise Closed
        self._pending += data

    def _read_line(self) -> bytes:
        while b"\r\n" not in self._pending:
            self._more()
        line, _, self._pending = self._pending.partition(b"\r\n")
        return line

    def _read_exactly(self, size: int) -> bytes:
        while len(self._pending) < size:
            self._more()
        data, self._pending = self._pending[:size], self._pending[size:]
        return data
