"""$SYS.REQ.PENSTOCK.WHY: a server explains its consumers and messages, with what only it knows: who waits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from penstock.broker.account import Account
from penstock.broker.routing.origin import Origin
from penstock.server.options import JetStreamOptions, Options
from penstock.server.server import Server
from penstock.testing.inside_client import subscribe


class Asker:
    """Someone inside a server who asks in an account and hears the answer."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._count = 0

    async def ask(self, account: Account, subject: str, body: Any = None) -> Any:
        self._count += 1
        inbox = f"answer.{self._count}"
        received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        subscriber = subscribe(account, inbox, lambda one: received.done() or received.set_result(one.payload))
        payload = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        account.publish(Origin.CLIENT, subject.encode(), payload, None, inbox.encode())
        try:
            return json.loads(await asyncio.wait_for(received, 5))
        finally:
            subscriber.close()

    async def api(self, subject: str, body: Any = None) -> Any:
        return await self.ask(self._server.accounts["$G"], f"$JS.API.{subject}", body)

    async def publish(self, subject: str) -> int:
        seq: int = (await self.ask(self._server.accounts["$G"], subject, b"x"))["seq"]
        return seq

    async def why(self, **question: Any) -> Any:
        assert self._server.system is not None
        return await self.ask(self._server.system, "$SYS.REQ.PENSTOCK.WHY", question)

    async def codes(self, **question: Any) -> list[str]:
        return [reason["code"] for reason in (await self.why(**question))["data"]["reasons"]]


def run(tmp_path: Path, play: Callable[[Server, Asker], Awaitable[None]]) -> None:
    async def main() -> None:
        jetstream = JetStreamOptions(enabled=True, store_dir=str(tmp_path))
        server = Server(Options(host="127.0.0.1", port=-1, jetstream=jetstream))
        await server.start()
        try:
            asker = Asker(server)
            await asker.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
            for number in range(5):
                await asker.publish(f"s.{number}")
            await play(server, asker)
        finally:
            await server.stop()

    asyncio.run(main())


async def make(asker: Asker, name: str, **config: Any) -> None:
    body = {"stream_name": "S", "config": {"durable_name": name, "ack_policy": "explicit"} | config}
    assert "error" not in await asker.api(f"CONSUMER.CREATE.S.{name}", body)


def test_a_pull_consumer_without_requests_says_so_until_one_comes(tmp_path: Path) -> None:
    async def play(server: Server, asker: Asker) -> None:
        await make(asker, "C")
        told = await asker.why(stream="S", consumer="C")
        assert told["server"]["name"] == server.name
        data = told["data"]
        assert (data["account"], data["stream"], data["consumer"], data["delivers"]) == ("$G", "S", "C", False)
        assert data["reasons"][0]["code"] == "no_requests" and data["reasons"][0]["blocking"]
        assert (data["num_pending"], data["num_waiting"], data["last_seq"]) == (5, 0, 5)
        account = server.accounts["$G"]
        got: asyncio.Queue[bytes] = asyncio.Queue()
        subscribe(account, "mine", lambda one: got.put_nowait(one.reply or b""))
        account.publish(
            Origin.CLIENT, b"$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":9,"expires":60000000000}', None, b"mine"
        )
        acks = [await asyncio.wait_for(got.get(), 5) for _ in range(5)]
        assert await asker.codes(stream="S", consumer="C") == ["ack_wait"]
        pending = (await asker.why(stream="S", seq=2))["data"]
        assert pending["code"] == "stored" and pending["subject"] == "s.1"
        (one,) = pending["consumers"]
        assert (one["consumer"], one["code"], one["deliveries"]) == ("C", "pending", 1) and one["until"].endswith("Z")
        for ack in acks:
            await asker_ack(account, ack)
        assert await asker.codes(stream="S", consumer="C") == ["caught_up"]
        assert (await asker.why(stream="S", seq=2))["data"]["consumers"][0]["code"] == "acknowledged"

    run(tmp_path, play)


async def asker_ack(account: Account, subject: bytes) -> None:
    """Acknowledge, and wait until that is durable."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    subscriber = subscribe(account, "acked", lambda _: done.set_result(None))
    account.publish(Origin.CLIENT, subject, b"", None, b"acked")
    await asyncio.wait_for(done, 5)
    subscriber.close()


def test_a_push_consumer_that_nobody_hears_says_so(tmp_path: Path) -> None:
    async def play(server: Server, asker: Asker) -> None:
        await make(asker, "P", deliver_subject="out.p")
        assert await asker.codes(stream="S", consumer="P") == ["not_heard"]
        await make(asker, "Z", pause_until="2090-01-01T00:00:00Z", filter_subject="other.>")
        assert await asker.codes(stream="S", consumer="Z") == ["paused", "filter_outside", "no_requests"]

    run(tmp_path, play)


def test_a_client_that_ignores_flow_control_is_named(tmp_path: Path) -> None:
    async def play(server: Server, asker: Asker) -> None:
        account = server.accounts["$G"]
        await make(asker, "F", deliver_subject="out.f", flow_control=True, idle_heartbeat=30 * 10**9, ack_policy="none")
        got: asyncio.Queue[bytes] = asyncio.Queue()
        subscriber = subscribe(account, "out.f", lambda one: got.put_nowait(one.payload))
        for _ in range(5):
            await asyncio.wait_for(got.get(), 5)
        assert await asker.codes(stream="S", consumer="F") == ["caught_up"]
        for _ in range(8):  # 2 MiB may be under way at first
            await asker.ask(account, "s.large", b"x" * 500_000)
        codes = await asker.codes(stream="S", consumer="F")
        assert codes == ["flow_control"]
        subscriber.close()

    run(tmp_path, play)


def test_a_deleted_message_says_who_took_it(tmp_path: Path) -> None:
    async def play(server: Server, asker: Asker) -> None:
        await make(asker, "C", deliver_policy="new")
        for seq, no_erase, code in ((3, True, "deleted"), (4, False, "erased")):
            assert (await asker.api("STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": no_erase}))["success"]
            told = (await asker.why(stream="S", seq=seq))["data"]
            assert (told["code"], told["is_stored"]) == (code, False)
        assert (await asker.why(stream="S", seq=99))["data"]["code"] == "never"
        await asker.api("STREAM.CREATE.M", {"name": "M", "subjects": ["m"], "storage": "memory", "max_msgs": 1})
        await asker.publish("m")
        await asker.publish("m")
        told = (await asker.why(stream="M", seq=1))["data"]
        assert told["code"] == "gone" and "in memory" in told["text"]

    run(tmp_path, play)


def test_a_question_about_nothing_is_told_what_there_is(tmp_path: Path) -> None:
    async def play(server: Server, asker: Asker) -> None:
        await make(asker, "C")

        async def error(**question: Any) -> str:
            told = await asker.why(**question)
            assert told["error"]["code"] == 500 and told["data"] is None
            text: str = told["error"]["description"]
            return text

        assert await error(stream="X", consumer="C") == 'stream "X" not found on account "$G": S'
        assert await error(stream="S", consumer="X") == 'consumer "X" not found for stream "S": C'
        assert await error(stream="S") == await error(stream="S", consumer="C", seq=1)
        assert "ask about" in await error(stream="S")
        assert await error(account="Y", stream="S", seq=1) == 'account "Y" not found, or without jetstream'
        bad = await asker.ask(server.system, "$SYS.REQ.PENSTOCK.WHY", b'{"seq":"x"}')  # type: ignore[arg-type]
        assert bad["error"]["code"] == 400

    run(tmp_path, play)
