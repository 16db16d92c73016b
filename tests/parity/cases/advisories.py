"""What the server tells about streams and requests: $JS.EVENT.ADVISORY.>."""

from __future__ import annotations

from parity.catalog import case
from parity.questions import stream
from parity.script import Connection, Script
from support.servers import BASE, JETSTREAM

GROUP = "advisories"


def listening(s: Script, subject: str) -> tuple[Connection, Connection]:
    c, listener = s.connect(), s.connect("b")
    listener.sub(subject, "1")
    listener.flush()
    return c, listener


@case(GROUP, "a stream is created, changed and deleted")
def stream_actions(s: Script) -> None:
    c, listener = listening(s, "$JS.EVENT.ADVISORY.STREAM.>")
    c.api("STREAM.CREATE.T", stream())
    listener.read(1, "created")
    c.api("STREAM.UPDATE.T", stream(max_msgs=5))
    listener.read(1, "changed")
    c.api("STREAM.DELETE.T")
    listener.read(1, "deleted")


@case(GROUP, "no advisory for what was refused, nor for a stream that is created again")
def refused(s: Script) -> None:
    c, listener = listening(s, "$JS.EVENT.ADVISORY.STREAM.>")
    c.api("STREAM.CREATE.T", stream())
    listener.read(1)
    c.api("STREAM.CREATE.T", stream())
    c.api("STREAM.CREATE.T", stream(max_msgs=5))
    c.api("STREAM.UPDATE.T", stream(storage="memory"))
    c.api("STREAM.UPDATE.NONE", {"name": "NONE"})
    c.api("STREAM.DELETE.NONE")
    c.api("STREAM.PURGE.T")
    c.api("STREAM.DELETE.T")
    listener.read(1, "the next one")


@case(GROUP, "an update that changes nothing")
def same_update(s: Script) -> None:
    c, listener = listening(s, "$JS.EVENT.ADVISORY.STREAM.>")
    c.api("STREAM.CREATE.T", stream())
    listener.read(1)
    c.api("STREAM.UPDATE.T", stream())
    listener.read(1, "changed")


AUDITED = [
    ("INFO", ""),
    ("STREAM.CREATE.T", '{"name":"T","subjects":["t.>"]}'),
    ("STREAM.UPDATE.T", '{"name":"T","subjects":["t.>"],"max_msgs":5}'),
    ("STREAM.NAMES", '{"offset":0}'),
    ("STREAM.LIST", ""),
    ("STREAM.INFO.T", ""),
    ("STREAM.INFO.NONE", ""),
    ("STREAM.MSG.GET.T", '{"seq":9}'),
    ("STREAM.MSG.DELETE.T", '{"seq":9}'),
    ("STREAM.PURGE.T", ""),
    ("STREAM.CREATE.T", "not JSON <>&"),
    ("STREAM.DELETE.T", ""),
]


@case(GROUP, "every request is audited")
def audited(s: Script) -> None:
    c, listener = listening(s, "$JS.EVENT.ADVISORY.API")
    for subject, request in AUDITED:
        c.api(subject, request, is_kept=False)
        listener.read(1, f"audit of {subject}")


@case(GROUP, "what is not audited")
def not_audited(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(allow_direct=True), is_kept=False)
    c.request("t.a", "x", is_kept=False)
    listener = s.connect("b")
    listener.sub("$JS.EVENT.ADVISORY.API", "1")
    listener.flush()
    c.api("STREAM.MSG.GET.T", {"seq": 1})
    c.request("$JS.API.DIRECT.GET.T", {"seq": 1})
    c.request("$JS.API.DIRECT.GET.T", {"seq": 9})
    c.pub("$JS.API.NOSUCH")
    c.api("STREAM.NAMES", is_kept=False)
    listener.read(1, "the first audit")


@case(GROUP, "an audit with a client's name", config=BASE + JETSTREAM)
def named(s: Script) -> None:
    c = s.connect(name="my <client>", lang="python3", version="9.9")
    listener = s.connect("b")
    listener.sub("$JS.EVENT.ADVISORY.API", "1")
    listener.flush()
    c.api("STREAM.NAMES", is_kept=False)
    listener.read(1)


@case(GROUP, "an audit of a request with headers")
def with_headers(s: Script) -> None:
    c, listener = listening(s, "$JS.EVENT.ADVISORY.API")
    c.request("$JS.API.STREAM.NAMES", "{}", ["A: 1"])
    listener.read(1)


@case(GROUP, "an advisory with a domain", config=BASE + 'jetstream { store_dir: "$DIR", domain: hub }\n')
def domain(s: Script) -> None:
    c, listener = listening(s, "$JS.EVENT.ADVISORY.>")
    c.request("$JS.hub.API.STREAM.CREATE.AD", {"name": "AD"})
    listener.read(2, is_sorted=True)
    c.api("STREAM.DELETE.AD")
    listener.read(2, is_sorted=True)


@case(GROUP, "a stream that captures advisories")
def captured(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.EV", {"name": "EV", "subjects": ["$JS.EVENT.ADVISORY.STREAM.>"]}, is_kept=False)
    c.api("STREAM.CREATE.T", stream(), is_kept=False)
    for _ in range(500):
        state = c.api("STREAM.INFO.EV", {"subjects_filter": ">"}, is_kept=False)["state"]
        if state["messages"] >= 2:
            break
    s.value("its subjects", state.get("subjects"))
