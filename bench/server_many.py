"""How many acknowledged publishes a second with many connections, each waiting for its ack before it sends again?"""

from __future__ import annotations

from collections.abc import Callable

from bench.harness import Bench
from bench.load import drive
from bench.server import DISK, NATS, OS, ROUNDS, ROUNDS_UNSTEADY, Answer, Running, ack_meanings, take_turns

CONNECTIONS = 64
FEWER_AND_MORE = 8, 256  # where a sync is shared by few, and by very many
MESSAGES = 160_000  # of a slice


def run(bench: Bench) -> str:
    def measured(connections: int) -> Callable[[Running], Answer]:
        def measure(server: Running) -> Answer:
            server.make_stream()
            count = MESSAGES // connections
            return drive(
                "publish", server.port, conns=connections, count=bench.size(count, 20), warm=bench.size(count // 10, 2)
            )

        return measure

    sides = (NATS, DISK, OS)
    taken = take_turns(bench, sides, measured(CONNECTIONS), ROUNDS_UNSTEADY)
    what = "64 connections, one publish in flight each, synced to disk"
    bench.add(f"{what}: of nats-server's", taken.ratio(DISK, NATS), "x", at_least=1.5)
    taken.show(bench, sides, "msg/s")
    taken.show(bench, sides, "µs", field="p50_us", note=", median of a publish")
    taken.show(bench, sides, "µs", field="p99_us", note=", 99th percentile")
    for connections in FEWER_AND_MORE:
        taken = take_turns(bench, (NATS, DISK), measured(connections), ROUNDS)
        taken.show(bench, (NATS, DISK), "msg/s", note=f", {connections} connections")
    return f"connections that come and go. {ack_meanings(*sides)}"
