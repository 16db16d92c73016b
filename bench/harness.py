"""Shared by all benches: result rows, clocks, data sets, and a description of the machine."""

from __future__ import annotations

import gc
import json
import os
import platform
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import penstock
from penstock.testing import FakeClock

ROOT = Path(__file__).resolve().parent.parent
PAYLOAD_SIZE = 128
SUBJECT_COUNT = 1000
PACE_NS = 1_000  # time between two messages of a data set
PENDING_FILTERS = ("a.>", "*.x.*")  # for `many_subjects`: by a prefix and by a token in the middle; each matches half
Message = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class Row:
    """One measured value; with a target if one is set."""

    question: str
    what: str
    value: float
    unit: str
    shown: str
    ratio: float | None = None
    ratio_to: str = ""
    target: str = ""
    is_met: bool | None = None

    @property
    def ratio_shown(self) -> str:
        return f"{self.ratio:.2f}x {self.ratio_to}" if self.ratio is not None else ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Bench:
    """One run: its folder, its scale, and its results."""

    def __init__(self, work: Path, is_quick: bool) -> None:
        self.work = work
        self.is_quick = is_quick
        self.question = ""
        self.rows: list[Row] = []
        self._data: dict[str, Path] = {}

    def size(self, full: int, quick: int) -> int:
        return quick if self.is_quick else full

    def add(
        self,
        what: str,
        value: float,
        unit: str,
        *,
        ratio: float | None = None,
        ratio_to: str = "",
        at_least: float | None = None,
        at_most: float | None = None,
        target: str = "",
    ) -> None:
        """Record a result. The bound applies to the value; its text is `target`, or derived from the bound."""
        is_met = None
        if at_least is not None:
            is_met, target = value >= at_least, target or f">= {_number(at_least)} {unit}"
        elif at_most is not None:
            is_met, target = value <= at_most, target or f"<= {_number(at_most)} {unit}"
        shown = f"{_number(value)} {unit}"
        self.rows.append(Row(self.question, what, value, unit, shown, ratio, ratio_to, target, is_met))

    def place(self, name: str) -> Path:
        path = self.work / name
        path.mkdir()
        return path

    # Data sets that several questions share: each a store with one stream, S.

    def few_subjects(self) -> Path:
        """10 M messages of 128 bytes on 1,000 subjects."""
        return self._stored("few", subjects(SUBJECT_COUNT), self.message_count)

    def spark_rows(self) -> Path:
        """2 M messages of 128 bytes on 1,000 subjects."""
        return self._stored("spark", subjects(SUBJECT_COUNT), self.spark_count)

    def many_subjects(self) -> Path:
        """10 M messages of 128 bytes on 1 M subjects: a.x.N, a.y.N, b.x.N and b.y.N, a quarter each."""
        names = [f"{'ab'[n & 1]}.{'xy'[n >> 1 & 1]}.{n}" for n in range(self.many_count)]
        return self._stored("many", names, self.message_count)

    @property
    def message_count(self) -> int:
        return self.size(10_000_000, 1_000_000)

    @property
    def spark_count(self) -> int:
        return self.size(2_000_000, 200_000)

    @property
    def many_count(self) -> int:
        return self.size(1_000_000, 100_000)

    def _stored(self, name: str, names: list[str], count: int) -> Path:
        if name not in self._data:
            path = self.work / name
            start = time.perf_counter()
            chance = random.Random(2)
            chance.shuffle(names)
            payloads = Payloads(PAYLOAD_SIZE)
            clock = FakeClock(time.time_ns() - count * PACE_NS)  # evenly spaced, whatever the machine's speed
            with penstock.open(path, durability="os", clock=clock) as db:
                stream = db.stream("S", subjects=sorted({name.partition(".")[0] + ".>" for name in names}))
                for at in range(0, count, 10_000):
                    # Every subject once, then random ones.
                    chosen = names[at : at + 10_000] if at + 10_000 <= len(names) else chance.choices(names, k=10_000)
                    stream.publish_many(list(zip(chosen, payloads.take(10_000), strict=True)))
                    clock.advance(10_000 * PACE_NS)
            took = time.perf_counter() - start
            print(f"  ({count:,} messages on {len(names):,} subjects written in {took:.0f} s)", flush=True)
            self._data[name] = path
        return self._data[name]


# Messages.


def subjects(count: int) -> list[str]:
    return [f"orders.r{n % 10}.{n:04d}" for n in range(count)]


class Payloads:
    """Payloads of random bytes, each a separate object."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._pool = random.Random(1).randbytes((1 << 20) + size)
        self._at = 0

    def take(self, count: int) -> list[bytes]:
        pool, size, at = self._pool, self.size, self._at
        self._at = (at + 7919 * count) & 0xFFFFF
        return [pool[k : k + size] for k in (at + 7919 * n & 0xFFFFF for n in range(count))]


class Messages:
    """Batches of (subject, payload), the same for every side."""

    def __init__(self, names: list[str], size: int = PAYLOAD_SIZE) -> None:
        self.names = names
        self._payloads = Payloads(size)
        self._chance = random.Random(3)

    def batch(self, count: int) -> list[Message]:
        return list(zip(self._chance.choices(self.names, k=count), self._payloads.take(count), strict=True))


# Clocks.


@contextmanager
def no_gc() -> Iterator[None]:
    """Disable garbage collection, as timeit does: its pauses must not count for either side."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def rate_of(
    make: Callable[[], Any], use: Callable[[Any], object], count: int, seconds: float, groups: int = 20
) -> float:
    """Items per second: time `use` for about `seconds`, on `count` items that `make` creates off the clock."""
    took, done = 0.0, 0
    with no_gc():
        while took < seconds:
            ready = [make() for _ in range(groups)]
            start = time.perf_counter()
            for one in ready:
                use(one)
            took += time.perf_counter() - start
            done += count * groups
    return done / took


def seconds_of(action: Callable[..., object], *given: object) -> float:
    with no_gc():
        start = time.perf_counter()
        action(*given)
        return time.perf_counter() - start


def median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


# Other processes.


def child(*words: object) -> dict[str, Any]:
    """The answer of `bench/child.py` in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.child", *map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"bench.child {' '.join(map(str, words))}:\n{done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


# Files.


def block_files(store: Path) -> list[Path]:
    return sorted((store / "$G" / "S" / "blocks").glob("*.blk"))


def block_bytes(store: Path) -> int:
    return sum(path.stat().st_size for path in block_files(store))


def warm_cache(store: Path) -> int:
    """Read every file of a store into the page cache (some systems evict idle pages) and return the bytes read."""
    buffer, total = bytearray(1 << 20), 0
    for path in store.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while got := file.readinto(buffer):
                    total += got
    return total


def io_count(field: str) -> int:
    """This process's bytes read ("rchar") or written ("wchar") by calls, for all files."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise KeyError(field)


# The machine.


def machine(work: Path) -> dict[str, Any]:
    cpu = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "?"
    )
    versions = {"Python": platform.python_version(), "penstock": penstock.__version__}
    for name in ("lmdb", "rocksdict", "pyarrow", "pyspark", "nats-py"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "missing"
    versions["SQLite"] = sqlite3.sqlite_version
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "kernel": platform.release(),
        "file_system": file_system(work),
        "load": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "versions": versions,
    }


def file_system(path: Path) -> str:
    """The type and device of the file system that holds `path`."""
    best, found = "", "?"
    for line in _lines("/proc/mounts"):
        device, where, kind = line.split()[:3]
        if (path == Path(where) or Path(where) in path.parents) and len(where) >= len(best):
            best, found = where, f"{kind} ({device})"
    return found


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


# Tables.


def print_table(lines: Iterable[tuple[str, ...]]) -> None:
    """A table with columns of minimal width: text left-aligned, numbers (the second column) right-aligned."""
    table = list(lines)
    if not table:
        return
    widths = [max(len(line[n]) for line in table) for n in range(len(table[0]))]
    for line in table:
        cells = [
            cell.rjust(width) if n == 1 else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def verdict(is_met: bool | None) -> str:
    return "" if is_met is None else "yes" if is_met else "NO"


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
