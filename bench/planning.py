"""What does it take to plan a read of 100,000 blocks, and what would 12.5 million take? See docs/cluster.md."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import penstock
from bench.harness import ROOT, SUBJECT_COUNT, Bench, Messages, median, subjects
from penstock.base.disk import Disk
from penstock.scan.plan import open_views, plan
from penstock.store.index.summary import decode_summary
from penstock.testing.many_blocks import ROWS, multiply_blocks

T = TypeVar("T")
SUMMARIES = 1000  # so many are read one by one; the total is extrapolated
LARGEST = 12_500_000  # blocks of 8 MiB in 100 TB


class CountingDisk(Disk):
    """A disk that counts the opened files and the bytes read from them."""

    def __init__(self) -> None:
        self.opened, self.bytes = 0, 0

    def open(self, path: Any, mode: str = "r") -> int:
        self.opened += 1
        return super().open(path, mode)

    def read(self, fd: int, size: int, offset: int = 0) -> bytes:
        found = super().read(fd, size, offset)
        self.bytes += len(found)
        return found


def run(bench: Bench) -> str:
    count = bench.size(100_000, 10_000)
    store = bench.work / "planning"
    _make(store, count)
    found = [_child(store) for _ in range(bench.size(3, 1))]
    one = found[0]
    took = {name: median(each[name] for each in found) for name in ("open", "plan", "slice", "subject")}
    bench.add(f"CHECKPOINT of {count:,} blocks", one["checkpoint"] / 1e6, "MB")
    bench.add("  of it a block", one["checkpoint"] / count, "bytes")
    bench.add(f"open_views, {count:,} blocks", took["open"], "s CPU")
    bench.add("  files opened", float(one["opened"]), "files", at_most=8, target="<= 8: none for each block")
    bench.add("plan, all of it", took["plan"], "s CPU")
    bench.add("  both together, by the clock", median(each["wall"] for each in found), "s")
    bench.add("  parts, as they go to the JVM", one["pickled"] / 1e6, "MB")
    bench.add("  parts", float(one["parts"]), "parts")
    bench.add("plan, 5 % of the time", took["slice"], "s CPU")
    bench.add("plan, one subject", took["subject"], "s CPU")
    bench.add("memory for it, at most", one["rss"] / 1e6, "MB")
    per_block = _one_by_one(bench)
    bench.add(
        "summaries one by one",
        per_block * count,
        "s CPU",
        ratio=per_block * count / (took["open"] + took["plan"]),
        ratio_to="open_views and plan",
    )
    scale = LARGEST / count
    bench.add(f"{LARGEST:,} blocks, counted up: CHECKPOINT", one["checkpoint"] * scale / 1e9, "GB")
    bench.add("  open_views and plan", (took["open"] + took["plan"]) * scale, "s CPU")
    bench.add("  memory", one["rss"] * scale / 1e9, "GB")
    bench.add("  summaries one by one", per_block * LARGEST / 60, "minutes CPU")
    return "a file system that is far away: every file is in the page cache. The counted-up rows are not measured"


def _make(store: Path, count: int) -> None:
    with penstock.open(store, durability="os") as db:
        db.stream("S", subjects=["many.>"]).publish_many([("many.last", b"x" * 100)] * ROWS)
    multiply_blocks(store / "$G/S", count)


def _one_by_one(bench: Bench) -> float:
    """Average seconds to read and parse the summary of a full block."""
    path = bench.work / "summaries"
    with penstock.open(path, durability="os") as db:
        stream = db.stream("S", subjects=["orders.>"])
        messages = Messages(subjects(SUBJECT_COUNT))
        while not (files := list((path / "$G/S/blocks").glob("*.sum"))):
            stream.publish_many(messages.batch(10_000))
    disk, name = Disk(), str(files[0])
    took, _ = _timed(lambda: [decode_summary(disk.read_file(name), name) for _ in range(SUMMARIES)])
    return took / SUMMARIES


def _child(store: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.planning", str(store)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _memory(field: str) -> int:
    """Bytes of this process: "VmRSS" now, "VmHWM" at most."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def _timed(action: Callable[[], T]) -> tuple[float, T]:
    """Processor seconds, which other load on the machine hardly changes."""
    start = time.process_time()
    found = action()
    return time.process_time() - start, found


def measure(store: str) -> dict[str, Any]:
    """In a fresh process: open the store and plan reads of it."""
    before = _memory("VmRSS")
    disk, start = CountingDisk(), time.perf_counter()
    opening, views = _timed(lambda: open_views(store, disk=disk))
    (view,) = views
    planning, parts = _timed(lambda: plan(view))
    wall = time.perf_counter() - start
    after = _memory("VmHWM")
    middle, stop = len(view.blocks) // 2, len(view.blocks) // 2 + len(view.blocks) // 20
    since, until = view.blocks[middle].time_min, view.blocks[stop].time_min
    slicing, _ = _timed(lambda: plan(view, since=since, until=until))
    choosing, _ = _timed(lambda: plan(view, subjects=[f"many.{middle}.1"]))
    return {
        "open": opening,
        "plan": planning,
        "slice": slicing,
        "subject": choosing,
        "wall": wall,
        "opened": disk.opened,
        "read": disk.bytes,
        "checkpoint": os.path.getsize(os.path.join(store, "$G/S/CHECKPOINT")),
        "parts": len(parts),
        "pickled": sum(len(pickle.dumps(part)) for part in parts),
        "rss": after - before,
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
