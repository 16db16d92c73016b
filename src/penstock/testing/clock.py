"""FakeClock: time that moves only when a test says so."""

from __future__ import annotations

from penstock.base.clock import Clock

# 2026-11-01T00:00:00Z: a round number, and far from the zero that would hide a forgotten unit.
START_NS = 1_793_491_200_000_000_000


class FakeClock(Clock):
    """A `Clock` that stands still until `advance` or `set`; `jump` sets the machine's clock, and no time passes."""

    __slots__ = ("_now_ns",)

    def __init__(self, now_ns: int = START_NS) -> None:
        self._now_ns = now_ns

    def now_ns(self) -> int:
        return self._now_ns

    def advance(self, ns: int) -> int:
        """Let `ns` nanoseconds pass; gives the new time."""
        if ns < 0:
            raise ValueError(f"{-ns} ns back: time passes forward, and `jump` sets the machine's clock")
        return self.set(self._now_ns + ns)

    def set(self, now_ns: int) -> int:
        """Stand at another time. Going back is for clocks that nobody has looked at yet."""
        self._now_ns = now_ns
        return now_ns

    def jump(self, ns: int) -> None:
        """Set the machine's clock forward, or back where negative."""
        self.offset_ns += ns
        self.changes += 1
