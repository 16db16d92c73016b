"""Where the server listens: everywhere means IPv6 and IPv4, an address means that one, as in the reference."""

from __future__ import annotations

import json
import re
import socket
import urllib.request
from typing import Any

import pytest

from penstock.server.address import shown_ip
from support.servers import Kind, ServerProcess

needs_ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
HTTP_PORT = re.compile(r"Starting http monitor on \S+?:(\d+)\s*$")


def info(ip: str, port: int) -> dict[str, Any]:
    """The INFO that the server sends to a client of this address."""
    with socket.create_connection((ip, port), timeout=5) as client, client.makefile("rb") as lines:
        return dict(json.loads(lines.readline()[5:]))


def is_heard(ip: str, port: int, server_id: str) -> bool:
    """Whether this server hears a client of that address. Somebody else may: the port is free for others there."""
    try:
        return bool(info(ip, port)["server_id"] == server_id)
    except (ConnectionRefusedError, ValueError, TimeoutError):  # nobody, or who speaks something else
        return False


@needs_ipv6
@pytest.mark.parametrize("kind", ["real", "ours"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", None])
def test_everywhere_is_ipv6_and_ipv4(kind: Kind, host: str | None) -> None:
    """It was IPv4 alone, or with `::` IPv6 alone."""
    named = "[::]" if host == "::" else host or ""
    config = (f'host: "{host}"\n' if host else "") + f'port: -1\nhttp: "{named}:-1"\ndebug: true\n'
    with ServerProcess(kind, config) as server:
        assert info("127.0.0.1", server.port)["client_ip"] == "127.0.0.1"
        assert info("::1", server.port)["client_ip"] == "::1"
        assert server.wait_for_log("[DBG] [::1]:") and any("[DBG] 127.0.0.1:" in line for line in server.log)
        assert info("::1", server.port)["host"] == (host or "0.0.0.0")
        http = next(int(found[1]) for line in server.log if (found := HTTP_PORT.search(line)))
        for name in ("127.0.0.1", "[::1]"):
            with urllib.request.urlopen(f"http://{name}:{http}/healthz", timeout=5) as answer:
                assert json.load(answer) == {"status": "ok"}


@needs_ipv6
@pytest.mark.parametrize("kind", ["real", "ours"])
@pytest.mark.parametrize(
    ("host", "other"), [("127.0.0.1", "::1"), ("::1", "127.0.0.1")], ids=["IPv4 alone", "IPv6 alone"]
)
def test_one_address_is_that_one(kind: Kind, host: str, other: str) -> None:
    with ServerProcess(kind, f'host: "{host}"\nport: -1\n') as server:
        found = info(host, server.port)
        assert found["client_ip"] == host
        assert is_heard(host, server.port, found["server_id"]) and not is_heard(other, server.port, found["server_id"])


def test_an_ipv4_client_is_shown_as_such() -> None:
    shown = {"::ffff:10.1.2.3": "10.1.2.3", "10.1.2.3": "10.1.2.3", "::1": "::1", "::ffff:a": "::ffff:a"}
    assert {ip: shown_ip(ip) for ip in shown} == shown
