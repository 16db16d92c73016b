"""Listener: a port that takes clients, as NATS or as WebSocket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal, cast

from penstock.server.address import listening_socket
from penstock.server.connection import Connection

if TYPE_CHECKING:
    from penstock.server.server import Server
    from penstock.server.tls_door import RateLimit
    from penstock.server.websocket_connection import WebsocketConnection

BACKLOG = 4096


class Listener:
    """One listening port."""

    def __init__(self, server: Server, kind: Literal["nats", "websocket"]) -> None:
        self.server = server
        self.kind = kind
        self._listening: asyncio.Server | None = None
        self._unready: set[WebsocketConnection] = set()  # whose handshake is not over
        self._rate: RateLimit | None = None  # of TLS handshakes
        self._buffer: memoryview | None = None  # what WebSockets read into, one after the other

    async def start(self, host: str, port: int) -> int:
        """Listen: the port."""
        from penstock.server.server import StartError

        try:
            self._listening = await self.server.loop.create_server(
                self._new_connection, sock=await listening_socket(host, port), backlog=BACKLOG
            )
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            if self.kind == "websocket":
                raise StartError(f"Unable to listen for websocket connections on {place}: {why}") from error
            raise StartError(f"Error listening on port: {place}, {why}; choose another with -p") from error
        return int(self._listening.sockets[0].getsockname()[1])

    def _new_connection(self) -> asyncio.BaseProtocol:
        cid = self.server.next_cid()
        if self.kind == "nats":
            connection = self._make(cid)
            tls, context = self.server.options.tls, self.server.tls_context
            if tls is None or context is None:
                return cast("asyncio.BaseProtocol", connection)
            from penstock.server.tls_door import RateLimit, TlsDoor

            if self._rate is None or self._rate.limit != tls.connection_rate_limit:
                self._rate = RateLimit(tls.connection_rate_limit)
            return TlsDoor(connection, tls, context, self._rate)
        from penstock.server.websocket_connection import READ_SIZE, WebsocketConnection

        if self._buffer is None:
            self._buffer = memoryview(bytearray(READ_SIZE))
        kind: type[WebsocketConnection] = WebsocketConnection
        if self.server.log.is_trace:
            from penstock.server.trace import TracedWebsocketConnection

            kind = TracedWebsocketConnection
        return cast("asyncio.BaseProtocol", kind(self.server, cid, self._unready, self._buffer))

    def _make(self, cid: int) -> Connection:
        if self.server.log.is_trace:
            from penstock.server.trace import TracedConnection

            return TracedConnection(self.server, cid)
        return Connection(self.server, cid)

    async def stop(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        for connection in list(self._unready):
            connection.close("Server Shutdown")
