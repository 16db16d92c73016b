"""The load of the soak that stays: a bounded stream and its reader, a work queue and its worker, core traffic, and a
subscriber that does not read and is cut off, again and again.

Every message has a number, so that what was acknowledged can be looked for at the end.
"""

from __future__ import annotations

import asyncio
import random
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.js.api import AckPolicy, ConsumerConfig

from bench.soak_load import Load, Unexpected, check, jetstream, refused
from bench.soak_wire import WAIT_S, Out, Wire

STREAM, QUEUE = "BASE", "WORK"
STREAMS, CONSUMERS = 2, 2  # of the base load
DEDUPE_S = 20
BURST, BURST_EVERY_S = 25, 0.1
WORK_BURST, WORK_EVERY_S = 15, 0.1
ACK_WAIT_S = 2.0
CORE_BURST, CORE_EVERY_S = 100, 0.1
SUBJECTS_OF_CORE = 10**9  # by chance: hardly one comes twice, so that caches of subjects are always full
SLOW_EVERY_S, SLOW_SIZE = 5.0, 16 << 10
FETCH = 200
PADDING = b"." * 120
PAYLOAD = b"." * 1000  # of the bounded stream, so that it fills a block and drops one every half a minute
FILL_BURST = 250
FILLED = 2  # times as many messages as it keeps, before anything is measured
QUEUE_FILL, QUEUE_FILL_SIZE = 120, 100_000  # of the queue: more than a block, for which it needs 5 minutes
# What the server's configuration says, so that a subscriber that does not read is cut off soon, and by both its limits.
MAX_PENDING, WRITE_DEADLINE_S = 8 << 20, 2
RECEIVE_BUFFER = 4096  # the system has little room for what it does not read


@dataclass(slots=True)
class Numbers:
    """Messages that were acknowledged, each with its sequence, and those that came back."""

    seqs: array[int] = field(default_factory=lambda: array("Q"))  # by number; 0: never acknowledged
    came: bytearray = field(default_factory=bytearray)

    def reserve(self, count: int) -> range:
        """So many new numbers."""
        start = len(self.seqs)
        self.seqs.extend([0] * count)
        self.came.extend(bytes(count))
        return range(start, start + count)

    def lost(self) -> list[int]:
        """Numbers that were acknowledged and never came."""
        return [number for number, seq in enumerate(self.seqs) if seq and not self.came[number]]


@dataclass(slots=True)
class Base:
    """The base load: what it has published, and what it has heard of it."""

    load: Load
    max_msgs: int
    stored: Numbers = field(default_factory=Numbers)
    worked: Numbers = field(default_factory=Numbers)
    core_sent: int = 0
    core_came: int = 0
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    _read_on: asyncio.Condition = field(default_factory=asyncio.Condition)
    _first: dict[str, asyncio.Event] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Client]:
        """Established until the block ends; then all that was published is read to its end."""
        client = await self.load.client("base")
        try:
            await self._make(client)
            await self._start(client)
            yield client
            await self._stop()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            await client.close()

    async def _make(self, client: Client) -> None:
        js = jetstream(client)
        await js.add_stream(
            name=STREAM, subjects=["base.>"], max_msgs=self.max_msgs, duplicate_window=DEDUPE_S, allow_direct=True
        )
        await js.add_stream(name=QUEUE, subjects=["work.>"], retention="workqueue")
        async with await self.load.wire() as wire:  # the memory of the block that is written has been used as a whole
            await wire.publish([Out("work.fill", bytes(QUEUE_FILL_SIZE)) for _ in range(QUEUE_FILL)])
        await js.purge_stream(QUEUE)
        await js.add_consumer(
            STREAM, ConsumerConfig(durable_name="reader", ack_policy=AckPolicy.ALL, max_ack_pending=100_000)
        )
        await js.add_consumer(QUEUE, ConsumerConfig(durable_name="worker", ack_wait=ACK_WAIT_S))

    async def _start(self, client: Client) -> None:
        """All of it runs: the stream is full, and a slow subscriber was cut off once for each reason."""
        parts: dict[str, Callable[[asyncio.Event], Awaitable[None]]] = {
            "base publisher": self._publish,
            "base reader": lambda first: self._read(client, first),
            "work publisher": self._queue,
            "worker": lambda first: self._work(client, first),
            "core traffic": self._talk,
            "requests": lambda first: self._request(client, first),
            "slow subscriber": self._be_slow,
        }
        for name, part in parts.items():
            self._first[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._run(name, part), name=name)
        async with asyncio.timeout(10 * WAIT_S):
            for first in self._first.values():
                await first.wait()
        check(not self.load.errors, f"the base load did not start: {dict(self.load.errors)}")

    async def _run(self, name: str, part: Callable[[asyncio.Event], Awaitable[None]]) -> None:
        """One part of the base load; it ends only with it."""
        try:
            await part(self._first[name])
        except Exception as error:  # noqa: BLE001 - it is counted, and fails the run
            self.load.failed(name, error)
            self._first[name].set()

    async def _stop(self) -> None:
        self.is_over.set()
        _, unfinished = await asyncio.wait(self._tasks.values(), timeout=2 * WAIT_S)
        for task in unfinished:
            self.load.failed(task.get_name(), Unexpected("it did not come to its end"))

    async def _pause(self, seconds: float) -> None:
        """Pace the load, until it is over."""
        try:
            async with asyncio.timeout(seconds):
                await self.is_over.wait()
        except TimeoutError:
            pass

    # The bounded stream and its reader.

    async def _publish(self, first: asyncio.Event) -> None:
        """Each message on a subject of its own, with an id; now and then one comes twice and is stored once."""
        chance = random.Random(f"{self.load.seed} base")
        async with await self.load.wire() as wire:
            while len(self.stored.seqs) < FILLED * self.max_msgs:  # blocks have come and gone
                await self._burst(wire, FILL_BURST)
                async with self._read_on:  # what the reader has not read must not be dropped
                    await self._read_on.wait_for(self._reader_keeps_up)
            first.set()
            while not self.is_over.is_set():
                outs = await self._burst(wire, BURST)
                if chance.random() < 0.2:
                    answer = (await wire.publish([chance.choice(outs)]))[0]
                    check(answer.get("duplicate") is True, f"stored twice: {answer}")
                    self.load.did("duplicates")
                await self._pause(BURST_EVERY_S)

    def _reader_keeps_up(self) -> bool:
        newest = len(self.stored.seqs) - FILL_BURST
        return newest < self.max_msgs // 2 or bool(self.stored.came[newest - self.max_msgs // 2])

    async def _burst(self, wire: Wire, count: int) -> list[Out]:
        numbers = self.stored.reserve(count)
        outs = [Out(f"base.{n % 8}.{n}", b"%d %s" % (n, PAYLOAD), f"base-{n}") for n in numbers]
        for n, answer in zip(numbers, await wire.publish(outs), strict=True):
            check("duplicate" not in answer, f"taken for a duplicate: {answer}")
            self.stored.seqs[n] = answer["seq"]
        self.load.did("base publishes", count)
        return outs

    async def _read(self, client: Client, first: asyncio.Event) -> None:
        """A durable pull consumer that follows; at the end it reads until nothing is left."""
        seq = 0
        pull = await jetstream(client).pull_subscribe_bind("reader", STREAM)
        while True:
            is_last = self.is_over.is_set() and self._tasks["base publisher"].done()
            messages = await fetch(pull, FETCH, 1)
            for message in messages:
                at = message.metadata.sequence.stream
                check(at > seq, f"sequence {at} after {seq}")
                seq = at
                self._came(self.stored, message)
            if messages:
                await messages[-1].ack()  # of all before it, too
                async with self._read_on:
                    self._read_on.notify_all()
                first.set()
            elif is_last:
                break
        info = await pull.consumer_info()
        check(info.num_pending == 0, f"the reader is {info.num_pending} behind at the end")

    def _came(self, numbers: Numbers, message: Msg) -> int:
        number = int(message.data.split(b" ", 1)[0])
        numbers.came[number] = 1
        return number

    # The work queue and its worker.

    async def _queue(self, first: asyncio.Event) -> None:
        async with await self.load.wire() as wire:
            while not self.is_over.is_set():
                numbers = self.worked.reserve(WORK_BURST)
                answers = await wire.publish([Out(f"work.{n % 3}", b"%d %s" % (n, PADDING)) for n in numbers])
                for n, answer in zip(numbers, answers, strict=True):
                    self.worked.seqs[n] = answer["seq"]
                self.load.did("work publishes", WORK_BURST)
                first.set()
                await self._pause(WORK_EVERY_S)

    async def _work(self, client: Client, first: asyncio.Event) -> None:
        """Most are acknowledged; some are refused or forgotten, and come again. At the end the queue is empty."""
        chance, publisher = random.Random(f"{self.load.seed} worker"), self._tasks["work publisher"]
        js = jetstream(client)
        pull = await js.pull_subscribe_bind("worker", QUEUE)
        while True:
            is_last = self.is_over.is_set() and publisher.done()
            messages = await fetch(pull, FETCH, 1)
            for message in messages:
                await self._treat(message, chance.random())
                first.set()
            if is_last and not messages and (await pull.consumer_info()).num_ack_pending == 0:
                break
        left = (await js.stream_info(QUEUE)).state.messages
        check(left == 0, f"{left} messages are left in the work queue")

    async def _treat(self, message: Msg, fate: float) -> None:
        if fate < 0.02:
            self.load.did("work forgotten")
            return
        if fate < 0.05:
            await message.nak()
            self.load.did("work refused")
            return
        if fate < 0.1:
            await message.in_progress()
            await message.ack_sync(timeout=WAIT_S)
        else:
            await message.ack()
        self._came(self.worked, message)
        self.load.did("work done")

    # Core traffic.

    async def _talk(self, first: asyncio.Event) -> None:
        """A publisher, a subscriber of everything, and a queue group of two of which one hears each message."""
        chance = random.Random(f"{self.load.seed} core")
        async with await self.load.wire() as publisher, await self.load.wire() as hearer:
            hearer.send(b"SUB core.> 1\r\nSUB core.*.* workers 2\r\nSUB core.> workers 3\r\n")
            await hearer.ping()
            while not self.is_over.is_set():
                outs = [Out(f"core.{chance.randrange(SUBJECTS_OF_CORE)}.x", PADDING) for _ in range(CORE_BURST)]
                publisher.send(b"".join(out.frame() for out in outs))
                await publisher.ping()
                for _ in range(2 * CORE_BURST):
                    await hearer.frame()
                    self.core_came += 1
                self.core_sent += CORE_BURST
                self.load.did("core publishes", CORE_BURST)
                first.set()
                await self._pause(CORE_EVERY_S)
            extra = len(await hearer.ping())
            check(extra == 0, f"{extra} core messages came twice")

    async def _request(self, client: Client, first: asyncio.Event) -> None:
        """Requests that are answered, and one in ten that nobody hears."""

        async def answer(message: Msg) -> None:
            await message.respond(message.data)

        service = await client.subscribe("echo.*", cb=answer)
        await client.flush()
        n = 0
        while not self.is_over.is_set():
            found = await client.request(f"echo.{n}", b"%d" % n, timeout=WAIT_S)
            check(found.data == b"%d" % n, f"an answer to another request: {found.data!r}")
            if n % 10 == 0:
                with refused(NoRespondersError):
                    await client.request(f"nobody.{n}", b"", timeout=WAIT_S)
            self.load.did("requests")
            first.set()
            n += 1
            await self._pause(0.2)
        await service.unsubscribe()

    # The slow subscriber.

    async def _be_slow(self, first: asyncio.Event) -> None:
        """A subscriber that reads nothing: in turn too much waits for it, and something waits for too long."""
        async with await self.load.wire() as publisher:
            n = 0
            while not self.is_over.is_set():
                await self._get_cut(publisher, f"slow.{n}", 3 * MAX_PENDING if n % 2 else MAX_PENDING * 7 // 8)
                self.load.did("slow subscribers cut off")
                n += 1
                if n == 2:
                    first.set()
                await self._pause(SLOW_EVERY_S)

    async def _get_cut(self, publisher: Wire, subject: str, size: int) -> None:
        wire = await self.load.wire(receive_buffer=RECEIVE_BUFFER)
        try:
            wire.send(b"SUB %s 1\r\n" % subject.encode())
            await wire.ping()
            frame = Out(subject, bytes(SLOW_SIZE)).frame()
            for _ in range(size // SLOW_SIZE // 16):
                publisher.send(16 * frame)
                await publisher.ping()
            await asyncio.sleep(2 * WRITE_DEADLINE_S)  # it is slow
            got = await wire.read_to_end()
            check(got < size, "a subscriber that did not read was not cut off")
        finally:
            wire.abort()


async def fetch(pull: Any, count: int, seconds: float) -> list[Msg]:
    """What comes in that time; that nothing came, nats-py says with an error."""
    try:
        found: list[Msg] = await pull.fetch(count, timeout=seconds)
        return found
    except TimeoutError:
        return []
