"""STREAM.INFO, NAMES, LIST and DELETE: shapes, filters, paging, odd requests."""

from __future__ import annotations

from parity.catalog import add, case
from parity.questions import NS, stream
from parity.script import Connection, Script

GROUP = "stream_info"


def filled(s: Script) -> Connection:
    """A stream T with five subjects, and sequences that are gone."""
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(), is_kept=False)
    for n in range(10):
        c.request(f"t.{n % 5}.x" if n % 5 else "t.0", f"m{n}", is_kept=False)
    for seq in (1, 4, 5, 9):
        c.api("STREAM.MSG.DELETE.T", {"seq": seq}, is_kept=False)
    return c


INFOS = [
    ("an empty request", ""),
    ("an empty object", "{}"),
    ("a list", "[]"),
    ("null", "null"),
    ("blanks", "   "),
    ("text that is no JSON", "x"),
    ("a string", '"x"'),
    ("a number", "5"),
    ("an object that is cut", "{"),
    ("an unknown field", '{"foo":1}'),
    ("deleted_details", '{"deleted_details":true}'),
    ("deleted_details as text", '{"deleted_details":"yes"}'),
    ("every subject", '{"subjects_filter":">"}'),
    ("a filter", '{"subjects_filter":"t.*"}'),
    ("a filter with a tail", '{"subjects_filter":"t.*.x"}'),
    ("a literal filter", '{"subjects_filter":"t.1.x"}'),
    ("a filter that nothing matches", '{"subjects_filter":"none"}'),
    ("a filter that is no subject", '{"subjects_filter":"t..x"}'),
    ("an empty filter", '{"subjects_filter":""}'),
    ("a filter and an offset", '{"subjects_filter":">","offset":2}'),
    ("a filter and an offset past the end", '{"subjects_filter":">","offset":99}'),
    ("a filter and an offset at the end", '{"subjects_filter":">","offset":5}'),
    ("a filter and a negative offset", '{"subjects_filter":">","offset":-1}'),
    ("an offset alone", '{"offset":3}'),
    ("a filter and deleted_details", '{"subjects_filter":">","deleted_details":true}'),
    ("a filter that is a number", '{"subjects_filter":5}'),
    ("an offset that is a fraction", '{"subjects_filter":">","offset":0.5}'),
    ("white space before the object", '  {"subjects_filter":">"}'),
]


def asking(request: str) -> object:
    def run(s: Script) -> None:
        filled(s).api("STREAM.INFO.T", request)

    return run


for title, request in INFOS:
    add(GROUP, f"info: {title}", asking(request))


@case(GROUP, "info: a stream that does not exist")
def info_nowhere(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.INFO.NONE")
    c.api("STREAM.INFO.NONE", {"subjects_filter": ">"})
    c.api("STREAM.INFO.NONE", "{")
    c.api("STREAM.INFO.a*b")


@case(GROUP, "info: an empty stream")
def info_empty(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream())
    c.api("STREAM.INFO.T")
    c.api("STREAM.INFO.T", {"subjects_filter": ">", "deleted_details": True})


@case(GROUP, "info: a memory stream")
def info_memory(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(storage="memory"))
    for n in range(4):
        c.request(f"t.{n}", "x" * n, ["A: 1"] if n == 2 else None)
    c.api("STREAM.MSG.DELETE.T", {"seq": 2})
    c.api("STREAM.INFO.T", {"subjects_filter": ">", "deleted_details": True})


@case(GROUP, "info: sizes of messages, file and memory")
def info_sizes(s: Script) -> None:
    c = s.connect()
    for name, storage in (("F", "file"), ("M", "memory")):
        c.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "storage": storage})
        for payload, headers in (
            ("", None),
            ("x", None),
            ("x" * 1000, None),
            ("", ["A: 1"]),
            ("y" * 10, ["A: 1", "B: 2"]),
        ):
            c.request(f"{name}.a", payload, headers, is_kept=False)
            c.api(f"STREAM.INFO.{name}")


@case(GROUP, "info: a stream after a purge")
def info_purged(s: Script) -> None:
    c = filled(s)
    c.api("STREAM.PURGE.T")
    c.api("STREAM.INFO.T", {"deleted_details": True})
    c.request("t.0", "x")
    c.api("STREAM.INFO.T")


@case(GROUP, "info: the first and the last message are deleted")
def info_ends(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream())
    for _ in range(4):
        c.request("t.a", "x", is_kept=False)
    c.api("STREAM.MSG.DELETE.T", {"seq": 4})
    c.api("STREAM.INFO.T", {"deleted_details": True})
    c.api("STREAM.MSG.DELETE.T", {"seq": 1})
    c.api("STREAM.INFO.T", {"deleted_details": True})
    c.api("STREAM.MSG.DELETE.T", {"seq": 2})
    c.api("STREAM.MSG.DELETE.T", {"seq": 3})
    c.api("STREAM.INFO.T", {"deleted_details": True})
    c.request("t.a", "x")
    c.api("STREAM.INFO.T", {"deleted_details": True})


@case(GROUP, "info: odd subjects")
def info_odd(s: Script) -> None:
    c = filled(s)
    c.sub("_INBOX.odd", "odd")
    for subject in ("STREAM.INFO", "STREAM.INFO.", "STREAM.INFO.T.x", "STREAM.INFO.*", "stream.info.T"):
        c.pub(f"$JS.API.{subject}", "", "_INBOX.odd")
    c.api("STREAM.INFO.T")
    c.api("STREAM.NAMES")


@case(GROUP, "names and list: no streams")
def no_streams(s: Script) -> None:
    c = s.connect()
    for request in ("", "{}", '{"offset":5}', '{"subject":"a"}'):
        c.api("STREAM.NAMES", request)
        c.api("STREAM.LIST", request)


PAGES = [
    ("an empty request", ""),
    ("an empty object", "{}"),
    ("an offset", '{"offset":1}'),
    ("an offset at the end", '{"offset":4}'),
    ("an offset past the end", '{"offset":99}'),
    ("a negative offset", '{"offset":-1}'),
    ("a subject", '{"subject":"a.x"}'),
    ("a subject with a wildcard", '{"subject":"*.x"}'),
    ("a subject that matches by a wildcard", '{"subject":"b.*"}'),
    ("everything", '{"subject":">"}'),
    ("a subject that nothing matches", '{"subject":"none"}'),
    ("a subject that is none", '{"subject":"a..b"}'),
    ("an empty subject", '{"subject":""}'),
    ("a subject with a blank", '{"subject":"a. x"}'),
    ("a subject that ends in a dot", '{"subject":"a."}'),
    ("a subject of one token and a dot", '{"subject":"A.more."}'),
    ("a subject that begins with a dot", '{"subject":".x"}'),
    ("a subject with a full wildcard in the middle", '{"subject":"A.>.x"}'),
    ("a subject of wildcards", '{"subject":"*.*.*"}'),
    ("a subject with wildcards inside of tokens", '{"subject":"A.mo*"}'),
    ("a subject and an offset", '{"subject":">","offset":2}'),
    ("a subject and an offset past the end", '{"subject":"a.x","offset":2}'),
    ("an unknown field", '{"foo":1}'),
    ("text for an offset", '{"offset":"1"}'),
    ("a number for a subject", '{"subject":1}'),
    ("a list", "[]"),
    ("null", "null"),
    ("text that is no JSON", "x"),
    ("an object that is cut", "{"),
    ("blanks", "  "),
]


def four_streams(s: Script) -> Connection:
    c = s.connect()
    for name in ("D", "B", "A", "C"):
        subjects = [f"{name.lower()}.*", f"{name}.more.>"]
        c.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects, "storage": "memory"}, is_kept=False)
    return c


def paging(endpoint: str, request: str) -> object:
    def run(s: Script) -> None:
        four_streams(s).api(endpoint, request)

    return run


for title, request in PAGES:
    add(GROUP, f"names: {title}", paging("STREAM.NAMES", request))
    add(GROUP, f"list: {title}", paging("STREAM.LIST", request))


@case(GROUP, "names and list: more than a page")
def more_than_a_page(s: Script) -> None:
    c = s.connect()
    for n in range(260):
        c.api(f"STREAM.CREATE.S{n:04d}", {"name": f"S{n:04d}", "storage": "memory"}, is_kept=False)
    for offset in (0, 250, 256, 260, 300):
        answer = c.api("STREAM.LIST", {"offset": offset}, is_kept=False)
        names = [stream["config"]["name"] for stream in answer.pop("streams") or []]
        s.value(f"LIST from {offset}", answer)
        s.value(f"its streams from {offset}", [len(names), names[:1], names[-1:]])
    names = c.api("STREAM.NAMES", is_kept=False).pop("streams")
    s.value("NAMES", [len(names), names[0], names[-1]])


@case(GROUP, "list: a stream with messages and metadata")
def list_state(s: Script) -> None:
    c = filled(s)
    c.api("STREAM.UPDATE.T", stream(metadata={"a": "1"}, description="<d>"))
    c.api("STREAM.LIST")


DELETES = [
    ("an empty request", ""),
    ("an empty object", "{}"),
    ("an empty object with blanks", "{ }"),
    ("blanks", " "),
    ("a list", "[]"),
    ("null", "null"),
    ("a field", '{"a":1}'),
    ("text", "x"),
]


def deleting(request: str) -> object:
    def run(s: Script) -> None:
        c = s.connect()
        c.api("STREAM.CREATE.T", stream(), is_kept=False)
        c.api("STREAM.DELETE.T", request)
        c.api("STREAM.NAMES")

    return run


for title, request in DELETES:
    add(GROUP, f"delete: {title}", deleting(request))


@case(GROUP, "delete: a stream that does not exist")
def delete_nowhere(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.DELETE.NONE")
    c.api("STREAM.DELETE.NONE", "x")


@case(GROUP, "delete: twice, and what was on its subjects")
def delete_twice(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(deny_delete=True, deny_purge=True))
    c.request("t.a", "x")
    c.api("STREAM.DELETE.T")
    c.api("STREAM.DELETE.T")
    c.request("t.a", "x")
    c.api("STREAM.INFO.T")


@case(GROUP, "names: after streams came and went")
def came_and_went(s: Script) -> None:
    c = four_streams(s)
    c.api("STREAM.DELETE.B")
    c.api("STREAM.NAMES")
    c.api("STREAM.NAMES", {"subject": "b.x"})
    c.api("STREAM.CREATE.E", {"name": "E", "subjects": ["b.>"], "max_age": 60 * NS})
    c.api("STREAM.NAMES", {"subject": "b.x"})
