"""Settings and first commands that few users send: Penstock treats them as the real nats-server does."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from pathlib import Path

import pytest

import penstock
from penstock.errors import NotAStore
from penstock.server.advertise import parse_advertise
from support.attack import Client
from support.servers import BASE, JETSTREAM, Kind, ServerProcess, command


@pytest.fixture(params=["real", "ours"])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


def first_words(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as wire, wire.makefile("rb") as lines:
        return lines.read()


def test_one_client_too_many_hears_info_before_the_error(kind: Kind) -> None:
    """A client library that gets no INFO does not look at the error."""
    with ServerProcess(kind, BASE + "max_connections: 1\n") as server:
        first = Client(server.port)
        info, error, _ = first_words(server.port).split(b"\r\n")
        assert (
            json.loads(info.removeprefix(b"INFO "))["max_payload"] and error == b"-ERR 'maximum connections exceeded'"
        )
        assert server.wait_for_log("- maximum connections exceeded")
        first.ping()


@pytest.mark.parametrize("text", ["foo:bar", "foo:5:6"])
def test_an_address_that_is_none_is_not_advertised(kind: Kind, text: str, tmp_path: Path) -> None:
    """It caused a traceback."""
    config = tmp_path / "server.conf"
    config.write_text(f'{BASE}client_advertise: "{text}"\n')
    done = subprocess.run([*command(kind), "-c", str(config)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and text in done.stderr and "Traceback" not in done.stderr


def test_a_reload_with_an_address_that_is_none_changes_nothing(kind: Kind) -> None:
    """The users were changed, and everything else stayed as it was."""
    with ServerProcess(kind, BASE + 'client_advertise: "x:1"\n') as server:
        server.configure(BASE + 'client_advertise: "y:z"\nauthorization { user: a, pass: b }\n')
        server.signal(signal.SIGHUP)
        assert server.wait_for_log("Failed to reload server configuration")
        client = Client(server.port)
        assert not client.info.get("auth_required") and (client.info["host"], client.info["port"]) == ("x", 1)


def test_an_advertised_address_is_read() -> None:
    found = {text: parse_advertise(text) for text in ("a", "a:5", "[::1]", "[::1]:7", "a:-1")}
    assert found == {"a": ("a", 0), "a:5": ("a", 5), "[::1]": ("::1", 0), "[::1]:7": ("::1", 7), "a:-1": ("a", 0)}


def test_jetstream_is_switched_on_and_off_by_a_reload(kind: Kind) -> None:
    """The log said so, but nothing happened."""
    with ServerProcess(kind, BASE) as server:
        server.configure(BASE + JETSTREAM)
        server.signal(signal.SIGHUP)
        client = _until(server, has_jetstream=True)
        client.create("S", "s")
        assert client.ask("s", b"x")["seq"] == 1
        server.configure(BASE)
        server.signal(signal.SIGHUP)
        client = _until(server, has_jetstream=False)
        assert b" 503" in (client.request("s", b"x").headers or b"")
        if kind == "ours":  # there the request is heard, and answered by nobody
            assert b" 503" in (client.request("$JS.API.INFO").headers or b"")
        server.configure(BASE + JETSTREAM)
        server.signal(signal.SIGHUP)
        client = _until(server, has_jetstream=True)
        assert client.state("S")["messages"] == 1 and client.ask("s", b"x")["seq"] == 2


def _until(server: ServerProcess, *, has_jetstream: bool) -> Client:
    """A client of the server once its INFO says so."""
    for _ in range(500):
        client = Client(server.port)
        if bool(client.info.get("jetstream")) is has_jetstream:
            return client
        client.close()
    raise AssertionError(f"JetStream is never {'on' if has_jetstream else 'off'}: {server.log[-5:]}")


def test_beside_accounts_that_have_no_jetstream_nobody_else_has(kind: Kind) -> None:
    with ServerProcess(kind, BASE + JETSTREAM + "accounts { A {} }\n") as server:
        assert Client(server.port).api("INFO")["error"]["err_code"] == 10039


def test_the_system_account_cannot_have_jetstream(kind: Kind, tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    store = JETSTREAM.replace("$DIR", str(tmp_path / "store"))
    config.write_text(f"{BASE}{store}accounts {{ SYS {{ jetstream: enabled }} }}\nsystem_account: SYS\n")
    done = subprocess.run([*command(kind), "-c", str(config)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 1 and "Not allowed to enable JetStream on the system account" in done.stderr


def test_a_server_without_headers_has_no_responders_to_tell_of(kind: Kind) -> None:
    with (
        ServerProcess(kind, BASE + "no_header_support: true\n") as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as wire,
        wire.makefile("rb") as lines,
    ):
        lines.readline()
        wire.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nPING\r\n')
        assert lines.read() == b"-ERR 'no responders requires headers support'\r\n"


def test_a_client_is_pinged_soon_after_it_has_said_connect(kind: Kind) -> None:
    """So the server can measure the round-trip time; a client that has not sent CONNECT gets no PING."""
    with (
        ServerProcess(kind, BASE) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as quiet,
    ):
        client = Client(server.port)
        while (frame := client.receive(5)).verb == "INFO":
            continue
        assert frame.verb == "PING"
        client.send(b"PONG\r\n")
        quiet.settimeout(0.3)
        found = quiet.recv(65536)
        with pytest.raises(TimeoutError):
            found += quiet.recv(65536)
        assert b"PING" not in found.split(b"\r\n")


@pytest.mark.parametrize("name", ["lost+found/", ".gitkeep", "jetstream/", "server.conf", "nats.log"])
def test_a_store_is_made_beside_what_a_disk_or_a_server_has_there(tmp_path: Path, name: str) -> None:
    """A new volume has a lost+found folder: the server once refused to start on it."""
    if name.endswith("/"):
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text("x")
    for _ in range(2):
        with penstock.open(tmp_path) as db:
            db.stream("S")
            assert db.streams() == ["S"]
    assert (tmp_path / name).exists()


def test_a_directory_of_other_things_is_still_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(NotAStore, match="holds other files"):
        penstock.open(tmp_path)
