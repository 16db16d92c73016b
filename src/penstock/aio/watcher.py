"""Watcher: the iterator that a bucket's `watch` returns, for event loops. The one for threads is in
`penstock.db.buckets.watcher`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.db.buckets.watch_source import Fed, WatchSource
from penstock.db.buckets.watcher import converted
from penstock.errors import StoreClosed

if TYPE_CHECKING:
    from penstock.aio.stream import Stream

T = TypeVar("T")


class Watcher(Generic[T], AsyncIterator[T | None]):
    """An endless async iterator: the current entries, one None, then every change as it is committed.

    With a timeout it ends when nothing has arrived for that long; iterating again starts a new wait. It also ends with
    `close`, even while another task waits for it, with `async with`, and when the database is closed.
    """

    def __init__(
        self,
        stream: Stream,
        make_feed: Callable[[], WatchSource],
        convert: Callable[[Fed], T | None],
        timeout: float | None,
        *,
        is_new: bool,
    ) -> None:
        """`convert` makes the item to yield from a message; None leaves the message out. `is_new`: watch changes from
        now on; otherwise the watch begins at the first iteration, with the entries of that moment."""
        self._stream = stream
        self._make_feed = make_feed
        self._feed = make_feed() if is_new else None
        self._convert = convert
        self._timeout = timeout
        self._ready: deque[T | None] = deque()
        self._is_closed = False
        self._news = asyncio.Event()
        stream._news.add(self._news)

    def __aiter__(self) -> Watcher[T]:
        return self

    async def __anext__(self) -> T | None:
        while not self._is_closed:
            if self._ready:
                return self._ready.popleft()
            self._news.clear()
            try:
                seen = self._stream._sync._head()
                taken = await self._stream._in_turn(self._take)
                self._ready.extend(converted(taken, self._convert))
                if taken:
                    continue
                async with asyncio.timeout(self._timeout):
                    await self._stream._next_news(self._news, seen)
            except TimeoutError:
                break
            except StoreClosed:
                if not self._stream._sync.was_closed:
                    raise  # the stream was deleted
                break
        raise StopAsyncIteration

    def _take(self) -> list[Fed | None]:
        if self._feed is None:
            self._feed = self._make_feed()
        return self._feed.take()

    def close(self) -> None:
        """End the iteration. Closing twice is harmless."""
        if not self._is_closed:
            self._is_closed = True
            self._stream._news.discard(self._news)
            self._news.set()

    async def __aenter__(self) -> Watcher[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
