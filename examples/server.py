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
FETCHED = 100  # messages that a worker asks for at once


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


async def work(url: str) -> set[int]:
    """Take orders from the consumer and acknowledge them, until the server is gone: those whose acks were confirmed."""
    confirmed: set[int] = set()

    async def gone(error: Exception) -> None:
        """The server was killed."""

    nc = await nats.connect(url, allow_reconnect=False, error_cb=gone)
    orders = await nc.jetstream().pull_subscribe_bind("shipping", "ORDERS")
    with contextlib.suppress(nats.errors.Error, OSError):
        while True:
            messages = await orders.fetch(FETCHED, timeout=2)
            done = await asyncio.gather(*(message.ack_sync(timeout=2) for message in messages), return_exceptions=True)
            for message, answer in zip(messages, done, strict=True):
                if not isinstance(answer, BaseException):
                    confirmed.add(message.metadata.sequence.stream)
    with contextlib.suppress(nats.errors.Error, OSError):
        await nc.close()
    return confirmed


async def prepare(url: str) -> str:
    nc = await nats.connect(url)
    js = nc.jetstream()
    await js.add_stream(name="ORDERS", subjects=["orders.>"])
    await js.add_consumer("ORDERS", durable_name="shipping", ack_policy="explicit", ack_wait=1, max_ack_pending=10_000)
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


async def come_again(url: str, confirmed: set[int]) -> tuple[int, int]:
    """How many messages come from the consumer now, and how many of them it had been told are done."""
    nc = await nats.connect(url)
    orders = await nc.jetstream().pull_subscribe_bind("shipping", "ORDERS")
    got: set[int] = set()
    await asyncio.sleep(1)  # what was in a worker's hands at the kill is due again then
    with contextlib.suppress(nats.errors.TimeoutError):  # there may be fewer
        for _ in range(50):
            for message in await orders.fetch(FETCHED, timeout=2):
                got.add(message.metadata.sequence.stream)
                await message.ack()
    await nc.close()
    return len(got), len(got & confirmed)


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

    story.step(f"{CLIENTS} ordinary clients (nats-py) publish, {IN_FLIGHT} in flight each; a worker consumes; kill -9.")

    async def under_load() -> tuple[list[int], set[int]]:
        load = asyncio.create_task(drive(served.url))
        worker = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(work(served.url))))  # a loop of its own
        await asyncio.sleep(asked.seconds)
        with urllib.request.urlopen(f"{served.monitor}/healthz") as answer:
            story.say(f"healthz in the middle of it: {answer.read().decode().strip()}")
        os.kill(served.process.pid, signal.SIGKILL)
        return await load, await worker

    acked, confirmed = asyncio.run(under_load())
    served.process.wait()
    rate = len(acked) / asked.seconds
    story.say(f"the worker had {len(confirmed):,} acks confirmed (each of them on disk)")
    story.took(f"killed; {len(acked):,} publishes had been acknowledged, {rate:,.0f}/s (the clients' pace)")

    story.step("Start it again, and look for every acknowledged message.")
    served = Served(data, log)
    sampled, last_seq = asyncio.run(look(served.url, acked))
    story.say(f"{sampled} of them asked for over the API: all there; the last sequence is {last_seq:,}, and it goes on")
    got, again = asyncio.run(come_again(served.url, confirmed))
    story.say(f"the worker goes on: {got:,} messages, {again} of those it had confirmed")
    served.process.send_signal(signal.SIGTERM)
    story.say(f"SIGTERM: exit code {served.process.wait()}")
    with penstock.open(data, read_only=True) as db:  # the other door to the same streams
        stored = {message.seq for message in db.stream("ORDERS").read()}
    missing = set(acked) - stored
    story.took(f"{len(acked):,} acknowledged, {len(missing)} missing")
    return 1 if missing or again or not acked or not confirmed else 0


if __name__ == "__main__":
    sys.exit(main())
