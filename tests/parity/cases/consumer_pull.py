"""MSG.NEXT: every kind of pull request, the statuses that end one, and who is served when several wait."""

from __future__ import annotations

import hashlib
from typing import Any

from parity.catalog import add, case
from parity.consumer_steps import (
    FIVE,
    MS,
    NS,
    ack,
    consume,
    feed,
    fetch,
    fill,
    info,
    no_more,
    pull,
    pulling,
    streamed,
    until_waiting,
)
from parity.script import Payload, Script

GROUP = "consumer_pull"
SHORT = 60 * MS
LONG = 60 * NS

# A request to a consumer with five messages, and how it ends: after so many messages, or with so many statuses.
ENDS: list[tuple[str, Payload, int, int]] = [
    ("nothing at all", "", 1, 0),
    ("a number", "3", 3, 0),
    ("zero", "0", 1, 0),
    ("a number with blanks", " 2 ", 2, 0),
    ("an empty object", "{}", 1, 0),
    ("a batch", {"batch": 2}, 2, 0),
    ("a batch of zero", {"batch": 0}, 1, 0),
    ("all there is, and no more", {"batch": 5, "expires": LONG}, 5, 0),
    ("a batch that expires", {"batch": 9, "expires": SHORT}, 0, 1),
    ("a batch of bytes that expires", {"batch": 9, "expires": SHORT, "max_bytes": 10_000}, 0, 1),
    ("a batch that is whole before its bytes", {"batch": 2, "expires": LONG, "max_bytes": 10_000}, 0, 1),
    ("one message, whole before its bytes", {"batch": 1, "expires": LONG, "max_bytes": 10_000}, 0, 1),
    ("bytes without a batch", {"max_bytes": 10_000, "expires": LONG}, 0, 1),
    ("no_wait for less than there is", {"batch": 2, "no_wait": True}, 2, 0),
    ("no_wait for more than there is", {"batch": 9, "no_wait": True}, 0, 1),
    ("no_wait for what there is", {"batch": 5, "no_wait": True}, 5, 0),
    ("no_wait with bytes", {"batch": 9, "no_wait": True, "max_bytes": 10_000}, 0, 1),
    ("no_wait that expires, more than there is", {"batch": 9, "no_wait": True, "expires": LONG}, 0, 1),
    ("too few bytes for a message", {"batch": 5, "max_bytes": 10, "expires": LONG}, 0, 1),
    ("too few bytes, no_wait", {"batch": 5, "max_bytes": 10, "no_wait": True}, 0, 1),
    ("a heartbeat of half the time", {"batch": 5, "expires": 200 * MS, "idle_heartbeat": 100 * MS}, 5, 0),
    ("a heartbeat that is too large", {"batch": 9, "expires": 200 * MS, "idle_heartbeat": 101 * MS}, 0, 1),
    ("a heartbeat without an end", {"batch": 9, "idle_heartbeat": 100 * MS}, 0, 1),
    ("an end that is over", {"batch": 9, "expires": 1}, 0, 1),
    ("an end below zero", {"batch": 9, "expires": -1}, 0, 1),
    ("a batch below zero", {"batch": -1}, 1, 0),
    ("bytes below zero", {"batch": 2, "max_bytes": -1}, 2, 0),
    ("a group that is not asked for", {"batch": 2, "group": "g"}, 2, 0),
    ("min_pending without its policy", {"batch": 1, "min_pending": 1}, 0, 1),
    ("min_ack_pending without its policy", {"batch": 1, "group": "g", "min_ack_pending": 1}, 0, 1),
    ("an id without its policy", {"batch": 1, "group": "g", "id": "x"}, 0, 1),
    ("a priority of ten", {"batch": 1, "group": "g", "priority": 10}, 0, 1),
    ("a priority below zero", {"batch": 1, "group": "g", "priority": -1}, 0, 1),
    ("an unknown field", {"batch": 2, "foo": 1}, 2, 0),
    ("a batch that is text", {"batch": "2"}, 0, 1),
    ("a batch with a fraction", {"batch": 1.5}, 0, 1),
    ("an object that does not end", '{"batch":1', 0, 1),
    ("a list", "[1]", 1, 0),
    ("text", "x", 1, 0),
    ("a number that is too large", "99999999999999999999", 1, 0),
    ("an object after a blank", ' {"batch":2}', 2, 0),
    ("null", "null", 1, 0),
]


def asking(body: Payload, messages: int, statuses: int) -> object:
    def run(s: Script) -> None:
        c = pulling(s)
        pull(c, body)
        if messages:
            c.read(messages)
        else:
            c.read_until_statuses(statuses)
        info(c)

    return run


for title, body, messages, statuses in ENDS:
    add(GROUP, title, asking(body, messages, statuses))


SIZE = len("t.a") + len("$JS.ACK.T.C.1.1.1.1763190000000000000.3") + 100  # what a message counts


def to_the_byte(budget: int, messages: int, statuses: int) -> object:
    def run(s: Script) -> None:
        c = pulling(s, ())
        fill(c, ("t.a",) * 4, size=100)
        pull(c, {"batch": 4, "max_bytes": budget, "expires": LONG})
        if statuses:
            c.read_until_statuses(1)
        else:
            c.read(messages)
        info(c)

    return run


for over, messages in ((-1, 0), (0, 1), (1, 1), (SIZE, 2), (SIZE + 1, 2), (3 * SIZE - 1, 3), (3 * SIZE, 4)):
    is_used_up = over % SIZE == 0
    add(GROUP, f"bytes for a message and {over} more", to_the_byte(SIZE + over, messages, not is_used_up))


@case(GROUP, "bytes count headers, too")
def header_bytes(s: Script) -> None:
    c = pulling(s, ())
    c.request("t.a", "x", ["A: " + "y" * 200], is_kept=False)
    pull(c, {"batch": 1, "max_bytes": 150, "expires": LONG})
    c.read_until_statuses(1)
    pull(c, {"batch": 1, "max_bytes": 600, "expires": LONG})
    c.read_until_statuses(1)


@case(GROUP, "no messages at all")
def empty(s: Script) -> None:
    c = pulling(s, ())
    for body in (
        {"no_wait": True},
        {"batch": 5, "no_wait": True},
        {"batch": 5, "no_wait": True, "expires": SHORT},
        {"expires": SHORT},
    ):
        pull(c, body)
        c.read_until_statuses(1, f"{body}")
    info(c)


@case(GROUP, "no_wait that expires takes what comes first")
def one_shot(s: Script) -> None:
    c = pulling(s, ())
    pull(c, {"batch": 5, "no_wait": True, "expires": LONG})
    until_waiting(c, 1)
    other = s.connect("b")
    other.request("t.a", "m1")
    c.read_until_statuses(1)
    info(c)


@case(GROUP, "a request without an end waits")
def waits(s: Script) -> None:
    c = pulling(s, ())
    pull(c, "2")
    until_waiting(c, 1)
    other = s.connect("b")
    other.request("t.a", "m1", is_kept=False)
    c.read(1)
    info(c)
    other.request("t.a", "m2", is_kept=False)
    c.read(1)
    info(c)


@case(GROUP, "a request without a reply takes nothing")
def no_reply(s: Script) -> None:
    c = pulling(s)
    c.pub("$JS.API.CONSUMER.MSG.NEXT.T.C", "3")
    fetch(c)
    info(c)


@case(GROUP, "heartbeats while nothing comes")
def heartbeats(s: Script) -> None:
    c = pulling(s)
    pull(c, {"batch": 9, "expires": 2 * NS, "idle_heartbeat": 100 * MS})
    c.read(5)
    c.read(2, "heartbeats")
    other = s.connect("b")
    other.request("t.a", "m6", is_kept=False)
    c.read_messages(1)


@case(GROUP, "heartbeats until the end")
def heartbeats_end(s: Script) -> None:
    c = pulling(s, ())
    pull(c, {"batch": 9, "expires": 250 * MS, "idle_heartbeat": 100 * MS})
    c.read_until_statuses(1)


@case(GROUP, "requests in turn, one message each")
def in_turn(s: Script) -> None:
    c = pulling(s, ())
    for n in range(1, 4):
        c.sub(f"q{n}", f"q{n}")
        pull(c, {"batch": n, "expires": LONG}, f"q{n}")
        until_waiting(c, n)
    other = s.connect("b")
    feed(other, c, ("t.a",) * 6)
    info(c)


@case(GROUP, "requests in turn, batches of different sizes and bytes")
def in_turn_bytes(s: Script) -> None:
    c = pulling(s, ())
    bodies: list[dict[str, Any]] = [
        {"batch": 3, "expires": LONG, "max_bytes": 60},
        {"batch": 2, "expires": LONG},
        {"batch": 4, "expires": LONG, "max_bytes": 10_000},
    ]
    for n, body in enumerate(bodies, 1):
        c.sub(f"q{n}", f"q{n}")
        pull(c, body, f"q{n}")
        until_waiting(c, n)
    other = s.connect("b")
    other.request("t.a", "m1".ljust(20, "."), is_kept=False)
    c.read(2, "one cannot take it, the next one does")
    feed(other, c, ("t.a",) * 4, 2, 20)
    other.request("t.a", "m6".ljust(20, "."), is_kept=False)
    c.read_until_statuses(1)


@case(GROUP, "the first request goes, the next ones stay")
def unsubscribed(s: Script) -> None:
    c = pulling(s, ())
    for n in range(1, 4):
        c.sub(f"q{n}", f"q{n}")
        pull(c, {"batch": 5, "expires": LONG}, f"q{n}")
        until_waiting(c, n)
    c.unsub("q1")
    c.flush()
    other = s.connect("b")
    feed(other, c, ("t.a",) * 4)


@case(GROUP, "those who wait are of a connection that goes")
def disconnected(s: Script) -> None:
    c = pulling(s, ())
    other = s.connect("b")
    other.sub("q1", "1")
    pull(other, {"batch": 5, "expires": LONG}, "q1")
    until_waiting(c, 1)
    pull(c, {"batch": 2, "expires": LONG})
    until_waiting(c, 2)
    other.close()
    writer = s.connect("w")
    feed(writer, c, ("t.a",) * 2)


@case(GROUP, "more requests than may wait")
def max_waiting(s: Script) -> None:
    c = pulling(s, (), max_waiting=2)
    for n in range(1, 3):
        pull(c, {"batch": 5, "expires": LONG})
        until_waiting(c, n)
    pull(c, {"batch": 5, "expires": LONG})
    c.read_until_statuses(1)
    pull(c, {"batch": 5, "expires": LONG, "idle_heartbeat": 5 * NS})
    pull(c, {"batch": 5, "no_wait": True})
    c.read_until_statuses(1)
    info(c)


@case(GROUP, "one request may wait")
def max_waiting_one(s: Script) -> None:
    c = pulling(s, (), max_waiting=1)
    pull(c, {"batch": 1, "expires": LONG})
    until_waiting(c, 1)
    pull(c, {"batch": 1, "expires": LONG})
    c.read_until_statuses(1)
    other = s.connect("b")
    fill(other, ("t.a",))
    c.read(1)
    pull(c, {"batch": 1, "expires": SHORT})
    c.read_until_statuses(1)


@case(GROUP, "no_wait while others take everything")
def requests_pending(s: Script) -> None:
    c = pulling(s, FIVE, max_ack_pending=1)
    pull(c, {"batch": 9, "expires": LONG})
    c.read(1)
    until_waiting(c, 1)
    pull(c, {"batch": 1, "no_wait": True})
    c.read_until_statuses(1)


CAPS: list[tuple[str, dict[str, Any], Payload]] = [
    ("max_batch", {"max_batch": 3}, {"batch": 4}),
    ("max_batch, as a number", {"max_batch": 3}, "4"),
    ("max_expires", {"max_expires": 2 * NS}, {"batch": 1, "expires": 3 * NS}),
    ("max_expires of a fraction", {"max_expires": 1500 * MS}, {"batch": 1, "expires": 3 * NS}),
    ("max_expires of minutes", {"max_expires": 3_723_000 * MS}, {"batch": 1, "expires": 7200 * NS}),
    ("max_bytes", {"max_bytes": 100}, {"batch": 1, "max_bytes": 101}),
    (
        "all at once",
        {"max_batch": 3, "max_expires": NS, "max_bytes": 9},
        {"batch": 9, "max_bytes": 99, "expires": LONG},
    ),
]


def capped(config: dict[str, Any], body: Payload) -> object:
    def run(s: Script) -> None:
        c = pulling(s, **config)
        pull(c, body)
        c.read_until_statuses(1)
        info(c)

    return run


for title, config, body in CAPS:
    add(GROUP, f"more than {title}", capped(config, body))


@case(GROUP, "up to the caps")
def up_to_caps(s: Script) -> None:
    c = pulling(s, max_batch=3, max_expires=NS, max_bytes=1000)
    pull(c, {"batch": 3, "expires": NS // 2, "max_bytes": 1000})
    c.read_until_statuses(1)
    pull(c, "2")
    c.read(2)


@case(GROUP, "a push consumer is asked")
def push_based(s: Script) -> None:
    c = streamed(s)
    consume(c, deliver_subject="d")
    c.request("$JS.API.CONSUMER.MSG.NEXT.T.C", "1")
    c.request("$JS.API.CONSUMER.MSG.NEXT.T.C", "x")


@case(GROUP, "a required level")
def level(s: Script) -> None:
    c = pulling(s)
    for level in ("5", "0"):
        c.pub("$JS.API.CONSUMER.MSG.NEXT.T.C", "1", "p", [f"Nats-Required-Api-Level: {level}"])
        c.read(1)


@case(GROUP, "a required level that is too high")
def level_too_high(s: Script) -> None:
    c = streamed(s)
    consume(c)
    c.request("$JS.API.CONSUMER.MSG.NEXT.T.C", "1", ["Nats-Required-Api-Level: 6"])
    c.request("$JS.API.CONSUMER.MSG.NEXT.T.C", "1", ["Nats-Required-Api-Level: x"])


@case(GROUP, "a request with headers")
def with_headers(s: Script) -> None:
    c = pulling(s)
    c.pub("$JS.API.CONSUMER.MSG.NEXT.T.C", {"batch": 2, "expires": LONG}, "p", ["A: 1"])
    c.read(2)


@case(GROUP, "messages with headers and without a body")
def bodies(s: Script) -> None:
    c = pulling(s, ())
    c.pub("t.a", "", headers=["A: 1", "B:2"])
    c.pub("t.b")
    c.pub("t.c", b"\x00\xff\r\n")
    c.request("t.d.e.f", "x", ["Nats-Msg-Id: 1"], is_kept=False)
    fetch(c, 4)


@case(GROUP, "a client without headers")
def no_headers(s: Script) -> None:
    c = s.connect(headers=False, no_responders=False)
    c.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t.>"]}, is_kept=False)
    other = s.connect("b")
    other.request("t.a", "x", ["A: 1"], is_kept=False)
    consume(c)
    c.sub("p", "1")
    pull(c, {"batch": 1, "expires": LONG})
    c.read(1)
    pull(c, {"batch": 1, "no_wait": True})
    c.read(1)


@case(GROUP, "headers only")
def headers_only(s: Script) -> None:
    c = pulling(s, (), headers_only=True)
    c.pub("t.a", "12345", headers=["A: 1"])
    c.pub("t.b", "123")
    c.pub("t.c")
    c.pub("t.c", "", headers=["Nats-Msg-Size: 77"])
    c.request("t.d", "", ["A: 1"], is_kept=False)
    fetch(c, 5)


@case(GROUP, "a reply that a queue group hears")
def queue_reply(s: Script) -> None:
    c = streamed(s)
    consume(c)
    c.sub("p", "1", "q")
    fetch(c, 2)


@case(GROUP, "a reply that a wildcard hears")
def wild_reply(s: Script) -> None:
    c = streamed(s)
    consume(c)
    c.sub("p.*", "1")
    fetch(c, 2, "p.1")


@case(GROUP, "a reply that nobody hears")
def nobody(s: Script) -> None:
    c = pulling(s)
    pull(c, "3", "nobody.here")
    fetch(c, 2)
    info(c)


@case(GROUP, "a reply that two hear")
def two_hear(s: Script) -> None:
    c = pulling(s)
    other = s.connect("b")
    other.sub("p", "1")
    other.flush()
    fetch(c, 2)
    other.read(2)


@case(GROUP, "a reply into a stream")
def into_stream(s: Script) -> None:
    c = streamed(s)
    c.api("STREAM.CREATE.U", {"name": "U", "subjects": ["u"]}, is_kept=False)
    consume(c)
    pull(c, "2", "u")
    c.until("STREAM.INFO.U", "", lambda a: a["state"]["messages"] == 2)
    c.api("STREAM.MSG.GET.U", {"seq": 1})


@case(GROUP, "messages that come one by one are pending none")
def one_by_one(s: Script) -> None:
    c = pulling(s, ())
    pull(c, {"batch": 3, "expires": LONG})
    until_waiting(c, 1)
    other = s.connect("b")
    for n in range(3):
        other.request("t.a", f"m{n}", is_kept=False)
        c.read(1)
    no_more(c)


@case(GROUP, "max_ack_pending holds new messages back until an ack")
def max_ack_pending(s: Script) -> None:
    c = pulling(s, max_ack_pending=2)
    pull(c, {"batch": 5, "expires": LONG})
    frames = c.read(2)
    info(c)
    other = s.connect("b")
    assert frames[0].reply is not None
    other.request(frames[0].reply.decode(), "+ACK")
    c.read(1)
    info(c)


@case(GROUP, "max_ack_pending and no_wait")
def max_ack_pending_no_wait(s: Script) -> None:
    c = pulling(s, max_ack_pending=2)
    pull(c, {"batch": 5, "no_wait": True})
    frames = c.read(2)
    info(c)
    other = s.connect("b")
    ack(other, frames[0])
    c.read(1)
    info(c)


@case(GROUP, "max_ack_pending is raised while requests wait")
def raise_pending(s: Script) -> None:
    c = pulling(s, max_ack_pending=1)
    pull(c, {"batch": 3, "expires": LONG})
    c.read(1)
    other = s.connect("b")
    consume(other, max_ack_pending=10)
    c.read(2)
    info(c)


@case(GROUP, "an ephemeral pull consumer, by its made-up name")
def ephemeral(s: Script) -> None:
    c = streamed(s)
    answer = consume(c, durable_name="", is_kept=True)
    c.sub("p", "1")
    frames = fetch(c, 2, consumer=answer["name"])
    ack(c, frames[0])
    info(c, answer["name"])
    c.api(f"CONSUMER.DELETE.T.{answer['name']}")


@case(GROUP, "two consumers of a stream do not know of each other")
def two_consumers(s: Script) -> None:
    c = pulling(s)
    consume(c, durable_name="D", filter_subject="t.b")
    ack(c, fetch(c)[0])
    fetch(c, 2, consumer="D")
    info(c)
    info(c, "D")


@case(GROUP, "a thousand messages in one request")
def thousand(s: Script) -> None:
    c = pulling(s, ("t.a",) * 1000, max_ack_pending=-1)
    pull(c, {"batch": 1000, "expires": LONG})
    frames = c._read_until("", lambda f: f.payload == b"m1000", is_kept=False)
    tokens = [(f.reply or b"").decode().split(".") for f in frames]
    s.value("replies", [[int(t[4]), int(t[5]), int(t[6]), int(t[8])] for t in tokens[:2] + tokens[-2:]])
    s.value("in order", [int(t[5]) for t in tokens] == list(range(1, 1001)))
    info(c)


WIDE: list[tuple[str, dict[str, Any]]] = [
    ("no filter", {}),
    ("one subject", {"filter_subject": "t.7.x"}),
    ("a wildcard", {"filter_subject": "t.*.y"}),
    ("many filters", {"filter_subjects": [f"t.{n}.x" for n in range(0, 40, 3)]}),
    ("last per subject", {"deliver_policy": "last_per_subject", "filter_subject": "t.*.x"}),
    ("from the middle", {"deliver_policy": "by_start_sequence", "opt_start_seq": 1500, "filter_subject": "t.*.x"}),
]


@case(GROUP, "three thousand messages with holes, through filters")
def wide(s: Script) -> None:
    c = streamed(s, tuple(f"t.{n % 40}.{'xy'[n % 3 == 0]}" for n in range(3000)))
    for seq in range(5, 3000, 7):
        c.pub("$JS.API.STREAM.MSG.DELETE.T", {"seq": seq})
    c.api("STREAM.PURGE.T", {"filter": "t.9.x", "keep": 3}, is_kept=False)
    c.until("STREAM.INFO.T", "", lambda a: a["state"]["messages"] == 2531)
    c.sub("p", "1")
    for n, (title, config) in enumerate(WIDE):
        answer = consume(c, durable_name=f"C{n}", max_ack_pending=-1, **config)
        s.value(f"{title}: pending", answer["num_pending"])
        pull(c, {"batch": 4000, "no_wait": True}, consumer=f"C{n}")
        frames = c._read_until("", lambda f: f.reply is None, is_kept=False)
        tokens = [(frame.reply or b"").decode().split(".") for frame in frames if frame.reply]
        told = "\n".join(f"{t[4]} {t[5]} {t[6]} {t[8]}" for t in tokens)
        bodies = b"".join(frame.subject + frame.payload for frame in frames)
        s.value(f"{title}: {len(tokens)} messages", hashlib.sha256(told.encode() + bodies).hexdigest())
        info(c, f"C{n}")
