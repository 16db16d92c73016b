"""Small publishes of many clients share syncs: what comes during one waits for its end, and is begun by itself then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from attack import Client

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
