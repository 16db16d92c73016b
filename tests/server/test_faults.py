"""A disk that fails under a server: each publish is answered, acknowledged messages are kept, and writing resumes by
itself.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import time
from pathlib import Path

import pytest

import penstock
from penstock.testing import CrashDisk, crash_images
from support.attack import Client, Probe, assert_no_trace, memory_mb
from support.failing_disk import FAULTS, failing
from support.servers import ServerProcess


class Record:
    """What one client has published, and the answer to each publish."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.acked: dict[int, bytes] = {}  # by sequence
        self.refused: list[bytes] = []
        self._count = 0

    def publish(self, count: int, at_once: int) -> None:
        while count > 0:
            size = min(count, at_once)
            payloads = [b"message %d" % (self._count + n) for n in range(size)]
            frames = [
                self.client.pub("s.a", payload, f"_INBOX.me.p{self._count + n}") for n, payload in enumerate(payloads)
            ]
            self.client.send(b"".join(frames))
            for n, payload in enumerate(payloads):
                answer = self.client.message()
                assert answer.subject == b"_INBOX.me.p%d" % (self._count + n), "answers come in order"
                found = json.loads(answer.payload)
                if "error" in found:
                    assert found["error"]["code"] in (500, 503), found
                    assert found["error"]["err_code"] in (10077, 10023, 10047), found
                    self.refused.append(payload)
                else:
                    assert found["seq"] not in self.acked
                    self.acked[found["seq"]] = payload
            self._count += size
            count -= size

    def check(self, stream: penstock.Stream) -> None:
        found = {message.seq: message.data for message in stream.read()}
        for seq, payload in self.acked.items():
            assert found.get(seq) == payload, f"sequence {seq} was acknowledged"
        assert set(found) == set(self.acked), "what was refused is not there"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at_once", [1, 50])
def test_a_disk_that_fails_for_a_while_loses_nothing_that_was_acknowledged(
    tmp_path: Path, fault: str, at_once: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "data"
    path.mkdir()
    disk = CrashDisk(path)
    with caplog.at_level(logging.DEBUG), penstock.open(path, disk=disk) as db:
        with penstock.Server(database=db) as server:
            db.stream("S", subjects=["s.>"])
            record = Record(Client(server.port))
            reader = Client(server.port, "_INBOX.reader")
            record.publish(60, at_once)
            assert record.refused == []
            for n in (1, 2, 5):  # a single fault, here and there
                with failing(disk, fault, n):
                    record.publish(60, at_once)
            assert disk.fired
            with Probe(server.port) as probe, failing(disk, fault, persistent=True):
                before = len(record.refused)
                record.publish(200, at_once)
                assert len(record.refused) - before == 200, "nothing can be written"
                assert reader.api("STREAM.MSG.GET.S", {"seq": 1})["message"]["seq"] == 1, "reads go on"
                assert reader.state("S")["messages"] == len(record.acked)
            assert probe.median_s < 0.2
            record.publish(100, at_once)
            assert len(record.acked) >= 150, "it goes on by itself"
            last = max(record.acked)
            record.check(db.stream("S"))
        record.check(db.stream("S"))
    with penstock.open(path) as db, penstock.Server(database=db) as server:
        record.check(db.stream("S"))
        found = Client(server.port).ask("s.a", b"after the restart")
        assert found["seq"] > last
    assert_no_trace([record.getMessage() + (record.exc_text or "") for record in caplog.records])


def test_a_power_cut_keeps_what_was_acknowledged_on_a_disk_that_fails_now_and_then(tmp_path: Path) -> None:
    """The directory as a crash could leave it, with all, none or some of what was not synced."""
    path = tmp_path / "data"
    path.mkdir()
    disk = CrashDisk(path)
    with penstock.open(path, disk=disk) as db, penstock.Server(database=db) as server:
        db.stream("S", subjects=["s.>"])
        record = Record(Client(server.port))
        for n in range(1, 5):
            record.publish(10, 5)
            disk.mark(dict(record.acked))
            with failing(disk, "sync", n):
                record.publish(10, 5)
            disk.mark(dict(record.acked))
    (tmp_path / "images").mkdir()
    for image in crash_images(disk, tmp_path / "images", count=40, seed=1):
        with penstock.open(image.path) as db:
            found = {message.seq: message.data for message in db.stream("S").read()} if "S" in db.streams() else {}
        acked = image.mark or {}
        assert acked.items() <= found.items(), image.description
        image.remove()


def test_a_storm_into_a_full_disk_is_refused_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.mkdir()
    disk = CrashDisk(path)
    with penstock.open(path, disk=disk) as db, penstock.Server(database=db) as server:
        db.stream("S", subjects=["s.>"])
        storm, reader = Client(server.port), Client(server.port, "_INBOX.reader")
        assert storm.ask("s.a", b"first")["seq"] == 1
        frame = b"".join(storm.pub("s.a", bytes(10_000)) for _ in range(100))
        with Probe(server.port) as probe, failing(disk, "full", persistent=True):
            before = memory_mb(os.getpid())
            for n in range(50):  # 50 MB
                storm.send(frame)
                assert "error" in storm.ask("s.a", b"%d" % n, wait=20)
            assert reader.state("S")["messages"] == 1
            assert memory_mb(os.getpid()) - before < 40
        assert probe.median_s < 0.2
        until = time.monotonic() + 10
        while "error" in (found := storm.ask("s.a", b"last")):
            assert time.monotonic() < until, found
        assert reader.api("STREAM.MSG.GET.S", {"seq": found["seq"]})["message"]["data"] == "bGFzdA=="


STOP, LAME_DUCK = signal.SIGINT, signal.SIGUSR2


@pytest.mark.parametrize("ways", [(STOP,), (LAME_DUCK,), (LAME_DUCK, STOP)])
def test_a_server_whose_stores_cannot_be_closed_in_good_order_ends_and_says_so(ways: tuple[int, ...]) -> None:
    users = ", ".join(f"{name}: {{ jetstream: enabled, users: [{{user: {name}, password: x}}] }}" for name in "AB")
    config = (
        f'listen: "127.0.0.1:-1"\njetstream {{ store_dir: "$DIR" }}\naccounts {{ {users} }}\n'
        'lame_duck_duration: "30s"\nlame_duck_grace_period: "10ms"\n'
    )
    with ServerProcess("ours", config) as server:
        clients = [Client(server.port, user=name, **{"pass": "x"}) for name in "AB"]
        for client in clients:
            client.create("S", "s")
            assert client.ask("s", b"kept")["seq"] == 1
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, hard))  # from here on no write succeeds
        for way in ways:
            server.signal(way)
        assert server.wait_for_end(20) == 1
        told = [line for line in server.log if "File too large" in line]
        assert len(told) == 2 and all("CHECKPOINT" in line for line in told), server.log
        assert "[ERR] JetStream was not closed in good order: " in told[0] and "[FTL] " in told[1]
        assert any("Server Exiting" in line for line in server.log)
        assert_no_trace(server.log)
        if ways == (LAME_DUCK,):
            for client in clients:
                assert any(b'"ldm":true' in frame.text for frame in client.drain()), "clients had their time to leave"
        server.restart()
        for name in "AB":
            assert Client(server.port, user=name, **{"pass": "x"}).state("S")["messages"] == 1
