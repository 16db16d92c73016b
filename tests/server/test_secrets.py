"""Passwords and tokens stay out of every file, page, log line, event and error, however they came in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.db.lock import holder_of
from penstock.errors import StoreLocked
from penstock.server.conf.conf import ConfError
from penstock.server.conf.options_file import load_options
from penstock.server.log.trace import without_secrets
from penstock.server.options import Options, User, WebsocketOptions
from penstock.wire.connect import Connect
from support.attack import Client
from support.servers import ServerProcess
from support.wire_client import WireClient

SECRET = "Topf4Secret"
BASE = "host: 127.0.0.1\nport: -1\nhttp: 127.0.0.1:{http}\njetstream {{ store_dir: $DIR }}\n"
EVERYTHING = ["-DVV"]
# What a client may send in place of a good CONNECT; some of it is let in.
CONNECTS = [
    f'CONNECT {{"user":"u","pass":"{SECRET}"}}',
    f'CONNECT {{"user":"u","PASS":"{SECRET}"}}',
    f'CONNECT{{"user":"u","Pass":"{SECRET}"}}',
    f'connect\t{{"auth_token":"{SECRET}","user":1}}',
    f'CONNECT {{"auth_token":["{SECRET}"]}}',
    f'CONNECT {{"user":"u","p\\u0061ss":"{SECRET}"}}',
    f'CONNECT {{"user":"u","pass":"x","pass":"{SECRET}"}}',
    f'CONNECT {{"user":"u","pass":"{SECRET}"',
    f'CONNECT {{"user":"u","pass":{SECRET}}}',
    f'CONNECT {{"user":"u","pass" : "\\"{SECRET}"}}',
    f'CONNECT {{"jwt":"{SECRET}","sig":"{SECRET}","nkey":"U"}}',
    f'CONNECT {{"pass":{{"x":"{SECRET}"}}}}',
    f'CONNEC {{"user":"u","pass":"{SECRET}"}}',
    f'C {{"pass":"{SECRET}"}}',
    f'CONNECT {{"pass":"{SECRET}{"x" * 5000}"}}',
    f"GET /?auth_token={SECRET} HTTP/1.1",
    f"GET / HTTP/1.1\r\nAuthorization: Basic {SECRET}",
]


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def pages(port: int) -> str:
    found = []
    for path in ("varz", "connz?auth=1&subs=1&state=any", "jsz?config=1&accounts=1", "accountz?acc=$G", "debug/vars",
                 "stacksz", "healthz", "subsz?subs=1", "accstatz"):  # fmt: skip
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=30) as answer:
            found.append(answer.read().decode())
    return "\n".join(found)


def every_file(folder: str) -> str:
    files = [path for path in Path(folder).rglob("*") if path.is_file() and path.name != "server.conf"]
    return "\n".join(f"{path}: {path.read_bytes().decode('latin-1')}" for path in files)


def others_see(store: str) -> str:
    """What those are told who would like to open the store."""
    try:
        penstock.open(store)
    except StoreLocked as error:
        told = f"{error} {error.holder}"
    shown = subprocess.run(
        [sys.executable, "-m", "penstock", "inspect", store], capture_output=True, text=True, check=False
    )
    return told + shown.stdout + shown.stderr


def try_all(port: int) -> None:
    for connect in CONNECTS:
        client = WireClient(port)
        client.send(connect.encode() + b"\r\nPING\r\n")
        while True:
            try:
                if client.receive().verb in ("PONG", "-ERR"):
                    break
            except Exception:  # noqa: BLE001 - closed without a word
                break
        client.close()


@pytest.mark.parametrize(
    ("flags", "login"),
    [
        (["--user", "u", "--pass", SECRET], {"user": "u", "pass": SECRET}),
        (["--user=u", f"-pass={SECRET}"], {"user": "u", "pass": SECRET}),
        (["--auth", SECRET], {"auth_token": SECRET}),
        (["-auth=" + SECRET, "--cluster", f"nats://a:{SECRET}@127.0.0.1:0"], {"auth_token": SECRET}),
    ],
    ids=["password", "password after =", "token", "token and a route's"],
)
def test_a_password_on_the_command_line_is_seen_by_nobody_else(flags: list[str], login: dict[str, Any]) -> None:
    """It once stood in LOCK, and so in `inspect`, and in the error of everybody who found the store locked."""
    port = free_port()
    with ServerProcess("ours", BASE.format(http=port), [*EVERYTHING, *flags]) as server:
        store = f"{server.directory}/store"
        Client(server.port, **login).create("S", "s")
        try_all(server.port)
        with open(f"/proc/{server.pid}/cmdline", "rb") as file:
            command = file.read().decode()
        assert "-DVV" in command and SECRET not in command
        holder = holder_of(store)
        assert holder is not None and str(holder["command"]).startswith("penstock serve -c ")
        assert "[REDACTED]" in str(holder["command"])
        seen = pages(port) + every_file(server.directory) + others_see(store)
        assert "-DVV" in seen and SECRET not in seen
        server.signal(9)
        server.wait_for_end(10)
        assert SECRET not in every_file(server.directory), "nor after a kill"
        assert "CONNECT" in "".join(server.log) and SECRET not in "".join(server.log)


def test_a_password_of_the_configuration_is_seen_by_nobody() -> None:
    port = free_port()
    users = (
        f'accounts {{ A {{ users: [ {{ user: u, password: "{SECRET}" }} ] }}\n'
        f'SYS {{ users: [ {{ user: sys, password: "{SECRET}2" }} ] }} }}\nsystem_account: SYS\n'
    )
    config = BASE.format(http=port) + users
    with ServerProcess("ours", config, EVERYTHING) as server:
        system = Client(server.port, user="sys", **{"pass": f"{SECRET}2"})
        system.send(b"SUB $SYS.> 9\r\n")
        system.ping()
        Client(server.port, user="u", **{"pass": SECRET})
        try_all(server.port)
        server.configure(config.replace(SECRET, f"{SECRET}3"))  # both are told that they are out
        server.signal(1)
        assert server.wait_for_log("Reloaded server configuration")
        received = "".join(str(frame) for frame in system.drain())
        assert ".CONNECT" in received and SECRET not in received
        server.configure(config.replace("port: -1", f'port: -1\nauthorization {{ user: x, password: "{SECRET}" }}'))
        server.signal(1)
        assert server.wait_for_log("Failed to reload")
        assert SECRET not in pages(port) + every_file(server.directory)
        log = "".join(server.log)
        assert "authentication error" in log and SECRET not in log


@pytest.mark.parametrize("connect", [one for one in CONNECTS if one[:7].upper() == "CONNECT"])
def test_a_trace_shows_no_password_however_it_is_spelled(connect: str) -> None:
    assert SECRET not in without_secrets(connect[7:].encode()).decode()


def test_a_trace_shows_the_rest() -> None:
    said = b' {"user":"u","pass":"x","Auth_Token":"y","name":"me","nested":{"a":[1]}}'
    assert without_secrets(said) == (
        b' {"user":"u","pass":"[REDACTED]","Auth_Token":"[REDACTED]","name":"me","nested":{"a":[1]}}'
    )
    assert without_secrets(b" {}") == b" {}"


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        (f"password: ${SECRET}", {}),  # looks like a variable
        ("token: 99999999999999999999999", {}),
        ("password: 2026-99-99T00:00:00Z", {}),
        (f"users: [ {SECRET} ]", {}),
        (f"users: {SECRET}", {}),
        (f"users: [[ u, {SECRET} ]]", {}),
        ("password: $PW", {"PW": "2026-99-99T00:00:00Z"}),
        ("timeout: $PW", {"PW": "99999999999999999999999"}),
        ("password: $PW", {"PW": f"${SECRET}"}),
        (f"password: [ {SECRET} ]", {}),
        (f"password: {{ a: {SECRET} }}", {}),
    ],
)
def test_an_error_in_the_configuration_has_no_password(tmp_path: Path, text: str, environment: dict[str, str]) -> None:
    path = tmp_path / "s.conf"
    path.write_text(f"authorization {{\n  user: u\n  {text}\n}}\n")
    with pytest.raises(ConfError) as caught:
        load_options(str(path), environment)
    told = str(caught.value)
    assert f"{path}:3:" in told, "the place is enough to find it"
    assert not any(secret in told for secret in (SECRET, "2026-99", "99999999"))


def test_a_password_with_a_blank_is_not_taken_for_a_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "serve", "--user", "u", "--pass", "my", SECRET],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode and "needs quotes" in done.stderr and SECRET not in done.stderr


def test_what_is_shown_of_options_and_clients_has_no_password() -> None:
    options = Options(password=SECRET, authorization=SECRET, users=[User("u", SECRET)])
    options.websocket = WebsocketOptions(password=SECRET, token=SECRET)
    assert SECRET not in repr(options) + repr(Connect(password=SECRET, auth_token=SECRET, jwt=SECRET, sig=SECRET))
    with pytest.raises(TypeError, match="option 'password' takes str, not bytes") as caught:
        penstock.Server(password=SECRET.encode())
    assert SECRET not in str(caught.value)


def test_of_a_program_that_is_not_ours_lock_has_the_name_alone(tmp_path: Path) -> None:
    """We do not know which of its words are secret."""
    program = tmp_path / "etl.py"
    program.write_text(
        "import penstock, sys\n"
        "from penstock.db.lock import holder_of\n"
        "with penstock.open(sys.argv[1]): print(holder_of(sys.argv[1])['command'])\n"
    )
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "data"), "--db-password", SECRET],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"{program}\n"


def test_the_lock_of_an_older_version_is_shown_without_its_password(tmp_path: Path) -> None:
    (tmp_path / "LOCK").write_text(json.dumps({"pid": 7, "command": f"penstock serve --user u --pass {SECRET} -js"}))
    from penstock.db.lock import read_holder

    fd = os.open(tmp_path / "LOCK", os.O_RDONLY)
    try:
        assert read_holder(fd)["command"] == "penstock serve --user [REDACTED] --pass [REDACTED] -js"
    finally:
        os.close(fd)
