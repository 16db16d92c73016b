"""How many messages a second are delivered from a stream of 1 M: by pull with and without acks, and by ordered push?

With acks the clock stops when the server's own ack floor is at the last message.
"""

from __future__ import annotations

from bench.consumers import FETCH, WINDOW, drive_counted, make_durable, read_ordered
from bench.harness import Bench
from bench.load import drive
from bench.server import DISK, NATS, Answer, Running, ack_meanings, take_turns


def run(bench: Bench) -> str:
    stored = bench.size(1_000_000, 5_000)

    def measure(server: Running) -> Answer:
        server.make_stream()
        drive("publish", server.port, count=stored, **WINDOW)
        make_durable(server, "bare000", ack_policy="none")
        bare = drive_counted("fetch", server, consumer="bare", count=stored, **FETCH)
        make_durable(server, "acked000")
        count = bench.size(300_000 if server.side is NATS else 1_000_000, 5_000)
        acked = drive_counted("fetch", server, consumer="acked", count=count, acks=1, **FETCH)
        pushed = read_ordered(server, "S")
        assert pushed["messages"] == stored, f"{server.side.name} pushed {pushed['messages']} of {stored}"
        answer = {"busy": max(each["cpu_seconds"] / each["seconds"] for each in (bare, acked, pushed))}
        for name, each in (("bare", bare), ("acked", acked), ("pushed", pushed)):
            answer |= {name: each["rate"], f"{name}_us": each["cpu_us"]}
        return answer

    sides = (NATS, DISK)
    taken = take_turns(bench, sides, measure)
    for what, field, target in (
        ("pull fetch, no acks", "bare", 2),
        ("pull fetch, explicit acks, counted at the ack floor", "acked", 3),
        ("ordered push consumer, replay of 1 M", "pushed", 2),
    ):
        bench.add(f"{what}: of nats-server's", taken.ratio(DISK, NATS, field), "x", at_least=target)
        taken.show(bench, sides, "msg/s", field=field)
        taken.show(bench, sides, "µs", field=f"{field}_us", note=", CPU for a message")
    busy = max(share for side in sides for share in taken.each(side, "busy"))
    bench.add("  the generator's own share of a core, at most", busy, "x")
    return f"a cold cache; filters; several clients of one consumer. {ack_meanings(*sides)}"
