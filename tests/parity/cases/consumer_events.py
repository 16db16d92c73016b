"""What the server tells about consumers: advisories, the ack metric, the audit of consumer requests, inactivity."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

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
    streamed,
    until_waiting,
)
from parity.script import Script
from support.servers import BASE

GROUP = "consumer_events"
CONSUMER = "$JS.EVENT.ADVISORY.CONSUMER.>"
FAR = "2100-01-02T03:04:05Z"


@case(GROUP, "created, updated and deleted")
def actions(s: Script) -> None:
    c = streamed(s)
    listener = listening(s, "$JS.EVENT.ADVISORY.CONSUMER.>")
    consume(c)
    listener.read(1, "created")
    consume(c)
    consume(c, description="x")
    c.api("CONSUMER.DELETE.T.C")
    listener.read(1, "deleted")


@case(GROUP, "an ephemeral's name in its advisories")
def ephemeral(s: Script) -> None:
    c = streamed(s)
    listener = listening(s, CONSUMER)
    answer = consume(c, durable_name="")
    s.normal.learn(answer)
    listener.read(1, "created")
    c.api(f"CONSUMER.DELETE.T.{answer['name']}")
    listener.read(1, "deleted")


@case(GROUP, "nothing is told of what was refused")
def refused(s: Script) -> None:
    c = streamed(s)
    listener = listening(s, CONSUMER)
    consume(c, is_kept=True, ack_wait=-1)
    c.api("CONSUMER.DELETE.T.NONE")
    consume(c, durable_name="LAST")
    listener.read(1, "created")


@case(GROUP, "a stream is deleted with its consumers")
def stream_deleted(s: Script) -> None:
    c = streamed(s)
    listener = listening(s, "$JS.EVENT.ADVISORY.*.*.>")
    consume(c)
    listener.read(1)
    c.api("STREAM.DELETE.T")
    listener.read(2, is_sorted=True)


@case(GROUP, "paused and resumed")
def paused(s: Script) -> None:
    c = streamed(s)
    listener = listening(s, CONSUMER)
    consume(c)
    listener.read(1)
    c.api("CONSUMER.PAUSE.T.C", {"pause_until": FAR})
    listener.read(1, "paused")
    c.api("CONSUMER.PAUSE.T.C", {"pause_until": FAR})
    c.api("CONSUMER.PAUSE.T.C", {"pause_until": "2090-01-01T00:00:00Z"})
    listener.read(1, "another end")
    c.api("CONSUMER.PAUSE.T.C")
    listener.read(1, "resumed")
    c.api("CONSUMER.PAUSE.T.C")
    c.api("CONSUMER.DELETE.T.C")
    listener.read(1, "deleted")


@case(GROUP, "created paused")
def created_paused(s: Script) -> None:
    c = streamed(s)
    listener = listening(s, CONSUMER)
    consume(c, pause_until=FAR)
    listener.read(2, is_sorted=True)
    c.api("CONSUMER.DELETE.T.C")
    listener.read(1)


@case(GROUP, "a pause that ends by itself is told")
def pause_ends(s: Script) -> None:
    c = streamed(s)
    listener = listening(s, CONSUMER)
    consume(c)
    soon = (datetime.now(UTC) + timedelta(milliseconds=150)).isoformat().replace("+00:00", "Z")
    c.api("CONSUMER.PAUSE.T.C", {"pause_until": soon}, is_kept=False)
    listener.read(3)
    info(c)


def sampling(freq: str, count: int) -> object:
    def run(s: Script) -> None:
        listener = listening(s, "$JS.EVENT.METRIC.>")
        c = pulling(s, sample_freq=freq)
        frames = fetch(c, 3)
        for frame in frames:
            ack(c, frame)
        if count:
            listener.read(count)
        else:
            listener.flush()

    return run


for freq, count in (("100", 3), ("100%", 3), ("200", 3), ("0", 0), ("", 0)):
    add(GROUP, f"the ack metric, sampled by {freq!r}", sampling(freq, count))


@case(GROUP, "the ack metric: what counts as an ack")
def metric_kinds(s: Script) -> None:
    listener = listening(s, "$JS.EVENT.METRIC.>")
    c = pulling(s, sample_freq="100")
    first, second, third, fourth = fetch(c, 4)
    ack(c, first, "+WPI")
    ack(c, second, "+TERM")
    ack(c, third, "-NAK")
    (again,) = fetch(c)
    ack(c, again)
    listener.read(1, "delivered twice")
    ack(c, fourth, "")
    listener.read(1)
    ack(c, fourth)
    ack(c, first)
    listener.read(1)


@case(GROUP, "the ack metric, acks of all")
def metric_all(s: Script) -> None:
    listener = listening(s, "$JS.EVENT.METRIC.>")
    c = pulling(s, sample_freq="100", ack_policy="all")
    frames = fetch(c, 3)
    ack(c, frames[1])
    ack(c, frames[2])
    info(c)
    listener.flush()


AUDITED: list[tuple[str, object]] = [
    ("CONSUMER.CREATE.T.C", {"stream_name": "T", "config": {"durable_name": "C"}}),
    ("CONSUMER.CREATE.T.D.t.a", {"stream_name": "T", "config": {"durable_name": "D", "filter_subject": "t.a"}}),
    ("CONSUMER.DURABLE.CREATE.T.E", {"stream_name": "T", "config": {"durable_name": "E"}}),
    ("CONSUMER.CREATE.T.C", "{"),
    ("CONSUMER.INFO.T.C", ""),
    ("CONSUMER.INFO.T.NONE", ""),
    ("CONSUMER.NAMES.T", ""),
    ("CONSUMER.PAUSE.T.C", {"pause_until": FAR}),
    ("CONSUMER.UNPIN.T.C", {"group": "g"}),
    ("CONSUMER.LEADER.STEPDOWN.T.C", ""),
    ("CONSUMER.DELETE.T.C", ""),
]


@case(GROUP, "requests are audited")
def audited(s: Script) -> None:
    c = streamed(s)
    listener = listening(s, "$JS.EVENT.ADVISORY.API")
    for subject, body in AUDITED:
        c.api(subject, body, is_kept=False)  # type: ignore[arg-type]
        listener.read(1, f"audit of {subject}")


@case(GROUP, "MSG.NEXT and RESET are not audited")
def not_audited(s: Script) -> None:
    c = pulling(s)
    listener = listening(s, "$JS.EVENT.ADVISORY.API")
    frames = fetch(c, 2)
    ack(c, frames[0])
    c.api("CONSUMER.RESET.T.C", is_kept=False)
    c.api("CONSUMER.NAMES.T", is_kept=False)
    listener.read(1, "the first audit")


@case(GROUP, "advisories with a domain", config=BASE + 'jetstream { store_dir: "$DIR", domain: hub }\n')
def domain(s: Script) -> None:
    c = streamed(s)
    listener = listening(s, "$JS.EVENT.ADVISORY.CONSUMER.>")
    metrics = listening(s, "$JS.EVENT.METRIC.>", "m")
    consume(c, sample_freq="100")
    listener.read(1)
    c.sub("p", "1")
    c.pub("$JS.hub.API.CONSUMER.MSG.NEXT.T.C", {"batch": 3, "expires": NS}, "p")
    first, second, third = c.read(3)
    ack(c, first)
    metrics.read(1)
    ack(c, second, "-NAK")
    listener.read(1)
    ack(c, third, "+TERM why")
    listener.read(1)
    c.request("$JS.hub.API.CONSUMER.INFO.T.C")
    c.api("STREAM.DELETE.T", is_kept=False)


@case(GROUP, "a stream that captures advisories of consumers")
def captured(s: Script) -> None:
    c = streamed(s)
    c.api("STREAM.CREATE.EV", {"name": "EV", "subjects": ["$JS.EVENT.ADVISORY.CONSUMER.>"]}, is_kept=False)
    consume(c)
    c.api("CONSUMER.DELETE.T.C", is_kept=False)
    answer = c.until("STREAM.INFO.EV", {"subjects_filter": ">"}, lambda a: a["state"]["messages"] == 2, is_kept=False)
    s.value("its subjects", answer["state"].get("subjects"))


@case(GROUP, "a pull consumer without requests goes")
def inactive(s: Script) -> None:
    c = streamed(s)
    listener = listening(s, CONSUMER)
    consume(c, durable_name="", name="E", inactive_threshold=50 * MS)
    listener.read(2, "created and deleted")
    info(c, "E")
    c.api("CONSUMER.NAMES.T")
    c.until("STREAM.INFO.T", "", lambda a: a["state"]["consumer_count"] == 0)


@case(GROUP, "a pull consumer stays while a request waits")
def active(s: Script) -> None:
    c = streamed(s)
    listener = listening(s, CONSUMER)
    consume(c, durable_name="", name="E", inactive_threshold=600 * MS)
    consume(c, durable_name="", name="F", inactive_threshold=600 * MS)
    listener.read(2, "created", is_sorted=True)
    c.sub("p", "1")
    fetch(c, 5, consumer="E")
    pull(c, {"batch": 1, "expires": 60 * NS}, consumer="E")
    until_waiting(c, 1, "E")
    listener.read(1, "the other one is deleted")
    info(c, "E")


@case(GROUP, "a durable without a threshold stays")
def durable(s: Script) -> None:
    c = streamed(s)
    listener = listening(s, CONSUMER)
    consume(c)
    consume(c, durable_name="D", inactive_threshold=50 * MS)
    listener.read(3, "the one with a threshold is deleted")
    c.api("CONSUMER.NAMES.T")


@case(GROUP, "advisories of a consumer that goes by its threshold end requests")
def fill_after(s: Script) -> None:
    c = pulling(s, ())
    listener = listening(s, "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>")
    fill(c, ("t.a", "t.b"))
    frames = fetch(c, 2)
    c.api("STREAM.MSG.DELETE.T", {"seq": 1})
    listener.read(1, "its message was deleted")
    ack(c, frames[1])
    no_more(c)
