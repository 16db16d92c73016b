"""Answers to many clients at once: they leave in slices, and all of them leave."""

from __future__ import annotations

import json
import secrets
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import penstock
from penstock.server.embedded import EmbeddedServer
from support.attack import Client
from support.wire_client import Closed

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
            except Closed:
                continue  # what the server had not read when it stopped
            if answer.payload:  # else it was read when nobody heard it any more
                acked.add(json.loads(answer.payload)["seq"])
        assert acked == {message.seq for message in stream.read()}


def test_acks_leave_while_many_others_are_served(tmp_path: Path) -> None:
    """Once, whoever had many clients to serve in every turn never came to the acks."""
    with penstock.open(tmp_path / "data", durability="os") as db, penstock.Server(database=db) as server:
        db.stream("S", subjects=["s.>"])
        subscribers = [Client(server.port, f"_INBOX.{n}") for n in range(40)]
        for subscriber in subscribers:
            subscriber.send(b"SUB news 9\r\n")
            subscriber.ping()
        crier, publisher = Client(server.port, "_INBOX.c"), Client(server.port, "_INBOX.p")
        for n in range(200):
            crier.publish("news", b"x")
            publisher.publish("s.x", b"x", f"_INBOX.p.{n}")
        assert [json.loads(publisher.message().payload)["seq"] for _ in range(200)] == list(range(1, 201))


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with penstock.Server(store_dir=tmp_path_factory.mktemp("answers"), durability="os") as server:
        yield server


@settings(max_examples=100, deadline=None)
@given(
    hearings=st.lists(
        st.tuples(
            st.sampled_from(["r.*", "r.*", "r.*", "r.1", "*.1", "q.*", "r.a.*"]),
            st.sampled_from(["", "", " group1", " group2", " group3"]),
            st.sampled_from(["7", "23", "s" * 64, "s" * 65]),
            st.sampled_from([0, 0, 0, 3]),  # it ends by itself after so many
            st.integers(0, 1),  # whose it is
        ),
        max_size=4,
        unique_by=(lambda each: (each[2], each[4]), lambda each: each[1] or each),  # who of a group hears it is chance
    ),
    publishes=st.lists(
        st.tuples(
            st.sampled_from(["r.1", "r.x", "q.1", "r.a.b", "s", "r"]),
            st.sampled_from(["plain", "plain", "plain", "known", "refused"]),
            st.integers(1, 12),  # so many in a row: a row is known as one at the third
        ),
        min_size=1,
        max_size=8,
    ).map(lambda rows: [(reply, kind) for reply, kind, times in rows for _ in range(times)]),
    first_seq=st.sampled_from([1, 8, 97, 9_990, 2**53 - 3]),
)
@example([("r.*", "", "7", 0, 0), ("r.1", "", "23", 0, 1)], [("r.1", "plain")] * 9, 1)
@example([("r.*", "", "7", 0, 0), ("r.*", " group1", "23", 0, 1)], [("r.x", "plain")] * 9, 8)
@example([("r.*", "", "7", 3, 0), ("q.*", "", "23", 0, 0)], [("r.1", "plain")] * 9 + [("q.1", "plain")] * 9, 97)
def test_answers_are_the_same_in_a_row_and_one_by_one(
    lasting: EmbeddedServer,
    hearings: list[tuple[str, str, str, int, int]],
    publishes: list[tuple[str, str]],
    first_seq: int,
) -> None:
    """Acks that one subscription hears, whatever their last token, are written by a way of their own. They are not
    where somebody else hears them, too: the others must not notice."""
    name = secrets.token_hex(6)
    alone = _told(lasting, name + "a", hearings, publishes, first_seq, False)
    assert _told(lasting, name + "b", hearings, publishes, first_seq, True) == alone
    if ("r.*", "", "7", 0, 0) in hearings:
        seqs = [json.loads(body).get("seq") for reply, sid, body in alone[0] if sid == b"7"]
        assert len(seqs) == sum(reply in ("r.1", "r.x") for reply, _ in publishes)


def _told(
    server: EmbeddedServer,
    name: str,
    hearings: list[tuple[str, str, str, int, int]],
    publishes: list[tuple[str, str]],
    first_seq: int,
    is_overheard: bool,
) -> list[list[tuple[bytes, bytes, bytes]]]:
    """(reply, sid, body) of all that each of two clients hears of the answers, in order; the stream's name left out."""
    clients = [Client(server.port, f"_API.{n}") for n in range(2)]
    clients[0].create(name, f"{name}.>", first_seq=first_seq)
    for subject, queue, sid, most, owner in hearings:
        clients[owner].send(f"SUB _IN.{name}.{subject}{queue} {sid}\r\n".encode())
        if most:
            clients[owner].send(f"UNSUB {sid} {most}\r\n".encode())
    for client in clients:
        client.ping()
    last = Client(server.port, f"_LAST.{name}")
    if is_overheard:
        last.send(f"SUB _IN.{name}.> 9\r\n".encode())
        last.ping()
    headers = {
        "known": f"NATS/1.0\r\nNats-Msg-Id: {name}\r\n\r\n",
        "refused": "NATS/1.0\r\nNats-Expected-Last-Sequence: 7777777\r\n\r\n",
    }
    data = ""
    for reply, kind in publishes:
        text = headers.get(kind, "")
        sizes = f"{len(text)} {len(text) + 1}" if text else "1"
        data += f"{'HPUB' if text else 'PUB'} {name}.x _IN.{name}.{reply} {sizes}\r\n{text}x\r\n"
    last.send(f"{data}PUB {name}.x _LAST.{name}.x 0\r\n\r\n".encode())
    frame = last.message()
    while not frame.subject.startswith(b"_LAST"):  # its answer comes after all others
        frame = last.message()
    found = []
    for client in clients:
        client.ping()
        prefix, own = f"_IN.{name}.".encode(), name.encode()
        found.append([(m.subject.removeprefix(prefix), m.sid, m.payload.replace(own, b"")) for m in client.kept()])
    return found


@pytest.mark.parametrize("name", ["&" * 160, "<" * 255, "s" * 255])
def test_a_long_name_that_is_longer_in_json_is_acknowledged(lasting: EmbeddedServer, name: str) -> None:
    """Its head was too long for the room that answers had: nobody was answered, and the server could not stop."""
    client = Client(lasting.port, "_INBOX.long")
    client.create(name, secrets.token_hex(6))
    subject = client.api(f"STREAM.INFO.{name}")["config"]["subjects"][0]
    for n in range(1, 5):
        assert client.ask(subject, b"x") == {"stream": name, "seq": n}
    client.api(f"STREAM.DELETE.{name}")


@pytest.mark.parametrize("extra", [b"", b"UNSUB 8 1000\r\n"], ids=["for good", "for a while"])
def test_an_answer_is_looked_up_once(extra: bytes) -> None:
    with penstock.Server(http_port=-1) as server:
        client = Client(server.port)
        client.create("S", "s")
        client.send(b"SUB _R.* 8\r\n" + extra)
        client.ping()
        before = _matches(server)
        for n in range(500):
            client.publish("s", b"x", f"_R.{n}")
        assert [client.message().sid for _ in range(500)] == [b"8"] * 500
        assert _matches(server) - before == 1000


def _matches(server: EmbeddedServer) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/subsz", timeout=10) as answer:
        return int(json.load(answer)["num_matches"])
