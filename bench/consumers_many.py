"""How many messages a second through 100 durable consumers of one stream, each with a filter of its own?

Once from a full stream, and once while a publisher fills it; every message is fetched and acknowledged, and the clock
stops when all 100 ack floors are at their last message. Ten connections have ten consumers each.
"""

from __future__ import annotations

from bench.consumers import FETCH, WINDOW, drive_counted, make_durable
from bench.harness import Bench
from bench.load import drive
from bench.server import DISK, NATS, Answer, Running, ack_meanings, take_turns

CONSUMERS = 100


def run(bench: Bench) -> str:
    keys: dict[str, str | int] = {"subject": "bench.k", "keys": CONSUMERS, "in_turn": 1}
    wanted: dict[str, str | int] = {"consumers": CONSUMERS, "conns": 10, "acks": 1, **FETCH}

    def measure(server: Running) -> Answer:
        server.make_stream()
        stored = bench.size(150_000, 2_000)
        drive("publish", server.port, count=stored, **keys, **WINDOW)
        for n in range(CONSUMERS):
            make_durable(server, f"C{n:03}", filter_subject=f"bench.k{n:06}")
        from_store = drive_counted("fetch", server, count=stored, **wanted)
        for n in range(CONSUMERS):
            server.request(f"$JS.API.CONSUMER.DELETE.S.C{n:03}")
            make_durable(server, f"C{n:03}", filter_subject=f"bench.k{n:06}", deliver_policy="new")
        published = bench.size(50_000 if server.side is NATS else 300_000, 2_000)
        live = drive_counted("work", server, count=published, **wanted, **keys, **WINDOW)
        cpu = {"stored_us": from_store["cpu_us"], "live_us": live["cpu_us"]}
        return {"stored": from_store["rate"], "live": live["rate"], **cpu}

    sides = (NATS, DISK)
    taken = take_turns(bench, sides, measure)
    for field, what in (("stored", "from what is stored"), ("live", "as it is published")):
        name = f"{CONSUMERS} durable consumers with a filter each, {what}: of nats-server's"
        bench.add(name, taken.ratio(DISK, NATS, field), "x", at_least=3)
        taken.show(bench, sides, "msg/s", field=field)
        taken.show(bench, sides, "µs", field=f"{field}_us", note=", CPU for a message")
    return f"filters that overlap; more connections. {ack_meanings(*sides)}"
