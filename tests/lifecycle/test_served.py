"""What clients make and delete on a server is gone at once: without the garbage collector, with all its memory."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from support.attack import Client
from support.certificates import Authority
from support.footprint import MB, assert_leaves_nothing
from support.served import Served, served
from support.websocket_client import WebSocketWire, request
from support.wire_client import Closed

STORAGES = pytest.mark.parametrize("storage", ["file", "memory"])


@pytest.fixture(scope="module")
def here() -> Iterator[Served]:
    with served() as running:
        yield running


def publish_all(client: Client, names: list[str], payload: bytes) -> None:
    client.send(b"".join(client.pub(name, payload) for name in names))
    client.ping()


def make_consumer(client: Client, stream: str, **config: Any) -> None:
    wanted = {"name": "c", "ack_policy": "explicit", **config}
    found = client.api(f"CONSUMER.CREATE.{stream}.c", {"stream_name": stream, "config": wanted})
    assert "error" not in found, found


def pull(client: Client, stream: str, count: int) -> None:
    """Take so many messages without an ack."""
    client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.c", json.dumps({"batch": count}).encode(), "_INBOX.me.pull")
    for _ in range(count):
        assert client.message().reply is not None


def pull_empty(client: Client, stream: str, count: int) -> None:
    """The same of messages without a payload, and without a look at each."""
    client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.c", json.dumps({"batch": count}).encode(), "_INBOX.me.pull")
    found, rest = 0, b""
    while found < count:
        frames = rest + client._socket.recv(1 << 18)
        found += frames.count(b"\r\n\r\n")
        rest = frames[-3:]
        assert frames
    assert rest.endswith(b"\r\n"), "nothing else comes"


@STORAGES
def test_a_stream(here: Served, storage: str) -> None:
    client = here.client

    def cycle() -> None:
        client.create("S", "s.>", storage=storage, allow_direct=True)
        publish_all(client, [f"s.{n}" for n in range(100)], b"z" * 50_000)
        assert client.state("S")["messages"] == 100
        client.ask("s.a", b"acknowledged")
        client.request("$JS.API.DIRECT.GET.S.s.5")
        client.api("STREAM.MSG.GET.S", {"seq": 7})
        client.api("STREAM.PURGE.S", {"filter": "s.9"})
        client.api("STREAM.DELETE.S")
        here.settle()

    assert_leaves_nothing(cycle)


@STORAGES
@pytest.mark.parametrize("config", [{"durable_name": "c"}, {}, {"deliver_subject": "pushed"}])
def test_a_consumer(here: Served, storage: str, config: dict[str, Any]) -> None:
    client = here.client
    client.create("S", "s.>", storage=storage)
    publish_all(client, [f"s.{n}" for n in range(50)], b"x")
    client.send(b"SUB pushed 99\r\n")

    def cycle() -> None:
        make_consumer(client, "S", filter_subject="s.*", **config)
        if "deliver_subject" in config:
            got = [client.message() for _ in range(50)]
        else:
            pull(client, "S", 20)
            got = []
            client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":100,"expires":60000000000}', "_INBOX.me.wait")
        for frame in got[:10]:
            assert frame.reply is not None
            client.publish(frame.reply.decode(), b"+NAK")
        client.api("CONSUMER.INFO.S.c")
        client.api("CONSUMER.DELETE.S.c")
        client.ping()
        client.kept()
        here.settle()

    try:
        assert_leaves_nothing(cycle)
    finally:
        client.api("STREAM.DELETE.S")


def test_a_consumer_with_a_hundred_thousand_pending(here: Served) -> None:
    client = here.client
    client.create("S", "s.>", storage="memory")
    publish_all(client, ["s.a"] * 100_000, b"")

    def cycle() -> None:
        make_consumer(client, "S", max_ack_pending=-1)
        pull_empty(client, "S", 100_000)
        assert client.api("CONSUMER.INFO.S.c")["num_ack_pending"] == 100_000
        client.api("CONSUMER.DELETE.S.c")
        here.settle()

    try:
        assert_leaves_nothing(cycle, 3, bytes_each=256 * 1024)  # buffers that are kept; its table alone has 3 MB
    finally:
        client.api("STREAM.DELETE.S")


def test_a_deleted_stream_takes_its_consumers_with_it(here: Served) -> None:
    client = here.client

    def cycle() -> None:
        client.create("S", "s.>", retention="interest")
        make_consumer(client, "S", priority_groups=["A"], priority_policy="pinned_client", priority_timeout=10**9)
        publish_all(client, [f"s.{n}" for n in range(50)], b"x")
        client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":5,"group":"A"}', "_INBOX.me.pull")
        for _ in range(5):
            client.message()
        client.api("CONSUMER.PAUSE.S.c", {"pause_until": "2090-01-01T00:00:00Z"})
        client.api("STREAM.DELETE.S")
        here.settle()

    assert_leaves_nothing(cycle)


def test_subscriptions(here: Served) -> None:
    client = here.client

    def cycle() -> None:
        for n in range(500):
            client.send(f"SUB a.{n}.*.>{' group' if n % 3 == 0 else ''} x{n}\r\nSUB b.{n} y{n}\r\n".encode())
            client.publish(f"a.{n}.c.d", b"x")
        client.ping()
        assert len(client.kept()) == 500
        for n in range(500):
            client.send(f"UNSUB x{n}\r\nUNSUB y{n}\r\n".encode())
        client.ping()
        here.settle()

    assert_leaves_nothing(cycle)


def test_a_connection(here: Served) -> None:
    def cycle() -> None:
        for _ in range(10):
            with_subs = here.connect(name="one of many")
            with_subs.send(b"SUB a.> 2\r\nSUB a.* group 3\r\n")
            with_subs.publish("a.b", b"x" * 1000)
            with_subs.ping()
            with_subs.close()
        here.settle()

    assert_leaves_nothing(cycle)


def test_a_connection_that_ends_in_the_middle_of_something(here: Served) -> None:
    def cycle() -> None:
        for said in (b"", b"PUB a 100000\r\nxxx", b"NONSENSE\r\n", b"PUB a.b 1\r\nxyz\r\n", b"CONNECT {nonsense}\r\n"):
            broken = here.plain()
            assert broken.recv(65536).startswith(b"INFO")
            broken.sendall(said)
            broken.shutdown(socket.SHUT_WR)
            while broken.recv(65536):
                pass
            broken.close()
        here.settle()

    assert_leaves_nothing(cycle)


def test_one_that_never_reads_and_is_cut_off(root: Path) -> None:
    root.mkdir()
    with served("port: -1\nmax_pending: 1MB\n", root) as here:

        def cycle() -> None:
            deaf = here.plain()
            deaf.sendall(b'CONNECT {"verbose":false}\r\nSUB flood 1\r\nPING\r\n')
            while not deaf.recv(65536).endswith(b"PONG\r\n"):
                pass
            publish_all(here.client, ["flood"] * 120, b"x" * 100_000)
            deaf.close()
            here.settle()

        assert_leaves_nothing(cycle, 4)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("certificates"))
    made.server()
    return made


def test_a_connection_with_tls(root: Path, authority: Authority) -> None:
    root.mkdir()
    place = authority.directory
    config = (
        f'port: -1\ntls {{ cert_file: "{place}/server.pem", key_file: "{place}/server.key" }}\nallow_non_tls: true\n'
    )
    context = authority.client_context()
    with served(config, root) as here:

        def cycle() -> None:
            for _ in range(5):
                client = here.plain()
                client.recv(65536)
                secure = context.wrap_socket(client, server_hostname="localhost")
                secure.sendall(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPUB a 5\r\nhello\r\nPING\r\n')
                found = b""
                while not found.endswith(b"PONG\r\n"):
                    found += secure.recv(65536)
                secure.close()
            broken = here.plain()
            broken.recv(65536)
            broken.sendall(b"\x16\x03\x01\x00\x05no TLS")
            while broken.recv(65536):
                pass
            broken.close()
            here.settle()

        assert_leaves_nothing(cycle)


def test_a_connection_through_a_websocket(root: Path) -> None:
    root.mkdir()
    with served("port: -1\nwebsocket { port: -1, no_tls: true, compression: true }\n", root) as here:
        port = here.server.ws_port

        def cycle() -> None:
            for extension in (None, "permessage-deflate; client_no_context_takeover; server_no_context_takeover"):
                client = WebSocketWire(port)
                assert "101" in client.upgrade(request({"Sec-WebSocket-Extensions": extension}))["status"]
                client.send(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPING\r\n')
                if extension is None:
                    while client.receive().verb != "PONG":
                        pass
                client.close()
            for nonsense in (
                b"GET / HTTP/1.1\r\n\r\n",
                b"nonsense\r\n\r\n",
                request({"Host": None}),
                request({"Upgrade": "x"}),
            ):
                broken = here.plain(port)
                broken.sendall(nonsense)
                broken.shutdown(socket.SHUT_WR)
                while broken.recv(65536):
                    pass
                broken.close()
            here.settle()

        assert_leaves_nothing(cycle)


def test_a_publish_that_is_refused(here: Served) -> None:
    client = here.client
    client.create("S", "s.>", storage="memory", max_msgs=3, discard="new")

    def cycle() -> None:
        for _ in range(20):
            client.ask("s.a", b"x" * 10_000)
            headers = b"NATS/1.0\r\nNats-Expected-Last-Sequence: 999\r\n\r\n"
            client.send(b"HPUB s.a _INBOX.me.refused %d %d\r\n" % (len(headers), len(headers) + 10_000))
            client.send(headers + b"x" * 10_000 + b"\r\n")
            assert b"error" in client.message().payload
        here.settle()

    try:
        assert_leaves_nothing(cycle)
    finally:
        client.api("STREAM.DELETE.S")


def test_requests_to_the_api_that_make_no_sense(here: Served) -> None:
    client = here.client
    requests = [
        "STREAM.CREATE.X", "STREAM.UPDATE.X", "STREAM.INFO.X", "STREAM.DELETE.X", "STREAM.PURGE.X", "STREAM.MSG.GET.X",
        "STREAM.MSG.DELETE.X", "CONSUMER.CREATE.X.c", "CONSUMER.DURABLE.CREATE.X.c", "CONSUMER.INFO.X.c", "STREAM.LIST",
        "CONSUMER.DELETE.X.c", "CONSUMER.PAUSE.X.c", "CONSUMER.LIST.X", "CONSUMER.NAMES.X", "INFO",
        "STREAM.NAMES",
    ]  # fmt: skip
    bodies = [
        b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b'{"name":1}', b'{"name":"Y"}', b'{"seq":0}', b"[" * 20_000,
        b'{"name":"X","subjects":["a..b"]}', b'{"stream_name":"X","config":{"ack_policy":"x"}}', b'{"a":' * 4000,
    ]  # fmt: skip

    def cycle() -> None:
        for subject in requests:
            for body in bodies:
                client.api(subject, body)
        here.settle()
        for name in client.api("STREAM.NAMES")["streams"] or ():
            client.api(f"STREAM.DELETE.{name}")
        here.settle()

    assert_leaves_nothing(cycle, 2, warm_up=2)


ACCOUNTS = """
host: 127.0.0.1
port: -1
max_closed_clients: 2
jetstream { store_dir: "%s" }
accounts {
  A: { users: [{user: a, password: a}], jetstream: enabled }
  %s
}
no_auth_user: a
"""
SECOND = "B: { users: [{user: b, password: b}], jetstream: enabled }"


def reload_accounts(here: Served, root: Path, second: str) -> None:
    """The server takes a file with another second account. It does so in tasks, which this does not wait for."""
    from penstock.server.conf.options_file import load_options
    from penstock.server.conf.validation import complete_options
    from penstock.server.reload import compare_options

    (root / "server.conf").write_text(ACCOUNTS % (root / "store", second))
    options = complete_options(load_options(str(root / "server.conf"))[0])
    options.jetstream.durability = "os"  # as `served` says

    async def change() -> None:
        here.server.reload(options, compare_options(here.server.options, options))

    asyncio.run_coroutine_threadsafe(change(), here.server.loop).result(20)


def test_an_account_that_is_back_before_it_has_gone_has_its_streams(root: Path) -> None:
    """Its store was opened while the old one was being closed, and it had no JetStream."""
    root.mkdir()
    with served(ACCOUNTS % (root / "store", SECOND), root) as here:
        client = here.connect(user="b", **{"pass": "b"})
        for n in range(20):
            client.create(f"M{n}", f"m{n}.>")
            client.ask(f"m{n}.a", b"x")
        client.close()
        for _ in range(3):
            reload_accounts(here, root, "")
            reload_accounts(here, root, SECOND)
        client = here.connect(user="b", **{"pass": "b"})
        wait_for(here, lambda: not here.server._tasks)
        assert [client.state(f"M{n}")["messages"] for n in range(20)] == [1] * 20
        client.close()


def test_an_account_that_comes_and_goes_with_a_reload(root: Path) -> None:
    root.mkdir()
    with served(ACCOUNTS % (root / "store", ""), root) as here:

        def has_second() -> bool:
            account = here.server.accounts.get("B")
            return account is not None and account.has_interest(b"$JS.API.INFO") and account.jetstream is not None

        def has_no_second() -> bool:
            assert here.server.jetstream is not None
            return "B" not in here.server.accounts and "B" not in here.server.jetstream.accounts

        def cycle() -> None:
            reload_accounts(here, root, SECOND)
            wait_for(here, has_second)
            client = here.connect(user="b", **{"pass": "b"})
            if "M" not in (client.api("STREAM.NAMES")["streams"] or ()):
                client.create("M", "m.>")
            client.ask("m.a", b"x" * 1000)
            make_consumer(client, "M")
            client.api("STREAM.DELETE.M")
            client.create("N", "n.>", storage="memory")
            publish_all(client, [f"n.{n}" for n in range(100)], b"z" * 10_000)
            reload_accounts(here, root, "")
            with pytest.raises(Closed):
                while True:
                    client.receive()
            client.close()
            wait_for(here, has_no_second)
            here.settle()

        assert_leaves_nothing(cycle, 4)


def wait_for(here: Served, condition: Callable[[], bool]) -> None:
    """A reload goes on in tasks of the server's loop."""

    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.001)

    asyncio.run_coroutine_threadsafe(wait(), here.server.loop).result(20)


def test_a_server(root: Path) -> None:
    def cycle() -> None:
        with penstock.Server(store_dir=root, durability="os") as server:
            client = Client(server.port)
            client.create("S", "s.>")
            client.ask("s.a", b"x")
            make_consumer(client, "S")
            client.send(b"SUB x 9\r\n")
            client.ping()
            client.close()

    assert_leaves_nothing(cycle, 4)


def test_memory_streams_that_are_deleted_leave_room_below_max_mem(root: Path) -> None:
    """Ten of 20 MB below a limit of 100 MB: none is refused, the account holds nothing, the memory is free again."""
    root.mkdir()
    with served(f'port: -1\njetstream {{ max_mem: 100MB, max_file: 1GB, store_dir: "{root}/store" }}\n', root) as here:
        client = here.client

        def cycle() -> None:
            client.create("S", "s.>", storage="memory")
            publish_all(client, [f"s.{n}" for n in range(400)], b"z" * 50_000)
            assert client.state("S")["messages"] == 400
            assert client.api("INFO")["memory"] > 20 * 1000 * 1000
            client.api("STREAM.DELETE.S")
            assert client.api("INFO")["memory"] == 0
            here.settle()

        assert_leaves_nothing(cycle, 6, anonymous=10 * MB)
