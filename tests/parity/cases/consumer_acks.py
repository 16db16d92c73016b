"""Acknowledgements of every kind, and what comes again: ack_wait, backoff, nak, term, max_deliver."""

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
    listening,
    no_more,
    pull,
    pulling,
    quiet_ack,
    settle,
    streamed,
    take,
    until_waiting,
)
from parity.script import Connection, Script

GROUP = "consumer_acks"
LONG = 60 * NS
EVENTS = "$JS.EVENT.ADVISORY.CONSUMER.>"
ANSWERED = (
    "",
    "+ACK",
    "+OK",
    "+ACK ",
    "x",
    "-NAK",
    "-NAK 10s",
    '-NAK {"delay": 10000000000}',
    "-NAK x",
    '-NAK {"delay": "x"}',
    "+WPI",
    "+TERM",
    "+TERM no good",
    "+TERM  two  blanks <&> é",
)


def acking(body: str, policy: str) -> object:
    def run(s: Script) -> None:
        c = pulling(s, ack_policy=policy)
        frames = fetch(c, 3)
        ack(c, frames[1], body)
        info(c)
        no_more(c)
        ack(c, frames[1])
        info(c)

    return run


for body in ANSWERED:
    add(GROUP, f"explicit: {body!r}", acking(body, "explicit"))
for body in ("", "+ACK", "-NAK", "-NAK 10s", "+WPI", "+TERM"):
    add(GROUP, f"all: {body!r}", acking(body, "all"))


@case(GROUP, "acks where none are wanted")
def none(s: Script) -> None:
    c = pulling(s, ack_policy="none")
    frame = fetch(c)[0]
    c.sub("_INBOX.ack", "ack")
    for body in ("+ACK", "-NAK", "+TERM", "+WPI"):
        quiet_ack(c, frame, body, "_INBOX.ack")
    info(c)
    no_more(c)


@case(GROUP, "an ack without a reply")
def single(s: Script) -> None:
    c = pulling(s)
    first, second = fetch(c, 2)
    quiet_ack(c, first)
    ack(c, second)
    info(c)


@case(GROUP, "acks in another order")
def order(s: Script) -> None:
    c = pulling(s)
    frames = fetch(c, 5)
    for index in (4, 2, 1, 0, 3):
        ack(c, frames[index])
        info(c)


@case(GROUP, "the same ack again and again")
def again(s: Script) -> None:
    c = pulling(s)
    frames = fetch(c, 2)
    for _ in range(3):
        ack(c, frames[0])
    for body in ("-NAK", "+TERM", "+WPI"):
        ack(c, frames[0], body)
    info(c)
    no_more(c)


@case(GROUP, "acks of all, in another order")
def all_order(s: Script) -> None:
    c = pulling(s, ack_policy="all")
    frames = fetch(c, 5)
    ack(c, frames[2])
    ack(c, frames[0])
    info(c)
    ack(c, frames[4])
    info(c)


SUBJECTS = (
    "$JS.ACK.T.C.1.1.1.1763190000000000000.0",
    "$JS.ACK.T.C.1.2.2.0.0",
    "$JS.ACK.T.C.9.1.1.1763190000000000000.7",
    "$JS.ACK.T.C.1.4.4.1763190000000000000.0",
    "$JS.ACK.T.C.1.99.99.1763190000000000000.0",
    "$JS.ACK.T.C.1.0.0.1763190000000000000.0",
    "$JS.ACK.T.C.1.1.1.x.0",
    "$JS.ACK.T.C.1.1.1.1763190000000000000",
    "$JS.ACK.T.C.1.1.1.1763190000000000000.0.0",
    "$JS.ACK.T.X.1.1.1.1763190000000000000.0",
    "$JS.ACK.X.C.1.1.1.1763190000000000000.0",
    "$JS.ACK.T.C",
    "$JS.ACK",
    "$JS.ACK._.HASH.T.C.1.1.1.1763190000000000000.0",
)


def acking_at(subject: str) -> object:
    def run(s: Script) -> None:
        c = pulling(s)
        fetch(c, 3)
        c.sub("_INBOX.ack", "ack")
        c.pub(subject, "+ACK", "_INBOX.ack")
        c.request("$JS.ACK.T.C.1.3.3.1763190000000000000.0", "+ACK")
        info(c)

    return run


for subject in SUBJECTS:
    add(GROUP, f"an ack at {subject}", acking_at(subject))


@case(GROUP, "an ack of what was not delivered yet")
def ahead(s: Script) -> None:
    c = pulling(s)
    fetch(c, 2)
    c.sub("_INBOX.ack", "ack")
    c.pub("$JS.ACK.T.C.1.3.3.1763190000000000000.0", "+ACK", "_INBOX.ack")
    c.request("$JS.ACK.T.C.1.1.9.1763190000000000000.0", "+ACK")
    info(c)
    no_more(c)


@case(GROUP, "an ack with headers")
def with_headers(s: Script) -> None:
    c = pulling(s)
    first, second = fetch(c, 2)
    assert first.reply is not None and second.reply is not None
    c.request(first.reply.decode(), "+ACK", ["A: 1"])
    c.request(second.reply.decode(), "-NAK", ["A: 1"])
    info(c)


@case(GROUP, "an ack of another client")
def other_client(s: Script) -> None:
    c = pulling(s)
    frames = fetch(c, 2)
    ack(s.connect("b"), frames[0])
    info(c)


def expect_none(c: Connection, milliseconds: int) -> None:
    """A request that gets nothing; the real server gives a message up for good as it looks for the next one."""
    pull(c, {"batch": 1, "expires": milliseconds * MS})
    c.read_until_statuses(1, "nothing comes")


NEXT = ("+NXT", "+NXT 2", '+NXT {"batch":2}', '+NXT {"batch":2,"expires":60000000000}', "+NXT x", "+NXT{", "+NXT 1 ")


def next_with(body: str, count: int, statuses: int) -> object:
    def run(s: Script) -> None:
        c = pulling(s)
        frame = fetch(c)[0]
        quiet_ack(c, frame, body, "p")
        if statuses:
            c.read_until_statuses(statuses)
        else:
            c.read(count)
        info(c)

    return run


for body in NEXT:
    is_bad = body == "+NXT{"
    add(GROUP, f"next: {body!r}", next_with(body, 2 if "2" in body else 1, is_bad))


@case(GROUP, "next without a reply")
def next_no_reply(s: Script) -> None:
    c = pulling(s)
    first, second = fetch(c, 2)
    quiet_ack(c, first, "+NXT")
    ack(c, second)
    info(c)


@case(GROUP, "next, when there is none, and no_wait")
def next_none(s: Script) -> None:
    c = pulling(s, ("t.a",))
    (frame,) = fetch(c)
    quiet_ack(c, frame, '+NXT {"batch":1,"no_wait":true}', "p")
    c.read_until_statuses(1)
    info(c)


@case(GROUP, "next waits, and is served")
def next_waits(s: Script) -> None:
    c = pulling(s, ("t.a",))
    (frame,) = fetch(c)
    quiet_ack(c, frame, "+NXT", "p")
    until_waiting(c, 1)
    other = s.connect("b")
    fill(other, ("t.b",), 2)
    c.read(1)
    info(c)


@case(GROUP, "ack_wait: everything comes again")
def ack_wait(s: Script) -> None:
    c = pulling(s, ("t.a", "t.b"), ack_wait=150 * MS)
    fetch(c, 2)
    frames = fetch(c, 2)
    info(c)
    for frame in frames:
        ack(c, frame)
    info(c)
    no_more(c)


@case(GROUP, "ack_wait: the ack of the first delivery counts for the second")
def late_ack(s: Script) -> None:
    c = pulling(s, ("t.a",), ack_wait=150 * MS)
    first = fetch(c)[0]
    fetch(c)
    ack(c, first)
    info(c)
    no_more(c)


@case(GROUP, "ack_wait with acks of all")
def ack_wait_all(s: Script) -> None:
    c = pulling(s, ("t.a", "t.b", "t.c"), ack_wait=400 * MS, ack_policy="all")
    frames = fetch(c, 3)
    ack(c, frames[0])
    frames = fetch(c, 2)
    info(c)
    ack(c, frames[1])
    info(c)


@case(GROUP, "what comes again comes before what is new")
def redelivery_first(s: Script) -> None:
    c = pulling(s)
    frames = fetch(c, 2)
    for frame in frames:
        ack(c, frame, "-NAK")
    no_more(c)
    info(c)


@case(GROUP, "nak: in the order of the naks")
def nak_order(s: Script) -> None:
    c = pulling(s)
    frames = fetch(c, 5)
    for index in (3, 0, 4):
        ack(c, frames[index], "-NAK")
    info(c)
    no_more(c)
    info(c)


@case(GROUP, "nak with a delay")
def nak_delay(s: Script) -> None:
    c = pulling(s, ("t.a", "t.b"), ack_wait=LONG)
    first, second = fetch(c, 2)
    ack(c, first, '-NAK {"delay": 200000000}')
    ack(c, second, "-NAK 100ms")
    fetch(c, 2)
    info(c)


@case(GROUP, "nak, and those who wait are served at once")
def nak_waiting(s: Script) -> None:
    c = pulling(s, ("t.a",))
    (frame,) = fetch(c)
    pull(c, {"batch": 2, "expires": LONG})
    until_waiting(c, 1)
    other = s.connect("b")
    quiet_ack(other, frame, "-NAK")
    c.read(1)
    info(c)


@case(GROUP, "nak of what was acked, nak twice")
def nak_twice(s: Script) -> None:
    c = pulling(s)
    first, second = fetch(c, 2)
    ack(c, first)
    ack(c, first, "-NAK")
    ack(c, second, "-NAK")
    ack(c, second, "-NAK")
    no_more(c)
    info(c)


@case(GROUP, "an ack of what was nacked and waits to come again")
def nak_then_ack(s: Script) -> None:
    c = pulling(s)
    first, second = fetch(c, 2)
    ack(c, first, "-NAK")
    ack(c, first)
    ack(c, second, '-NAK {"delay": 60000000000}')
    ack(c, second)
    info(c)
    no_more(c)


@case(GROUP, "in progress holds ack_wait back")
def progress(s: Script) -> None:
    c = pulling(s, ("t.a",), ack_wait=700 * MS)
    (frame,) = fetch(c)
    for _ in range(4):
        pull(c, {"batch": 1, "expires": 200 * MS})
        c.read_until_statuses(1, "nothing comes again")
        ack(c, frame, "+WPI")
    info(c)
    fetch(c)


@case(GROUP, "backoff: one after the other, then no more")
def backoff(s: Script) -> None:
    listener = listening(s, EVENTS)
    c = pulling(s, ("t.a",), backoff=[50 * MS, 100 * MS], max_deliver=3)
    listener.read(1, "created")
    for _ in range(3):
        fetch(c)
    expect_none(c, 150)
    listener.read(1, "given up")
    info(c)
    no_more(c)


@case(GROUP, "backoff: the last one goes on")
def backoff_last(s: Script) -> None:
    c = pulling(s, ("t.a",), backoff=[40 * MS, 60 * MS])
    for _ in range(4):
        fetch(c)
    info(c)


@case(GROUP, "backoff counts for a nak, too")
def backoff_nak(s: Script) -> None:
    c = pulling(s, ("t.a",), backoff=[100 * MS, LONG], max_deliver=4)
    (frame,) = fetch(c)
    ack(c, frame, "-NAK")
    fetch(c)
    info(c)
    no_more(c)


@case(GROUP, "max_deliver by ack_wait")
def max_deliver(s: Script) -> None:
    listener = listening(s, EVENTS)
    c = pulling(s, ("t.a", "t.b"), ack_wait=100 * MS, max_deliver=2)
    listener.read(1, "created")
    fetch(c, 2)
    fetch(c, 2)
    expect_none(c, 200)
    listener.read(2, "given up", is_sorted=True)
    info(c)
    no_more(c)


@case(GROUP, "max_deliver of one")
def max_deliver_one(s: Script) -> None:
    listener = listening(s, EVENTS)
    c = pulling(s, ("t.a", "t.b"), ack_wait=400 * MS, max_deliver=1)
    listener.read(1, "created")
    first, second = fetch(c, 2)
    ack(c, second)
    listener.read(1, "given up")
    info(c)
    ack(c, first)
    info(c)


@case(GROUP, "max_deliver by naks")
def max_deliver_nak(s: Script) -> None:
    listener = listening(s, EVENTS)
    c = pulling(s, ("t.a", "t.b"), max_deliver=2)
    listener.read(1, "created")
    for _ in range(2):
        (frame, other) = fetch(c, 2)
        ack(c, frame, "-NAK")
        listener.read(1, "nacked")
        ack(c, other, "-NAK 1ms")
        listener.read(1, "nacked")
    expect_none(c, 50)
    listener.read(2, "given up", is_sorted=True)
    info(c)


@case(GROUP, "max_deliver is raised after a message was given up")
def max_deliver_raised(s: Script) -> None:
    listener = listening(s, EVENTS)
    c = pulling(s, ("t.a", "t.b"), ack_wait=80 * MS, max_deliver=1)
    listener.read(1, "created")
    fetch(c, 2)
    listener.read(2, "given up", is_sorted=True)
    consume(c, ack_wait=80 * MS, max_deliver=5, is_kept=True)
    expect_none(c, 200)
    info(c)


@case(GROUP, "acks of all after a message was given up")
def max_deliver_all(s: Script) -> None:
    listener = listening(s, EVENTS)
    c = pulling(s, ("t.a", "t.b", "t.c"), ack_wait=100 * MS, max_deliver=1, ack_policy="all")
    listener.read(1, "created")
    frames = fetch(c, 2)
    listener.read(2, "given up", is_sorted=True)
    info(c)
    ack(c, frames[1])
    info(c)


@case(GROUP, "term: advisories with and without a reason")
def term(s: Script) -> None:
    listener = listening(s, EVENTS)
    c = pulling(s)
    listener.read(1, "created")
    frames = fetch(c, 3)
    for frame, body in zip(frames, ("+TERM", "+TERM no good", "+TERM  <b> é"), strict=True):
        ack(c, frame, body)
        listener.read(1, body)
    info(c)
    ack(c, frames[0], "+TERM again")
    no_more(c)


@case(GROUP, "nak: an advisory")
def nak_advisory(s: Script) -> None:
    listener = listening(s, EVENTS)
    c = pulling(s)
    listener.read(1, "created")
    first, second = fetch(c, 2)
    ack(c, first, "-NAK")
    listener.read(1)
    ack(c, second, "-NAK 60s")
    listener.read(1)
    (frame,) = fetch(c)
    ack(c, frame, "-NAK")
    listener.read(1)


@case(GROUP, "a message is deleted while its ack is pending")
def deleted(s: Script) -> None:
    listener = listening(s, EVENTS)
    c = pulling(s)
    listener.read(1, "created")
    frames = fetch(c, 3)
    c.api("STREAM.MSG.DELETE.T", {"seq": 2})
    listener.read(1, "what is told of it")
    info(c)
    ack(c, frames[1])
    ack(c, frames[0])
    info(c)


@case(GROUP, "messages are deleted before they were delivered")
def deleted_before(s: Script) -> None:
    c = pulling(s)
    c.api("STREAM.MSG.DELETE.T", {"seq": 1})
    c.api("STREAM.MSG.DELETE.T", {"seq": 3})
    info(c)
    no_more(c)
    info(c)


@case(GROUP, "a message that was nacked is deleted before it comes again")
def deleted_nacked(s: Script) -> None:
    c = pulling(s)
    frames = fetch(c, 2)
    ack(c, frames[0], "-NAK")
    c.api("STREAM.MSG.DELETE.T", {"seq": 1})
    c.until("CONSUMER.INFO.T.C", "", lambda a: a["num_ack_pending"] == 1)
    no_more(c)
    info(c)


PURGES: list[tuple[str, dict[str, Any]]] = [
    ("everything", {}),
    ("up to a sequence", {"seq": 3}),
    ("but for two", {"keep": 2}),
    ("a subject", {"filter": "t.a"}),
    ("a subject up to a sequence", {"filter": "t.a", "seq": 2}),
    ("what does not match", {"filter": "t.none"}),
]


def purged(purge: dict[str, Any], config: dict[str, Any]) -> object:
    def run(s: Script) -> None:
        c = pulling(s, **config)
        frames = fetch(c, 2)
        ack(c, frames[1])
        c.api("STREAM.PURGE.T", purge)
        ack(c, frames[0])
        info(c)
        no_more(c)
        fill(c, ("t.a", "t.b"), 6)
        take(c, 2)
        info(c)

    return run


for title, purge in PURGES:
    add(GROUP, f"purged with acks pending: {title}", purged(purge, {}))
    add(GROUP, f"purged, filtered: {title}", purged(purge, {"filter_subjects": ["t.a", "t.b"]}))


@case(GROUP, "purged with nothing delivered")
def purged_fresh(s: Script) -> None:
    c = pulling(s)
    c.api("STREAM.PURGE.T")
    info(c)
    fill(c, ("t.a",), 6)
    take(c, 1)
    info(c)


@case(GROUP, "messages go by max_msgs while acks are pending")
def limit_pending(s: Script) -> None:
    c = pulling(s, stream={"max_msgs": 5})
    frames = fetch(c, 3)
    fill(c, ("t.x", "t.y"), 6)
    c.until("CONSUMER.INFO.T.C", "", lambda a: a["num_ack_pending"] == 1)
    for frame in frames:
        ack(c, frame)
    take(c, 4)
    info(c)


@case(GROUP, "messages go by max_msgs_per_subject before they were delivered")
def limit_subject(s: Script) -> None:
    c = pulling(s, stream={"max_msgs_per_subject": 1})
    info(c)
    no_more(c)
    fill(c, ("t.a", "t.b", "t.c"), 6)
    settle(c, 3)
    info(c)
    no_more(c)


@case(GROUP, "a message grows too old while its ack is pending")
def aged(s: Script) -> None:
    listener = listening(s, "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>")
    c = pulling(s, ("t.a", "t.b"), stream={"max_age": 300 * MS})
    frames = fetch(c, 1)
    c.until("STREAM.INFO.T", "", lambda a: a["state"]["messages"] == 0, is_kept=False)
    listener.read(1, "what is told of it")
    c.until("CONSUMER.INFO.T.C", "", lambda a: a["num_ack_pending"] == 0 and a["num_pending"] == 0, is_kept=False)
    ack(c, frames[0])
    fill(c, ("t.c",), 3)
    fetch(c, 1)


@case(GROUP, "a message's own time is over before it was delivered")
def ttl(s: Script) -> None:
    c = pulling(s, (), stream={"allow_msg_ttl": True})
    c.request("t.a", "m1", ["Nats-TTL: 1s"], is_kept=False)
    c.request("t.b", "m2", is_kept=False)
    settle(c, 2)
    c.until("STREAM.INFO.T", "", lambda a: a["state"]["messages"] == 1, is_kept=False)
    settle(c, 1)
    no_more(c)


@case(GROUP, "a rollup takes what is pending")
def rollup(s: Script) -> None:
    c = pulling(s, stream={"allow_rollup_hdrs": True})
    frames = fetch(c, 3)
    c.request("t.a", "m6", ["Nats-Rollup: sub"], is_kept=False)
    c.until("CONSUMER.INFO.T.C", "", lambda a: a["num_ack_pending"] == 1 and a["num_pending"] == 3, is_kept=False)
    for frame in frames:
        ack(c, frame)
    no_more(c)


@case(GROUP, "ack_wait is made shorter")
def shorter(s: Script) -> None:
    c = pulling(s, ("t.a",), ack_wait=LONG)
    fetch(c)
    consume(c, ack_wait=100 * MS, is_kept=True)
    fetch(c)
    info(c)


@case(GROUP, "filters change while acks are pending")
def filters_change(s: Script) -> None:
    c = pulling(s, filter_subject="t.a")
    frames = fetch(c, 1)
    consume(c, filter_subject="t.b", is_kept=True)
    info(c)
    no_more(c)
    ack(c, frames[0])
    info(c)
    consume(c, is_kept=True)
    no_more(c)
    info(c)


@case(GROUP, "a push consumer's deliver subject changes: pending comes again")
def deliver_change(s: Script) -> None:
    c = streamed(s, ("t.a", "t.b"))
    listener = s.connect("b")
    listener.sub("d", "1")
    listener.flush()
    consume(c, deliver_subject="d")
    listener.read(2)
    listener.unsub("1")
    listener.sub("e", "2")
    listener.flush()
    c.until("CONSUMER.INFO.T.C", "", lambda a: not a.get("push_bound"))
    consume(c, deliver_subject="e")
    listener.read(2)
    info(c)


@case(GROUP, "push: naks and ack_wait")
def push_redelivery(s: Script) -> None:
    c = streamed(s, ("t.a", "t.b"))
    listener = s.connect("b")
    listener.sub("d", "1")
    listener.flush()
    consume(c, deliver_subject="d", ack_wait=400 * MS)
    frames = listener.read(2)
    quiet_ack(c, frames[1])
    listener.read(1, "by ack_wait")
    (frame,) = listener.read(1, "and again")
    quiet_ack(c, frame, "-NAK")
    (frame,) = listener.read(1, "by the nak")
    ack(c, frame)
    info(c)


@case(GROUP, "num_redelivered falls as what came again is acked")
def redelivered(s: Script) -> None:
    c = pulling(s)
    for frame in fetch(c, 3):
        ack(c, frame, "-NAK")
    frames = fetch(c, 3)
    info(c)
    for frame in frames:
        ack(c, frame)
        info(c)
