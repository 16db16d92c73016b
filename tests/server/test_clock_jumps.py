"""The machine's clock is set under a running process, by libfaketime; its monotonic clocks are not affected."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from glob import glob
from pathlib import Path
from typing import Any

import pytest

from support.attack import Client, assert_no_trace
from support.servers import ServerProcess

LIBRARIES = sorted(glob("/usr/lib/*/faketime/libfaketime.so.1") + glob("/usr/lib/faketime/libfaketime.so.1"))
NOT_TESTED = "a clock that is set is not tested here: this machine has no libfaketime"
pytestmark = pytest.mark.skipif(not LIBRARIES, reason=NOT_TESTED)

CONFIG = """\
host: 127.0.0.1
port: -1
http: 127.0.0.1:-1
jetstream { store_dir: "$DIR", max_mem: 64MB, max_file: 1GB, durability: os }
"""
S = 10**9
HOUR = 3600
PATIENCE = 60.0  # seconds, for what comes within a few


class MachineClock:
    """The clock of those who run under `environment`."""

    def __init__(self, file: Path) -> None:
        self._file, self.offset = file, 0
        self.set(0)
        self.environment = {
            "LD_PRELOAD": LIBRARIES[0],
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, seconds: int) -> None:
        """Set the clock ahead of the real one by this many seconds; 0 sets it back to the real one."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.rename(self._file)
        self.offset = seconds


@pytest.fixture
def machine(tmp_path: Path) -> MachineClock:
    return MachineClock(tmp_path / "faketime")


LOOK = """\
import logging, sys, time
from penstock.base.clock import SYSTEM
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(levelname)s %(message)s")
for line in sys.stdin:
    before = SYSTEM.now_ns()
    print("at", before, SYSTEM.wall_ns(), time.time_ns(), SYSTEM.now_ns() - before, SYSTEM.changes, flush=True)
"""


class Looker:
    """A process that tells both times when asked."""

    def __init__(self, machine: MachineClock) -> None:
        self._machine = machine
        pipe = subprocess.PIPE
        environment = {**os.environ, **machine.environment}
        self.process = subprocess.Popen(
            [sys.executable, "-c", LOOK], stdin=pipe, stdout=pipe, text=True, env=environment
        )

    def ask(self) -> tuple[list[int], list[str]]:
        """(now, wall, time.time_ns, how long it took, changes), and what was logged before."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        said: list[str] = []
        while not (line := self.process.stdout.readline()).startswith("at"):
            assert line, "it has ended"
            said.append(line.strip())
        return [int(part) for part in line.split()[1:]], said


@pytest.fixture
def looker(machine: MachineClock) -> Iterator[Looker]:
    looker = Looker(machine)
    with looker.process:
        yield looker
    assert looker.process.returncode == 0


def test_the_clock_of_the_process_follows_and_tells_each_jump_once(machine: MachineClock, looker: Looker) -> None:
    (start, wall, real, _, changes), said = looker.ask()
    assert abs(wall - start) < 2_000_000 and 0 <= real - wall < S and changes == 0 and not said
    began = start
    for step, (offset, direction, size) in enumerate(((-HOUR, "back", "1h0m0s"), (90, "forward", "1h1m30s")), 1):
        machine.set(offset)
        (now, wall, real, _, changes), said = looker.ask()
        assert 0 < now - began < PATIENCE * S, "waits do not jump"
        assert abs(wall - now - offset * S) < S // 100 and 0 <= real - wall < S, "what is told to people does"
        assert changes == step and len(said) == 1
        assert said[0].startswith(f"WARNING the clock of the machine went {direction} by {size[:-1]}"), said
        (_, wall, real, _, changes), said = looker.ask()
        assert changes == step and not said and 0 <= real - wall < S


def test_small_steps_are_followed_and_told_of_together(machine: MachineClock, looker: Looker) -> None:
    """For example those of a daemon that adjusts the clock by a fraction of a second every now and then."""
    looker.ask()
    told: list[str] = []
    for step in range(1, 5):
        machine._file.write_text(f"-{step * 0.2:.1f}\n")
        (now, wall, _, _, changes), said = looker.ask()
        assert abs(now - wall - step * S // 5) < S // 20 and changes == step
        told += said
    assert len(told) == 1 and " went back by 600" in told[0]


# The server.


class Running:
    """A server under the machine's clock, and a client of it."""

    def __init__(self, server: ServerProcess, machine: MachineClock) -> None:
        self.server, self.machine = server, machine
        self.client = Client(server.port)

    def set(self, seconds: int) -> None:
        """Set the clock, and return when the server has noticed."""
        direction = "back" if seconds < self.machine.offset else "forward"
        count = sum(" went " in line for line in self.server.log)
        self.machine.set(seconds)
        with self.server._changed:
            assert self.server._changed.wait_for(
                lambda: sum(" went " in line for line in self.server.log) > count, timeout=PATIENCE
            )
        (line,) = [line for line in self.server.log if " went " in line][count:]
        assert f"[WRN] the clock of the machine went {direction} by " in line

    def publish(self, subject: str, **headers: str) -> int:
        lines = [f"{name.replace('_', '-')}: {text}" for name, text in headers.items()]
        head = "\r\n".join(["NATS/1.0", *lines, "", ""]).encode()
        self.client.count += 1
        reply = f"_INBOX.me.{self.client.count}"
        self.client.send(f"HPUB {subject} {reply} {len(head)} {len(head)}\r\n".encode() + head + b"\r\n")
        found = json.loads(self.client.message().payload)
        assert "seq" in found, found
        return int(found["seq"])

    def next(self, consumer: str, **options: Any) -> tuple[int, int]:
        """(stream sequence, deliveries) of the next message; raises if a status arrives instead."""
        body = json.dumps(options).encode()
        self.client.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{consumer}", body, "_INBOX.me.next")
        found = self.client.message(PATIENCE)
        subject = (found.reply or b"").decode().split(".")
        if subject[:2] != ["$JS", "ACK"]:
            raise LookupError(found.headers)
        return int(subject[5]), int(subject[4])

    def consumer(self, name: str, **config: Any) -> None:
        wanted = {"durable_name": name, "ack_policy": "explicit", **config}
        found = self.client.api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": wanted})
        assert "error" not in found, found


@pytest.fixture
def running(machine: MachineClock) -> Iterator[Running]:
    under = ["env", *(f"{name}={text}" for name, text in machine.environment.items())]
    with ServerProcess("ours", CONFIG, under=under) as server:
        found = Running(server, machine)
        yield found
        found.client.close()
        assert_no_trace(server.log)


def test_after_a_jump_back_everything_goes_on_in_time(running: Running) -> None:
    client = running.client
    markers = {"subject_delete_marker_ttl": 60 * S, "allow_rollup_hdrs": True}
    client.create("S", "s.>", max_age=4 * S, allow_msg_ttl=True, **markers)
    running.consumer("work", ack_wait=2 * S, filter_subject="s.work")
    running.publish("s.work")
    assert running.next("work") == (1, 1)
    running.set(-HOUR)
    began = time.monotonic()
    running.publish("s.ttl", Nats_TTL="1s")
    running.publish("s.age")
    assert running.next("work", expires=int(PATIENCE) * S) == (1, 2)
    client.send(b"SUB markers 7\r\n")
    client.ping()
    running.consumer("markers", ack_policy="none", deliver_subject="markers", filter_subject="s.>", headers_only=True)
    seen: dict[str, float] = {}
    while not {"s.ttl", "s.age"} <= seen.keys():
        frame = client.message(PATIENCE)
        if b"Nats-Marker-Reason" in (frame.headers or b""):
            seen[frame.subject.decode()] = time.monotonic() - began
    assert seen["s.ttl"] < PATIENCE and 4 - 0.1 < seen["s.age"] < PATIENCE


def test_after_a_jump_forward_nothing_comes_or_goes_early(running: Running) -> None:
    client = running.client
    client.create("S", "s.>", max_age=600 * S, allow_msg_ttl=True, duplicate_window=600 * S)
    running.consumer("work", ack_wait=600 * S)
    first = running.publish("s.a", Nats_Msg_Id="1")
    running.publish("s.b", Nats_TTL="10m")
    assert running.next("work") == (first, 1)
    running.set(HOUR)
    assert running.next("work") == (2, 1)
    with pytest.raises(LookupError):
        running.next("work", no_wait=True, batch=1)
    assert client.state("S")["messages"] == 2
    assert running.publish("s.a", Nats_Msg_Id="1") == first
    third = running.publish("s.c")
    found = client.api("STREAM.MSG.GET.S", {"seq": third})["message"]["time"]
    assert found[:13] == time.strftime("%Y-%m-%dT%H", time.gmtime(time.time() + HOUR))


def test_a_pause_ends_when_the_clock_says_so(running: Running) -> None:
    client = running.client
    client.create("S", "s.>")
    running.consumer("work")
    running.publish("s.a")
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + HOUR // 2))
    assert client.api("CONSUMER.PAUSE.S.work", {"pause_until": until})["paused"]
    with pytest.raises(LookupError):
        running.next("work", no_wait=True, batch=1)
    client.send(b'PUB $JS.API.CONSUMER.MSG.NEXT.S.work _INBOX.me.waits 26\r\n{"expires": 3600000000000}\r\n')
    client.ping()
    running.set(HOUR)
    assert (client.message(PATIENCE).reply or b"").startswith(b"$JS.ACK.S.work.1.1.")


def test_the_monitor_tells_how_long_not_since_when(running: Running) -> None:
    (line,) = [line for line in running.server.log if "monitor" in line.lower() and "127.0.0.1:" in line][:1]
    port = int(line.rpartition("127.0.0.1:")[2].split()[0].rstrip("/"))

    def ask(page: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=PATIENCE) as answer:
            return dict(json.load(answer))

    for offset in (-HOUR, HOUR):
        running.set(offset)
        varz, (one,) = ask("varz"), ask("connz")["connections"]
        for uptime in (varz["uptime"], one["uptime"], one["idle"]):
            assert "h" not in uptime and "d" not in uptime, uptime
        hour = time.strftime("%Y-%m-%dT%H", time.gmtime(time.time() + offset))
        assert varz["now"][:13] == hour
        assert running.client.is_alive()
