"""Clients that die: with 10,000 unacknowledged messages, which are redelivered in order of their deadlines; with unread
bytes.
"""

from __future__ import annotations

import socket
import time

import pytest

import penstock
from support.attack import Client
from support.servers import Kind, ServerProcess
from support.wire_client import Frame

COUNT, BATCH = 10_000, 1_000
ACK_WAIT_NS = 2 * 10**9
CONFIG = """\
host: 127.0.0.1
port: -1
jetstream { store_dir: "$DIR", max_mem: 64MB, max_file: 1GB }
"""


def pull(client: Client, count: int) -> list[Frame]:
    request = b'{"batch":%d,"expires":10000000000}' % count
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", request, f"{client.inbox.decode()}.m")
    return [client.message() for _ in range(count)]


def deliveries_and_seq(frame: Frame) -> tuple[int, int]:
    assert frame.reply is not None, frame
    words = frame.reply.split(b".")
    return int(words[-5]), int(words[-4])


@pytest.mark.parametrize("kind", ["ours", "real"])
def test_what_a_client_had_when_it_died_comes_back_once_in_order_of_deadlines(kind: Kind) -> None:
    with ServerProcess(kind, CONFIG) as server:
        client = Client(server.port)
        client.create("S", "s.x")
        config = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": ACK_WAIT_NS, "max_ack_pending": COUNT}
        client.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
        client.send(b"".join(client.pub("s.x", b"%d" % n) for n in range(1, COUNT)))
        assert client.ask("s.x", b"the last")["seq"] == COUNT

        dying = Client(server.port, "_INBOX.dying")
        batches = [pull(dying, BATCH) for _ in range(COUNT // BATCH)]
        for batch in (batches[2], batches[0]):  # in progress: their deadlines begin anew, the third batch's first
            dying.send(b"".join(dying.pub(str(frame.reply or b"", "ascii"), b"+WPI") for frame in batch))
            dying.ping()
        dying.close()

        found = []
        for _ in batches:
            frames = pull(client, BATCH)
            found += [deliveries_and_seq(frame) for frame in frames]
            *replies, last = [str(frame.reply or b"", "ascii") for frame in frames]
            client.send(b"".join(client.pub(reply, b"+ACK") for reply in replies))
            assert client.request(last, b"+ACK").payload == b""
        assert {deliveries for deliveries, _ in found} == {2}
        by_deadline = [*batches[1:2], *batches[3:], batches[2], batches[0]]
        expected = [deliveries_and_seq(frame)[1] for batch in by_deadline for frame in batch]
        if kind == "ours":
            assert [seq for _, seq in found] == expected
        else:  # the real server sorts what it found due at one look by sequence
            assert sorted(seq for _, seq in found) == sorted(expected)
        info = client.api("CONSUMER.INFO.S.C")
        assert (info["num_ack_pending"], info["num_pending"], info["ack_floor"]["stream_seq"]) == (0, 0, COUNT)


def test_one_that_says_nothing_more_gets_nothing_more_though_it_does_not_read() -> None:
    """Some bytes waited for it, too few for the write deadline: it stayed in its queue group while pings went out."""
    with penstock.Server() as server:
        half = socket.socket()
        half.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        half.connect(("127.0.0.1", server.port))
        half.sendall(b'CONNECT {"verbose":false,"name":"half"}\r\nSUB big 1\r\nSUB q g 2\r\nPING\r\n')
        while b"PONG" not in half.recv(4096):
            pass
        there = Client(server.port)
        there.send(b"SUB q g 7\r\n")
        connections = server.server.connections
        found = next(each for each in connections.values() if each.name == "half")
        while not found.transport.get_write_buffer_size():
            there.publish("big", bytes(8192))
            there.ping()
        half.shutdown(socket.SHUT_WR)
        until = time.monotonic() + 10
        while found.cid in connections:
            assert time.monotonic() < until, "it is still a client"
        for n in range(20):
            there.publish("q", b"%d" % n)
        assert [there.message().payload for _ in range(20)] == [b"%d" % n for n in range(20)]
        half.close()
