"""What is told of consumers: the fields and their order are those that nats-server 2.15.1 was heard to send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.api.advisories import Advisories
from penstock.api.consumer_advisories import ConsumerAdvisories
from penstock.broker.account import Account
from penstock.broker.routing.router import Router
from penstock.broker.tick import Tick
from penstock.consumer.config import ConsumerConfig
from penstock.consumer.moment import parse_moment
from penstock.testing.inside_client import Heard, subscribe

NOW_NS = 1_794_768_763_000_000_000
HEAD = ["type", "id", "timestamp"]
ADVISORY = "io.nats.jetstream.advisory.v1."
Tell = Callable[[ConsumerAdvisories, Any], None]


def received(tell: Tell, listens: str = "$JS.EVENT.>", domain: str = "", **config: Any) -> list[tuple[str, Any]]:
    """What somebody hears who listens while a consumer's news are told."""
    found: list[tuple[str, Any]] = []

    def hear(received: Heard) -> None:
        found.append((received.subject.decode(), json.loads(received.payload)))

    async def main() -> None:
        tick = Tick(asyncio.get_running_loop(), Router())
        account = Account("$G", tick)
        subscribe(account, listens, hear)
        news = ConsumerAdvisories(Advisories("here", domain, lambda: NOW_NS), account, "S")
        tell(news, SimpleNamespace(name="C", config=ConsumerConfig(**config)))
        tick.end()
        tick.close()

    asyncio.run(main())
    return found


@pytest.mark.parametrize(
    ("tell", "event", "kind", "fields"),
    [
        (lambda n, c: n.changed("C", "create"), "CREATED", "consumer_action", {"action": "create"}),
        (lambda n, c: n.changed("C", "delete"), "DELETED", "consumer_action", {"action": "delete"}),
        (lambda n, c: n.given_up(c, 7, 3), "MAX_DELIVERIES", "max_deliver", {"stream_seq": 7, "deliveries": 3}),
        (
            lambda n, c: n.naked(c, 9, 7, 3),
            "MSG_NAKED",
            "nak",
            {"consumer_seq": 9, "stream_seq": 7, "deliveries": 3},
        ),
        (
            lambda n, c: n.terminated(c, 9, 7, 3),
            "MSG_TERMINATED",
            "terminated",
            {"consumer_seq": 9, "stream_seq": 7, "deliveries": 3},
        ),
        (
            lambda n, c: n.terminated(c, 9, 7, 3, "too <old>"),
            "MSG_TERMINATED",
            "terminated",
            {"consumer_seq": 9, "stream_seq": 7, "deliveries": 3, "reason": "too <old>"},
        ),
        (
            lambda n, c: n.paused(c),
            "PAUSE",
            "consumer_pause",
            {"paused": False, "pause_until": "0001-01-01T00:00:00Z"},
        ),
    ],
)
def test_an_event_of_a_consumer_is_told_with_its_fields(
    tell: Tell, event: str, kind: str, fields: dict[str, Any]
) -> None:
    ((subject, told),) = received(tell)
    assert subject == f"$JS.EVENT.ADVISORY.CONSUMER.{event}.S.C"
    assert list(told) == [*HEAD, "stream", "consumer", *fields]
    assert told["type"] == ADVISORY + kind and len(told["id"]) == 22
    assert told["timestamp"] == "2026-11-15T18:52:43Z"
    assert told | {"stream": "S", "consumer": "C", **fields} == told


@pytest.mark.parametrize(("until", "is_paused"), [("2099-01-01T00:00:00+02:00", True), ("2001-01-01T00:00:00Z", False)])
def test_a_pause_is_told_as_it_was_asked_for(until: str, is_paused: bool) -> None:
    ((_, told),) = received(lambda news, consumer: news.paused(consumer), pause_until=parse_moment(until))
    assert (told["paused"], told["pause_until"]) == (is_paused, until)


def test_a_sampled_ack_is_a_metric() -> None:
    ((subject, told),) = received(lambda news, consumer: news.acked(consumer, 9, 7, 1500, 2))
    assert subject == "$JS.EVENT.METRIC.CONSUMER.ACK.S.C"
    assert told["type"] == "io.nats.jetstream.metric.v1.consumer_ack"
    numbers = {"consumer_seq": 9, "stream_seq": 7, "ack_time": 1500, "deliveries": 2}
    assert list(told.items())[3:] == [("stream", "S"), ("consumer", "C"), *numbers.items()]


def test_a_pin_names_the_account_and_comes_after_the_domain() -> None:
    ((subject, told),) = received(lambda news, consumer: news.pinned(consumer, "g", "id1"), domain="hub")
    assert subject == "$JS.EVENT.ADVISORY.CONSUMER.PINNED.S.C" and told["type"] == ADVISORY + "consumer_group_pinned"
    assert list(told)[3:] == ["account", "stream", "consumer", "domain", "group", "pinned_id"]
    assert (told["account"], told["domain"], told["pinned_id"]) == ("$G", "hub", "id1")
    ((subject, told),) = received(lambda news, consumer: news.unpinned(consumer, "g", "timeout"))
    assert subject == "$JS.EVENT.ADVISORY.CONSUMER.UNPINNED.S.C"
    assert list(told.items())[3:] == [
        ("account", "$G"), ("stream", "S"), ("consumer", "C"), ("group", "g"), ("reason", "timeout")
    ]  # fmt: skip


def test_nobody_is_told_what_nobody_listens_to() -> None:
    def tell(news: ConsumerAdvisories, consumer: Any) -> None:
        news.changed("C", "update")
        news.naked(consumer, 1, 1, 1)
        news.acked(consumer, 1, 1, 1, 1)
        news.pinned(consumer, "g", "x")

    assert received(tell, listens="$JS.EVENT.ADVISORY.CONSUMER.*.OTHER.>") == []
    assert received(lambda news, consumer: news.changed("C", "update")) == []
