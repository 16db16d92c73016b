"""Consumers over a restart: what is delivered, acked and pending; and what those who wait are told."""

from __future__ import annotations

from typing import Any

from parity.catalog import add, case
from parity.consumer_steps import (
    MS,
    NS,
    ack,
    consume,
    fetch,
    fill,
    info,
    no_more,
    pull,
    settle,
    streamed,
    until_waiting,
)
from parity.script import Connection, Script
from support.servers import BASE, JETSTREAM

GROUP = "consumer_restart"
ALONE: dict[str, Any] = {"config": BASE + JETSTREAM, "is_alone": True}


def again(s: Script, name: str = "z") -> Connection:
    s.server.restart()
    c = s.connect(name)
    c.sub("p", "1")
    return c


@case(GROUP, "delivered, acked, nacked and pending, all of it is there again", **ALONE)
def state(s: Script) -> None:
    c = streamed(s)
    consume(c)
    c.sub("p", "1")
    frames = fetch(c, 4)
    ack(c, frames[0])
    ack(c, frames[2])
    ack(c, frames[1], "-NAK")
    fetch(c, 1)
    info(c)
    c = again(s)
    info(c)
    ack(c, frames[1])
    ack(c, frames[3])
    info(c)
    no_more(c)
    info(c)


@case(GROUP, "every kind of consumer is there again", **ALONE)
def kinds(s: Script) -> None:
    c = streamed(s)
    configs: list[dict[str, Any]] = [
        {},
        {"filter_subject": "t.a", "description": "one filter"},
        {"filter_subjects": ["t.a", "t.b"], "metadata": {"k": "v"}},
        {"deliver_subject": "d", "idle_heartbeat": NS, "flow_control": True},
        {"deliver_policy": "last"},
        {"deliver_policy": "new"},
        {"deliver_policy": "last_per_subject", "filter_subject": "t.*"},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 3},
        {"ack_policy": "all", "max_ack_pending": 7},
        {"pause_until": "2100-01-01T00:00:00Z"},
        {"priority_policy": "pinned_client", "priority_groups": ["g"]},
        {"backoff": [NS, 2 * NS], "max_deliver": 5},
        {"inactive_threshold": 600 * NS},
    ]
    for n, config in enumerate(configs):
        consume(c, durable_name=f"C{n:02d}", **config)
    c = again(s)
    c.api("CONSUMER.LIST.T")
    c.api("STREAM.INFO.T")
    c.api("INFO")
    c.api("CONSUMER.PAUSE.T.C09")
    c.api("CONSUMER.DELETE.T.C00")
    consume(c, durable_name="C01")
    info(c, "C01")
    c = again(s, "y")
    c.api("CONSUMER.LIST.T")


@case(GROUP, "last_per_subject goes on where it was", **ALONE)
def last_per_subject(s: Script) -> None:
    c = streamed(s)
    consume(c, deliver_policy="last_per_subject", filter_subject="t.*")
    c.sub("p", "1")
    ack(c, fetch(c, 1)[0])
    c = again(s)
    info(c)
    no_more(c)
    fill(c, ("t.a",), 6)
    settle(c, 1)
    no_more(c)


@case(GROUP, "a work queue goes on where it was", **ALONE)
def work_queue(s: Script) -> None:
    c = streamed(s, retention="workqueue")
    consume(c)
    c.sub("p", "1")
    for frame in fetch(c, 2):
        ack(c, frame)
    c = again(s)
    c.api("STREAM.INFO.T")
    info(c)
    for frame in fetch(c, 3):
        ack(c, frame)
    c.until("STREAM.INFO.T", "", lambda a: a["state"]["messages"] == 0)
    info(c)


@case(GROUP, "max_deliver counts over a restart", **ALONE)
def max_deliver(s: Script) -> None:
    c = streamed(s, ("t.a",))
    consume(c, ack_wait=100 * MS, max_deliver=3)
    c.sub("p", "1")
    fetch(c)
    fetch(c)
    c = again(s)
    fetch(c)
    pull(c, {"batch": 1, "expires": 200 * MS})
    c.read_until_statuses(1)
    info(c)


@case(GROUP, "a message that came again keeps its count", **ALONE)
def redelivered(s: Script) -> None:
    c = streamed(s)
    consume(c)
    c.sub("p", "1")
    for frame in fetch(c, 2):
        ack(c, frame, "-NAK")
    fetch(c, 2)
    info(c)
    c = again(s)
    info(c)


@case(GROUP, "an ephemeral that lives on disk", **ALONE)
def ephemeral(s: Script) -> None:
    c = streamed(s)
    consume(c, durable_name="", name="E", inactive_threshold=600 * NS)
    consume(c, durable_name="", name="M", inactive_threshold=600 * NS, mem_storage=True)
    consume(c, durable_name="D", mem_storage=True)
    c.sub("p", "1")
    for name in ("E", "D"):
        ack(c, fetch(c, 1, consumer=name)[0])
    c = again(s)
    c.api("CONSUMER.NAMES.T")
    for name in ("E", "M", "D"):
        info(c, name)


def shut(body: dict[str, Any]) -> object:
    def run(s: Script) -> None:
        c = streamed(s, ())
        consume(c)
        c.sub("p", "1")
        pull(c, body)
        until_waiting(c, 1)
        s.server.signal(15)
        c.read_until_statuses(1, "what the one who waits is told")

    return run


for title, body in (
    ("a batch", {"batch": 3, "expires": 60 * NS}),
    ("bytes", {"batch": 3, "max_bytes": 1000, "expires": 60 * NS}),
    ("no end", {"batch": 1}),
):
    add(GROUP, f"the server stops while a request waits: {title}", shut(body), **ALONE)


@case(GROUP, "a purge and a restart", **ALONE)
def purged(s: Script) -> None:
    c = streamed(s)
    consume(c)
    c.sub("p", "1")
    fetch(c, 2)
    c.api("STREAM.PURGE.T", {"seq": 4})
    c.until("CONSUMER.INFO.T.C", "", lambda a: a["num_ack_pending"] == 0)
    c = again(s)
    info(c)
    no_more(c)


@case(GROUP, "pending messages come again after their time", **ALONE)
def deadline(s: Script) -> None:
    c = streamed(s, ("t.a", "t.b"))
    consume(c, ack_wait=300 * MS)
    c.sub("p", "1")
    fetch(c, 2)
    c = again(s)
    pull(c, {"batch": 2, "expires": 10 * NS})
    c.read(2)
    info(c)
