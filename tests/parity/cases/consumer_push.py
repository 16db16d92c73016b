"""Push consumers: who is served, queue groups, heartbeats, flow control, rate limits, acks by flow control."""

from __future__ import annotations

from typing import Any

from parity.catalog import case
from parity.consumer_steps import MS, NS, ack, consume, feed, fill, info, quiet_ack, streamed
from parity.script import Connection, Script

GROUP = "consumer_push"


def heard(s: Script, subject: str = "d", queue: str = "", name: str = "b") -> Connection:
    """Another connection, which hears the deliver subject."""
    listener = s.connect(name)
    listener.sub(subject, "1", queue)
    listener.flush()
    return listener


@case(GROUP, "everything is pushed, then what comes")
def plain(s: Script) -> None:
    c, listener = streamed(s), heard(s)
    consume(c, deliver_subject="d")
    frames = listener.read(5)
    info(c)
    feed(c, listener, ("t.x", "t.y"), 6)
    for frame in frames:
        ack(c, frame)
    info(c)


@case(GROUP, "nobody hears it yet")
def later(s: Script) -> None:
    c = streamed(s)
    consume(c, is_kept=True, deliver_subject="d")
    info(c)
    listener = s.connect("b")
    listener.sub("d", "1")
    listener.read(5)
    info(c)


@case(GROUP, "no acks")
def no_acks(s: Script) -> None:
    c, listener = streamed(s), heard(s)
    consume(c, deliver_subject="d", ack_policy="none")
    listener.read(5)
    info(c)


@case(GROUP, "acks of all")
def ack_all(s: Script) -> None:
    c, listener = streamed(s), heard(s)
    consume(c, deliver_subject="d", ack_policy="all")
    frames = listener.read(5)
    ack(c, frames[3])
    info(c)


@case(GROUP, "a wildcard does not count as interest")
def wildcard(s: Script) -> None:
    c, listener = streamed(s), heard(s, "d.*")
    consume(c, is_kept=True, deliver_subject="d.x")
    info(c)
    listener.sub("d.x", "2")
    listener.read(10, is_sorted=True)
    info(c)


@case(GROUP, "two hear it")
def two(s: Script) -> None:
    c, listener, other = streamed(s), heard(s), heard(s, name="c")
    consume(c, deliver_subject="d")
    listener.read(5)
    other.read(5)
    info(c)


@case(GROUP, "a queue group: every message once")
def queue(s: Script) -> None:
    c = streamed(s)
    listener = heard(s, queue="q")
    consume(c, is_kept=True, deliver_subject="d", deliver_group="q")
    listener.read(5)
    info(c)


@case(GROUP, "a queue group: others do not count")
def queue_other(s: Script) -> None:
    c = streamed(s)
    plain_one, another = heard(s), heard(s, queue="r", name="c")
    consume(c, is_kept=True, deliver_subject="d", deliver_group="q")
    info(c)
    listener = s.connect("e")
    listener.sub("d", "1", "q")
    listener.read(5)
    info(c)
    plain_one.flush()
    another.flush()


@case(GROUP, "a queue group hears a consumer without one")
def queue_none(s: Script) -> None:
    c = streamed(s)
    heard(s, queue="q")
    consume(c, deliver_subject="d")
    info(c)


@case(GROUP, "a queue group of two shares")
def queue_shared(s: Script) -> None:
    c = streamed(s)
    listener = s.connect("b")
    listener.sub("d", "1", "q")
    listener.sub("d", "2", "q")
    listener.flush()
    consume(c, deliver_subject="d", deliver_group="q")
    frames = listener._read_until("", lambda f: f.payload == b"m5", is_kept=False)
    s.value("bodies", [frame.payload.decode() for frame in frames])


@case(GROUP, "interest goes, and comes back")
def comes_back(s: Script) -> None:
    c, listener = streamed(s), heard(s)
    consume(c, deliver_subject="d", ack_wait=60 * NS)
    listener.read(5)
    listener.unsub("1")
    listener.flush()
    c.until("CONSUMER.INFO.T.C", "", lambda a: not a.get("push_bound"))
    fill(c, ("t.x", "t.y"), 6)
    info(c)
    listener.sub("d", "2")
    listener.read(2)
    info(c)


@case(GROUP, "a second create while it is heard, and one while it is not")
def create_again(s: Script) -> None:
    c, listener = streamed(s), heard(s)
    consume(c, deliver_subject="d")
    listener.read(5)
    consume(c, is_kept=True, deliver_subject="d")
    consume(c, is_kept=True, deliver_subject="e")
    listener.unsub("1")
    listener.flush()
    c.until("CONSUMER.INFO.T.C", "", lambda a: not a.get("push_bound"))
    consume(c, is_kept=True, deliver_subject="e")
    info(c)


@case(GROUP, "max_ack_pending")
def max_ack_pending(s: Script) -> None:
    c, listener = streamed(s), heard(s)
    consume(c, deliver_subject="d", max_ack_pending=2)
    frames = listener.read(2)
    info(c)
    ack(c, frames[1])
    frames += listener.read(1)
    ack(c, frames[0])
    ack(c, frames[2])
    listener.read(2)
    info(c)


@case(GROUP, "headers only")
def headers_only(s: Script) -> None:
    c, listener = streamed(s, ()), heard(s)
    c.pub("t.a", "12345", headers=["A: 1"])
    c.request("t.b", "123", is_kept=False)
    consume(c, deliver_subject="d", headers_only=True)
    listener.read(2)
    consume(c, deliver_subject="d", headers_only=False, is_kept=True)
    feed(c, listener, ("t.c",), 3)


@case(GROUP, "a listener without headers")
def without_headers(s: Script) -> None:
    c = streamed(s, ())
    c.request("t.a", "12345", ["A: 1"], is_kept=False)
    listener = s.connect("b", headers=False, no_responders=False)
    listener.sub("d", "1")
    listener.flush()
    consume(c, deliver_subject="d", headers_only=True, idle_heartbeat=100 * MS)
    listener.read(2)


@case(GROUP, "heartbeats on an empty stream")
def heartbeats(s: Script) -> None:
    c, listener = streamed(s, ()), heard(s)
    consume(c, deliver_subject="d", idle_heartbeat=100 * MS)
    listener.read(2)
    info(c)


@case(GROUP, "heartbeats after messages, and between them")
def heartbeats_after(s: Script) -> None:
    c, listener = streamed(s), heard(s)
    consume(c, deliver_subject="d", idle_heartbeat=100 * MS)
    listener.read(7)
    fill(c, ("t.x",), 6)
    listener.read_messages(1)
    listener.read(1, "a heartbeat")


@case(GROUP, "heartbeats of a consumer with a filter")
def heartbeats_filter(s: Script) -> None:
    c, listener = streamed(s), heard(s)
    consume(c, deliver_subject="d", idle_heartbeat=100 * MS, filter_subject="t.c", ack_policy="none")
    listener.read(2)


@case(GROUP, "heartbeats to a queue group")
def heartbeats_queue(s: Script) -> None:
    c, listener = streamed(s, ("t.a",)), heard(s, queue="q")
    consume(c, deliver_subject="d", deliver_group="q", idle_heartbeat=100 * MS)
    listener.read(3)


@case(GROUP, "no heartbeats to nobody")
def heartbeats_nobody(s: Script) -> None:
    c = streamed(s, ())
    consume(c, deliver_subject="d", idle_heartbeat=100 * MS)
    listener = s.connect("b")
    listener.sub("d", "1")
    listener.read(2)


LARGE = 64 * 1024


def answer_flow(c: Connection, frames: list[Any]) -> int:
    """Answer what asks for flow control; how many did."""
    asked = [frame for frame in frames if frame.headers and b"FlowControl" in frame.headers]
    for frame in asked:
        c.pub(frame.reply.decode())
    return len(asked)


@case(GROUP, "flow control: it is asked for, and holds back")
def flow(s: Script) -> None:
    c, listener = streamed(s, ("t.a",) * 60, size=LARGE), heard(s)
    consume(c, deliver_subject="d", ack_policy="none", flow_control=True, idle_heartbeat=300 * MS)
    count = 0
    frames: list[Any] = []
    asked: list[int] = []

    def is_last(frame: Any) -> bool:
        nonlocal count
        frames.append(frame)
        if frame.headers and b"FlowControl" in frame.headers:
            asked.append(count)
            listener.pub(frame.reply.decode())
        elif frame.headers is None:
            count += 1
        return count == 60

    listener._read_until("", is_last, is_kept=False)
    s.value("the first is asked for after", asked[:1])
    first = next(frame for frame in frames if frame.headers and b"FlowControl" in frame.headers)
    s.value("it reads", [first.subject.decode(), first.headers.decode(), s.normal.text(first.reply)])
    s.value("in order", [f.payload[:4].strip(b".").decode() for f in frames if f.headers is None][-1])
    info(c)


@case(GROUP, "flow control: unanswered, heartbeats say that it is stalled")
def stalled(s: Script) -> None:
    c, listener = streamed(s, ("t.a",) * 60, size=LARGE), heard(s)
    consume(c, deliver_subject="d", ack_policy="none", flow_control=True, idle_heartbeat=150 * MS)
    frames: list[Any] = []

    def is_last(frame: Any) -> bool:
        frames.append(frame)
        return bool(frame.headers and b"Stalled" in frame.headers)

    listener._read_until("", is_last, is_kept=False)
    stalled = frames[-1].headers.decode()
    s.value("messages until then", sum(frame.headers is None for frame in frames))
    s.value("asked for so often", sum(bool(f.headers and b"FlowControl" in f.headers) for f in frames))
    s.value("the heartbeat", s.normal.text(stalled))
    info(c)
    asks = next(frame for frame in frames if frame.headers and b"FlowControl" in frame.headers)
    s.value("the same subject", asks.reply.decode() in stalled)
    listener.pub(asks.reply.decode())
    more = listener._read_until("", lambda f: f.headers is None, is_kept=False)
    s.value("it goes on with", more[-1].payload[:4].decode())


@case(GROUP, "flow control: small messages ask for nothing")
def flow_small(s: Script) -> None:
    c, listener = streamed(s), heard(s)
    consume(c, deliver_subject="d", ack_policy="none", flow_control=True, idle_heartbeat=200 * MS)
    listener.read(6)


@case(GROUP, "an answer that nobody asked for")
def flow_unasked(s: Script) -> None:
    c, listener = streamed(s), heard(s)
    consume(c, deliver_subject="d", ack_policy="none", flow_control=True, idle_heartbeat=200 * MS)
    listener.read(5)
    c.pub("$JS.FC.T.C.abcd")
    c.sub("_INBOX.fc", "fc")
    c.pub("$JS.FC.T.C.abcd", "", "_INBOX.fc")
    info(c)


@case(GROUP, "acks by flow control")
def ack_flow(s: Script) -> None:
    c, listener = streamed(s), heard(s)
    consume(c, is_kept=True, deliver_subject="d", ack_policy="flow_control")
    frames = listener.read(6)
    info(c)
    asked = [frame for frame in frames if frame.headers and b"FlowControl" in frame.headers]
    if asked:
        headers = ["Nats-Last-Consumer: 3", "Nats-Last-Stream: 3"]
        listener.pub(asked[0].reply.decode(), "", "", headers)
        c.until("CONSUMER.INFO.T.C", "", lambda a: a["ack_floor"]["stream_seq"] == 3)


@case(GROUP, "acks by flow control: acks in the usual way")
def ack_flow_usual(s: Script) -> None:
    c, listener = streamed(s), heard(s)
    consume(c, deliver_subject="d", ack_policy="flow_control")
    frames = [frame for frame in listener.read(6) if frame.headers is None]
    ack(c, frames[2])
    info(c)


@case(GROUP, "a rate limit")
def rate_limit(s: Script) -> None:
    c, listener = streamed(s, ("t.a",) * 4, size=1000), heard(s)
    consume(c, is_kept=True, deliver_subject="d", rate_limit_bps=400_000, ack_policy="none")
    listener.read(4)
    info(c)


@case(GROUP, "replay original")
def replay(s: Script) -> None:
    c, listener = streamed(s, ("t.a",)), heard(s)
    consume(c, durable_name="W")
    c.sub("p", "1")
    c.pub("$JS.API.CONSUMER.MSG.NEXT.T.W", {"batch": 9, "expires": 220 * MS}, "p")
    c.read_until_statuses(1, "a pause")
    fill(c, ("t.b",), 2)
    consume(c, deliver_subject="d", replay_policy="original", idle_heartbeat=150 * MS, ack_policy="none")
    listener.read(3, "one, a heartbeat, the other")


@case(GROUP, "an ephemeral goes when nobody hears it")
def ephemeral(s: Script) -> None:
    c, listener = streamed(s), heard(s)
    events = heard(s, "$JS.EVENT.ADVISORY.CONSUMER.>", name="e")
    answer = consume(c, durable_name="", deliver_subject="d", inactive_threshold=100 * MS, is_kept=False)
    s.normal.learn(answer)
    events.read(1)
    listener.read(5)
    listener.unsub("1")
    listener.flush()
    events.read(1)
    info(c, answer["name"])


@case(GROUP, "an ephemeral that nobody ever hears goes")
def never_heard(s: Script) -> None:
    c = streamed(s)
    events = heard(s, "$JS.EVENT.ADVISORY.CONSUMER.>", name="e")
    consume(c, durable_name="", name="E", deliver_subject="d", inactive_threshold=100 * MS, is_kept=True)
    events.read(2)
    info(c, "E")


@case(GROUP, "a durable with a threshold goes, too")
def durable_goes(s: Script) -> None:
    c = streamed(s)
    events = heard(s, "$JS.EVENT.ADVISORY.CONSUMER.>", name="e")
    consume(c, deliver_subject="d", inactive_threshold=100 * MS)
    events.read(2)
    info(c)


@case(GROUP, "the deliver subject is one of another stream")
def into_stream(s: Script) -> None:
    c = streamed(s)
    c.api("STREAM.CREATE.U", {"name": "U", "subjects": ["u"]}, is_kept=False)
    consume(c, is_kept=True, deliver_subject="u", ack_policy="none")
    c.until("STREAM.INFO.U", "", lambda a: a["state"]["messages"] == 5)
    c.api("STREAM.MSG.GET.U", {"seq": 5})
    info(c)


@case(GROUP, "deleted while it is heard")
def deleted(s: Script) -> None:
    c, listener = streamed(s), heard(s)
    consume(c, deliver_subject="d")
    listener.read(5)
    c.api("CONSUMER.DELETE.T.C")
    fill(c, ("t.x",), 6)
    listener.flush()
    info(c)


@case(GROUP, "by what the stream's other door says: purge and delete")
def purged(s: Script) -> None:
    c, listener = streamed(s), heard(s)
    consume(c, deliver_subject="d", max_ack_pending=2)
    frames = listener.read(2)
    c.api("STREAM.PURGE.T", is_kept=False)
    fill(c, ("t.x",), 6)
    listener.read(1)
    for frame in frames:
        quiet_ack(c, frame)
    info(c)
