"""ClockWatch: sees once a second whether the machine's clock was set, or the machine has slept.

The waits of the streams do not depend on it (docs/decisions/0013-two-times.md). What does is looked at anew: pauses end
by the machine's clock, and the timers of the loop stood still while the machine slept.
"""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING

from penstock.base.clock import SYSTEM, Clock

if TYPE_CHECKING:
    import asyncio

    from penstock.broker.streams.endpoint import Intake
    from penstock.server.server import Server

LOOK_S = 1.0
SLICE_S = 0.005  # for which streams are told before others have their turn


class ClockWatch:
    """Belongs to the loop's thread; looks from `start` to `stop`."""

    def __init__(self, server: Server, clock: Clock = SYSTEM) -> None:
        self._server: Server = weakref.proxy(server)  # which has us
        self._clock = clock
        self._changes = 0
        self._timer: asyncio.Handle | None = None
        self._untold: list[Intake] = []

    def start(self) -> None:
        self._changes = self._clock.changes
        self._wait()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._untold.clear()

    def _wait(self) -> None:
        self._timer = self._server.loop.call_later(LOOK_S, self.look)

    def look(self) -> None:
        """Tell the streams what has changed, if anything has."""
        self._clock.wall_ns()  # compares, and tells the log
        jetstream = self._server.jetstream
        if self._clock.changes == self._changes or jetstream is None:
            self._wait()
            return
        self._changes = self._clock.changes
        self._untold = [intake for account in jetstream.accounts.values() for intake in account.streams.values()]
        self._tell()

    def _tell(self) -> None:
        until = time.monotonic() + SLICE_S
        while self._untold and time.monotonic() < until:
            intake = self._untold.pop()
            if not intake.is_closed:
                intake.clock_changed()
        self._server.turn.end()
        if self._untold:
            self._timer = self._server.loop.call_soon(self._tell)
        else:
            self._wait()
