"""Consumer for event loops: the names and rules of `penstock.db.consumer`.

billing = await orders.consumer("billing", filter="orders.eu.>")
for msg in await billing.fetch(100): await msg.ack()
async for msg in billing: ...
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING

from penstock.base.duration import Duration
from penstock.consumer.config import ConsumerConfig
from penstock.consumer.engine import Delivered
from penstock.db import consumer
from penstock.db.consumer import FETCH_S, Taken
from penstock.db.consumer_info import ConsumerInfo
from penstock.db.consumer_message import DeliveredMessage
from penstock.errors import StoreClosed

if TYPE_CHECKING:
    from penstock.aio.stream import Stream

TURN = 64  # messages between two turns of the loop


class ConsumerMessage(DeliveredMessage):
    """A message that a consumer delivered. One that is told nothing comes again after `ack_wait`.

    Telling it something twice, or after somebody else got it and has acknowledged it, is harmless: the answer is False.
    """

    __slots__ = ("_consumer",)

    def __init__(self, delivered: Delivered, consumer: Consumer) -> None:
        super().__init__(delivered)
        self._consumer = consumer

    async def ack(self, *, sync: bool = False) -> bool:
        """It is done, and will not come again; with ack policy "all", everything before it too.

        sync: return when that is durable (a double ack); otherwise it is written soon, and after a crash the message
        may come once more. False: it was not pending (any more).
        """
        sync_face = self._consumer._sync
        if sync:
            return await asyncio.to_thread(sync_face._ack, self, sync)
        return await self._consumer._stream._in_turn(lambda: sync_face._ack(self, sync))

    async def nak(self, delay: Duration | None = None) -> bool:
        """It was not done: let it come again, at once or after `delay` ("10s", or seconds)."""
        return await self._consumer._stream._in_turn(lambda: self._consumer._sync._nak(self, delay))

    async def term(self, reason: str = "") -> bool:
        """It cannot be done: never let it come again. The reason goes to the log (`logging`, "penstock")."""
        return await self._consumer._stream._in_turn(lambda: self._consumer._sync._term(self, reason))

    async def in_progress(self) -> bool:
        """It is being worked on: `ack_wait` begins anew."""
        return await self._consumer._stream._in_turn(lambda: self._consumer._sync._progress(self))


class Consumer:
    """A handle of one consumer on an event loop; several tasks may fetch from it, each message goes to one of them.

    `async with`, `close` and letting go of it end the handle; a consumer without a name goes with it.
    """

    def __init__(self, sync: consumer.Consumer, stream: Stream) -> None:
        self._sync = sync
        self._stream = stream

    @property
    def name(self) -> str:
        return self._sync.name

    @property
    def stream(self) -> Stream:
        return self._stream

    @property
    def config(self) -> ConsumerConfig:
        return self._sync.config

    # Out.

    async def fetch(self, batch: int = 1, timeout: float | None = FETCH_S) -> list[ConsumerMessage]:
        """Up to `batch` messages: those that may be delivered now, or, where there are none, the first that may within
        `timeout` seconds (0: it does not wait; None: as long as it takes). None came: an empty list."""
        self._sync._check_batch(batch)
        taken = await self._take(batch)
        if not taken.messages and timeout != 0:
            taken = await self._wait_for(batch, timeout)
        return [ConsumerMessage(one, self) for one in taken.messages]

    async def next(self, timeout: float | None = FETCH_S) -> ConsumerMessage | None:
        """The next message; None: none came within `timeout` seconds."""
        found = await self.fetch(1, timeout)
        return found[0] if found else None

    async def messages(self, *, timeout: float | None = None, prefetch: int = 1) -> AsyncIterator[ConsumerMessage]:
        """Messages as they come, until the handle or the database is closed; with `timeout`, until none has come for
        so many seconds.

        prefetch: so many are delivered at once and given out one by one; those that the loop has not come to when it
        ends come again only after `ack_wait`.
        """
        count = 0
        while not self._sync._is_closed:
            try:
                found = await self.fetch(prefetch, timeout)
            except StoreClosed:
                if self._sync._is_closed or self._stream._sync.was_closed:
                    return  # by another task: who closes the handle ends the loop
                raise
            if not found:
                return
            for message in found:
                yield message
            count += len(found)
            if count >= TURN:  # where there is always one more: a turn for the others on the loop
                count = 0
                await asyncio.sleep(0)

    def __aiter__(self) -> AsyncIterator[ConsumerMessage]:
        return self.messages()

    async def _take(self, batch: int) -> Taken:
        stream = self._stream.sync_stream
        if stream.try_lock():
            try:
                return self._sync._take(batch)
            finally:
                stream.unlock()
        taking = asyncio.ensure_future(asyncio.to_thread(self._sync._take, batch))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(self._give_back)  # whoever waited for them is gone
            raise

    def _give_back(self, taking: asyncio.Future[Taken]) -> None:
        """Let messages that nobody got come again at once; where the store is closed, they come when it is opened."""
        if taking.cancelled() or taking.exception() is not None:
            return
        with suppress(StoreClosed):
            for one in taking.result().messages:
                self._sync._nak(DeliveredMessage(one), None)

    async def _wait_for(self, batch: int, timeout: float | None) -> Taken:
        loop = asyncio.get_running_loop()
        stop = None if timeout is None else loop.time() + timeout
        news = asyncio.Event()
        self._stream._news.add(news)
        try:
            while True:
                news.clear()
                taken = await self._take(batch)
                now = loop.time()
                if taken.messages or (stop is not None and now >= stop):
                    return taken
                waits = [] if taken.wait_s is None else [now + taken.wait_s]
                try:
                    async with asyncio.timeout_at(min(waits if stop is None else [*waits, stop], default=None)):
                        await news.wait()
                except TimeoutError:
                    continue
        finally:
            self._stream._news.discard(news)

    # Acknowledgements.

    async def ack(self, messages: Iterable[DeliveredMessage], *, sync: bool = False) -> int:
        """Acknowledge many at once: how many were pending. sync: return when that is durable."""
        many = list(messages)
        if sync:
            return await asyncio.to_thread(lambda: self._sync.ack(many, sync=True))
        return await self._stream._in_turn(lambda: self._sync.ack(many))

    # The consumer.

    async def info(self) -> ConsumerInfo:
        """What it is, and how far it has come."""
        return await asyncio.to_thread(self._sync.info)

    async def pause(self, how_long: Duration | datetime) -> ConsumerInfo:
        """Deliver nothing for a while ("10m", or seconds), or until a time; `resume` ends it."""
        return await asyncio.to_thread(self._sync.pause, how_long)

    async def resume(self) -> ConsumerInfo:
        """Deliver again. Twice is harmless."""
        return await asyncio.to_thread(self._sync.resume)

    async def reset(self, seq: int = 0) -> ConsumerInfo:
        """Begin again at a sequence of the stream, or (0) after what is acknowledged: what is pending is forgotten,
        deliveries count from 1."""
        return await asyncio.to_thread(self._sync.reset, seq)

    async def close(self) -> None:
        """End this handle; a consumer without a name goes with it. Twice is harmless."""
        await asyncio.to_thread(self._sync.close)

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._sync)
