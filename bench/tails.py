"""How long the slowest answers take, on a quiet machine and beside a process that keeps one processor busy.

Both servers run all the time; slices of one client on one server take turns. One request at a time.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.harness import ROOT, Bench, median
from bench.load import FOLDER, HERE, drive
from bench.server import NATS, OS, Running, Side

PARTS = ("p50_us", "p90_us", "p99_us", "p999_us")
KINDS = ("core", "publish", "put")
SLICES = 5
SIDES = (NATS, OS)


def run(bench: Bench) -> str:
    clients = ["raw", "nats-py"]
    go = build_go()
    if go is not None:
        clients.append("Go")
    with ExitStack() as stack:
        servers = {side: stack.enter_context(side.start(bench.place(f"tails-{n}"))) for n, side in enumerate(SIDES)}
        for server in servers.values():
            server.make_stream()
        for is_busy in (False, True):
            with hog() if is_busy else ExitStack():
                for client in clients:
                    for kind in KINDS:
                        if client != "raw" or kind != "put":
                            _ask(bench, servers, client, kind, is_busy, go)
    without = "" if go is not None else "the Go client, as there is no go here; "
    return without + "synced publishes; several clients; maxima, which are the host's"


def _ask(bench: Bench, servers: dict[Side, Running], client: str, kind: str, is_busy: bool, go: Path | None) -> None:
    found: dict[Side, list[dict[str, Any]]] = {side: [] for side in servers}
    chance = random.Random(11)
    count = bench.size(3_000, 300)
    for _ in range(bench.size(SLICES, 1)):
        for side in chance.sample(list(servers), len(servers)):  # no side always follows the same one
            found[side].append(_slice(client, kind, servers[side].port, count, go))
    where = "one processor busy" if is_busy else "quiet"
    for part in PARTS:
        theirs, ours = (median(answer[part] for answer in found[side]) for side in SIDES)
        shown = f"  {where}, {client}, {kind}, {part.removesuffix('_us').replace('999', '99.9')}"
        bench.add(f"{shown}: {NATS.name} {theirs:,.0f}", ours, "us", ratio=ours / theirs, ratio_to="of it")


def _slice(client: str, kind: str, port: int, count: int, go: Path | None) -> dict[str, Any]:
    warm = count // 10
    if client == "raw":
        if kind == "core":
            return drive("echo", port, subject="tails.echo", count=count, warm=warm)
        return drive("publish", port, count=count, warm=warm)
    program = [str(go)] if client == "Go" else [sys.executable, "-m", "bench.tails_client"]
    done = subprocess.run([*program, kind, str(port), str(count), str(warm)], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{client} {kind}: {done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@contextmanager
def hog() -> Iterator[None]:
    """A process that keeps one processor busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def build_go() -> Path | None:
    """The Go client, if there is a Go here; the module proxy has what it needs."""
    compiler = shutil.which("go")
    if compiler is None:
        return None
    FOLDER.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [compiler, "build", "-o", FOLDER / "load-go", "."], cwd=HERE / "go", capture_output=True, text=True,
        env=os.environ | {"GOFLAGS": "-mod=readonly"},
    )  # fmt: skip
    if done.returncode:
        print(f"  (no Go client: {done.stderr.strip().splitlines()[-1]})")
        return None
    return FOLDER / "load-go"
