"""STREAM.PURGE: all, up to a sequence, but for the last, by subject."""

from __future__ import annotations

from typing import Any

from parity.cases.direct_get import filled
from parity.catalog import add, case
from parity.questions import stream
from parity.script import Script

GROUP = "purge"

PURGES: list[tuple[str, str]] = [
    ("an empty request", ""),
    ("an empty object", "{}"),
    ("blanks", " "),
    ("what is no JSON", "x"),
    ("a list", "[]"),
    ("null", "null"),
    ("an object that is cut", '{"seq":1'),
    ("an unknown field", '{"foo":1}'),
    ("text for a sequence", '{"seq":"1"}'),
    ("a negative sequence", '{"seq":-1}'),
    ("a negative keep", '{"keep":-1}'),
    ("a number for a filter", '{"filter":1}'),
    ("sequence and keep", '{"seq":5,"keep":1}'),
    ("sequence, keep and filter", '{"seq":5,"keep":1,"filter":"t.a"}'),
    ("up to a sequence", '{"seq":5}'),
    ("up to the first", '{"seq":1}'),
    ("up to one that is gone", '{"seq":7}'),
    ("up to the last", '{"seq":12}'),
    ("up to past the end", '{"seq":13}'),
    ("up to far past the end", '{"seq":99}'),
    ("up to zero", '{"seq":0}'),
    ("but for one", '{"keep":1}'),
    ("but for three", '{"keep":3}'),
    ("but for more than there are", '{"keep":99}'),
    ("but for as many as there are", '{"keep":9}'),
    ("but for zero", '{"keep":0}'),
    ("a subject", '{"filter":"t.a"}'),
    ("a wildcard", '{"filter":"t.*"}'),
    ("everything", '{"filter":">"}'),
    ("a tail", '{"filter":"t.d.>"}'),
    ("a subject that is not there", '{"filter":"t.none"}'),
    ("a subject that is not ours", '{"filter":"none.>"}'),
    ("a subject that is none", '{"filter":"t..a"}'),
    ("an empty subject", '{"filter":""}'),
    ("a subject up to a sequence", '{"filter":"t.a","seq":6}'),
    ("a subject up to its own sequence", '{"filter":"t.a","seq":5}'),
    ("a wildcard up to a sequence", '{"filter":"t.*","seq":6}'),
    ("everything up to a sequence", '{"filter":">","seq":6}'),
    ("a subject but for one", '{"filter":"t.a","keep":1}'),
    ("a wildcard but for two", '{"filter":"t.*","keep":2}'),
    ("everything but for two", '{"filter":">","keep":2}'),
    ("a subject but for more than there are", '{"filter":"t.a","keep":99}'),
    ("the stream's own subjects", '{"filter":"t.>"}'),
    ("white space before the object", '  {"keep":1}'),
]


def purging(request: str, **more: Any) -> object:
    def run(s: Script) -> None:
        c = filled(s, **more)
        c.api("STREAM.PURGE.T", request)
        c.api("STREAM.INFO.T", {"deleted_details": True, "subjects_filter": ">"})
        c.request("t.a", "x")
        c.api("STREAM.INFO.T", {"deleted_details": True, "subjects_filter": ">"})

    return run


for title, request in PURGES:
    add(GROUP, title, purging(request))
for title, request in PURGES[14:43]:
    add(GROUP, f"in memory: {title}", purging(request, storage="memory"))


@case(GROUP, "a stream that does not exist")
def nowhere(s: Script) -> None:
    c = s.connect()
    for request in ("", "{}", '{"seq":1}', "{", '{"seq":1,"keep":1}'):
        c.api("STREAM.PURGE.NONE", request)


@case(GROUP, "a stream that denies it")
def denied(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(deny_purge=True), is_kept=False)
    c.request("t.a", "x")
    c.api("STREAM.PURGE.T")
    c.api("STREAM.PURGE.T", {"filter": "t.none"})
    c.api("STREAM.PURGE.T", {"seq": 1, "keep": 1})
    c.api("STREAM.PURGE.T", "{")


@case(GROUP, "an empty stream, and twice")
def empty(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(), is_kept=False)
    c.api("STREAM.PURGE.T")
    c.api("STREAM.INFO.T")
    c.request("t.a", "x")
    c.api("STREAM.PURGE.T")
    c.api("STREAM.PURGE.T")
    c.api("STREAM.INFO.T")
    c.api("STREAM.PURGE.T", {"seq": 10})
    c.api("STREAM.INFO.T")
    c.request("t.a", "x")


@case(GROUP, "an empty stream, by subject")
def empty_filter(s: Script) -> None:
    c = s.connect()
    for name, storage in (("F", "file"), ("M", "memory")):
        c.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "storage": storage}, is_kept=False)
        for request in (
            {"filter": f"{name}.>"},
            {"filter": "x"},
            {"filter": f"{name}.a", "seq": 5},
            {"keep": 2},
            {"seq": 5},
        ):
            c.api(f"STREAM.PURGE.{name}", request)
            c.api(f"STREAM.INFO.{name}")


@case(GROUP, "ids are remembered after a purge")
def ids(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(), is_kept=False)
    c.request("t.a", "x", ["Nats-Msg-Id: 1"])
    c.api("STREAM.PURGE.T")
    c.request("t.a", "x", ["Nats-Msg-Id: 1"])
    c.request("t.a", "x", ["Nats-Expected-Last-Msg-Id: 1"])
    c.request("t.a", "x", ["Nats-Expected-Last-Subject-Sequence: 0"])
    c.request("t.a", "x", ["Nats-Expected-Last-Sequence: 1"])


@case(GROUP, "with a first sequence")
def first_seq(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(first_seq=100), is_kept=False)
    c.api("STREAM.PURGE.T")
    c.api("STREAM.INFO.T")
    c.request("t.a", "x")
    c.api("STREAM.PURGE.T", {"seq": 100})
    c.api("STREAM.INFO.T")
