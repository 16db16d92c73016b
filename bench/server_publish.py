"""How many acknowledged publishes a second with 4,000 in flight on one connection?"""

from __future__ import annotations

from bench.harness import Bench
from bench.load import drive
from bench.server import DISK, IN_FLIGHT, NATS, NATS_ALWAYS, OS, REFILL, Answer, Running, ack_meanings, take_turns


def run(bench: Bench) -> str:
    counts = {NATS: 400_000, OS: 1_000_000, DISK: 1_000_000, NATS_ALWAYS: 1_500}

    def measure(server: Running) -> Answer:
        server.make_stream()
        count = bench.size(counts[server.side], 1_000)
        window = {"window": IN_FLIGHT, "refill": REFILL}
        return drive("publish", server.port, count=count, warm=count // 10, **window)

    taken = take_turns(bench, (NATS, DISK, OS, NATS_ALWAYS), measure)
    what = "async publish, 4,000 in flight, of nats-server"
    bench.add(f"{what}'s: synced to disk", taken.ratio(DISK, NATS), "x", at_least=3)
    bench.add(f"{what}'s: durability os", taken.ratio(OS, NATS), "x", at_least=4)
    bench.add(f"{what} with sync_interval: always", taken.ratio(DISK, NATS_ALWAYS), "x", at_least=250)
    taken.show(bench, (NATS, DISK, OS, NATS_ALWAYS), "msg/s")
    busy = max(a["cpu_seconds"] / a["seconds"] for answers in taken.answers.values() for a in answers)
    bench.add("  the generator's own share of a core, at most", busy, "x")
    return f"headers; several streams. {ack_meanings(NATS, DISK, OS, NATS_ALWAYS)}"
