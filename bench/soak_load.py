"""Shared by all parts of the soak: the server's address, counts of actions and errors, and the end of the load."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import nats
from nats.aio.client import Client
from nats.js.client import JetStreamContext

from bench.soak_wire import WAIT_S, Wire

CYCLE_S_MAX = 120.0  # a longer cycle counts as hung, which is an error
CYCLES_MAX = 1_000_000
ERROR_SIZE_MAX = 160
Cycle = Callable[["Load", random.Random, int], Awaitable[None]]


class Unexpected(Exception):
    """The server behaved incorrectly."""


@dataclass(slots=True)
class Load:
    """One run's load on one server."""

    port: int
    seed: int
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    actions: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)

    async def wire(self, receive_buffer: int = 0) -> Wire:
        return await Wire.connect(self.port, receive_buffer=receive_buffer)

    async def client(self, name: str) -> Client:
        """A nats-py connection; what it tells in the background is an error, too."""

        async def note(error: Exception) -> None:
            self.failed(name, error)

        return await nats.connect(
            f"nats://127.0.0.1:{self.port}", error_cb=note, allow_reconnect=False, connect_timeout=WAIT_S, name=name
        )

    def did(self, action: str, count: int = 1) -> None:
        self.actions[action] += count

    def failed(self, activity: str, error: BaseException) -> None:
        told = " ".join(f"{type(error).__name__}: {error}".split())[:ERROR_SIZE_MAX]
        self.errors[f"{activity}: {told}"] += 1

    async def pause(self, seconds: float) -> bool:
        """Pace the load; true once it is over."""
        try:
            async with asyncio.timeout(seconds):
                await self.is_over.wait()
        except TimeoutError:
            pass
        return self.is_over.is_set()

    async def repeat(self, name: str, cycle: Cycle, every_s: float) -> None:
        """`cycle` again and again, about every so many seconds, until the load is over. An error ends one cycle."""
        chance = random.Random(f"{self.seed} {name}")
        await self.pause(chance.uniform(0, every_s))
        for n in range(CYCLES_MAX):
            if self.is_over.is_set():
                return
            try:
                async with asyncio.timeout(CYCLE_S_MAX):
                    await cycle(self, chance, n)
                self.did(name)
            except Exception as error:  # noqa: BLE001 - whatever the client met is counted, and the load goes on
                self.failed(name, error)
            await self.pause(every_s * chance.uniform(0.5, 1.5))


def jetstream(client: Client) -> JetStreamContext:
    return client.jetstream(timeout=WAIT_S)


@contextmanager
def refused(*kinds: type[Exception]) -> Iterator[None]:
    """What the block asks for must be refused with one of these errors."""
    try:
        yield
    except kinds:
        return
    raise Unexpected(f"not refused: {', '.join(kind.__name__ for kind in kinds)} was expected")


def check(is_so: bool, told: str) -> None:
    if not is_so:
        raise Unexpected(told)
