"""Key-value buckets as clients use them: a stream KV_<bucket>, publishes with headers, direct gets, purges."""

from __future__ import annotations

from typing import Any

from parity.cases.publish_headers import everything
from parity.catalog import case
from parity.questions import NS
from parity.script import Connection, Script

GROUP = "key_value"


def bucket(s: Script, **more: Any) -> Connection:
    c = s.connect()
    config = {
        "name": "KV_b",
        "subjects": ["$KV.b.>"],
        "max_msgs_per_subject": 1,
        "discard": "new",
        "deny_delete": True,
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        "num_replicas": 1,
        **more,
    }
    c.api("STREAM.CREATE.KV_b", config)
    return c


def expect(seq: int) -> list[str]:
    return [f"Nats-Expected-Last-Subject-Sequence: {seq}"]


DEL = ["KV-Operation: DEL"]
PURGE = ["KV-Operation: PURGE", "Nats-Rollup: sub"]


def get(c: Connection, key: str) -> None:
    c.request(f"$JS.API.DIRECT.GET.KV_b.$KV.b.{key}")


@case(GROUP, "put and get")
def put_get(s: Script) -> None:
    c = bucket(s)
    get(c, "k")
    c.request("$KV.b.k", "v1")
    get(c, "k")
    c.request("$KV.b.k", "v2")
    get(c, "k")
    c.api("STREAM.MSG.GET.KV_b", {"last_by_subj": "$KV.b.k"})
    c.request("$JS.API.DIRECT.GET.KV_b", {"seq": 1})
    c.request("$JS.API.DIRECT.GET.KV_b", {"seq": 2})
    everything(c, "KV_b")


@case(GROUP, "create")
def create(s: Script) -> None:
    c = bucket(s)
    c.request("$KV.b.k", "v1", expect(0))
    c.request("$KV.b.k", "v2", expect(0))
    c.request("$KV.b.k", "", DEL)
    c.request("$KV.b.k", "v2", expect(0))
    get(c, "k")
    c.request("$KV.b.k", "v2", expect(2))
    get(c, "k")


@case(GROUP, "update")
def update(s: Script) -> None:
    c = bucket(s)
    c.request("$KV.b.k", "v1")
    c.request("$KV.b.other", "v1")
    c.request("$KV.b.k", "v2", expect(1))
    c.request("$KV.b.k", "v3", expect(1))
    c.request("$KV.b.k", "v3", expect(2))
    everything(c, "KV_b")


@case(GROUP, "delete and purge")
def delete(s: Script) -> None:
    c = bucket(s, max_msgs_per_subject=5)
    for n in range(3):
        c.request("$KV.b.k", f"v{n}")
    c.request("$KV.b.k", "", DEL)
    get(c, "k")
    c.request("$KV.b.k", "", [*DEL, *expect(1)])
    c.request("$KV.b.k", "", PURGE)
    get(c, "k")
    everything(c, "KV_b")


@case(GROUP, "history is kept up to its length")
def history(s: Script) -> None:
    c = bucket(s, max_msgs_per_subject=3)
    for n in range(5):
        c.request("$KV.b.k", f"v{n}")
    c.request("$KV.b.z", "z")
    everything(c, "KV_b")


@case(GROUP, "messages cannot be deleted one by one, the bucket can be purged")
def deny(s: Script) -> None:
    c = bucket(s)
    c.request("$KV.b.k", "v")
    c.request("$KV.b.z", "v")
    c.api("STREAM.MSG.DELETE.KV_b", {"seq": 1})
    c.api("STREAM.PURGE.KV_b", {"filter": "$KV.b.k", "keep": 1})
    c.api("STREAM.PURGE.KV_b", {"filter": "$KV.b.k"})
    everything(c, "KV_b")


@case(GROUP, "buckets are found by their subjects")
def find(s: Script) -> None:
    c = bucket(s)
    c.api("STREAM.CREATE.OTHER", {"name": "OTHER"})
    c.api("STREAM.NAMES", {"subject": "$KV.*.>"})
    c.api("STREAM.LIST", {"subject": "$KV.*.>"})


@case(GROUP, "a bucket that is full")
def full(s: Script) -> None:
    c = bucket(s, max_bytes=120)
    c.request("$KV.b.a", "x" * 20)
    c.request("$KV.b.b", "x" * 20)
    c.request("$KV.b.a", "y" * 20)
    c.request("$KV.b.a", "y" * 60)
    everything(c, "KV_b")


@case(GROUP, "values that are too large")
def too_large(s: Script) -> None:
    c = bucket(s, max_msg_size=10)
    c.request("$KV.b.k", "x" * 10)
    c.request("$KV.b.k", "x" * 11)


@case(GROUP, "limit markers and TTLs")
def markers(s: Script) -> None:
    c = bucket(s, allow_msg_ttl=True, subject_delete_marker_ttl=2 * NS, max_age=3600 * NS)
    c.request("$KV.b.k", "v", ["Nats-TTL: 60s"])
    c.request("$KV.b.k", "", [*PURGE, "Nats-TTL: 60s"])
    c.request("$KV.b.z", "v", ["Nats-TTL: 1s"])
    c.request("$KV.b.z", "v", [*expect(0), "Nats-TTL: 5s"])
    everything(c, "KV_b")


@case(GROUP, "keys of odd forms")
def odd_keys(s: Script) -> None:
    c = bucket(s)
    for key in ("a.b.c", "a-b_c=d/e", "é", "*", ">", "A", "a..b"):
        c.request(f"$KV.b.{key}", key)
        get(c, key)


@case(GROUP, "many keys at once")
def many_keys(s: Script) -> None:
    c = bucket(s)
    for n in range(5):
        c.request(f"$KV.b.k{n}", f"v{n}", is_kept=False)
    c.many("$JS.API.DIRECT.GET.KV_b", {"multi_last": ["$KV.b.k1", "$KV.b.k3", "$KV.b.none"]})
    c.many("$JS.API.DIRECT.GET.KV_b", {"multi_last": ["$KV.b.>"]})
    c.many("$JS.API.DIRECT.GET.KV_b", {"batch": 3, "seq": 1, "next_by_subj": "$KV.b.>"})


@case(GROUP, "a bucket that is republished")
def republished(s: Script) -> None:
    listener = s.connect("b")
    listener.sub("copy.>", "1")
    listener.flush()
    c = bucket(s, republish={"src": "$KV.b.>", "dest": "copy.>"})
    c.request("$KV.b.k", "v")
    c.request("$KV.b.k", "", DEL)
    listener.read(2)


@case(GROUP, "an object store's stream")
def objects(s: Script) -> None:
    c = s.connect()
    config = {
        "name": "OBJ_o",
        "subjects": ["$O.o.C.>", "$O.o.M.>"],
        "discard": "new",
        "allow_rollup_hdrs": True,
        "allow_direct": True,
    }
    c.api("STREAM.CREATE.OBJ_o", config)
    c.request("$JS.API.DIRECT.GET.OBJ_o.$O.o.M.bmFtZQ==")
    for _ in range(3):
        c.request("$O.o.C.NUID1", "x" * 100)
    c.request("$O.o.M.bmFtZQ==", '{"name":"name","nuid":"NUID1"}', ["Nats-Rollup: sub"])
    c.request("$O.o.C.NUID2", "x" * 100)
    c.request("$O.o.M.bmFtZQ==", '{"name":"name","nuid":"NUID2"}', ["Nats-Rollup: sub"])
    c.api("STREAM.PURGE.OBJ_o", {"filter": "$O.o.C.NUID1"})
    c.request("$JS.API.DIRECT.GET.OBJ_o.$O.o.M.bmFtZQ==")
    c.api("STREAM.MSG.GET.OBJ_o", {"last_by_subj": "$O.o.M.bmFtZQ=="})
    c.api("STREAM.UPDATE.OBJ_o", config | {"sealed": True})
    c.request("$O.o.C.NUID2", "x")
    c.api("STREAM.INFO.OBJ_o")
