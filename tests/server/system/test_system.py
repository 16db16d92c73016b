"""The system account's side of a server in this process: what it costs when nobody listens, and its bounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.broker.account import Account
from penstock.broker.routing.origin import Origin
from penstock.server.options import AccountOptions, Options, User
from penstock.server.server import Server
from penstock.server.system import answers as system_answers
from penstock.server.system import requests as system_requests
from penstock.server.system.requests import SystemRequests
from penstock.testing.inside_client import Heard, subscribe


def run(play: Callable[[Server], Awaitable[None]]) -> None:
    async def main() -> None:
        server = Server(Options(host="127.0.0.1", port=-1))
        await server.start()
        try:
            await play(server)
        finally:
            await server.stop()

    asyncio.run(main())


async def come_and_go(server: Server) -> None:
    """A client connects, and leaves when the server knows it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        await reader.readline()
        writer.write(b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
        await reader.readuntil(b"PONG\r\n")
    finally:
        writer.close()
        await writer.wait_closed()


async def ask(server: Server, subject: str, payload: bytes = b"") -> Any:
    """Publish a request from inside, and give the answer as JSON."""
    assert server.system is not None
    received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    subscriber = subscribe(server.system, "answer", lambda one: received.set_result(one.payload))
    server.system.publish(Origin.CLIENT, subject.encode(), payload, None, b"answer")
    try:
        return json.loads(await asyncio.wait_for(received, 5))
    finally:
        subscriber.close()


def test_no_event_is_made_when_nobody_listens() -> None:
    async def play(server: Server) -> None:
        for _ in range(3):
            await come_and_go(server)
        assert server.system_service._seq == 0

    run(play)


def test_events_number_one_after_the_other() -> None:
    async def play(server: Server) -> None:
        assert server.system is not None
        received: asyncio.Queue[Heard] = asyncio.Queue()
        subscribe(server.system, "$SYS.ACCOUNT.>", received.put_nowait)
        await come_and_go(server)
        found = [await asyncio.wait_for(received.get(), 5) for _ in range(2)]
        assert [one.subject for one in found] == [b"$SYS.ACCOUNT.$G.CONNECT", b"$SYS.ACCOUNT.$G.DISCONNECT"]
        assert [json.loads(one.payload)["server"]["seq"] for one in found] == [1, 2]

    run(play)


def test_an_answer_that_fails_is_told_and_the_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def broken(*_: object) -> None:
        raise ZeroDivisionError("this page cannot be made")

    async def play(server: Server) -> None:
        monkeypatch.setattr(server.log, "error", said.append)
        monkeypatch.setattr(system_answers, "make_routez", broken)
        assert server.system is not None
        server.system.publish(Origin.CLIENT, b"$SYS.REQ.SERVER.PING.ROUTEZ", b"", None, b"nobody")
        assert (await ask(server, "$SYS.REQ.SERVER.PING.LEAFZ"))["data"]["leafs"] == []
        assert len(said) == 1 and "this page cannot be made" in said[0]

    run(play)


@pytest.mark.parametrize(("name", "bound", "payload"), [("QUEUE_MAX", 3, b""), ("QUEUE_SIZE_MAX", 30, b" " * 10)])
def test_requests_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch, name: str, bound: int, payload: bytes) -> None:
    monkeypatch.setattr(system_requests, name, bound)
    answered = 0

    async def play(server: Server) -> None:
        assert server.system is not None
        done = asyncio.Event()

        def count(received: Heard) -> None:
            nonlocal answered
            answered += 1
            if answered == 3:
                done.set()

        subscribe(server.system, "answers", count)
        for _ in range(50):
            server.system.publish(Origin.CLIENT, b"$SYS.REQ.SERVER.PING.IDZ", payload, None, b"answers")
        await asyncio.wait_for(done.wait(), 5)
        await ask(server, "$SYS.REQ.SERVER.PING.IDZ")  # the queue is empty, and takes more
        assert answered == 3

    run(play)


def test_an_account_that_comes_later_can_ask_about_itself_and_one_that_goes_cannot() -> None:
    async def play(server: Server) -> None:
        account = Account("LATER", server.tick)
        assert not account.has_interest(b"$SYS.REQ.USER.INFO")
        server.system_service.account_added(account)
        server.system_service.account_added(account)  # twice is harmless
        assert account.matches(b"$SYS.REQ.USER.INFO") == 1
        server.system_service.account_removed(account)
        assert account.sublist.count == 0

    run(play)


def test_after_the_stop_nothing_is_heard_any_more() -> None:
    async def play(server: Server) -> None:
        assert server.system is not None
        requests: SystemRequests = server.system_service._requests
        server.system.publish(Origin.CLIENT, b"$SYS.REQ.SERVER.PING.VARZ", b"", None, b"answers")
        server.system_service.stop()
        assert not server.system.has_interest(b"$SYS.REQ.SERVER.PING.VARZ")
        assert requests.queue() == (0, 0)

    run(play)


def test_no_event_is_told_on_a_subject_that_would_break_the_line() -> None:
    """An account's name may have a blank, as in nats-server, where such an event ends its subscriber's connection."""

    async def main() -> None:
        accounts = {
            "A B": AccountOptions("A B", users=[User(username="a", password="b", account="A B")]),
            "SYS": AccountOptions("SYS"),
        }
        server = Server(Options(host="127.0.0.1", port=-1, accounts=accounts, system_account="SYS", no_auth_user="a"))
        await server.start()
        try:
            assert server.system is not None
            received: list[Heard] = []
            client = subscribe(server.system, ">", received.append)
            await come_and_go(server)
            await ask(server, "$SYS.REQ.SERVER.PING.IDZ")
            assert {one.subject for one in received} == {b"$SYS.REQ.SERVER.PING.IDZ", b"answer"} and not client.said
        finally:
            await server.stop()

    asyncio.run(main())
