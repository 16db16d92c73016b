"""Many clients are answered in one system call where the system has io_uring, and one by one where it has none."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import pytest

import penstock
from support.attack import Client
from support.io_urings import rings
from support.servers import BASE, JETSTREAM, ServerProcess

WITHOUT = [sys.executable, str(Path(__file__).parents[1] / "support" / "without_io_uring.py")]
CLIENTS, EACH = 70, 20


@pytest.mark.parametrize("under", [[], WITHOUT], ids=["as it is here", "without io_uring"])
def test_every_publisher_gets_its_answers_and_every_hearer_each_message(under: list[str]) -> None:
    with ServerProcess("ours", BASE + JETSTREAM, under=under) as server:
        first = Client(server.port, "_INBOX.first")
        first.request("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        clients = [Client(server.port, f"_INBOX.c{n}") for n in range(CLIENTS)]
        for client in clients:
            client.send(b"SUB core 9\r\n")
            client.ping()
        seqs: list[int] = []
        for _ in range(EACH):
            for n, client in enumerate(clients):
                client.send(client.pub("s.a", b"x", f"_INBOX.c{n}.x"))
            seqs += [json.loads(client.message().payload)["seq"] for client in clients]
            first.send(b"PUB core 5\r\nhello\r\n")
            assert [client.message().payload for client in clients] == [b"hello"] * CLIENTS
        assert sorted(seqs) == list(range(1, CLIENTS * EACH + 1))
        for client in [first, *clients]:
            client.close()
        said = [line for line in server.log if "io_uring" in line]
        if under:
            assert len(said) == 1
            assert "No io_uring here (Operation not permitted): each client is sent to by" in said[0]


def test_a_server_that_has_stopped_keeps_no_ring() -> None:
    """It did until the collector came by: a process that starts many servers has its descriptors counted."""
    before = rings()
    gc.disable()
    try:
        for _ in range(3):
            with penstock.Server(jetstream=False):
                pass  # it has one, and its loop may have another
            assert rings() == before
    finally:
        gc.enable()
