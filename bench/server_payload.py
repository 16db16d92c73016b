"""How many bytes a second with larger payloads: `os` to nats-server, synced to the disk's own bandwidth?

The other side of the synced row is a bare loop of pwrite and fdatasync, with as many bytes to a sync as the server's
commits had. The disk's count of flushes tells (one sync may be several: the loop's own are counted first); where the
kernel keeps none, half a window is taken.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

from bench.harness import Bench, median
from bench.load import drive
from bench.raw import Raw
from bench.server import DISK, NATS, OS, ROUNDS_UNSTEADY, Answer, Running, ack_meanings, take_turns

STEADY_MAX = 2.0
RAW_SLICES = 3  # to each of the server's: they are short
SIDES = (NATS, OS, DISK)


def run(bench: Bench) -> str:
    for size, window, full in ((1024, 4000, 300_000), (65536, 256, 6_000)):
        count = bench.size(full, 300)
        measure = partial(_measure, bench, size, window, count)
        taken = take_turns(bench, SIDES, measure, ROUNDS_UNSTEADY)
        raw_rates = [rate for answer in taken.answers[DISK] for rate in answer["raw_rates"]]
        name = f"{size // 1024} KiB payloads"
        raw = median(raw_rates)
        bench.add(f"{name}, os: of nats-server's", taken.ratio(OS, NATS), "x", at_least=1.3)
        share = taken.of(DISK, "bytes_rate") / raw
        what = f"{name}, synced to disk: of raw write+sync"
        if max(raw_rates) <= STEADY_MAX * min(raw_rates):
            bench.add(what, share, "x", at_least=0.85)
        else:
            bench.add(what, share, "x", target=">= 0.85 x (UNSTEADY: no verdict)")
        taken.show(bench, SIDES, "MB/s", field="bytes_rate", scale=1e-6)
        spread = f"{min(raw_rates) / 1e6:.0f}–{max(raw_rates) / 1e6:.0f}"
        bench.add(f"  raw pwrite+fdatasync: rounds {spread}", raw / 1e6, "MB/s")
        bench.add("  payload bytes to a commit", taken.of(DISK, "commit_size") / 1e6, "MB")
    return f"our bytes around the payload (1 KiB: some 3 %); several streams. {ack_meanings(*SIDES)}"


def _measure(bench: Bench, size: int, window: int, count: int, server: Running) -> Answer:
    server.make_stream()
    wanted = {"size": size, "window": window, "refill": window // 32, "frames": window}
    drive("publish", server.port, count=window, **wanted)
    before = _flushes(server.folder)
    answer = drive("publish", server.port, count=count, **wanted)
    after = _flushes(server.folder)
    answer["bytes_rate"] = answer["rate"] * size
    if server.side is DISK:
        total = size * count
        commits = total / (size * window / 2)
        if before is not None and after is not None:
            commits = (after - before) / _flushes_of_a_sync(bench)
        commit_size = max(size, round(total / max(1.0, commits)))
        answer["commit_size"] = commit_size
        answer["raw_rates"] = [_raw_rate(bench, commit_size, total) for _ in range(RAW_SLICES)]
    return answer


def _raw_rate(bench: Bench, commit_size: int, total: int) -> float:
    """Bytes per second of the bare loop, from an empty file."""
    blobs = [os.urandom(commit_size)] * max(1, total // commit_size)
    raw = Raw(bench.work / "raw", None)
    start = time.perf_counter()
    raw.write(blobs)
    took = time.perf_counter() - start
    raw.clear()
    (bench.work / "raw").rmdir()
    return commit_size * len(blobs) / took


def _flushes_of_a_sync(bench: Bench) -> float:
    before = _flushes(bench.work)
    _raw_rate(bench, 1 << 20, 32 << 20)
    after = _flushes(bench.work)
    assert before is not None and after is not None
    return max(1.0, (after - before) / 32)


def _flushes(path: Path) -> int | None:
    """How often the disk of `path` was told to flush its cache; None where the kernel does not say."""
    device = os.stat(path).st_dev
    counts = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    fields = counts.read_text().split() if counts.exists() else []
    return int(fields[15]) if len(fields) > 15 else None
