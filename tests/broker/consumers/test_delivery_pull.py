"""Pull consumers on the server: who gets which message, what those are told who get none, what acks do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.db.stream import Stream
from penstock.server.embedded import EmbeddedServer
from support.delivery import MS, NS, Reader, ack_of, status_of

NEXT = "$JS.API.CONSUMER.MSG.NEXT.S.C"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with penstock.Server(store_dir=tmp_path / "data") as found:
        yield found


@pytest.fixture
def reader(server: EmbeddedServer) -> Iterator[Reader]:
    client = Reader(server.port)
    client.create("S", "s.>")
    yield client
    client.close()


def test_messages_come_with_their_own_subject_the_readers_sid_and_where_to_acknowledge(reader: Reader) -> None:
    reader.fill(3)
    reader.consumer()
    frames = reader.fetch(3)
    assert [frame.payload for frame in frames] == [b"1", b"2", b"3"]
    assert {(frame.verb, frame.subject, frame.sid) for frame in frames} == {("MSG", b"s.a", b"2")}
    assert [ack_of(frame) for frame in frames] == [(1, 1, 1, 2), (1, 2, 2, 1), (1, 3, 3, 0)]


def test_headers_come_too(reader: Reader) -> None:
    reader.consumer()
    head = b"NATS/1.0\r\nA: b\r\n\r\n"
    reader.send(b"HPUB s.h %d %d\r\n%sxyz\r\n" % (len(head), len(head) + 3, head))
    (frame,) = reader.fetch(1)
    assert (frame.verb, frame.headers, frame.payload) == ("HMSG", head, b"xyz")


def test_a_request_waits_for_messages_that_come_later_and_one_commit_serves_many(reader: Reader) -> None:
    reader.consumer()
    for n in range(5):
        reader.pull(f"d.{n}", batch=2, expires=10 * NS)
    reader.ping()
    assert reader.about()["num_waiting"] == 5
    reader.fill(10)
    frames = [reader.message() for _ in range(10)]
    assert [frame.payload for frame in frames] == [b"%d" % n for n in range(1, 11)]
    assert reader.about()["num_waiting"] == 0


def test_requests_are_served_in_turn_one_message_each(server: EmbeddedServer, reader: Reader) -> None:
    reader.consumer()
    others = [Reader(server.port, f"_INBOX.{n}") for n in range(3)]
    for n, other in enumerate(others):
        other.send(b"SUB q.%d 9\r\n" % n)
        other.pull(f"q.{n}", batch=3, expires=10 * NS)
        other.ping()
    reader.fill(9)
    for n, other in enumerate(others):
        assert [other.message().payload for _ in range(3)] == [b"%d" % (n + 1 + 3 * turn) for turn in range(3)]


def test_acks_move_the_floor_and_what_is_not_acknowledged_comes_again(reader: Reader) -> None:
    reader.fill(3)
    reader.consumer(ack_wait=150 * MS)
    first, second, third = reader.fetch(3)
    for frame in (first, third):
        assert frame.reply is not None
        reader.publish(frame.reply.decode(), b"+ACK")
    (again,) = reader.fetch(1)
    assert again.payload == second.payload
    assert ack_of(again) == (2, 2, 4, 0)
    info = reader.about()
    assert info["ack_floor"]["stream_seq"] == 1
    assert info["num_ack_pending"] == 1
    assert info["num_redelivered"] == 1
    assert reader.request(again.reply.decode() if again.reply else "", b"+ACK").payload == b""
    assert reader.about()["ack_floor"]["stream_seq"] == 3


def test_a_nak_brings_it_back_at_once_a_delay_later_and_a_term_never(reader: Reader) -> None:
    reader.fill(3)
    reader.consumer()
    frames = reader.fetch(3)
    replies = [(frame.reply or b"").decode() for frame in frames]
    reader.publish(replies[0], b'-NAK {"delay": 50000000}')
    reader.publish(replies[1], b"-NAK")
    reader.publish(replies[2], b"+TERM it is broken")
    assert [frame.payload for frame in reader.fetch(2)] == [b"2", b"1"]
    info = reader.about()
    assert (info["num_ack_pending"], info["num_redelivered"]) == (2, 2)


def test_work_in_progress_puts_the_deadline_off(reader: Reader) -> None:
    reader.fill(1)
    reader.consumer(ack_wait=400 * MS)
    (frame,) = reader.fetch(1)
    reply = (frame.reply or b"").decode()
    for _ in range(6):
        reader.pull(batch=1, expires=150 * MS)
        assert status_of(reader.message()) == "408 Request Timeout"
        reader.publish(reply, b"+WPI")
    (again,) = reader.fetch(1)
    assert ack_of(again)[0] == 2


def test_an_ack_can_ask_for_the_next_message(reader: Reader) -> None:
    reader.fill(3)
    reader.consumer()
    (frame,) = reader.fetch(1)
    reader.publish((frame.reply or b"").decode(), b"+NXT 2", "d.n")
    assert [reader.message().payload for _ in range(2)] == [b"2", b"3"]
    assert reader.about()["ack_floor"]["stream_seq"] == 1


def test_those_who_get_nothing_are_told_why(reader: Reader) -> None:
    reader.consumer(max_waiting=1)
    reader.pull(no_wait=True)
    assert status_of(reader.message()) == "404 No Messages"
    reader.pull(batch=7, max_bytes=500, expires=20 * MS)
    frame = reader.message()
    assert frame.headers == (
        b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 7\r\nNats-Pending-Bytes: 500\r\n\r\n"
    )
    reader.pull("d.1", batch=1, expires=10 * NS)
    reader.pull("d.2", batch=1, expires=10 * NS)
    assert status_of(reader.message()) == "409 Exceeded MaxWaiting"


def test_who_waits_is_told_when_the_consumer_is_deleted_and_then_nobody_hears_requests(reader: Reader) -> None:
    reader.consumer()
    reader.pull(batch=1, expires=10 * NS)
    reader.ping()
    reader.publish("$JS.API.CONSUMER.DELETE.S.C", b"", "d.api")
    frames = {frame.subject: frame for frame in (reader.message(), reader.message())}
    assert status_of(frames[b"d.p"]) == "409 Consumer Deleted"
    assert b'"success":true' in frames[b"d.api"].payload.replace(b" ", b"")
    assert status_of(reader.request(NEXT)) == "503"


def test_who_waits_is_told_when_the_server_stops(tmp_path: Path) -> None:
    with penstock.Server(store_dir=tmp_path / "data") as server:
        reader = Reader(server.port)
        reader.create("S", "s.>")
        reader.consumer()
        reader.pull(batch=3, expires=10 * NS)
        reader.ping()
    frame = reader.message()
    assert frame.headers == (
        b"NATS/1.0 409 Server Shutdown\r\nNats-Pending-Messages: 3\r\nNats-Pending-Bytes: 0\r\n\r\n"
    )
    reader.close()


def test_a_budget_of_bytes_ends_a_request(reader: Reader) -> None:
    reader.fill(3, size=100)
    reader.consumer()
    reader.pull(batch=3, max_bytes=400, expires=10 * NS)
    frames = [reader.message(), reader.message(), reader.message()]
    assert [frame.payload[:1] for frame in frames[:2]] == [b"1", b"2"]
    assert status_of(frames[2]) == "409 Message Size Exceeds MaxBytes"
    reader.pull(batch=1, max_bytes=10_000, expires=10 * NS)
    assert reader.message().payload[:1] == b"3"
    assert status_of(reader.message()) == "409 Batch Completed"


def test_heartbeats_come_while_nothing_does(reader: Reader) -> None:
    reader.consumer()
    reader.pull(batch=1, expires=300 * MS, idle_heartbeat=100 * MS)
    assert status_of(reader.message()) == "100 Idle Heartbeat"
    assert status_of(reader.message()) in ("100 Idle Heartbeat", "408 Request Timeout")


def test_a_request_whose_reader_is_gone_gets_nothing_and_takes_nothing(server: EmbeddedServer, reader: Reader) -> None:
    reader.consumer()
    gone = Reader(server.port, "_INBOX.gone")
    gone.send(b"SUB g 3\r\n")
    gone.pull("g", batch=5, expires=10 * NS)
    gone.ping()
    gone.close()
    while reader.about()["num_waiting"]:
        reader.ping()
    reader.fill(2)
    assert [frame.payload for frame in reader.fetch(2)] == [b"1", b"2"]


def test_max_ack_pending_holds_new_messages_back_but_not_those_that_come_again(reader: Reader) -> None:
    reader.fill(5)
    reader.consumer(max_ack_pending=2)
    reader.pull(batch=5, expires=10 * NS)
    frames = [reader.message(), reader.message()]
    reader.publish((frames[1].reply or b"").decode(), b"-NAK")
    assert reader.message().payload == b"2"
    reader.publish((frames[0].reply or b"").decode(), b"")
    assert reader.message().payload == b"3"


def test_messages_and_requests_meet_while_another_thread_has_the_stream(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as db:
        stream = db.stream("S", subjects=["s.>"])
        with penstock.Server(database=db) as server:
            _meet(Reader(server.port), stream)


def _meet(reader: Reader, stream: Stream) -> None:
    reader.fill(2)
    reader.consumer()
    first, second = reader.fetch(2)
    with stream.locked():
        reader.publish((first.reply or b"").decode(), b"", "d.ack")
        reader.pull(batch=1, expires=10 * NS)
        assert reader.ping() < 1
    assert reader.message().subject == b"d.ack"
    thread = threading.Thread(target=lambda: stream.publish("s.lib", b"from the library"))
    thread.start()
    assert reader.message().payload == b"from the library"
    thread.join()
    assert second.payload == b"2"


def test_requests_of_many_consumers_of_one_stream_are_served_by_one_publish(reader: Reader) -> None:
    for n in range(30):
        reader.consumer(f"C{n}", filter_subject="s.a" if n % 2 else "s.b")
        reader.pull(f"d.{n}", f"C{n}", batch=1, expires=10 * NS)
    reader.ping()
    reader.publish("s.a", b"odd")
    found = sorted((reader.message().reply or b"").split(b".")[3] for _ in range(15))
    assert found == sorted(b"C%d" % n for n in range(1, 30, 2))


def test_a_thousand_messages_come_in_order_and_their_acks_are_counted(reader: Reader) -> None:
    reader.fill(1000)
    reader.consumer(max_ack_pending=-1)
    frames = reader.fetch(1000)
    assert [int(frame.payload) for frame in frames] == list(range(1, 1001))
    reader.send(b"".join(reader.pub((frame.reply or b"").decode()) for frame in frames[:-1]))
    reader.request((frames[-1].reply or b"").decode())
    info = reader.about()
    assert info["ack_floor"] | {"last_active": ""} == {"consumer_seq": 1000, "stream_seq": 1000, "last_active": ""}
    assert info["num_ack_pending"] == 0


def test_a_domains_own_name_for_requests_and_a_level_that_nobody_has(tmp_path: Path) -> None:
    config = tmp_path / "s.conf"
    config.write_text("port: -1\njetstream { domain: hub }")
    with penstock.Server(store_dir=tmp_path / "data", config=config) as server:
        reader = Reader(server.port)
        reader.create("S", "s.>")
        reader.fill(1)
        reader.consumer()
        reader.publish("$JS.hub.API.CONSUMER.MSG.NEXT.S.C", b"1", "d.p")
        assert reader.message().payload == b"1"
        assert status_of(reader.request("$JS.hub.API.CONSUMER.MSG.NEXT.S.X")) == "503"
        head = b"NATS/1.0\r\nNats-Required-Api-Level: 99\r\n\r\n"
        reader.send(b"HPUB %s d.p %d %d\r\n%s\r\n" % (NEXT.encode(), len(head), len(head), head))
        assert status_of(reader.message()) == "412 Required Api Level"
        reader.close()
