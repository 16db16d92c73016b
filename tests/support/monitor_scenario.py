"""One scenario for any server: the same setup, then the same monitoring requests.

`play` returns the answers by name, with values that differ from run to run replaced. `python tests/parity/record.py
monitoring` plays it on the real nats-server and writes the answers to tests/server/monitor/shapes/, where the tests
read them.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import re
import time
from pathlib import Path
from typing import Any

from support.servers import ServerProcess
from support.wire_client import Frame, Silent, WireClient

HERE = Path(__file__).parents[1] / "server" / "monitor"
SHAPES = HERE / "shapes"
CONFIG = """\
host: 127.0.0.1
port: -1
http: 127.0.0.1:-1
server_name: shapes
server_tags: ["zone:one", "rack:2"]
server_metadata { owner: "us" }
jetstream { store_dir: "$DIR/js", max_mem: 256MB, max_file: 1GB, domain: hub }
accounts {
  A { jetstream: enabled, users: [{user: alice, password: a, permissions: {
      publish: {allow: ["foo.>", "$JS.>", "$SYS.>"], deny: ["foo.x"]}, subscribe: ">", allow_responses: true}}] }
  B { users: [{user: bob, password: b}] }
  SYS { users: [{user: sys, password: s}] }
}
system_account: SYS
"""
PLAIN = """\
host: 127.0.0.1
port: -1
http: 127.0.0.1:-1
server_name: plain
"""

# The requests: paths, and subjects with bodies, of the system account and of an account about itself.
QUESTIONS: dict[str, Any] = json.loads((HERE / "questions.json").read_text())

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_SERVER_ID = re.compile(r"N[A-Z2-7]{55}")
_NUID = re.compile(r"[0-9A-Za-z]{22}")
# Keys whose values depend on the process, the machine or the moment, or count internals of the server. Only the type is
# kept.
_VARYING = frozenset(
    {
        *(
            "cid",
            "port",
            "mem",
            "cpu",
            "cores",
            "gomaxprocs",
            "uptime",
            "idle",
            "rtt",
            "go",
            "config_digest",
            "store_dir",
        ),
        *(
            "num_cache",
            "num_inserts",
            "num_removes",
            "num_matches",
            "cache_hit_rate",
            "max_fanout",
            "avg_fanout",
            "seq",
        ),
        *("pending_bytes", "id", "stop", "out_bytes", "out_client_bytes", "bytes", "http_req_stats"),
    }
)
# An answer may or may not count the request that it answers.
_COUNTS = frozenset({"in_msgs", "out_msgs", "in_bytes", "msgs", "in_client_msgs", "in_client_bytes", "out_client_msgs"})
_OF_SERVER = frozenset({"subscriptions", "num_subscriptions"})  # exact for a connection
_IN_NO_ORDER = frozenset(  # nats-server lists these in the random order of Go's maps
    {"accounts", "account_statz", "subscriptions_list_detail", "subscriptions_list", "exports", "imports", "allow"}
)
_UNCOMPARED_HEADERS = frozenset({"Date", "Content-Length", "Transfer-Encoding"})
_OURS_WITHOUT = frozenset({"git_commit"})


class Player(WireClient):
    """A client that authenticates with CONNECT."""

    def __init__(self, port: int, user: str, password: str, name: str) -> None:
        super().__init__(port)
        connect = {"verbose": False, "pedantic": False, "user": user, "pass": password, "name": name, "lang": "script"}
        more = {"version": "1.0", "protocol": 1, "headers": True, "no_responders": True}
        self.send(b"CONNECT " + json.dumps(connect | more).encode() + b"\r\n")
        self.sync()
        self._count = 0

    def sync(self) -> list[Frame]:
        """The frames that arrive before the answer to a PING."""
        self.send(b"PING\r\n")
        frames = []
        while (frame := self.next_frame()).verb != "PONG":
            frames.append(frame)
        return frames

    def next_frame(self, wait: float = 3.0) -> Frame:
        while (frame := self.receive(wait)).verb == "PING":
            self.send(b"PONG\r\n")
        return frame

    def request(self, subject: str, body: str | bytes = b"", header: bytes = b"", wait: float = 0.3) -> Frame | None:
        """The reply; None if none arrives in time."""
        self._count += 1
        inbox = f"_INBOX.{self._count:06d}"
        raw = body.encode() if isinstance(body, str) else body
        self.send(f"SUB {inbox} r{self._count}\r\n".encode())
        if header:
            self.send(
                f"HPUB {subject} {inbox} {len(header)} {len(header) + len(raw)}\r\n".encode() + header + raw + b"\r\n"
            )
        else:
            self.send(f"PUB {subject} {inbox} {len(raw)}\r\n".encode() + raw + b"\r\n")
        found = None
        end = time.monotonic() + wait
        while found is None and (left := end - time.monotonic()) > 0:
            try:
                frame = self.next_frame(left)
            except Silent:
                break
            if frame.verb in ("MSG", "HMSG") and frame.subject.decode() == inbox:
                found = frame
        self.send(f"UNSUB r{self._count}\r\n".encode())
        return found


class Stage:
    """A server with some clients, a stream and a closed connection."""

    def __init__(self, server: ServerProcess, monitor: int) -> None:
        self.monitor = monitor
        self._stack = contextlib.ExitStack()
        self.system = self._enter(Player(server.port, "sys", "s", "the system"))
        self.alice = self._enter(Player(server.port, "alice", "a", "alice"))
        self.bob = self._enter(Player(server.port, "bob", "b", "bob <b>"))
        self.port = server.port

    def _enter(self, player: Player) -> Player:
        self._stack.callback(player.close)
        return player

    def set(self) -> None:
        """Create what the requests are about."""
        config = '{"name":"S","subjects":["foo.s"],"description":"<d>","max_msgs":10}'
        assert self.alice.request("$JS.hub.API.STREAM.CREATE.S", config, wait=3.0) is not None
        for _ in range(3):
            assert self.alice.request("foo.s", "x", wait=3.0) is not None
        self.bob.send(b"SUB foo.bar 1\r\nSUB foo.* q 2\r\nSUB foo.last 3\r\nUNSUB 3 5\r\n")
        self.bob.send(b"PUB foo.bar 2\r\nhi\r\n")
        self.bob.sync()
        gone = Player(self.port, "bob", "b", "gone")
        gone.send(b"SUB gone.> q 7\r\n")
        gone.sync()
        gone.close()
        self.wait_for_closed(1)
        self.system.sync()

    def wait_for_closed(self, count: int) -> None:
        end = time.monotonic() + 5
        while json.loads(get(self.monitor, "/connz?state=closed")[2])["total"] < count:
            assert time.monotonic() < end, "the server has not noticed that a client left"

    def close(self) -> None:
        self._stack.close()


def get(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def monitor_port(server: ServerProcess) -> int:
    for line in server.log:
        if found := re.search(r"Starting http monitor on \S+:(\d+)", line):
            return int(found[1])
    raise AssertionError("the server has not said where it is monitored:\n" + "".join(server.log))


def page_shape(port: int, path: str) -> dict[str, Any]:
    status, headers, body = get(port, path)
    kept = {
        name: value for name, value in headers.items() if name not in ("Date", "Content-Length", "Transfer-Encoding")
    }
    shape: dict[str, Any] = {"status": status, "headers": dict(sorted(kept.items()))}
    if headers.get("Content-Type") == "application/json":
        indent = {"/ipqueuesz": 3, "/healthz": 0}.get(path.partition("?")[0], 2)
        shape["indent"] = _indent(body)
        assert shape["indent"] in (indent, 0), path
        shape["body"] = normal(json.loads(body))
    else:
        shape["body"] = body.decode()
    return shape


def _indent(body: bytes) -> int:
    lines = body.split(b"\n")
    return len(lines[1]) - len(lines[1].lstrip()) if len(lines) > 1 else 0


def answer_shape(frame: Frame | None) -> Any:
    if frame is None:
        return None
    if frame.headers is not None and b" 503" in frame.headers.split(b"\r\n")[0]:
        return "no responders"
    try:
        return normal(json.loads(frame.payload), also=_COUNTS)
    except ValueError:
        return frame.payload.decode("latin-1")


def normal(value: Any, key: str = "", also: frozenset[str] = frozenset()) -> Any:
    """`value` with everything replaced that differs from run to run, and the values under the keys `also`."""
    if isinstance(value, dict):
        varying = _VARYING | also if "cid" in value else _VARYING | _OF_SERVER | also
        if "num_matches" in value:  # the list includes the server's own subscriptions
            varying = varying | {"total"}
        if "account" in value and "sid" in value:
            varying = varying | {"sid"}
        return {
            name: _kind(part) if name in varying else normal(part, name, also)
            for name, part in value.items()
            if name not in _OURS_WITHOUT
        }
    if isinstance(value, list):
        parts = [normal(part, key, also) for part in value]
        if key in _IN_NO_ORDER:
            parts.sort(key=lambda part: json.dumps(part, sort_keys=True))
        if key in ("subscriptions_list", "subscriptions_list_detail"):
            parts = [part for part in parts if "_INBOX" not in json.dumps(part) and "$" not in json.dumps(part)]
        return parts
    if isinstance(value, str):
        text = _SERVER_ID.sub("<server id>", _TIME.sub("<time>", value))
        return "<id>" if _NUID.fullmatch(text) else text
    if isinstance(value, float):
        return "<float>"
    return value


def _kind(value: Any) -> str:
    return "<number>" if isinstance(value, int | float) else f"<{type(value).__name__}>"


def play_pages(server: ServerProcess, pages: list[str], stage: Stage | None) -> dict[str, Any]:
    port = monitor_port(server)
    if stage is not None:
        stage.bob.sync()
    return {path: page_shape(port, path) for path in pages}


def play_requests(player: Player, requests: list[list[str]], server_id: str) -> dict[str, Any]:
    shapes = {}
    for subject, body in requests:
        frame = player.request(subject.replace("<id>", server_id), body)
        shapes[f"{subject} {body}".strip()] = answer_shape(frame)
    return shapes


def play_events(stage: Stage, server_id: str) -> dict[str, Any]:
    """What the system account receives while a client connects, is kicked, and another one is refused."""
    system = stage.system
    system.send(b"SUB $SYS.ACCOUNT.> e1\r\nSUB $SYS.SERVER.> e2\r\n")
    system.sync()
    received: dict[str, Any] = {}

    def listen(until: str) -> None:
        while True:
            frame = system.next_frame(5.0)
            if frame.verb not in ("MSG", "HMSG"):
                continue
            subject = frame.subject.decode().replace(server_id, "<id>")
            received.setdefault(subject, normal(json.loads(frame.payload)))
            if subject == until:
                return

    with contextlib.closing(Player(stage.port, "bob", "b", "guest")) as guest:
        listen("$SYS.ACCOUNT.B.CONNECT")
        guest.send(b"PUB foo.nobody 3\r\nabc\r\n")
        guest.sync()
        cid = max(one["cid"] for one in json.loads(get(stage.monitor, "/connz?acc=B")[2])["connections"])
        body = json.dumps({"cid": cid}).encode()
        # The request has a reply subject: without one the server kicks nobody.
        system.send(f"PUB $SYS.REQ.SERVER.{server_id}.KICK _INBOX.kicked {len(body)}\r\n".encode() + body + b"\r\n")
        listen("$SYS.ACCOUNT.B.DISCONNECT")
    with contextlib.closing(WireClient(stage.port)) as stranger:
        connect = b'{"user":"eve","pass":"x","name":"stranger","lang":"script","version":"1.0","protocol":1}'
        stranger.send(b"CONNECT " + connect + b"\r\nPING\r\n")
        listen("$SYS.ACCOUNT.$G.DISCONNECT")
    system.send(f"PUB $SYS.REQ.SERVER.{server_id}.STATSZ 0\r\n\r\n".encode())
    listen("$SYS.SERVER.<id>.STATSZ")
    system.send(b"UNSUB e1\r\nUNSUB e2\r\n")
    system.sync()
    return dict(sorted(received.items()))


def play(server: ServerProcess) -> dict[str, dict[str, Any]]:
    """All answers, by the file that they are stored in."""
    stage = Stage(server, monitor_port(server))
    try:
        stage.set()
        server_id = json.loads(get(stage.monitor, "/varz")[2])["server_id"]
        return {
            "pages": play_pages(server, QUESTIONS["pages"], stage),
            "system": play_requests(stage.system, QUESTIONS["system"], server_id),
            "own": play_requests(stage.bob, QUESTIONS["own"], server_id),
            "alice": play_requests(stage.alice, [["$SYS.REQ.USER.INFO", ""]], server_id),
            "encodings": _encodings(stage.system),
            "events": play_events(stage, server_id),
        }
    finally:
        stage.close()


def _encodings(player: Player) -> dict[str, Any]:
    shapes = {}
    for wanted in ("gzip", "br"):
        header = f"NATS/1.0\r\nAccept-Encoding: {wanted}\r\n\r\n".encode()
        frame = player.request("$SYS.REQ.SERVER.PING.ROUTEZ", b"", header)
        assert frame is not None and frame.headers is not None
        shapes[wanted] = {"headers": frame.headers.decode(), "begins": base64.b16encode(frame.payload[:2]).decode()}
    return shapes


def play_plain(server: ServerProcess) -> dict[str, Any]:
    """A server without JetStream and without accounts."""
    return play_pages(server, QUESTIONS["plain"], None)
