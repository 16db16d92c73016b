"""How much memory do 1,000 idle connections with 10 subscriptions each take?"""

from __future__ import annotations

import time

from bench.harness import Bench
from bench.load import Idle
from bench.server import DISK, NATS, Answer, Running, take_turns

SETTLE_S = 2.0  # what was needed only to let them in has been given back


def run(bench: Bench) -> str:
    connections = bench.size(1000, 50)

    def measure(server: Running) -> Answer:
        before = server.memory()
        with Idle(server.port, connections, 10):
            time.sleep(SETTLE_S)
            after = server.memory()
        return {**after, "growth": after["pss"] - before["pss"]}

    sides = (NATS, DISK)
    taken = take_turns(bench, sides, measure)
    what = f"{connections:,} idle connections, {10 * connections:,} subscriptions: memory, of nats-server's"
    bench.add(what, taken.ratio(DISK, NATS, "rss"), "x", at_most=1.2)
    taken.show(bench, sides, "MB", field="rss", scale=1e-6, note=", resident")
    taken.show(bench, sides, "MB", field="pss", scale=1e-6, note=", proportional share")
    taken.show(bench, sides, "MB", field="growth", scale=1e-6, note=", of which they brought")
    return "TLS; traffic on them"
