"""Delivery under pressure: clients that do not read, long deliveries beside others' work, locks that others have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.server.embedded import EmbeddedServer
from support.attack import Probe
from support.certificates import Authority
from support.delivery import NS, Reader

SIZE = 100_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with penstock.Server(store_dir=tmp_path / "data", durability="os") as found:
        yield found


@pytest.fixture
def reader(server: EmbeddedServer) -> Iterator[Reader]:
    client = Reader(server.port)
    client.create("S", "s.>")
    yield client
    client.close()


def waiting_for(server: EmbeddedServer, subject: bytes) -> int:
    """Bytes that wait for the client that has subscribed to a subject."""
    for client in tuple(server.server.default_account.clients.values()):
        if any(one[0] == subject for one in client.subscriptions()):
            return client.pending
    raise AssertionError(f"nobody has subscribed to {subject!r}")


@pytest.mark.parametrize("kind", ["push", "pull"])
def test_a_client_that_does_not_read_is_left_alone_and_gets_everything_when_it_does(
    server: EmbeddedServer, reader: Reader, kind: str
) -> None:
    """More than max_pending would cut it off; no more than a megabyte or so waits for it."""
    reader.fill(1000, size=SIZE)  # 100 MB
    slow = Reader(server.port, "_INBOX.slow")
    slow.send(b"SUB e 5\r\n")
    slow.ping()
    if kind == "push":
        reader.consumer(deliver_subject="e", ack_policy="none")
    else:
        reader.consumer(ack_policy="none")
        slow.pull("e", batch=1000, expires=60 * NS)
    highest, delivered = 0, -1
    while True:
        highest = max(highest, waiting_for(server, b"e"))
        found = reader.about()["delivered"]["consumer_seq"]
        if found == delivered and found > 0 and highest > 0:
            break
        delivered = found
    assert 0 < delivered < 1000
    assert highest < 4 << 20
    assert [int(slow.message().payload.rstrip(b"x")) for _ in range(1000)] == list(range(1, 1001))


def test_others_are_served_while_one_consumer_delivers_a_long_stream(server: EmbeddedServer, reader: Reader) -> None:
    reader.fill(3000)
    with Probe(server.port) as probe:
        for n in range(20):
            reader.consumer(f"R{n}", ack_policy="none")
            reader.pull("d.p", f"R{n}", batch=3000, expires=60 * NS)
            assert [int(reader.message().payload) for _ in range(3000)] == list(range(1, 3001))
    assert probe.median_s < 0.1


def test_a_client_without_headers_gets_messages_without_them(reader: Reader) -> None:
    plain = Reader(reader.info["port"], "_INBOX.plain", headers=False, no_responders=False)
    head = b"NATS/1.0\r\nA: b\r\n\r\n"
    reader.consumer()
    reader.send(b"HPUB s.h %d %d\r\n%sxyz\r\n" % (len(head), len(head) + 3, head))
    plain.pull("d.q", batch=1, expires=10 * NS)
    frame = plain.message()
    assert (frame.verb, frame.payload) == ("MSG", b"xyz")


class SecureReader(Reader):
    """One that turns to TLS after INFO."""

    def __init__(self, port: int, authority: Authority, inbox: str) -> None:
        self._open(port, inbox)
        self.receive()
        self.secure(authority.client_context())
        self.send(b'CONNECT {"verbose":false,"headers":true}\r\nSUB %s.* 1\r\n' % self.inbox)
        self.ping()


def secured(tmp_path: Path) -> tuple[Authority, EmbeddedServer]:
    """An authority, and a server with its certificate."""
    authority = Authority(tmp_path)
    authority.server()
    config = tmp_path / "s.conf"
    config.write_text(f'tls {{ cert_file: "{tmp_path}/server.pem", key_file: "{tmp_path}/server.key" }}')
    return authority, penstock.Server(store_dir=tmp_path / "data", config=config, durability="os")


def test_through_tls_too_everything_comes_though_the_client_reads_late(tmp_path: Path) -> None:
    """What TLS holds is not the socket's: nobody says that there is room again unless we look."""
    authority, embedded = secured(tmp_path)
    with embedded as server:
        reader = SecureReader(server.port, authority, "_INBOX.reader")
        reader.send(b"SUB d.* 2\r\n")
        reader.create("S", "s.>")
        reader.fill(300, size=SIZE)  # 30 MB
        reader.consumer(ack_policy="none")
        other = SecureReader(server.port, authority, "_INBOX.other")
        reader.pull("d.p", batch=300, expires=60 * NS)
        while not other.about()["delivered"]["consumer_seq"]:
            other.ping()
        assert [int(reader.message().payload.rstrip(b"x")) for _ in range(300)] == list(range(1, 301))
        reader.close()
        other.close()


def test_the_server_stops_though_a_client_has_much_to_read(tmp_path: Path) -> None:
    """The loop's end waited for what a client that does not read was still to be sent, for good."""
    authority, embedded = secured(tmp_path)
    with embedded as server:
        reader = SecureReader(server.port, authority, "_INBOX.reader")
        reader.send(b"SUB d.* 2\r\n")
        reader.create("S", "s.>")
        reader.fill(100, size=SIZE)
        reader.consumer(ack_policy="none")
        reader.pull("d.p", batch=100, expires=60 * NS)
        while not waiting_for(server, b"d.*"):
            pass
    reader.close()
