"""A server's JetStream without sockets: an account, an inbox, and requests that are answered in the same loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.api.jetstream import JetStream
from penstock.broker.account import Account
from penstock.broker.routing.origin import Origin
from penstock.broker.routing.router import Router
from penstock.broker.tick import Tick
from penstock.db.database import Database
from penstock.server.options import JetStreamLimits, JetStreamOptions, Options
from penstock.testing.inside_client import Heard, subscribe

TIMEOUT_S = 10.0


class Reply:
    """A reply: its status, headers and body."""

    def __init__(self, headers: bytes | None, payload: bytes) -> None:
        self.headers, self.payload = headers, payload

    @property
    def json(self) -> dict[str, Any]:
        found = json.loads(self.payload)
        assert isinstance(found, dict)
        return found

    def __repr__(self) -> str:
        return f"Reply({self.headers!r}, {self.payload!r})"


class Caller:
    """A client in an account that publishes and sends requests."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.received: list[tuple[bytes, bytes]] = []
        self._count = 0

    async def ask(
        self, subject: str, payload: bytes | dict[str, Any] = b"", headers: bytes | None = None, count: int = 1
    ) -> list[Reply]:
        """The first `count` replies, or fewer if a batch ends earlier."""
        self._count += 1
        inbox = f"_INBOX.{id(self)}.{self._count}"
        replies: asyncio.Queue[Reply] = asyncio.Queue()
        subscriber = subscribe(
            self.account, inbox, lambda received: replies.put_nowait(Reply(received.headers, received.payload))
        )
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.account.publish(Origin.CLIENT, subject.encode(), body, headers, inbox.encode())
        self.account.tick.end()
        found: list[Reply] = []
        try:
            while len(found) < count:
                found.append(await asyncio.wait_for(replies.get(), TIMEOUT_S))
                if (found[-1].headers or b"").startswith(b"NATS/1.0 "):
                    break
        finally:
            subscriber.close()
        return found

    async def api(self, subject: str, payload: bytes | dict[str, Any] = b"", headers: bytes | None = None) -> Any:
        """The JSON reply to an API request."""
        return (await self.ask(f"$JS.API.{subject}", payload, headers))[0].json

    async def publish(self, subject: str, payload: bytes = b"", headers: bytes | None = None) -> Any:
        return (await self.ask(subject, payload, headers))[0].json

    def listen(self, subject: str) -> None:
        def hear(received: Heard) -> None:
            self.received.append((received.subject, received.payload))

        subscribe(self.account, subject, hear)


class Place:
    """One loop's JetStream with its accounts."""

    def __init__(self, tick: Tick, jetstream: JetStream, accounts: dict[str, Account]) -> None:
        self.tick, self.jetstream, self.accounts = tick, jetstream, accounts
        self.caller = Caller(accounts["$G"])

    def turn_end(self) -> None:
        self.tick.end()

    async def add(self, name: str, **limits: Any) -> Caller:
        account = self.accounts[name] = Account(name, self.tick)
        await self.jetstream.enable(account, JetStreamLimits(**limits))
        return Caller(account)


@asynccontextmanager
async def opened(path: Path, database: Database | None = None, **options: Any) -> AsyncIterator[Place]:
    loop = asyncio.get_running_loop()
    tick = Tick(loop, Router())
    accounts = {"$G": Account("$G", tick), "$SYS": Account("$SYS", tick)}
    settings = JetStreamOptions(enabled=True, store_dir=str(path), **options)
    host = SimpleNamespace(name="here", loop=loop, options=Options(jetstream=settings), system=accounts["$SYS"])
    jetstream = JetStream(settings, host, database)
    await jetstream.start()
    await jetstream.enable(accounts["$G"], JetStreamLimits())
    try:
        yield Place(tick, jetstream, accounts)
    finally:
        await jetstream.stop()
        tick.close()
