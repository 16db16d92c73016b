"""Accounts: what they use and may use, their limits, that they do not hear each other."""

from __future__ import annotations

from parity.catalog import case
from parity.questions import stream
from parity.script import Connection, Script
from support.servers import BASE, JETSTREAM

GROUP = "accounts"


def make(c: Connection, name: str, **more: object) -> None:
    c.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **more})


@case(GROUP, "info: nothing used")
def unused(s: Script) -> None:
    s.connect().api("INFO")


@case(GROUP, "info: streams in files and memory, with reservations")
def used(s: Script) -> None:
    c = s.connect()
    make(c, "F")
    make(c, "M", storage="memory")
    make(c, "FR", max_bytes=1000)
    make(c, "MR", max_bytes=2000, storage="memory")
    for name in ("F", "M", "FR", "MR"):
        c.request(f"{name}.a", "x" * 10)
        c.request(f"{name}.a", "x" * 10, ["A: 1"])
    c.api("INFO")
    c.api("STREAM.MSG.DELETE.F", {"seq": 1})
    c.api("STREAM.PURGE.M")
    c.api("INFO")
    c.api("STREAM.DELETE.FR")
    c.api("STREAM.DELETE.M")
    c.api("INFO")


@case(GROUP, "info: requests of every kind")
def info_requests(s: Script) -> None:
    c = s.connect()
    for request in ("", "{}", "x", "[]", "null", " ", '{"a":1}'):
        c.api("INFO", request)


@case(GROUP, "info: without accounts", config=BASE + JETSTREAM, is_alone=True)
def global_account(s: Script) -> None:
    c = s.connect()
    c.api("INFO")
    make(c, "T", max_bytes=5000)
    c.api("INFO")


LIMITED = "jetstream: { max_mem: 1000, max_file: 2000, max_streams: 3, max_consumers: 5, max_ack_pending: 7 }"


@case(GROUP, "limits: info", account=LIMITED)
def limits_info(s: Script) -> None:
    s.connect().api("INFO")


@case(GROUP, "limits: streams", account=LIMITED)
def limits_streams(s: Script) -> None:
    c = s.connect()
    for name in ("A", "B", "C", "D"):
        make(c, name)
    make(c, "A")
    c.api("STREAM.DELETE.A")
    make(c, "D")
    c.api("INFO")


@case(GROUP, "limits: reservations", account=LIMITED)
def limits_reserved(s: Script) -> None:
    c = s.connect()
    make(c, "A", max_bytes=1500)
    make(c, "B", max_bytes=501)
    make(c, "C", max_bytes=500)
    make(c, "M", max_bytes=1001, storage="memory")
    make(c, "M", max_bytes=1000, storage="memory")
    c.api("STREAM.UPDATE.A", {"name": "A", "subjects": ["A.>"], "max_bytes": 1501})
    c.api("STREAM.UPDATE.A", {"name": "A", "subjects": ["A.>"], "max_bytes": 100})
    c.api("INFO")


@case(GROUP, "limits: publishing more than the account may store", account=LIMITED)
def limits_storage(s: Script) -> None:
    c = s.connect()
    make(c, "A")
    make(c, "B")
    for _ in range(3):
        c.request("A.a", "x" * 600)
    c.request("A.a", "x" * 600)
    c.request("B.a", "x" * 600)
    c.request("B.a", "x")
    c.api("INFO")
    c.api("STREAM.PURGE.A")
    c.request("B.a", "x" * 600)


@case(GROUP, "limits: publishing more than the account may keep in memory", account=LIMITED)
def limits_memory(s: Script) -> None:
    c = s.connect()
    make(c, "A", storage="memory")
    c.request("A.a", "x" * 900)
    c.request("A.a", "x" * 900)
    c.api("INFO")


@case(GROUP, "limits: consumers", account=LIMITED)
def limits_consumers(s: Script) -> None:
    c = s.connect()
    make(c, "A", max_consumers=6)
    make(c, "A", max_consumers=5)
    c.api("STREAM.UPDATE.A", {"name": "A", "subjects": ["A.>"], "max_consumers": 6})


REQUIRED = "jetstream: { max_bytes_required: true, disk_max_stream_bytes: 1000, mem_max_stream_bytes: 500 }"


@case(GROUP, "limits: max_bytes is required, and has its own limit", account=REQUIRED)
def limits_required(s: Script) -> None:
    c = s.connect()
    c.api("INFO")
    make(c, "A")
    make(c, "A", max_bytes=1001)
    make(c, "A", max_bytes=1000)
    make(c, "M", storage="memory")
    make(c, "M", storage="memory", max_bytes=501)
    make(c, "M", storage="memory", max_bytes=500)
    c.api("STREAM.UPDATE.A", {"name": "A", "subjects": ["A.>"]})
    c.api("STREAM.UPDATE.A", {"name": "A", "subjects": ["A.>"], "max_bytes": 1001})
    c.api("INFO")


CAPPED = "jetstream: { disk_max_stream_bytes: 1000 }"


@case(GROUP, "limits: a stream's bytes without being required", account=CAPPED)
def limits_capped(s: Script) -> None:
    c = s.connect()
    c.api("INFO")
    make(c, "A")
    make(c, "B", max_bytes=2000)
    make(c, "C", max_bytes=999)


SMALL = BASE + 'jetstream { store_dir: "$DIR", max_mem: 1000, max_file: 2000 }\n'


@case(GROUP, "limits: the server's own", config=SMALL, is_alone=True)
def server_limits(s: Script) -> None:
    c = s.connect()
    c.api("INFO")
    make(c, "A", max_bytes=2001)
    make(c, "A", max_bytes=1500)
    make(c, "B", max_bytes=501)
    make(c, "M", max_bytes=1001, storage="memory")
    make(c, "N", storage="memory")
    for _ in range(5):
        c.request("N.a", "x" * 400)
    c.api("STREAM.PURGE.N")
    c.request("N.a", "x" * 400)
    make(c, "C")
    for _ in range(6):
        c.request("C.a", "x" * 600)
    c.api("INFO")
    c.api("STREAM.PURGE.C")
    c.request("C.a", "x" * 600)


WINDOW = BASE + 'jetstream { store_dir: "$DIR", limits { duplicate_window: "1m", max_ack_pending: 10 } }\n'


@case(GROUP, "limits: the server's duplicate window", config=WINDOW, is_alone=True)
def server_window(s: Script) -> None:
    c = s.connect()
    make(c, "A")
    make(c, "B", duplicate_window=61_000_000_000)
    make(c, "C", duplicate_window=60_000_000_000)


TWO = (
    BASE
    + JETSTREAM
    + (
        "accounts { A { jetstream: enabled, users: [{user: a, password: a}] }\n"
        "B { jetstream: enabled, users: [{user: b, password: b}] }\nC { users: [{user: c, password: c}] } }\n"
    )
)


def as_user(s: Script, name: str) -> Connection:
    return s.connect(name, user=name, **{"pass": name})


@case(GROUP, "accounts do not hear each other", config=TWO)
def isolated(s: Script) -> None:
    a, b, c = (as_user(s, name) for name in "abc")
    for connection in (a, b, c):
        connection.sub("iso.>", "1")
        connection.flush()
    a.pub("iso.x", "from a")
    for connection in (a, b, c):
        connection.flush()
    b.request("elsewhere", "x")
    c.sub("service", "2")
    c.flush()
    a.request("service", "x")


@case(GROUP, "streams of accounts are their own", config=TWO)
def isolated_streams(s: Script) -> None:
    a, b, c = (as_user(s, name) for name in "abc")
    a.api("STREAM.CREATE.T", stream(allow_direct=True))
    b.api("STREAM.NAMES")
    b.api("STREAM.INFO.T")
    b.request("t.a", "x")
    b.request("$JS.API.DIRECT.GET.T.t.a")
    b.api("STREAM.CREATE.T", stream(max_msgs=5))
    a.request("t.a", "from a")
    b.request("t.a", "from b")
    b.request("t.a", "from b")
    a.api("STREAM.INFO.T")
    b.api("STREAM.INFO.T")
    c.api("INFO")
    c.request("t.a", "x")


@case(GROUP, "a queue group does not reach into another account", config=TWO)
def isolated_queue(s: Script) -> None:
    a, b = as_user(s, "a"), as_user(s, "b")
    a.sub("iq.x", "1", "g")
    b.sub("iq.x", "1", "g")
    a.flush()
    b.flush()
    for _ in range(4):
        a.pub("iq.x", "x")
    a.flush()
    b.flush()


SYSTEM = BASE + JETSTREAM + "accounts { SYS { users: [{user: s, password: s}] } }\nsystem_account: SYS\n"


@case(GROUP, "the system account", config=SYSTEM)
def system_account(s: Script) -> None:
    c = s.open()
    c.show_info = True
    c.read(1)
    told = '"verbose":false,"protocol":1,"headers":true,"no_responders":true,"user":"s","pass":"s"'
    c.send(f"CONNECT {{{told}}}\r\nPING\r\n")
    c.read(2)
    c.request("$JS.API.INFO")
    c.request("$JS.API.STREAM.CREATE.T", stream())


@case(GROUP, "users' own information")
def user_info(s: Script) -> None:
    s.connect().request("$SYS.REQ.USER.INFO")


@case(GROUP, "users' own information, without accounts", config=BASE + JETSTREAM)
def user_info_global(s: Script) -> None:
    c = s.connect()
    c.request("$SYS.REQ.USER.INFO")
    c.request("$SYS.REQ.USER.INFO", "x")
