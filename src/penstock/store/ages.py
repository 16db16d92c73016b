"""Ages: when messages were taken, by the time that never jumps. Why: docs/decisions/0013-two-times.md.

A message is stored with the time of the machine's clock, which may be set while we run. After that went back, messages
of a stream get the time of the last one until the clock is past it. What is too old is judged by when a message was
taken: its time less what that was ahead, its lead. Leads change only where the clock was set.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.store.write.engine import StreamEngine

GRAINS = 1024  # while a stream waits for the clock to be past its last time, ages are known to this part of max_age
GRAIN_NS_MIN, GRAIN_NS = 1_000_000, 60_000_000_000
SPANS_MAX = 4096
LONG_AGO = -(2**63)


class Ages:
    """The leads of a stream's messages: span n has those from `_firsts[n]` on, up to before `_firsts[n + 1]`.

    Always true: what a span has was taken at its time less `_leads[n]`, or a little before that; but not before
    `_since[n]`, nor after `_since[n + 1]`. Firsts and sinces rise.
    """

    __slots__ = ("_firsts", "_grain_ns", "_leads", "_since")

    def __init__(self, lead_ns: int) -> None:
        """Everything that is there, and what comes, was taken at its time less `lead_ns`."""
        self._firsts, self._leads, self._since = [0], [lead_ns], [LONG_AGO]
        self._grain_ns = GRAIN_NS

    def configure(self, max_age_ns: int) -> None:
        self._grain_ns = max(max_age_ns // GRAINS, GRAIN_NS_MIN) if max_age_ns else GRAIN_NS

    def note_lead(self, first_seq: int, lead_ns: int, now_ns: int, is_late: bool) -> int:
        """From `first_seq`, which is the next, on messages have this lead; how much smaller it may become untold.

        `is_late`: they get the time of the last one, and so their lead shrinks as time passes.
        """
        slack_ns = self._grain_ns if is_late else 0
        self.forget_above(first_seq - 1)  # of which nothing was stored
        if self._firsts[-1] == first_seq and len(self._firsts) > 1:
            self._leads[-1] = lead_ns - slack_ns
        else:
            self._firsts.append(first_seq)
            self._leads.append(lead_ns - slack_ns)
            self._since.append(now_ns)
        if len(self._firsts) > SPANS_MAX:
            self._merge()
        return slack_ns

    def _merge(self) -> None:
        """Two spans become one, with the smaller lead: a message goes later rather than too early."""
        pairs = range(1, len(self._firsts) - 1, 2)
        self._leads = [self._leads[0], *(min(self._leads[n], self._leads[n + 1]) for n in pairs), self._leads[-1]]
        for name in ("_firsts", "_since"):
            kept = getattr(self, name)
            setattr(self, name, [kept[0], *(kept[n] for n in pairs), kept[-1]])
        self._grain_ns *= 2

    def forget_above(self, seq: int) -> None:
        """What is above `seq` was rolled back, or cut off."""
        while len(self._firsts) > 1 and self._firsts[-1] > seq + 1:
            del self._firsts[-1], self._leads[-1], self._since[-1]

    def first_after(self, engine: StreamEngine, limit_ns: int) -> int:
        """The first sequence that was taken after `limit_ns`: what is below it was taken by then, and goes."""
        at = bisect_right(self._since, limit_ns) - 1
        if at > 0:
            del self._firsts[:at], self._leads[:at], self._since[:at]
        found = max(engine.seq_from_time(max(limit_ns + self._leads[0] + 1, LONG_AGO)), self._firsts[0])
        return min(found, self._firsts[1]) if len(self._firsts) > 1 else found

    def taken(self, seq: int, time_ns: int) -> int:
        """When the message at `seq` was taken, which has this time."""
        at = bisect_right(self._firsts, seq) - 1
        if at < 0:
            return self._since[0]
        found = time_ns - self._leads[at]
        if at + 1 < len(self._firsts):
            found = min(found, self._since[at + 1])
        return max(found, self._since[at])
