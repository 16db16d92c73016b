"""The memory and CPU time that the process uses, from /proc."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass

_PAGE_SIZE = resource.getpagesize()
_INTERVAL_NS = 1_000_000_000  # the CPU usage is measured over at least this time


@dataclass(slots=True)
class Usage:
    """The CPU usage since the last call, in percent of one core."""

    cpu_percent: float = 0.0
    _at_ns: int = 0
    _cpu_s: float = 0.0

    def update(self) -> float:
        """The CPU usage now, in percent with one decimal, as nats-server shows it."""
        now = time.monotonic_ns()
        used = cpu_seconds()
        if not self._at_ns:
            self._at_ns, self._cpu_s = now, used
        elif now - self._at_ns >= _INTERVAL_NS:
            self.cpu_percent = round((used - self._cpu_s) * 1e11 / (now - self._at_ns), 1)
            self._at_ns, self._cpu_s = now, used
        return self.cpu_percent


def cpu_seconds() -> float:
    """User and system time since the process began."""
    times = os.times()
    return times.user + times.system


def resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE_SIZE


def virtual_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * _PAGE_SIZE


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def cores() -> int:
    return os.cpu_count() or 1


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))
