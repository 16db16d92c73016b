"""What is plugged into the layers: the clock here; the disk is the compiled class `kernel.disk.Disk`.

Time and files come in as arguments, so the same code runs in production, under a fake clock and in a replayed crash.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time; it may jump in either direction, as a machine's clock does."""

    def now_ns(self) -> int:
        """Unix time in nanoseconds."""


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def now_ns(self) -> int:
        return time.time_ns()
