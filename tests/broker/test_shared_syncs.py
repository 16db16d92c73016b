"""Small publishes of many clients share syncs: what comes during one waits for its end, and is begun by itself then."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from attack import Client
from failing_disk import failing

import penstock
from penstock.server.embedded import EmbeddedServer
from penstock.testing import CrashDisk

DELAY_S = 0.02
CLIENTS, EACH = 24, 6


@pytest.fixture
def disk(tmp_path: Path) -> CrashDisk:
    (tmp_path / "data").mkdir()
    return CrashDisk(tmp_path / "data")


@pytest.fixture
def server(tmp_path: Path, disk: CrashDisk) -> Iterator[EmbeddedServer]:
    """A server on a disk whose syncs take their time."""
    with penstock.open(tmp_path / "data", disk=disk) as db, penstock.Server(database=db) as found:
        db.stream("S", subjects=["s.>"])
        disk.sync_delay_us = int(DELAY_S * 1e6)
        yield found
        disk.sync_delay_us = 0


def test_what_comes_during_a_sync_is_answered_after_the_next_though_nothing_else_comes(server: EmbeddedServer) -> None:
    first, second, third = (Client(server.port, f"_INBOX.{n}") for n in range(3))
    first.send(first.pub("s.a", b"1", "_INBOX.0.x"))
    first.ping()  # it is appended, and its sync is under way
    second.send(second.pub("s.a", b"2", "_INBOX.1.x"))
    second.ping()
    third.send(third.pub("s.a", b"3", "_INBOX.2.x"))
    found = [json.loads(client.message().payload)["seq"] for client in (third, second, first)]
    assert found == [3, 2, 1]


def test_many_clients_share_syncs(server: EmbeddedServer, disk: CrashDisk) -> None:
    clients = [Client(server.port, f"_INBOX.c{n}") for n in range(CLIENTS)]
    before = disk.calls["sync_file"]
    for _ in range(EACH):
        for n, client in enumerate(clients):
            client.send(client.pub("s.a", b"x", f"_INBOX.c{n}.x"))
        seqs = [json.loads(client.message().payload)["seq"] for client in clients]
        assert len(set(seqs)) == CLIENTS
    assert disk.calls["sync_file"] - before <= EACH * CLIENTS // 3, "a few syncs a round, not one for each client"
    for client in clients:
        client.close()


# What is read during a sync is not even appended until that ends: whatever else happens meanwhile, it is.


def put_off(server: EmbeddedServer) -> tuple[Client, Client]:
    """Two clients: a sync for the first one's message is under way, and the second one's was read."""
    first, second = Client(server.port, "_INBOX.0"), Client(server.port, "_INBOX.1")
    first.send(first.pub("s.a", b"1", "_INBOX.0.x"))
    first.ping()
    read = server.server.hub.in_msgs
    second.send(second.pub("s.a", b"2", "_INBOX.1.x"))
    until = time.monotonic() + 10
    while server.server.hub.in_msgs == read:
        assert time.monotonic() < until
    return first, second


def answer(client: Client) -> dict[str, object]:
    found: dict[str, object] = json.loads(client.message().payload)
    return found


def test_what_was_put_off_is_taken_before_a_purge(server: EmbeddedServer, disk: CrashDisk) -> None:
    disk.sync_delay_us = 300_000
    first, second = put_off(server)
    asked = json.loads(first.request("$JS.API.STREAM.PURGE.S").payload)
    assert asked["success"] and asked["purged"] == 2
    assert [answer(first)["seq"], answer(second)["seq"]] == [1, 2]


def test_what_was_put_off_is_kept_though_the_sync_before_it_fails(server: EmbeddedServer, disk: CrashDisk) -> None:
    disk.sync_delay_us = 300_000
    with failing(disk, "sync"):
        first, second = put_off(server)
        assert "error" in answer(first)
        assert answer(second)["seq"] == 1
    stored = json.loads(first.request("$JS.API.STREAM.MSG.GET.S", {"seq": 1}).payload)
    assert stored["message"]["data"] == "Mg=="


def test_what_was_put_off_is_answered_though_the_stream_is_deleted(server: EmbeddedServer, disk: CrashDisk) -> None:
    disk.sync_delay_us = 100_000
    first, second = put_off(server)
    assert json.loads(first.request("$JS.API.STREAM.DELETE.S").payload)["success"]
    assert [answer(first)["seq"], answer(second)["seq"]] == [1, 2]
    first.ping()


@pytest.mark.parametrize(("size", "is_submitted"), [(10, False), (70_000, True)])
def test_everybody_is_answered_though_the_library_deletes_the_stream(
    tmp_path: Path, disk: CrashDisk, size: int, is_submitted: bool
) -> None:
    """A sync is under way: little that comes meanwhile waits for its end, much is submitted. That is waited for."""
    with penstock.open(tmp_path / "data", disk=disk) as db, penstock.Server(database=db) as server:
        db.stream("S", subjects=["s.>"])
        disk.sync_delay_us = 300_000
        clients = [Client(server.port, f"_INBOX.{n}") for n in range(30)]
        for n, client in enumerate(clients):
            client.send(client.pub("s.a", b"x" * (size if n else 1), f"_INBOX.{n}.x"))
            client.ping()
        db.delete_stream("S")
        disk.sync_delay_us = 0
        found = [answer(client) for client in clients]
        assert found[0]["seq"] == 1
        assert ["error" not in each for each in found[1:]] == [is_submitted] * 29
        assert is_submitted or found[1]["error"]["description"] == "stream S is closed"  # type: ignore[index]


def test_what_was_put_off_is_answered_and_kept_when_the_server_stops(tmp_path: Path, disk: CrashDisk) -> None:
    with penstock.open(tmp_path / "data", disk=disk) as db:
        with penstock.Server(database=db) as server:
            db.stream("S", subjects=["s.>"])
            disk.sync_delay_us = 100_000
            first, second = put_off(server)
        disk.sync_delay_us = 0
        assert [answer(first)["seq"], answer(second)["seq"]] == [1, 2]
        assert [db.stream("S").get(seq).data for seq in (1, 2)] == [b"1", b"2"]
