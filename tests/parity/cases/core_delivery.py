"""Who hears a message: wildcards, queue groups, echo, no responders, auto-unsubscribe; what is reserved."""

from __future__ import annotations

from parity.catalog import add, case
from parity.script import Script
from support.servers import BASE

GROUP = "core_delivery"
OPTIONS = {"config": BASE}

# A subscription and the subjects that are published while it stands.
MATCHES: list[tuple[str, list[str]]] = [
    ("m.a", ["m.a", "m.b", "m", "m.a.b", "M.a", "m.A"]),
    ("m.*", ["m.a", "m", "m.a.b", "m.*", "m.>"]),
    ("m.>", ["m.a", "m", "m.a.b", "m.a.b.c.d", "m.>"]),
    ("*.m", ["a.m", "m", "a.b.m", "*.m"]),
    ("m.*.c", ["m.b.c", "m.c", "m.b.b.c", "m.b.d"]),
    ("m.*.>", ["m.a", "m.a.b", "m.a.b.c"]),
    ("*.*.m", ["a.b.m", "a.m", "a.b.c.m"]),
    ("m.*.*", ["m.a.b", "m.a", "m.a.b.c"]),
    ("m.a*", ["m.a*", "m.ab", "m.a"]),
    ("m.>x", ["m.>x", "m.a", "m.x"]),
    ("m.é.*", ["m.é.a", "m.e.a"]),
]


def matching(pattern: str, subjects: list[str]) -> object:
    def run(s: Script) -> None:
        c = s.connect()
        c.sub(pattern, "1")
        for subject in subjects:
            c.pub(subject, subject)
        c.flush(f"SUB {pattern}")

    return run


for pattern, subjects in MATCHES:
    add(GROUP, f"a subscription to {pattern}", matching(pattern, subjects), **OPTIONS)


@case(GROUP, "everything", **OPTIONS)
def everything(s: Script) -> None:
    c = s.connect()
    c.sub(">", "1")
    c.pub("ev.a", "a")
    c.pub("ev.a.b", "b")
    c.flush()


@case(GROUP, "several matching subscriptions of one client each get a copy", **OPTIONS)
def several(s: Script) -> None:
    c = s.connect()
    for sid, subject in enumerate(["sev.a", "sev.*", "sev.>", "sev.a"]):
        c.sub(subject, str(sid))
    c.pub("sev.a", "x")
    c.flush("PUB sev.a with four subscriptions", is_sorted=True)


@case(GROUP, "messages of one publisher keep their order", **OPTIONS)
def order(s: Script) -> None:
    a, b = s.connect(), s.connect("b")
    b.sub("ord.>", "1")
    b.flush()
    for n in range(20):
        a.pub(f"ord.{n % 3}", str(n))
    a.flush()
    b.flush()


@case(GROUP, "one member of a queue group hears", **OPTIONS)
def queue(s: Script) -> None:
    a = s.connect()
    a.sub("que.a", "1", "g")
    a.sub("que.a", "2", "g")
    a.sub("que.*", "3", "g")
    a.sub("que.a", "4", "h")
    a.sub("que.a", "5")
    a.flush()
    for _ in range(60):
        a.pub("que.a", "x")
    a.send("PING\r\n")
    frames = []
    while len(frames) < 181:
        frame = a._wire.receive()
        if frame.verb == "INFO":
            continue
        frames.append(frame)
        if frame.verb == "PONG":
            break
    sids = [frame.sid.decode() for frame in frames[:-1]]
    s.value("in all", len(sids))
    s.value("group g, by either of its subjects", sum(sid in ("1", "2", "3") for sid in sids))
    s.value("group h", sids.count("4"))
    s.value("no group", sids.count("5"))
    s.value("all members of g had some", all(sids.count(sid) > 0 for sid in "123"))


@case(GROUP, "a queue group across connections", **OPTIONS)
def queue_across(s: Script) -> None:
    a, b, publisher = s.connect(), s.connect("b"), s.connect("c")
    for c in (a, b):
        c.sub("qac.a", "1", "g")
        c.flush()
    for _ in range(100):
        publisher.pub("qac.a", "x")
    publisher.flush()
    counts = []
    for c in (a, b):
        c.send("PING\r\n")
        count = 0
        while (frame := c._wire.receive()).verb != "PONG":
            count += frame.verb == "MSG"
        counts.append(count)
    s.value("in all", sum(counts))
    s.value("both had some", min(counts) > 0)


@case(GROUP, "a client without echo does not hear itself", **OPTIONS)
def no_echo(s: Script) -> None:
    a, b = s.connect(echo=False), s.connect("b")
    a.sub("ech.a", "1")
    b.sub("ech.a", "1")
    a.flush()
    b.flush()
    a.pub("ech.a", "from a")
    a.flush()
    b.flush()
    b.pub("ech.a", "from b")
    b.flush()
    a.flush()


@case(GROUP, "a queue member without echo: the other one hears", **OPTIONS)
def no_echo_queue(s: Script) -> None:
    a, b = s.connect(echo=False), s.connect("b")
    a.sub("ecq.a", "1", "g")
    b.sub("ecq.a", "1", "g")
    a.flush()
    b.flush()
    for _ in range(5):
        a.pub("ecq.a", "x")
    a.flush()
    b.flush()


@case(GROUP, "a request without echo to itself has no responders", **OPTIONS)
def no_echo_request(s: Script) -> None:
    a = s.connect(echo=False)
    a.sub("ecr.a", "1")
    a.request("ecr.a", "x")


@case(GROUP, "headers are taken off for a client without them", **OPTIONS)
def strip(s: Script) -> None:
    a, b = s.connect(), s.connect("b", headers=False, no_responders=False)
    b.sub("str.a", "1")
    b.flush()
    a.pub("str.a", "hi", "r.r", ["A: 1"])
    a.pub("str.a", "", "", ["A: 1"])
    a.flush()
    b.flush()


@case(GROUP, "headers of every kind arrive as they were sent", **OPTIONS)
def header_kinds(s: Script) -> None:
    a = s.connect()
    a.sub("hdk.a", "1")
    for lines in (
        ["A: 1", "A: 2"],
        ["a: 1", "A: 2"],
        ["A:1"],
        ["A:    1"],
        ["A: "],
        ["A:"],
        ["no colon"],
        ["A: é€"[:4]],
        ["A: x\ty"],
        [],
        ["", "A: 1"],
    ):
        a.pub("hdk.a", "p", "", lines)
    a.pub("hdk.a", "p", "", ["A: 1"], first_line="NATS/1.0 503")
    a.pub("hdk.a", "p", "", ["A: 1"], first_line="NATS/1.0 100 Idle Heartbeat")
    a.pub("hdk.a", "p", "", ["A: 1"], first_line="NATS/1.1")
    a.pub("hdk.a", "p", "", ["A: 1"], first_line="nats/1.0")
    a.pub("hdk.a", "p", "", b"NATS/1.0\nA: 1\n\n")
    a.flush("PUBs with headers")


@case(GROUP, "no responders", **OPTIONS)
def no_responders(s: Script) -> None:
    a = s.connect()
    a.request("nr.none", "x")
    a.request("nr.none", "")
    a.request("nr.none", "x", ["A: 1"])


@case(GROUP, "no responders, without interest in the reply", **OPTIONS)
def no_responders_no_reply(s: Script) -> None:
    a = s.connect()
    a.pub("nr.none", "x", "somewhere.else")
    a.pub("nr.none", "x")
    a.flush("two PUBs")


@case(GROUP, "no responders, with another client's interest in the reply", **OPTIONS)
def no_responders_other(s: Script) -> None:
    a, b = s.connect(), s.connect("b")
    b.sub("nro.reply", "1")
    b.flush()
    a.pub("nr.none", "x", "nro.reply")
    a.flush()
    b.flush()


@case(GROUP, "no responders is told to each matching subscription of the asker", **OPTIONS)
def no_responders_twice(s: Script) -> None:
    a = s.connect()
    a.sub("nrt.*", "1")
    a.sub("nrt.reply", "2")
    a.pub("nr.none", "x", "nrt.reply")
    a.flush("PUB nr.none", is_sorted=True)


@case(GROUP, "no responders and a reply subscription with a limit", **OPTIONS)
def no_responders_max(s: Script) -> None:
    a = s.connect()
    a.sub("nrm.reply", "1")
    a.unsub("1", 1)
    a.pub("nr.none", "x", "nrm.reply")
    a.pub("nr.none", "x", "nrm.reply")
    a.flush("two PUBs")


@case(GROUP, "no responders is not told to clients that did not ask for it", **OPTIONS)
def no_responders_off(s: Script) -> None:
    a = s.connect(no_responders=False)
    a.sub("nrf.reply", "1")
    a.pub("nr.none", "x", "nrf.reply")
    a.flush("PUB")


@case(GROUP, "a responder that has gone", **OPTIONS)
def responder_gone(s: Script) -> None:
    a, b = s.connect(), s.connect("b")
    b.sub("gone.a", "1")
    b.flush()
    b.unsub("1")
    b.flush()
    a.request("gone.a", "x")


@case(GROUP, "request and reply", **OPTIONS)
def request_reply(s: Script) -> None:
    a, b = s.connect(), s.connect("b")
    b.sub("rr.a", "1", "q")
    b.flush()
    a.sub("rr.reply", "1")
    a.pub("rr.a", "ask", "rr.reply", ["A: 1"])
    a.flush()
    b.flush("the request")
    b.pub("rr.reply", "answer", "", ["B: 2"])
    b.flush()
    a.flush("the answer")


@case(GROUP, "auto-unsubscribe counts what was delivered", **OPTIONS)
def auto_unsub(s: Script) -> None:
    a = s.connect()
    a.sub("au.a", "1")
    a.pub("au.a", "1")
    a.unsub("1", 3)
    for n in range(2, 6):
        a.pub("au.a", str(n))
    a.flush()
    a.sub("au.a", "1")
    a.pub("au.a", "the sid is free again")
    a.flush()


@case(GROUP, "auto-unsubscribe of a queue member", **OPTIONS)
def auto_unsub_queue(s: Script) -> None:
    a = s.connect()
    a.sub("auq.a", "1", "g")
    a.unsub("1", 2)
    for n in range(4):
        a.pub("auq.a", str(n))
    a.flush()


@case(GROUP, "a client that closes leaves its queue group", **OPTIONS)
def close_leaves(s: Script) -> None:
    a, b = s.connect(), s.connect("b")
    b.sub("cl.a", "1", "g")
    b.flush()
    b.send("BYE\r\n")
    b.expect_close()
    for _ in range(50):  # the server may learn of a closed connection a moment later than we
        if a.request("cl.a", "x", is_kept=False) is not None:
            break
    a.request("cl.a", "x")


RESERVED = [
    "$JS.ACK.S.C.1.1.1.1.1",
    "_R_.abc.def",
    "_R_.",
    "_R_",
    "$JS.ACK.",
    "$JS.ACK",
    "_GR_.",
    "$NRG.",
    "_GR_.abc",
    "$GR.abc",
    "$JS.API.INFO",
    "$SYS.a",
    "$SRV.PING",
    "_INBOX.x",
    "$JSC.x",
    "$NRG.x",
    "$G.x",
    "$JS.FC.S.C.x",
    "$MQTT.x",
    "$KV.b.k",
]


def reserved_publish(subject: str) -> object:
    def run(s: Script) -> None:
        a = s.connect()
        a.sub(subject, "1")
        a.pub(subject, "x")
        a.flush(f"SUB and PUB {subject}")

    return run


def reserved_reply(subject: str) -> object:
    def run(s: Script) -> None:
        a = s.connect()
        a.sub("res.>", "1")
        a.pub("res.a", "x", subject)
        a.pub("res.b", "x", subject, ["A: 1"])
        a.flush(f"PUB with reply {subject}")

    return run


for reserved in RESERVED:
    add(GROUP, f"subscribe and publish to {reserved}", reserved_publish(reserved), **OPTIONS)
    add(GROUP, f"a reply of {reserved}", reserved_reply(reserved), **OPTIONS)


@case(GROUP, "the queue _sys_ is reserved", **OPTIONS)
def sys_queue(s: Script) -> None:
    a = s.connect()
    a.tell("SUB sq.a _sys_ 1\r\nPUB sq.a 1\r\nx\r\n")


@case(GROUP, "without JetStream the API has no responders", **OPTIONS)
def no_jetstream(s: Script) -> None:
    a = s.connect()
    a.request("$JS.API.INFO")
    a.request("$JS.API.STREAM.NAMES")
