"""How many messages a second with nats-py, end to end: pull subscription, fetch of 500, ack of each?

The client's event loop is the bottleneck: a server can only slow it down.
"""

from __future__ import annotations

from bench.consumers import WINDOW
from bench.harness import Bench, child
from bench.load import drive
from bench.server import DISK, NATS, Answer, Running, ack_meanings, take_turns


def run(bench: Bench) -> str:
    count = bench.size(40_000, 1_000)

    def measure(server: Running) -> Answer:
        server.make_stream()
        drive("publish", server.port, count=count, **WINDOW)
        return child("nats-py", server.port, count)

    sides = (NATS, DISK)
    taken = take_turns(bench, sides, measure)
    bench.add("nats-py, fetch and ack, end to end: of nats-server's", taken.ratio(DISK, NATS), "x", at_least=1)
    taken.show(bench, sides, "msg/s")
    taken.show(bench, sides, "x", field="busy", note=", the client's share of a core")
    taken.show(bench, sides, "µs", field="cpu_us", note=", the client's CPU for a message")
    return f"uvloop; callbacks. {ack_meanings(*sides)}"
