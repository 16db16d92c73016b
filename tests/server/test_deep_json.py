"""JSON that is nested deeper than any reader goes, on every subject that reads JSON: answered, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.attack import Client, assert_no_trace
from support.servers import ServerProcess
from support.wire_client import Closed, WireClient

DEPTH = 20_000
CONFIG = """\
host: 127.0.0.1
port: -1
jetstream { store_dir: "$DIR", max_mem: 64MB, max_file: 1GB }
accounts {
  A { jetstream: enabled, users: [ { user: a, password: a } ] }
  SYS { users: [ { user: s, password: s } ] }
}
system_account: SYS
"""
PAYLOADS = [
    b"[" * DEPTH,
    b'{"a":' * DEPTH,
    b"[" * 900 + b"]" * 900,
    *(b'{"%b":' % key + b"[" * DEPTH for key in (b"config", b"seq", b"batch", b"expires", b"names", b"options")),
    b'{"config":{"metadata":{"a":' + b'{"a":' * DEPTH,
    b'{"seq":' + b"9" * DEPTH + b"}",
    b'{"expires":1e400}',
    *(b'%b {"delay":' % word + b"[" * DEPTH for word in (b"+NAK", b"-NAK", b"+NXT", b"+TERM")),
]
REQUESTS = """
    INFO STREAM.CREATE.T STREAM.UPDATE.S STREAM.INFO.S STREAM.NAMES STREAM.LIST STREAM.PURGE.S STREAM.MSG.GET.S
    STREAM.MSG.DELETE.S STREAM.DELETE.T STREAM.SNAPSHOT.S STREAM.RESTORE.T STREAM.LEADER.STEPDOWN.S CONSUMER.CREATE.S
    CONSUMER.CREATE.S.x CONSUMER.CREATE.S.x.s.> CONSUMER.DURABLE.CREATE.S.x CONSUMER.INFO.S.c CONSUMER.NAMES.S
    CONSUMER.LIST.S CONSUMER.PAUSE.S.c CONSUMER.UNPIN.S.c CONSUMER.RESET.S.c CONSUMER.MSG.NEXT.S.c DIRECT.GET.S
    DIRECT.GET.S.s.x CONSUMER.DELETE.S.x
"""
SYSTEM = """
    SERVER.PING SERVER.PING.VARZ SERVER.PING.CONNZ SERVER.PING.JSZ SERVER.PING.SUBSZ SERVER.PING.ACCOUNTZ
    SERVER.PING.HEALTHZ SERVER.PING.EXPVARZ ACCOUNT.PING.CONNZ ACCOUNT.A.CONNZ ACCOUNT.A.JSZ ACCOUNT.A.INFO
    PENSTOCK.WHY SERVER.ID.KICK
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess("ours", CONFIG) as running:
        yield running


def test_no_request_can_be_nested_too_deeply(server: ServerProcess) -> None:
    client = Client(server.port, user="a", **{"pass": "a"})
    client.create("S", "s.>", allow_direct=True)
    client.create("Z", "z.>")
    for stream in ("S", "Z"):
        config = {"durable_name": "c", "ack_policy": "explicit"}
        client.api(f"CONSUMER.CREATE.{stream}.c", {"stream_name": stream, "config": config})
    for payload in PAYLOADS:
        client.publish("z.x")
        client.publish("$JS.API.CONSUMER.MSG.NEXT.Z.c", b"", "_INBOX.me.m")
        while (delivered := client.message()).subject != b"z.x":
            pass  # late answers
        ack = str(delivered.reply, "ascii")
        for subject in [*(f"$JS.API.{request}" for request in REQUESTS.split()), "s.x", ack]:
            client.publish(subject, payload, "_INBOX.me.q")
        client.ping(60)
        client.kept()
    assert "error" not in client.api("INFO")
    client.close()
    assert_no_trace(server.log)


def test_no_request_of_the_system_can_be_nested_too_deeply(server: ServerProcess) -> None:
    client = Client(server.port, user="s", **{"pass": "s"})
    for payload in PAYLOADS:
        for subject in SYSTEM.split():
            subject = f"$SYS.REQ.{subject.replace('ID', client.info['server_id'])}"
            client.publish(subject, payload, "_INBOX.me.q")
        client.ping(60)
        client.kept()
    client.close()
    assert_no_trace(server.log)


@pytest.mark.parametrize("deep", [b"[" * 4000, b'{"a":' * 800, b'{"user":' + b"[" * 4000], ids=["list", "map", "user"])
def test_no_connect_can_be_nested_too_deeply(server: ServerProcess, deep: bytes) -> None:
    client = WireClient(server.port)
    client.receive()
    client.send(b"CONNECT " + deep + b"\r\nPING\r\n")
    with pytest.raises(Closed):  # closed without a word, as by the reference
        while True:
            client.receive()
    client.close()
    other = Client(server.port, user="a", **{"pass": "a"})
    assert other.is_alive()
    other.close()
    assert_no_trace(server.log)
