"""Messages that go when consumers are done with them: work queues and interest."""

from __future__ import annotations

from typing import Any

from parity.catalog import add, case
from parity.consumer_steps import (
    FIVE,
    MS,
    NS,
    ack,
    consume,
    fetch,
    fill,
    info,
    no_more,
    pull,
    quiet_ack,
    settle,
    streamed,
)
from parity.script import Connection, Script

GROUP = "consumer_retention"


def gone(c: Connection, messages: int, consumers: int | None = None) -> None:
    """Until the stream holds so many, and does not change any more: the real server counts some things later."""
    last: list[Any] = [None]

    def is_so(answer: dict[str, Any]) -> bool:
        state = answer["state"]
        is_same, last[0] = state == last[0], state
        return is_same and state["messages"] == messages and consumers in (None, state["consumer_count"])

    c.until("STREAM.INFO.T", {"deleted_details": True}, is_so)


def working(s: Script, retention: str, messages: tuple[str, ...] = FIVE, **config: Any) -> Connection:
    c = streamed(s, (), retention=retention)
    consume(c, **config)
    c.sub("p", "1")
    if messages:
        fill(c, messages)
        settle(c, len(messages))
    return c


def acked(retention: str, order: tuple[int, ...], policy: str) -> object:
    def run(s: Script) -> None:
        c = working(s, retention, ack_policy=policy)
        frames = fetch(c, 5)
        left = 5
        for index in order:
            ack(c, frames[index])
            left = 4 - index if policy == "all" else left - 1
            gone(c, left)
        info(c)

    return run


for retention in ("workqueue", "interest"):
    add(GROUP, f"{retention}: acks in order", acked(retention, (0, 1, 2, 3, 4), "explicit"))
    add(GROUP, f"{retention}: acks in another order", acked(retention, (3, 0, 4, 2, 1), "explicit"))
add(GROUP, "interest: acks of all", acked("interest", (1, 3, 4), "all"))


def kinds(retention: str, body: str, left: int) -> object:
    def run(s: Script) -> None:
        c = working(s, retention)
        frames = fetch(c, 2)
        ack(c, frames[0], body)
        gone(c, left)
        no_more(c)
        info(c)

    return run


for retention in ("workqueue", "interest"):
    for body, left in (("+TERM why", 4), ("-NAK", 5), ("+WPI", 5), ("-NAK 60s", 5)):
        add(GROUP, f"{retention}: {body!r}", kinds(retention, body, left))


@case(GROUP, "interest: no acks, gone as they are delivered")
def interest_none(s: Script) -> None:
    c = working(s, "interest", ack_policy="none")
    fetch(c, 2)
    gone(c, 3)
    fetch(c, 3)
    gone(c, 0)
    info(c)


@case(GROUP, "interest: without consumers nothing is kept")
def no_consumers(s: Script) -> None:
    c = streamed(s, (), retention="interest")
    for subject in FIVE[:3]:
        c.request(subject, "x")
    c.api("STREAM.INFO.T")
    consume(c, is_kept=True)
    c.request("t.a", "x")
    c.api("STREAM.INFO.T")
    settle(c, 1)
    info(c)


@case(GROUP, "interest: two consumers, gone when both are done")
def two(s: Script) -> None:
    c = streamed(s, (), retention="interest")
    consume(c)
    consume(c, durable_name="D")
    c.sub("p", "1")
    fill(c, FIVE)
    first = fetch(c, 5)
    second = fetch(c, 5, consumer="D")
    ack(c, first[0])
    ack(c, second[1])
    gone(c, 5)
    ack(c, second[0])
    gone(c, 4)
    ack(c, first[1])
    gone(c, 3)
    c.api("CONSUMER.DELETE.T.D")
    gone(c, 3)
    for frame in first[2:]:
        ack(c, frame)
    gone(c, 0)


@case(GROUP, "interest: a consumer is deleted, and what only it wanted goes")
def deleted(s: Script) -> None:
    c = streamed(s, (), retention="interest")
    consume(c)
    consume(c, durable_name="D")
    c.sub("p", "1")
    fill(c, FIVE)
    for frame in fetch(c, 3):
        ack(c, frame)
    c.api("CONSUMER.DELETE.T.D")
    gone(c, 2)
    c.api("CONSUMER.DELETE.T.C")
    gone(c, 0)
    c.request("t.a", "x")
    c.api("STREAM.INFO.T")


@case(GROUP, "interest: filters, and messages that nobody wants")
def filtered(s: Script) -> None:
    c = streamed(s, (), retention="interest")
    consume(c, filter_subject="t.a")
    consume(c, durable_name="D", filter_subjects=["t.a", "t.b"])
    c.sub("p", "1")
    fill(c, (*FIVE, "t.none"))
    gone(c, 4)
    settle(c, 2)
    settle(c, 4, "D")
    info(c)
    info(c, "D")
    first = fetch(c, 2)
    second = fetch(c, 4, consumer="D")
    for frame in first:
        ack(c, frame)
    gone(c, 4)
    for frame in second:
        ack(c, frame)
    gone(c, 0)


@case(GROUP, "interest: a filter is narrowed, and what it let go is gone")
def narrowed(s: Script) -> None:
    c = streamed(s, (), retention="interest")
    consume(c)
    fill(c, FIVE)
    gone(c, 5)
    consume(c, filter_subject="t.a")
    gone(c, 2)
    settle(c, 2)
    info(c)


@case(GROUP, "interest: a consumer that comes later sees what is still there")
def later(s: Script) -> None:
    c = working(s, "interest")
    frames = fetch(c, 2)
    ack(c, frames[0])
    gone(c, 4)
    consume(c, durable_name="D", is_kept=True)
    ack(c, frames[1])
    consume(c, durable_name="N", deliver_policy="new", is_kept=True)
    no_more(c, consumer="D")
    gone(c, 4)


@case(GROUP, "interest: a reset ahead lets go what it skips")
def reset_ahead(s: Script) -> None:
    c = working(s, "interest")
    consume(c, durable_name="D", filter_subject="t.b")
    c.api("CONSUMER.RESET.T.C", {"seq": 4})
    gone(c, 3)
    no_more(c)
    no_more(c, consumer="D")


@case(GROUP, "workqueue: a reset ahead keeps what it skips")
def reset_queue(s: Script) -> None:
    c = working(s, "workqueue")
    c.api("CONSUMER.RESET.T.C", {"seq": 4})
    no_more(c)
    gone(c, 5)
    c.api("CONSUMER.RESET.T.C", {"seq": 2})
    no_more(c)


@case(GROUP, "interest: push consumers")
def push(s: Script) -> None:
    c = streamed(s, (), retention="interest")
    listener = s.connect("b")
    listener.sub("d", "1")
    listener.flush()
    consume(c, deliver_subject="d")
    for n, subject in enumerate(("t.a", "t.b")):
        c.request(subject, f"m{n}", is_kept=False)
        (frame,) = listener.read(1)
        quiet_ack(c, frame)
        gone(c, 0)
    info(c)


@case(GROUP, "interest: an ephemeral goes, and so does what it held")
def ephemeral(s: Script) -> None:
    c = streamed(s, (), retention="interest")
    consume(c, durable_name="", name="E", inactive_threshold=50 * MS)
    fill(c, FIVE)
    gone(c, 0, 0)
    c.api("CONSUMER.NAMES.T")


@case(GROUP, "workqueue: everything is kept until a consumer comes")
def queue_kept(s: Script) -> None:
    c = streamed(s, retention="workqueue")
    c.api("STREAM.INFO.T")
    consume(c, is_kept=True)
    c.sub("p", "1")
    for frame in fetch(c, 2):
        ack(c, frame)
    gone(c, 3)
    c.api("CONSUMER.DELETE.T.C")
    gone(c, 3)
    consume(c, is_kept=True)
    no_more(c)
    info(c)


@case(GROUP, "workqueue: a consumer for each subject")
def queue_subjects(s: Script) -> None:
    c = streamed(s, retention="workqueue")
    c.sub("p", "1")
    for name in ("a", "b"):
        consume(c, durable_name=name, filter_subject=f"t.{name}", is_kept=True)
        for frame in fetch(c, 2, consumer=name):
            ack(c, frame)
    gone(c, 1)
    consume(c, is_kept=True)
    consume(c, durable_name="c", filter_subject="t.c", is_kept=True)
    consume(c, durable_name="d", filter_subject="t.*", is_kept=True)
    ack(c, fetch(c, 1, consumer="c")[0])
    gone(c, 0)


@case(GROUP, "workqueue: acked after its deadline")
def queue_late(s: Script) -> None:
    c = working(s, "workqueue", ("t.a",), ack_wait=100 * MS)
    (frame,) = fetch(c)
    fetch(c)
    ack(c, frame)
    gone(c, 0)
    info(c)
    no_more(c)


@case(GROUP, "workqueue: given up after max_deliver, and kept")
def queue_given_up(s: Script) -> None:
    listener = s.connect("b")
    listener.sub("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>", "1")
    listener.flush()
    c = working(s, "workqueue", ("t.a", "t.b"), ack_wait=100 * MS, max_deliver=1)
    fetch(c, 2)
    listener.read(2, is_sorted=True)
    gone(c, 2)
    info(c)
    no_more(c)


@case(GROUP, "workqueue: an ack of what was given up")
def queue_ack_given_up(s: Script) -> None:
    listener = s.connect("b")
    listener.sub("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>", "1")
    listener.flush()
    c = working(s, "workqueue", ("t.a",), ack_wait=100 * MS, max_deliver=1)
    (frame,) = fetch(c)
    listener.read(1)
    ack(c, frame)
    info(c)
    c.api("STREAM.INFO.T")


@case(GROUP, "workqueue: purged while acks are pending")
def queue_purged(s: Script) -> None:
    c = working(s, "workqueue")
    frames = fetch(c, 3)
    c.api("STREAM.PURGE.T")
    ack(c, frames[1])
    info(c)
    fill(c, ("t.z",), 6)
    settle(c, 1)
    (frame,) = fetch(c)
    ack(c, frame)
    gone(c, 0)


@case(GROUP, "workqueue: a message is deleted while its ack is pending")
def queue_deleted(s: Script) -> None:
    c = working(s, "workqueue")
    frames = fetch(c, 3)
    c.api("STREAM.MSG.DELETE.T", {"seq": 2})
    c.until("CONSUMER.INFO.T.C", "", lambda a: a["num_ack_pending"] == 2)
    for frame in frames:
        ack(c, frame)
    gone(c, 2)
    info(c)


@case(GROUP, "workqueue: max_msgs, new ones are refused until there is room")
def queue_full(s: Script) -> None:
    c = streamed(s, (), retention="workqueue", max_msgs=2, discard="new")
    consume(c)
    c.sub("p", "1")
    for _ in range(3):
        c.request("t.a", "x")
    settle(c, 2)
    ack(c, fetch(c)[0])
    gone(c, 1)
    c.request("t.a", "x")


@case(GROUP, "workqueue: max_msgs, old ones go under the consumer")
def queue_old(s: Script) -> None:
    c = streamed(s, (), retention="workqueue", max_msgs=2)
    consume(c)
    c.sub("p", "1")
    fill(c, ("t.a", "t.b"))
    settle(c, 2)
    frames = fetch(c, 2)
    fill(c, ("t.c",), 3)
    c.until("CONSUMER.INFO.T.C", "", lambda a: a["num_ack_pending"] == 1 and a["num_pending"] == 1)
    for frame in frames:
        ack(c, frame)
    gone(c, 1)
    no_more(c)


@case(GROUP, "workqueue: next in one go")
def queue_next(s: Script) -> None:
    c = working(s, "workqueue")
    (frame,) = fetch(c)
    for _ in range(4):
        quiet_ack(c, frame, "+NXT", "p")
        (frame,) = c.read(1)
    ack(c, frame)
    gone(c, 0)
    info(c)


@case(GROUP, "workqueue: to no acks by way of a limits stream is refused")
def queue_update(s: Script) -> None:
    c = working(s, "workqueue")
    c.api("STREAM.UPDATE.T", {"name": "T", "subjects": ["t.>"], "retention": "limits"})
    c.api("STREAM.UPDATE.T", {"name": "T", "subjects": ["t.>"], "retention": "interest"})


@case(GROUP, "limits become interest, and what was acked goes")
def becomes_interest(s: Script) -> None:
    c = streamed(s)
    consume(c)
    c.sub("p", "1")
    for frame in fetch(c, 3):
        ack(c, frame)
    c.api("STREAM.UPDATE.T", {"name": "T", "subjects": ["t.>"], "retention": "interest"}, is_kept=False)
    c.until("STREAM.INFO.T", "", lambda a: a["state"]["messages"] in (2, 5))
    frames = fetch(c, 2)
    for frame in frames:
        ack(c, frame)
    c.until("STREAM.INFO.T", "", lambda a: a["state"]["messages"] in (0, 3))


@case(GROUP, "a request waits while the queue is empty")
def queue_waits(s: Script) -> None:
    c = working(s, "workqueue", ())
    pull(c, {"batch": 3, "expires": 60 * NS})
    other = s.connect("b")
    for n in range(3):
        other.request("t.a", f"m{n}", is_kept=False)
        (frame,) = c.read(1)
        ack(other, frame)
    gone(c, 0)
    info(c)
