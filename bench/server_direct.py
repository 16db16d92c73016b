"""How many messages a second by direct get: one at a time, and in batches of 1,000?"""

from __future__ import annotations

from bench.harness import SUBJECT_COUNT, Bench
from bench.load import drive
from bench.server import DISK, IN_FLIGHT, NATS, Answer, Running, take_turns


def run(bench: Bench) -> str:
    stored = bench.size(300_000, 5_000)
    keys: dict[str, str | int] = {"subject": "bench.k", "keys": SUBJECT_COUNT}

    def measure(server: Running) -> Answer:
        server.make_stream()
        drive("publish", server.port, count=stored, window=IN_FLIGHT, **keys)
        one = drive("direct", server.port, count=bench.size(10_000, 200), warm=500, last_seq=stored)
        last = drive("direct", server.port, count=bench.size(10_000, 200), warm=500, last=1, **keys)
        batch = drive("batch", server.port, count=bench.size(600, 20), warm=20, last_seq=stored)
        return {"one": one["rate"], "one_us": one["p50_us"], "last": last["rate"], "batch": batch["rate"]}

    sides = (NATS, DISK)
    taken = take_turns(bench, sides, measure)
    bench.add("direct get, one at a time: of nats-server's", taken.ratio(DISK, NATS, "one"), "x", at_least=0.7)
    bench.add("direct get, batches of 1,000: of nats-server's", taken.ratio(DISK, NATS, "batch"), "x", at_least=2)
    taken.show(bench, sides, "msg/s", field="one", note=", by chance sequence")
    taken.show(bench, sides, "µs", field="one_us", note=", median of a get")
    taken.show(bench, sides, "msg/s", field="last", note=", last of a subject")
    taken.show(bench, sides, "msg/s", field="batch", note=", batches of 1,000")
    return "a cold cache; several readers; multi-last"
