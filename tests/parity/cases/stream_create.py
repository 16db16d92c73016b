"""STREAM.CREATE: every field, its default and its limits; creating again; names and overlaps.

Most questions stand in tables/stream_questions.py, where the configuration's own tests use them without a server.
"""

from __future__ import annotations

from typing import Any

from parity.catalog import add, case
from parity.questions import AGAIN, CREATE, NS, stream, stream_of
from parity.script import Script

GROUP = "stream_create"


HEAR_THEMSELVES = ({">"}, {"$JS.API.>"}, {"$JS.EVENT.ADVISORY.>"})  # what they have taken by then is chance


def creating(request: dict[str, Any] | str, name: str = "") -> object:
    is_quiet = not isinstance(request, dict) or set(request.get("subjects") or ()) not in HEAR_THEMSELVES

    def run(s: Script) -> None:
        c = s.connect()
        answer = c.api(f"STREAM.CREATE.{name or stream_of(request)}", request, is_kept=is_quiet)
        if not is_quiet:
            s.value("configuration or error", answer.get("error") or answer["config"])
        elif "error" not in answer:
            c.api(f"STREAM.INFO.{answer['config']['name']}")

    return run


def creating_twice(first: dict[str, Any], second: dict[str, Any]) -> object:
    def run(s: Script) -> None:
        c = s.connect()
        c.api("STREAM.CREATE.T", first)
        c.request("t.a", "x")
        c.api("STREAM.CREATE.T", second)

    return run


T = {"src": "t.>", "dest": "u.>"}
MORE: list[tuple[str, dict[str, Any] | str]] = [
    ("interest", stream(retention="interest")),
    ("workqueue", stream(retention="workqueue")),
    ("interest in memory", stream(retention="interest", storage="memory")),
    ("a subject transform", stream(subject_transform=T)),
    ("a transform with wildcards", stream(subject_transform={"src": "t.*.*", "dest": "u.{{wildcard(2)}}.$1"})),
    (
        "a transform with partitions",
        stream(subject_transform={"src": "t.*", "dest": "u.{{partition(5,1)}}.{{wildcard(1)}}"}),
    ),
    ("a transform with split", stream(subject_transform={"src": "t.*", "dest": "u.{{split(1,-)}}"})),
    (
        "a transform with slices",
        stream(subject_transform={"src": "t.*", "dest": "u.{{sliceFromLeft(1,2)}}.{{left(1,3)}}"}),
    ),
    ("a transform of everything", stream(subject_transform={"src": ">", "dest": "all.>"})),
    ("a transform without a source", stream(subject_transform={"src": "", "dest": "u.>"})),
    ("a transform without a destination", stream(subject_transform={"src": "t.>", "dest": ""})),
    ("a transform of nothing", stream(subject_transform={})),
    ("a transform with a bad source", stream(subject_transform={"src": "t..a", "dest": "u.>"})),
    ("a transform with a bad destination", stream(subject_transform={"src": "t.>", "dest": "u..a"})),
    ("a transform with a wildcard as destination", stream(subject_transform={"src": "t.*", "dest": "u.*"})),
    ("a transform with a tail on one side", stream(subject_transform={"src": "t.>", "dest": "u.a"})),
    ("a transform with a tail on the other side", stream(subject_transform={"src": "t.a", "dest": "u.>"})),
    ("a transform that leaves a wildcard out", stream(subject_transform={"src": "t.*.*", "dest": "u.$1"})),
    ("a transform of a wildcard that is not there", stream(subject_transform={"src": "t.*", "dest": "u.$2"})),
    ("a transform with an unknown function", stream(subject_transform={"src": "t.*", "dest": "u.{{foo(1)}}"})),
    ("a transform with bad arguments", stream(subject_transform={"src": "t.*", "dest": "u.{{wildcard(x)}}"})),
    ("a transform with too few arguments", stream(subject_transform={"src": "t.*", "dest": "u.{{split(1)}}"})),
    ("a transform with too many arguments", stream(subject_transform={"src": "t.*", "dest": "u.{{wildcard(1,2)}}"})),
    ("a transform with no partitions", stream(subject_transform={"src": "t.*", "dest": "u.{{partition(0,1)}}"})),
    ("a transform with random", stream(subject_transform={"src": "t.*", "dest": "u.{{random(5)}}.$1"})),
    ("a transform with an unknown field", stream(subject_transform={"src": "t.*", "dest": "u.$1", "foo": 1})),
    ("a transform that is text", stream(subject_transform="t.>")),
    ("republish", stream(republish=T)),
    ("republish headers only", stream(republish=T | {"headers_only": True})),
    ("republish with a blank in the destination", stream(republish={"src": "t.*", "dest": "t.{{split(1, )}}"})),
    ("republish with a blank in another destination", stream(republish={"src": "t.*", "dest": "u.{{split(1, )}}"})),
    ("republish to everything", stream(republish={"dest": ">"})),
    ("republish without a source", stream(republish={"dest": "u.>"})),
    ("republish of one subject", stream(republish={"src": "t.a", "dest": "u.a"})),
    ("republish without a destination", stream(republish={"src": "t.>"})),
    ("republish of nothing", stream(republish={})),
    ("republish to its own subjects", stream(republish={"src": "t.>", "dest": "t.x.>"})),
    ("republish to its own subject by a wildcard", stream(republish={"src": "t.*", "dest": "t.$1"})),
    ("republish with a bad source", stream(republish={"src": "t..a", "dest": "u.>"})),
    ("republish with a source that is not ours", stream(republish={"src": "v.>", "dest": "u.>"})),
    ("republish with a bad transform", stream(republish={"src": "t.*", "dest": "u.$3"})),
    ("republish with a tail on one side", stream(republish={"src": "t.>", "dest": "u.a"})),
    ("republish with text as a flag", stream(republish=T | {"headers_only": "yes"})),
    ("delete markers", stream(subject_delete_marker_ttl=NS)),
    ("delete markers of less than a second", stream(subject_delete_marker_ttl=NS - 1)),
    ("delete markers below zero", stream(subject_delete_marker_ttl=-NS)),
    ("delete markers, pedantic", stream(subject_delete_marker_ttl=NS, pedantic=True)),
    ("delete markers and TTLs, pedantic", stream(subject_delete_marker_ttl=NS, allow_msg_ttl=True, pedantic=True)),
    (
        "delete markers with all they need, pedantic",
        stream(subject_delete_marker_ttl=NS, allow_msg_ttl=True, allow_rollup_hdrs=True, pedantic=True),
    ),
    ("delete markers and deny_purge", stream(subject_delete_marker_ttl=NS, deny_purge=True)),
    ("delete markers with a fraction of a second", stream(subject_delete_marker_ttl=NS + NS // 2)),
    (
        "every field at once",
        stream(
            description="d",
            max_consumers=5,
            max_msgs=100,
            max_bytes=100_000,
            max_age=3600 * NS,
            max_msgs_per_subject=7,
            max_msg_size=1000,
            discard="new",
            discard_new_per_subject=True,
            storage="memory",
            num_replicas=1,
            no_ack=True,
            duplicate_window=60 * NS,
            placement={"cluster": "c", "tags": ["t"]},
            compression="none",
            first_seq=5,
            subject_transform=T,
            republish={"src": "u.>", "dest": "w.>", "headers_only": True},
            allow_direct=True,
            deny_delete=True,
            allow_rollup_hdrs=True,
            consumer_limits={"inactive_threshold": NS, "max_ack_pending": 9},
            allow_msg_ttl=True,
            subject_delete_marker_ttl=2 * NS,
            metadata={"k": "v"},
        ),
    ),
    ("metadata that is too long", stream(metadata={"k": "v" * (128 * 1024)})),
    ("metadata that is just short enough", stream(metadata={"k": "v" * (128 * 1024 - 200)})),
    ("metadata with an empty key", stream(metadata={"": "v"})),
    ("metadata in another order", stream(metadata={"z": "1", "a": "2", "m": "3"})),
    ("duplicate window and no age", stream(duplicate_window=3600 * NS)),
    ("a duplicate window with max_age of the same", stream(max_age=60 * NS, duplicate_window=60 * NS)),
    ("max_consumers of zero", stream(max_consumers=0)),
    ("pedantic and everything fine", stream(pedantic=True, duplicate_window=120 * NS)),
    ("pedantic and a window of zero", stream(pedantic=True, duplicate_window=0)),
    ("pedantic that is no flag", stream(pedantic=1)),
    ("a name that differs from the subject's", {"name": "OTHER", "subjects": ["o.>"]}),
    ("the largest numbers", stream(max_msgs=2**63 - 1, max_msgs_per_subject=2**63 - 1, max_age=2**63 - 1)),
    ("a max_bytes of more than there is", stream(max_bytes=2**40)),
    ("a max_bytes of more than there is, in memory", stream(max_bytes=2**40, storage="memory")),
    ("a name in another alphabet", {"name": "поток", "subjects": ["t.>"]}),
    ("subjects in another alphabet", stream(subjects=["т.é.>"])),
    ("many subjects", stream(subjects=[f"t.{n}.>" for n in range(100)])),
    ("JSON with white space", ' \n\t{ "name" : "T" ,\r\n "subjects" : [ "t.>" ] } \n'),
    ("JSON with escapes", '{"na\\u006de":"T","subjects":["t.\\u003e"],"description":"\\ud83d\\ude00 \\u0001 \\ud800"}'),
    ("JSON with something after it", '{"name":"T"} x'),
    ("JSON with another object after it", '{"name":"T"}{"name":"T"}'),
    ("JSON that is not UTF-8", "name"),
    ("deep JSON", '{"name":"T","metadata":' + '{"a":' * 200 + "1" + "}" * 200 + "}"),
    ("a JSON bomb of lists", "[" * 20000),
    ("a field with a very long name", '{"name":"T","' + "f" * 300 + '":1}'),
    ("a number as a key's value with a plus", '{"name":"T","max_msgs":+1}'),
    ("true for a number", '{"name":"T","max_msgs":true}'),
    ("a negative zero", '{"name":"T","max_msgs":-0}'),
    ("a number that is just too large for max_consumers", '{"name":"T","max_consumers":9223372036854775808}'),
]
OWN = {title for title, _ in MORE}
for title, request in CREATE:
    if not title.endswith("(later)") and title not in OWN:
        add(GROUP, title, creating(request))
for title, first, second in AGAIN:
    add(GROUP, f"again: {title}", creating_twice(first, second))
for title, request in MORE:
    add(GROUP, title, creating(request, "T" if title.startswith("a name that differs") else ""))


@case(GROUP, "subjects that another stream has")
def overlap(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.A", {"name": "A", "subjects": ["a.>", "x.*.y"]})
    for n, subjects in enumerate((["a.b"], ["*.b"], [">"], ["x.1.y"], ["x.1.*"], ["x.*"], ["b.>"], ["b.c"])):
        c.api(f"STREAM.CREATE.B{n}", {"name": f"B{n}", "subjects": subjects})


@case(GROUP, "a stream's name as subject that another stream has")
def overlap_name(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.A", {"name": "A", "subjects": ["B"]})
    c.api("STREAM.CREATE.B", {"name": "B"})
    c.api("STREAM.CREATE.B", {"name": "B", "subjects": ["b"]})


@case(GROUP, "names that differ by their letters' case")
def name_case(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.Abc", {"name": "Abc", "subjects": ["a"]})
    c.api("STREAM.CREATE.abc", {"name": "abc", "subjects": ["b"]})
    c.api("STREAM.NAMES")


@case(GROUP, "an existing stream, with more memory than there is")
def again_too_large(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(), is_kept=False)
    c.api("STREAM.CREATE.T", stream(max_bytes=2**50))
    c.api("STREAM.CREATE.T", stream(max_bytes=2**50, storage="memory"))
    c.api("STREAM.CREATE.T", stream(num_replicas=3))
    c.api("STREAM.CREATE.T", stream(subjects=["a b"]))
    c.api("STREAM.CREATE.T", stream(sealed=True))


@case(GROUP, "a first sequence of one")
def first_seq_one(s: Script) -> None:
    c = s.connect()
    for name, storage in (("F", "file"), ("M", "memory")):
        config = {"name": name, "subjects": [f"{name}.>"], "storage": storage, "first_seq": 1}
        c.api(f"STREAM.CREATE.{name}", config)
        c.api(f"STREAM.INFO.{name}")
        c.request(f"{name}.a", "x")


@case(GROUP, "an empty stream with a first sequence")
def first_seq(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(first_seq=100))
    c.request("t.a", "x")
    c.api("STREAM.INFO.T")


@case(GROUP, "created again after it was deleted")
def deleted(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(storage="memory"))
    c.request("t.a", "x")
    c.api("STREAM.DELETE.T")
    c.request("t.a", "x")
    c.api("STREAM.INFO.T")
    c.api("STREAM.CREATE.T", stream(storage="memory", max_msgs=5))
    c.request("t.a", "x")


@case(GROUP, "the API's subjects in forms that are odd")
def odd_subjects(s: Script) -> None:
    c = s.connect()
    c.sub("_INBOX.odd", "odd")
    for subject in (
        "STREAM.CREATE",
        "STREAM.CREATE.",
        "STREAM.CREATE.A.B",
        "STREAM.CREATE.*",
        "STREAM.CREATE.>",
        "STREAM",
    ):
        c.pub(f"$JS.API.{subject}", {"name": "A"}, "_INBOX.odd")
    c.api("STREAM.CREATE.LAST", {"name": "LAST"})
    c.api("STREAM.NAMES")


@case(GROUP, "without a reply the stream is made nevertheless")
def no_reply(s: Script) -> None:
    c = s.connect()
    c.pub("$JS.API.STREAM.CREATE.T", stream())
    c.until("STREAM.INFO.T", "", lambda answer: "error" not in answer)


@case(GROUP, "a request with headers")
def with_headers(s: Script) -> None:
    c = s.connect()
    c.request("$JS.API.STREAM.CREATE.T", stream(), ["A: 1"])
    c.request("$JS.API.STREAM.INFO.T", "", ["A: 1"])


@case(GROUP, "JSON that is not UTF-8 in a name")
def not_utf8(s: Script) -> None:
    c = s.connect()
    c.request("$JS.API.STREAM.CREATE.T", b'{"name":"T","description":"\xff\xfe"}')
    c.request("$JS.API.STREAM.INFO.T")


@case(GROUP, "a stream that captures what was answered before")
def captures_inbox(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t.>", "_X.>"]})
    c.pub("nobody", "x", "_X.reply")
    c.request("t.a", "x")
    c.api("STREAM.INFO.T")
