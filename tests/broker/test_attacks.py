"""What clients may say to harm others: numbers too large, names that are no text, deeds in the wrong moment."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.consumer import rules
from penstock.server.embedded import EmbeddedServer
from support.attack import Client
from support.delivery import NS, Reader, ack_of, status_of

INT64_MAX = 2**63 - 1


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


@pytest.mark.parametrize("delay", [INT64_MAX, INT64_MAX - 10**18, -INT64_MAX])
def test_a_nak_of_centuries_takes_no_other_ack_with_it(reader: Reader, delay: int) -> None:
    reader.consumer()
    reader.fill(2)
    first, second = reader.fetch(2)
    assert first.reply is not None and second.reply is not None
    nak = b"-NAK " + json.dumps({"delay": delay}).encode()
    reader.send(
        reader.pub(first.reply.decode(), nak, "_INBOX.me.n") + reader.pub(second.reply.decode(), b"", "_INBOX.me.a")
    )
    assert {reader.message().subject for _ in range(2)} == {b"_INBOX.me.n", b"_INBOX.me.a"}
    assert reader.about()["num_ack_pending"] == 1


@pytest.mark.parametrize(
    "text", [b'{"batch":1,"expires":9223372036854775807}', b'{"batch":1,"expires":999999999999999999}']
)
def test_a_request_that_waits_for_centuries_waits(reader: Reader, text: bytes) -> None:
    reader.consumer()
    reader.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", text, "d.p")
    assert reader.about()["num_waiting"] == 1
    reader.fill(1)
    assert ack_of(reader.message())[:3] == (1, 1, 1)


def test_a_heartbeat_that_comes_in_centuries_does_not_come(reader: Reader) -> None:
    """Twice as long wraps around to something short, and is let in; as in the reference."""
    reader.consumer()
    body = {"batch": 1, "expires": NS // 2, "idle_heartbeat": INT64_MAX}
    reader.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", json.dumps(body).encode(), "d.p")
    assert status_of(reader.message()) == "408 Request Timeout"


@pytest.mark.parametrize(
    "text",
    [
        rb'{"batch":1,"id":"\ud800"}',
        rb'{"batch":1,"group":"\udfff"}',
        b'{"batch":1,"id":"\xff\xfe"}',
        b'{"batch":1,"expires":1e400}',
        b'{"batch":9223372036854775808}',
        b'{"\\ud800":1}',
        b'{"batch":1,"min_pending":-9223372036854775808,"group":"g"}',
        b"[" * 5000,
        b"{" * 5000,
        b'{"batch":' + b"[" * 5000,
    ],
)
def test_a_request_that_cannot_be_read_takes_no_other_with_it(reader: Reader, text: bytes) -> None:
    reader.consumer()
    reader.fill(1)
    subject = "$JS.API.CONSUMER.MSG.NEXT.S.C"
    reader.send(reader.pub(subject, text, "d.q") + reader.pub(subject, b'{"batch":1,"expires":5000000000}', "d.p"))
    found = {reader.message().subject}
    if found != {b"s.a"}:
        found.add(reader.message().subject)
    assert b"s.a" in found


def test_somebody_who_hears_everything_and_does_not_read_slows_no_consumer_down(
    server: EmbeddedServer, reader: Reader
) -> None:
    reader.fill(200, size=100_000)  # 20 MB
    reader.consumer(ack_policy="none")
    monitor = Client(server.port, "_INBOX.monitor")
    monitor.send(b"SUB > 9\r\n")
    monitor.ping()
    began = time.monotonic()
    assert len(reader.fetch(200)) == 200
    assert time.monotonic() - began < 8  # the monitor has ten seconds until it is cut off


def test_what_is_told_while_a_message_is_in_hand_changes_its_stream_afterwards(reader: Reader) -> None:
    """The advisory of a new pin goes to the very stream, and takes the place of the message that is being delivered."""
    reader.create("P", "p.>", "$JS.EVENT.ADVISORY.CONSUMER.PINNED.P.>", max_msgs=1)
    config = {"durable_name": "C", "ack_policy": "explicit", "filter_subject": "p.>"}
    config |= {"priority_policy": "pinned_client", "priority_groups": ["g"], "priority_timeout": 60 * NS}
    assert "error" not in reader.api("CONSUMER.CREATE.P.C", {"stream_name": "P", "config": config})
    reader.request("p.a", b"hello")
    reader.publish("$JS.API.CONSUMER.MSG.NEXT.P.C", json.dumps({"batch": 1, "group": "g"}).encode(), "d.p")
    assert reader.message().payload == b"hello"
    reader.ping()
    info = reader.api("CONSUMER.INFO.P.C")
    assert info["delivered"]["stream_seq"] == 1
    assert (info["num_ack_pending"], reader.state("P")["first_seq"]) == (0, 2)


def test_what_is_asked_of_a_stream_that_another_thread_deletes_is_answered(tmp_path: Path) -> None:
    """Whoever waited for its lock, or for a disk, finds it closed: its files are gone."""
    with penstock.open(tmp_path / "data") as db, penstock.Server(database=db) as server:
        reader = Reader(server.port)
        for _ in range(30):
            stream = db.stream("S", subjects=["s.>"], max_age=3600)
            reader.fill(2)
            reader.consumer()
            body = json.dumps({"name": "S", "subjects": ["s.>"], "max_age": 1}).encode()
            for n in range(5):
                reader.publish("$JS.API.STREAM.UPDATE.S", body, f"_INBOX.me.u{n}")
                reader.publish("$JS.API.CONSUMER.INFO.S.C", b"", f"_INBOX.me.i{n}")
                reader.publish("$JS.API.STREAM.LIST", b"", f"_INBOX.me.l{n}")
            db.delete_stream(stream.name)
            answered = {reader.message().subject for _ in range(15)}
            assert len(answered) == 15


def test_a_consumer_made_before_the_loop_hears_that_its_namesake_is_gone_is_served(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as db, penstock.Server(database=db) as server:
        reader = Reader(server.port)
        stream = db.stream("S", subjects=["s.>"])
        reader.consumer()
        consumers = stream.consumers
        config = consumers.by_name["C"].config

        async def replace() -> None:
            thread = threading.Thread(target=stream.delete_consumer, args=("C",))
            thread.start()
            thread.join()
            with stream.locked():
                consumers.create(rules.admit(config, stream.config, consumers.configs))

        assert server._loop is not None
        asyncio.run_coroutine_threadsafe(replace(), server._loop).result()
        reader.fill(1)
        assert reader.fetch(1)[0].payload == b"1"


def test_consumers_are_served_although_their_log_cannot_be_written(tmp_path: Path) -> None:
    """What fails is tried again; who asks for messages gets them meanwhile."""
    with penstock.open(tmp_path / "data") as db, penstock.Server(database=db) as server:
        reader = Reader(server.port)
        stream = db.stream("S", subjects=["s.>"])
        reader.consumer()
        reader.fill(3)
        flush = stream.consumers.flush
        failures: list[int] = []

        def failing() -> int:
            if len(failures) < 2:
                failures.append(1)
                raise ValueError("no disk can explain this")
            return flush()

        stream.consumers.flush = failing  # type: ignore[method-assign]
        (first,) = reader.fetch(1)
        assert reader.fetch(1)[0].payload == b"2"
        assert len(failures) == 2
        assert first.reply is not None
        assert reader.request(first.reply.decode(), b"+ACK").payload == b""


def test_what_only_a_deleted_consumer_wanted_goes_with_it_however_much_it_is(reader: Reader) -> None:
    """In several turns of the loop, and before the delete is answered; others keep what they need."""
    reader.create("I", "i.>", retention="interest")
    for name, config in {"A": {"filter_subject": "i.a"}, "B": {}, "C": {}}.items():
        config = {"durable_name": name, "ack_policy": "explicit", "max_ack_pending": -1, **config}
        assert "error" not in reader.api(f"CONSUMER.CREATE.I.{name}", {"stream_name": "I", "config": config})
    for n in range(10_000):
        reader.publish("i.a" if n % 10 == 0 else "i.b", b"x")
    reader.request("i.a", b"the last")
    reader.publish("$JS.API.CONSUMER.MSG.NEXT.I.B", b'{"batch":100}', "d.b")
    acks = [reader.message().reply for _ in range(100)]
    for ack in acks[:50]:
        reader.publish((ack or b"").decode())
    assert reader.api("CONSUMER.DELETE.I.B") == {
        "type": "io.nats.jetstream.api.v1.consumer_delete_response",
        "success": True,
    }
    assert reader.state("I")["messages"] == 10_001
    reader.api("CONSUMER.DELETE.I.C")
    state = reader.state("I")
    assert (state["messages"], state["first_seq"]) == (1001, 1)
    reader.api("CONSUMER.DELETE.I.A")
    assert reader.state("I")["messages"] == 0
