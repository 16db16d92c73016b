"""Priority groups: overflow, a pinned client, priorities; what a request must say, and who is served."""

from __future__ import annotations

from typing import Any

from parity.catalog import add, case
from parity.consumer_steps import (
    FIVE,
    MS,
    NS,
    ack,
    consume,
    fill,
    info,
    listening,
    no_more,
    pull,
    pulling,
    settle,
    until_waiting,
)
from parity.script import Connection, Payload, Script

GROUP = "consumer_priority"
LONG = 60 * NS
POLICIES = ("overflow", "pinned_client", "prioritized")


def grouped(s: Script, policy: str, messages: tuple[str, ...] = FIVE, **config: Any) -> Connection:
    return pulling(s, messages, priority_policy=policy, priority_groups=["g"], **config)


def ask(c: Connection, reply: str, waiting: int, **body: Any) -> None:
    """A request of the group on an inbox of its own; until so many wait."""
    c.sub(reply, reply)
    pull(c, {"batch": 1, "expires": LONG, "group": "g", **body}, reply)
    until_waiting(c, waiting)


BAD: list[tuple[str, dict[str, Any]]] = [
    ("no group", {"batch": 1}),
    ("an empty group", {"batch": 1, "group": ""}),
    ("another group", {"batch": 1, "group": "h"}),
    ("min_pending", {"batch": 1, "group": "g", "min_pending": 1}),
    ("min_ack_pending", {"batch": 1, "group": "g", "min_ack_pending": 1}),
    ("min_pending below zero", {"batch": 1, "group": "g", "min_pending": -1}),
    ("an id", {"batch": 1, "group": "g", "id": "x"}),
    ("a priority", {"batch": 1, "group": "g", "priority": 3}),
    ("a priority of nine", {"batch": 1, "group": "g", "priority": 9}),
    ("a priority of ten", {"batch": 1, "group": "g", "priority": 10}),
    ("a priority below zero", {"batch": 1, "group": "g", "priority": -1}),
    ("everything at once", {"batch": 1, "group": "h", "priority": 11, "id": "x", "min_pending": 1}),
]


def asking(policy: str, body: Payload) -> object:
    def run(s: Script) -> None:
        c = grouped(s, policy)
        assert isinstance(body, dict)
        pull(c, body | {"expires": 50 * MS})
        c.read(1)

    return run


for policy in POLICIES:
    for title, body in BAD:
        add(GROUP, f"{policy}: {title}", asking(policy, body))


def plain_body(policy: str) -> object:
    def run(s: Script) -> None:
        c = grouped(s, policy)
        for body in ("", "2"):
            pull(c, body)
            c.read(2 if body else 1)
        info(c)

    return run


for policy in POLICIES:
    add(GROUP, f"{policy}: a request without a word", plain_body(policy))


@case(GROUP, "overflow: only when enough is pending")
def overflow(s: Script) -> None:
    c = grouped(s, "overflow", ())
    ask(c, "q1", 1, batch=5, min_pending=3)
    other = s.connect("b")
    for n in range(2):
        fill(other, ("t.a",), n + 1)
    settle(other, 2)
    c.sub("q2", "q2")
    pull(c, {"batch": 5, "group": "g", "min_pending": 2, "expires": LONG}, "q2")
    c.read(1, "the second one takes one")
    info(c)


@case(GROUP, "overflow: served at once where enough is pending")
def overflow_enough(s: Script) -> None:
    c = grouped(s, "overflow")
    pull(c, {"batch": 9, "group": "g", "min_pending": 4, "expires": 100 * MS})
    c.read_until_statuses(1)
    info(c)


@case(GROUP, "overflow: without a bound like any other")
def overflow_none(s: Script) -> None:
    c = grouped(s, "overflow")
    pull(c, {"batch": 9, "group": "g", "expires": 100 * MS})
    c.read_until_statuses(1)


@case(GROUP, "overflow: when enough waits for acks")
def overflow_acks(s: Script) -> None:
    c = grouped(s, "overflow")
    pull(c, {"batch": 2, "group": "g", "min_ack_pending": 2, "expires": 60 * MS})
    c.read_until_statuses(1, "nothing is pending")
    pull(c, {"batch": 2, "group": "g", "expires": LONG})
    frames = c.read(2)
    pull(c, {"batch": 2, "group": "g", "min_ack_pending": 2, "expires": LONG})
    c.read(2)
    for frame in frames:
        ack(c, frame)
    pull(c, {"batch": 2, "group": "g", "min_ack_pending": 3, "expires": 60 * MS})
    c.read_until_statuses(1, "too few are pending")


@case(GROUP, "overflow: either bound is enough")
def overflow_either(s: Script) -> None:
    c = grouped(s, "overflow")
    pull(c, {"batch": 1, "group": "g", "min_pending": 100, "min_ack_pending": 1, "expires": 60 * MS})
    c.read_until_statuses(1)
    pull(c, {"batch": 1, "group": "g", "min_pending": 5, "min_ack_pending": 100, "expires": LONG})
    c.read(1)
    pull(c, {"batch": 1, "group": "g", "min_pending": 100, "min_ack_pending": 1, "expires": LONG})
    c.read(1)


@case(GROUP, "overflow: no_wait where too little is pending")
def overflow_no_wait(s: Script) -> None:
    c = grouped(s, "overflow", ())
    pull(c, {"batch": 1, "group": "g", "min_pending": 1, "no_wait": True})
    c.read_until_statuses(1)


@case(GROUP, "pinned: the first one is pinned, and goes on with its id")
def pinned(s: Script) -> None:
    c = grouped(s, "pinned_client")
    info(c)
    pull(c, {"batch": 1, "group": "g", "expires": LONG})
    (frame,) = c.read(1)
    pin = pin_of(frame)
    info(c)
    pull(c, {"batch": 2, "group": "g", "id": pin, "expires": LONG})
    c.read(2)
    info(c)


def pin_of(frame: Any) -> str:
    headers = (frame.headers or b"").decode()
    return headers.split("Nats-Pin-Id: ")[1].split("\r\n")[0] if "Nats-Pin-Id" in headers else "none"


@case(GROUP, "pinned: others wait, a wrong id is refused")
def pinned_others(s: Script) -> None:
    c = grouped(s, "pinned_client")
    pull(c, {"batch": 1, "group": "g", "expires": LONG})
    (frame,) = c.read(1)
    pull(c, {"batch": 1, "group": "g", "expires": 60 * MS})
    c.read_until_statuses(1, "another one waits in vain")
    pull(c, {"batch": 1, "group": "g", "id": "x" * 22, "expires": LONG})
    c.read_until_statuses(1, "a wrong id")
    pull(c, {"batch": 1, "group": "g", "id": pin_of(frame), "expires": LONG})
    c.read(1)


@case(GROUP, "pinned: several messages in the first request")
def pinned_batch(s: Script) -> None:
    c = grouped(s, "pinned_client")
    pull(c, {"batch": 3, "group": "g", "expires": LONG})
    c.read(3)


@case(GROUP, "pinned: two wait, one is pinned")
def pinned_two(s: Script) -> None:
    c = grouped(s, "pinned_client", ())
    ask(c, "q1", 1, batch=2)
    ask(c, "q2", 2, batch=2)
    other = s.connect("b")
    for n in range(2):
        fill(other, ("t.a",), n + 1)
        c.read(1)
    info(c)


@case(GROUP, "pinned: an id where nobody is pinned yet")
def pinned_early(s: Script) -> None:
    c = grouped(s, "pinned_client")
    pull(c, {"batch": 1, "group": "g", "id": "x" * 22, "expires": 100 * MS, "max_bytes": 50})
    c.read_until_statuses(1)


@case(GROUP, "pinned: UNPIN, and the next one is pinned")
def unpin(s: Script) -> None:
    listener = listening(s, "$JS.EVENT.ADVISORY.CONSUMER.>")
    c = grouped(s, "pinned_client")
    listener.read(1, "created")
    pull(c, {"batch": 1, "group": "g", "expires": LONG})
    (frame,) = c.read(1)
    listener.read(1, "pinned")
    c.api("CONSUMER.UNPIN.T.C", {"group": "g"})
    listener.read(1, "unpinned")
    info(c)
    c.api("CONSUMER.UNPIN.T.C", {"group": "g"})
    pull(c, {"batch": 1, "group": "g", "id": pin_of(frame), "expires": LONG})
    c.read_until_statuses(1, "the old id")
    pull(c, {"batch": 1, "group": "g", "expires": LONG})
    c.read(1)
    listener.read(1, "pinned")
    info(c)


@case(GROUP, "pinned: UNPIN while others wait")
def unpin_waiting(s: Script) -> None:
    c = grouped(s, "pinned_client")
    c.sub("q1", "q1")
    pull(c, {"batch": 1, "group": "g", "expires": LONG}, "q1")
    c.read(1)
    ask(c, "q2", 1)
    other = s.connect("b")
    other.api("CONSUMER.UNPIN.T.C", {"group": "g"})
    c.read(1, "the other one is served")


@case(GROUP, "pinned: the pin is lost after a while")
def timeout(s: Script) -> None:
    listener = listening(s, "$JS.EVENT.ADVISORY.CONSUMER.>")
    c = grouped(s, "pinned_client", priority_timeout=500 * MS)
    listener.read(1, "created")
    c.sub("q1", "q1")
    pull(c, {"batch": 1, "group": "g", "expires": LONG}, "q1")
    (frame,) = c.read(1)
    listener.read(1, "pinned")
    ask(c, "q2", 1)
    listener.read(2, "unpinned, and the next one is pinned")
    c.read(1, "the other one is served")
    pull(c, {"batch": 1, "group": "g", "id": pin_of(frame), "expires": LONG}, "q1")
    c.read_until_statuses(1)


@case(GROUP, "pinned: two minutes by default, and another time by an update")
def update(s: Script) -> None:
    c = grouped(s, "pinned_client")
    info(c)
    consume(c, is_kept=True, priority_policy="pinned_client", priority_groups=["g"], priority_timeout=5 * NS)
    consume(c, is_kept=True, priority_policy="pinned_client", priority_groups=["h"])
    pull(c, {"batch": 1, "group": "g", "expires": LONG})
    c.read(1)
    consume(c, is_kept=True, priority_policy="none", priority_groups=[])
    consume(c, is_kept=True)
    no_more(c)


@case(GROUP, "pinned: two groups, the first one counts")
def two_groups(s: Script) -> None:
    c = pulling(s, priority_policy="pinned_client", priority_groups=["g", "h"])
    info(c)
    pull(c, {"batch": 1, "group": "h", "expires": LONG})
    c.read(1)
    info(c)
    c.api("CONSUMER.UNPIN.T.C", {"group": "h"})
    info(c)


@case(GROUP, "pinned: headers beside the pin")
def pinned_headers(s: Script) -> None:
    c = grouped(s, "pinned_client", ())
    c.request("t.a", "x", ["A: 1"], is_kept=False)
    settle(c, 1)
    pull(c, {"batch": 1, "group": "g", "expires": LONG})
    c.read(1)


@case(GROUP, "pinned: headers only, and bytes")
def pinned_headers_only(s: Script) -> None:
    c = grouped(s, "pinned_client", headers_only=True)
    pull(c, {"batch": 1, "group": "g", "max_bytes": 1000, "expires": LONG})
    c.read_until_statuses(1)


@case(GROUP, "pinned: what comes again comes to the pinned one")
def pinned_again(s: Script) -> None:
    c = grouped(s, "pinned_client")
    pull(c, {"batch": 1, "group": "g", "expires": LONG})
    (frame,) = c.read(1)
    ack(c, frame, "-NAK")
    pull(c, {"batch": 2, "group": "g", "id": pin_of(frame), "expires": LONG})
    c.read(2)
    info(c)


@case(GROUP, "pinned: no_wait and heartbeats")
def pinned_no_wait(s: Script) -> None:
    c = grouped(s, "pinned_client", ("t.a",))
    pull(c, {"batch": 5, "group": "g", "no_wait": True})
    frames = c.read_until_statuses(1)
    pull(c, {"batch": 5, "group": "g", "id": pin_of(frames[0]), "expires": 250 * MS, "idle_heartbeat": 100 * MS})
    c.read_until_statuses(1)


@case(GROUP, "prioritized: the lowest number first")
def prioritized(s: Script) -> None:
    c = grouped(s, "prioritized", ())
    for n, priority in enumerate((5, 0, 9, 0), 1):
        ask(c, f"q{n}", n, batch=2, priority=priority)
    other = s.connect("b")
    for n in range(8):
        fill(other, ("t.a",), n + 1)
        c.read(1)
    info(c)


@case(GROUP, "prioritized: without a priority it is the first")
def prioritized_default(s: Script) -> None:
    c = grouped(s, "prioritized", ())
    ask(c, "q1", 1, batch=1, priority=1)
    ask(c, "q2", 2, batch=1)
    other = s.connect("b")
    for n in range(2):
        fill(other, ("t.a",), n + 1)
        c.read(1)


@case(GROUP, "prioritized: more than may wait")
def prioritized_full(s: Script) -> None:
    c = grouped(s, "prioritized", (), max_waiting=2)
    for n, priority in enumerate((5, 7), 1):
        ask(c, f"q{n}", n, priority=priority)
    pull(c, {"batch": 1, "group": "g", "priority": 0, "expires": LONG})
    c.read_until_statuses(1)


@case(GROUP, "prioritized: they expire in their own time")
def prioritized_expire(s: Script) -> None:
    c = grouped(s, "prioritized", ())
    c.sub("q1", "q1")
    pull(c, {"batch": 1, "group": "g", "priority": 1, "expires": 150 * MS}, "q1")
    c.sub("q2", "q2")
    pull(c, {"batch": 1, "group": "g", "priority": 5, "expires": 60 * MS}, "q2")
    c.read_until_statuses(2)
