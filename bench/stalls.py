"""How long does one client wait while another has something large done? It pings in a tight loop beside each operation.

python -m bench stalls                                       both servers, all operations
python -m bench.stalls --only purge --side penstock --late   some of them, and when each late answer came
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import socket
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import ROOT, Bench, median
from bench.load import Idle
from bench.pinger import Pinger, Pings
from bench.server import DISK, NATS, Side
from bench.stage import Stage

ROUNDS = 3
AFTER_S = 0.5  # what an operation leaves behind is done within this
READERS, READER_SIZE, READERS_RATE = 100, 8192, 500
SHOWN_MAX = 40
Step = Callable[[Stage], None]


@dataclass(frozen=True, slots=True)
class Operation:
    """What is made ready, and what is measured."""

    name: str
    prepare: Step
    run: Step
    rounds: int = ROUNDS


def _messages(stage: Stage) -> int:
    return stage.bench.size(4_000_000, 40_000)


def _subjects(stage: Stage) -> int:
    return stage.bench.size(999_999, 20_000)


def _few(stage: Stage) -> None:
    stage.fill(_messages(stage), 1000)


def _many(stage: Stage) -> None:
    stage.fill(_messages(stage), _subjects(stage))


def _nothing(stage: Stage) -> None:
    pass


def _read_nothing(stage: Stage) -> None:
    """Subscribers that never read: messages pile up until each is cut at its write deadline."""
    for _ in range(stage.bench.size(READERS, 10)):
        wire, _ = stage.connect()
        stage.closing.callback(wire.close)
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.sendall(b"SUB dead 1\r\n")


def _until_they_are_cut(stage: Stage) -> None:
    wire, _ = stage.connect()
    frame = b"PUB dead %d\r\n%s\r\n" % (READER_SIZE, bytes(READER_SIZE))
    start = time.monotonic()
    for n in range(int(READERS_RATE * 12.5)):
        late = start + n / READERS_RATE - time.monotonic()
        if late > 0:
            time.sleep(late)
        wire.sendall(frame)
    wire.close()


def _purge(stage: Stage, **wanted: Any) -> None:
    stage.ask("$JS.API.STREAM.PURGE.S", wanted or None)


def _update(stage: Stage, **config: Any) -> None:
    stage.ask(
        "$JS.API.STREAM.UPDATE.S",
        {"name": "S", "subjects": ["bench.>"], "storage": "file", "allow_direct": True} | config,
    )


def _age(stage: Stage) -> None:
    _update(stage, max_age=10**9)
    stage.wait(lambda: stage.messages() == 0)


def _interest(stage: Stage) -> None:
    stage.server.make_stream(retention="interest")
    stage.consumer("C")
    stage.publish(stage.bench.size(1_000_000, 20_000), 1000)


def _forget_interest(stage: Stage) -> None:
    stage.ask("$JS.API.CONSUMER.DELETE.S.C")
    stage.wait(lambda: stage.messages() == 0)


def _pending(stage: Stage) -> None:
    count = stage.bench.size(1_000_000, 20_000)
    stage.fill(count, 1000)
    stage.consumer("C", max_ack_pending=count)
    stage.pull(count)


def _taken(stage: Stage) -> None:
    count = stage.bench.size(1_000_000, 20_000)
    stage.fill(count, 1000)
    stage.consumer("C", max_ack_pending=count)


def _monitor(stage: Stage, path: str) -> None:
    port = stage.server.monitor_port
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60) as answer:
        answer.read()


def _connections(stage: Stage) -> None:
    stage.idle = ExitStack()
    stage.closing.callback(stage.idle.close)
    stage.idle.enter_context(Idle(stage.server.port, stage.bench.size(5000, 100), 2))


def _end_connections(stage: Stage) -> None:
    stage.idle.close()


def _subscriptions(stage: Stage) -> None:
    wire, lines = stage.connect()
    for start in range(0, stage.bench.size(500_000, 5000), 1000):
        wire.sendall(b"".join(b"SUB a.%d.b %d\r\n" % (n, n) for n in range(start, start + 1000)))
    wire.sendall(b"PING\r\n")
    lines.readline()
    lines.close()
    stage.wire = wire


def _end_subscriptions(stage: Stage) -> None:
    stage.wire.close()
    time.sleep(0.5)


OPERATIONS = (
    Operation("nothing", _nothing, lambda stage: time.sleep(2)),
    Operation("100 subscribers that never read, cut", _read_nothing, _until_they_are_cut, rounds=1),
    Operation("purge of 4 M messages", _few, _purge),
    Operation("purge of 4 M messages, 1 M subjects", _many, _purge),
    Operation("purge of a subject, 4 M messages", _few, lambda stage: _purge(stage, filter="bench.x.000007")),
    Operation("purge of a wildcard, 4 M messages", _few, lambda stage: _purge(stage, filter="bench.*.>", keep=10)),
    Operation("purge below a sequence", _few, lambda stage: _purge(stage, seq=_messages(stage) // 2)),
    Operation("delete of a stream, 1 M subjects", _many, lambda stage: _delete(stage)),
    Operation("max_msgs lowered to 10", _few, lambda stage: _update(stage, max_msgs=10)),
    Operation("max_msgs_per_subject set to 1", _many, lambda stage: _update(stage, max_msgs_per_subject=1)),
    Operation("max_age: 4 M messages expire", _few, _age),
    Operation("interest: consumer of 1 M deleted", _interest, _forget_interest),
    Operation(
        "publishing to 1 M subjects",
        lambda stage: stage.server.make_stream(),
        lambda stage: stage.publish(_messages(stage), _subjects(stage)),
        rounds=1,
    ),
    Operation(
        "publishing with 1 M ids",
        lambda stage: stage.server.make_stream(),
        lambda stage: stage.publish(stage.bench.size(1_000_000, 20_000), 1000, ids=True),
        rounds=1,
    ),
    Operation(
        "consumer made, filter in the middle", _many, lambda stage: stage.consumer("C", filter_subject="bench.*.*5")
    ),
    Operation("consumer made, prefix", _many, lambda stage: stage.consumer("C", filter_subject="bench.x.>")),
    Operation(
        "consumer made, last per subject",
        _many,
        lambda stage: stage.consumer("C", deliver_policy="last_per_subject", filter_subject="bench.>"),
    ),
    Operation("INFO of 100,000 of 1 M subjects", _many, lambda stage: _info(stage)),
    Operation("MSG.GET last by wildcard", _many, lambda stage: _last(stage)),
    Operation(
        "1 M delivered and not acknowledged",
        _taken,
        lambda stage: stage.pull(stage.bench.size(1_000_000, 20_000)),
        rounds=1,
    ),
    Operation("consumer with 1 M pending deleted", _pending, lambda stage: _drop_consumer(stage)),
    Operation("connz of 5,000 connections", _connections, lambda stage: _monitor(stage, "connz?subs=1&limit=5000")),
    Operation("subsz of 10,000 subscriptions", _connections, lambda stage: _monitor(stage, "subsz?subs=1&limit=10000")),
    Operation("5,000 connections close at once", _connections, _end_connections),
    Operation("a connection with 500,000 subscriptions closes", _subscriptions, _end_subscriptions),
)


def _delete(stage: Stage) -> None:
    stage.ask("$JS.API.STREAM.DELETE.S")


def _drop_consumer(stage: Stage) -> None:
    stage.ask("$JS.API.CONSUMER.DELETE.S.C")


def _info(stage: Stage) -> None:
    stage.ask("$JS.API.STREAM.INFO.S", {"subjects_filter": ">"})


def _last(stage: Stage) -> None:
    for pattern in ("bench.x.*", "bench.>", "*.x.000001"):
        stage.ask("$JS.API.STREAM.MSG.GET.S", {"last_by_subj": pattern})


@dataclass(frozen=True, slots=True)
class Asked:
    """Which operations are measured, on which sides, how often; and what is shown of it."""

    only: str = ""
    sides: tuple[Side, ...] = (NATS, DISK)
    rounds: int = 0  # 0: as the operation says
    is_late_shown: bool = False


def run(bench: Bench, asked: Asked = Asked()) -> str:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    try:
        for operation in OPERATIONS:
            for side in asked.sides if asked.only in operation.name else ():
                _measure(bench, operation, side, asked)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return "a network; what an operation does to its own client; several operations at once"


def _measure(bench: Bench, operation: Operation, side: Side, asked: Asked) -> None:
    found: list[tuple[Pings, float]] = []
    for _ in range(bench.size(asked.rounds or operation.rounds, 1)):
        folder = bench.place("stalls")
        try:
            with side.start(folder) as server, ExitStack() as closing:
                stage = Stage(server, bench, closing)
                operation.prepare(stage)
                os.sync()
                time.sleep(AFTER_S)
                with Pinger(server.port, server.pid) as pinger:
                    start = time.perf_counter()
                    operation.run(stage)
                    seconds = time.perf_counter() - start
                    time.sleep(AFTER_S)
                found.append((pinger.pings, seconds))
        finally:
            shutil.rmtree(folder)
            os.sync()
    waited = ", ".join(f"{pings.max_ms:.1f}" for pings, _ in found)
    p999 = median([pings.p999_ms for pings, _ in found])
    took = median([seconds for _, seconds in found])
    told = f"waited {waited} ms, p99.9 {p999:.2f} ms, took {took * 1e3:.1f} ms"
    bench.add(f"{operation.name}: {side.name}: {told}; busy", median([pings.busy_ms for pings, _ in found]), "ms")
    print(f"  {bench.rows[-1].what} {bench.rows[-1].shown}", flush=True)
    for pings, _ in found if asked.is_late_shown else ():
        worst = sorted(sorted(pings.long, key=lambda one: -one[2])[:SHOWN_MAX])
        print("   ", ", ".join(f"{at:.3f} s: {ms:.1f} ({busy:.1f})" for at, ms, busy in worst), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.stalls", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="operations whose names hold it")
    parser.add_argument("--side", choices=("nats", "penstock"), help="this one alone")
    parser.add_argument("--source", metavar="SRC", help="another build of Penstock alone: the src folder of a clone")
    parser.add_argument("--rounds", type=int, default=0, metavar="N", help=f"of each operation ({ROUNDS}, or 1)")
    parser.add_argument("--late", action="store_true", help="show when the latest answers came, and how late")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    given = parser.parse_args()
    sides = tuple(side for side in (NATS, DISK) if given.side in (None, side.name.lower(), side.program.split("-")[0]))
    if given.source:
        sides = (Side(given.source, "penstock", "durability: disk", "", source=str(Path(given.source).resolve())),)
    with tempfile.TemporaryDirectory(prefix="bench-out-", dir=ROOT) as work:
        run(Bench(Path(work), given.quick), Asked(given.only, sides, given.rounds, given.late))
    return 0


if __name__ == "__main__":
    sys.exit(main())
