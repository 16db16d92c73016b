"""Watcher: what a bucket's `watch` gives, for threads. `penstock.aio.watcher` has the one for event loops."""

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
    """An endless iterator: what there is, one None after it, then every change as it is committed.

    With a timeout it ends when nothing has come for so long; iterating again waits anew. `close` ends it, also from
    another thread; so do `with`, letting go of it, and closing the database.
    """

    def __init__(
        self, stream: Stream, feed: WatchSource, convert: Callable[[Fed], T | None], timeout: float | None
    ) -> None:
        """`convert` makes what is given of a message, None where it is to be left out."""
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
        """End the iteration, also one that waits in another thread. Twice is harmless."""
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
    """What is given of a feed's messages; its None stays where it is."""
    for fed in taken:
        if fed is None:
            yield None
        elif (entry := convert(fed)) is not None:
            yield entry
