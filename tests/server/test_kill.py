"""A server that is killed, or told to stop, while clients publish: everything acknowledged is there afterwards.

`N=` sets the cycles (default 2), `SEED=` another campaign.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time

import pytest

import penstock
from support.attack import Client, assert_no_trace
from support.servers import ServerProcess
from support.wire_client import Closed, Silent

pytestmark = pytest.mark.campaign

CYCLES = int(os.environ.get("N") or 2)
SEED = int(os.environ.get("SEED") or 20_261_115)
CONFIG = """\
host: 127.0.0.1
port: -1
jetstream { store_dir: "$DIR", max_mem: 64MB, max_file: 1GB %s }
"""
PUBLISHERS = 4


class Publisher(threading.Thread):
    """Publishes with a few messages in flight until the server is gone; remembers every ack."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(daemon=True)
        self.name = name
        self.acked: dict[int, bytes] = {}
        self.is_told = False  # the server has closed the connection
        self.failure: BaseException | None = None
        self._client = Client(port, f"_INBOX.{name}")

    def run(self) -> None:
        n = 0
        try:
            while True:
                for _ in range(50):
                    self._client.publish(f"s.{self.name}", f"{self.name} {n}".encode(), f"_INBOX.{self.name}.{n}")
                    n += 1
                for _ in range(50):
                    answer = self._client.message()
                    found = json.loads(answer.payload) if answer.payload else {}
                    if "seq" in found and "error" not in found:
                        number = answer.subject.rpartition(b".")[2].decode()
                        self.acked[found["seq"]] = f"{self.name} {number}".encode()
        except Closed:
            self.is_told = True
        except Silent:
            self.is_told = False
        except Exception as error:  # noqa: BLE001 - shown by the test
            self.failure = error


def load(server: ServerProcess, count: int) -> list[Publisher]:
    """Run publishers until each has at least `count` acks."""
    publishers = [Publisher(server.port, f"p{os.urandom(3).hex()}") for _ in range(PUBLISHERS)]
    for one in publishers:
        one.start()
    until = time.monotonic() + 20
    while any(len(one.acked) < count for one in publishers):
        assert time.monotonic() < until, [(one.failure, len(one.acked)) for one in publishers]
        time.sleep(0.002)
    return publishers


def check(directory: str, publishers: list[Publisher], kept: dict[int, bytes]) -> None:
    """Everything that was ever acknowledged is in the store, each publisher's messages in their order."""
    for one in publishers:
        assert one.failure is None
        assert not kept.keys() & one.acked.keys(), "a sequence was given twice"
        kept.update(one.acked)
    with penstock.open(f"{directory}/store", read_only=True) as db:
        found = {message.seq: message.data for message in db.stream("S").read()}
    for seq, payload in kept.items():
        assert found.get(seq) == payload, f"sequence {seq} was acknowledged"
    for one in publishers:
        mine = [int(data.split()[1]) for data in found.values() if data.startswith(one.name.encode() + b" ")]
        assert mine == sorted(mine)


@pytest.mark.parametrize("durability", ["", ", durability: os"], ids=["disk", "os"])
def test_what_was_acknowledged_before_a_kill_is_there_after_the_restart(durability: str) -> None:
    rng = random.Random(SEED)
    kept: dict[int, bytes] = {}
    with ServerProcess("ours", CONFIG % durability) as server:
        Client(server.port).create("S", "s.>")
        for _ in range(CYCLES):
            publishers = load(server, rng.choice((1, 50, 300)))
            server.restart(kill=True)
            for one in publishers:
                one.join(10)
            check(server.directory, publishers, kept)
            client = Client(server.port)
            assert client.state("S")["last_seq"] >= max(kept)
            answer = client.ask("s.x", b"after the restart")
            assert answer["seq"] > max(kept)
            kept[answer["seq"]] = b"after the restart"
            assert_no_trace(server.log)


def test_a_server_that_is_told_to_stop_loses_nothing_tells_its_clients_and_ends_with_0() -> None:
    kept: dict[int, bytes] = {}
    with ServerProcess("ours", CONFIG % "") as server:
        Client(server.port).create("S", "s.>")
        for number in (signal.SIGTERM, signal.SIGINT):
            publishers = load(server, 100)
            idle = Client(server.port, "_INBOX.idle")
            process = server._process
            assert process is not None
            server.signal(number)
            assert process.wait(10) == 0
            for one in publishers:
                one.join(10)
                assert one.is_told
            assert {frame.verb for frame in idle.drain()} <= {"INFO"}, "the connection is closed"
            check(server.directory, publishers, kept)
            assert_no_trace(server.log)
            server.restart()
            assert Client(server.port).ask("s.x", b"y")["seq"] > max(kept)
