"""The server under load: start it, drive it with nats-py, kill it with -9, and count what it had acknowledged.

    python examples/server.py [demo-out] [--seconds 3]

The third part of the demo. Clients are ordinary ones (nats-py); the server is `penstock serve` in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import nats
from story import Story

import penstock

CLIENTS = 4
IN_FLIGHT = 250  # publishes of each client that are not yet acknowledged


class Served:
    """`penstock serve` on any port, as its ports file says."""

    def __init__(self, data: str, log: str) -> None:
        ports = tempfile.mkdtemp(prefix="penstock-demo-")
        command = [
            sys.executable,
            "-m",
            "penstock",
            "serve",
            "-js",
            "-sd",
            data,
            "-a",
            "127.0.0.1",
            "-p",
            "-1",
            "-m",
            "-1",
        ]
        began = time.perf_counter()
        with open(log, "a") as out:
            self.process = subprocess.Popen([*command, "--ports_file_dir", ports], stderr=out)
        while not (found := list(Path(ports).glob("*.ports"))):
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended with exit code {self.process.returncode}: see {log}")
            time.sleep(0.005)
        self.ready_s = time.perf_counter() - began
        facts = json.loads(found[0].read_text())
        self.url, self.monitor = facts["nats"][0], facts["monitoring"][0]
        shutil.rmtree(ports)


async def drive(url: str) -> list[int]:
    """Publish with several clients until the server is gone: the acknowledged sequences."""
    acked: list[int] = []

    async def client(name: str) -> None:
        async def gone(error: Exception) -> None:
            """The server was killed: that is what we are here for."""

        nc = await nats.connect(url, allow_reconnect=False, error_cb=gone)
        js = nc.jetstream()
        number = 0
        while True:
            work = [js.publish(f"orders.{name}", b"order %d" % (number + n), timeout=2) for n in range(IN_FLIGHT)]
            number += IN_FLIGHT
            done = await asyncio.gather(*work, return_exceptions=True)
            acked.extend(ack.seq for ack in done if not isinstance(ack, BaseException))
            if any(isinstance(ack, BaseException) for ack in done):
                break
        with contextlib.suppress(nats.errors.Error, OSError):
            await nc.close()

    await asyncio.gather(*(client(f"c{n}") for n in range(CLIENTS)))
    return acked


async def prepare(url: str) -> str:
    nc = await nats.connect(url)
    js = nc.jetstream()
    await js.add_stream(name="ORDERS", subjects=["orders.>"])
    ack = await js.publish("orders.first", b"hello")
    await nc.close()
    return f"{nc.connected_server_version} acknowledged sequence {ack.seq}"


async def look(url: str, acked: list[int]) -> tuple[int, int]:
    """How many of the acknowledged sequences the server has, and its last sequence."""
    nc = await nats.connect(url)
    js = nc.jetstream()
    info = await js.stream_info("ORDERS")
    there = await asyncio.gather(*(js.get_msg("ORDERS", seq) for seq in acked[:: max(len(acked) // 500, 1)]))
    ack = await js.publish("orders.after", b"and on")
    await nc.close()
    assert ack.seq == info.state.last_seq + 1
    return len(there), info.state.last_seq


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", nargs="?", default="demo-out")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--number", type=int, default=0)
    asked = parser.parse_args()
    data, log = os.path.join(asked.out, "served"), os.path.join(asked.out, "server.log")
    os.makedirs(asked.out, exist_ok=True)
    shutil.rmtree(data, ignore_errors=True)
    Path(log).unlink(missing_ok=True)
    story = Story(asked.number)

    story.step("A NATS server on the same store: penstock serve -js.")
    served = Served(data, log)
    story.say(f"ready after {served.ready_s:.2f} s on {served.url}; monitoring on {served.monitor}")
    story.took(asyncio.run(prepare(served.url)))

    story.step(f"{CLIENTS} ordinary clients (nats-py) publish, {IN_FLIGHT} in flight each; then kill -9.")

    async def under_load() -> list[int]:
        load = asyncio.create_task(drive(served.url))
        await asyncio.sleep(asked.seconds)
        with urllib.request.urlopen(f"{served.monitor}/healthz") as answer:
            story.say(f"healthz in the middle of it: {answer.read().decode().strip()}")
        os.kill(served.process.pid, signal.SIGKILL)
        return await load

    acked = asyncio.run(under_load())
    served.process.wait()
    rate = len(acked) / asked.seconds
    story.took(f"killed; {len(acked):,} publishes had been acknowledged, {rate:,.0f}/s (the clients' pace)")

    story.step("Start it again, and look for every acknowledged message.")
    served = Served(data, log)
    sampled, last_seq = asyncio.run(look(served.url, acked))
    story.say(f"{sampled} of them asked for over the API: all there; the last sequence is {last_seq:,}, and it goes on")
    served.process.send_signal(signal.SIGTERM)
    story.say(f"SIGTERM: exit code {served.process.wait()}")
    with penstock.open(data, read_only=True) as db:  # the other door to the same streams
        stored = {message.seq for message in db.stream("ORDERS").read()}
    missing = set(acked) - stored
    story.took(f"{len(acked):,} acknowledged, {len(missing)} missing")
    return 1 if missing or not acked else 0


if __name__ == "__main__":
    sys.exit(main())
