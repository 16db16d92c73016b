"""A bare client connection for the soak: asyncio streams and raw protocol lines, so that a message costs little.

`Wire` reads only while one of its methods waits. A connection that is not read acts as a slow subscriber.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

WAIT_S = 30.0  # for an answer; the machine may be busy with something else
HELLO = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\nPING\r\n'
READ_SIZE = 1 << 16


class WireError(Exception):
    """The server sent an unexpected answer, or none."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A message as the server sent it; `body` begins with its headers, if it has any."""

    subject: str
    sid: int
    reply: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Out:
    """A message to publish."""

    subject: str
    payload: bytes
    msg_id: str = ""

    def frame(self, reply: str = "") -> bytes:
        to = f"{self.subject} {reply}" if reply else self.subject
        if not self.msg_id:
            return b"PUB %s %d\r\n%s\r\n" % (to.encode(), len(self.payload), self.payload)
        headers = f"NATS/1.0\r\nNats-Msg-Id: {self.msg_id}\r\n\r\n".encode()
        size = len(headers) + len(self.payload)
        return b"HPUB %s %d %d\r\n%s%s\r\n" % (to.encode(), len(headers), size, headers, self.payload)


class Wire:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._asked = 0

    @classmethod
    async def connect(cls, port: int, *, receive_buffer: int = 0, hello: bytes = HELLO) -> Wire:
        """Connected and, with a `hello` that ends with a PING, answered."""
        wanted = socket.socket()
        wanted.setblocking(False)
        if receive_buffer:
            wanted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            await asyncio.get_running_loop().sock_connect(wanted, ("127.0.0.1", port))
        except BaseException:
            wanted.close()
            raise
        wire = cls(*await asyncio.open_connection(sock=wanted, limit=READ_SIZE))
        try:
            async with asyncio.timeout(WAIT_S):
                await wire._reader.readline()  # INFO
                wire.send(hello)
                if hello.endswith(b"PING\r\n"):
                    await wire.pong()
        except BaseException:
            wire.abort()
            raise
        return wire

    async def __aenter__(self) -> Wire:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Out.

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def flush(self) -> None:
        """Wait until most of the sent bytes are in the system's buffers."""
        async with asyncio.timeout(WAIT_S):
            await self._writer.drain()

    async def ping(self) -> list[Frame]:
        """Wait until the server has processed everything sent; return the messages that arrived meanwhile."""
        self.send(b"PING\r\n")
        async with asyncio.timeout(WAIT_S):
            await self._writer.drain()
            return await self.pong()

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            pass  # the other side was first

    def abort(self) -> None:
        """Reset the connection without an orderly close."""
        wire = self._writer.get_extra_info("socket")
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    # In.

    async def pong(self) -> list[Frame]:
        found: list[Frame] = []
        while (frame := await self._next()) is not None:
            found.append(frame)
        return found

    async def frame(self) -> Frame:
        """The next message; an unexpected PONG is skipped."""
        async with asyncio.timeout(WAIT_S):
            while (frame := await self._next()) is None:
                pass
            return frame

    async def read_to_end(self, wait_s: float = WAIT_S) -> int:
        """Read until the server closes the connection; how many bytes came."""
        count = 0
        async with asyncio.timeout(wait_s):
            try:
                while got := await self._reader.read(READ_SIZE):
                    count += len(got)
            except ConnectionResetError:
                pass  # it had more for us, or we for it
        return count

    async def error(self) -> str:
        """The server's -ERR, after which it closes the connection."""
        async with asyncio.timeout(WAIT_S):
            while line := await self._reader.readline():
                if line.startswith(b"-ERR"):
                    await self._reader.read()
                    return line.decode().strip()
        raise WireError("closed without an error")

    async def _next(self) -> Frame | None:
        """The next message, or None for a PONG."""
        while True:
            line = await self._reader.readline()
            kind, *words = line.split()[:6] or [b""]
            if kind in (b"MSG", b"HMSG"):
                body = (await self._reader.readexactly(int(words[-1]) + 2))[:-2]
                has_reply = len(words) - (kind == b"HMSG") == 4
                return Frame(words[0].decode(), int(words[1]), words[2].decode() if has_reply else "", body)
            if kind == b"PONG":
                return None
            if kind == b"PING":
                self.send(b"PONG\r\n")
            elif kind != b"INFO":
                raise WireError(line.decode(errors="replace").strip() or "the server closed the connection")

    # Questions and answers.

    async def ask(self, outs: Sequence[Out]) -> list[dict[str, Any]]:
        """Publish them all at once and wait for each one's answer; the answers in their order."""
        self._asked += 1
        inbox = f"_INBOX.soak.{id(self):x}.{self._asked}"
        frames = [out.frame(f"{inbox}.{n}") for n, out in enumerate(outs)]
        self.send(b"SUB %s.* 9\r\n" % inbox.encode() + b"".join(frames) + b"UNSUB 9 %d\r\n" % len(outs))
        found: dict[int, dict[str, Any]] = {}
        async with asyncio.timeout(WAIT_S):
            await self._writer.drain()
            while len(found) < len(outs):
                frame = await self._next()
                if frame is None or not frame.subject.startswith(inbox):
                    continue
                if frame.body.startswith(b"NATS/1.0 503"):
                    raise WireError(f"{outs[0].subject}: no responders")
                found[int(frame.subject.rpartition(".")[2])] = json.loads(frame.body)
        return [found[n] for n in range(len(outs))]

    async def publish(self, outs: Iterable[Out], window: int = 250) -> list[dict[str, Any]]:
        """As `ask`, so many at a time; an answer that is an error is raised."""
        waiting, answers = list(outs), []
        for at in range(0, len(waiting), window):
            answers += await self.ask(waiting[at : at + window])
        for answer in answers:
            if "error" in answer:
                raise WireError(f"publish: {answer['error']}")
        return answers
