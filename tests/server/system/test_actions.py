"""What the system account can do to a server, and hears of its end: the same on nats-server and on ours."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.monitor_scenario import CONFIG, Player, get, monitor_port
from support.servers import Kind, ServerProcess
from support.wire_client import Closed, Frame, Silent


class Scene:
    """A server, and clients that are closed at the end."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self._stack = contextlib.ExitStack()
        self.system = self.player("sys", "s", "the system")
        self.id = answer(self.system.request("$SYS.REQ.SERVER.PING.IDZ", wait=5.0))["id"]

    def player(self, user: str, password: str, name: str) -> Player:
        player = Player(self.server.port, user, password, name)
        self._stack.callback(player.close)
        return player

    def act(self, action: str, wait: float = 5.0, **body: Any) -> Frame | None:
        return self.system.request(f"$SYS.REQ.SERVER.{self.id}.{action}", json.dumps(body), wait=wait)

    def page(self, path: str) -> Any:
        return json.loads(get(monitor_port(self.server), path)[2])

    def cid_of(self, name: str) -> int:
        return int(next(one["cid"] for one in self.page("/connz")["connections"] if one["name"] == name))

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(params=["real", "ours"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    kind: Kind = request.param
    config = CONFIG + 'lame_duck_grace_period: "0s"\nlame_duck_duration: "30s"\n'
    with ServerProcess(kind, config) as process:
        scene = Scene(process)
        yield scene
        scene.close()


def answer(frame: Frame | None) -> Any:
    assert frame is not None
    return json.loads(frame.payload)


def test_a_kicked_client_is_closed_and_remembered_as_such(scene: Scene) -> None:
    bob = scene.player("bob", "b", "bob")
    cid = scene.cid_of("bob")
    assert list(answer(scene.act("KICK", cid=cid))) == ["server"]
    with pytest.raises(Closed):
        while True:
            bob.receive()
    closed = scene.page(f"/connz?state=closed&cid={cid}")["connections"]
    assert [one["reason"] for one in closed] == ["Kicked"]
    assert answer(scene.act("KICK", cid=cid))["error"] == {"code": 500, "description": "no such client or leafnode id"}


def test_a_kick_that_is_for_another_server_is_left_to_it(scene: Scene) -> None:
    scene.player("bob", "b", "bob")
    assert scene.act("KICK", wait=0.3, cid=scene.cid_of("bob"), server_name="another") is None
    assert scene.cid_of("bob")


def test_a_kick_that_wants_no_answer_kicks_nobody(scene: Scene) -> None:
    scene.player("bob", "b", "bob")
    body = json.dumps({"cid": scene.cid_of("bob")}).encode()
    scene.system.send(f"PUB $SYS.REQ.SERVER.{scene.id}.KICK {len(body)}\r\n".encode() + body + b"\r\n")
    assert scene.act("KICK", cid=999_999) is not None  # answered after it
    assert scene.cid_of("bob")


def test_one_client_alone_is_told_to_go_elsewhere(scene: Scene) -> None:
    bob, alice = scene.player("bob", "b", "bob"), scene.player("alice", "a", "alice")
    assert list(answer(scene.act("LDM", cid=scene.cid_of("bob")))) == ["server"]
    told = [frame for frame in bob.sync() if frame.verb == "INFO"]
    assert json.loads(told[-1].text)["ldm"] is True
    assert not [frame for frame in alice.sync() if frame.verb == "INFO" and b"ldm" in frame.text]


def test_a_reload_is_done_or_says_why_not(scene: Scene) -> None:
    assert list(answer(scene.act("RELOAD"))) == ["server"]
    path = Path(scene.server.directory) / "server.conf"
    path.write_text(path.read_text() + "\nmax_payload: 1234\n")
    assert list(answer(scene.act("RELOAD"))) == ["server"]
    assert scene.page("/varz")["max_payload"] == 1234
    path.write_text(path.read_text().replace("server_name: shapes", "server_name: other"))
    error = answer(scene.act("RELOAD"))["error"]
    assert error["code"] == 500
    assert error["description"].startswith("config reload not supported for ServerName")


@pytest.mark.parametrize(("sent", "received"), [(signal.SIGUSR2, "LAMEDUCK"), (signal.SIGTERM, "SHUTDOWN")])
def test_the_system_account_hears_of_a_server_that_goes(scene: Scene, sent: int, received: str) -> None:
    scene.system.send(b"SUB $SYS.SERVER.*.LAMEDUCK 1\r\nSUB $SYS.SERVER.*.SHUTDOWN 2\r\n")
    scene.system.sync()
    os.kill(scene.server.pid, sent)
    frame = next_message(scene.system, 5.0)
    assert frame.subject.decode() == f"$SYS.SERVER.{scene.id}.{received}"
    message = json.loads(frame.payload)
    assert (message["name"], message["id"], message["ver"]) == ("shapes", scene.id, "2.15.1")
    known = ("name", "host", "id", "domain", "ver", "tags", "metadata", "feature_flags", "jetstream", "flags", "seq")
    assert tuple(message) == (*known, "time")
    scene.server.kill()  # in lame duck mode it would stay for as long as it waits for its clients


def test_heartbeats_come_by_themselves_when_somebody_listens(scene: Scene) -> None:
    scene.system.send(b"SUB $SYS.SERVER.*.STATSZ 1\r\n")
    frame = next_message(scene.system, 12.0)
    assert frame.subject.decode() == f"$SYS.SERVER.{scene.id}.STATSZ"
    assert list(json.loads(frame.payload)) == ["server", "statsz"]


def test_another_account_hears_no_events_and_asks_no_server(scene: Scene) -> None:
    bob = scene.player("bob", "b", "bob")
    bob.send(b"SUB $SYS.> 1\r\nSUB > 2\r\n")
    bob.sync()
    scene.player("bob", "b", "another")
    with pytest.raises(Silent):
        next_message(bob, 0.3)
    bob.send(b"UNSUB 1\r\nUNSUB 2\r\n")
    frame = bob.request("$SYS.REQ.SERVER.PING.VARZ", wait=5.0)
    assert is_no_responders(frame)


@pytest.mark.parametrize("kind", ["real", "ours"])
def test_without_a_system_account_nobody_answers(kind: Kind) -> None:
    with ServerProcess(kind, "host: 127.0.0.1\nport: -1\nno_system_account: true\n") as process:
        player = Player(process.port, "", "", "anyone")
        for subject in ("$SYS.REQ.USER.INFO", "$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.PING.CONNZ"):
            assert is_no_responders(player.request(subject, wait=5.0)), subject
        player.close()


def next_message(player: Player, wait: float) -> Frame:
    end = time.monotonic() + wait
    while (left := end - time.monotonic()) > 0:
        frame = player.next_frame(left)
        if frame.verb == "MSG":
            return frame
    raise Silent


def is_no_responders(frame: Frame | None) -> bool:
    return frame is not None and frame.headers is not None and frame.headers.startswith(b"NATS/1.0 503")


@pytest.mark.parametrize("payload", [b"[" * 60_000, b'{"sort":"' + b"x" * 60_000, bytes(60_000), b"\xff" * 60_000])
def test_bodies_that_are_no_options_are_refused_and_the_next_is_answered(scene: Scene, payload: bytes) -> None:
    frame = scene.system.request("$SYS.REQ.SERVER.PING.CONNZ", payload, wait=5.0)
    assert answer(frame)["error"]["code"] == 400
    assert "data" in answer(scene.system.request("$SYS.REQ.SERVER.PING.CONNZ", wait=5.0))
