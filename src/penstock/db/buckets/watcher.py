"""Watcher: the iterator that a bucket's `watch` returns, for threads. `penstock.aio.watcher` has the one for event
loops."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

from penstock.db.buckets.watch_source import Fed, WatchSource
from penstock.db.stream import Stream
from penstock.errors import StoreClosed

T = TypeVar("T")


class Watcher(Generic[T], Iterator[T | None]):
    """An endless iterator: the current entries, one None, then every change as it is committed.

    With a timeout it ends when nothing has arrived for that long; iterating again starts a new wait. It also ends with
    `close`, even from another thread, with `with`, when it is garbage-collected, and when the database is closed.
    """

    def __init__(
        self, stream: Stream, feed: WatchSource, convert: Callable[[Fed], T | None], timeout: float | None
    ) -> None:
        """`convert` makes the item to yield from a message; None leaves the message out."""
        self._stream = stream
        self._feed = feed
        self._convert = convert
        self._timeout = timeout
        self._ready: deque[T | None] = deque()
        self._is_closed = False
        self._woken = threading.Event()
        stream.listeners.append(self._woken.set)

    def __iter__(self) -> Watcher[T]:
        return self

    def __next__(self) -> T | None:
        while not self._is_closed:
            if self._ready:
                return self._ready.popleft()
            self._woken.clear()
            try:
                seen = self._stream._head()
                taken = self._feed.take()
                self._ready.extend(converted(taken, self._convert))
                if not taken and not self._stream._wait_for_news(self._woken, seen, self._timeout):
                    break
            except StoreClosed:
                if not self._stream.was_closed:
                    raise  # the stream was deleted
                break
        raise StopIteration

    def close(self) -> None:
        """End the iteration, even one that waits in another thread. Closing twice is harmless."""
        if not self._is_closed:
            self._is_closed = True
            self._stream.listeners.remove(self._woken.set)
            self._woken.set()

    def __enter__(self) -> Watcher[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_woken"):
            self.close()


def converted(taken: list[Fed | None], convert: Callable[[Fed], T | None]) -> Iterator[T | None]:
    """The items to yield for a source's messages; the source's None stays in its place."""
    for fed in taken:
        if fed is None:
            yield None
        elif (entry := convert(fed)) is not None:
            yield entry
