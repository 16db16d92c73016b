"""TlsTransport: TLS over an existing transport, even if some of its first bytes were already read.

It is the protocol of the socket's transport, and the transport of the client's protocol. The loop's own `start_tls`
only accepts transports of the loop, and no bytes that were already read.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Protocol, cast

from penstock.server.tls.tls import HANDSHAKE


class Inner(Protocol):
    """The buffered protocol that reads and writes through TLS."""

    def get_buffer(self, hint: int) -> memoryview: ...
    def buffer_updated(self, size: int) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def eof_received(self) -> None: ...
    def connection_lost(self, error: Exception | None) -> None: ...


class TlsTransport(asyncio.Protocol):
    """The server's end of a TLS connection.

    Always true: `inner` gets bytes only after `done`; after `failed` it is only told about the end.
    """

    def __init__(
        self,
        raw: asyncio.Transport,
        context: ssl.SSLContext,
        inner: Inner,
        *,
        done: Callable[[TlsTransport], None],
        failed: Callable[[str, bool], None],
    ) -> None:
        """`failed` gets the reason, and whether it is an error or only a debug line."""
        self.raw = raw
        self.inner = inner
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._done, self._failed = done, failed
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._has_begun = False  # the client's first byte has come
        self._is_open = False
        self._is_paused = False
        self._is_over = False

    def start(self, timeout_s: float, data: bytes = b"") -> None:
        """Take over the socket; `data` was already read from it."""
        self._timer = self._loop.call_later(timeout_s, self._time_out)
        self.raw.set_protocol(self)
        if data:
            self.data_received(data)

    # From the socket.

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        if not self._has_begun:
            self._has_begun = True
            if data[0] != HANDSHAKE:
                # The client does not speak TLS: it would not understand an alert.
                self._fail("tls: first record does not look like a TLS handshake", is_error=False)
                return
        self._incoming.write(data)
        if not self._is_open:
            self._shake_hands()
        if self._is_open:
            self._read()

    def _shake_hands(self) -> None:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            return
        except ssl.SSLError as error:
            self._send()  # sends the alert with the reason
            self._fail(explain(error), is_error=True)
            return
        self._send()
        self._stop_timer()
        self._is_open = True
        self._done(self)

    def _read(self) -> None:
        while not self._is_paused and not self._is_over:
            buffer = self.inner.get_buffer(-1)
            try:
                size = self.tls.read(len(buffer), buffer)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError:
                self._is_over = True
                self._send()
                self.raw.close()
                return
            if not size:  # the client has closed its side
                self.close()
                return
            self.inner.buffer_updated(cast("int", size))
        self._send()

    def _send(self) -> None:
        data = self._outgoing.read()
        if data and not self.raw.is_closing():
            self.raw.write(data)

    def _time_out(self) -> None:
        self._timer = None
        self._fail("TLS handshake timeout", is_error=False)

    def _fail(self, text: str, is_error: bool) -> None:
        self._stop_timer()
        self._is_over = True
        self._failed(text, is_error)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def eof_received(self) -> None:
        self.inner.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_timer()
        self._is_over = True
        self.inner.connection_lost(error)
        del self.inner, self._done, self._failed  # breaks reference cycles; no callbacks follow

    # For the client's protocol.

    def write(self, data: bytes) -> None:
        if self._is_open and not self._is_over and data:
            self.tls.write(data)
            self._send()

    def close(self) -> None:
        """Send the TLS close, and close the socket once pending bytes are sent."""
        if not self._is_over:
            self._is_over = True
            if self._is_open:
                try:
                    self.tls.unwrap()
                except ssl.SSLError:
                    pass  # its answer is not waited for
                self._send()
        self._stop_timer()
        self.raw.close()

    def abort(self) -> None:
        self._is_over = True
        self._stop_timer()
        self.raw.abort()

    def is_closing(self) -> bool:
        return self._is_over or self.raw.is_closing()

    def pause_reading(self) -> None:
        self._is_paused = True
        self.raw.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        self.raw.resume_reading()
        self._loop.call_soon(self._read)  # deliver bytes that were decrypted meanwhile

    def get_write_buffer_size(self) -> int:
        return self.raw.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.tls if name == "ssl_object" else self.raw.get_extra_info(name, default)


def explain(error: ssl.SSLError) -> str:
    """Why a handshake failed, in nats-server's words where it has some."""
    if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "tls: client didn't provide a certificate"
    return f"tls: {error.reason or error}".replace("_", " ").lower()
