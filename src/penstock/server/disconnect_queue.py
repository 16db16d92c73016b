"""DisconnectQueue: slow consumers are disconnected a few at a time.

Each disconnect removes subscriptions, counts, logs and publishes an event. If a hundred clients reached their deadline
together, all other clients would wait for that work: after SLICE_S the loop serves them first, and disconnects the rest
in its next ticks.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from penstock.server.connection import Connection

SLICE_S = 0.0005


class DisconnectQueue:
    """Connections to be disconnected. Always true: while there are some, a call of `_disconnect` is scheduled."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Connection, str, str]] = deque()

    def add(self, connection: Connection, why: str, reason: str) -> None:
        """Disconnect `connection` soon; `why` is for the log, `reason` for monitoring."""
        self._waiting.append((connection, why, reason))
        if len(self._waiting) == 1:
            self._loop.call_soon(self._disconnect)

    def _disconnect(self) -> None:
        until = perf_counter() + SLICE_S
        try:
            while self._waiting:
                connection, why, reason = self._waiting[0]
                connection.disconnect(why, reason)
                self._waiting.popleft()
                if perf_counter() >= until:
                    break
        except Exception:
            self._waiting.popleft()  # an error of one connection must not stop the others
            raise
        finally:
            if self._waiting:
                self._loop.call_soon(self._disconnect)
