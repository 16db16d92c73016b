"""Ages: when messages were taken, by the monotonic clock. Why: docs/decisions/0013-two-times.md.

A message is stored with the time of the machine's clock, which may be set while the process runs. After that clock went
back, a stream's messages get the time of its last message until the clock is past it. A message expires by the time at
which it was taken: its stored time minus its lead, by which the stored time was ahead. Leads change only when the clock
is set.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.store.write.engine import StreamEngine

GRAINS = 1024  # until the clock is past the stream's last time, ages are exact to max_age divided by this
GRAIN_NS_MIN, GRAIN_NS = 1_000_000, 60_000_000_000
SPANS_MAX = 4096
LONG_AGO = -(2**63)


class Ages:
    """The leads of a stream's messages: span n has the sequences from `_firsts[n]` up to before `_firsts[n + 1]`.

    Always true: a message of span n was taken at its stored time minus `_leads[n]`, or slightly before that; but not
    before `_since[n]`, nor after `_since[n + 1]`. `_firsts` and `_since` rise.
    """

    __slots__ = ("_firsts", "_grain_ns", "_leads", "_since")

    def __init__(self, lead_ns: int) -> None:
        """All messages, present and coming, have the lead `lead_ns`."""
        self._firsts, self._leads, self._since = [0], [lead_ns], [LONG_AGO]
        self._grain_ns = GRAIN_NS

    def configure(self, max_age_ns: int) -> None:
        self._grain_ns = max(max_age_ns // GRAINS, GRAIN_NS_MIN) if max_age_ns else GRAIN_NS

    def note_lead(self, first_seq: int, lead_ns: int, now_ns: int, is_late: bool) -> int:
        """Messages have this lead from `first_seq`, the next sequence, on.

        Returns by how much the lead may shrink before the next call. `is_late`: messages get the time of the last one,
        so their lead shrinks as time passes.
        """
        slack_ns = self._grain_ns if is_late else 0
        self.forget_above(first_seq - 1)  # spans in which nothing was stored
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
        """Merge pairs of spans, with the smaller lead: a message expires too late rather than too early."""
        pairs = range(1, len(self._firsts) - 1, 2)
        self._leads = [self._leads[0], *(min(self._leads[n], self._leads[n + 1]) for n in pairs), self._leads[-1]]
        for name in ("_firsts", "_since"):
            kept = getattr(self, name)
            setattr(self, name, [kept[0], *(kept[n] for n in pairs), kept[-1]])
        self._grain_ns *= 2

    def forget_above(self, seq: int) -> None:
        """Forget the sequences above `seq`: they were rolled back or truncated."""
        while len(self._firsts) > 1 and self._firsts[-1] > seq + 1:
            del self._firsts[-1], self._leads[-1], self._since[-1]

    def first_after(self, engine: StreamEngine, limit_ns: int) -> int:
        """The first sequence that was taken after `limit_ns`; the messages below it expire."""
        at = bisect_right(self._since, limit_ns) - 1
        if at > 0:
            del self._firsts[:at], self._leads[:at], self._since[:at]
        found = max(engine.seq_from_time(max(limit_ns + self._leads[0] + 1, LONG_AGO)), self._firsts[0])
        return min(found, self._firsts[1]) if len(self._firsts) > 1 else found

    def taken(self, seq: int, time_ns: int) -> int:
        """When the message at `seq`, stored with the time `time_ns`, was taken."""
        at = bisect_right(self._firsts, seq) - 1
        if at < 0:
            return self._since[0]
        found = time_ns - self._leads[at]
        if at + 1 < len(self._firsts):
            found = min(found, self._since[at + 1])
        return max(found, self._since[at])
