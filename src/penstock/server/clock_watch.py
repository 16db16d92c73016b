"""ClockWatch: checks once a second whether the machine's clock was set, or the machine was suspended.

Most waits of the streams do not depend on the wall clock (docs/decisions/0013-two-times.md). Those that do are checked
again: pauses end by the wall clock, and the loop's timers stand still while the machine is suspended.
"""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING

from penstock.base.clock import SYSTEM, Clock

if TYPE_CHECKING:
    import asyncio

    from penstock.broker.streams.endpoint import StreamEndpoint
    from penstock.server.server import Server

LOOK_S = 1.0
SLICE_S = 0.005  # how long streams are notified before the loop does other work


class ClockWatch:
    """Belongs to the loop's thread; runs from `start` to `stop`."""

    def __init__(self, server: Server, clock: Clock = SYSTEM) -> None:
        self._server: Server = weakref.proxy(server)  # the server owns this object
        self._clock = clock
        self._changes = 0
        self._timer: asyncio.Handle | None = None
        self._pending: list[StreamEndpoint] = []

    def start(self) -> None:
        self._changes = self._clock.changes
        self._wait()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._pending.clear()

    def _wait(self) -> None:
        self._timer = self._server.loop.call_later(LOOK_S, self.look)

    def look(self) -> None:
        """Notify the streams if the clock was set."""
        self._clock.wall_ns()  # compares the clocks, and logs a difference
        jetstream = self._server.jetstream
        if self._clock.changes == self._changes or jetstream is None:
            self._wait()
            return
        self._changes = self._clock.changes
        self._pending = [endpoint for account in jetstream.accounts.values() for endpoint in account.streams.values()]
        self._notify()

    def _notify(self) -> None:
        until = time.monotonic() + SLICE_S
        while self._pending and time.monotonic() < until:
            endpoint = self._pending.pop()
            if not endpoint.is_closed:
                endpoint.clock_changed()
        self._server.tick.end()
        if self._pending:
            self._timer = self._server.loop.call_soon(self._notify)
        else:
            self._wait()
