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

TURN = 64  # messages until other tasks get a turn


class ConsumerMessage(DeliveredMessage):
    """A message that a consumer delivered. It is delivered again after `ack_wait` unless it is acknowledged.

    Acknowledging it twice, or after another client received and acknowledged it, is harmless and returns False.
    """

    __slots__ = ("_consumer",)

    def __init__(self, delivered: Delivered, consumer: Consumer) -> None:
        super().__init__(delivered)
        self._consumer = consumer

    async def ack(self, *, sync: bool = False) -> bool:
        """Acknowledge it: it is not delivered again; with ack policy "all", nor is any earlier message.

        sync: return when the ack is durable (a double ack). Otherwise it is written soon, and after a crash the message
        may be delivered once more. Returns False if the message was not pending (any more).
        """
        sync_face = self._consumer._sync
        if sync:
            return await asyncio.to_thread(sync_face._ack, self, sync)
        return await self._consumer._stream._in_turn(lambda: sync_face._ack(self, sync))

    async def nak(self, delay: Duration | None = None) -> bool:
        """Report failure: deliver it again, at once or after `delay` ("10s", or seconds)."""
        return await self._consumer._stream._in_turn(lambda: self._consumer._sync._nak(self, delay))

    async def term(self, reason: str = "") -> bool:
        """Report that it cannot be processed: never deliver it again. The reason is logged (`logging`, "penstock")."""
        return await self._consumer._stream._in_turn(lambda: self._consumer._sync._term(self, reason))

    async def in_progress(self) -> bool:
        """Report that it is being processed: `ack_wait` starts anew."""
        return await self._consumer._stream._in_turn(lambda: self._consumer._sync._progress(self))


class Consumer:
    """A handle of one consumer on an event loop. Several tasks may fetch from it; each message goes to one of them.

    The handle ends with `async with`, with `close`, or when it is garbage-collected. A consumer without a name is
    deleted with its handle.
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

    # Delivery.

    async def fetch(self, batch: int = 1, timeout: float | None = FETCH_S) -> list[ConsumerMessage]:
        """Up to `batch` messages: all that may be delivered now or, if there are none, the first that may be delivered
        within `timeout` seconds (0: do not wait; None: no limit). Returns an empty list if none arrived."""
        self._sync._check_batch(batch)
        taken = await self._take(batch)
        if not taken.messages and timeout != 0:
            taken = await self._wait_for(batch, timeout)
        return [ConsumerMessage(one, self) for one in taken.messages]

    async def next(self, timeout: float | None = FETCH_S) -> ConsumerMessage | None:
        """The next message; None if none arrived within `timeout` seconds."""
        found = await self.fetch(1, timeout)
        return found[0] if found else None

    async def messages(self, *, timeout: float | None = None, prefetch: int = 1) -> AsyncIterator[ConsumerMessage]:
        """Messages as they arrive, until the handle or the database is closed; with `timeout`, until none has arrived
        for that many seconds.

        prefetch: deliver that many at once and yield them one by one; those that the loop has not reached when it ends
        are delivered again only after `ack_wait`.
        """
        count = 0
        while not self._sync._is_closed:
            try:
                found = await self.fetch(prefetch, timeout)
            except StoreClosed:
                if self._sync._is_closed or self._stream._sync.was_closed:
                    return  # another task closed the handle
                raise
            if not found:
                return
            for message in found:
                yield message
            count += len(found)
            if count >= TURN:  # a long run of messages must not starve other tasks
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
            taking.add_done_callback(self._give_back)  # the waiting task was cancelled
            raise

    def _give_back(self, taking: asyncio.Future[Taken]) -> None:
        """Make messages that reached no caller available again at once; if the store is closed, they are delivered
        after the next open."""
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
        """Acknowledge many messages at once; returns how many were pending. sync: return when that is durable."""
        many = list(messages)
        if sync:
            return await asyncio.to_thread(lambda: self._sync.ack(many, sync=True))
        return await self._stream._in_turn(lambda: self._sync.ack(many))

    # The consumer.

    async def info(self) -> ConsumerInfo:
        """The consumer's configuration and progress."""
        return await asyncio.to_thread(self._sync.info)

    async def pause(self, how_long: Duration | datetime) -> ConsumerInfo:
        """Stop delivering for a while ("10m", or seconds) or until a time; `resume` ends the pause."""
        return await asyncio.to_thread(self._sync.pause, how_long)

    async def resume(self) -> ConsumerInfo:
        """End a pause. Calling it twice is harmless."""
        return await asyncio.to_thread(self._sync.resume)

    async def reset(self, seq: int = 0) -> ConsumerInfo:
        """Start again at a sequence of the stream, or (0) after what is acknowledged. Pending messages are forgotten,
        and deliveries count from 1."""
        return await asyncio.to_thread(self._sync.reset, seq)

    async def close(self) -> None:
        """Close this handle, and delete a consumer without a name. Closing twice is harmless."""
        await asyncio.to_thread(self._sync.close)

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self._sync)
