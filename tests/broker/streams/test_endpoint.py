"""StreamEndpoint: a stream that other threads use, too, with more to do than it can, and feeding other streams."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import penstock
from penstock.db.stream import Stream
from penstock.testing import CrashDisk
from support.attack import Client, Probe, assert_no_trace
from support.still_loop import still


@contextmanager
def held(stream: Stream) -> Iterator[None]:
    """Another thread works with the stream all the while: a long purge, a library's publish."""
    has, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        with stream.locked():
            has.set()
            is_over.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    has.wait()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_what_the_library_has_made_is_there_for_who_publishes_next(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as db, penstock.Server(database=db) as server:
        client = Client(server.port, "_INBOX.a")
        for n in range(5):
            with still(server):
                stream = db.stream(f"S{n}", subjects=[f"s.{n}"])
                client.publish(f"s.{n}", b"x", "_INBOX.a.x")
            assert json.loads(client.message().payload) == {"stream": f"S{n}", "seq": 1}
            with still(server):
                stream.consumer("C")
                client.publish(f"$JS.API.CONSUMER.MSG.NEXT.S{n}.C", b"", "_INBOX.a.y")
            assert client.message().payload == b"x"


def test_what_is_published_while_another_thread_has_the_stream_is_taken_in_order_afterwards(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as db, penstock.Server(database=db) as server:
        stream = db.stream("S", subjects=["s.>"])
        first, second = Client(server.port, "_INBOX.a"), Client(server.port, "_INBOX.b")
        with held(stream), Probe(server.port) as probe:
            for n in range(300):
                first.publish(f"s.{n}", b"first %d" % n, f"_INBOX.a.{n}")
                second.publish("s.x", b"second %d" % n, f"_INBOX.b.{n}")
            assert first.ping() < 1
            assert second.ping() < 1
            while len(probe.rounds) < 20:
                time.sleep(0.01)
        for client in (first, second):
            acks = [client.message() for _ in range(300)]
            assert [ack.subject for ack in acks] == [b"%s.%d" % (client.inbox, n) for n in range(300)]
            seqs = [json.loads(ack.payload)["seq"] for ack in acks]
            assert seqs == sorted(seqs)
        found = [message.data for message in stream.read()]
        assert len(found) == 600
        assert [data for data in found if data.startswith(b"first")] == [b"first %d" % n for n in range(300)]
        assert [data for data in found if data.startswith(b"second")] == [b"second %d" % n for n in range(300)]
        assert probe.median_s < 0.1


def test_beyond_what_may_wait_a_publish_is_refused_at_once_and_what_waits_is_taken(tmp_path: Path) -> None:
    """The reference answers 429 then. What waited while a thread had the stream grew without a bound."""
    with penstock.open(tmp_path / "data") as db:
        embedded = penstock.Server(database=db)
        embedded.options.jetstream.max_buffered_msgs = 100
        with embedded as server:
            stream = db.stream("S", subjects=["s.>"])
            client = Client(server.port)
            with held(stream), Probe(server.port) as probe:
                for part in range(3):
                    frames = [client.pub("s.a", b"x", f"_INBOX.me.{part}-{n}") for n in range(60)]
                    client.send(b"".join(frames))
                    if part < 2:
                        client.ping()
                for n in range(60):
                    refused = client.message()
                    assert refused.subject == b"_INBOX.me.2-%d" % n
                    assert refused.headers == b"NATS/1.0 429 Too Many Requests\r\n\r\n"
                    assert json.loads(refused.payload) == {
                        "error": {"code": 429, "err_code": 10167, "description": "too many requests"},
                        "stream": "S",
                        "seq": 0,
                    }
                client.send(client.pub("s.a", b"waits in the socket", "_INBOX.me.last"))
                while len(probe.rounds) < 10:
                    time.sleep(0.01)
            acks = [client.message() for _ in range(121)]
            assert [json.loads(ack.payload)["seq"] for ack in acks] == list(range(1, 122))
            assert acks[-1].subject == b"_INBOX.me.last"
            assert stream.state().messages == 121
            assert probe.median_s < 0.1


def test_a_publisher_that_waits_for_a_stream_is_read_again_when_the_stream_goes(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as db:
        embedded = penstock.Server(database=db)
        embedded.options.jetstream.max_buffered_size = 4000
        with embedded as server:
            stream = db.stream("S", subjects=["s.>"])
            client = Client(server.port)
            with held(stream):
                for _ in range(40):
                    client.publish("s.a", bytes(100))
                client.send(b"PING\r\n")
            assert client.ping() < 5
            db.delete_stream("S")
            assert client.ping() < 5


@pytest.mark.parametrize("reply", ["", "_INBOX.me.1"], ids=["no reply", "reply"])
def test_a_republished_message_is_durable_in_the_stream_that_takes_it_without_further_traffic(
    tmp_path: Path, reply: str
) -> None:
    """It lay there until somebody sent the server something else."""
    with penstock.open(tmp_path / "data") as db, penstock.Server(database=db) as server:
        client = Client(server.port)
        client.create("A", "a.>", republish={"src": "a.>", "dest": "b.>"})
        client.create("B", "b.>")
        second = db.stream("B")
        client.publish("a.1", b"x", reply)
        until = time.monotonic() + 10
        while second.last("b.1") is None:
            assert time.monotonic() < until, "it is not durable"
            time.sleep(0.01)
        assert second.get(1).data == b"x"


def test_an_ack_that_goes_into_a_stream_is_stored_there(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as db, penstock.Server(database=db) as server:
        client = Client(server.port)
        client.create("A", "a.>")
        client.create("ACKS", "acks.>")
        client.publish("a.1", b"x", "acks.1")
        client.publish("a.1", b"y", "a.ack")  # the stream itself
        stream, acks = db.stream("A"), db.stream("ACKS")
        until = time.monotonic() + 10
        while acks.last("acks.1") is None or stream.last("a.ack") is None:
            assert time.monotonic() < until, "it is not durable"
            time.sleep(0.01)
        assert json.loads(acks.get(1).data) == {"stream": "A", "seq": 1}
        assert json.loads(stream.get(3).data) == {"stream": "A", "seq": 2}
        assert client.state("A")["messages"] == 3


def test_the_library_and_clients_publish_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    count = 400
    with penstock.open(tmp_path / "data") as db, penstock.Server(database=db) as server:
        stream = db.stream("S", subjects=["s.>"])
        failures: list[BaseException] = []

        def library(name: str) -> None:
            try:
                for n in range(0, count, 20):
                    stream.publish_many([(f"s.{name}", b"%d" % m) for m in range(n, n + 20)])
            except Exception as error:  # noqa: BLE001 - shown below
                failures.append(error)

        def wire(name: str) -> None:
            try:
                client = Client(server.port, f"_INBOX.{name}")
                for n in range(count):
                    client.publish(f"s.{name}", b"%d" % n, f"_INBOX.{name}.{n}")
                acks = [client.message() for _ in range(count)]
                assert [ack.subject for ack in acks] == [f"_INBOX.{name}.{n}".encode() for n in range(count)]
                seqs = [json.loads(ack.payload)["seq"] for ack in acks]
                assert seqs == sorted(set(seqs))
            except BaseException as error:  # noqa: BLE001 - shown below
                failures.append(error)

        def purge() -> None:
            try:
                client = Client(server.port, "_INBOX.purge")
                for _ in range(20):
                    assert client.api("STREAM.PURGE.S", {"filter": "s.nothing"})["purged"] == 0
            except BaseException as error:  # noqa: BLE001 - shown below
                failures.append(error)

        threads = [threading.Thread(target=library, args=(f"l{n}",)) for n in range(2)]
        threads += [threading.Thread(target=wire, args=(f"w{n}",)) for n in range(3)]
        threads.append(threading.Thread(target=purge))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads), "a deadlock"
        assert failures == []
        found: dict[str, list[bytes]] = {}
        for message in stream.read():
            found.setdefault(message.subject, []).append(message.data)
        assert found == {f"s.{name}": [b"%d" % n for n in range(count)] for name in ("l0", "l1", "w0", "w1", "w2")}


def test_a_sync_that_takes_long_stops_nobody_from_being_read(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    disk = CrashDisk(tmp_path / "data")
    with penstock.open(tmp_path / "data", disk=disk) as db, penstock.Server(database=db) as server:
        db.stream("S", subjects=["s.>"])
        client = Client(server.port)
        client.request("s.first")
        other = Client(server.port, "_INBOX.other")
        with disk.holding("sync_file"):
            for n in range(200):
                client.publish("s.a", b"%d" % n, f"_INBOX.me.a{n}")
                if n % 20 == 0:
                    client.ping()
                    other.publish("_INBOX.other.echo")
                    assert other.message().subject == b"_INBOX.other.echo"
            disk.wait_held()
            client.ping()
            assert client.kept() == [], "nothing is acknowledged that is not synced"
        acks = [client.message() for _ in range(200)]
        assert [ack.subject for ack in acks] == [b"_INBOX.me.a%d" % n for n in range(200)]
        assert [json.loads(ack.payload)["seq"] for ack in acks] == list(range(2, 202))


def test_a_publish_into_a_stream_that_the_library_is_just_closing_is_answered_or_dropped_without_a_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), penstock.open(tmp_path / "data") as db, penstock.Server(database=db) as server:
        stream = db.stream("S", subjects=["s.>"])
        client = Client(server.port)
        assert client.ask("s.a")["seq"] == 1
        stream._close()  # as a delete does, before the server's loop hears of it
        found = client.ask("s.a")
        assert found["error"]["err_code"] in (10077, 10059), found
        client.publish("s.a", b"no reply")
        assert client.ping() < 5
        db.delete_stream("S")
        until = time.monotonic() + 10
        while client.request("s.a").headers is None:  # until nobody hears it
            assert time.monotonic() < until
    assert_no_trace([record.getMessage() + (record.exc_text or "") for record in caplog.records])
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_blocks_that_go_from_a_slow_disk_stop_nobody_from_being_read(tmp_path: Path) -> None:
    """What a block's removal syncs was waited for by everyone, for most of a second."""
    (tmp_path / "data").mkdir()
    disk = CrashDisk(tmp_path / "data")
    with penstock.open(tmp_path / "data", disk=disk) as db, penstock.Server(database=db) as server:
        client = Client(server.port)
        client.create("S", "s.>", max_msgs_per_subject=1, max_bytes=1_000_000)
        client.request("s.first")
        disk.sync_delay_us = 100_000
        with Probe(server.port) as probe:
            for n in range(500):
                client.publish(f"s.{n % 20}", bytes(10_000), f"_INBOX.me.a{n}")
            acks = [client.message(30) for _ in range(500)]
        disk.sync_delay_us = 0
        assert [json.loads(ack.payload)["seq"] for ack in acks] == list(range(2, 502))
        assert probe.median_s < 0.05
        assert sum(took > 0.1 for took in probe.rounds) <= 2
        assert client.state("S")["messages"] == 21


def test_a_stream_that_fails_to_take_a_batch_does_not_keep_others_from_theirs(tmp_path: Path) -> None:
    """The others' messages stayed behind, as pointers into a buffer that the next read filled."""
    with penstock.open(tmp_path / "data") as db, penstock.Server(database=db) as server:
        client = Client(server.port)
        client.create("A", "a")
        client.create("B", "b")

        def fail(*_: object) -> bytes:
            raise RuntimeError("a mistake of ours")

        account = server.server.accounts["$G"].jetstream
        assert account is not None
        account.streams["A"].ingest.guard = fail
        part = client.pub("a", bytes(9000), "_INBOX.me.a") + client.pub("b", bytes(9000), "_INBOX.me.b")
        client.send(part)
        assert client.message().subject == b"_INBOX.me.b"
        account.streams["A"].ingest.guard = None
        client.send(part)
        assert sorted(client.message().subject for _ in range(2)) == [b"_INBOX.me.a", b"_INBOX.me.b"]
        assert (client.state("A")["messages"], client.state("B")["messages"]) == (1, 2)
