"""Samples of the server's resources during a soak, and the verdict on them.

A `Sample` is the server at one moment. `judge` compares two windows of the run, and the start of the load with its end.
"""

from __future__ import annotations

import json
import os
import statistics
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GROWTH_MAX = 1.2
WARM_UP_S = 120.0
MB = 1e6
TICKS = os.sysconf("SC_CLK_TCK")
MONITOR_WAIT_S = 20
BLOCK_SIZE = 512  # of st_blocks


@dataclass(frozen=True, slots=True)
class Sample:
    """The server at one moment: sizes in bytes, processor time in seconds since its start."""

    at_s: float
    rss: int
    anonymous: int
    pss: int
    descriptors: int
    threads: int
    cpu_s: float
    disk: int
    streams: int
    consumers: int
    connections: int
    subscriptions: int
    messages: int
    slow_consumers: int


@dataclass(frozen=True, slots=True)
class Probe:
    """The source of samples of one server."""

    pid: int
    monitor_port: int
    store: Path

    def take(self, at_s: float) -> Sample:
        status = _numbers(Path(f"/proc/{self.pid}/status").read_text())
        if "VmRSS" not in status:
            raise RuntimeError("the server has ended")
        rollup = _numbers(Path(f"/proc/{self.pid}/smaps_rollup").read_text())
        descriptors = len(os.listdir(f"/proc/{self.pid}/fd"))  # before our own requests
        ticks = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        server, jetstream = self.ask("varz"), self.ask("jsz")
        return Sample(
            at_s=round(at_s, 3),
            rss=status["VmRSS"] * 1024,
            anonymous=status["RssAnon"] * 1024,
            pss=rollup["Pss"] * 1024,
            descriptors=descriptors,
            threads=status["Threads"],
            cpu_s=sum(map(int, ticks)) / TICKS,
            disk=disk_size(self.store),
            streams=jetstream["streams"],
            consumers=jetstream["consumers"],
            connections=server["connections"],
            subscriptions=server["subscriptions"],
            messages=jetstream["messages"],
            slow_consumers=server["slow_consumers"],
        )

    def ask(self, page: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.monitor_port}/{page}", timeout=MONITOR_WAIT_S) as answer:
            found: dict[str, Any] = json.load(answer)
        return found


def _numbers(text: str) -> dict[str, int]:
    """The lines of a file in /proc that begin with a number after their colon."""
    pairs = (line.split() for line in text.splitlines())
    return {words[0].rstrip(":"): int(words[1]) for words in pairs if len(words) > 1 and words[1].isdecimal()}


def disk_size(folder: Path) -> int:
    """The disk space used by the files below; files may appear and vanish meanwhile."""
    size = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(where, name)).st_blocks * BLOCK_SIZE
            except FileNotFoundError:
                pass
    return size


# The verdict.


@dataclass(frozen=True, slots=True)
class Measure:
    """One column of the samples."""

    name: str
    field: str
    is_judged: bool = False
    unit: float = 1

    def of(self, sample: Sample) -> float:
        value: float = getattr(sample, self.field)
        return value / self.unit

    def shown(self, value: float) -> str:
        return f"{value:,.1f}" if self.unit != 1 else f"{value:,.0f}"


MEASURES = (
    Measure("memory, resident, MB", "rss", True, MB),
    Measure("  anonymous, MB", "anonymous", True, MB),
    Measure("  proportional (PSS), MB", "pss", False, MB),
    Measure("descriptors", "descriptors", True),
    Measure("threads", "threads", True),
    Measure("disk, MB", "disk", False, MB),
    Measure("streams", "streams"),
    Measure("consumers", "consumers"),
    Measure("connections", "connections"),
    Measure("subscriptions", "subscriptions"),
    Measure("messages stored", "messages"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One measure: with the base load alone before and after, and in two windows under the full load."""

    measure: Measure
    before: float
    early: float
    late: float
    after: float

    @property
    def ratio(self) -> float:
        return _ratio(self.late, self.early)

    @property
    def ratio_after(self) -> float:
        return _ratio(self.after, self.before)

    @property
    def has_grown(self) -> bool:
        return self.measure.is_judged and max(self.ratio, self.ratio_after) > GROWTH_MAX

    def cells(self) -> tuple[str, ...]:
        m, word = self.measure, ""
        if m.is_judged:
            word = "GROWN" if self.has_grown else "steady"
        before, early, late, after = (m.shown(value) for value in (self.before, self.early, self.late, self.after))
        return m.name, early, late, f"{self.ratio:.2f}", before, after, f"{self.ratio_after:.2f}", word


HEADING = ("", "early", "late", "ratio", "base before", "base after", "ratio", "")


def _ratio(late: float, early: float) -> float:
    return late / early if early else float("inf") if late else 1.0


@dataclass(frozen=True, slots=True)
class Taken:
    """All samples of a run; `before` and `after` are of the base load alone."""

    before: list[Sample]
    under_load: list[Sample]
    after: list[Sample]

    @property
    def windows(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The first and the last quarter of the time after the warm-up, which short runs have less of."""
        start, end = self.under_load[0].at_s, self.under_load[-1].at_s
        warm = start + min(WARM_UP_S, (end - start) / 4)
        quarter = (end - warm) / 4
        return (warm, warm + quarter), (end - quarter, end)

    def judge(self) -> list[Row]:
        early, late = (self._within(*window) for window in self.windows)
        return [_row(measure, self.before, early, late, self.after) for measure in MEASURES]

    def cpu_share(self) -> float:
        """Processor time of the server under the full load, of one core."""
        first, last = self.under_load[0], self.under_load[-1]
        return (last.cpu_s - first.cpu_s) / max(last.at_s - first.at_s, 1e-9)

    def _within(self, start: float, end: float) -> list[Sample]:
        return [sample for sample in self.under_load if start <= sample.at_s <= end]


def _row(measure: Measure, *moments: list[Sample]) -> Row:
    """The median of each window, so that a subscriber being disconnected at that moment does not count as a change."""
    return Row(measure, *(statistics.median(map(measure.of, samples)) for samples in moments))
