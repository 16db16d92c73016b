"""Clients of the WebSocket port: a real client library against the real server and ours, with the same outcome."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509.oid import NameOID
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from support.certificates import Authority, name_of
from support.servers import Kind, ServerProcess
from support.wire_client import WireClient

BASE = "host: 127.0.0.1\nport: -1\n"
WEBSOCKET_PORT = re.compile(r"Listening for websocket clients on wss?://\S+?:(\d+)\s*$")
QUIET = '"verbose":false,"protocol":0,"headers":true,"no_responders":true'

kinds = pytest.mark.parametrize("kind", ["real", "ours"])


def websocket(more: str = "") -> str:
    return f'websocket {{ listen: "127.0.0.1:-1", no_tls: true, {more} }}\n'


def websocket_port(server: ServerProcess) -> int:
    return next(int(found[1]) for line in server.log if (found := WEBSOCKET_PORT.search(line)))


class Client:
    """Commands over a WebSocket of the `websockets` library.

    Its asyncio client, turned by hand: the other one reads and writes a TLS connection in two threads, which OpenSSL
    does not allow, and now and then waits for ever, whichever server it talks to.
    """

    def __init__(self, runner: asyncio.Runner, connection: ClientConnection) -> None:
        self._runner = runner
        self._connection = connection
        self._pending = b""
        self.info = json.loads(self.line()[5:])

    def send(self, *lines: str | bytes) -> None:
        data = b"".join((line.encode() if isinstance(line, str) else line) + b"\r\n" for line in lines)
        self._runner.run(self._connection.send(data))

    def send_raw(self, frames: bytes) -> None:
        self._connection.transport.write(frames)

    def message(self) -> bytes:
        data = self._runner.run(asyncio.wait_for(self._connection.recv(), 5))
        assert isinstance(data, bytes), "the server sends binary messages"
        return data

    def more(self) -> None:
        self._pending += self.message()

    def line(self) -> bytes:
        while b"\r\n" not in self._pending:
            self.more()
        found, _, self._pending = self._pending.partition(b"\r\n")
        return found

    def exactly(self, size: int) -> bytes:
        while len(self._pending) < size:
            self.more()
        found, self._pending = self._pending[:size], self._pending[size:]
        return found

    def until_pong(self) -> list[bytes]:
        """Lines up to a PONG, without INFO."""
        found = []
        while (line := self.line()) != b"PONG":
            if not line.startswith(b"INFO"):
                found.append(line)
        return found


@contextmanager
def client(server: ServerProcess, scheme: str = "ws", **options: Any) -> Iterator[Client]:
    address = f"{scheme}://localhost:{websocket_port(server)}"
    options.setdefault("compression", None)
    options |= {"max_size": None, "proxy": None, "ping_interval": None, "open_timeout": 5}
    with asyncio.Runner() as runner:

        async def opened() -> ClientConnection:
            return await connect(address, **options)

        connection = runner.run(opened())
        try:
            yield Client(runner, connection)
        finally:
            runner.run(connection.close())


def last_words(client: Client) -> tuple[list[bytes], int | None, str]:
    """Lines up to the end, and how the server closed."""
    found = []
    try:
        while True:
            found.append(client.line())
    except ConnectionClosed as closed:
        return found, closed.rcvd.code if closed.rcvd else None, closed.rcvd.reason if closed.rcvd else ""


@kinds
@pytest.mark.parametrize("compression", [None, "deflate"])
def test_what_is_published_is_heard(kind: Kind, compression: str | None) -> None:
    config = BASE + websocket("compression: true")
    with (
        ServerProcess(kind, config) as server,
        client(server, compression=compression) as one,
        client(server) as other,
    ):
        assert one.info["port"] == websocket_port(server) and "auth_required" not in one.info
        for each in (one, other):
            each.send(f"CONNECT {{{QUIET}}}", "SUB a.> 1", "PING")
            assert each.until_pong() == []
        # In a compressed message one command may not fill the bound of max_payload by itself.
        big = bytes(n * 7 % 256 for n in range(1_000_000))
        for payload in (b"", b"small", b"x" * 5000, big):
            other.send(f"PUB a.b reply {len(payload)}", payload)
            for each in (one, other):
                assert each.line() == f"MSG a.b 1 reply {len(payload)}".encode()
                assert each.exactly(len(payload) + 2) == payload + b"\r\n"
        one.send("PUB nobody reply 0", "", "SUB reply 2", "PUB nobody reply 0", "", "PING")
        assert one.line().startswith(b"HMSG reply 2 ")


@kinds
def test_a_browser_gets_small_frames(kind: Kind) -> None:
    with ServerProcess(kind, BASE + websocket()) as server, client(server, user_agent_header="Mozilla/5.0") as one:
        one.send(f"CONNECT {{{QUIET}}}", "SUB a 1", "PING")
        one.until_pong()
        one.send("PUB a 20000", b"x" * 20000)
        messages = []
        while sum(map(len, messages)) < 20000:
            messages.append(one.message())
        assert max(map(len, messages)) <= 4096 and len(messages) >= 5


CREDENTIALS: list[tuple[dict[str, str], str, bool]] = [
    ({}, "", False),
    ({"Cookie": "u=a; p=b"}, "", True),
    ({"Cookie": "u=a; p=wrong"}, "", False),
    ({"Cookie": "u=a; p=wrong"}, ',"user":"a","pass":"b"', True),
    ({"Cookie": "u=a"}, ',"pass":"b"', True),
    ({}, ',"user":"a","pass":"b"', True),
    ({}, ',"user":"s","pass":"b"', False),
    ({}, ',"user":"w","pass":"b"', True),
]


@kinds
def test_who_comes_with_cookies_or_a_connect_is_let_in_or_told_why_not(kind: Kind) -> None:
    users = (
        "authorization { users: [{user: a, password: b}, {user: s, password: b, allowed_connection_types: [STANDARD]}, "
        "{user: w, password: b, allowed_connection_types: [WEBSOCKET]}] }\n"
    )
    with ServerProcess(kind, BASE + users + websocket("user_cookie: u, pass_cookie: p")) as server:
        for headers, more, is_in in CREDENTIALS:
            with client(server, additional_headers=headers) as one:
                assert one.info["auth_required"] is True
                one.send(f"CONNECT {{{QUIET}{more}}}", "PING")
                if is_in:
                    assert one.until_pong() == []
                else:
                    lines, code, reason = last_words(one)
                    if kind == "ours" or code is not None:  # the real server may lose its last words
                        assert lines == [b"-ERR 'Authorization Violation'"]
                        assert (code, reason) == (1008, "Authentication Failure")


@kinds
def test_a_token_cookie_and_users_of_the_websocket_alone(kind: Kind) -> None:
    config = BASE + websocket("token_cookie: t, authorization { token: tok }")
    with ServerProcess(kind, config) as server:
        for value, is_in in (("tok", True), ("no", False)):
            with client(server, additional_headers={"Cookie": f"t={value}"}) as one:
                assert one.info["auth_required"] is True
                one.send(f"CONNECT {{{QUIET}}}", "PING")
                assert (one.line() == b"PONG") == is_in
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as plain:
            assert b"auth_required" not in plain.recv(65536)
            plain.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
            assert plain.recv(65536) == b"PONG\r\n"


@kinds
def test_a_connection_that_breaks_the_protocol_is_closed_with_a_reason(kind: Kind) -> None:
    broken = [
        ("NONSENSE", b"-ERR 'Unknown Protocol Operation'", 1002, ("Protocol Violation", "Parse Error", "Read Error")),
        ("PUB a 2000000", b"-ERR 'Maximum Payload Violation'", 1009, ("Maximum Message Payload Exceeded",)),
        ("SUB " + "a" * 5000 + " 1", b"-ERR 'maximum control line exceeded'", 1008, ("Maximum Control Line Exceeded",)),
    ]
    with ServerProcess(kind, BASE + websocket()) as server:
        for command, text, code, reasons in broken:
            with client(server) as one:
                one.send(f"CONNECT {{{QUIET}}}", "PING")
                one.until_pong()
                one.send(command)
                lines, got, reason = last_words(one)
                if kind == "ours":
                    assert lines == [text] and got == code and reason in reasons
                else:
                    assert lines in ([text], []), "the real server may lose its last words"


@kinds
def test_the_handshake_has_its_time(kind: Kind) -> None:
    with ServerProcess(kind, BASE + websocket('handshake_timeout: "200ms"')) as server:
        with socket.create_connection(("127.0.0.1", websocket_port(server)), timeout=5) as silent:
            silent.sendall(b"GET / HTTP/1.1\r\nHo")
            while silent.recv(65536):
                continue
        with client(server) as one:
            one.send(f"CONNECT {{{QUIET}}}", "PING")
            assert one.until_pong() == []


def test_the_end_of_the_server_is_told() -> None:
    with ServerProcess("ours", BASE + websocket()) as server, client(server) as one:
        one.send(f"CONNECT {{{QUIET}}}", "PING")
        one.until_pong()
        waiting = socket.create_connection(("127.0.0.1", websocket_port(server)), timeout=5)
        server.stop()
        _, code, reason = last_words(one)
        assert (code, reason) == (1001, "Server Shutdown")
        assert waiting.recv(100) == b""
        waiting.close()


def test_ten_thousand_frames_in_one_write_are_ten_thousand_commands() -> None:
    mask = b"\0\0\0\0"
    command = b"PUB a 2\r\nhi\r\n"
    frames = (struct.pack(">BB", 0x82, 0x80 | len(command)) + mask + command) * 10_000
    with ServerProcess("ours", BASE + websocket()) as server, client(server) as one:
        one.send(f"CONNECT {{{QUIET}}}", "SUB a 1", "PING")
        one.until_pong()
        one.send_raw(frames)
        for _ in range(10_000):
            assert one.line() == b"MSG a 1 2" and one.exactly(4) == b"hi\r\n"


# Over TLS.


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    directory: Path = tmp_path_factory.mktemp("certificates")
    found = Authority(directory)
    found.server()
    found.client("carl", name_of((NameOID.COMMON_NAME, "carl")))
    return found


@kinds
@pytest.mark.parametrize("verify", ["", "verify_and_map: true"])
def test_wss_is_ws_over_tls_with_or_without_certificates(kind: Kind, authority: Authority, verify: str) -> None:
    at = authority.directory
    files = f'cert_file: "{at}/server.pem", key_file: "{at}/server.key", ca_file: "{authority.path}"'
    users = "authorization { users: [{user: 'CN=carl'}] }\n" if verify else ""
    config = f'{BASE}{users}websocket {{ listen: "127.0.0.1:-1", tls {{ {files}, {verify} }} }}\n'
    with ServerProcess(kind, config) as server:
        with client(server, "wss", ssl=authority.client_context("carl")) as one:
            assert one.info["tls_required"] is True
            one.send(f"CONNECT {{{QUIET}}}", "SUB a 1", "PING")
            assert one.until_pong() == []
            payload = bytes(n * 11 % 256 for n in range(900_000))
            one.send(f"PUB a {len(payload)}", payload)
            assert one.line() == f"MSG a 1 {len(payload)}".encode()
            assert one.exactly(len(payload) + 2) == payload + b"\r\n"
        with socket.create_connection(("127.0.0.1", websocket_port(server)), timeout=5) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b" 101 " not in plain.recv(65536)


# What INFO says.

OWN = frozenset({"server_id", "server_name", "go", "git_commit", "nonce", "xkey", "product", "client_id"})
CONFIGURED = {
    "nothing": "",
    "users": "authorization { users: [{user: a, password: b}] }",
    "a user without a name": "authorization { users: [{user: a, password: b}] }\nno_auth_user: a",
    "an account with a limit": "accounts { A: { limits: { max_payload: 100 }, users: [{user: a, password: b}] } }",
    "the system account alone": "accounts { $SYS: {users: [{user: admin, password: x}]} }",
    "an address to tell": "client_advertise: 'h.x:77'",
}


def told(info: dict[str, Any], ports: dict[int, str]) -> dict[str, Any]:
    shown = {key: value for key, value in info.items() if key not in OWN}
    return shown | {"port": ports.get(info["port"], info["port"])}


@pytest.mark.parametrize("more", ["", "advertise: 'y:9'", "no_auth_user: a"])
@pytest.mark.parametrize("name", CONFIGURED)
def test_info_says_the_same_before_and_after_connect(name: str, more: str) -> None:
    if "no_auth_user" in more and "user: a," not in CONFIGURED[name]:
        pytest.skip("there is no user a")
    login = ',"user":"a","pass":"b"' if "user: a," in CONFIGURED[name] else ""
    lines = f'CONNECT {{"verbose":false,"protocol":1{login}}}', "PING"
    found: dict[str, list[dict[str, Any]]] = {}
    for kind in ("real", "ours"):
        with ServerProcess(kind, f"{BASE}{CONFIGURED[name]}\n{websocket(more)}") as server:
            ports = {server.port: "nats", websocket_port(server): "websocket"}
            with client(server) as one:
                one.send(*lines)
                assert one.line() == b"PONG"
                found[kind] = [told(one.info, ports), told(json.loads(one.line()[5:]), ports)]
            plain = WireClient(server.port)
            found[kind].append(told(json.loads(plain.receive().text), ports))
            plain.send("\r\n".join([*lines, ""]).encode())
            assert plain.receive().verb == "PONG"
            found[kind].append(told(json.loads(plain.receive().text), ports))
            plain.close()
    assert found["ours"] == found["real"]
