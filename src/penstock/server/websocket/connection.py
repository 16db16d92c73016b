"""WebsocketConnection: a client that connects over WebSocket.

First comes the TLS handshake, if the port has TLS, then an HTTP request. Until that is accepted the connection is in
its listener's `unready`, and its handshake timeout runs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.server.connection import Connection
from penstock.server.tls.tls import is_pinned, peer_facts
from penstock.server.tls.transport import TlsTransport
from penstock.server.websocket.codec import WebsocketCodec
from penstock.server.websocket.handshake import Handshake, Refusal

if TYPE_CHECKING:
    from penstock.server.server import Server

READ_SIZE = 64 * 1024


class WebsocketConnection(Connection):
    """A client of the WebSocket port.

    Always true: with a `codec` it is registered with the server like any other client; without one it is not.
    """

    is_straight = False

    def __init__(self, server: Server, cid: int, unready: set[WebsocketConnection], buffer: memoryview) -> None:
        super().__init__(server, cid, "websocket")
        self.codec: WebsocketCodec | None = None
        self._unready = unready
        self._buffer = buffer
        self._handshake = Handshake(server.options.websocket, is_tls=server.ws_tls_context is not None)
        self._handshake_timer: asyncio.TimerHandle | None = None

    @property
    def label(self) -> str:
        """The beginning of log lines; an address forwarded by a proxy comes before the proxy's own."""
        told = self.codec.client_ip if self.codec is not None else ""
        shown = f"[{told}]/" if ":" in told else f"{told}/" if told else ""
        return shown + super().label

    # The handshake.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.take(transport)
        self._unready.add(self)
        options, loop = self.server.options.websocket, self.server.loop
        if options.handshake_timeout > 0:
            self._handshake_timer = loop.call_later(options.handshake_timeout, self._too_late)
        context, tls = self.server.ws_tls_context, options.tls
        if context is not None and tls is not None:
            secure = TlsTransport(self.transport, context, self, done=self._begin, failed=self._refuse)
            secure.start(tls.timeout)

    def _begin(self, transport: TlsTransport) -> None:
        tls = self.server.options.websocket.tls
        self.tls = peer_facts(transport.tls)
        if tls is not None and not is_pinned(tls, self.tls.certificate):
            self._refuse("certificate not pinned", True)
        else:
            self.transport = transport

    def _refuse(self, text: str, is_error: bool) -> None:
        log = self.server.log
        (log.error if is_error else log.debug)(f"{self.label} - TLS handshake error: {text}")
        self.close("TLS Handshake Failure")

    def _too_late(self) -> None:
        self._handshake_timer = None
        self.close("Client Closed")

    def _shake_hands(self, data: bytes) -> None:
        found = self._handshake.receive(data)
        while isinstance(found, Refusal):
            if found.reason:
                self.server.log.error(f"{self.place} - websocket handshake error: {found.reason}")
            self.transport.write(found.reply)
            if found.is_final:
                self.close("Client Closed")
                return
            found = self._handshake.receive(b"")
        if found is None:
            return
        self._be_ready()
        self.transport.write(found.reply)
        self.codec = WebsocketCodec(found, self.max_payload)
        self.cookies = found.cookies
        if self.server.admit(self):
            self.begin()

    def _be_ready(self) -> None:
        self._unready.discard(self)
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None

    # Callbacks of the transport.

    def get_buffer(self, hint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        self.data_received(bytes(self._buffer[:size]))

    def data_received(self, data: bytes) -> None:
        if self.reason:
            return
        codec = self.codec
        if codec is None:
            self._shake_hands(data)
            return
        codec.max_payload = self.max_payload
        commands = codec.receive(data)
        if commands:
            self.feed(commands)
        frames = codec.outgoing()
        if frames:
            self.flush()  # replies to earlier requests go before the pong
            self.transport.write(b"".join(frames))
            self.backlog = self.transport.get_write_buffer_size()
            self.check_backlog()
        if codec.end and not self.reason:
            if codec.fault:
                self.server.log.error(f"{self.label} - read error: {codec.fault}")
            self.close(codec.end)

    def send(self, data: bytes) -> None:
        assert self.codec is not None, "nothing is said before the handshake"
        self.transport.write(self.codec.encode(data))

    # The end.

    def close(self, reason: str) -> None:
        self._be_ready()
        super().close(reason)

    def _send_last(self) -> None:
        if self.codec is not None:
            self.pass_on_out()
            self.transport.write(self.codec.closing(self.reason))
        self.transport.close()
