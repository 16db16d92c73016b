"""How long does a consumer with 100,000 pending messages hold the loop when 1,000 of them are due, and when none is?

In this process, without a server: `take` finds the messages that are due, reads them from the store, gives each a new
deadline and an entry in the consumer log, and makes a Python object of each, which the server would not.
"""

from __future__ import annotations

import time

import penstock
from bench.harness import PAYLOAD_SIZE, Bench, Payloads, median, no_gc
from penstock.consumer.ack_table import EXPLICIT, AckTable
from penstock.consumer.engine import ConsumerEngine

SECOND_NS = 10**9
ACK_WAIT_NS = 1_000 * SECOND_NS
ROUNDS = 9


def run(bench: Bench) -> str:
    pending, due = bench.size(100_000, 10_000), 1_000
    payloads = Payloads(PAYLOAD_SIZE)
    with penstock.open(bench.work / "tick", durability="os") as db:
        stream = db.stream("S", subjects=["bench.x"])
        for _ in range(pending // 10_000):
            stream.publish_many([("bench.x", payload) for payload in payloads.take(10_000)])
        consumer = ConsumerEngine(stream._store.engine, AckTable(EXPLICIT), [])
        consumer.configure([], ACK_WAIT_NS, [], -1, -1, False)
        # 1,000 messages are delivered in each second, and as many come due in each second later.
        for second in range(pending // due):
            assert len(consumer.take(second * SECOND_NS, due)) == due
        took_due, took_none = [], []
        with no_gc():
            for second in range(ROUNDS):
                now = second * SECOND_NS + ACK_WAIT_NS
                took_none.append(_timed(consumer, now - 1, 0))
                took_due.append(_timed(consumer, now, due))
        consumer.close()
    what = f"{pending:,} pending"
    bench.add(f"{what}, {due:,} due: the tick", median(took_due) * 1e3, "ms", at_most=5)
    bench.add(f"{what}, none due: the tick", median(took_none) * 1e6, "µs", at_most=50)
    bench.add("  slowest of the ticks", max(took_due) * 1e3, "ms")
    return "the frames to the clients; the write of the log"


def _timed(consumer: ConsumerEngine, now_ns: int, expected: int) -> float:
    start = time.perf_counter()
    found = consumer.take(now_ns, 10 * (expected or 1))
    took = time.perf_counter() - start
    assert len(found) == expected, f"{len(found)} were due, not {expected}"
    return took
