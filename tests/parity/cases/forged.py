"""What a client says in the server's name: acks and answers of others, headers the server sets, line ends in names."""

from __future__ import annotations

from functools import partial
from typing import Any

from parity.catalog import add, case
from parity.script import Connection, Script
from support.servers import BASE, JETSTREAM

GROUP = "forged"
MS = 1_000_000
LIMITED = 'publish: ["t.>", "$JS.ACK.T.MINE.>"], subscribe: "_INBOX.>"'
CONFIG = (
    BASE
    + JETSTREAM
    + f"""accounts {{
 A {{ jetstream: enabled, users: [
   {{user: a, password: a}}, {{user: low, password: low, permissions: {{ {LIMITED} }} }} ] }}
 B {{ jetstream: enabled, users: [ {{user: b, password: b}} ] }}
}}
"""
)
TWO = {"config": CONFIG, "is_alone": True}


def user(s: Script, name: str) -> Connection:
    return s.connect(name, user=name, **{"pass": name})


def quiet(c: Connection, subject: str, payload: Any = "") -> dict[str, Any]:
    answer = c.api(subject, payload, is_kept=False)
    assert "error" not in answer, answer
    return answer


def stream(c: Connection, count: int = 1, size: int = 1, **config: Any) -> None:
    quiet(c, "STREAM.CREATE.T", {"name": "T", "subjects": ["t.>"], **config})
    for _ in range(count):
        c.request("t.a", "x" * size, is_kept=False)


def consume(c: Connection, name: str = "C", **config: Any) -> None:
    config = {"name": name, "durable_name": name, "ack_policy": "explicit"} | config
    quiet(c, f"CONSUMER.CREATE.T.{name}", {"stream_name": "T", "config": config})


def delivered(c: Connection) -> str:
    """Where the first message of T is to be acknowledged, which C has got."""
    stream(c)
    consume(c)
    c.sub("own", "own")
    c.pub("$JS.API.CONSUMER.MSG.NEXT.T.C", "1", "own")
    (frame,) = c.take(1)
    return (frame.reply or b"").decode()


def pending(s: Script, c: Connection) -> None:
    s.value("pending", quiet(c, "CONSUMER.INFO.T.C")["num_ack_pending"])


# Acks and answers.


def ack_as(s: Script, name: str) -> None:
    c, other = user(s, "a"), user(s, name)
    reply = delivered(c)
    other.pub(reply, "+ACK")
    other.flush("acknowledges")
    c.request(reply, "+WPI", is_kept=False)  # answered behind the ack
    pending(s, c)


for _name, _text in (("a", "its account"), ("b", "another account"), ("low", "its account, who may not")):
    add(GROUP, f"an ack by a user of {_text}", partial(ack_as, name=_name), **TWO)


@case(GROUP, "an answer to flow control from another account", **TWO)
def flow(s: Script) -> None:
    c, other = user(s, "a"), user(s, "b")
    stream(c, 7, 500_000)
    reader = user(s, "a")
    reader.sub("flows", "1")
    reader.flush()
    consume(c, deliver_subject="flows", flow_control=True, idle_heartbeat=100 * MS, ack_policy="none")
    request = reader.take_until(b"FlowControl Request")[-1]
    reader.take_until(b"Consumer-Stalled")
    other.pub((request.reply or b"").decode())
    other.flush("answers")
    frames = reader.take_until(b"Idle Heartbeat") + reader.take_until(b"Idle Heartbeat")
    s.value("goes on", any(frame.subject == b"t.a" for frame in frames))
    c.pub((request.reply or b"").decode())
    s.value("goes on by its own", reader.take(1)[0].subject.decode())


@case(GROUP, "the API, pulls and direct gets of another account", **TWO)
def other_account(s: Script) -> None:
    c, other = user(s, "a"), user(s, "b")
    stream(c, allow_direct=True)
    consume(c)
    for subject in ("STREAM.DELETE.T", "STREAM.PURGE.T", "CONSUMER.DELETE.T.C"):
        other.api(subject)
    for subject in ("CONSUMER.MSG.NEXT.T.C", "DIRECT.GET.T.t.a"):
        other.request(f"$JS.API.{subject}")
    s.value("messages", quiet(c, "STREAM.INFO.T")["state"]["messages"])


@case(GROUP, "subjects and replies that are the server's own")
def reserved(s: Script) -> None:
    c = s.connect()
    c.sub(">", "1")
    c.flush()
    for subject in ("_GR_.a.b", "$GR.a.b", "$NRG.a", "_R_.a", "$JS.ACK.T.C.1.1.1.1.1", "$JS.FC.T.C.a"):
        c.pub(subject, "x")
        c.flush(f"publish to {subject}")
        c.pub("x", "x", subject)
        c.flush(f"a reply of {subject}")


@case(GROUP, "a reply that asks for a batch")
def batch(s: Script) -> None:
    c = s.connect()
    stream(c, 0)
    c.sub("r.>", "1")
    c.pub("t.a", "x", "r.x.$FI")
    c.read(1)
    s.value("messages", quiet(c, "STREAM.INFO.T")["state"]["messages"])


# Headers and statuses. A publisher's stand before the server's own of that name.

HEADERS = [
    "Nats-Stream: FORGED",
    "Nats-Subject: FORGED",
    "Nats-Sequence: 999",
    "Nats-Time-Stamp: 1999-01-01T00:00:00Z",
    "Nats-Num-Pending: 77",
    "Nats-Last-Sequence: 66",
    "Nats-UpTo-Sequence: 55",
    "Nats-Pin-Id: FORGED",
    "Nats-Msg-Size: 44",
    "Nats-Marker-Reason: Purge",
    "Nats-Consumer-Stalled: $JS.API.STREAM.DELETE.T",
    "Nats-Last-Consumer: 33",
    "Nats-Last-Stream: 22",
]
STATUSES = (
    "404 No Messages",
    "100 Idle Heartbeat",
    "100 FlowControl Request",
    "409 Consumer Deleted",
    "204 EOB",
    "503",
)


def stored(s: Script, headers: list[str], first_line: str) -> None:
    c, other = s.connect(), s.connect("other")
    stream(c, 0, allow_direct=True, republish={"src": "t.>", "dest": "r.>"})
    consume(c)
    other.sub("r.>", "1")
    other.flush()
    c.sub("own", "own")
    c.request("t.a", "", headers, first_line)
    other.read(1, "what is republished")
    c.request("$JS.API.DIRECT.GET.T.t.a")
    c.many("$JS.API.DIRECT.GET.T", {"batch": 1, "seq": 1})
    c.api("STREAM.MSG.GET.T", {"seq": 1})
    c.pub("$JS.API.CONSUMER.MSG.NEXT.T.C", "1", "own")
    c.read(1, "pull")


@case(GROUP, "headers that the server sets")
def headers(s: Script) -> None:
    stored(s, HEADERS, "NATS/1.0")


for _status in STATUSES:
    add(GROUP, f"a message that is a status: {_status}", partial(stored, headers=[], first_line=f"NATS/1.0 {_status}"))

# Ends of lines, blanks and the like in what is said in JSON.

EVIL = {
    "a line": "x\r\nMSG y 1 1\r\nz\r\n",
    "a line feed": "x\ny",
    "a carriage return": "x\ry",
    "a blank": "x y",
    "a tab": "x\ty",
}


def asked(c: Connection, **config: Any) -> None:
    c.api("CONSUMER.CREATE.T", {"stream_name": "T", "config": {"ack_policy": "explicit", **config}})


def evil(s: Script, text: str) -> None:
    """None of it is in a frame that a subscriber of everything reads."""
    c, other = s.connect(), s.connect("other")
    stream(c, 0)
    other.sub("*", "1")
    other.sub("x.>", "2")
    other.sub("$JS.ACK.>", "3")
    other.flush()
    c.api("STREAM.CREATE.U", {"name": text, "subjects": ["u"]})
    c.api("STREAM.CREATE.U", {"name": "U", "subjects": [text]})
    c.api("STREAM.CREATE.U", {"name": "U", "subjects": ["u"], "subject_transform": {"src": text, "dest": "y"}})
    c.api("STREAM.CREATE.U", {"name": "U", "subjects": ["u"], "subject_transform": {"src": "u", "dest": text}})
    asked(c, deliver_subject=text)
    asked(c, deliver_subject="d", deliver_group=text)
    asked(c, name=text)
    asked(c, durable_name=text)
    asked(c, filter_subject=text)
    asked(c, filter_subjects=[text, "t.a"])
    asked(c, priority_groups=[text], priority_policy="overflow")
    consume(c)
    for body in ({text: 1}, {"batch": text}, {"batch": 1, "expires": text}, {"group": text, "id": text}):
        c.request("$JS.API.CONSUMER.MSG.NEXT.T.C", {"no_wait": True} | body)
    c.request("$JS.API.CONSUMER.MSG.NEXT.T.C", '{"no_wait":true,"' + text + '":1}')
    c.request("$JS.API.CONSUMER.MSG.NEXT.T.C", '{"batch":' + text + "}")
    c.request("$JS.API.CONSUMER.MSG.NEXT.T.C", '{"no_wait":true}' + text)
    other.flush("what others hear")


for _name, _text in EVIL.items():
    add(GROUP, f"{_name} in names and subjects", partial(evil, text=_text))


def republished_to(s: Script, text: str) -> None:
    """A destination of `republish` is not looked at there, and then hears nothing."""
    c, other = s.connect(), s.connect("other")
    other.sub(">", "1")
    other.flush()
    for src, dest in (("t.>", text + ".>"), ("t.a", text)):
        config = {"name": "T", "subjects": ["t.>"], "republish": {"src": src, "dest": dest}}
        if "error" not in c.api("STREAM.CREATE.T", config):
            c.request("t.a", "x", is_kept=False)
            c.api("STREAM.DELETE.T", is_kept=False)
    other.pub("end")
    s.value("others hear", [frame.subject.decode() for frame in other.take_until_subject("end")])


for _name, _text in EVIL.items():
    add(GROUP, f"{_name} in a destination", partial(republished_to, text=_text))
