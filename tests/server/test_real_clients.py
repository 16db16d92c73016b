"""nats-py against our server, in each way of getting in: a password, a token, an nkey, a certificate, TLS first."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import nats
import nkeys
import pytest
from cryptography.x509.oid import NameOID
from nats.errors import Error

from support.certificates import Authority, name_of
from support.servers import ServerProcess

pytestmark = pytest.mark.nats_py

BASE = "host: 127.0.0.1\nport: -1\n"
SEED = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER)
KEY = nkeys.from_seed(bytearray(SEED)).public_key.decode()
HASH = "$2a$04$WCNjH6dodUGhfJNTTyo6UuWB6sPY7QbRX3Fn.b2sQ9wKo2ddo6yuW"  # of "secret"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    found = Authority(tmp_path_factory.mktemp("certificates"))
    found.server()
    found.client("carl", name_of((NameOID.COMMON_NAME, "carl")))
    return found


def tls(authority: Authority, more: str = "") -> str:
    at = authority.directory
    files = f'cert_file: "{at}/server.pem", key_file: "{at}/server.key", ca_file: "{authority.path}"'
    return f"tls {{ {files}, {more} }}\n"


async def converse(port: int, scheme: str = "nats", **options: Any) -> bytes:
    """Ask and answer, through one connection."""
    errors: list[Exception] = []

    async def note(error: Exception) -> None:
        errors.append(error)

    client = await nats.connect(
        f"{scheme}://localhost:{port}", allow_reconnect=False, connect_timeout=5, error_cb=note, **options
    )

    async def answer(message: Any) -> None:
        await message.respond(message.data.upper())

    await client.subscribe("ask", cb=answer)
    reply = await client.request("ask", b"hello", timeout=5)
    await client.close()
    assert errors == []
    return bytes(reply.data)


Ways = dict[str, tuple[str, dict[str, Any], dict[str, Any]]]
WAYS: Ways = {
    "a password": ("authorization { user: a, password: b }", {"user": "a", "password": "b"}, {"user": "a"}),
    "a bcrypt password": (
        f'authorization {{ users: [{{user: a, password: "{HASH}"}}] }}',
        {"user": "a", "password": "secret"},
        {"user": "a", "password": "Secret"},
    ),
    "a token": ("authorization { token: tok }", {"token": "tok"}, {"token": "tik"}),
    "an nkey": (
        f"authorization {{ users: [{{nkey: {KEY}}}] }}",
        {"nkeys_seed_str": SEED.decode()},
        {"nkeys_seed_str": nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER).decode()},
    ),
    "an account": (
        "accounts { A: {users: [{user: a, password: b}]}, B: {users: [{user: b, password: b}]} }",
        {"user": "b", "password": "b"},
        {"user": "c", "password": "b"},
    ),
    "nothing": (
        "authorization { users: [{user: a, password: b}, {user: n}] }\nno_auth_user: n",
        {},
        {"user": "a", "password": "n"},
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_nats_py_gets_in_and_a_stranger_does_not(way: str) -> None:
    config, right, wrong = WAYS[way]
    with ServerProcess("ours", BASE + config + "\n") as server:
        assert asyncio.run(converse(server.port, **right)) == b"HELLO"
        with pytest.raises(Error, match="Authorization Violation"):
            asyncio.run(converse(server.port, **wrong))


@pytest.mark.parametrize(
    ("more", "options"),
    [
        ("", {}),
        ("handshake_first: true", {"tls_handshake_first": True}),
        ("handshake_first: auto", {"tls_handshake_first": True}),
        ("handshake_first: auto", {}),
    ],
    ids=["INFO first", "handshake first", "auto and first", "auto and not first"],
)
def test_nats_py_speaks_tls(authority: Authority, more: str, options: dict[str, Any]) -> None:
    with ServerProcess("ours", BASE + tls(authority, more)) as server:
        context = authority.client_context()
        assert asyncio.run(converse(server.port, "tls", tls=context, **options)) == b"HELLO"


def test_nats_py_shows_its_certificate(authority: Authority) -> None:
    config = BASE + 'authorization { users: [{user: "CN=carl"}] }\n' + tls(authority, "verify_and_map: true")
    make: Callable[[str | None], Any] = authority.client_context
    with ServerProcess("ours", config) as server:
        assert asyncio.run(converse(server.port, "tls", tls=make("carl"))) == b"HELLO"
