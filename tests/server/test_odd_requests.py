"""Requests that nobody means to send: what the real server answers, and that nobody else is hurt by them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.attack import Client
from support.servers import BASE, JETSTREAM, Kind, ServerProcess, command
from support.wire_client import Silent

ODD_ID = "NATS/1.0\r\nNats-Msg-Id: \xe9\r\n\r\n".encode("latin-1")


@pytest.fixture(params=["real", "ours"])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def server(kind: Kind) -> Iterator[ServerProcess]:
    with ServerProcess(kind, BASE + JETSTREAM.replace(" }", ", domain: dom }")) as found:
        yield found


def hpub(subject: str, headers: bytes, payload: bytes = b"x", reply: str = "") -> bytes:
    words = f"HPUB {subject} {reply + ' ' if reply else ''}{len(headers)} {len(headers) + len(payload)}\r\n"
    return words.encode() + headers + payload + b"\r\n"


def test_an_id_that_is_no_text_costs_nobody_an_answer(server: ServerProcess) -> None:
    """The refusal could not be written as JSON, and none of the batch was answered, though all of it was stored."""
    client = Client(server.port)
    client.create("T", "t.>")
    client.send(hpub("t.a", ODD_ID))
    wrong = b"NATS/1.0\r\nNats-Expected-Last-Msg-Id: b\r\n\r\n"
    more = b"".join(client.pub("t.b", b"x", f"_INBOX.me.{n}") for n in range(1, 9))
    client.send(hpub("t.b", wrong, reply="_INBOX.me.0") + more)
    answers = [json.loads(client.message().payload) for _ in range(9)]
    assert answers[0]["error"] == {"code": 400, "err_code": 10070, "description": "wrong last msg ID: \ufffd"}
    assert [answer["seq"] for answer in answers[1:]] == list(range(2, 10))


@pytest.mark.parametrize("subject", ["t..a", "t.a b", ".", "t."])
def test_what_no_subject_is_called_has_no_last_message(server: ServerProcess, subject: str) -> None:
    """Ours answered 503 with a text of its own, and wrote it into the log for each."""
    client = Client(server.port)
    client.create("T", "t.>")
    head = (
        "NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: {}\r\nNats-Expected-Last-Subject-Sequence-Subject: {}\r\n\r\n"
    )
    client.send(hpub("t.a", head.format(3, subject).encode(), reply="_INBOX.me.x"))
    answer = json.loads(client.message().payload)
    assert answer["error"] == {"code": 400, "err_code": 10071, "description": "wrong last sequence: 0"}
    client.send(hpub("t.a", head.format(0, subject).encode(), reply="_INBOX.me.y"))
    assert json.loads(client.message().payload)["seq"] == 1
    assert not any("[ERR]" in line for line in server.log)


@pytest.mark.parametrize(
    ("subject", "named"),
    [
        ("$JS.dom.API.$KV.none.k", "$KV.none.k"),
        ("$JS.dom.API.$OBJ.none.k", "$OBJ.none.k"),
        ("$JS.dom.API.nope", "$JS.dom.API.nope"),
    ],
)
def test_what_nobody_hears_below_a_domain_is_told_so(server: ServerProcess, subject: str, named: str) -> None:
    client = Client(server.port)
    headers = client.request(subject).headers
    assert headers is not None
    assert b" 503\r\n" in headers and f"Nats-Subject: {named}\r\n".encode() in headers


def test_what_is_served_below_a_domain_is_still(server: ServerProcess) -> None:
    client = Client(server.port)
    assert "error" not in client.ask("$JS.dom.API.INFO")
    assert client.ask("$JS.dom.API.STREAM.NAMES")["total"] == 0
    client.publish("$JS.dom.API.STREAM.NOPE", b"", "_INBOX.me.z")
    with pytest.raises(Silent):
        client.message(0.2)


@pytest.mark.parametrize(
    ("shares", "why"),
    [
        ("A { jetstream { max_file: 100MB } }", "insufficient storage resources available (10047)"),
        ("A { jetstream { max_mem: 100MB } }", "insufficient memory resources available (10028)"),
        (
            "A { jetstream { max_mem: 12MB } }, B { jetstream { max_mem: 12MB } }",
            "insufficient memory resources available (10028)",
        ),
    ],
)
def test_accounts_are_not_promised_more_than_there_is(kind: Kind, shares: str, why: str, tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    limits = f'jetstream {{ store_dir: "{tmp_path}/store", max_mem: 16MB, max_file: 32MB }}\n'
    config.write_text(f"{BASE}{limits}accounts {{ {shares} }}\n")
    done = subprocess.run([*command(kind), "-c", str(config)], capture_output=True, text=True, timeout=30)
    told = f"[FTL] Can't start JetStream: Error enabling jetstream on configured accounts: {why}"
    assert done.returncode == 1 and told in done.stderr


def test_a_message_of_32_mib_is_too_large_for_a_file(kind: Kind) -> None:
    """Only those with headers of ours were looked at."""
    with ServerProcess(kind, BASE + JETSTREAM + "max_payload: 64MB\n") as server:
        client = Client(server.port)
        client.create("T", "t")
        client.create("M", "m", storage="memory")
        fits = (32 << 20) - 31  # and 30 bytes around it, and the subject
        assert client.ask("t", bytes(fits), wait=30)["seq"] == 1
        refused = client.ask("t", bytes(fits + 1), wait=30)
        assert refused["error"] == {"code": 503, "err_code": 10077, "description": "message too large"}
        assert client.ask("m", bytes(fits + 1), wait=30)["seq"] == 1


def test_async_persistence_is_not_for_replicas(server: ServerProcess) -> None:
    config = {"name": "A", "subjects": ["a"], "persist_mode": "async", "num_replicas": 2}
    error = Client(server.port).api("STREAM.CREATE.A", config)["error"]
    assert (error["err_code"], error["description"]) == (
        10052,
        "async persist mode is not supported on replicated streams",
    )


ACCOUNTS = """
accounts {
  A { jetstream: enabled, users: [{user: a, password: a}] }
  B { users: [{user: b, password: b}] }
  SYS { users: [{user: s, password: s}] }
}
system_account: SYS
"""


def sign_in(server: ServerProcess, name: str) -> Client:
    return Client(server.port, f"_INBOX.{name}", **{"user": name, "pass": name})


def test_the_system_account_has_an_accounts_streams_deleted(kind: Kind) -> None:
    with ServerProcess(kind, BASE + JETSTREAM + ACCOUNTS) as server:
        owner, system = sign_in(server, "a"), sign_in(server, "s")
        owner.create("S", "s")
        owner.create("T", "t")
        assert owner.ask("s", b"x")["seq"] == 1
        for stranger in (owner, sign_in(server, "b")):
            with pytest.raises(Silent):
                stranger.request("$JS.API.ACCOUNT.PURGE.A", wait=0.3)
        assert owner.api("STREAM.NAMES")["total"] == 2
        owner.send(b"SUB $JS.EVENT.ADVISORY.STREAM.DELETED.* 5\r\n")
        owner.ping()
        answer = {"type": "io.nats.jetstream.api.v1.account_purge_response", "initiated": True}
        assert [system.api(f"ACCOUNT.PURGE.{name}") for name in ("A", "A", "B", "NONE")] == [answer] * 4
        assert {owner.message().subject[-1:] for _ in range(2)} == {b"S", b"T"}
        assert owner.api("STREAM.NAMES")["total"] == 0
        owner.create("S", "s")
        assert owner.ask("s", b"x")["seq"] == 1
        assert server.wait_for_log("Purge request for account A (streams: 2, hasAccount: true)")


@pytest.mark.parametrize(
    "subject",
    ["ACCOUNT.PURGE", "ACCOUNT.PURGE.A.b", "META.LEADER.STEPDOWN", "SERVER.REMOVE", "ACCOUNT.STREAM.MOVE.A.S"],
)
def test_what_only_a_cluster_has_is_answered_by_nobody(kind: Kind, subject: str) -> None:
    with ServerProcess(kind, BASE + JETSTREAM + ACCOUNTS) as server, pytest.raises(Silent):
        sign_in(server, "s").request(f"$JS.API.{subject}", wait=0.3)


def test_the_system_account_has_no_streams_to_read_from(kind: Kind) -> None:
    with ServerProcess(kind, BASE + JETSTREAM + ACCOUNTS) as server:
        system = sign_in(server, "s")
        for subject in ("DIRECT.GET.S", "DIRECT.GET.S.s", "STREAM.NAMES", "NONE"):
            assert system.api(subject)["error"]["err_code"] == 10039
        assert "error" not in sign_in(server, "a").api("INFO")


@pytest.mark.parametrize(("wanted", "first"), [({}, 1), ({"filter": ">"}, 1), ({"seq": 1}, 0), ({"keep": 1}, 0)])
def test_a_purge_of_a_stream_that_was_never_used(server: ServerProcess, wanted: dict[str, object], first: int) -> None:
    client = Client(server.port)
    client.create("S", "s")
    assert client.api("STREAM.PURGE.S", wanted)["purged"] == 0
    assert client.state("S")["first_seq"] == first


def test_a_wait_of_centuries_is_taken_and_can_be_shortened(server: ServerProcess) -> None:
    """With something pending ours answered 500; and what waited for ever went on doing so after the wait was short."""
    client = Client(server.port)
    client.create("T", "t.>")
    for n in range(2):
        client.ask("t.a", b"%d" % n)

    def wait(**waits: object) -> None:
        config = {"durable_name": "c", "ack_policy": "explicit", "max_deliver": 9, **waits}
        found = client.api("CONSUMER.CREATE.T.c", {"stream_name": "T", "config": config})
        assert "error" not in found, found

    def fetch() -> bytes:
        client.publish("$JS.API.CONSUMER.MSG.NEXT.T.c", b'{"batch":1,"expires":10000000000}', "_INBOX.me.next")
        return client.message(15).payload

    wait(ack_wait=60 * 10**9)
    assert fetch() == b"0"
    wait(ack_wait=2**63 - 1)
    assert fetch() == b"1"
    wait(backoff=[2**63 - 1])
    assert client.api("CONSUMER.INFO.T.c")["num_ack_pending"] == 2
    wait(ack_wait=10**8)
    assert {fetch(), fetch()} == {b"0", b"1"}
