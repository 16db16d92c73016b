"""How many acknowledged KV puts a second into a bucket of 100,000 keys with a history of one, 4,000 in flight?"""

from __future__ import annotations

from bench.harness import Bench
from bench.load import drive
from bench.server import DISK, IN_FLIGHT, NATS, OS, REFILL, Answer, Running, ack_meanings, take_turns

BUCKET = {
    "name": "KV_B",
    "subjects": ["$KV.B.>"],
    "max_msgs_per_subject": 1,
    "discard": "new",
    "allow_rollup_hdrs": True,
    "deny_delete": True,
}


def run(bench: Bench) -> str:
    keys = bench.size(100_000, 2_000)

    def measure(server: Running) -> Answer:
        server.make_stream(**BUCKET)
        window = {"window": IN_FLIGHT, "refill": REFILL}
        # Every key is put once before the clock starts, then they come by chance.
        count = bench.size(200_000 if server.side is NATS else 600_000, 2_000)
        return drive("publish", server.port, subject="$KV.B.key", keys=keys, warm=keys, count=count, **window)

    sides = (NATS, DISK, OS)
    taken = take_turns(bench, sides, measure)
    bench.add("KV put, 100,000 keys, history 1: of nats-server's", taken.ratio(DISK, NATS), "x", at_least=3)
    taken.show(bench, sides, "msg/s")
    return f"history of more than one; watchers. {ack_meanings(*sides)}"
