"""Cutting: connections that do not read are cut off a few at a time.

Who is cut off leaves its subscriptions, is counted, logged and told of. Where a hundred reach their deadline together,
the others would wait for all of that: after SLICE_S they come first, and the rest is cut in the next turns.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from penstock.server.connection import Connection

SLICE_S = 0.0005


class Cutting:
    """Those that are to be cut off. Always true: while there are some, a call of `_cut` is on its way."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Connection, str, str]] = deque()

    def add(self, connection: Connection, why: str, reason: str) -> None:
        """Cut `connection` off soon; `why` is for the log, `reason` for monitoring."""
        self._waiting.append((connection, why, reason))
        if len(self._waiting) == 1:
            self._loop.call_soon(self._cut)

    def _cut(self) -> None:
        until = perf_counter() + SLICE_S
        try:
            while self._waiting:
                connection, why, reason = self._waiting[0]
                connection.cut_off(why, reason)
                self._waiting.popleft()
                if perf_counter() >= until:
                    break
        except Exception:
            self._waiting.popleft()  # one connection's trouble is not the others'
            raise
        finally:
            if self._waiting:
                self._loop.call_soon(self._cut)
