"""Push consumers on the server: who counts as a listener, heartbeats, flow control, rates, and the end of idle ones."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

import penstock
from penstock.base.clock import Clock
from penstock.broker.consumers.delivery import Delivery
from penstock.broker.consumers.dispatcher import ConsumerDispatcher
from penstock.server.embedded import EmbeddedServer
from support.delivery import MS, NS, Reader, ack_of, status_of
from support.wire_client import Frame, Silent


class Listener(Reader):
    """One that only listens: nothing that comes to it is passed over for an answer."""

    def __init__(self, port: int, inbox: str) -> None:
        self.early: deque[Frame] = deque()  # messages that came before the PONG
        super().__init__(port, inbox)

    def listen(self, subject: str, sid: int, queue: str = "") -> None:
        self.send(f"SUB {subject} {queue} {sid}\r\nPING\r\n".encode())
        while (frame := self.receive()).verb != "PONG":
            if frame.verb in ("MSG", "HMSG"):
                self.early.append(frame)

    def message(self, wait: float = 10.0) -> Frame:
        return self.early.popleft() if self.early else super().message(wait)


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


@pytest.fixture
def listener(server: EmbeddedServer) -> Iterator[Listener]:
    client = Listener(server.port, "_INBOX.listener")
    yield client
    client.close()


def test_only_a_subscription_to_the_very_subject_makes_it_deliver(reader: Reader) -> None:
    reader.fill(2)
    reader.consumer(deliver_subject="d.x")
    assert not reader.about().get("push_bound")  # `d.*` does not count
    reader.send(b"SUB d.x 5\r\n")
    frames = [reader.message() for _ in range(4)]
    assert sorted(frame.sid for frame in frames) == [b"2", b"2", b"5", b"5"]  # … but it hears them now
    assert reader.about()["push_bound"]
    reader.send(b"UNSUB 5\r\n")
    reader.ping()
    assert not reader.about().get("push_bound")
    reader.fill(1)
    reader.send(b"SUB d.x 6\r\n")
    assert {reader.message().sid, reader.message().sid} == {b"2", b"6"}


def test_a_deliver_group_wants_its_own_members(server: EmbeddedServer, reader: Reader, listener: Listener) -> None:
    reader.consumer(deliver_subject="e", deliver_group="g")
    listener.listen("e", 5)
    listener.listen("e", 6, "other")
    assert not reader.about().get("push_bound")
    listener.send(b"UNSUB 5\r\nUNSUB 6\r\n")
    listener.listen("e", 7, "g")
    other = Listener(server.port, "_INBOX.other")
    other.listen("e", 8, "g")
    assert reader.about()["push_bound"]
    reader.fill(40)
    got: list[bytes] = []
    until = time.monotonic() + 20
    while len(got) < 40 and time.monotonic() < until:
        for client, sid in ((listener, b"7"), (other, b"8")):
            try:
                while True:
                    frame = client.message(0.1)
                    assert frame.sid == sid
                    got.append(frame.payload)
            except Silent:
                continue  # the rest went to the other one, or is still to come
    assert sorted(got) == sorted(b"%d" % n for n in range(1, 41))


def test_new_messages_are_pushed_as_they_come(reader: Reader, listener: Listener) -> None:
    listener.listen("e", 5)
    reader.consumer(deliver_subject="e")
    for n in range(3):
        reader.publish("s.a", b"%d" % n)
        frame = listener.message()
        assert (frame.payload, ack_of(frame)[1:3]) == (b"%d" % n, (n + 1, n + 1))


def test_a_commit_that_ends_while_the_one_before_is_told_of_is_told_of_too(reader: Reader, listener: Listener) -> None:
    """Its messages were not delivered before something else came, where nobody waited for their answers."""
    told = ConsumerDispatcher.committed

    def slowly(dispatcher: ConsumerDispatcher) -> None:
        told(dispatcher)
        store, stop = dispatcher.stream.store, time.monotonic() + 5
        while store.committed_position < store.engine.position and time.monotonic() < stop:
            time.sleep(0.0005)  # the loop waits, the commit thread does not

    listener.listen("e", 5)
    reader.consumer(deliver_subject="e")
    with patch.object(ConsumerDispatcher, "committed", slowly):
        for n in range(5):
            reader.publish("s.a", b"%d" % n)
            assert listener.message().payload == b"%d" % n


def test_heartbeats_come_when_nothing_else_does(reader: Reader, listener: Listener) -> None:
    reader.fill(1)
    listener.listen("e", 5)
    reader.consumer(deliver_subject="e", idle_heartbeat=100 * MS)
    assert listener.message().payload == b"1"
    frame = listener.message()
    assert frame.headers == (b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n")


def test_flow_control_asks_at_half_the_window_and_stops_at_its_end(reader: Reader, listener: Listener) -> None:
    reader.fill(80, size=64 * 1024)  # 5 MiB; the window begins with 2
    listener.listen("e", 5)
    reader.consumer(deliver_subject="e", flow_control=True, idle_heartbeat=200 * MS, ack_policy="none")
    payloads, stalled, flow = 0, b"", b""
    while not stalled:
        frame = listener.message()
        if frame.headers is None:
            payloads += 1
        elif status_of(frame) == "100 FlowControl Request":
            flow = frame.reply or b""
            assert 15 <= payloads <= 18
        else:
            stalled = frame.headers
    assert 30 <= payloads <= 35
    assert flow.startswith(b"$JS.FC.S.C.")
    assert b"Nats-Consumer-Stalled: " + flow in stalled
    while payloads < 80:
        if flow:
            listener.publish(flow.decode())
            flow = b""
        frame = listener.message()
        if frame.headers is None:
            payloads += 1
        elif frame.reply:
            flow = frame.reply


def test_a_rate_limit_spreads_the_messages(reader: Reader, listener: Listener) -> None:
    reader.create("R", "r.>", max_msg_size=2000)
    for n in range(10):
        reader.request("r.a", b"%d" % n + b"x" * 900)
    listener.listen("e", 5)
    config = {"name": "C", "deliver_subject": "e", "ack_policy": "none", "rate_limit_bps": 160_000}
    began = time.monotonic()
    found = reader.api("CONSUMER.CREATE.R.C", {"stream_name": "R", "config": config})
    assert "error" not in found, found
    for _ in range(10):
        listener.message()
    taken = time.monotonic() - began  # 9.6 kB, 2 kB of them at once, the others at 20 kB/s
    assert 0.3 < taken < 2


def test_an_ephemeral_goes_when_nobody_listens_for_its_threshold(reader: Reader) -> None:
    reader.send(b"SUB $JS.EVENT.ADVISORY.CONSUMER.DELETED.S.* ev\r\nSUB e 5\r\n")
    config = {"name": "E", "deliver_subject": "e", "inactive_threshold": 100 * MS}
    reader.api("CONSUMER.CREATE.S.E", {"stream_name": "S", "config": config})
    with pytest.raises(Silent):
        reader.message(0.3)
    reader.send(b"UNSUB 5\r\n")
    assert reader.message().subject == b"$JS.EVENT.ADVISORY.CONSUMER.DELETED.S.E"
    assert reader.api("CONSUMER.INFO.S.E")["error"]["err_code"] == 10014


def test_a_pull_consumer_goes_when_nobody_asks(reader: Reader) -> None:
    reader.send(b"SUB $JS.EVENT.ADVISORY.CONSUMER.DELETED.S.* ev\r\n")
    reader.consumer("P", inactive_threshold=100 * MS)
    frame = reader.message()
    assert frame.subject == b"$JS.EVENT.ADVISORY.CONSUMER.DELETED.S.P"


def test_a_consumer_that_delivers_elsewhere_takes_what_is_pending_along(reader: Reader, listener: Listener) -> None:
    reader.fill(2)
    reader.consumer(deliver_subject="e")
    listener.listen("e", 5)
    assert [listener.message().payload for _ in range(2)] == [b"1", b"2"]
    listener.send(b"UNSUB 5\r\n")
    listener.listen("f", 6)
    reader.consumer(deliver_subject="f")
    frames = [listener.message() for _ in range(2)]
    assert [(frame.sid, ack_of(frame)[0]) for frame in frames] == [(b"6", 2), (b"6", 2)]


def test_a_pause_ends_by_itself(reader: Reader, listener: Listener) -> None:
    reader.fill(1)
    listener.send(b"SUB $JS.EVENT.ADVISORY.CONSUMER.PAUSE.S.C ev\r\n")
    listener.listen("e", 5)
    until = datetime.now(UTC) + timedelta(seconds=1.5)
    reader.consumer(deliver_subject="e", pause_until=until.isoformat())
    frames = [listener.message() for _ in range(3)]
    assert [frame.sid for frame in frames if frame.sid == b"ev"] == [b"ev", b"ev"]
    assert b'"paused":false' in frames[-1].payload + frames[-2].payload
    assert b"1" in [frame.payload for frame in frames]


class PauseEnds(Clock):
    """The first look is a moment before the end of a pause, every other one a moment after it."""

    def __init__(self, until_ns: int) -> None:
        self._until_ns = until_ns
        self._looks = iter([until_ns - 1])

    def now_ns(self) -> int:
        return self._until_ns + 1

    def wall_ns(self) -> int:
        return next(self._looks, self._until_ns + 1)


def test_a_pause_that_ends_between_two_looks_at_the_clock_is_told(reader: Reader, listener: Listener) -> None:
    """A timer may come a moment too early: what was left of the pause was over at the next look, and nobody told."""
    found: list[Delivery] = []
    configured = Delivery.configured

    def noted(delivery: Delivery) -> None:
        found.append(delivery)
        configured(delivery)

    listener.listen("$JS.EVENT.ADVISORY.CONSUMER.PAUSE.S.C", 6)
    with patch.object(Delivery, "configured", noted):
        reader.consumer(deliver_subject="e", pause_until="2100-01-01T00:00:00Z")
    assert b'"paused":true' in listener.message().payload
    (delivery,) = set(found)
    delivery.owner.stream.store.clock = PauseEnds(delivery.engine.paused_until_ns)
    delivery.owner.loop.call_soon_threadsafe(delivery._pause_ended)
    assert b"consumer_pause" in listener.message().payload


def test_nobody_is_asked_to_wait_for_a_pull(reader: Reader) -> None:
    reader.consumer(deliver_subject="e")
    assert status_of(reader.request("$JS.API.CONSUMER.MSG.NEXT.S.C")) == "409 Consumer is push based"
    reader.pull(batch=1, expires=NS)
    assert status_of(reader.message()) == "409 Consumer is push based"
