"""The load generator as a consumer: it counts what a server delivered, and stops at the server's ack floor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.consumers import ORDERED, make_durable, read_ordered
from bench.load import drive
from bench.server import DISK, NATS, Running, Side


@pytest.fixture(params=[NATS, DISK], ids=["nats-server", "penstock"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    side: Side = request.param
    with side.start(tmp_path) as running:
        running.make_stream()
        yield running


def consumer(server: Running, name: str) -> dict[str, Any]:
    return server.request(f"$JS.API.CONSUMER.INFO.S.{name}")


def test_a_fetch_without_acks_takes_every_message_once(server: Running) -> None:
    drive("publish", server.port, count=1000, window=100)
    make_durable(server, "C000", ack_policy="none")
    answer = drive("fetch", server.port, warm=100, count=900, batch=70, requests=3)
    assert (answer["messages"], answer["errors"]) == (900, 0)
    assert consumer(server, "C000")["delivered"]["consumer_seq"] == 1000


def test_a_fetch_with_acks_ends_at_the_ack_floor(server: Running) -> None:
    drive("publish", server.port, count=1000, window=100)
    make_durable(server, "C000")
    drive("fetch", server.port, count=1000, batch=70, requests=3, acks=1)
    found = consumer(server, "C000")
    assert (found["ack_floor"]["stream_seq"], found["num_ack_pending"], found["num_waiting"]) == (1000, 0, 0)


def test_many_consumers_take_their_own_share_on_few_connections(server: Running) -> None:
    drive("publish", server.port, subject="bench.k", keys=10, in_turn=1, count=500, window=100)
    for n in range(10):
        make_durable(server, f"C{n:03}", filter_subject=f"bench.k{n:06}")
    drive("fetch", server.port, count=500, consumers=10, conns=3, batch=20, acks=1)
    assert [consumer(server, f"C{n:03}")["ack_floor"]["consumer_seq"] for n in range(10)] == [50] * 10


def test_a_work_queue_is_empty_at_the_end(server: Running) -> None:
    server.make_stream(name="Q", subjects=["q.>"], retention="workqueue")
    make_durable(server, "C000", "Q")
    wanted = {"stream": "Q", "subject": "q.x", "acks": 1, "queue": 1, "backlog": 150, "window": 100}
    answer = drive("work", server.port, warm=100, count=900, batch=50, **wanted)
    assert answer["messages"] == 900
    state = server.request("$JS.API.STREAM.INFO.Q")["state"]
    assert (state["messages"], state["last_seq"]) == (0, 1000)


def test_an_ordered_push_consumer_is_read_through_its_flow_control(server: Running) -> None:
    drive("publish", server.port, count=600, window=100, size=20_000)  # several windows of flow control
    assert read_ordered(server, "S")["messages"] == 600


def test_a_redelivery_is_no_message(server: Running) -> None:
    drive("publish", server.port, count=10, window=10)
    make_durable(server, "C000", ack_wait=10**6)
    drive("fetch", server.port, count=10, batch=10)
    with pytest.raises(RuntimeError, match=r"\$JS\.ACK\.S\.C000\.2\.1\.11\."):
        drive("fetch", server.port, count=1, batch=1)


def test_a_status_ends_the_run(server: Running) -> None:
    make_durable(server, "C000", max_batch=10)
    with pytest.raises(RuntimeError, match="409 Exceeded MaxRequestBatch of 10"):
        drive("fetch", server.port, count=20, batch=20)


def test_a_consumer_that_is_refused_is_named(server: Running) -> None:
    wanted = {"stream_name": "S", "config": {**ORDERED, "name": "P", "idle_heartbeat": 0}}
    with pytest.raises(RuntimeError, match=r"not made: .*10108"):
        drive("push", server.port, consumer="P", config=json.dumps(wanted))
