"""DIRECT.GET: by sequence, last and next by subject, by time, batches, several last; each form's failures."""

from __future__ import annotations

from typing import Any

from parity.catalog import add, case
from parity.questions import stream
from parity.script import Connection, Script

GROUP = "direct_get"
PAST = "2020-01-01T00:00:00Z"
FUTURE = "2100-01-01T00:00:00Z"


def filled(s: Script, **more: Any) -> Connection:
    """Twelve messages on four subjects; 3, 6 and 7 are gone; every fourth has headers."""
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(allow_direct=True, **more), is_kept=False)
    for n in range(12):
        headers = ["A: 1", f"N: {n}"] if n % 4 == 1 else None
        c.request(f"t.{'abcd'[n % 4]}" + (".x" if n % 4 == 3 else ""), f"m{n}", headers, is_kept=False)
    for seq in (3, 6, 7):
        c.api("STREAM.MSG.DELETE.T", {"seq": seq}, is_kept=False)
    return c


ONE: list[tuple[str, str]] = [
    ("an empty request", ""),
    ("blanks", " "),
    ("an empty object", "{}"),
    ("what is no JSON", "x"),
    ("an object that is cut", '{"seq":1'),
    ("a list", "[]"),
    ("null", "null"),
    ("an unknown field", '{"seq":1,"foo":1}'),
    ("text for a sequence", '{"seq":"1"}'),
    ("a negative sequence", '{"seq":-1}'),
    ("a sequence", '{"seq":1}'),
    ("a sequence with headers", '{"seq":2}'),
    ("a sequence of zero", '{"seq":0}'),
    ("a sequence that is gone", '{"seq":3}'),
    ("a sequence past the end", '{"seq":99}'),
    ("a sequence without headers", '{"seq":2,"no_hdr":true}'),
    ("a sequence that is gone, without headers", '{"seq":3,"no_hdr":true}'),
    ("last by subject", '{"last_by_subj":"t.a"}'),
    ("last by subject with a wildcard", '{"last_by_subj":"t.*"}'),
    ("last of all", '{"last_by_subj":">"}'),
    ("last by a subject that is not there", '{"last_by_subj":"t.none"}'),
    ("last by a subject that is not ours", '{"last_by_subj":"none"}'),
    ("last by a bad subject", '{"last_by_subj":"t..a"}'),
    ("last by subject without headers", '{"last_by_subj":"t.b","no_hdr":true}'),
    ("next by subject", '{"next_by_subj":"t.a"}'),
    ("next by subject from a sequence", '{"seq":2,"next_by_subj":"t.a"}'),
    ("next by subject from that message", '{"seq":5,"next_by_subj":"t.a"}'),
    ("next by subject with a wildcard", '{"seq":6,"next_by_subj":"t.>"}'),
    ("next by subject past its last", '{"seq":10,"next_by_subj":"t.a"}'),
    ("next by subject past the end", '{"seq":99,"next_by_subj":"t.a"}'),
    ("next by a subject that is not there", '{"seq":1,"next_by_subj":"t.none"}'),
    ("next of all from one that is gone", '{"seq":6,"next_by_subj":">"}'),
    ("from a time before all", f'{{"start_time":"{PAST}"}}'),
    ("from a time after all", f'{{"start_time":"{FUTURE}"}}'),
    ("from a time by subject", f'{{"start_time":"{PAST}","next_by_subj":"t.b"}}'),
    ("from a time that is none", '{"start_time":"yesterday"}'),
    ("sequence and last", '{"seq":1,"last_by_subj":"t.a"}'),
    ("sequence and time", f'{{"seq":1,"start_time":"{PAST}"}}'),
    ("last and next", '{"last_by_subj":"t.a","next_by_subj":"t.a"}'),
    ("last and time", f'{{"last_by_subj":"t.a","start_time":"{PAST}"}}'),
    ("last and batch", '{"last_by_subj":"t.a","batch":2}'),
    ("last and several last", '{"last_by_subj":"t.a","multi_last":["t.b"]}'),
    ("next and several last", '{"next_by_subj":"t.a","multi_last":["t.b"]}'),
    ("both bounds", f'{{"multi_last":["t.a"],"up_to_seq":5,"up_to_time":"{FUTURE}"}}'),
    ("a batch without a sequence", '{"batch":2}'),
    ("a negative batch", '{"seq":1,"batch":-1}'),
    ("a batch of zero", '{"seq":1,"batch":0}'),
    ("max_bytes without a batch", '{"seq":1,"max_bytes":10}'),
    ("an empty list of several last", '{"multi_last":[]}'),
    ("several last that find nothing", '{"multi_last":["t.none"]}'),
    ("several last above the end", '{"multi_last":["t.>"],"seq":99}'),
    ("a bound without several last", '{"seq":1,"up_to_seq":5}'),
    ("no headers alone", '{"no_hdr":true}'),
]


def asking_one(request: str) -> object:
    def run(s: Script) -> None:
        filled(s).request("$JS.API.DIRECT.GET.T", request)

    return run


for title, request in ONE:
    add(GROUP, title, asking_one(request))

MANY: list[tuple[str, str]] = [
    ("a batch", '{"seq":1,"batch":3}'),
    ("a batch of one", '{"seq":1,"batch":1}'),
    ("a batch of all", '{"seq":1,"batch":100}'),
    ("a batch from zero", '{"seq":0,"batch":2,"next_by_subj":">"}'),
    ("a batch from one that is gone", '{"seq":6,"batch":2}'),
    ("a batch by subject", '{"seq":1,"batch":10,"next_by_subj":"t.a"}'),
    ("a batch by subject that ends before all came", '{"seq":1,"batch":2,"next_by_subj":"t.a"}'),
    ("a batch with a wildcard", '{"seq":2,"batch":4,"next_by_subj":"t.*"}'),
    ("a batch by subject without a sequence", '{"batch":2,"next_by_subj":"t.a"}'),
    ("a batch by a subject that is not there", '{"seq":1,"batch":2,"next_by_subj":"t.none"}'),
    ("a batch past the end", '{"seq":99,"batch":2}'),
    ("a batch at the end", '{"seq":12,"batch":5}'),
    ("a batch from a time", f'{{"start_time":"{PAST}","batch":2}}'),
    ("a batch from a time by subject", f'{{"start_time":"{PAST}","batch":2,"next_by_subj":"t.b"}}'),
    ("a batch from a time after all", f'{{"start_time":"{FUTURE}","batch":2}}'),
    ("a batch with max_bytes", '{"seq":1,"batch":10,"max_bytes":12}'),
    ("a batch with max_bytes of less than a message", '{"seq":1,"batch":10,"max_bytes":1}'),
    ("a batch with negative max_bytes", '{"seq":1,"batch":3,"max_bytes":-1}'),
    ("several last", '{"multi_last":["t.a","t.b"]}'),
    ("several last with a wildcard", '{"multi_last":["t.*"]}'),
    ("several last of all", '{"multi_last":[">"]}'),
    ("several last with one that is not there", '{"multi_last":["t.a","t.none"]}'),
    ("several last up to a sequence", '{"multi_last":["t.>"],"up_to_seq":5}'),
    ("several last up to a sequence past the end", '{"multi_last":["t.>"],"up_to_seq":99}'),
    ("several last up to a time after all", f'{{"multi_last":["t.>"],"up_to_time":"{FUTURE}"}}'),
    ("several last up to a time before all", f'{{"multi_last":["t.>"],"up_to_time":"{PAST}"}}'),
    ("several last from a sequence", '{"multi_last":["t.>"],"seq":10}'),
    ("several last with a batch", '{"multi_last":["t.>"],"batch":2}'),
    ("several last with a batch, from a sequence", '{"multi_last":["t.>"],"batch":2,"seq":10}'),
    ("several last with max_bytes", '{"multi_last":["t.>"],"max_bytes":12}'),
    ("several last from a time", f'{{"multi_last":["t.>"],"start_time":"{PAST}"}}'),
    ("several last of subjects that overlap", '{"multi_last":["t.a","t.*",">"]}'),
]


def asking_many(request: str, **more: Any) -> object:
    def run(s: Script) -> None:
        filled(s, **more).many("$JS.API.DIRECT.GET.T", request)

    return run


for title, request in MANY:
    add(GROUP, title, asking_many(request))
for title, request in MANY[:6] + MANY[18:24]:
    add(GROUP, f"in memory: {title}", asking_many(request, storage="memory"))

LAST: list[tuple[str, str, str]] = [
    ("a subject", "t.a", ""),
    ("a subject of three tokens", "t.d.x", ""),
    ("a subject that is not there", "t.none", ""),
    ("a wildcard", "t.*", ""),
    ("everything", ">", ""),
    ("an empty object", "t.a", "{}"),
    ("no headers", "t.b", '{"no_hdr":true}'),
    ("a sequence", "t.a", '{"seq":1}'),
    ("next by subject", "t.a", '{"next_by_subj":"t.b"}'),
    ("last by subject", "t.a", '{"last_by_subj":"t.b"}'),
    ("a batch", "t.a", '{"batch":2}'),
    ("max_bytes", "t.a", '{"max_bytes":5}'),
    ("what is no JSON", "t.a", "x"),
    ("an object that is cut", "t.a", "{"),
    ("an unknown field", "t.a", '{"foo":1}'),
    ("several last", "t.a", '{"multi_last":["t.b"]}'),
    ("a time", "t.a", f'{{"start_time":"{PAST}"}}'),
    ("a subject with an empty token", "t..a", ""),
]


def asking_last(subject: str, request: str) -> object:
    def run(s: Script) -> None:
        filled(s).request(f"$JS.API.DIRECT.GET.T.{subject}", request)

    return run


for title, subject, request in LAST:
    add(GROUP, f"by the API's subject: {title}", asking_last(subject, request))


@case(GROUP, "a stream without direct get, or none at all")
def no_direct(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(), is_kept=False)
    c.request("t.a", "x", is_kept=False)
    c.request("$JS.API.DIRECT.GET.T", {"seq": 1})
    c.request("$JS.API.DIRECT.GET.T.t.a")
    c.request("$JS.API.DIRECT.GET.NONE", {"seq": 1})
    c.request("$JS.API.DIRECT.GET")
    c.request("$JS.API.DIRECT.GET.")


@case(GROUP, "an empty stream")
def empty(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(allow_direct=True), is_kept=False)
    for request in ('{"seq":1}', '{"last_by_subj":">"}', '{"next_by_subj":">"}', '{"multi_last":[">"]}'):
        c.request("$JS.API.DIRECT.GET.T", request)
    c.many("$JS.API.DIRECT.GET.T", {"seq": 1, "batch": 2})
    c.request("$JS.API.DIRECT.GET.T.t.a")
    c.request("$JS.API.DIRECT.GET.T", {"start_time": PAST})


@case(GROUP, "headers of the message that look like ours")
def same_headers(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(allow_direct=True), is_kept=False)
    c.request("t.a", "x", ["Nats-Subject: mine", "Nats-Sequence: 77", "B: 2"], is_kept=False)
    c.request("t.a", "", ["B: 2"], first_line="NATS/1.0 503 Status", is_kept=False)
    c.request("t.a", "", is_kept=False)
    for seq in (1, 2, 3):
        c.request("$JS.API.DIRECT.GET.T", {"seq": seq})
        c.request("$JS.API.DIRECT.GET.T", {"seq": seq, "no_hdr": True})


@case(GROUP, "a client without headers")
def plain_client(s: Script) -> None:
    filled(s)
    b = s.connect("b", headers=False, no_responders=False)
    b.request("$JS.API.DIRECT.GET.T", {"seq": 2})
    b.request("$JS.API.DIRECT.GET.T", {"seq": 99})


@case(GROUP, "after a transform")
def transformed(s: Script) -> None:
    c = s.connect()
    config = stream(allow_direct=True, subject_transform={"src": "t.*", "dest": "u.$1"})
    c.api("STREAM.CREATE.T", config, is_kept=False)
    c.request("t.a", "x", is_kept=False)
    c.request("$JS.API.DIRECT.GET.T.u.a")
    c.request("$JS.API.DIRECT.GET.T.t.a")
    c.request("$JS.API.DIRECT.GET.T", {"last_by_subj": "u.*"})


@case(GROUP, "more than 1024 results")
def too_many(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(allow_direct=True, storage="memory"), is_kept=False)
    for n in range(1025):
        c.pub(f"t.{n}", "x")
    c.request("t.last", "x", is_kept=False)
    c.request("$JS.API.DIRECT.GET.T", {"multi_last": ["t.>"]})
    c.request("$JS.API.DIRECT.GET.T", {"multi_last": ["t.>"], "batch": 2})


@case(GROUP, "a large batch comes whole and in order")
def large(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(allow_direct=True), is_kept=False)
    for n in range(300):
        c.pub(f"t.{n % 10}", f"m{n}")
    c.request("t.last", "x", is_kept=False)
    c.send("SUB big 9\r\n")
    c.pub("$JS.API.DIRECT.GET.T", {"seq": 1, "batch": 290}, "big")
    frames = []
    while not frames or not (frames[-1].headers or b"").startswith(b"NATS/1.0 204"):
        frame = c._wire.receive()
        if frame.verb == "HMSG":
            frames.append(frame)
    s.value("how many", len(frames))
    s.value("bodies in order", [f.payload.decode() for f in frames[:-1]] == [f"m{n}" for n in range(290)])
    s.value("the end", c._told(frames[-1]))
