"""Answers to many clients at once: they leave in slices, and all of them leave."""

from __future__ import annotations

import json
from pathlib import Path

from attack import Client

import penstock

CLIENTS = 200  # more than a turn answers


def test_every_one_of_many_clients_is_answered(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as db, penstock.Server(database=db) as server:
        db.stream("S", subjects=["s.>"])
        clients = [Client(server.port, f"_INBOX.{n}") for n in range(CLIENTS)]
        for turn in range(5):
            for n, client in enumerate(clients):
                client.publish(f"s.{n}", b"x", f"_INBOX.{n}.{turn}")
            answers = [json.loads(client.message().payload) for client in clients]
            assert {answer["seq"] for answer in answers} == set(range(turn * CLIENTS + 1, (turn + 1) * CLIENTS + 1))


def test_a_server_that_stops_answers_all_that_it_has_taken(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as db:
        stream = db.stream("S", subjects=["s.>"])
        with penstock.Server(database=db) as server:
            clients = [Client(server.port, f"_INBOX.{n}") for n in range(CLIENTS)]
            for n, client in enumerate(clients):
                client.publish(f"s.{n}", b"x", f"_INBOX.{n}.0")
        acked = set()
        for client in clients:
            try:
                answer = client.message()
            except (EOFError, OSError):
                continue  # what the server had not read when it stopped
            if answer.payload:  # else it was read when nobody heard it any more
                acked.add(json.loads(answer.payload)["seq"])
        assert acked == {message.seq for message in stream.read()}


def test_acks_leave_while_many_others_are_served(tmp_path: Path) -> None:
    """Once, whoever had many clients to serve in every turn never came to the acks."""
    with penstock.open(tmp_path / "data", durability="os") as db, penstock.Server(database=db) as server:
        db.stream("S", subjects=["s.>"])
        hearers = [Client(server.port, f"_INBOX.{n}") for n in range(40)]
        for hearer in hearers:
            hearer.send(b"SUB news 9\r\n")
            hearer.ping()
        crier, publisher = Client(server.port, "_INBOX.c"), Client(server.port, "_INBOX.p")
        for n in range(200):
            crier.publish("news", b"x")
            publisher.publish("s.x", b"x", f"_INBOX.p.{n}")
        assert [json.loads(publisher.message().payload)["seq"] for _ in range(200)] == list(range(1, 201))
