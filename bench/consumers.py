"""Shared by the consumer benches: the settings of the load, and the creation of consumers.

Servers, turns and rows come from `bench.server`; the load is `load fetch`, `work` and `push`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.harness import median
from bench.load import drive
from bench.server import IN_FLIGHT, REFILL, Answer, Running

FETCH: dict[str, str | int] = {"batch": 500, "requests": 3}  # as client iterators do: one ahead
WINDOW: dict[str, str | int] = {"window": IN_FLIGHT, "refill": REFILL}
ACK_PENDING = 20_000
ORDERED = {  # what clients ask for when they replay a stream in order
    "ack_policy": "none",
    "ack_wait": 22 * 3600 * 10**9,
    "max_deliver": 1,
    "flow_control": True,
    "idle_heartbeat": 5 * 10**9,
    "mem_storage": True,
    "num_replicas": 1,
    "deliver_subject": "_INBOX.P",  # where `load push` listens
}


def make_durable(server: Running, name: str, stream: str = "S", **config: Any) -> None:
    """A pull consumer; explicit acks unless told otherwise."""
    wanted = {"ack_policy": "explicit", "durable_name": name, "name": name, **config}
    if wanted["ack_policy"] == "explicit":
        wanted["max_ack_pending"] = ACK_PENDING
    server.request(f"$JS.API.CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": wanted})


def drive_counted(mode: str, server: Running, **wanted: str | int) -> Answer:
    """`drive`, with the server's processor time per message (`cpu_us`), which other processes do not distort."""
    before = _cpu_seconds(server)
    answer = drive(mode, server.port, **wanted)
    answer["cpu_us"] = (_cpu_seconds(server) - before) / answer["messages"] * 1e6
    return answer


def _cpu_seconds(server: Running) -> float:
    """The processor time of all its threads, finer than the ticks of `stat`."""
    threads = Path(f"/proc/{server.pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in threads) / 1e9


def read_ordered(server: Running, stream: str, times: int = 1, **config: Any) -> Answer:
    """Create an ordered push consumer and read it until nothing is pending: the median of `times` such consumers."""
    answers = []
    for n in range(times):
        name = f"ordered{n}"
        wanted = {"stream_name": stream, "config": {**ORDERED, "name": name, **config}}
        answers.append(drive_counted("push", server, stream=stream, consumer=name, config=json.dumps(wanted)))
        server.request(f"$JS.API.CONSUMER.DELETE.{stream}.{name}")
    took = median([answer["seconds"] for answer in answers])
    return next(answer for answer in answers if answer["seconds"] == took)


def bytes_written(server: Running) -> dict[str, int]:
    """Bytes written by the server: to file pages (`write_bytes`), and by all calls, sockets included (`wchar`)."""
    lines = Path(f"/proc/{server.pid}/io").read_text().splitlines()
    return {name: int(value) for name, value in (line.split(":") for line in lines) if name in ("write_bytes", "wchar")}
