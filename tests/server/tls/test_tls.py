"""TLS: contexts from options, certificates that stand for users, and each way into TLS beside the real server's."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from penstock.server.auth.auth import Authenticator, Credentials, Identity
from penstock.server.auth.certificate import PeerCertificate, parse_name, same_parts
from penstock.server.options import Options, TlsOptions, User
from penstock.server.tls.tls import BadTls, make_context, not_after, peer_facts
from support.certificates import Authority, name_of
from support.servers import Kind, ServerProcess

CARL = name_of(
    (NameOID.COUNTRY_NAME, "DE"),
    (NameOID.ORGANIZATION_NAME, "Acme, Inc"),
    (NameOID.ORGANIZATIONAL_UNIT_NAME, "A"),
    (NameOID.ORGANIZATIONAL_UNIT_NAME, "B"),
    (NameOID.COMMON_NAME, "carl"),
)
CARLS_NAMES = [
    x509.RFC822Name("carl@example.com"),
    x509.DNSName("carl.example.com"),
    x509.UniformResourceIdentifier("spiffe://x/carl"),
]
DORA = name_of(
    (NameOID.DOMAIN_COMPONENT, "com"),
    (NameOID.DOMAIN_COMPONENT, "example"),
    (NameOID.ORGANIZATION_NAME, "Acme"),
    (NameOID.COMMON_NAME, "dora"),
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    found = Authority(tmp_path_factory.mktemp("certificates"))
    found.server()
    found.client("carl", CARL, *CARLS_NAMES)
    found.client("dora", DORA)
    stranger = Authority(found.directory, "stranger")
    stranger.client("mallory", CARL, *CARLS_NAMES)
    return found


def options(authority: Authority, **changes: Any) -> TlsOptions:
    at = authority.directory
    return TlsOptions(str(at / "server.pem"), str(at / "server.key"), str(authority.path), **changes)


def certificate(authority: Authority, name: str) -> PeerCertificate:
    return PeerCertificate(ssl.PEM_cert_to_DER_cert((authority.directory / f"{name}.pem").read_text()))


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends after a handshake in memory."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(up, down, server_side=True)
    theirs = client.wrap_bio(down, up, server_hostname="localhost")
    for _ in range(4):
        for end in (theirs, ours):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ours, theirs


# Contexts.


def test_files_that_do_not_serve_are_named(authority: Authority, tmp_path: Path) -> None:
    good = options(authority)
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    bad: list[tuple[TlsOptions, str]] = [
        (TlsOptions(), "cert_file and key_file are both needed"),
        (TlsOptions("/no/such.pem", good.key_file), "open /no/such.pem: no such file or directory"),
        (TlsOptions(good.cert_file, "/no/such.key"), "open /no/such.key: no such file or directory"),
        (TlsOptions(str(nonsense), good.key_file), "nonsense.pem and .*server.key are no certificate and its key"),
        (TlsOptions(good.cert_file, str(authority.directory / "carl.key")), "carl.key are no certificate and its key"),
        (TlsOptions(good.cert_file, good.key_file, "/no/ca.pem", verify=True), "ca_file /no/ca.pem"),
        (TlsOptions(good.cert_file, good.key_file, str(nonsense), verify=True), "ca_file .*nonsense.pem"),
        (options(authority, cipher_suites=["TLS_NONE"]), "unrecognized cipher TLS_NONE"),
        (options(authority, curve_preferences=["SecP384r1MLKEM1024"]), "none of the curve_preferences"),
    ]
    for given, text in bad:
        with pytest.raises(BadTls, match=text):
            make_context(given)


def test_version_cipher_and_curve_are_as_configured(authority: Authority) -> None:
    client = authority.client_context()
    facts = peer_facts(shake_hands(make_context(options(authority)), client)[0])
    assert facts.version == "1.3" and facts.cipher.startswith("TLS_") and facts.certificate is None
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    for name in ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"):
        made = make_context(options(authority, cipher_suites=["TLS_AES_128_GCM_SHA256", name]))
        facts = peer_facts(shake_hands(made, client)[0], is_first=True)
        assert (facts.version, facts.cipher, facts.is_first) == ("1.2", name, True)
    with pytest.raises(ssl.SSLError):
        shake_hands(make_context(options(authority, min_version="1.3")), client)
    strict = authority.client_context()
    strict.set_ecdh_curve("prime256v1")
    made = make_context(options(authority, curve_preferences=["X25519MLKEM768", "CurveP256", "X25519"]))
    assert peer_facts(shake_hands(made, strict)[0]).version == "1.3"
    with pytest.raises(ssl.SSLError):
        shake_hands(make_context(options(authority, curve_preferences=["CurveP384"])), strict)


def test_a_client_shows_a_certificate_where_it_must(authority: Authority) -> None:
    made = make_context(options(authority, verify=True))
    shown = peer_facts(shake_hands(made, authority.client_context("carl"))[0])
    assert shown.certificates == [certificate(authority, "carl").der]
    for name in (None, "mallory"):
        with pytest.raises(ssl.SSLError):
            shake_hands(made, authority.client_context(name))


def test_the_end_of_the_servers_certificate_is_told(authority: Authority) -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", not_after(options(authority)))


# Names in certificates.


def test_a_subject_is_written_as_go_writes_it(authority: Authority) -> None:
    carl, dora = certificate(authority, "carl"), certificate(authority, "dora")
    assert carl.subject == r"CN=carl,OU=A+OU=B,O=Acme\, Inc,C=DE"
    assert carl.names == ["carl@example.com", "carl.example.com", "spiffe://x/carl"]
    assert (dora.subject, dora.domain_components) == ("CN=dora,O=Acme", "DC=com,DC=example")
    assert len(carl.sha256) == len(carl.key_sha256) == 64


def test_distinguished_names_are_read_by_their_parts() -> None:
    def parts(*relative: dict[str, str]) -> list[frozenset[tuple[str, str]]]:
        return [frozenset(entry.items()) for entry in relative]

    assert parse_name("CN=a, OU = b ,o=c") == parts({"CN": "a"}, {"OU": "b"}, {"O": "c"})
    assert parse_name(r"CN=a\, b\20\C3\A9+OU=x") == parts({"CN": "a, b é", "OU": "x"})
    assert parse_name("") == [] and parse_name("CN=a,") == parts({"CN": "a"})
    for bad in ("carl", "a,b", "CN=a,b", r"CN=a\x", "CN=#0403", "=,"):
        assert parse_name(bad) is None, bad
    one, other = parse_name("CN=a,OU=b,OU=c"), parse_name("OU=c,CN=a,OU=b")
    assert one is not None and other is not None and same_parts(one, other)
    assert not same_parts(one, other[1:]) and not same_parts(one[1:], other)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("carl@example.com", "carl"),
        ("carl.example.com", "carl"),
        ("spiffe://x/carl", "carl"),
        (r"CN=carl,OU=B,OU=A,O=Acme\, Inc,C=DE", "carl"),
        (r"C=DE,O=Acme\, Inc,OU=A,OU=B,CN=carl", "carl"),
        (r"CN=carl,OU=A+OU=B,O=Acme\, Inc,C=DE", "carl"),
        ("CN=dora,O=Acme,DC=example,DC=com", "dora"),
        ("CN=dora,O=Acme,DC=com,DC=example", "dora"),
        ("CN=dora,O=Acme", "dora"),
        ("cn=dora,o=Acme,dc=example,dc=com", "dora"),
        ("dora", None),
        ("CN=dora", None),
        ("CN=dora,O=acme,DC=example,DC=com", None),
    ],
)
@pytest.mark.parametrize("kind", ["real", "ours"])
def test_a_certificate_stands_for_the_user_that_it_names(
    authority: Authority, kind: Kind, name: str, shown: str | None
) -> None:
    users = [{"user": name}, {"user": "other", "password": "x"}]
    tls = tls_block(authority, "verify_and_map: true")
    config = f"authorization: {json.dumps({'users': users})}\n{tls}"
    with ServerProcess(kind, BASE + config) as server:
        for asked in ("carl", "dora"):
            said = over_tls(server.port, authority.client_context(asked), "protocol")
            assert ("PONG" in said) == (asked == shown), said
    told = Options(users=[User(name), User("other", "x")], tls=options(authority, verify=True, verify_and_map=True))
    for asked in ("carl", "dora"):
        found = Authenticator(told).judge(Credentials(), certificate=certificate(authority, asked))
        assert isinstance(found, Identity) == (asked == shown)


def test_a_user_without_a_password_needs_the_certificate() -> None:
    tls = TlsOptions(verify_and_map=True)
    told = Options(users=[User("carl")], tls=tls)
    assert Authenticator(told).judge(Credentials("carl")) is None
    assert Authenticator(told).judge(Credentials("carl"), kind="websocket") is None
    assert isinstance(Authenticator(Options(users=[User("carl")])).judge(Credentials("carl")), Identity)


# Ways into TLS.

BASE = "host: 127.0.0.1\nport: -1\n"
CONNECT = b'CONNECT {"verbose":false}\r\nPING\r\n'
WAYS = {
    "required": ("", ""),
    "with client certificates": ("verify: true", ""),
    "possible": ("", "allow_non_tls: true"),
    "first": ("handshake_first: true", ""),
    "first and possible": ("handshake_first: true", "allow_non_tls: true"),
    "first or after INFO": ("handshake_first: auto", ""),
    "first or after INFO or not at all": ('handshake_first: "100ms"', "allow_non_tls: true"),
    "with a user": ("", "authorization { user: a, password: b }"),
}


def tls_block(authority: Authority, more: str) -> str:
    at = authority.directory
    files = f'cert_file: "{at}/server.pem", key_file: "{at}/server.key", ca_file: "{authority.path}"'
    return f"tls {{ {files}, timeout: 0.3, {more} }}\n"


def shown(said: bytes) -> list[str]:
    """Lines, with what INFO says about TLS and credentials."""
    lines = []
    for line in said.decode("latin-1").split("\r\n"):
        if line.startswith("INFO "):
            info = json.loads(line[5:])
            told = {key: info[key] for key in sorted(info) if key.startswith(("tls_", "auth_", "connect_info"))}
            line = f"INFO {told}"
        if line:
            lines.append(line)
    return lines


def read_until(connection: socket.socket, wanted: bytes) -> bytes:
    """Everything up to `wanted`, to the end, or to a long silence."""
    said = b""
    try:
        while wanted not in said:
            part = connection.recv(65536)
            if not part:
                return said + b"<end>"
            said += part
    except TimeoutError:
        return said + b"<silence>"
    except ssl.SSLError:
        return said + b"<alert>"  # or only the end of the connection, when the socket finds that first
    except ConnectionResetError:
        return said + b"<end>"
    return said


def dial(port: int, timeout: float = 1.0) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=timeout)


def over_tls(port: int, context: ssl.SSLContext, when: str) -> list[str]:
    """What a client hears that begins TLS at once (`first`) or once INFO is there."""
    with dial(port) as connection:
        before = b"" if when == "first" else read_until(connection, b"\r\n")
        if b"<" in before[-10:]:
            return shown(before)
        try:
            secure = context.wrap_socket(connection, server_hostname="localhost")
        except (ssl.SSLError, ConnectionError) as error:
            return [*shown(before), type(error).__name__]
        with secure:
            if when == "first":
                before = read_until(secure, b"\r\n")
            try:
                secure.sendall(CONNECT)
                said = shown(read_until(secure, b"PONG\r\n"))
            except (ssl.SSLError, ConnectionError):
                said = ["<alert>"]
            return [when, *shown(before), *said]


def outcomes(server: ServerProcess, authority: Authority) -> dict[str, list[str]]:
    port = server.port
    found: dict[str, list[str]] = {}
    with dial(port) as connection:
        found["silence"] = shown(read_until(connection, b"nothing"))
    with dial(port) as connection:
        connection.sendall(CONNECT)
        found["plain at once"] = shown(read_until(connection, b"PONG\r\n"))
    with dial(port) as connection:
        said = read_until(connection, b"\r\n")
        if b"INFO" in said:
            connection.sendall(CONNECT)
            said += read_until(connection, b"PONG\r\n")
        found["plain after INFO"] = shown(said)
    for name in (None, "carl", "mallory"):
        found[f"TLS after INFO, {name}"] = over_tls(port, authority.client_context(name), "then")
    found["TLS first"] = over_tls(port, authority.client_context("carl"), "first")
    with dial(port) as connection:
        connection.sendall(b"\x16\x03\x01\x00\x05nonsense")
        found["nonsense that begins as TLS does"] = [
            line for line in shown(read_until(connection, b"nothing")) if not line.startswith("\x15")
        ]
    return found


@pytest.mark.parametrize("way", WAYS)
def test_each_way_into_tls_looks_as_the_real_servers_does(authority: Authority, way: str) -> None:
    tls, more = WAYS[way]
    found = {}
    for kind in ("real", "ours"):
        with ServerProcess(kind, f"{BASE}{tls_block(authority, tls)}{more}\n") as server:
            found[kind] = outcomes(server, authority)
    assert found["ours"] == found["real"]


@pytest.fixture(scope="module", params=["real", "ours"])
def pinned(request: pytest.FixtureRequest, authority: Authority) -> Iterator[ServerProcess]:
    key = certificate(authority, "carl").key_sha256
    tls = tls_block(authority, f'verify: true, pinned_certs: ["{key}"]')
    with ServerProcess(request.param, BASE + tls) as server:
        yield server


def test_only_pinned_keys_are_let_in(authority: Authority, pinned: ServerProcess) -> None:
    assert over_tls(pinned.port, authority.client_context("carl"), "then")[-1] == "PONG"
    assert over_tls(pinned.port, authority.client_context("dora"), "then")[-1] != "PONG"


def test_handshakes_are_throttled_as_the_real_server_throttles_them(authority: Authority) -> None:
    found = {}
    for kind in ("real", "ours"):
        with ServerProcess(kind, BASE + tls_block(authority, "connection_rate_limit: 3")) as server:
            connections = [dial(server.port) for _ in range(6)]
            found[kind] = sorted(shown(read_until(each, b"nothing")) for each in connections)
            for each in connections:
                each.close()
    assert found["ours"] == found["real"]
    assert sum("-ERR" in str(lines) for lines in found["ours"]) == 3


def test_a_reload_brings_a_new_certificate_to_new_connections(tmp_path: Path) -> None:
    old = Authority(tmp_path, "old")
    old.server()
    config = BASE + tls_block(old, "")
    with ServerProcess("ours", config) as server, dial(server.port, 5) as raw:
        read_until(raw, b"\r\n")
        with old.client_context().wrap_socket(raw, server_hostname="localhost") as before:
            new = Authority(tmp_path, "new")
            new.server()
            os.kill(server.pid, signal.SIGHUP)
            give_up = time.monotonic() + 10
            while over_tls(server.port, new.client_context(), "then")[-1] != "PONG":
                assert time.monotonic() < give_up, "the new certificate is never shown"
            before.sendall(CONNECT)
            assert read_until(before, b"PONG\r\n").endswith(b"PONG\r\n")


def test_much_goes_through_tls_both_ways(authority: Authority) -> None:
    payload = bytes(n * 13 % 251 for n in range(100_000))
    command = b"PUB a %d\r\n%b\r\n" % (len(payload), payload)
    received = b"MSG a 1 %d\r\n%b\r\n" % (len(payload), payload)
    with ServerProcess("ours", BASE + tls_block(authority, "")) as server, dial(server.port, 10) as raw:
        read_until(raw, b"\r\n")
        with authority.client_context().wrap_socket(raw, server_hostname="localhost") as secure:
            secure.sendall(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPING\r\n')
            assert read_until(secure, b"PONG\r\n") == b"PONG\r\n"
            assert both_ways(secure, command * 200, 200 * len(received)) == received * 200


def both_ways(secure: ssl.SSLSocket, data: bytes, wanted: int) -> bytes:
    """Send and read at the same time, in one thread: OpenSSL has no two at one connection."""
    secure.setblocking(False)
    to_send, said, give_up = memoryview(data), bytearray(), time.monotonic() + 60
    while len(said) < wanted:
        assert time.monotonic() < give_up, f"{len(to_send)} bytes are not sent, {len(said)} of {wanted} came"
        is_stuck = True
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            to_send = to_send[secure.send(to_send) :] if to_send else to_send
            is_stuck = not to_send
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            said += secure.recv(1 << 20)
            is_stuck = False
        if is_stuck:
            select.select([secure], [secure] if to_send else [], [], 1)
    return bytes(said)


def test_a_client_that_never_reads_is_cut_off_behind_tls_too(authority: Authority) -> None:
    config = BASE + "max_pending: 1MB\nwrite_deadline: '1s'\n" + tls_block(authority, "")
    with ServerProcess("ours", config) as server, dial(server.port, 10) as raw, dial(server.port, 10) as other:
        for each in (raw, other):
            read_until(each, b"\r\n")
        slow = authority.client_context().wrap_socket(raw, server_hostname="localhost")
        quick = authority.client_context().wrap_socket(other, server_hostname="localhost")
        with slow, quick:
            slow.sendall(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPING\r\n')
            assert read_until(slow, b"PONG\r\n").endswith(b"PONG\r\n")
            quick.sendall(b'CONNECT {"verbose":false}\r\n' + (b"PUB a 100000\r\n" + bytes(100_000) + b"\r\n") * 300)
            quick.sendall(b"PING\r\n")
            assert read_until(quick, b"PONG\r\n").endswith(b"PONG\r\n")
            give_up = time.monotonic() + 10
            while not any("Slow Consumer" in line for line in server.log):
                assert time.monotonic() < give_up, server.log[-5:]


def test_bytes_that_are_no_tls_end_a_connection_and_nothing_else(authority: Authority) -> None:
    """In the middle of a handshake, after it, or instead of it: no traceback, and the next client is served."""
    with ServerProcess("ours", BASE + tls_block(authority, ""), ["-D"]) as server:
        for garbage in (b"\x16\x03\x01\x02\x00" + b"\xff" * 600, b"\x16" * 5000, b"\x80\x01", b"\0" * 70_000):
            with dial(server.port) as raw:
                read_until(raw, b"\r\n")
                raw.sendall(garbage)
                read_until(raw, b"nothing")
        for garbage in (b"PING\r\n", b"\x17\x03\x03\x00\x05hello", b"\x15\x03\x03\x00\x02\x02\x28"):
            with dial(server.port) as raw:
                read_until(raw, b"\r\n")
                secure = authority.client_context().wrap_socket(raw, server_hostname="localhost")
                secure.sendall(CONNECT)
                read_until(secure, b"PONG\r\n")
                with socket.socket(fileno=secure.detach()) as bare:
                    bare.settimeout(2)
                    bare.sendall(garbage)
                    assert read_until(bare, b"nothing").endswith(b"<end>")
        assert over_tls(server.port, authority.client_context(), "then")[-1] == "PONG"
        server.stop()
        assert not [line for line in server.log if "Traceback" in line or "Exception" in line]
