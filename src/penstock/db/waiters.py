"""Waiters: those on an event loop who wait until a position of a stream's log is durable, or known to be lost."""

from __future__ import annotations

import asyncio

from penstock.store.base import Store


class Waiters:
    """Belongs to the thread of its loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, store: Store) -> None:
        self._loop = loop
        self._store = store
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, position: int) -> asyncio.Future[None]:
        """Done when what was appended up to `position` is durable; it raises what the disk said when it was lost."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((position, future))
        return future

    def wake(self) -> None:
        """The log has moved, or was rolled back: tell those whose position is reached."""
        position = self._store.committed_position
        still: list[tuple[int, asyncio.Future[None]]] = []
        for wanted, future in self._waiting:
            if future.done():
                continue
            if wanted > position:
                still.append((wanted, future))
                continue
            try:
                self._store.check_position(wanted)
            except Exception as error:  # noqa: BLE001 - it is handed to the one who waits
                future.set_exception(error)
            else:
                future.set_result(None)
        self._waiting = still

    def fail(self, error: Exception) -> None:
        """Nobody will know any more."""
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()
