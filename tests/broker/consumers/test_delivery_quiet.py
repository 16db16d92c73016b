"""A server that has nothing to deliver rests: what was asked, filled, given up or left does not wake the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.broker.consumers.dispatcher import ConsumerDispatcher
from penstock.server.embedded import EmbeddedServer
from support.delivery import MS, NS, Reader, status_of

WAKES_MAX = 60  # in a window of 400 ms; a loop that spins comes thousands of times
WINDOWS = 5


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    with penstock.Server(store_dir=tmp_path / "data") as found:
        yield found


@pytest.fixture
def reader(server: EmbeddedServer) -> Iterator[Reader]:
    client = Reader(server.port)
    client.create("S", "s.>")
    client.create("U", "u")
    client.api("CONSUMER.CREATE.U.W", {"stream_name": "U", "config": {"durable_name": "W"}})
    yield client
    client.close()


def filled(reader: Reader) -> None:
    """A request is filled long before it would have expired."""
    reader.fill(3)
    reader.consumer()
    reader.pull(batch=2, expires=100 * MS)
    assert len([reader.message() for _ in range(2)]) == 2


def filled_with_heartbeats(reader: Reader) -> None:
    reader.fill(3)
    reader.consumer(ack_policy="none")
    reader.pull(batch=3, expires=200 * MS, idle_heartbeat=100 * MS)
    assert len([reader.message() for _ in range(3)]) == 3


def left(reader: Reader) -> None:
    """Whoever waits listens no more."""
    reader.consumer()
    reader.send(b"SUB gone 9\r\n")
    reader.pull("gone", batch=5, expires=100 * MS)
    reader.ping()
    reader.send(b"UNSUB 9\r\n")
    reader.ping()


def unanswered(reader: Reader) -> None:
    """A client does not acknowledge, and nobody asks for what is due."""
    reader.fill(2)
    reader.consumer(ack_wait=50 * MS)
    reader.fetch(2)


def full(reader: Reader) -> None:
    """Too many are unacknowledged, and somebody waits."""
    reader.fill(5)
    reader.consumer(max_ack_pending=1)
    reader.pull(batch=5, expires=60 * NS)
    reader.message()


def paused(reader: Reader) -> None:
    reader.fill(5)
    reader.consumer(pause_until="2100-01-01T00:00:00Z")
    reader.pull(batch=5, expires=60 * NS)


def backed_off(reader: Reader) -> None:
    reader.fill(1)
    reader.consumer(backoff=[50 * MS, 60 * NS], max_deliver=5)
    reader.fetch(1)
    reader.fetch(1)


def given_up(reader: Reader) -> None:
    reader.fill(2)
    reader.consumer(ack_wait=50 * MS, max_deliver=1)
    reader.fetch(2)


def pushed_to_nobody(reader: Reader) -> None:
    reader.fill(5)
    reader.consumer(deliver_subject="nobody.here", idle_heartbeat=100 * MS)


def pushed(reader: Reader) -> None:
    reader.fill(5)
    reader.consumer(deliver_subject="push", ack_policy="none")
    reader.send(b"SUB push 9\r\n")
    assert len([reader.message() for _ in range(5)]) == 5


def inactive(reader: Reader) -> None:
    """It would go, but somebody waits."""
    reader.consumer(inactive_threshold=50 * MS)
    reader.pull(batch=1, expires=60 * NS)


SCENES = [
    filled,
    filled_with_heartbeats,
    left,
    unanswered,
    full,
    paused,
    backed_off,
    given_up,
    pushed_to_nobody,
    pushed,
    inactive,
]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_the_loop_rests_after(
    scene: Callable[[Reader], None], server: EmbeddedServer, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filled request once kept the loop awake for good, from the time on at which it would have expired.

    On a busy machine the loop may still have the scene's work to do in the first window, and it comes back every
    millisecond while a delayed thread holds the stream's lock. So one quiet window is enough; a spinning loop has none.
    """
    scene(reader)
    wakes = 0
    serve = ConsumerDispatcher.serve

    def counted(dispatcher: ConsumerDispatcher, looks_anew: bool = False) -> None:
        nonlocal wakes
        wakes += 1
        serve(dispatcher, looks_anew)

    monkeypatch.setattr(ConsumerDispatcher, "serve", counted)
    watch = Reader(server.port, "_INBOX.watch")
    watch.send(b"SUB until 7\r\n")
    windows = []
    while len(windows) < WINDOWS and min(windows, default=WAKES_MAX) >= WAKES_MAX:
        before = wakes
        watch.publish("$JS.API.CONSUMER.MSG.NEXT.U.W", b'{"batch":1,"expires":400000000}', "until")
        assert status_of(watch.message()) == "408 Request Timeout"
        windows.append(wakes - before)
    watch.close()
    assert min(windows) < WAKES_MAX, windows
