"""How many messages a second from one publisher to one subscriber, and to eight?"""

from __future__ import annotations

from functools import partial

from bench.harness import Bench
from bench.load import drive
from bench.server import DISK, NATS, Answer, Running, take_turns

WINDOW = 16_384  # messages that the slowest subscriber may be behind: no server has to cut it off


def run(bench: Bench) -> str:
    for what, subscribers, full in (("one subscriber", 1, 3_000_000), ("eight subscribers", 8, 700_000)):
        count = bench.size(full, 10_000)
        taken = take_turns(bench, (NATS, DISK), partial(_measure, count, subscribers))
        bench.add(f"core publish → {what}: of nats-server's", taken.ratio(DISK, NATS), "x", at_least=1.5)
        taken.show(bench, (NATS, DISK), "msg/s", note=", delivered")
        taken.show(bench, (NATS, DISK), "s", field="cpu_seconds", note=", CPU of the generator")
        taken.show(bench, (NATS, DISK), "s", field="seconds", note=", of")
    return "wildcards; queue groups; several publishers. No acks: core NATS has none"


def _measure(count: int, subscribers: int, server: Running) -> Answer:
    wanted = {"subs": subscribers, "window": WINDOW, "count": count, "warm": count // 10}
    return drive("core", server.port, subject="core.x", **wanted)
