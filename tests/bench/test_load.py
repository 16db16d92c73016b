"""The benches' load generator: what it counts is what a server did, and an error in an answer is never a message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.load import Idle, drive
from bench.server import DISK, NATS, Running, Side


@pytest.fixture(params=[NATS, DISK], ids=["nats-server", "penstock"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    side: Side = request.param
    with side.start(tmp_path) as running:
        running.make_stream()
        yield running


def state(server: Running, stream: str = "S") -> dict[str, int]:
    found: dict[str, int] = server.request(f"$JS.API.STREAM.INFO.{stream}")["state"]
    return found


def test_every_publish_is_answered_and_stored(server: Running) -> None:
    answer = drive("publish", server.port, count=500, warm=100, window=64, refill=16)
    assert (answer["messages"], answer["errors"]) == (500, 0)
    assert state(server)["messages"] == 600


def test_several_connections_publish_with_one_in_flight_each(server: Running) -> None:
    answer = drive("publish", server.port, conns=8, count=25)
    assert answer["messages"] == state(server)["messages"] == 200
    assert 0 < answer["p50_us"] <= answer["p99_us"] <= answer["max_us"]


def test_message_ids_are_its_own(server: Running) -> None:
    drive("publish", server.port, conns=2, count=50, window=10, ids=1)
    assert state(server)["messages"] == 100
    drive("publish", server.port, conns=2, count=50, window=10, ids=1)
    assert state(server)["messages"] == 100  # the second time all of them are known


def test_keys_come_once_each_and_then_by_chance(server: Running) -> None:
    drive("publish", server.port, subject="bench.k", keys=50, warm=50, count=100, window=10)
    found = state(server)
    assert (found["num_subjects"], found["messages"]) == (50, 150)


def test_direct_gets_count_messages(server: Running) -> None:
    drive("publish", server.port, subject="bench.k", keys=10, count=300, window=10)
    assert drive("direct", server.port, count=40, last_seq=300)["messages"] == 40
    assert drive("direct", server.port, count=40, last=1, subject="bench.k", keys=10)["messages"] == 40
    assert drive("batch", server.port, count=5, batch=100, last_seq=300)["messages"] == 500


def test_every_subscriber_gets_everything(server: Running) -> None:
    assert drive("core", server.port, subject="core.x", subs=3, count=20_000, window=1000)["messages"] == 60_000


def test_idle_connections_are_there_while_the_block_runs(server: Running) -> None:
    before = server.memory()["rss"]
    with Idle(server.port, 20, 10) as held:
        assert held["subscriptions"] == 200
        assert server.memory()["rss"] >= before > 0


def test_an_error_in_place_of_an_ack_ends_the_run(server: Running) -> None:
    server.make_stream(name="FULL", subjects=["full.x"], max_msgs=10, discard="new")
    with pytest.raises(RuntimeError, match="maximum messages exceeded"):
        drive("publish", server.port, subject="full.x", count=20)
    assert state(server, "FULL")["messages"] == 10


def test_a_message_that_is_not_there_ends_the_run(server: Running) -> None:
    with pytest.raises(RuntimeError, match="404"):
        drive("direct", server.port, count=3, last_seq=3)


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with NATS.start(tmp_path) as running:
        port = running.port
    with pytest.raises(RuntimeError, match=rf"connect to 127\.0\.0\.1:{port}"):
        drive("publish", port)


def test_frames_that_are_sent_again_are_messages_of_their_own(server: Running) -> None:
    answer = drive("publish", server.port, count=100, warm=10, window=7, frames=7, size=2000)
    assert answer["messages"] == 100
    assert state(server)["messages"] == 110
