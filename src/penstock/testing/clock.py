"""FakeClock: time that moves only when a test says so."""

from __future__ import annotations

# 2026-11-01T00:00:00Z: a round number, and far from the zero that would hide a forgotten unit.
START_NS = 1_793_491_200_000_000_000


class FakeClock:
    """A `Clock` that stands still until `advance` or `set`."""

    __slots__ = ("_now_ns",)

    def __init__(self, now_ns: int = START_NS) -> None:
        self._now_ns = now_ns

    def now_ns(self) -> int:
        return self._now_ns

    def advance(self, ns: int) -> int:
        """Move by `ns` nanoseconds, backwards if negative; gives the new time."""
        self._now_ns += ns
        return self._now_ns

    def set(self, now_ns: int) -> None:
        """Jump to `now_ns`, in either direction."""
        self._now_ns = now_ns
