"""Permissions, timeouts and refusals as a client sees them: the real server and ours, step by step the same."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from support.servers import Kind, ServerProcess
from support.wire_client import Closed, Frame, Silent, WireClient

BASE = "host: 127.0.0.1\nport: -1\n"
USERS = """
authorization { users: [
  {user: all, password: x}
  {user: deny, password: x, permissions: {subscribe: {deny: ["secret.>", "a.*.no", "work.b q1"]}}}
  {user: narrow, password: x, permissions: {subscribe: ["foo.*", "_INBOX.>"]}}
  {user: once, password: x, permissions: {publish: "out", allow_responses: true}}
  {user: thrice, password: x, permissions: {publish: {deny: "R.>"}, allow_responses: {max: 3, expires: "1m"}}}
  {user: brief, password: x, permissions: {allow_responses: {max: -1, expires: "100ms"}}}
  {user: mute, password: x, permissions: {publish: {deny: ">"}, subscribe: {deny: ">"}}}
] }
"""


@pytest.fixture(scope="module", params=["real", "ours"])
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with ServerProcess(request.param, BASE + USERS) as found:
        yield found


OPEN: list[WireClient] = []


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


def dial(server: ServerProcess) -> WireClient:
    """A connection that has heard INFO; closed when the test is over."""
    wire = WireClient(server.port)
    OPEN.append(wire)
    assert wire.receive().verb == "INFO"
    return wire


class Client:
    def __init__(self, server: ServerProcess, user: str) -> None:
        self.wire = dial(server)
        connect = {"verbose": False, "user": user, "pass": "x", "headers": True}
        self.wire.send(f"CONNECT {json.dumps(connect)}\r\n".encode())
        assert self.told() == []

    def told(self, *commands: str) -> list[str]:
        """What comes up to the PONG: errors, and the subjects of messages."""
        self.wire.send("".join(f"{command}\r\n" for command in commands).encode() + b"PING\r\n")
        found = []
        while (frame := self.wire.receive()).verb != "PONG":
            found.append(shown(frame))
        return found


def shown(frame: Frame) -> str:
    if frame.verb == "-ERR":
        return frame.text.decode()
    return f"{frame.verb} {frame.subject.decode()} {frame.sid.decode()}"


def pub(subject: str, reply: str = "") -> str:
    return f"PUB {subject} {reply} 0\r\n"


def refused(subject: str) -> str:
    return f"'Permissions Violation for Publish to \"{subject}\"'"


def test_a_wide_subscription_does_not_hear_what_is_denied(server: ServerProcess) -> None:
    publisher, subscriber = Client(server, "all"), Client(server, "deny")
    assert subscriber.told("SUB > 1", "SUB a.> 2", "SUB work.* q1 3", "SUB work.* q2 4") == []
    publisher.told(*(pub(subject) for subject in ("secret.x", "a.b.no", "a.b.yes", "work.a", "work.b", "open")))
    received = subscriber.told()
    assert sorted(received) == sorted(
        f"MSG {received}"
        for received in ("a.b.yes 1", "a.b.yes 2", "work.a 1", "work.a 3", "work.a 4", "work.b 1", "work.b 4", "open 1")
    )


def test_a_subscription_wider_than_allowed_hears_what_is_allowed(server: ServerProcess) -> None:
    """The reference delivers foo.a.b, too, to `foo.>` where only `foo.*` is allowed; here we are stricter."""
    publisher, subscriber = Client(server, "all"), Client(server, "narrow")
    assert subscriber.told("SUB foo.> 1", "SUB foo.* 2") == []
    assert subscriber.told("SUB > 3") == ["'Permissions Violation for Subscription to \">\"'"]
    publisher.told(pub("foo.a"), pub("foo.a.b"), pub("bar"))
    extra = ["MSG foo.a.b 1"] if server.kind == "real" else []
    assert sorted(subscriber.told()) == ["MSG foo.a 1", "MSG foo.a 2", *extra]


def test_an_answer_may_be_given_once(server: ServerProcess) -> None:
    asker, responder = Client(server, "all"), Client(server, "once")
    assert responder.told("SUB ask 1", pub("out"), pub("R.1")) == [refused("R.1")]
    asker.told(pub("ask", "R.1"), pub("ask", "R.2"), pub("ask", "out"))
    assert responder.told() == ["MSG ask 1"] * 3
    assert responder.told(pub("R.1"), pub("R.2"), pub("R.1"), pub("R.3"), pub("out")) == [
        refused("R.1"),
        refused("R.3"),
    ]
    # The same reply twice counts as an answer, in the reference as well.
    asker.told(pub("ask", "R.4"), pub("ask", "R.4"))
    assert responder.told() == ["MSG ask 1"] * 2
    assert responder.told(pub("R.4")) == [refused("R.4")]


def test_several_answers_may_be_given_also_where_it_is_denied(server: ServerProcess) -> None:
    asker, responder = Client(server, "all"), Client(server, "thrice")
    assert responder.told("SUB ask 1", pub("elsewhere")) == [refused("elsewhere")]
    asker.told(pub("ask", "R.1"))
    assert responder.told() == ["MSG ask 1"]
    assert responder.told(*[pub("R.1")] * 4) == [refused("R.1")]


def test_an_answer_may_come_too_late(server: ServerProcess) -> None:
    asker, responder = Client(server, "all"), Client(server, "brief")
    responder.told("SUB ask 1")
    asker.told(pub("ask", "R.1"))
    assert responder.told() == ["MSG ask 1"]
    assert responder.told(pub("R.1"), pub("R.1")) == []
    give_up = time.monotonic() + 10
    while responder.told(pub("R.1")) != [refused("R.1")]:
        assert time.monotonic() < give_up, "the answer never expired"


def test_who_may_do_nothing_is_told_so_and_stays(server: ServerProcess) -> None:
    mute = Client(server, "mute")
    assert mute.told("SUB a 1", "SUB a q 2", pub("a"), "UNSUB 1") == [
        "'Permissions Violation for Subscription to \"a\"'",
        '\'Permissions Violation for Subscription to "a" using queue "q"\'',
        refused("a"),
    ]
    verbose = Client(server, "mute")
    verbose.wire.send(b'CONNECT {"verbose":true,"user":"mute","pass":"x"}\r\nSUB a 1\r\nPUB a 0\r\n\r\nPING\r\n')
    assert [(frame.verb, frame.text) for frame in iter(verbose.wire.receive, Frame("PONG"))] == [
        ("+OK", b""),
        ("-ERR", b"'Permissions Violation for Subscription to \"a\"'"),
        ("-ERR", b"'Permissions Violation for Publish to \"a\"'"),
    ]


# Who is not let in.


def is_silent(wire: WireClient) -> bool:
    try:
        wire.receive(0.001)
    except Silent:
        return True
    except Closed:
        return False
    return False


def last_words(wire: WireClient) -> list[str]:
    found = []
    try:
        while True:
            frame = wire.receive()
            found.append(f"{frame.verb} {frame.text.decode()}")
    except Closed:
        return found


@pytest.mark.parametrize("kind", ["real", "ours"])
def test_a_connect_that_does_not_come_is_waited_for_so_long(kind: Kind) -> None:
    config = BASE + "authorization { user: a, password: b, timeout: 0.2 }\n"
    with ServerProcess(kind, config, ["-D"]) as server:
        wire = dial(server)
        assert last_words(wire) == ["-ERR 'Authentication Timeout'"]


@pytest.mark.parametrize("command", ["PING", "SUB a 1", "PUB a 0\r\n", "UNSUB 1", "PONG", "INFO {}", "nonsense"])
def test_anything_before_connect_is_an_authorization_violation(command: str) -> None:
    told = {}
    for kind in ("real", "ours"):
        with ServerProcess(kind, BASE + "authorization { user: a, password: b }\n") as server:
            wire = dial(server)
            wire.send(f"{command}\r\n".encode())
            told[kind] = last_words(wire)
    assert told["ours"] == told["real"]


def test_a_refusal_is_one_line_in_the_log() -> None:
    """A thousand wrong passwords are a thousand lines, as in the reference, and nothing more."""
    told = {}
    tries = [{"user": "a", "pass": "x"}, {"auth_token": "x"}, {}, {"user": 'q"\n', "pass": "y"}]
    for kind in ("real", "ours"):
        with ServerProcess(kind, BASE + "authorization { user: a, password: b }\n") as server:
            for given in tries:
                wire = dial(server)
                wire.send(f"CONNECT {json.dumps(given)}\r\n".encode())
                assert last_words(wire) == ["-ERR 'Authorization Violation'"]
            server.stop()
            told[kind] = [line.rpartition(" - cid:")[2].partition(" - ")[2] for line in server.log if "[ERR]" in line]
    assert told["ours"] == told["real"]
    assert len(told["ours"]) == len(tries)


def test_a_crowd_with_wrong_passwords_holds_nobody_up() -> None:
    """bcrypt takes its time for each of them, but not the server's."""
    slow = "$2a$11$WCNjH6dodUGhfJNTTyo6UuWB6sPY7QbRX3Fn.b2sQ9wKo2ddo6yuW"
    users = f'authorization {{ users: [{{user: slow, password: "{slow}"}}, {{user: all, password: x}}] }}\n'
    with ServerProcess("ours", BASE + users) as server:
        crowd = [dial(server) for _ in range(100)]
        for wire in crowd:
            wire.send(b'CONNECT {"user":"slow","pass":"wrong"}\r\n')
        quick = Client(server, "all")
        for n in range(100):
            assert quick.told(f"SUB a{n} {n}") == []
        assert any(is_silent(wire) for wire in crowd), "all were judged before the other client was done"
        for wire in crowd[90:]:
            wire.close()
        assert last_words(crowd[0]) == ["-ERR 'Authorization Violation'"]
