"""STREAM.UPDATE: what may change, what may not, and what a change does to what is stored."""

from __future__ import annotations

from typing import Any

from parity.catalog import add, case
from parity.questions import CHECK, NS, UPDATE, stream
from parity.script import Script

GROUP = "stream_update"


def updating(first: dict[str, Any] | str, second: dict[str, Any] | str) -> object:
    def run(s: Script) -> None:
        c = s.connect()
        c.api("STREAM.CREATE.T", first, is_kept=False)
        c.api("STREAM.UPDATE.T", second)
        c.api("STREAM.INFO.T")

    return run


def checking(request: dict[str, Any] | str) -> object:
    """UPDATE of a stream that does not exist: its configuration is judged before it is looked up."""

    def run(s: Script) -> None:
        s.connect().api("STREAM.UPDATE.NOSUCH", request)

    return run


for title, request in CHECK:
    add(GROUP, f"nowhere: {title}", checking(request))

T = {"src": "t.>", "dest": "u.>"}
MORE: list[tuple[str, dict[str, Any] | str, dict[str, Any] | str]] = [
    ("an empty republish comes with a transform", stream(), stream(republish={}, subject_transform=T)),
    ("an empty republish comes to a transform", stream(subject_transform=T), stream(republish={}, subject_transform=T)),
    ("an empty republish comes as a transform goes", stream(subject_transform=T), stream(republish={})),
    ("an empty republish stays", stream(republish={}), stream(republish={}, max_msgs=5)),
    ("an empty republish replaces another", stream(republish=T), stream(republish={})),
    ("a first sequence of one comes", stream(), stream(first_seq=1)),
    ("a first sequence of one goes", stream(first_seq=1), stream()),
    ("a first sequence of one becomes ten", stream(first_seq=1), stream(first_seq=10)),
    ("a first sequence of ten becomes one", stream(first_seq=10), stream(first_seq=1)),
    ("limits to interest", stream(), stream(retention="interest")),
    ("interest to limits", stream(retention="interest"), stream()),
    ("limits to workqueue", stream(), stream(retention="workqueue")),
    ("workqueue to limits", stream(retention="workqueue"), stream()),
    ("workqueue to interest", stream(retention="workqueue"), stream(retention="interest")),
    ("interest to workqueue", stream(retention="interest"), stream(retention="workqueue")),
    ("subjects change", stream(), stream(subjects=["v.>"])),
    ("subjects are added", stream(), stream(subjects=["t.>", "v.>"])),
    ("subjects that overlap each other", stream(), stream(subjects=["v.>", "v.a"])),
    ("subjects empty", stream(), stream(subjects=[])),
    ("a transform is added", stream(), stream(subject_transform=T)),
    ("a transform is taken away", stream(subject_transform=T), stream()),
    ("a transform that is bad", stream(), stream(subject_transform={"src": "t.*", "dest": "u.$2"})),
    ("republish is added", stream(), stream(republish=T)),
    ("republish is taken away", stream(republish=T), stream()),
    ("republish to its own subjects", stream(), stream(republish={"src": "t.>", "dest": "t.x.>"})),
    ("allow_direct is set", stream(), stream(allow_direct=True)),
    ("allow_direct is taken away", stream(allow_direct=True), stream()),
    ("no_ack is set", stream(), stream(no_ack=True)),
    ("rollups are set", stream(), stream(allow_rollup_hdrs=True)),
    ("description changes", stream(description="a"), stream(description="b")),
    ("a description that is too long", stream(), stream(description="d" * 4097)),
    ("placement is set", stream(), stream(placement={"cluster": "c"})),
    ("consumer limits are set", stream(), stream(consumer_limits={"max_ack_pending": 5})),
    ("delete markers are set", stream(), stream(subject_delete_marker_ttl=2 * NS)),
    ("delete markers change", stream(subject_delete_marker_ttl=2 * NS), stream(subject_delete_marker_ttl=3 * NS)),
    (
        "delete markers are taken away",
        stream(subject_delete_marker_ttl=2 * NS),
        stream(allow_msg_ttl=True, allow_rollup_hdrs=True),
    ),
    ("delete markers are taken away with TTLs", stream(subject_delete_marker_ttl=2 * NS), stream()),
    ("delete markers of less than a second", stream(), stream(subject_delete_marker_ttl=5)),
    ("max_age is set below the default window", stream(), stream(max_age=NS)),
    ("max_age and the window are set", stream(), stream(max_age=NS, duplicate_window=NS)),
    ("max_age is set above the window", stream(), stream(max_age=3600 * NS)),
    ("unsealing", stream(sealed=False), stream(sealed=False)),
    ("discard new per subject", stream(), stream(discard="new", discard_new_per_subject=True, max_msgs_per_subject=1)),
    ("replicas below zero", stream(), stream(num_replicas=-1)),
    ("replicas of zero", stream(), stream(num_replicas=0)),
    ("replicas of six", stream(), stream(num_replicas=6)),
    ("max_bytes of more than there is", stream(), stream(max_bytes=2**40)),
    ("an empty request", stream(), ""),
    ("a request that is no JSON", stream(), "x"),
    ("a request with two objects", stream(), '{"name":"T"}{"name":"T"}'),
    ("a list for the request", stream(), "[]"),
    ("null for the request", stream(), "null"),
    ("an empty object", stream(), "{}"),
    ("sealed and other changes at once", stream(), stream(sealed=True, max_msgs=5, description="d")),
    ("sealing with rollups and deny_purge", stream(deny_purge=True), stream(deny_purge=True, sealed=True)),
]
OWN = {title for title, _, _ in MORE}
for title, first, second in UPDATE:
    if not title.endswith("(later)") and title not in OWN:
        add(GROUP, title, updating(first, second))
for title, first, second in MORE:
    add(GROUP, title, updating(first, second))


@case(GROUP, "a stream that does not exist")
def nowhere(s: Script) -> None:
    s.connect().api("STREAM.UPDATE.T", stream())


@case(GROUP, "a stream that does not exist, with every mistake")
def nowhere_wrong(s: Script) -> None:
    c = s.connect()
    for more in (
        {"num_replicas": 3},
        {"num_replicas": 6},
        {"subjects": ["a b"]},
        {"max_bytes": 2**50},
        {"sealed": True},
        {"max_age": 1},
    ):
        c.api("STREAM.UPDATE.T", stream(**more))


@case(GROUP, "subjects that another stream has")
def overlap(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.A", {"name": "A", "subjects": ["a.>"]})
    c.api("STREAM.CREATE.B", {"name": "B", "subjects": ["b.>"]})
    c.api("STREAM.UPDATE.B", {"name": "B", "subjects": ["b.>", "a.x"]})
    c.request("a.x", "x")
    c.api("STREAM.UPDATE.A", {"name": "A", "subjects": ["c.>"]})
    c.api("STREAM.UPDATE.B", {"name": "B", "subjects": ["b.>", "a.x"]})
    c.request("a.x", "x")
    c.request("c.x", "x")


@case(GROUP, "a lower limit takes what is too much away")
def lower_limit(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream())
    for n in range(6):
        c.request(f"t.{n % 2}", f"m{n}")
    c.api("STREAM.UPDATE.T", stream(max_msgs=4))
    c.api("STREAM.UPDATE.T", stream(max_msgs_per_subject=1))
    c.api("STREAM.UPDATE.T", stream(max_bytes=40))


@case(GROUP, "a lower limit with discard new")
def lower_limit_new(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(discard="new"))
    for n in range(4):
        c.request("t.a", f"m{n}")
    c.api("STREAM.UPDATE.T", stream(discard="new", max_msgs=2))
    c.request("t.a", "x")
    c.api("STREAM.INFO.T")


@case(GROUP, "a sealed stream takes nothing, and cannot be opened again")
def sealed(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(allow_direct=True))
    c.request("t.a", "x")
    c.api("STREAM.UPDATE.T", stream(allow_direct=True, sealed=True))
    c.request("t.a", "x")
    c.api("STREAM.PURGE.T")
    c.api("STREAM.MSG.DELETE.T", {"seq": 1})
    c.api("STREAM.MSG.GET.T", {"seq": 1})
    c.request("$JS.API.DIRECT.GET.T", {"seq": 1})
    c.api("STREAM.UPDATE.T", stream(allow_direct=True))
    c.api("STREAM.UPDATE.T", stream(allow_direct=True, sealed=True, description="d"))
    c.api("STREAM.UPDATE.T", stream(allow_direct=True, sealed=True, max_msgs=1))
    c.api("STREAM.CREATE.T", stream(allow_direct=True, sealed=True))
    c.api("STREAM.INFO.T")
    c.api("STREAM.DELETE.T")


@case(GROUP, "publishes follow the change")
def follows(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream())
    c.request("t.a", "x")
    c.api("STREAM.UPDATE.T", stream(subjects=["v.>"]))
    c.request("t.a", "x")
    c.request("v.a", "x")
    c.api("STREAM.UPDATE.T", stream(subjects=["v.>"], max_msg_size=1))
    c.request("v.a", "xx")
    c.api("STREAM.UPDATE.T", stream(subjects=["v.>"], no_ack=True))
    c.pub("v.a", "x", "_INBOX.a.none")
    c.until("STREAM.INFO.T", "", lambda answer: answer["state"]["messages"] == 3)


@case(GROUP, "allow_direct comes and goes")
def direct(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream())
    c.request("t.a", "x")
    c.request("$JS.API.DIRECT.GET.T", {"seq": 1})
    c.api("STREAM.UPDATE.T", stream(allow_direct=True))
    c.request("$JS.API.DIRECT.GET.T", {"seq": 1})
    c.api("STREAM.UPDATE.T", stream())
    c.request("$JS.API.DIRECT.GET.T", {"seq": 1})


@case(GROUP, "the duplicate window shrinks, and known ids stay known")
def window(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream())
    c.request("t.a", "x", ["Nats-Msg-Id: 1"])
    c.api("STREAM.UPDATE.T", stream(duplicate_window=60 * NS))
    c.request("t.a", "x", ["Nats-Msg-Id: 1"])


@case(GROUP, "the name in the subject is another")
def mismatch(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.A", {"name": "A"})
    c.api("STREAM.CREATE.B", {"name": "B"})
    c.api("STREAM.UPDATE.A", {"name": "B"})
    c.api("STREAM.UPDATE.A", {"subjects": ["x"]})
    c.api("STREAM.UPDATE.NONE", {"name": "A"})
