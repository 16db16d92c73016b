"""How long does a watcher of 100,000 keys take until it has them all ("initial done")?

Measured from the request that creates its consumer to the message after which nothing is pending.
"""

from __future__ import annotations

from bench.consumers import WINDOW, read_ordered
from bench.harness import Bench
from bench.load import drive
from bench.server import DISK, NATS, Answer, Running, take_turns
from bench.server_kv import BUCKET


def run(bench: Bench) -> str:
    keys = bench.size(100_000, 2_000)

    def measure(server: Running) -> Answer:
        server.make_stream(**BUCKET)
        # A quarter of the keys is put twice: a bucket in use has gaps.
        drive("publish", server.port, subject="$KV.B.key", keys=keys, count=keys + keys // 4, **WINDOW)
        watch = {"deliver_policy": "last_per_subject", "filter_subject": "$KV.B.>"}
        answer = read_ordered(server, "KV_B", times=bench.size(5, 1), **watch)
        assert answer["messages"] == keys, f"{server.side.name}: {answer['messages']} of {keys} keys"
        return answer

    sides = (NATS, DISK)
    taken = take_turns(bench, sides, measure)
    ratio = taken.of(NATS, "seconds") / taken.of(DISK, "seconds")
    bench.add(f"KV watch of {keys:,} keys to initial done: as fast as nats-server", ratio, "x", at_least=2)
    taken.show(bench, sides, "ms", field="seconds", scale=1e3)
    return "what a client does with the entries; history; a watch of some of the keys"
