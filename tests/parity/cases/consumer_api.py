"""Consumers by their endpoints: INFO, NAMES, LIST, DELETE, PAUSE, UNPIN, RESET, and those that need a cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
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
    pulling,
    quiet_ack,
    streamed,
    until_waiting,
)
from parity.script import Payload, Script

GROUP = "consumer_api"
FAR = "2100-01-02T03:04:05Z"
BODIES: list[Payload] = ["", "{}", " ", "x", "null", "[]", '{"foo":1}', '{"offset":1}', '{"seq":1}', "5"]
ENDPOINTS = ("INFO", "DELETE", "PAUSE", "UNPIN", "RESET")
CLUSTER = ("LEADER.STEPDOWN", "PEER.REMOVE", "PEER.EVACUATE")


def soon(milliseconds: int) -> str:
    return (datetime.now(UTC) + timedelta(milliseconds=milliseconds)).isoformat().replace("+00:00", "Z")


def bodies_of(endpoint: str) -> object:
    """Every body to one endpoint; a consumer is made anew for each that takes it away."""

    def run(s: Script) -> None:
        c = streamed(s)
        for body in BODIES:
            consume(c)
            c.api(f"CONSUMER.{endpoint}.T.C", body)

    return run


def missing(endpoint: str) -> object:
    def run(s: Script) -> None:
        c = streamed(s)
        for subject in (f"{endpoint}.T.NONE", f"{endpoint}.NONE.C", f"{endpoint}.NONE.NONE"):
            for body in ("", {"group": "g"}, {"seq": 1}, {"foo": 1}):
                c.request(f"$JS.API.CONSUMER.{subject}", body)

    return run


def levels(endpoint: str) -> object:
    def run(s: Script) -> None:
        c = streamed(s)
        consume(c)
        for level in ("0", "5", "6", "x"):
            c.request(f"$JS.API.CONSUMER.{endpoint}", "", [f"Nats-Required-Api-Level: {level}"])

    return run


for endpoint in ENDPOINTS:
    add(GROUP, f"{endpoint}: every body", bodies_of(endpoint))
    if endpoint != "RESET":  # which is a consumer's own subject: nobody answers
        add(GROUP, f"{endpoint}: of what is not there", missing(endpoint))
    add(GROUP, f"{endpoint}: a required level", levels(f"{endpoint}.T.C"))
for endpoint in ("NAMES", "LIST"):
    add(GROUP, f"{endpoint}: a required level", levels(f"{endpoint}.T"))


@case(GROUP, "endpoints that need a cluster")
def cluster(s: Script) -> None:
    c = streamed(s)
    consume(c)
    for endpoint in CLUSTER:
        c.api(f"CONSUMER.{endpoint}.T.C")
        c.api(f"CONSUMER.{endpoint}.T.C", {"peer": "x"})
        c.api(f"CONSUMER.{endpoint}.T.NONE")


@case(GROUP, "endpoints that are not there, and subjects that are odd")
def odd(s: Script) -> None:
    c = streamed(s)
    consume(c)
    c.sub("_INBOX.odd", "odd")
    for subject in (
        "NOSUCH.T.C",
        "INFO.T",
        "INFO.T.C.D",
        "INFO",
        "NAMES",
        "NAMES.T.C",
        "LIST.T.C",
        "DELETE.T",
        "PAUSE.T",
    ):
        c.pub(f"$JS.API.CONSUMER.{subject}", "", "_INBOX.odd")
    for subject in ("UNPIN.T", "MSG.T.C", "MSG.NEXT.T", "INFO..C", "INFO.T."):
        c.pub(f"$JS.API.CONSUMER.{subject}", "", "_INBOX.odd")
    c.api("CONSUMER.NAMES.T")


@case(GROUP, "wildcards for a consumer's name")
def wild(s: Script) -> None:
    c = streamed(s)
    consume(c)
    for endpoint in ("INFO", "DELETE", "PAUSE", "UNPIN"):
        c.request(f"$JS.API.CONSUMER.{endpoint}.T.*")
        c.request(f"$JS.API.CONSUMER.{endpoint}.*.C")
    info(c)


@case(GROUP, "MSG.NEXT of what is not there")
def next_missing(s: Script) -> None:
    c = streamed(s)
    c.request("$JS.API.CONSUMER.MSG.NEXT.T.NONE", "1")
    c.request("$JS.API.CONSUMER.MSG.NEXT.NONE.C", "1")
    consume(c)
    c.api("CONSUMER.DELETE.T.C")
    c.request("$JS.API.CONSUMER.MSG.NEXT.T.C", "1")


@case(GROUP, "RESET of what is not there, acks of what is not there")
def ack_missing(s: Script) -> None:
    c = streamed(s)
    c.sub("_INBOX.odd", "odd")
    c.pub("$JS.API.CONSUMER.RESET.T.NONE", "", "_INBOX.odd")
    c.request("$JS.ACK.T.NONE.1.1.1.1763190000000000000.0", "+ACK")
    c.request("$JS.ACK.NONE.NONE.1.1.1.1763190000000000000.0", "+ACK")
    c.request("$JS.FC.T.NONE.abcd")


@case(GROUP, "NAMES and LIST: none, one, several")
def names(s: Script) -> None:
    c = streamed(s)
    for endpoint in ("NAMES", "LIST"):
        c.api(f"CONSUMER.{endpoint}.T")
    consume(c)
    for endpoint in ("NAMES", "LIST"):
        c.api(f"CONSUMER.{endpoint}.T")
    consume(c, durable_name="B")
    consume(c, durable_name="a", deliver_subject="d")
    consume(c, durable_name="", name="Z")
    for endpoint in ("NAMES", "LIST"):
        c.api(f"CONSUMER.{endpoint}.T")
    c.api("CONSUMER.DELETE.T.B")
    for endpoint in ("NAMES", "LIST"):
        c.api(f"CONSUMER.{endpoint}.T")


@case(GROUP, "NAMES and LIST: offsets and bodies")
def offsets(s: Script) -> None:
    c = streamed(s)
    for name in "ABC":
        consume(c, durable_name=name)
    bodies: list[Payload] = [{"offset": n} for n in (0, 1, 2, 3, 9, -1)]
    bodies += [
        {"offset": "1"},
        {"offset": 1.5},
        {"offset": None},
        {"foo": 1},
        "x",
        "[]",
        " ",
        "null",
        {"subject": "t.a"},
    ]
    for endpoint in ("NAMES", "LIST"):
        for body in bodies:
            c.api(f"CONSUMER.{endpoint}.T", body)
        c.api(f"CONSUMER.{endpoint}.NONE")


@case(GROUP, "LIST and NAMES: more than a page")
def pages(s: Script) -> None:
    c = streamed(s, (), storage="memory", max_consumers=2000)
    config = {"ack_policy": "none", "mem_storage": True, "inactive_threshold": 60 * NS}
    for n in range(1030):
        name = f"c{n:04d}"
        c.pub(f"$JS.API.CONSUMER.CREATE.T.{name}", {"stream_name": "T", "config": config | {"name": name}})
    c.until("STREAM.INFO.T", "", lambda a: a["state"]["consumer_count"] == 1030)
    for endpoint, starts in (("NAMES", (0, 1024)), ("LIST", (0, 256, 1000, 1029))):
        for offset in starts:
            answer = c.api(f"CONSUMER.{endpoint}.T", {"offset": offset}, is_kept=False)
            names = [found if isinstance(found, str) else found["name"] for found in answer.pop("consumers")]
            s.value(f"{endpoint} from {offset}", answer | {"count": len(names), "ends": [names[0], names[-1]]})
    c.api("STREAM.DELETE.T", is_kept=False)


@case(GROUP, "INFO at each stage")
def stages(s: Script) -> None:
    c = pulling(s, ack_wait=10 * NS)
    info(c)
    first, second, third = fetch(c, 3)
    info(c)
    ack(c, second)
    info(c)
    ack(c, first)
    info(c)
    ack(c, third, "-NAK")
    info(c)
    (again,) = fetch(c)
    info(c)
    ack(c, again)
    info(c)
    for frame in fetch(c, 2):
        ack(c, frame)
    info(c)
    no_more(c)
    pull(c, {"batch": 5, "expires": 60 * NS})
    until_waiting(c, 1)
    pull(c, {"batch": 5, "expires": 60 * NS})
    until_waiting(c, 2)
    fill(c, ("t.z",), 6)
    c.read(1)
    info(c)


@case(GROUP, "INFO with acks of all, and without acks")
def other_policies(s: Script) -> None:
    c = pulling(s, ack_policy="all")
    frames = fetch(c, 3)
    info(c)
    ack(c, frames[1])
    info(c)
    consume(c, durable_name="N", ack_policy="none")
    fetch(c, 2, consumer="N")
    info(c, "N")
    no_more(c, consumer="N")
    info(c, "N")


@case(GROUP, "INFO of a push consumer before, while and after it is heard")
def bound(s: Script) -> None:
    c = streamed(s)
    consume(c, is_kept=True, deliver_subject="d")
    info(c)
    listener = s.connect("b")
    listener.sub("d", "1")
    listener.read(5)
    info(c)
    listener.unsub("1")
    listener.flush()
    c.until("CONSUMER.INFO.T.C", "", lambda a: not a.get("push_bound"))


@case(GROUP, "consumers in a stream's INFO and in the account's")
def counts(s: Script) -> None:
    c = streamed(s)
    c.api("INFO")
    consume(c)
    consume(c, durable_name="", name="E")
    c.api("STREAM.INFO.T")
    c.api("STREAM.LIST")
    c.api("INFO")
    c.api("CONSUMER.DELETE.T.C")
    c.api("CONSUMER.DELETE.T.C")
    c.api("STREAM.INFO.T")
    c.api("INFO")
    c.api("STREAM.DELETE.T")
    c.api("INFO")
    c.api("CONSUMER.INFO.T.E")


@case(GROUP, "DELETE ends requests that wait")
def delete_waiting(s: Script) -> None:
    c = pulling(s, ())
    pull(c, {"batch": 1, "expires": 60 * NS})
    pull(c, {"batch": 2, "expires": 60 * NS, "max_bytes": 100})
    until_waiting(c, 2)
    listener = s.connect("b")
    listener.api("CONSUMER.DELETE.T.C")
    c.read_until_statuses(2, "what those who wait are told")


@case(GROUP, "a stream's deletion ends requests that wait")
def delete_stream(s: Script) -> None:
    c = pulling(s, ())
    pull(c, {"batch": 1, "expires": 60 * NS})
    until_waiting(c, 1)
    listener = s.connect("b")
    listener.api("STREAM.DELETE.T")
    c.read_until_statuses(1, "what those who wait are told")


@case(GROUP, "PAUSE: until a time, again, and resume")
def pause(s: Script) -> None:
    c = pulling(s)
    c.api("CONSUMER.PAUSE.T.C", {"pause_until": FAR})
    info(c)
    c.api("CONSUMER.LIST.T")
    no_more(c)
    c.api("CONSUMER.PAUSE.T.C", {"pause_until": "2100-05-01T00:00:00+02:00"})
    info(c)
    c.api("CONSUMER.PAUSE.T.C")
    info(c)
    fetch(c, 2)
    c.api("CONSUMER.PAUSE.T.C", {"pause_until": "2020-01-01T00:00:00Z"})
    info(c)
    fetch(c, 1)


@case(GROUP, "PAUSE: bodies")
def pause_bodies(s: Script) -> None:
    c = streamed(s)
    consume(c)
    bodies: list[Payload] = [
        {},
        {"pause_until": None},
        {"pause_until": ""},
        {"pause_until": "x"},
        {"pause_until": 5},
        {"pause_until": "0001-01-01T00:00:00Z"},
        {"pause_until": FAR, "foo": 1},
        {"pause_until": "2100-01-02"},
        {"pause_until": "2100-01-02T03:04:05.123456789Z"},
        '{"pause_until":"2100-01-02T03:04:05Z"',
    ]
    for body in bodies:
        c.api("CONSUMER.PAUSE.T.C", body)
    info(c)


@case(GROUP, "PAUSE ends by itself, and those who wait are served")
def pause_ends(s: Script) -> None:
    c = pulling(s, pause_until=FAR)
    pull(c, {"batch": 2, "expires": 20 * NS})
    until_waiting(c, 1)
    c.api("CONSUMER.PAUSE.T.C", {"pause_until": soon(150)}, is_kept=False)
    c.read(2, "served when the pause is over")
    info(c)


@case(GROUP, "a consumer that is paused sends heartbeats, and requests expire")
def pause_heartbeats(s: Script) -> None:
    c = pulling(s, pause_until=FAR)
    pull(c, {"batch": 2, "expires": 250 * MS, "idle_heartbeat": 100 * MS})
    c.read_until_statuses(1)
    no_more(c)


@case(GROUP, "a push consumer that is paused")
def pause_push(s: Script) -> None:
    c = streamed(s)
    listener = s.connect("b")
    listener.sub("d", "1")
    listener.flush()
    consume(c, is_kept=True, deliver_subject="d", idle_heartbeat=100 * MS, pause_until=FAR)
    listener.read(2, "heartbeats")
    c.api("CONSUMER.PAUSE.T.C")
    listener.read_messages(5)


@case(GROUP, "an update does not change a pause")
def pause_update(s: Script) -> None:
    c = streamed(s)
    consume(c, pause_until=FAR)
    consume(c, is_kept=True, description="x")
    consume(c, is_kept=True, description="y", pause_until="2090-01-01T00:00:00Z")
    c.api("CONSUMER.PAUSE.T.C")
    consume(c, is_kept=True, description="z", pause_until="2090-01-01T00:00:00Z")


@case(GROUP, "UNPIN: bodies, and consumers that have no pin")
def unpin(s: Script) -> None:
    c = streamed(s)
    consume(c)
    consume(c, durable_name="P", priority_policy="pinned_client", priority_groups=["g"])
    consume(c, durable_name="O", priority_policy="overflow", priority_groups=["g"])
    bodies: list[Payload] = [
        "",
        "{}",
        {"group": ""},
        {"group": "g"},
        {"group": "h"},
        {"group": 5},
        {"foo": 1},
        "x",
        {"group": "a b"},
    ]
    for name in "CPO":
        for body in bodies:
            c.api(f"CONSUMER.UNPIN.T.{name}", body)


@case(GROUP, "RESET: back to the ack floor")
def reset(s: Script) -> None:
    c = pulling(s)
    frames = fetch(c, 4)
    ack(c, frames[0])
    ack(c, frames[2])
    info(c)
    c.api("CONSUMER.RESET.T.C")
    info(c)
    for frame in no_more(c)[:-1]:
        quiet_ack(c, frame)


@case(GROUP, "RESET: to a sequence")
def reset_to(s: Script) -> None:
    c = pulling(s)
    fetch(c, 4)
    for seq in (2, 1, 5, 6, 7, 100):
        c.api("CONSUMER.RESET.T.C", {"seq": seq})
        info(c)
        no_more(c)


@case(GROUP, "RESET: bodies")
def reset_bodies(s: Script) -> None:
    c = pulling(s)
    bodies: list[Payload] = [
        "{}",
        {"seq": 0},
        {"seq": -1},
        {"seq": "1"},
        {"seq": 1.5},
        {"foo": 1},
        "x",
        "[]",
        "null",
        " ",
    ]
    for body in bodies:
        c.api("CONSUMER.RESET.T.C", body)


@case(GROUP, "RESET: of every deliver policy")
def reset_policies(s: Script) -> None:
    c = streamed(s)
    configs: list[dict[str, Any]] = [
        {"deliver_policy": "all"},
        {"deliver_policy": "last"},
        {"deliver_policy": "new"},
        {"deliver_policy": "last_per_subject", "filter_subject": "t.*"},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 3},
        {"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"},
        {"deliver_policy": "all", "ack_policy": "none"},
        {"deliver_policy": "all", "ack_policy": "all"},
        {"deliver_policy": "all", "filter_subject": "t.b"},
    ]
    for n, config in enumerate(configs):
        consume(c, durable_name=f"C{n}", **config)
        for body in ("", {"seq": 2}, {"seq": 4}):
            c.api(f"CONSUMER.RESET.T.C{n}", body)


@case(GROUP, "RESET: acks of before, and those who wait")
def reset_acks(s: Script) -> None:
    c = pulling(s)
    frames = fetch(c, 5)
    pull(c, {"batch": 3, "expires": 60 * NS}, "p")
    until_waiting(c, 1)
    listener = s.connect("b")
    listener.api("CONSUMER.RESET.T.C", {"seq": 3})
    c.read(3, "served from there")
    ack(c, frames[4])
    ack(c, frames[0])
    info(c)


@case(GROUP, "RESET: redeliveries are forgotten")
def reset_redeliveries(s: Script) -> None:
    c = pulling(s)
    for frame in fetch(c, 3):
        ack(c, frame, "-NAK")
    fetch(c, 3)
    info(c)
    c.api("CONSUMER.RESET.T.C")
    fetch(c, 3)
    info(c)


@case(GROUP, "RESET: a push consumer")
def reset_push(s: Script) -> None:
    c = streamed(s)
    listener = s.connect("b")
    listener.sub("d", "1")
    listener.flush()
    consume(c, deliver_subject="d")
    listener.read(5)
    c.api("CONSUMER.RESET.T.C", {"seq": 4}, is_kept=False)
    listener.read(2)
    info(c)


@case(GROUP, "a stream's limits for consumers")
def stream_limits(s: Script) -> None:
    c = streamed(s)
    config = {"name": "T", "subjects": ["t.>"]}
    consume(c, max_ack_pending=100, inactive_threshold=60 * NS)
    for limits in (
        {"max_ack_pending": 50},
        {"inactive_threshold": 30 * NS},
        {"max_ack_pending": 100, "inactive_threshold": 60 * NS},
        {"max_ack_pending": -1},
        {"inactive_threshold": -1},
        {"foo": 1},
    ):
        c.api("STREAM.UPDATE.T", config | {"consumer_limits": limits})
    consume(c, durable_name="D", is_kept=True)
    consume(c, durable_name="E", is_kept=True, max_ack_pending=101)


@case(GROUP, "max_consumers of a stream, created and updated")
def max_consumers(s: Script) -> None:
    c = streamed(s, max_consumers=2)
    for name in "ABC":
        consume(c, durable_name=name, is_kept=True)
    consume(c, durable_name="A", is_kept=True, description="an update")
    consume(c, durable_name="", is_kept=True)
    c.api("STREAM.UPDATE.T", {"name": "T", "subjects": ["t.>"], "max_consumers": 1})
    c.api("STREAM.UPDATE.T", {"name": "T", "subjects": ["t.>"], "max_consumers": 3})
    consume(c, durable_name="C", is_kept=True)
    c.api("CONSUMER.DELETE.T.A")
    consume(c, durable_name="D", is_kept=True)
    c.api("CONSUMER.NAMES.T")


@case(GROUP, "a stream's subjects change under consumers")
def subjects_change(s: Script) -> None:
    c = pulling(s, filter_subject="t.a")
    c.api("STREAM.UPDATE.T", {"name": "T", "subjects": ["u.>"]})
    info(c)
    fetch(c, 2)
    c.request("u.x", "1")
    no_more(c)


@case(GROUP, "a stream's retention changes under consumers")
def retention_change(s: Script) -> None:
    c = streamed(s)
    consume(c, ack_policy="none")
    c.api("STREAM.UPDATE.T", {"name": "T", "subjects": ["t.>"], "retention": "interest"})
    c.api("STREAM.UPDATE.T", {"name": "T", "subjects": ["t.>"], "retention": "workqueue"})


@case(GROUP, "a stream is sealed under a consumer")
def sealed(s: Script) -> None:
    c = pulling(s)
    c.api("STREAM.UPDATE.T", {"name": "T", "subjects": ["t.>"], "sealed": True})
    frame = fetch(c)[0]
    ack(c, frame)
    consume(c, durable_name="D", is_kept=True)
    c.api("CONSUMER.DELETE.T.D")
    info(c)


@case(GROUP, "the API's counters and errors of consumers")
def counters(s: Script) -> None:
    c = streamed(s)
    consume(c)
    info(c, "NONE")
    c.sub("p", "1")
    fetch(c)
    c.api("CONSUMER.RESET.T.C")
    c.api("INFO")
