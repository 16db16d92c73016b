"""A reload as connected clients see it: who stays, who goes, what is taken away. The real server beside ours."""

from __future__ import annotations

import base64
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import nkeys
import pytest

from support.servers import Kind, ServerProcess
from support.wire_client import Closed, Frame, Silent, WireClient

BASE = "host: 127.0.0.1\nport: -1\n"
HASH = "$2a$04$WCNjH6dodUGhfJNTTyo6UuWB6sPY7QbRX3Fn.b2sQ9wKo2ddo6yuW"  # of "secret"
PAIR = nkeys.from_seed(nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER))
KEY = PAIR.public_key.decode()

USERS_BEFORE = f"""
authorization {{ users: [
  {{user: same, password: x}}
  {{user: gone, password: x}}
  {{user: changed, password: x}}
  {{user: narrowed, password: x, permissions: {{publish: ">", subscribe: ">"}}}}
  {{user: widened, password: x, permissions: {{publish: "p.a", subscribe: "s.a"}}}}
  {{user: hashed, password: "{HASH}"}}
  {{nkey: {KEY}}}
] }}
"""
USERS_AFTER = f"""
authorization {{ users: [
  {{user: same, password: x}}
  {{user: changed, password: y}}
  {{user: narrowed, password: x, permissions: {{publish: "p.a", subscribe: {{deny: ["s.b", "q.a group"]}}}}}}
  {{user: widened, password: x}}
  {{user: hashed, password: "{HASH}"}}
  {{nkey: {KEY}}}
] }}
"""
ACCOUNTS_BEFORE = """
accounts { A: {users: [{user: a, password: x}, {user: moved, password: x}]}, B: {users: [{user: b, password: x}]} }
"""
ACCOUNTS_AFTER = """
accounts { A: {users: [{user: a, password: x}]}, C: {users: [{user: moved, password: x}]} }
"""

OPEN: list[WireClient] = []


@pytest.fixture(autouse=True)
def hang_up() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


def shown(frame: Frame) -> str:
    return f"{frame.verb} {frame.subject.decode() or frame.text.decode()}"


class Client:
    """A connection; `told` is what it has heard since, up to a PONG or to the end."""

    def __init__(self, server: ServerProcess, user: str, password: str = "x") -> None:
        self.wire = WireClient(server.port)
        OPEN.append(self.wire)
        info = json.loads(self.wire.receive().text)
        said = {"verbose": False, "user": user, "pass": password}
        if user == KEY:
            signature = base64.urlsafe_b64encode(PAIR.sign(info["nonce"].encode())).rstrip(b"=").decode()
            said = {"verbose": False, "nkey": KEY, "sig": signature}
        self.wire.send(f"CONNECT {json.dumps(said)}\r\n".encode())
        assert self.told() == [], user

    def told(self, *commands: str) -> list[str]:
        self.wire.send("".join(f"{command}\r\n" for command in commands).encode() + b"PING\r\n")
        found = []
        try:
            while (frame := self.wire.receive()).verb != "PONG":
                found.append(shown(frame))
        except Closed:
            found.append("closed")
        return found


def reload(server: ServerProcess, config: str) -> None:
    """Another configuration, and the log line that says that it is in force."""
    (Path(server.directory) / "server.conf").write_text(config)
    os.kill(server.pid, signal.SIGHUP)
    give_up = time.monotonic() + 10
    while not any("Reloaded server configuration" in line for line in server.log):
        assert time.monotonic() < give_up, server.log[-5:]
        time.sleep(0.01)


def users_reloaded(kind: Kind) -> dict[str, list[str]]:
    with ServerProcess(kind, BASE + USERS_BEFORE) as server:
        clients = {name: Client(server, name) for name in ("same", "gone", "changed", "narrowed", "widened", KEY)}
        clients["hashed"] = Client(server, "hashed", "secret")
        for name, client in clients.items():
            queue = "group" if name == "narrowed" else f"group-{name}"
            client.told("SUB s.a 1", "SUB s.b 2", "SUB s.> 3", f"SUB q.a {queue} 4", "SUB q.a 5")
        reload(server, BASE + USERS_AFTER)
        found = {}
        for name, client in clients.items():
            found[name] = client.told("PUB p.a 0\r\n", "PUB p.b 0\r\n", "SUB s.b 6", "SUB new 7")
        publisher = Client(server, "same")
        publisher.told("PUB s.a 0\r\n", "PUB s.b 0\r\n", "PUB q.a 0\r\n")
        for name, client in clients.items():
            if "closed" not in found[name]:
                found[f"{name} hears"] = sorted(client.told())
        return found


def accounts_reloaded(kind: Kind) -> dict[str, list[str]]:
    with ServerProcess(kind, BASE + ACCOUNTS_BEFORE) as server:
        clients = {name: Client(server, name) for name in ("a", "moved", "b")}
        reload(server, BASE + ACCOUNTS_AFTER)
        found = {name: client.told("SUB x 1") for name, client in clients.items()}
        moved = Client(server, "moved")
        moved.told("PUB x 0\r\n")
        found["a hears nothing of C"] = clients["a"].told()
        with pytest.raises(AssertionError, match="b"):
            Client(server, "b")
        return found


def test_users_change_while_clients_are_connected() -> None:
    ours, real = users_reloaded("ours"), users_reloaded("real")
    for found in (ours, real):  # in which order subscriptions go is chance, there
        found["narrowed"] = sorted(found["narrowed"])
    assert ours == real


def test_accounts_change_while_clients_are_connected() -> None:
    assert accounts_reloaded("ours") == accounts_reloaded("real")


SINGLE = {
    "another password": ("user: a, password: b", "user: a, password: c"),
    "another user": ("user: a, password: b", "user: c, password: b"),
    "another token": ("token: b", "token: c"),
    "a token instead": ("user: a, password: b", "token: b"),
    "users instead, the same among them": ("user: a, password: b", "users: [{user: a, password: b}]"),
    "users instead, others": ("token: b", "users: [{user: a, password: b}]"),
}


@pytest.mark.parametrize("name", SINGLE)
def test_the_one_user_or_the_token_changes(name: str) -> None:
    before, after = SINGLE[name]
    said = {"verbose": False, "user": "a", "pass": "b"} if "user" in before else {"verbose": False, "auth_token": "b"}
    found = {}
    for kind in ("real", "ours"):
        with ServerProcess(kind, f"{BASE}authorization {{ {before} }}\n") as server:
            wire = WireClient(server.port)
            OPEN.append(wire)
            wire.send(f"CONNECT {json.dumps(said)}\r\nPING\r\n".encode())
            assert [wire.receive().verb, wire.receive().verb] == ["INFO", "PONG"]
            reload(server, f"{BASE}authorization {{ {after} }}\n")
            wire.send(b"PING\r\n")
            found[kind] = []
            try:
                while (frame := wire.receive()).verb != "PONG":
                    found[kind].append(shown(frame))
            except Closed:
                found[kind].append("closed")
    assert found["ours"] == found["real"]


def test_nothing_is_heard_of_a_reload_that_changes_nothing() -> None:
    with ServerProcess("ours", BASE + USERS_BEFORE) as server:
        client = Client(server, "narrowed")
        client.told("SUB s.> 1")
        reload(server, BASE + USERS_BEFORE)
        with pytest.raises(Silent):
            client.wire.receive(0.05)
        assert client.told("PUB s.x 0\r\n") == ["MSG s.x"]
