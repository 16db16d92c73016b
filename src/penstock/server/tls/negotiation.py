"""TlsNegotiation: reads the first bytes of a connection to a port with TLS, and decides how the connection goes on.

required            INFO, then the handshake
allow_non_tls       INFO, then the first byte decides; a client that sends nothing for a while is taken for plain
handshake_first     the handshake, then INFO, encrypted
  with a delay      the server waits so long for the first byte, then goes on with INFO as above
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, cast

from penstock.server.tls.tls import HANDSHAKE, is_pinned, peer_facts
from penstock.server.tls.transport import TlsTransport

if TYPE_CHECKING:
    import ssl

    from penstock.server.connection import Connection
    from penstock.server.options import TlsOptions

THROTTLED = "Connection throttling is active. Please try again later."


class RateLimit:
    """A limit on handshakes per second."""

    def __init__(self, limit: int) -> None:
        self.limit = limit  # 0: any number
        self._count = 0
        self._until = 0.0

    def allows(self, now: float) -> bool:
        """Whether one more handshake is allowed; it is counted."""
        if now > self._until:
            self._count, self._until = 0, now + 1.0
        else:
            self._count += 1
        return not self.limit or self._count < self.limit


class TlsNegotiation(asyncio.Protocol):
    """The asyncio protocol of a socket until its connection takes over."""

    def __init__(self, connection: Connection, tls: TlsOptions, context: ssl.SSLContext, rate: RateLimit) -> None:
        self.connection = connection
        self.tls = tls
        self.context = context
        self._rate = rate
        self._has_sent_info = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast("asyncio.Transport", transport)
        connection = self.connection
        connection.take(transport)
        if not connection.server.admit(connection):
            return
        if not self.tls.handshake_first:
            self._send_info()
        elif self.tls.handshake_first_fallback > 0:
            self._timer = connection.server.loop.call_later(self.tls.handshake_first_fallback, self._send_info)
        else:
            self._start_tls(b"")

    def data_received(self, data: bytes) -> None:
        self._stop_timer()
        if self.connection.is_closed:
            return
        if self._has_sent_info and data[0] != HANDSHAKE:
            self._go_plain(data)
        else:
            self._start_tls(data)

    def eof_received(self) -> None:
        self.connection.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_timer()
        self.connection.connection_lost(error)

    def _send_info(self) -> None:
        connection = self.connection
        if connection.is_closed:
            return
        connection.make_nonce()
        self._raw.write(connection.server.info_line(connection))
        self._has_sent_info = True
        if self.tls.allow_non_tls:
            self._timer = connection.server.loop.call_later(self.tls.timeout, self._go_plain, b"")
        else:
            self._start_tls(b"")

    def _go_plain(self, data: bytes) -> None:
        connection = self.connection
        if connection.is_closed:
            return
        self._raw.set_protocol(cast("asyncio.BaseProtocol", connection))
        connection.begin(has_sent_info=True)
        if data:
            connection.data_received(data)

    def _start_tls(self, data: bytes) -> None:
        connection = self.connection
        if not self._rate.allows(time.monotonic()):
            connection.send_error(THROTTLED)
            connection.close("Maximum Connections Exceeded")
            return
        transport = TlsTransport(self._raw, self.context, connection, done=self._done, failed=self._failed)
        transport.start(self.tls.timeout, data)

    def _done(self, transport: TlsTransport) -> None:
        connection = self.connection
        if connection.is_closed:
            transport.close()
            return
        connection.tls = peer_facts(transport.tls, is_first=not self._has_sent_info)
        if not is_pinned(self.tls, connection.tls.certificate):
            self._failed("certificate not pinned", True)
            return
        connection.transport = transport
        connection.secured(self._has_sent_info)

    def _failed(self, text: str, is_error: bool) -> None:
        connection = self.connection
        log = connection.server.log
        (log.error if is_error else log.debug)(f"{connection.label} - TLS handshake error: {text}")
        connection.close("TLS Handshake Failure")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
