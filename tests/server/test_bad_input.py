"""Bytes that no client should send, sent to a running server: it answers as nats-server does, stays small, serves
others, and shows no trace of its own code.
"""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Iterator

import pytest

from support.attack import SLOW_S, STUCK_S, Client, Probe, assert_no_trace, memory_mb
from support.servers import ServerProcess
from support.wire_client import Closed, WireClient

CONFIG = """\
host: 127.0.0.1
port: -1
jetstream { store_dir: "$DIR", max_mem: 64MB, max_file: 1GB }
"""
PASSWORDS = """\
host: 127.0.0.1
port: -1
authorization { timeout: 5, users: [
  {user: ann, password: secret}
  {user: bob, password: "$2a$11$V1qrpBVyUpOq5vpkYVPKp.5gQJGjQZhWJpTwMxMBMqBEHPqQJnZvi"}
  {user: cut, password: cut, permissions: {publish: "ok.>", subscribe: ["ok.>", "_INBOX.>"]}}
] }
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess("ours", CONFIG) as running:
        yield running
        assert not running.has_ended
        assert_no_trace(running.log)


@pytest.fixture(scope="module")
def guarded() -> Iterator[ServerProcess]:
    with ServerProcess("ours", PASSWORDS) as running:
        yield running
        assert not running.has_ended
        assert_no_trace(running.log)


def say(port: int, data: bytes, connect: bytes = b"") -> list[bytes]:
    """The server's answer to the bytes, until it closes; a PING behind them shows where it continues."""
    client = WireClient(port)
    client.receive()
    client.send(connect + data + b"\r\nPING\r\n")
    client.finish_sending()
    frames = []
    try:
        while True:
            frame = client.receive(10)
            frames.append(frame.verb.encode() + (b" " + frame.text if frame.text else b""))
    except Closed:
        return [frame for frame in frames if not frame.startswith(b"INFO")]
    finally:
        client.close()


UNKNOWN = [b"-ERR 'Unknown Protocol Operation'"]
LINE = [b"-ERR 'maximum control line exceeded'"]
CASES: dict[str, tuple[bytes, list[bytes]]] = {  # what nats-server 2.15.1 answers; [] and it closes
    "garbage": (b"\x00\xff\x17 garbage \xf0", UNKNOWN),
    "http": (b"GET / HTTP/1.1\r\nHost: x\r\n", UNKNOWN),
    "a TLS hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), UNKNOWN),
    "a line without end": (b"PUB " + b"a" * 100_000, LINE),
    "a subscription without end": (b"SUB " + b"a." * 50_000, LINE),
    "a huge size": (b"PUB a 99999999999999999999999", []),
    "beyond 63 bits": (b"PUB a 9223372036854775808", []),
    "one byte too large": (b"PUB a 1048577", [b"-ERR 'Maximum Payload Violation'"]),
    "a negative size": (b"PUB a -1", []),
    "headers longer than all": (b"HPUB a 20 10\r\nNATS/1.0\r\n\r\n", []),
    "headers of less than nothing": (b"HPUB a -5 10\r\n0123456789", []),
    "payload longer than said": (b"PUB a 2\r\nabcdef", UNKNOWN),
    "no size at all": (b"PUB a\r\n", []),
    "a verb alone": (b"UNSUB", UNKNOWN),
    "a count beyond 63 bits": (b"UNSUB 1 99999999999999999999", [b"PONG"]),
    "connect without JSON": (b"CONNECT hello", []),
    "connect with a list": (b"CONNECT [1,2]", []),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_no_command_is_answered_as_the_reference_does(server: ServerProcess, name: str) -> None:
    data, expected = CASES[name]
    assert say(server.port, data, b'CONNECT {"verbose":false,"headers":true}\r\n') == expected


def test_spaces_without_end_are_a_line_that_is_too_long(server: ServerProcess) -> None:
    """nats-server waits for more of them."""
    assert say(server.port, b"PUB" + b" " * 100_000) == LINE


def test_half_frames_and_what_is_dropped_in_the_middle_leave_nothing_behind(server: ServerProcess) -> None:
    session = b'CONNECT {"headers":true}\r\nSUB a.> 1\r\nHPUB a.b r 12 1000012\r\nNATS/1.0\r\n\r\n'
    before = memory_mb(server.pid)
    with Probe(server.port) as probe:
        for n in range(300):
            client = socket.create_connection(("127.0.0.1", server.port))
            client.sendall(session[: n % len(session)] if n % 3 else session + bytes(n * 1000))
            client.close()
        client = Client(server.port)
        client.ping()
    assert memory_mb(server.pid) - before < 40
    assert probe.median_s < SLOW_S
    assert Client(server.port).ask("$JS.API.INFO")["type"].endswith("account_info_response")


def deep(size: int, opening: str = "[", closing: str = "]") -> bytes:
    return (opening * size + closing * size).encode()


BOMBS = {
    "deep lists": deep(400_000),
    "deep objects": b'{"a":' * 150_000 + b"1" + b"}" * 150_000,
    "deep in a field": b'{"name":"B","subjects":' + deep(200_000) + b"}",
    "never closed": b"[" * 900_000,
    "many keys": b"{" + b",".join(b'"k%d":0' % n for n in range(60_000)) + b"}",
    "one key again and again": b"{" + b",".join([b'"name":"B"'] * 80_000) + b"}",
    "a number of many digits": b'{"name":"B","max_msgs":' + b"9" * 900_000 + b"}",
    "many subjects": b'{"name":"B","subjects":[' + b",".join(b'"b.%d"' % n for n in range(60_000)) + b"]}",
    "a subject of many tokens": b'{"name":"B","subjects":["' + b"a." * 400_000 + b'a"]}',
    "many wildcards": b'{"name":"B","subjects":["' + b"*." * 30_000 + b'>"]}',
    "not UTF-8": b'{"name":"\xff\xfe","subjects":["\xc3"]}',
    "half a surrogate": b'{"name":"B","description":"\\ud800","subjects":["\\udfff"]}',
    "zeros": bytes(900_000),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_in_a_request_is_answered_and_costs_little(server: ServerProcess, name: str) -> None:
    before = memory_mb(server.pid)
    client = Client(server.port)
    with Probe(server.port) as probe:
        for subject in ("STREAM.CREATE.B", "STREAM.UPDATE.B", "STREAM.PURGE.B", "STREAM.MSG.GET.B", "STREAM.LIST"):
            found = client.api(subject, BOMBS[name])
            assert found["type"].startswith("io.nats.jetstream.api.v1."), found
        client.api("STREAM.DELETE.B")
        assert client.ping() < 5
    assert memory_mb(server.pid) - before < 150
    assert probe.median_s < SLOW_S
    assert probe.worst_s < STUCK_S


@pytest.mark.parametrize("text", [deep(2000), b'{"a":' * 700, b'{"name":"\\ud800\\udc","lang":"\xff\xfe"}'])
def test_a_bomb_in_connect_ends_or_begins_the_connection(server: ServerProcess, text: bytes) -> None:
    assert say(server.port, b"CONNECT " + text) in ([], [b"PONG"], [b"+OK", b"PONG"], LINE)


def test_deep_subjects_and_wildcards_are_published_and_heard(server: ServerProcess) -> None:
    client = Client(server.port)
    tokens = ".".join(["a"] * 2000)
    client.send(f"SUB {tokens} 2\r\nSUB {'.'.join(['*'] * 2000)} 3\r\nSUB a.> 4\r\n".encode())
    client.publish(tokens, b"deep")
    assert sorted(client.message().sid for _ in range(3)) == [b"2", b"3", b"4"]
    client.send(b"UNSUB 2\r\nUNSUB 3\r\n")
    for subject in ("a.*", "a.>", "a.b>c"):
        client.publish(subject, b"x")
        assert client.message().subject == subject.encode()
    for subject in ("a..b", ".a", "a."):
        client.publish(subject, b"x")
    assert client.ping() < 5


def test_reserved_subjects_are_refused_or_heard_by_nobody(server: ServerProcess) -> None:
    client = Client(server.port, no_responders=True)
    for subject in ("$SYS.REQ.SERVER.PING", "$SYS.ACCOUNT.$G.CONNECT", "$JS.ACK.S.C.1.1.1.1.1", "_R_.x.y", "$JS.API.X"):
        client.publish(subject, b"{}", "_INBOX.me.1")
    client.publish("a", b"", "$JS.ACK.S.C.1.1.1.1.1")
    assert client.ping() < 5
    for subject in ("$NRG.x", "_GR_.x.y", "$GR.x"):
        client.send(client.pub(subject))
        while (frame := client.receive()).verb != "-ERR":
            assert frame.verb in ("MSG", "HMSG", "INFO"), frame
        assert frame.text == f"'Permissions Violation for Publish to \"{subject}\"'".encode()
    client.send(b"SUB $SYS.> 2\r\nSUB $JS.> 3\r\n")
    assert client.ping() < 5


def test_wrong_passwords_in_a_loop_are_refused_and_slow_nobody(guarded: ServerProcess) -> None:
    def attempt(user: str, password: str) -> list[bytes]:
        connect = json.dumps({"user": user, "pass": password, "verbose": False}).encode()
        return say(guarded.port, b"CONNECT " + connect)

    refused = [b"-ERR 'Authorization Violation'"]
    good = Client(guarded.port, user="ann", **{"pass": "secret"})
    for n in range(150):
        assert attempt(("ann", "nobody", "bob" if n < 6 else "ann")[n % 3], "x" * (n % 100)) == refused
    assert good.ping() < 1
    crowd = []
    for _ in range(40):  # each wants a password hashed
        client = WireClient(guarded.port)
        client.send(b'CONNECT {"user":"bob","pass":"wrong"}\r\nPING\r\n')
        crowd.append(client)
    rounds = [good.ping() for _ in range(50)]
    for client in crowd:
        client.close()
    assert sorted(rounds)[25] < 0.2
    assert attempt("ann", "secret") == [b"PONG"]


def test_any_bytes_in_a_refused_subject_reach_the_client_and_the_log_as_they_can(guarded: ServerProcess) -> None:
    client = Client(guarded.port, user="cut", **{"pass": "cut"})
    for subject in (b"\xff\xfe.\xc3", "grün.\u2028".encode(), b"a\x1b[31m", b"%s%n{}"):
        client.send(b"PUB " + subject + b" 0\r\n\r\nSUB " + subject + b" 9\r\n")
        for what in (b"Publish", b"Subscription"):
            while (frame := client.receive()).verb != "-ERR":
                pass
            assert frame.text.startswith(b"'Permissions Violation for " + what + b' to "'), frame
    assert client.ping() < 5


def test_names_of_any_kind_do_not_break_what_tells_of_connections(server: ServerProcess) -> None:
    for name in (b"\\ud800", b"\\u0000", "ü\u2028".encode(), b"\xff\xff", b"%s %(x)s {}"):
        text = b'CONNECT {"verbose":false,"name":"' + name + b'","lang":"' + name + b'","version":"' + name + b'"}'
        assert say(server.port, text)[-1:] in ([b"PONG"], [])


def test_mutated_sessions_over_the_wire_bring_nobody_down(server: ServerProcess) -> None:
    rng = random.Random(20_261_115)
    parts = [
        b'CONNECT {"verbose":true,"headers":true,"no_responders":true}\r\n',
        b"SUB f.> 1\r\n",
        b"SUB f.* q 2\r\n",
        b"PUB f.a 5\r\nhello\r\n",
        b"HPUB f.b r 14 19\r\nNATS/1.0\r\nA:\r\n\r\nhello\r\n",
        b"UNSUB 1 3\r\n",
        b"PUB $JS.API.INFO f.r 0\r\n\r\n",
        b'PUB $JS.API.STREAM.CREATE.F f.r 29\r\n{"name":"F","subjects":["f"]}\r\n',
        b"PING\r\n",
        b"PONG\r\n",
    ]
    until = time.monotonic() + 3
    with Probe(server.port) as probe:
        while time.monotonic() < until:
            data = bytearray(b"".join(rng.choice(parts) for _ in range(12)))
            for _ in range(rng.randrange(4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            client = socket.create_connection(("127.0.0.1", server.port))
            while data:
                size = rng.choice((1, 7, 100, 1000))
                try:
                    client.sendall(data[:size])
                except OSError:
                    break
                del data[:size]
            client.close()
    assert probe.median_s < SLOW_S
