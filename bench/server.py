"""Shared by the server benches: the sides, a process for each slice, a bare client, turns, and result rows.

Sides take turns in random order, one server at a time, each in a separate process and an empty directory on the same
disk; a rate is the median of its rounds. Before each slice all older data is flushed to disk, so that no side pays for
another's dirty pages.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import Bench, median

ROUNDS = 3
ROUNDS_UNSTEADY = 7  # where a slice hangs on what the host gives its guest just then: fresh memory, a place to run
CALM = 0.1  # of the processors: a slice in which other processes use more is repeated
CALM_WAIT_S = 3.0
SLICES_MAX = 3
KERNEL = "2"  # the parent of the kernel's own threads
IN_FLIGHT = 4000
REFILL = 1000  # so much of the window is free when the generator writes, as a client's flusher does
STREAM = {"name": "S", "subjects": ["bench.>"], "storage": "file", "allow_direct": True}


@dataclass(frozen=True, slots=True)
class Side:
    """A server with its settings, and the guarantee of its acknowledgement."""

    name: str
    program: str  # "nats-server" or "penstock"
    settings: str  # inside its `jetstream` block
    ack: str
    source: str = ""  # where its package is, if not where ours is
    more: str = ""  # settings beside its `jetstream` block

    def start(self, folder: Path) -> Running:
        return Running(self, folder)


NATS = Side("nats-server 2.15.1", "nats-server", "", "written to the page cache")
NATS_ALWAYS = Side("nats-server, sync_interval: always", "nats-server", "sync_interval: always", "synced to disk")
DISK = Side("Penstock", "penstock", "durability: disk", "synced to disk")
OS = Side("Penstock, os", "penstock", "durability: os", "written to the page cache")


class Running:
    """A server in a process of its own, listening, until the block ends."""

    def __init__(self, side: Side, folder: Path) -> None:
        self.side, self.folder = side, folder
        self.port, self.monitor_port = _free_port(), _free_port()
        config = folder / "server.conf"
        config.write_text(
            f'listen: "127.0.0.1:{self.port}"\nhttp: "127.0.0.1:{self.monitor_port}"\n'
            f'jetstream {{\n  store_dir: "{folder / "store"}"\n  {side.settings}\n}}\n{side.more}\n'
        )
        self._log = (folder / "server.log").open("wb")
        words = [*_program(side.program), "-c", str(config)]
        env = os.environ | {"PYTHONPATH": side.source} if side.source else None
        self._process = subprocess.Popen(words, stdout=self._log, stderr=subprocess.STDOUT, env=env)
        self.pid = self._process.pid
        self.exit_code: int | None = None  # of a server that has been stopped

    def __enter__(self) -> Running:
        stop = time.monotonic() + 20
        while True:
            try:
                self.request("$JS.API.INFO")
                return self
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > stop:
                    self.__exit__()
                    log = (self.folder / "server.log").read_text()[-2000:]
                    raise RuntimeError(f"{self.side.name} did not start: {error}\n{log}") from error
                time.sleep(0.02)  # nobody tells: it is asked again

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.exit_code = self._process.returncode
        self._log.close()

    def request(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The JSON answer to one request on a connection of its own; an error in it is raised."""
        given = b"" if body is None else json.dumps(body).encode()
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as wire:
            lines = wire.makefile("rb")
            lines.readline()  # INFO
            wire.sendall(
                b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\nSUB r 1\r\n'
            )
            wire.sendall(b"PUB %s r %d\r\n%s\r\n" % (subject.encode(), len(given), given))
            while not (line := lines.readline()).startswith((b"MSG", b"HMSG")):
                if not line or line.startswith(b"-ERR"):
                    raise ConnectionError(f"{self.side.name} on {subject}: {line!r}")
            got = lines.read(int(line.split()[-1]))
        if line.startswith(b"HMSG"):  # no responders: JetStream is not up yet
            raise ConnectionError(f"{self.side.name} on {subject}: {got!r}")
        answer: dict[str, Any] = json.loads(got)
        if "error" in answer:
            raise RuntimeError(f"{self.side.name} on {subject}: {answer['error']}")
        return answer

    def make_stream(self, **more: Any) -> None:
        config = STREAM | more
        self.request(f"$JS.API.STREAM.CREATE.{config['name']}", config)

    def memory(self) -> dict[str, int]:
        """Resident bytes, and its proportional share of them (a page that several processes map counts in part)."""
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()
        found = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("Rss", "Pss:"))}
        return {name.lower(): int(kib) * 1024 for name, kib in found.items()}


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _program(name: str) -> list[str]:
    if name == "penstock":
        return [sys.executable, "-m", "penstock", "serve"]
    command = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if command is None:
        raise RuntimeError(f"no {name}: pip install 'penstock[bench]'")
    return [command]


Answer = dict[str, Any]


class Taken:
    """The answers of each side, by round."""

    def __init__(self, answers: dict[Side, list[Answer]]) -> None:
        self.answers = answers

    def of(self, side: Side, field: str = "rate") -> float:
        return median(self.each(side, field))

    def each(self, side: Side, field: str = "rate") -> list[float]:
        return [answer[field] for answer in self.answers[side]]

    def ratio(self, side: Side, to: Side, field: str = "rate") -> float:
        return self.of(side, field) / self.of(to, field)

    def show(
        self, bench: Bench, sides: Sequence[Side], unit: str, *, field: str = "rate", scale: float = 1.0, note: str = ""
    ) -> None:
        """A line for each side: median, ratio to the first, what its ack means, how far its rounds lie apart."""
        for side in sides:
            values = sorted(value * scale for value in self.each(side, field))
            ratio = None if side is sides[0] else self.ratio(side, sides[0], field)
            spread = f"{_short(values[0])}–{_short(values[-1])}"
            what = f"  {side.name}{note}: rounds {spread}"
            bench.add(what, median(values), unit, ratio=ratio, ratio_to="of the first" if ratio else "")


def ack_meanings(*sides: Side) -> str:
    return "acks: " + "; ".join(f"{side.name} {side.ack}" for side in sides)


def take_turns(
    bench: Bench, sides: Sequence[Side], measure: Callable[[Running], Answer], rounds: int = ROUNDS
) -> Taken:
    """`measure` on each side in turn, a fresh server and an empty directory each time."""
    answers: dict[Side, list[Answer]] = {side: [] for side in sides}
    others: list[float] = []
    chance = random.Random(7)
    for _ in range(bench.size(rounds, 1)):
        for side in chance.sample(sides, len(sides)):  # none always follows the same other
            slices = [_slice(bench, side, measure)]
            while slices[-1][0] > CALM and len(slices) < bench.size(SLICES_MAX, 1):
                slices.append(_slice(bench, side, measure))
            share, answer = min(slices, key=lambda slice: slice[0])
            answers[side].append(answer)
            others.append(share)
    print(
        f"  others took {min(others):.0%} to {max(others):.0%} of the processors; load {os.getloadavg()[0]:.2f}",
        flush=True,
    )
    return Taken(answers)


def _slice(bench: Bench, side: Side, measure: Callable[[Running], Answer]) -> tuple[float, Answer]:
    """The share of the processors that other processes used meanwhile, and the answer."""
    folder = bench.place("server")
    try:
        with side.start(folder) as server:
            if not bench.is_quick:
                _wait_for_calm(server.pid)
            before = _Cpu.now(server.pid)
            answer = measure(server)
            return _Cpu.now(server.pid).others_share(before), answer
    finally:
        shutil.rmtree(folder)
        os.sync()


def _wait_for_calm(pid: int) -> None:
    """Wait briefly for other processes' load to pass."""
    stop = time.monotonic() + CALM_WAIT_S
    while time.monotonic() < stop:
        before = _Cpu.now(pid)
        time.sleep(0.2)
        if _Cpu.now(pid).others_share(before) <= CALM:
            return


@dataclass(frozen=True, slots=True)
class _Cpu:
    """Processor time so far, in ticks."""

    all: int
    busy: int
    ours: float

    @classmethod
    def now(cls, pid: int) -> _Cpu:
        line = Path("/proc/stat").read_text().split("\n", 1)[0]
        user, nice, system, *rest = (int(each) for each in line.split()[1:9])
        ours = sum(os.times()[:4]) * os.sysconf("SC_CLK_TCK")
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                _, parent, *fields = path.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            if parent == KERNEL or path.parent.name == str(pid):  # the kernel's threads write and sync for us
                ours += int(fields[9]) + int(fields[10])
        return cls(user + nice + system + sum(rest), user + nice + system, ours)

    def others_share(self, before: _Cpu) -> float:
        """The share of all processors used since `before` by others than the server, this process and the generator."""
        taken = (self.busy - before.busy) - (self.ours - before.ours)
        return max(0.0, taken / max(1, self.all - before.all))


def _short(value: float) -> str:
    return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value / 1e3:.1f} k" if value >= 1e4 else f"{value:.4g}"
