"""How much of the disk's own bandwidth does `disk` reach with larger payloads?

The other side is a bare loop: pwrite the same payload bytes, fdatasync, once per commit; into one file that grows,
and into files that roll at the size of our blocks.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import penstock
from bench.harness import SUBJECT_COUNT, Bench, Messages, median, no_gc, subjects

SLICES = 25
STEADY_MAX = 1.5


def run(bench: Bench) -> str:
    for size, count in ((1024, 1000), (65536, 64)):
        _run(bench, size, count)
    return "our bytes around the payload are not counted (1 KiB: some 3 %); disks whose cache has a battery"


def _run(bench: Bench, size: int, count: int) -> None:
    folder = bench.place(f"bandwidth-{size}")
    commits = max(1, bench.size(24 << 20, 4 << 20) // (size * count))  # per slice
    messages = Messages(subjects(SUBJECT_COUNT), size)
    ready = [messages.batch(count) for _ in range(commits)]
    blobs = [b"".join(payload for _, payload in batch) for batch in ready]
    total = commits * count * size
    rates: dict[str, list[float]] = {"penstock": [], "raw": [], "rolled": []}
    with penstock.open(folder / "penstock", durability="disk") as db:
        stream = db.stream("S", subjects=["orders.>"])
        stream.publish_many(ready[0])
        roll_size = stream.store.limits.block_size
        one, rolled = _Raw(folder / "one", None), _Raw(folder / "rolled", roll_size)

        def ours() -> None:
            for batch in ready:
                stream.publish_many(batch)

        sides: list[tuple[str, Callable[[], None]]] = [
            ("penstock", ours),
            ("raw", lambda: one.write(blobs)),
            ("rolled", lambda: rolled.write(blobs)),
        ]
        chance = random.Random(7)
        with no_gc():
            for _ in range(bench.size(SLICES, 5)):
                for name, side in chance.sample(sides, len(sides)):  # by chance: none always follows the same other
                    start = time.perf_counter()
                    side()
                    rates[name].append(total / (time.perf_counter() - start) / 1e6)
        one.close()
        rolled.close()
    shutil.rmtree(folder)
    own, raw, files = (median(rates[name]) for name in ("penstock", "raw", "rolled"))
    what = f"{size // 1024} KiB payloads, disk"
    spread = max(_spread(found) for found in rates.values())
    # A bare loop that differs from itself by more than the target leaves room for is no measure of anything.
    is_steady = spread <= STEADY_MAX and own <= raw * 1.1
    if is_steady:
        bench.add(f"{what}: of raw write+sync", own / raw, "x", at_least=0.85)
    else:
        bench.add(f"{what}: of raw write+sync", own / raw, "x", target=">= 0.85 x (UNSTEADY: no verdict)")
    bench.add(f"{what}: Penstock, {count} per commit", own, "MB/s")
    bench.add("  raw pwrite+fdatasync, one file", raw, "MB/s", ratio=own / raw, ratio_to="is Penstock's")
    rolled_as = f"  the same, a new file each {roll_size >> 20} MiB"
    bench.add(rolled_as, files, "MB/s", ratio=own / files, ratio_to="is Penstock's")
    bench.add("  a side's fast slices to its slow ones (9th to 1st decile)", spread, "x")


def _spread(rates: list[float]) -> float:
    """How far a side's own slices lie apart."""
    ordered = sorted(rates)
    return ordered[len(ordered) * 9 // 10] / ordered[len(ordered) // 10]


class _Raw:
    """Bytes at the end of a file, synced; with a size, in files of about that size."""

    def __init__(self, folder: Path, roll_size: int | None) -> None:
        folder.mkdir()
        self._folder, self._roll_size = folder, roll_size
        self._fd, self._at, self._number = -1, 0, 0

    def write(self, blobs: list[bytes]) -> None:
        for blob in blobs:
            is_new = self._fd < 0 or (self._roll_size is not None and self._at + len(blob) > self._roll_size)
            if is_new:
                self.close()
                self._number += 1
                self._fd = os.open(self._folder / f"{self._number:06}", os.O_RDWR | os.O_CREAT, 0o600)
                self._at = 0
            self._at += os.pwrite(self._fd, blob, self._at)
            os.fdatasync(self._fd)
            if is_new:
                folder = os.open(self._folder, os.O_RDONLY)
                os.fsync(folder)
                os.close(folder)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
