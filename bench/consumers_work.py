"""How many messages a second through a work queue (publish, deliver, ack, remove), and at what cost in bytes?

The publisher is never more than a backlog ahead of the worker, so the queue stays short; the clock stops when the ack
floor is at the last message and the stream is empty. The bytes that publishing alone writes are measured on a second
stream of the same server, with as many messages in flight.
"""

from __future__ import annotations

from bench.consumers import FETCH, WINDOW, bytes_written, drive_counted, make_durable
from bench.harness import Bench
from bench.load import drive
from bench.server import DISK, NATS, OS, Answer, Running, ack_meanings, take_turns

BACKLOG = 8_000


def run(bench: Bench) -> str:
    def measure(server: Running) -> Answer:
        count = bench.size(150_000 if server.side is NATS else 500_000, 2_000)
        server.make_stream(name="ALONE", subjects=["alone.>"])
        server.make_stream(retention="workqueue")
        make_durable(server, "worker000")
        drive("publish", server.port, subject="alone.x", count=count // 10, **WINDOW)
        before = bytes_written(server)
        drive("publish", server.port, subject="alone.x", count=count, **WINDOW)
        alone = bytes_written(server)
        wanted = {"consumer": "worker", "acks": 1, "queue": 1, "backlog": BACKLOG, "count": count, **FETCH, **WINDOW}
        answer = drive_counted("work", server, **wanted)
        after = bytes_written(server)
        for name in after:
            answer[f"{name}_alone"] = (alone[name] - before[name]) / count
            answer[name] = (after[name] - alone[name]) / count
            answer[f"{name}_ratio"] = answer[name] / answer[f"{name}_alone"]
        return answer

    sides = (NATS, DISK, OS)
    taken = take_turns(bench, sides, measure)
    what = "work queue, publish → deliver → ack → removed"
    bench.add(f"{what}: of nats-server's", taken.ratio(DISK, NATS), "x", at_least=3)
    for side, note in ((DISK, ""), (OS, ", os")):
        written = taken.of(side, "write_bytes_ratio")
        bench.add(f"  bytes written{note}, of what the publishes alone write", written, "x", at_most=1.15)
    taken.show(bench, sides, "msg/s")
    taken.show(bench, sides, "µs", field="cpu_us", note=", CPU for a message")
    taken.show(bench, sides, "bytes", field="write_bytes", note=", written to files for a message")
    taken.show(bench, sides, "bytes", field="write_bytes_alone", note=", of the publish alone")
    taken.show(bench, sides, "bytes", field="wchar", note=", by write calls (some write sockets so)")
    taken.show(bench, sides, "bytes", field="wchar_alone", note=", by write calls, of the publish alone")
    return f"several workers; redeliveries; a queue that grows. {ack_meanings(*sides)}"
