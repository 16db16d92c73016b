"""HttpServer: as much of HTTP/1.1 on asyncio as monitoring needs. h11 parses and writes; this module has the limits.

Always true: a client that sends slowly, sends too much, or does not read is disconnected without effect on others.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus

import h11

from penstock.server.address import listening_socket

log = logging.getLogger("penstock")
HEADER_SIZE_MAX = 64 * 1024
BODY_SIZE_MAX = 256 * 1024  # of a request; the body is ignored
HEADER_TIMEOUT_S = 5.0  # for a request to arrive, once it has begun
IDLE_TIMEOUT_S = 120.0  # between two requests
WRITE_TIMEOUT_S = 10.0  # for a client to take a piece of its answer
CONNECTIONS_MAX = 512
CHUNK = 64 * 1024
PLAIN = "text/plain; charset=utf-8"


@dataclass(slots=True)
class Response:
    """A response. A body in pieces is sent piece by piece."""

    body: bytes | AsyncIterator[bytes]
    status: int = 200
    content_type: str = PLAIN
    headers: list[tuple[str, str]] = field(default_factory=list)


Handler = Callable[[str], Awaitable[Response]]


class HttpServer:
    """Listens on one address and calls `handler` for each response, with the request's target."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen; returns the port."""
        sock = await listening_socket(host, port)
        self._server = await asyncio.start_server(self._accept, sock=sock, ssl=tls, limit=CHUNK, backlog=128)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._tasks.add(task)
        try:
            await _Exchange(reader, writer, self._handler).run()
        except (OSError, EOFError, TimeoutError):
            writer.transport.abort()  # it went away, or was too slow
        except Exception:
            log.exception("a monitoring request failed")
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            writer.close()


class _Exchange:
    """The requests of one connection, one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
        self._reader = reader
        self._writer = writer
        self._handler = handler
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_SIZE_MAX)
        self._has_body = True  # the answer, since it is not to HEAD

    async def run(self) -> None:
        try:
            while (request := await self._request()) is not None:
                await self._drop_body()
                await self._answer(request)
                if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                    return
                self._http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            await self._refuse(error)

    async def _request(self) -> h11.Request | None:
        """The next request; None if there is none."""
        if not self._http.trailing_data[0]:
            async with asyncio.timeout(IDLE_TIMEOUT_S):
                self._http.receive_data(await self._reader.read(CHUNK))
        async with asyncio.timeout(HEADER_TIMEOUT_S):
            event = await self._event()
        if not isinstance(event, h11.Request):
            return None
        self._has_body = event.method != b"HEAD"
        return event

    async def _event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._reader.read(CHUNK))
        return event

    async def _drop_body(self) -> None:
        size = 0
        async with asyncio.timeout(HEADER_TIMEOUT_S):
            while isinstance(event := await self._event(), h11.Data):
                size += len(event.data)
                if size > BODY_SIZE_MAX:
                    raise h11.RemoteProtocolError("body too large", error_status_hint=413)

    async def _answer(self, request: h11.Request) -> None:
        response = await self._handler(request.target.decode("latin-1"))
        headers = [*response.headers, ("Content-Type", response.content_type), ("Date", formatdate(usegmt=True))]
        if isinstance(response.body, bytes):
            headers.append(("Content-Length", str(len(response.body))))
            await self._begin(response.status, headers)
            if self._has_body:
                await self._send(h11.Data(data=response.body))
        else:
            await self._begin(response.status, headers)
            async for piece in response.body:
                if self._has_body:
                    await self._send(h11.Data(data=piece))
        await self._send(h11.EndOfMessage())

    async def _begin(self, status: int, headers: list[tuple[str, str]]) -> None:
        await self._send(h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode()))

    async def _refuse(self, error: h11.RemoteProtocolError) -> None:
        """Send the error as nats-server does, and end the connection."""
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        status = error.error_status_hint
        text = f"{status} {HTTPStatus(status).phrase}"
        if "Host:" in str(error):
            text += ": missing required Host header"
        headers = [("Content-Type", PLAIN), ("Connection", "close")]
        reason = text.removeprefix(f"{status} ").encode()
        await self._send(h11.Response(status_code=status, headers=headers, reason=reason))
        if self._has_body:
            await self._send(h11.Data(data=text.encode()))
        await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._writer.write(data)
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._writer.drain()
