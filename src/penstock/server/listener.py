"""Listener: a port that accepts clients, for NATS or for WebSocket."""

from __future__ import annotations

import errno
import logging
import socket
from typing import TYPE_CHECKING, Any, Literal

from penstock.broker.io.epoll_set import Socket
from penstock.server.address import listening_socket
from penstock.server.connection import Connection

if TYPE_CHECKING:
    from penstock.server.server import Server
    from penstock.server.tls.negotiation import RateLimit
    from penstock.server.websocket.connection import WebsocketConnection

log = logging.getLogger("penstock")
BACKLOG = 4096
ACCEPTS_MAX = 64  # per tick: present clients are served first
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
NO_DESCRIPTORS_S = 1.0  # until the next try


class Listener:
    """One listening port."""

    def __init__(self, server: Server, kind: Literal["nats", "websocket"]) -> None:
        self.server = server
        self.kind = kind
        self._listening: socket.socket | None = None
        self._unready: set[WebsocketConnection] = set()  # whose handshake is not over
        self._rate: RateLimit | None = None  # of TLS handshakes
        self._buffer: memoryview | None = None  # the read buffer that all WebSockets share

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port."""
        from penstock.server.server import StartError

        try:
            listening = await listening_socket(host, port)
            listening.listen(BACKLOG)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            if self.kind == "websocket":
                raise StartError(f"Unable to listen for websocket connections on {place}: {why}") from error
            raise StartError(f"Error listening on port: {place}, {why}; choose another with -p") from error
        self._listening = listening
        self._watch()
        return int(listening.getsockname()[1])

    def _watch(self) -> None:
        if self._listening is not None:
            self.server.loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        """Accept waiting connections."""
        for _ in range(ACCEPTS_MAX):
            if self._listening is None:
                return
            try:
                connected, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in NO_DESCRIPTORS:  # clients wait in the port's queue until others disconnect
                    why = error.strerror
                    log.error("no connection can be taken: %s; raise the limit of open files (ulimit -n)", why)
                    self.server.loop.remove_reader(self._listening)
                    self.server.loop.call_later(NO_DESCRIPTORS_S, self._watch)
                    return
                continue  # the client has already disconnected
            protocol = self._new_connection()
            try:
                connected.setblocking(False)
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                Socket(self.server.tick.sockets, connected, protocol)
            except Exception as error:  # an error of one client must not stop the others
                log.exception("a client could not be taken")
                protocol.connection_lost(error)
                connected.close()

    def _new_connection(self) -> Any:
        cid = self.server.next_cid()
        if self.kind == "nats":
            connection = self._make(cid)
            tls, context = self.server.options.tls, self.server.tls_context
            if tls is None or context is None:
                return connection
            from penstock.server.tls.negotiation import RateLimit, TlsNegotiation

            if self._rate is None or self._rate.limit != tls.connection_rate_limit:
                self._rate = RateLimit(tls.connection_rate_limit)
            return TlsNegotiation(connection, tls, context, self._rate)
        from penstock.server.websocket.connection import READ_SIZE, WebsocketConnection

        if self._buffer is None:
            self._buffer = memoryview(bytearray(READ_SIZE))
        kind: type[WebsocketConnection] = WebsocketConnection
        if self.server.log.is_trace:
            from penstock.server.log.trace import TracedWebsocketConnection

            kind = TracedWebsocketConnection
        return kind(self.server, cid, self._unready, self._buffer)

    def _make(self, cid: int) -> Connection:
        if self.server.log.is_trace:
            from penstock.server.log.trace import TracedConnection

            return TracedConnection(self.server, cid)
        return Connection(self.server, cid)

    async def stop(self) -> None:
        if self._listening is not None:
            self.server.loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        for connection in list(self._unready):
            connection.close("Server Shutdown")
