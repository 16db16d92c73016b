"""FakeClock: time that moves only when a test says so."""

from __future__ import annotations

from penstock.base.clock import Clock

# 2026-11-01T00:00:00Z: a round number, far from zero, which would hide a missing unit conversion.
START_NS = 1_793_491_200_000_000_000


class FakeClock(Clock):
    """A `Clock` that stands still until `advance` or `set`; `jump` shifts the wall clock while no time passes."""

    __slots__ = ("_now_ns",)

    def __init__(self, now_ns: int = START_NS) -> None:
        self._now_ns = now_ns

    def now_ns(self) -> int:
        return self._now_ns

    def advance(self, ns: int) -> int:
        """Let `ns` nanoseconds pass and return the new time."""
        if ns < 0:
            raise ValueError(f"{-ns} ns back: time passes forward, and `jump` sets the machine's clock")
        return self.set(self._now_ns + ns)

    def set(self, now_ns: int) -> int:
        """Set the time. Going back is only for clocks that nothing has read yet."""
        self._now_ns = now_ns
        return now_ns

    def jump(self, ns: int) -> None:
        """Shift the wall clock forward, or back if negative."""
        self.offset_ns += ns
        self.changes += 1
