"""The way of a connection into TLS: INFO first or the handshake first; where both may be, the first byte decides."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, cast

from penstock.server.options import TlsOptions
from penstock.server.tls import HANDSHAKE, is_pinned, peer_facts

if TYPE_CHECKING:
    from penstock.server.connection import Connection


async def upgrade(connection: Connection, tls: TlsOptions) -> None:
    """Bring a connection whose reading is paused to where commands are read."""
    is_first = tls.handshake_first
    if is_first and tls.handshake_first_fallback:
        is_first = await first_byte(connection, tls.handshake_first_fallback) == HANDSHAKE
    has_said_info = False
    if not is_first:
        connection.nonce = connection.server.new_nonce() if connection.server.authenticator.needs_nonce else b""
        connection.transport.write(connection.server.info_line(connection))
        has_said_info = True
        if tls.allow_non_tls and await first_byte(connection, tls.timeout) != HANDSHAKE:
            if not connection.is_closed:
                connection.begin(has_said_info)
                connection.transport.resume_reading()
            return
    if connection.is_closed:
        return
    if await handshake(connection, tls, is_first):
        connection.begin(has_said_info)


async def handshake(connection: Connection, tls: TlsOptions, is_first: bool) -> bool:
    """Do the handshake: whether it came to something."""
    server = connection.server
    context = server.ws_tls_context if connection.kind == "websocket" else server.tls_context
    assert context is not None
    try:
        transport = await server.loop.start_tls(
            connection.transport,
            cast("asyncio.BaseProtocol", connection),
            context,
            server_side=True,
            ssl_handshake_timeout=max(tls.timeout, 0.001),
        )
    except (OSError, TimeoutError) as error:  # ssl.SSLError is an OSError
        server.log.error(f"{connection.label} - TLS handshake error: {error or 'timeout'}")
        connection.close("TLS Handshake Failure")
        return False
    if transport is None or connection.is_closed:
        return False
    connection.transport = transport
    connection.tls = peer_facts(transport.get_extra_info("ssl_object"), is_first)
    if not is_pinned(tls, connection.tls.certificate):
        server.log.error(f"{connection.label} - TLS certificate is not pinned")
        connection.close("TLS Handshake Failure")
        return False
    return True


async def first_byte(connection: Connection, timeout_s: float) -> int | None:
    """The first byte that the client sends, which stays unread; None when none comes in time."""
    loop = connection.server.loop
    fd = os.dup(connection.transport.get_extra_info("socket").fileno())
    peeking = socket.socket(fileno=fd)
    came = asyncio.Event()
    try:
        loop.add_reader(fd, came.set)
        try:
            await asyncio.wait_for(came.wait(), timeout_s)
        except TimeoutError:
            return None
        finally:
            loop.remove_reader(fd)
        try:
            found = peeking.recv(1, socket.MSG_PEEK)
        except OSError:
            return None  # the transport will tell of it
        return found[0] if found else None
    finally:
        peeking.close()
