"""A stream's limits at work: count, bytes, age, per subject; discard; retention; transforms; republish; TTL."""

from __future__ import annotations

import time
from typing import Any

from parity.cases.publish_headers import everything
from parity.catalog import add, case
from parity.questions import NS, stream
from parity.script import Script

GROUP = "publish_limits"


def filling(config: dict[str, Any], subjects: list[str], size: int = 2) -> object:
    """Publish in turn, then look at everything."""

    def run(s: Script) -> None:
        c = s.connect()
        c.api("STREAM.CREATE.T", config, is_kept=False)
        for n, subject in enumerate(subjects):
            c.request(subject, str(n).rjust(size, "."))
        everything(c)

    return run


SAME = ["t.a"] * 5
MIXED = ["t.a", "t.b", "t.a", "t.c", "t.b", "t.a"]
FILLINGS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("max_msgs", {"max_msgs": 3}, SAME),
    ("max_msgs of one", {"max_msgs": 1}, MIXED),
    ("max_bytes", {"max_bytes": 110}, SAME),
    ("max_bytes that is smaller than a message", {"max_bytes": 10}, SAME[:2]),
    ("max_msgs_per_subject", {"max_msgs_per_subject": 1}, MIXED),
    ("max_msgs_per_subject of two", {"max_msgs_per_subject": 2}, MIXED),
    ("max_msgs_per_subject and max_msgs", {"max_msgs_per_subject": 2, "max_msgs": 3}, MIXED),
    ("max_msg_size", {"max_msg_size": 1}, SAME[:1]),
    ("discard new with max_msgs", {"discard": "new", "max_msgs": 3}, SAME),
    ("discard new with max_bytes", {"discard": "new", "max_bytes": 110}, SAME),
    ("discard new with max_bytes smaller than a message", {"discard": "new", "max_bytes": 10}, SAME[:2]),
    ("discard new with max_msgs_per_subject", {"discard": "new", "max_msgs_per_subject": 1}, MIXED),
    (
        "discard new per subject",
        {"discard": "new", "max_msgs_per_subject": 1, "discard_new_per_subject": True},
        MIXED,
    ),
    (
        "discard new per subject and max_msgs",
        {"discard": "new", "max_msgs_per_subject": 1, "discard_new_per_subject": True, "max_msgs": 2},
        MIXED,
    ),
    ("discard new with max_msgs and per subject", {"discard": "new", "max_msgs_per_subject": 1, "max_msgs": 2}, MIXED),
    (
        "discard new with max_bytes and per subject",
        {"discard": "new", "max_msgs_per_subject": 1, "max_bytes": 75},
        MIXED,
    ),
    ("interest without consumers", {"retention": "interest"}, MIXED),
    ("workqueue without consumers", {"retention": "workqueue"}, MIXED),
    ("interest with limits", {"retention": "interest", "max_msgs": 1, "discard": "new"}, SAME),
    ("workqueue with limits", {"retention": "workqueue", "max_msgs": 2, "discard": "new"}, SAME),
    ("a first sequence and max_msgs", {"first_seq": 50, "max_msgs": 2}, SAME),
]
for title, config, subjects in FILLINGS:
    add(GROUP, title, filling(stream(**config), subjects))
    add(GROUP, f"in memory: {title}", filling(stream(storage="memory", **config), subjects))

TRANSFORMS: list[tuple[str, str, str, list[str]]] = [
    ("a tail", "t.>", "u.>", ["t.a", "t.a.b"]),
    ("wildcards", "t.*.*", "u.{{wildcard(2)}}.{{wildcard(1)}}", ["t.a.b", "t.a", "t.a.b.c"]),
    ("the short form", "t.*.*", "u.$2.$1", ["t.a.b"]),
    ("what does not match stays", "t.x.*", "u.$1", ["t.x.a", "t.y.a"]),
    ("literal", "t.a", "u.fixed", ["t.a", "t.b"]),
    ("partition", "t.*.*", "u.{{partition(7,1,2)}}.$1.$2", ["t.a.b", "t.foo.bar", "t.1.2", "t.é.x"]),
    ("partition of one token", "t.*.*", "u.{{partition(3,2)}}.$1.$2", ["t.a.b", "t.foo.bar", "t.1.2"]),
    ("partition of everything", "t.*", "u.{{partition(10)}}.$1", ["t.a", "t.foo"]),
    ("split", "t.*", "u.{{split(1,-)}}", ["t.a-b-c", "t.abc", "t.-a-", "t.a--b"]),
    ("split from the left", "t.*", "u.{{splitfromleft(1,2)}}", ["t.abcdef", "t.a", "t.ab", "t.abc"]),
    ("split from the right", "t.*", "u.{{SplitFromRight(1,2)}}", ["t.abcdef", "t.a", "t.ab"]),
    ("slice from the left", "t.*", "u.{{SliceFromLeft(1,3)}}", ["t.abcdefgh", "t.abc", "t.a"]),
    ("slice from the right", "t.*", "u.{{sliceFromRight(1,3)}}", ["t.abcdefgh", "t.abc", "t.a"]),
    ("left", "t.*", "u.{{left(1,2)}}", ["t.abc", "t.ab", "t.a"]),
    ("right", "t.*", "u.{{right(1,2)}}", ["t.abc", "t.ab", "t.a"]),
    ("letters' case and blanks in functions", "t.*", "u.{{ Wildcard( 1 ) }}", ["t.abc"]),
    ("everything", ">", "all.>", ["t.a"]),
    ("a wildcard and a tail", "t.*.>", "u.$1.x.>", ["t.a.b", "t.a.b.c", "t.a"]),
    ("a token that repeats", "t.*", "u.$1.$1", ["t.a"]),
]


def transforming(src: str, dest: str, subjects: list[str]) -> object:
    def run(s: Script) -> None:
        c = s.connect()
        c.api("STREAM.CREATE.T", stream(subject_transform={"src": src, "dest": dest}))
        for subject in subjects:
            c.request(subject, subject)
        everything(c)

    return run


for title, src, dest, subjects in TRANSFORMS:
    add(GROUP, f"transform: {title}", transforming(src, dest, subjects))


@case(GROUP, "transform: per subject limits count the new subject")
def transform_limit(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(subject_transform={"src": "t.*", "dest": "u.x"}, max_msgs_per_subject=1))
    for subject in ("t.a", "t.b", "t.c"):
        c.request(subject, "x")
    everything(c)


def republishing(config: dict[str, Any], publishes: list[tuple[str, str, list[str] | None]]) -> object:
    def run(s: Script) -> None:
        c, listener = s.connect(), s.connect("b")
        listener.sub("re.>", "1")
        listener.flush()
        c.api("STREAM.CREATE.T", config)
        for subject, payload, headers in publishes:
            c.request(subject, payload, headers)
        listener.read(sum(1 for p in publishes if "NO" not in str(p[2])), "what was published again")

    return run


PUBLISHES: list[tuple[str, str, list[str] | None]] = [
    ("t.a", "1", None),
    ("t.b", "22", ["A: 1"]),
    ("t.a", "333", None),
    ("t.a", "", ["Nats-Msg-Id: 1", "B: 2"]),
    ("t.a", "x", ["Nats-Expected-Stream: NO"]),
    ("t.b", "last", None),
]
for title, more in [
    ("all", {"republish": {"src": "t.>", "dest": "re.>"}}),
    ("headers only", {"republish": {"src": "t.>", "dest": "re.>", "headers_only": True}}),
    ("by a mapping", {"republish": {"src": "t.*", "dest": "re.x.$1"}}),
    ("everything", {"republish": {"src": ">", "dest": "re.>"}}),
    ("in memory", {"republish": {"src": "t.>", "dest": "re.>"}, "storage": "memory"}),
]:
    add(GROUP, f"republish: {title}", republishing(stream(**more), PUBLISHES))


@case(GROUP, "republish: only what its source matches")
def republish_some(s: Script) -> None:
    c, listener = s.connect(), s.connect("b")
    listener.sub("re.>", "1")
    listener.flush()
    c.api("STREAM.CREATE.T", stream(republish={"src": "t.b", "dest": "re.b"}))
    for subject in ("t.a", "t.b", "t.a", "t.b"):
        c.request(subject, "x")
    listener.read(2, "what was published again")
    listener.flush("nothing else")


@case(GROUP, "republish: after a transform")
def republish_transformed(s: Script) -> None:
    c, listener = s.connect(), s.connect("b")
    listener.sub("re.>", "1")
    listener.flush()
    config = stream(subject_transform={"src": "t.*", "dest": "u.$1"}, republish={"src": "u.>", "dest": "re.>"})
    c.api("STREAM.CREATE.T", config)
    c.request("t.a", "x")
    c.request("t.a", "y", ["A: 1"])
    listener.read(2, "what was published again")


@case(GROUP, "republish: a duplicate is not published again")
def republish_duplicate(s: Script) -> None:
    c, listener = s.connect(), s.connect("b")
    listener.sub("re.>", "1")
    listener.flush()
    c.api("STREAM.CREATE.T", stream(republish={"src": "t.>", "dest": "re.>"}))
    for subject, id in (("t.a", "1"), ("t.a", "1"), ("t.b", "2")):
        c.request(subject, "x", [f"Nats-Msg-Id: {id}"])
    listener.read(2, "what was published again")


@case(GROUP, "republish: the sequence before, after a rollup and per subject limits")
def republish_last(s: Script) -> None:
    c, listener = s.connect(), s.connect("b")
    listener.sub("re.>", "1")
    listener.flush()
    config = stream(republish={"src": "t.>", "dest": "re.>"}, max_msgs_per_subject=1, allow_rollup_hdrs=True)
    c.api("STREAM.CREATE.T", config)
    for headers in (None, None, ["Nats-Rollup: all"], None):
        c.request("t.a", "x", headers)
    listener.read(4, "what was published again")


@case(GROUP, "republish: into another stream")
def republish_stream(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.R", {"name": "R", "subjects": ["re.>"]}, is_kept=False)
    c.api("STREAM.CREATE.T", stream(republish={"src": "t.>", "dest": "re.>"}), is_kept=False)
    for n in range(3):
        c.request("t.a", f"m{n}", ["A: 1"] if n == 1 else None)
    for _ in range(500):  # the sizes differ with the digits of times: only the messages are looked at
        if c.api("STREAM.INFO.R", is_kept=False)["state"]["messages"] == 3:
            break
    for seq in (1, 2, 3):
        c.api("STREAM.MSG.GET.R", {"seq": seq})


def gone(answer: dict[str, Any]) -> bool:
    return answer.get("state", {}).get("messages") == 0


@case(GROUP, "max_age takes messages away")
def max_age(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(max_age=NS // 5))
    c.request("t.a", "x")
    c.request("t.b", "x")
    c.until("STREAM.INFO.T", "", gone)
    c.request("t.a", "y")


@case(GROUP, "a message that never ends outlives max_age")
def never(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(max_age=NS // 5, allow_msg_ttl=True))
    c.request("t.a", "stays", ["Nats-TTL: never"])
    c.request("t.b", "goes")
    c.until("STREAM.INFO.T", "", lambda answer: answer["state"]["messages"] == 1)
    everything(c)


@case(GROUP, "a TTL takes a message away")
def ttl(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(allow_msg_ttl=True))
    c.request("t.a", "goes", ["Nats-TTL: 1"])
    c.request("t.a", "stays")
    c.until("STREAM.INFO.T", "", lambda answer: answer["state"]["messages"] == 1)
    everything(c)


@case(GROUP, "in memory: a TTL takes a message away")
def ttl_memory(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(allow_msg_ttl=True, storage="memory"))
    c.request("t.a", "goes", ["Nats-TTL: 1s"])
    c.request("t.a", "stays")
    c.until("STREAM.INFO.T", "", lambda answer: answer["state"]["messages"] == 1)
    everything(c)


@case(GROUP, "a delete marker after a TTL, and its own end")
def marker(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(subject_delete_marker_ttl=NS))
    c.request("t.a", "goes", ["Nats-TTL: 1s"])
    c.until("STREAM.INFO.T", "", lambda answer: answer["state"]["last_seq"] == 2)
    everything(c)
    c.until("STREAM.INFO.T", "", gone)


@case(GROUP, "a delete marker after max_age")
def marker_age(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(subject_delete_marker_ttl=3600 * NS, max_age=NS // 5))
    c.request("t.a", "goes")
    c.until("STREAM.INFO.T", "", lambda answer: answer["state"]["last_seq"] == 2)
    everything(c)


@case(GROUP, "a delete marker comes only for the last of a subject")
def marker_last(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(subject_delete_marker_ttl=90 * NS, allow_msg_ttl=True, max_msgs_per_subject=1))
    c.request("t.b", "stays")
    c.request("t.a", "goes", ["Nats-TTL: 1s"])
    c.until("STREAM.INFO.T", "", lambda answer: answer["state"]["last_seq"] >= 3)
    everything(c)


@case(GROUP, "a KV purge leaves no delete marker")
def marker_purge(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(subject_delete_marker_ttl=NS, max_msgs_per_subject=1))
    c.request("t.a", "", ["KV-Operation: PURGE", "Nats-Rollup: sub", "Nats-TTL: 1s"])
    c.until("STREAM.INFO.T", "", gone)


@case(GROUP, "a duplicate after the window is taken")
def window(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(duplicate_window=NS // 5))
    c.request("t.a", "x", ["Nats-Msg-Id: 1"])
    c.request("t.a", "x", ["Nats-Msg-Id: 1"])
    stop = time.monotonic() + 8
    while time.monotonic() < stop:
        frame = c.request("t.a", "x", ["Nats-Msg-Id: 1"], is_kept=False)
        if frame is None or b"duplicate" not in frame.payload:
            break
    c.request("t.a", "y", ["Nats-Msg-Id: 1"])
    c.api("STREAM.INFO.T")
