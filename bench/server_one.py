"""How long does one publish take on one connection, from the write of the frame to the ack?

The synced one may take what `os` may, and one sync of the disk: a bare pwrite and fdatasync of as many bytes, in the
same run.
"""

from __future__ import annotations

import os
import time

from bench.harness import PAYLOAD_SIZE, Bench, median
from bench.load import drive
from bench.raw import Raw
from bench.server import DISK, NATS, OS, Answer, Running, ack_meanings, take_turns

REACH = 0.7


def run(bench: Bench) -> str:
    def measure(server: Running) -> Answer:
        server.make_stream()
        answer = drive("publish", server.port, count=bench.size(10_000, 200), warm=bench.size(1_000, 20))
        return {**answer, "sync_us": _sync_us(bench)}

    sides = (NATS, OS, DISK)
    taken = take_turns(bench, sides, measure)
    sync_us = median([each for side in sides for each in taken.each(side, "sync_us")])
    bench.add("one connection, one in flight, os: of nats-server's rate", taken.ratio(OS, NATS), "x", at_least=REACH)
    allowed = taken.of(NATS, "p50_us") / REACH + sync_us
    bench.add("  synced to disk: median of a publish", taken.of(DISK, "p50_us"), "µs", at_most=round(allowed))
    taken.show(bench, sides, "msg/s")
    taken.show(bench, sides, "µs", field="p50_us", note=", median of a publish")
    taken.show(bench, sides, "µs", field="p99_us", note=", 99th percentile")
    bench.add("  one bare pwrite and fdatasync, median", sync_us, "µs")
    return f"a network. {ack_meanings(*sides)}"


def _sync_us(bench: Bench) -> float:
    """The median of a small write and its sync, at the end of a file that grows."""
    raw, took = Raw(bench.work / "sync", None), []
    blob = os.urandom(PAYLOAD_SIZE + 40)
    for _ in range(bench.size(200, 20)):
        start = time.perf_counter()
        raw.write([blob])
        took.append((time.perf_counter() - start) * 1e6)
    raw.clear()
    (bench.work / "sync").rmdir()
    return median(took)
