"""Monitoring of a server in this process: many connections, metrics, TLS, WebSocket, base path."""

from __future__ import annotations

import asyncio
import errno
import json
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.base.command_line import redact
from penstock.server.connection import Connection
from penstock.server.monitor.connz import ConnzOptions, make_connz
from penstock.server.monitor.page import LOOK_SLICE, SLICE
from penstock.server.options import JetStreamOptions, Options, TlsOptions, WebsocketOptions
from penstock.server.server import Server
from penstock.wire.connect import Connect

MANY = 3000
# One line of Prometheus' text: a sample, or what a family is.
SAMPLE = re.compile(
    r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\.)*",?)*)\})? (-?[0-9.e+-]+|\+Inf|NaN)$'
)
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\.)*)"')


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[Server]:
    server = Server(Options(host="127.0.0.1", port=-1, http_host="127.0.0.1", **options))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def fetch(port: int, path: str, tls: ssl.SSLContext | None = None) -> tuple[bytes, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
        await writer.wait_closed()
    if b"Transfer-Encoding: chunked" in head:
        joined = b""
        while body:
            size, _, body = body.partition(b"\r\n")
            joined, body = joined + body[: int(size, 16)], body[int(size, 16) + 2 :]
        body = joined
    return head, body


async def page(server: Server, path: str) -> Any:
    return json.loads((await fetch(server.http_port, path))[1])


class Client:
    """A client as small as can be."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    @asynccontextmanager
    async def connect(cls, port: int, name: str = "") -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await reader.readline()
            client = cls(reader, writer)
            connect = json.dumps({"verbose": False, "name": name, "lang": "test", "protocol": 1, "headers": True})
            await client.say(b"CONNECT " + connect.encode() + b"\r\n")
            yield client
        finally:
            writer.close()
            await writer.wait_closed()

    async def say(self, data: bytes) -> bytes:
        """Send, and give what comes up to the answer of a PING."""
        self.writer.write(data + b"PING\r\n")
        return await self.reader.readuntil(b"PONG\r\n")


async def create_stream(client: Client, name: str, subject: str) -> None:
    config = json.dumps({"name": name, "subjects": [subject]})
    request = f"PUB $JS.API.STREAM.CREATE.{name} _INBOX.1 {len(config)}\r\n{config}\r\n"
    client.writer.write(b"SUB _INBOX.> 1\r\n" + request.encode())
    await client.reader.readuntil(b"stream_create_response")
    await client.say(b"UNSUB 1\r\n")


async def create_consumer(client: Client, stream: str, name: str, **config: str) -> None:
    body = json.dumps({"stream_name": stream, "config": {"durable_name": name, **config}}).encode()
    subject = f"$JS.API.CONSUMER.CREATE.{stream}.{name}".encode()
    client.writer.write(b"SUB made 8\r\nPUB %b made %d\r\n%b\r\n" % (subject, len(body), body))
    await client.reader.readuntil(b"consumer_create_response")
    await client.say(b"UNSUB 8\r\n")


def add_connections(server: Server, count: int) -> None:
    """Connections without sockets, as far as monitoring looks."""
    account = server.accounts["$G"]
    for n in range(count):
        connection = Connection(server, server.next_cid())
        connection.connect = Connect(name=f"client {n}", lang="test")
        connection.ip, connection.port, connection.rtt_ns = "127.0.0.1", n, 1_234_567
        connection.in_msgs = (n * 7919) % 1000
        connection.join(account, account.sublist)
        account.clients[connection.cid] = server.connections[connection.cid] = connection


def forget_connections(server: Server) -> None:
    server.connections.clear()
    server.accounts["$G"].clients.clear()


@pytest.mark.parametrize("path", [f"/connz?limit={MANY}", f"/connz?sort=msgs_from&limit={MANY}", "/connz?user=nobody"])
def test_a_page_of_many_connections_leaves_turns_to_others(path: str) -> None:
    async def play() -> None:
        async with running(http_port=-1) as server:
            add_connections(server, MANY)
            turns = 0

            async def count_turns() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            counting = asyncio.create_task(count_turns())
            found = await page(server, path)
            counting.cancel()
            forget_connections(server)
            shown = len(found["connections"])
            assert found["total"] == MANY
            # Every slice that was looked at, made and encoded ended with a turn.
            assert turns >= 2 * shown // SLICE
            assert turns >= MANY // LOOK_SLICE

    asyncio.run(play())


def test_sorted_runs_give_the_same_order_as_one_sort() -> None:
    async def play() -> None:
        async with running() as server:
            add_connections(server, MANY)
            by_count = sorted((one.in_msgs for one in server.connections.values()), reverse=True)
            found = await make_connz(server, ConnzOptions(sort="msgs_from", offset=700, limit=900))
            assert found.connections is not None
            assert [one.in_msgs for one in found.connections] == by_count[700:1600]
            found = await make_connz(server, ConnzOptions(sort="idle", limit=10))
            assert found.connections is not None
            assert [one.last_activity for one in found.connections] == sorted(
                one.last_activity for one in found.connections
            )
            forget_connections(server)

    asyncio.run(play())


def test_a_long_page_is_the_same_text_as_a_short_one() -> None:
    async def play() -> None:
        async with running(http_port=-1) as server:
            add_connections(server, SLICE + 1)
            _, long = await fetch(server.http_port, "/connz")
            whole = json.loads(long)
            assert len(whole["connections"]) == SLICE + 1
            assert long == json.dumps(whole, indent=2, ensure_ascii=False).encode()
            forget_connections(server)

    asyncio.run(play())


def parse(text: str) -> dict[str, tuple[str, dict[tuple[tuple[str, str], ...], float]]]:
    """Prometheus' text by its grammar: family → type and samples by labels. Anything else fails."""
    families: dict[str, tuple[str, dict[tuple[tuple[str, str], ...], float]]] = {}
    helped, current = set(), ""
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            current = line.split(" ")[2]
            assert current not in helped, f"{current} comes twice"
            helped.add(current)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current and kind in ("gauge", "counter")
            assert (kind == "counter") == name.endswith("_total"), name
            families[name] = (kind, {})
        else:
            found = SAMPLE.match(line)
            assert found is not None, line
            assert found[1] == current, f"{line} stands outside its family"
            labels = tuple(LABEL.findall(found[2] or ""))
            assert labels not in families[current][1], line
            families[current][1][labels] = float(found[3])
    return families


def test_metrics_are_prometheus_text_with_the_figures_of_the_server(tmp_path: Path) -> None:
    async def play() -> None:
        jetstream = JetStreamOptions(enabled=True, store_dir=str(tmp_path))
        async with (
            running(http_port=-1, server_name='a "b" \\c', jetstream=jetstream) as server,
            Client.connect(server.port, "one") as client,
        ):
            await create_stream(client, "ORDERS", "orders.>")
            await create_consumer(
                client, "ORDERS", "billing", filter_subject="orders.1", pause_until="2090-01-01T00:00:00Z"
            )
            published = [b"PUB orders.%d acks 2\r\nhi\r\n" % n for n in range(3)]
            client.writer.write(b"SUB acks 9\r\n" + b"".join(published))
            await client.reader.readuntil(b'"seq":3}')  # a consumer counts what is on disk
            head, body = await fetch(server.http_port, "/metrics")
            assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
            families = parse(body.decode())
            only: tuple[tuple[str, str], ...] = ()
            assert families["penstock_connections"] == ("gauge", {only: 1.0})
            assert families["penstock_connections_opened_total"] == ("counter", {only: 1.0})
            assert families["penstock_in_msgs_total"] == ("counter", {only: 5.0})
            ((info, one),) = families["penstock_info"][1].items()
            assert one == 1.0
            assert dict(info)["server_name"] == 'a \\"b\\" \\\\c'
            stream = (("account", "$G"), ("stream", "ORDERS"))
            assert families["penstock_stream_messages"] == ("gauge", {stream: 3.0})
            assert families["penstock_stream_last_seq"][1][stream] == 3.0
            assert families["penstock_stream_commit_failures_total"][1][stream] == 0.0
            assert families["penstock_stream_consumers"][1][stream] == 1.0
            consumer = (*stream, ("consumer", "billing"))
            assert families["penstock_consumer_pending"] == ("gauge", {consumer: 1.0})
            assert families["penstock_consumer_paused"][1][consumer] == 1.0
            assert families["penstock_consumer_ack_pending"][1][consumer] == 0.0
            assert families["penstock_account_connections"][1][(("account", "$G"),)] == 1.0
            assert families["process_resident_memory_bytes"][1][only] > 1_000_000
            assert families["process_cpu_seconds_total"][1][only] > 0

    asyncio.run(play())


def test_health_says_which_streams_cannot_be_used(tmp_path: Path) -> None:
    async def play() -> None:
        jetstream = JetStreamOptions(enabled=True, store_dir=str(tmp_path))
        async with running(http_port=-1, jetstream=jetstream) as server, Client.connect(server.port) as client:
            await create_stream(client, "S", "s")
            assert await page(server, "/healthz") == {"status": "ok"}
            assert server.jetstream is not None
            account = server.jetstream.accounts["$G"]
            account.failed["LOST"] = "a checksum differs"
            log = account.streams["S"].stream.store.engine.log
            log.hold(errno.ENOSPC, "/disk/000001.blk")
            head, _ = await fetch(server.http_port, "/healthz")
            assert head.startswith(b"HTTP/1.1 503 Service Unavailable")
            lost = "JetStream stream '$G > LOST' could not be recovered"
            full = "JetStream stream '$G > S' write error: truncate /disk/000001.blk: No space left on device"
            assert await page(server, "/healthz") == {"status": "unavailable", "error": lost}
            found = await page(server, "/healthz?details=1")
            assert [one["error"] for one in found["errors"]] == [lost, full]
            assert (await page(server, "/healthz?account=$G&stream=S"))["error"] == full
            assert await page(server, "/healthz?js-enabled-only=1") == {"status": "ok"}
            log.clear_failure()

    asyncio.run(play())


def test_what_nats_top_reads_is_there_and_adds_up() -> None:
    """It asks /varz and /connz?limit=…&sort=… each second and shows differences."""

    async def play() -> None:
        async with (
            running(http_port=-1) as server,
            Client.connect(server.port, "pub") as publisher,
            Client.connect(server.port, "sub") as subscriber,
        ):
            await subscriber.say(b"SUB a.> 1\r\n")
            before = await page(server, "/varz")
            await publisher.say(b"PUB a.b 5\r\nhello\r\n" * 10)
            await subscriber.say(b"")
            after = await page(server, "/varz")
            assert [after[name] - before[name] for name in ("in_msgs", "out_msgs", "in_bytes", "out_bytes")] == [
                10,
                10,
                50,
                50,
            ]
            assert (after["connections"], after["cores"] > 0, after["mem"] > 0) == (2, True, True)
            found = await page(server, "/connz?limit=1024&sort=msgs_to&subs=1")
            assert [one["name"] for one in found["connections"]] == ["sub", "pub"]
            assert found["connections"][0]["subscriptions_list"] == ["a.>"]
            assert found["connections"][0]["out_msgs"] == found["connections"][1]["in_msgs"] == 10

    asyncio.run(play())


def test_the_base_path_stands_before_every_page() -> None:
    async def play() -> None:
        async with running(http_port=-1, http_base_path="/nats/") as server:
            assert (await fetch(server.http_port, "/nats/healthz"))[1] == b'{"status":"ok"}'
            assert (await fetch(server.http_port, "/healthz"))[0].startswith(b"HTTP/1.1 404")
            head, index = await fetch(server.http_port, "/nats")
            assert head.startswith(b"HTTP/1.1 200 OK")
            assert b'href="./nats/varz"' in index

    asyncio.run(play())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.now(UTC) - timedelta(hours=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(folder / "cert.pem"), str(folder / "key.pem")


def test_https_shows_the_pages_without_a_client_certificate(certificate: tuple[str, str]) -> None:
    async def play() -> None:
        cert, key = certificate
        tls = TlsOptions(cert_file=cert, key_file=key, ca_file=cert, verify=True)
        async with running(https_port=-1, tls=tls) as server:
            context = ssl.create_default_context(cafile=cert)
            context.check_hostname = False
            _, body = await fetch(server.https_port, "/varz", context)
            varz = json.loads(body)
            assert (varz["tls_required"], varz["tls_verify"]) == (True, True)
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", varz["tls_cert_not_after"])

    asyncio.run(play())


def test_a_connection_over_tls_or_websocket_says_so(certificate: tuple[str, str]) -> None:
    async def play() -> None:
        import websockets

        cert, key = certificate
        tls = TlsOptions(cert_file=cert, key_file=key)
        websocket = WebsocketOptions(host="127.0.0.1", port=-1, no_tls=True)
        async with running(http_port=-1, tls=tls, websocket=websocket) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            try:
                await reader.readline()
                context = ssl.create_default_context(cafile=cert)
                context.check_hostname = False
                await writer.start_tls(context)
                writer.write(b'CONNECT {"verbose":false,"name":"secret","protocol":1}\r\nPING\r\n')
                await reader.readuntil(b"PONG\r\n")
                async with websockets.connect(f"ws://127.0.0.1:{server.ws_port}") as browser:
                    await browser.recv()
                    await browser.send(b'CONNECT {"verbose":false,"name":"browser"}\r\nPING\r\n')
                    while b"PONG" not in await browser.recv():
                        pass
                    found = {one["name"]: one for one in (await page(server, "/connz"))["connections"]}
                assert (found["secret"]["type"], found["browser"]["type"]) == ("nats", "websocket")
                assert found["secret"]["tls_version"] == "1.3"
                assert found["secret"]["tls_cipher_suite"].startswith("TLS_AES_")
                assert "tls_version" not in found["browser"]
            finally:
                writer.close()
                await writer.wait_closed()

    asyncio.run(play())


def test_the_command_line_is_told_without_its_secrets() -> None:
    line = ["penstock", "serve", "--user", "bob", "--pass=secret", "-auth", "token", "-m", "8222"]
    assert redact(line) == [
        *("penstock", "serve", "--user", "[REDACTED]", "--pass=[REDACTED]", "-auth", "[REDACTED]", "-m", "8222")
    ]
