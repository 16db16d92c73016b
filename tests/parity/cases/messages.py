"""STREAM.MSG.GET and STREAM.MSG.DELETE."""

from __future__ import annotations

from typing import Any

from parity.cases.direct_get import FUTURE, PAST, filled
from parity.cases.publish_headers import everything
from parity.catalog import add, case
from parity.questions import stream
from parity.script import Script

GROUP = "messages"

GETS: list[tuple[str, str]] = [
    ("an empty request", ""),
    ("an empty object", "{}"),
    ("what is no JSON", "x"),
    ("blanks", " "),
    ("a list", "[]"),
    ("null", "null"),
    ("an object that is cut", '{"seq":1'),
    ("an unknown field", '{"seq":1,"foo":1}'),
    ("text for a sequence", '{"seq":"1"}'),
    ("a negative sequence", '{"seq":-1}'),
    ("a fraction of a sequence", '{"seq":1.5}'),
    ("a sequence", '{"seq":1}'),
    ("a sequence with headers", '{"seq":2}'),
    ("a sequence without headers", '{"seq":2,"no_hdr":true}'),
    ("a sequence of zero", '{"seq":0}'),
    ("a sequence that is gone", '{"seq":3}'),
    ("a sequence past the end", '{"seq":99}'),
    ("last by subject", '{"last_by_subj":"t.a"}'),
    ("last by subject with a wildcard", '{"last_by_subj":"t.*"}'),
    ("last by a subject that is not there", '{"last_by_subj":"t.none"}'),
    ("last by a bad subject", '{"last_by_subj":"t..a"}'),
    ("next by subject", '{"next_by_subj":"t.a"}'),
    ("next by subject from a sequence", '{"seq":2,"next_by_subj":"t.a"}'),
    ("next by subject with a wildcard", '{"seq":6,"next_by_subj":"t.>"}'),
    ("next by subject past its last", '{"seq":10,"next_by_subj":"t.a"}'),
    ("next by a subject that is not there", '{"seq":1,"next_by_subj":"t.none"}'),
    ("from a time before all", f'{{"start_time":"{PAST}"}}'),
    ("from a time after all", f'{{"start_time":"{FUTURE}"}}'),
    ("from a time by subject", f'{{"start_time":"{PAST}","next_by_subj":"t.b"}}'),
    ("from a time that is none", '{"start_time":"yesterday"}'),
    ("from a time without a zone", '{"start_time":"2020-01-01T00:00:00"}'),
    ("from a time in another zone", '{"start_time":"2020-01-01T01:00:00+01:00"}'),
    ("from a time with an hour of one digit", '{"start_time":"2020-01-01T0:00:00Z"}'),
    ("from a time with a day of one digit", '{"start_time":"2020-01-1T00:00:00Z"}'),
    ("from a time with letters in the hour", '{"start_time":"2020-01-01T0x0:00:00Z"}'),
    ("from a time in the thirteenth month", '{"start_time":"2020-13-01T00:00:00Z"}'),
    ("from a time on the thirtieth of February", '{"start_time":"2020-02-30T00:00:00Z"}'),
    ("from a time in the twenty-fifth hour", '{"start_time":"2020-01-01T25:00:00Z"}'),
    ("from a time with a fraction", '{"start_time":"2020-01-01T00:00:00.123456789123Z"}'),
    ("from a time with a comma", '{"start_time":"2020-01-01T00:00:00,5Z"}'),
    ("from a time in small letters", '{"start_time":"2020-01-01t00:00:00z"}'),
    ("from a time with more after it", '{"start_time":"2020-01-01T00:00:00Zx"}'),
    ("from a time that is empty", '{"start_time":""}'),
    ("from a time that is null", '{"seq":1,"start_time":null}'),
    ("from a time that is a number", '{"start_time":1577836800}'),
    ("from the year 0", '{"start_time":"0000-01-01T00:00:00Z"}'),
    ("from the year 10000", '{"start_time":"10000-01-01T00:00:00Z"}'),
    ("sequence and last", '{"seq":1,"last_by_subj":"t.a"}'),
    ("sequence and time", f'{{"seq":1,"start_time":"{PAST}"}}'),
    ("last and next", '{"last_by_subj":"t.a","next_by_subj":"t.a"}'),
    ("last and time", f'{{"last_by_subj":"t.a","start_time":"{PAST}"}}'),
    ("last and batch", '{"last_by_subj":"t.a","batch":2}'),
    ("a batch", '{"seq":1,"batch":2}'),
    ("several last", '{"multi_last":["t.a"]}'),
    ("max_bytes", '{"seq":1,"max_bytes":2}'),
    ("up to a sequence", '{"seq":1,"up_to_seq":2}'),
    ("no headers alone", '{"no_hdr":true}'),
]


def getting(request: str, **more: Any) -> object:
    def run(s: Script) -> None:
        filled(s, **more).api("STREAM.MSG.GET.T", request)

    return run


for title, request in GETS:
    add(GROUP, f"get: {title}", getting(request))
for title, request in GETS[11:30]:
    add(GROUP, f"get, in memory: {title}", getting(request, storage="memory"))


@case(GROUP, "get: a stream that does not exist")
def get_nowhere(s: Script) -> None:
    c = s.connect()
    for request in ("", "{}", '{"seq":1}', "{", '{"seq":1,"last_by_subj":"a"}'):
        c.api("STREAM.MSG.GET.NONE", request)


@case(GROUP, "get: an empty stream")
def get_empty(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(), is_kept=False)
    for request in ('{"seq":1}', '{"last_by_subj":">"}', '{"next_by_subj":">"}', f'{{"start_time":"{PAST}"}}'):
        c.api("STREAM.MSG.GET.T", request)


@case(GROUP, "get: payloads and headers of every kind")
def get_kinds(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(), is_kept=False)
    for payload, headers in (
        (b"", None),
        (bytes(range(256)), None),
        (b"<a href='x'>&</a>", None),
        (b"x", []),
        (b"", ["A: 1"]),
        (b"x" * 700, ["A: 1", "A: 2", "C:"]),
    ):
        c.request("t.a", payload, headers)
    c.request("t.é<>&", b"x")
    everything(c)


@case(GROUP, "get: a subject and a payload that are not UTF-8")
def get_not_utf8(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(allow_direct=True), is_kept=False)
    c.sub("acks", "acks")
    c.send(b"PUB t.\xff\xfe acks 2\r\n\xff\xfe\r\n")
    c.read(1)
    c.send(b"PUB t.\xc3.\xa9 acks 0\r\n\r\n")
    c.read(1)
    everything(c)
    c.request("$JS.API.DIRECT.GET.T", {"seq": 1})


@case(GROUP, "get: odd subjects of the API")
def get_odd(s: Script) -> None:
    c = filled(s)
    c.sub("_INBOX.odd", "odd")
    for subject in ("STREAM.MSG.GET", "STREAM.MSG.GET.T.t.a", "STREAM.MSG.NOSUCH.T"):
        c.pub(f"$JS.API.{subject}", {"seq": 1}, "_INBOX.odd")
    c.api("STREAM.MSG.GET.T", {"seq": 1})


DELETES: list[tuple[str, str]] = [
    ("an empty request", ""),
    ("an empty object", "{}"),
    ("what is no JSON", "x"),
    ("a list", "[]"),
    ("null", "null"),
    ("an object that is cut", '{"seq":1'),
    ("an unknown field", '{"seq":1,"foo":1}'),
    ("text for a sequence", '{"seq":"1"}'),
    ("a negative sequence", '{"seq":-1}'),
    ("a sequence", '{"seq":4}'),
    ("the first", '{"seq":1}'),
    ("the last", '{"seq":12}'),
    ("without erasing", '{"seq":4,"no_erase":true}'),
    ("a sequence of zero", '{"seq":0}'),
    ("a sequence that is gone", '{"seq":3}'),
    ("a sequence past the end", '{"seq":99}'),
    ("just past the end", '{"seq":13}'),
    ("text for no_erase", '{"seq":4,"no_erase":"yes"}'),
]


def deleting(request: str, **more: Any) -> object:
    def run(s: Script) -> None:
        c = filled(s, **more)
        c.api("STREAM.MSG.DELETE.T", request)
        c.api("STREAM.INFO.T", {"deleted_details": True, "subjects_filter": ">"})

    return run


for title, request in DELETES:
    add(GROUP, f"delete: {title}", deleting(request))
for title, request in DELETES[9:17]:
    add(GROUP, f"delete, in memory: {title}", deleting(request, storage="memory"))


@case(GROUP, "delete: a stream that does not exist")
def delete_nowhere(s: Script) -> None:
    c = s.connect()
    for request in ("", "{}", '{"seq":1}', "{"):
        c.api("STREAM.MSG.DELETE.NONE", request)


@case(GROUP, "delete: twice")
def delete_twice(s: Script) -> None:
    c = filled(s)
    c.api("STREAM.MSG.DELETE.T", {"seq": 4})
    c.api("STREAM.MSG.DELETE.T", {"seq": 4})
    c.api("STREAM.MSG.GET.T", {"seq": 4})


@case(GROUP, "delete: a stream that denies it")
def delete_denied(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(deny_delete=True), is_kept=False)
    c.request("t.a", "x")
    c.api("STREAM.MSG.DELETE.T", {"seq": 1})
    c.api("STREAM.MSG.DELETE.T", {"seq": 9})
    c.api("STREAM.MSG.DELETE.T", {"seq": 1, "no_erase": True})


@case(GROUP, "delete: an empty stream")
def delete_empty(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(), is_kept=False)
    c.api("STREAM.MSG.DELETE.T", {"seq": 1})
    c.api("STREAM.MSG.DELETE.T", {"seq": 0})


@case(GROUP, "delete: everything, one by one")
def delete_all(s: Script) -> None:
    c = filled(s)
    for seq in (2, 12, 1, 4, 5, 8, 9, 10, 11):
        c.api("STREAM.MSG.DELETE.T", {"seq": seq}, is_kept=False)
        c.api("STREAM.INFO.T", {"deleted_details": True})
    c.request("t.a", "x")
    c.api("STREAM.INFO.T", {"deleted_details": True})
