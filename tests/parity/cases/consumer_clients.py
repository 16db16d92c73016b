"""What clients make of consumers: KV watchers, object stores, ordered consumers, as nats-py and nats.js send it."""

from __future__ import annotations

from typing import Any

from parity.catalog import add, case
from parity.consumer_steps import MS, NS
from parity.script import Connection, Script

GROUP = "consumer_clients"
DEL = ["KV-Operation: DEL"]
PURGE = ["KV-Operation: PURGE", "Nats-Rollup: sub"]


def bucket(s: Script, history: int = 1) -> Connection:
    """A bucket with some keys, one of them deleted, one purged."""
    c = s.connect()
    config = {
        "name": "KV_b",
        "subjects": ["$KV.b.>"],
        "max_msgs_per_subject": history,
        "discard": "new",
        "deny_delete": True,
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        "num_replicas": 1,
    }
    c.api("STREAM.CREATE.KV_b", config, is_kept=False)
    for key, body in (("a", "1"), ("b", "2"), ("a", "3"), ("c.d", "4"), ("e", "5"), ("f", "6")):
        c.request(f"$KV.b.{key}", body, is_kept=False)
    c.request("$KV.b.e", "", DEL, is_kept=False)
    c.request("$KV.b.f", "", PURGE, is_kept=False)
    return c


def ordered(**more: Any) -> dict[str, Any]:
    """What both clients ask for."""
    return {
        "ack_policy": "none",
        "max_deliver": 1,
        "flow_control": True,
        "idle_heartbeat": 5 * NS,
        "ack_wait": 22 * 3600 * NS,
        "inactive_threshold": 5 * 60 * NS,
        "mem_storage": True,
        "num_replicas": 1,
        **more,
    }


WATCHES: dict[str, dict[str, Any]] = {
    "everything": {"deliver_policy": "last_per_subject", "filter_subject": "$KV.b.>"},
    "everything, by a list of filters": {"deliver_policy": "last_per_subject", "filter_subjects": ["$KV.b.>"]},
    "one key": {"deliver_policy": "last_per_subject", "filter_subject": "$KV.b.a"},
    "two keys": {"deliver_policy": "last_per_subject", "filter_subjects": ["$KV.b.a", "$KV.b.c.*"]},
    "a key that is not there": {"deliver_policy": "last_per_subject", "filter_subject": "$KV.b.none"},
    "the history": {"deliver_policy": "all", "filter_subject": "$KV.b.>"},
    "updates only": {"deliver_policy": "new", "filter_subject": "$KV.b.>"},
    "keys only": {"deliver_policy": "last_per_subject", "filter_subject": "$KV.b.>", "headers_only": True},
    "from a revision": {"deliver_policy": "by_start_sequence", "opt_start_seq": 4, "filter_subject": "$KV.b.>"},
}
COUNTS = {  # with a history of 1 and of 5
    "everything": (5, 5),
    "everything, by a list of filters": (5, 5),
    "one key": (1, 1),
    "two keys": (2, 2),
    "a key that is not there": (0, 0),
    "the history": (5, 7),
    "updates only": (0, 0),
    "keys only": (5, 5),
    "from a revision": (3, 4),
}


def watching(config: dict[str, Any], history: int, count: int) -> object:
    def run(s: Script) -> None:
        c = bucket(s, history)
        w = s.connect("w")
        w.sub("_INBOX.w.1", "1")
        w.flush()
        config_ = ordered(deliver_subject="_INBOX.w.1", **config)
        answer = c.api("CONSUMER.CREATE.KV_b", {"stream_name": "KV_b", "config": config_})
        if count:
            w.read(count, "what is there")
        c.api(f"CONSUMER.INFO.KV_b.{answer['name']}")
        c.request("$KV.b.a", "9", is_kept=False)
        c.request("$KV.b.new", "10", is_kept=False)
        is_all = (
            config["filter_subject"] == "$KV.b.>" if "filter_subject" in config else len(config["filter_subjects"]) == 1
        )
        more = 2 if is_all else 0 if config.get("filter_subject") == "$KV.b.none" else 1
        for frame in w._read_until("", counter(more), is_kept=False) if more else []:
            s.value("and then", [frame.subject.decode(), frame.payload.decode(), (frame.headers or b"").decode()])
        c.api(f"CONSUMER.DELETE.KV_b.{answer['name']}")

    return run


def counter(count: int) -> Any:
    left = [count]

    def is_last(_: Any) -> bool:
        left[0] -= 1
        return left[0] == 0

    return is_last


for title, config in WATCHES.items():
    add(GROUP, f"KV watch: {title}", watching(config, 1, COUNTS[title][0]))
    add(GROUP, f"KV watch, with history: {title}", watching(config, 5, COUNTS[title][1]))


@case(GROUP, "nats-py: pull_subscribe")
def pull_subscribe(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t.>"]}, is_kept=False)
    for n in range(3):
        c.request("t.a", f"m{n}", is_kept=False)
    c.api("STREAM.NAMES", {"subject": "t.>"})
    c.api("CONSUMER.INFO.T.dur")
    config = {
        "name": "dur",
        "durable_name": "dur",
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": 30 * NS,
        "max_deliver": -1,
        "filter_subject": "t.>",
        "replay_policy": "instant",
        "max_waiting": 512,
        "max_ack_pending": 1000,
    }
    c.api("CONSUMER.CREATE.T.dur.t.>", {"stream_name": "T", "config": config, "action": ""})
    c.api("CONSUMER.INFO.T.dur")
    c.sub("_INBOX.p.*", "1")
    c.pub("$JS.API.CONSUMER.MSG.NEXT.T.dur", {"batch": 10, "no_wait": True}, "_INBOX.p.1")
    c.read_until_statuses(1)
    c.pub("$JS.API.CONSUMER.MSG.NEXT.T.dur", {"batch": 10, "expires": 50 * MS}, "_INBOX.p.2")
    c.read_until_statuses(1)
    c.api("CONSUMER.DELETE.T.dur")


@case(GROUP, "nats-py: subscribe")
def subscribe(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t.>"]}, is_kept=False)
    w = s.connect("w")
    w.sub("_INBOX.w", "1")
    w.flush()
    config = {
        "deliver_subject": "_INBOX.w",
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "filter_subject": "t.a",
        "replay_policy": "instant",
        "max_ack_pending": 65536,
    }
    c.api("CONSUMER.CREATE.T", {"stream_name": "T", "config": config})
    for n in range(2):
        c.request("t.a", f"m{n}", is_kept=False)
        (frame,) = w.read(1)
        assert frame.reply is not None
        w.pub(frame.reply.decode())


@case(GROUP, "nats-py: a queue subscription with a durable, twice")
def queue_subscribe(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t.>"]}, is_kept=False)
    config = {"durable_name": "q", "deliver_group": "q", "deliver_subject": "_INBOX.q", "ack_policy": "explicit"}
    c.api("CONSUMER.INFO.T.q")
    c.api("CONSUMER.DURABLE.CREATE.T.q", {"stream_name": "T", "config": config})
    c.api("CONSUMER.INFO.T.q")
    w = s.connect("w")
    w.sub("_INBOX.q", "1", "q")
    w.flush()
    c.request("t.a", "m", is_kept=False)
    w.read(1)
    c.api("CONSUMER.INFO.T.q")


@case(GROUP, "nats.js: consume, with heartbeats and bytes")
def consume_js(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t.>"]}, is_kept=False)
    for n in range(3):
        c.request("t.a", f"m{n}", is_kept=False)
    config = {"durable_name": "j", "name": "j", "ack_policy": "explicit", "max_ack_pending": 1000, "max_waiting": 512}
    c.api("CONSUMER.CREATE.T.j", {"stream_name": "T", "config": config, "action": "create"})
    c.sub("_INBOX.j.1", "1")
    body = {"batch": 100, "max_bytes": 0, "idle_heartbeat": 100 * MS, "expires": 400 * MS}
    c.pub("$JS.API.CONSUMER.MSG.NEXT.T.j", body, "_INBOX.j.1")
    c.read_until_statuses(1, "three messages, heartbeats")
    c.pub("$JS.API.CONSUMER.MSG.NEXT.T.j", body | {"max_bytes": 1_000_000}, "_INBOX.j.1")
    c.read_until_statuses(1)


@case(GROUP, "nats.js: an ordered consumer by pulling")
def ordered_js(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t.>"]}, is_kept=False)
    for n in range(3):
        c.request("t.a", f"m{n}", is_kept=False)
    config = {
        "name": "oc_1",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": 2,
        "ack_policy": "none",
        "inactive_threshold": 5 * 60 * NS,
        "num_replicas": 1,
        "mem_storage": True,
        "filter_subjects": ["t.a"],
    }
    c.api("CONSUMER.CREATE.T.oc_1", {"stream_name": "T", "config": config, "action": "create"})
    c.sub("_INBOX.o", "1")
    c.pub("$JS.API.CONSUMER.MSG.NEXT.T.oc_1", {"batch": 2, "expires": 60 * NS, "idle_heartbeat": 15 * NS}, "_INBOX.o")
    c.read(2)
    c.api("CONSUMER.DELETE.T.oc_1")
    c.api("CONSUMER.CREATE.T.oc_2", {"stream_name": "T", "config": config | {"name": "oc_2", "opt_start_seq": 4}})


@case(GROUP, "an ordered consumer by pushing, deleted and made again")
def ordered_push(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t.>"]}, is_kept=False)
    for n in range(4):
        c.request("t.a", f"m{n}", is_kept=False)
    w = s.connect("w")
    for n, start in ((1, {}), (2, {"deliver_policy": "by_start_sequence", "opt_start_seq": 3})):
        w.sub(f"_INBOX.w.{n}", str(n))
        w.flush()
        config = ordered(deliver_subject=f"_INBOX.w.{n}", idle_heartbeat=100 * MS, **start)
        answer = c.api("CONSUMER.CREATE.T", {"stream_name": "T", "config": config})
        w.read(4 if n == 1 else 2)
        w.read(1, "a heartbeat")
        c.api(f"CONSUMER.DELETE.T.{answer['name']}")


def store(s: Script) -> Connection:
    c = s.connect()
    config = {
        "name": "OBJ_o",
        "subjects": ["$O.o.C.>", "$O.o.M.>"],
        "discard": "new",
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        "num_replicas": 1,
    }
    c.api("STREAM.CREATE.OBJ_o", config, is_kept=False)
    for n in range(3):
        c.request("$O.o.C.NUID1", f"{n}".ljust(100, "x"), is_kept=False)
    c.request("$O.o.M.bmFtZQ==", '{"name":"name","nuid":"NUID1"}', ["Nats-Rollup: sub"], is_kept=False)
    c.request("$O.o.C.NUID2", "y" * 100, is_kept=False)
    c.request("$O.o.M.b3RoZXI=", '{"name":"other","nuid":"NUID2"}', ["Nats-Rollup: sub"], is_kept=False)
    return c


@case(GROUP, "objects: chunks are read by an ordered consumer")
def chunks(s: Script) -> None:
    c = store(s)
    w = s.connect("w")
    w.sub("_INBOX.w", "1")
    w.flush()
    config = ordered(deliver_subject="_INBOX.w", deliver_policy="all", filter_subject="$O.o.C.NUID1")
    c.api("CONSUMER.CREATE.OBJ_o", {"stream_name": "OBJ_o", "config": config})
    w.read(3)


@case(GROUP, "objects: watched and listed")
def watched(s: Script) -> None:
    c = store(s)
    w = s.connect("w")
    w.sub("_INBOX.w", "1")
    w.flush()
    config = ordered(deliver_subject="_INBOX.w", deliver_policy="last_per_subject", filter_subject="$O.o.M.>")
    c.api("CONSUMER.CREATE.OBJ_o", {"stream_name": "OBJ_o", "config": config})
    w.read(2)
    c.request("$O.o.M.bmFtZQ==", '{"name":"name","deleted":true}', ["Nats-Rollup: sub"], is_kept=False)
    w.read(1)
    c.api("STREAM.PURGE.OBJ_o", {"filter": "$O.o.C.NUID1"})


@case(GROUP, "objects: a large one, in chunks of 128 KiB")
def large(s: Script) -> None:
    c = s.connect()
    config = {"name": "OBJ_o", "subjects": ["$O.o.C.>", "$O.o.M.>"], "discard": "new", "allow_rollup_hdrs": True}
    c.api("STREAM.CREATE.OBJ_o", config, is_kept=False)
    for n in range(12):
        c.request("$O.o.C.N", f"{n:02d}".ljust(128 * 1024, "x"), is_kept=False)
    w = s.connect("w")
    w.sub("_INBOX.w", "1")
    w.flush()
    consumer = ordered(deliver_subject="_INBOX.w", deliver_policy="all", filter_subject="$O.o.C.N")
    c.api("CONSUMER.CREATE.OBJ_o", {"stream_name": "OBJ_o", "config": consumer})
    seen: list[str] = []

    def is_last(frame: Any) -> bool:
        if frame.headers is None:
            seen.append(frame.payload[:2].decode())
        elif frame.reply is not None:
            w.pub(frame.reply.decode())
        return len(seen) == 12

    w._read_until("", is_last, is_kept=False)
    s.value("chunks", seen)
