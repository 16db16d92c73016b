"""What monitoring reports about clients that authenticate in different ways, and about servers with other options."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from support.monitor_scenario import answer_shape, monitor_port, page_shape
from support.servers import Kind, ServerProcess
from support.wire_client import Closed, Frame, Silent, WireClient

BASE = "host: 127.0.0.1\nport: -1\nhttp: 127.0.0.1:-1\nserver_name: who\n"
# By name: the configuration, and what each client sends in CONNECT.
LOGINS: dict[str, tuple[str, list[dict[str, str]]]] = {
    "open": (BASE, [{}, {"name": "someone", "user": "u", "pass": "p"}]),
    "token": (BASE + "authorization { token: abc }\n", [{"auth_token": "abc"}, {"auth_token": "bad"}, {}]),
    "password": (
        BASE + "authorization { user: a, password: b, timeout: 1.5 }\n",
        [{"user": "a", "pass": "b"}, {"user": "a", "pass": "x"}],
    ),
    "users": (
        BASE
        + """authorization {
          users: [
            {user: a, password: b, permissions: {publish: "foo", subscribe: {deny: ["bar q", "z"]}}}
            {user: c, password: d}
          ]
          default_permissions: {publish: ">"}
        }
        """,
        [{"user": "a", "pass": "b"}, {"user": "c", "pass": "d"}],
    ),
    "no_auth_user": (
        BASE + "accounts { A { users: [{user: c, password: d}] } }\nno_auth_user: c\n",
        [{}, {"user": "c", "pass": "d"}],
    ),
}
LOGIN_PAGES = (
    "/varz",
    "/connz?auth=1&subs=detail",
    "/connz?state=closed&auth=1&subs=1",
    "/connz?state=any&auth=1",
    "/connz?acc=$G",
    "/connz?acc=$G&state=closed",
    "/connz?user=c&auth=1",
    "/accstatz",
    "/accountz?acc=$G",
)
LOGIN_REQUESTS = ("$SYS.REQ.USER.INFO", "$SYS.REQ.ACCOUNT.PING.STATZ", "$SYS.REQ.SERVER.PING.CONNZ")
# Other options: only pages are requested.
OPTIONS = {
    "dressed": (
        BASE.replace("http:", "http_base_path: nats\nhttp:")
        + """client_advertise: "h.example:1234"
        max_subscriptions: 1000
        max_connections: 100
        max_payload: 2MB
        max_control_line: 2048
        ping_interval: "30s"
        ping_max: 5
        write_deadline: "3s"
        server_tags: ["<a>", "b:c"]
        server_metadata { zone: "1", "<a>": b }
        websocket {
          listen: "127.0.0.1:-1", no_tls: true, same_origin: true, compression: true, allowed_origins: ["http://x"]
          advertise: "h:1", handshake_timeout: "3s"
        }
        jetstream {
          store_dir: "$DIR/js", max_mem: 1G, max_file: 1G, sync_interval: always, strict: false, unique_tag: az
          limits { max_ack_pending: 100, max_request_batch: 5, max_ha_assets: 3, duplicate_window: "1m" }
        }
        """,
        ("/nats/varz", "/nats/jsz?accounts=1", "/nats/healthz", "/nats/", "/varz", "/nats/none"),
    ),
    "limits": (
        BASE
        + """jetstream { store_dir: "$DIR/js", max_mem: 100M, max_file: 100M, sync_interval: 5s }
        accounts {
          A {
            jetstream { max_mem: 1M, max_file: 2M, max_streams: 3, max_consumers: 4 }
            users: [{user: a, password: a}], limits { max_connections: 5 }
          }
          B { jetstream: enabled, users: [{user: b, password: b}] }
          C { users: [{user: c, password: c}] }
        }
        """,
        ("/varz", "/jsz?accounts=1", "/jsz?acc=A", "/accountz?acc=A", "/accstatz?unused=1", "/healthz?account=A"),
    ),
}


def play_logins(kind: Kind) -> dict[str, Any]:
    shapes: dict[str, Any] = {}
    for name, (config, logins) in LOGINS.items():
        with ServerProcess(kind, config) as server, contextlib.ExitStack() as stack:
            clients = [stack.enter_context(contextlib.closing(_login(server.port, login))) for login in logins]
            shapes |= {f"{name} {path}": page_shape(monitor_port(server), path) for path in LOGIN_PAGES}
            for number, client in enumerate(clients):
                for subject in LOGIN_REQUESTS:
                    shapes[f"{name} {number} {subject}"] = answer_shape(_ask(client, subject))
                client.close()
    return shapes


def play_options(kind: Kind) -> dict[str, Any]:
    shapes: dict[str, Any] = {}
    for name, (config, pages) in OPTIONS.items():
        with ServerProcess(kind, config) as server:
            shapes |= {f"{name} {path}": page_shape(monitor_port(server), path) for path in pages}
    return shapes


def _login(port: int, login: dict[str, str]) -> WireClient:
    """A client that was accepted or refused."""
    client = WireClient(port)
    connect = {"verbose": False, "protocol": 1, "lang": "script", "headers": True, "no_responders": True, **login}
    client.send(b"CONNECT " + json.dumps(connect).encode() + b"\r\nSUB x 1\r\nPING\r\n")
    try:
        while client.receive().verb != "PONG":
            pass
    except Closed:
        return client
    return client


def _ask(client: WireClient, subject: str) -> Frame | None:
    client.send(b"SUB answer 9\r\nPUB %b answer 0\r\n\r\n" % subject.encode())
    wait = 3.0
    try:
        while (frame := client.receive(wait)).verb not in ("MSG", "HMSG"):
            if frame.verb == "-ERR":
                wait = 0.3  # the publish was refused: no answer should arrive
    except (Closed, Silent):
        return None
    client.send(b"UNSUB 9\r\n")
    return frame
