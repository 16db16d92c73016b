"""How many acknowledged publishes a second with 64 connections, each waiting for its ack before it sends again?"""

from __future__ import annotations

from bench.harness import Bench
from bench.load import drive
from bench.server import DISK, NATS, OS, ROUNDS_UNSTEADY, Answer, Running, ack_meanings, take_turns

CONNECTIONS = 64


def run(bench: Bench) -> str:
    def measure(server: Running) -> Answer:
        server.make_stream()
        return drive("publish", server.port, conns=CONNECTIONS, count=bench.size(2_500, 20), warm=bench.size(250, 2))

    sides = (NATS, DISK, OS)
    taken = take_turns(bench, sides, measure, ROUNDS_UNSTEADY)
    what = "64 connections, one publish in flight each, synced to disk"
    bench.add(f"{what}: of nats-server's", taken.ratio(DISK, NATS), "x", at_least=1.5)
    taken.show(bench, sides, "msg/s")
    taken.show(bench, sides, "µs", field="p50_us", note=", median of a publish")
    taken.show(bench, sides, "µs", field="p99_us", note=", 99th percentile")
    return f"connections that come and go. {ack_meanings(*sides)}"
