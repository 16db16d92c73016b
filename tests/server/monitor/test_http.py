"""The HTTP side of monitoring: what it answers to good and bad bytes, and what it does not put up with."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from penstock.server.monitor import http
from penstock.server.monitor.http import HttpServer, Response
from penstock.server.monitor.page import RequestError
from penstock.server.monitor.query import Query


async def pieces() -> AsyncIterator[bytes]:
    for n in range(3):
        yield b"piece %d\n" % n
        await asyncio.sleep(0)


async def flood() -> AsyncIterator[bytes]:
    for _ in range(1000):
        yield bytes(1 << 16)


async def handler(target: str) -> Response:
    if target == "/pieces":
        return Response(pieces())
    if target == "/flood":
        return Response(flood())
    return Response(f"you asked for {target}".encode(), 404 if target == "/none" else 200)


def run(play: Callable[[int], Awaitable[None]]) -> None:
    async def main() -> None:
        server = HttpServer(handler)
        port = await server.start("127.0.0.1", 0)
        try:
            await play(port)
        finally:
            await server.stop()

    asyncio.run(main())


@asynccontextmanager
async def connected(port: int, **options: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that is gone afterwards, whatever came of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def exchange(port: int, data: bytes, *, finish: bool = False) -> bytes:
    """Everything that comes back until the server closes."""
    async with connected(port) as (reader, writer):
        writer.write(data)
        if finish:
            writer.write_eof()
        return await asyncio.wait_for(reader.read(), 10)


def test_a_connection_is_kept_for_the_next_request_until_one_says_close() -> None:
    async def play(port: int) -> None:
        first = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
        last = b"GET /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        got = await exchange(port, first + first + last)
        assert got.count(b"HTTP/1.1 200 OK\r\n") == 2
        assert got.count(b"you asked for /a") == 2
        assert got.endswith(b"Connection: close\r\n\r\nyou asked for /none")

    run(play)


def test_a_body_in_pieces_is_sent_in_chunks_and_to_an_old_client_until_the_end() -> None:
    async def play(port: int) -> None:
        got = await exchange(port, b"GET /pieces HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"Transfer-Encoding: chunked" in got
        assert got.endswith(b"8\r\npiece 2\n\r\n0\r\n\r\n")
        got = await exchange(port, b"GET /pieces HTTP/1.0\r\n\r\n")
        assert got.endswith(b"\r\n\r\npiece 0\npiece 1\npiece 2\n")

    run(play)


def test_head_has_the_length_and_no_body() -> None:
    async def play(port: int) -> None:
        got = await exchange(port, b"HEAD /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"Content-Length: 16\r\n" in got
        assert got.endswith(b"\r\n\r\n")

    run(play)


def test_a_head_that_is_refused_has_no_body_either(caplog: pytest.LogCaptureFixture) -> None:
    """It was sent one, which HTTP's own rules end with an exception: the client heard nothing."""

    async def play(port: int) -> None:
        got = await exchange(port, b"HEAD /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nhello\r\n")
        assert got.startswith(b"HTTP/1.1 400 Bad Request\r\n") and got.endswith(b"\r\n\r\n")

    run(play)
    assert not caplog.records


def test_an_exception_ends_its_connection_with_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(target: str) -> Response:
        raise AssertionError(target)

    async def play() -> None:
        server = HttpServer(fail)
        port = await server.start("127.0.0.1", 0)
        with suppress(ConnectionError):
            assert await exchange(port, b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n") == b""
        await server.stop()

    asyncio.run(play())
    assert "a monitoring request failed" in caplog.text


@pytest.mark.parametrize(
    ("data", "first_line"),
    [
        (b"garbage\r\n\r\n", b"HTTP/1.1 400 Bad Request\r\n"),
        (b"\x00\xff\x16\x03\x01\r\n\r\n", b"HTTP/1.1 400 Bad Request\r\n"),
        (b"GET /a HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 Bad Request: missing required Host header\r\n"),
        (b"GET /a HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 70_000, b"HTTP/1.1 431 Request Header Fields Too Large\r\n"),
        (b"GET /" + b"a" * 70_000, b"HTTP/1.1 431 Request Header Fields Too Large\r\n"),
        (b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n", b"HTTP/1.1 400 Bad Request\r\n"),
        (
            b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" + bytes(300_000),
            b"HTTP/1.1 413 Request Entity Too Large\r\n",
        ),
    ],
    ids=["garbage", "tls", "no host", "large header", "long target", "bad length", "large body"],
)
def test_bytes_that_are_no_request_are_refused_and_the_connection_ends(data: bytes, first_line: bytes) -> None:
    async def play(port: int) -> None:
        got = await exchange(port, data)
        assert got.startswith(first_line), got[:200]
        assert b"Connection: close" in got

    run(play)


def test_half_a_request_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HEADER_TIMEOUT_S", 0.05)

    async def play(port: int) -> None:
        assert await exchange(port, b"GET /a HTTP/1.1\r\nHo") == b""

    run(play)


def test_an_idle_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "IDLE_TIMEOUT_S", 0.05)

    async def play(port: int) -> None:
        got = await exchange(port, b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
        assert got.endswith(b"you asked for /a")

    run(play)


def test_a_client_that_does_not_read_is_cut_off_and_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "WRITE_TIMEOUT_S", 0.2)

    async def play(port: int) -> None:
        async with connected(port, limit=1024) as (reader, writer):
            writer.write(b"GET /flood HTTP/1.1\r\nHost: x\r\n\r\n")
            got = await exchange(port, b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert got.endswith(b"you asked for /a")
            while not reader.at_eof():  # nothing is read until the server has given up
                await asyncio.sleep(0.3)
                try:
                    if not await reader.read(1 << 20):
                        break
                except ConnectionError:
                    break

    run(play)


def test_more_connections_than_the_bound_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 2)

    async def play(port: int) -> None:
        async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"/a")

        async with connected(port) as first, connected(port) as second:
            await ask(*first)
            await ask(*second)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                async with connected(port) as third:
                    await ask(*third)

    run(play)


def test_a_query_is_read_as_go_reads_it() -> None:
    query = Query("a=1&a=2&b=%20x+y&bad=%zz&c;d=1&e&limit=+7&flag=T")
    assert query.text("a") == "1"
    assert query.text("b") == " x y"
    assert query.text("bad") == query.text("c") == query.text("d") == query.text("e") == ""
    assert query.boolean("flag") is True
    with pytest.raises(
        RequestError, match=r'^Error decoding int for \'limit\': strconv.Atoi: parsing " 7": invalid syntax'
    ):
        query.integer("limit")
    with pytest.raises(RequestError, match='parsing "1e3": invalid syntax'):
        Query("cid=1e3").unsigned("cid")
    with pytest.raises(RequestError, match="value out of range"):
        Query("n=" + "9" * 5000).integer("n")


def test_random_bytes_never_stop_the_others() -> None:
    pieces = [
        *(b"GET ", b"POST ", b"/a ", b"/a?x=%zz ", b"HTTP/1.1\r\n", b"HTTP/9.9\r\n", b"Host: x\r\n", b"\r\n", b"\n"),
        *(b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n"),
        *(
            b"Expect: 100-continue\r\n",
            b"\x00",
            b"\xff\xfe",
            b"0\r\n\r\n",
            b"Connection: close\r\n",
            b": \r\n",
            b"a" * 3000,
        ),
    ]

    async def play(port: int) -> None:
        chance = random.Random(8222)
        for _ in range(200):
            data = b"".join(chance.choices(pieces, k=chance.randrange(1, 12)))
            await exchange(port, data, finish=True)
        got = await exchange(port, b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert got.endswith(b"you asked for /a")

    run(play)
