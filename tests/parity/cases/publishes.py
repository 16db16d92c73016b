"""What the server publishes by itself, sent to each kind of listener: is it data there, or is it obeyed?

WAYS and LISTENERS are the rows and columns of docs/publishes.md, under the same names. Each way publishes twice to one
subject; when a client there has heard the second, the first has done whatever it does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from parity.catalog import add
from parity.script import Connection, Script
from support.servers import BASE, JETSTREAM

GROUP = "publishes"
MS = 1_000_000
REQUESTS = 100
HEARTBEATS = 4


def quiet(c: Connection, subject: str, payload: Any = "") -> dict[str, Any]:
    answer = c.api(subject, payload, is_kept=False)
    assert "error" not in answer, answer
    return answer


def make(c: Connection, name: str, *subjects: str, **config: Any) -> None:
    quiet(c, f"STREAM.CREATE.{name}", {"name": name, "subjects": list(subjects), **config})


def consume(c: Connection, stream: str, name: str, **config: Any) -> None:
    config = {"name": name, "durable_name": name, "ack_policy": "explicit"} | config
    quiet(c, f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})


# The ways: publish `payload`, where it is theirs to choose, twice to `to`.


def filled(c: Connection, payload: str) -> None:
    """A stream T with two messages and a consumer."""
    make(c, "T", "t.>", allow_direct=True)
    for _ in range(2):
        c.request("t.a", payload, is_kept=False)
    consume(c, "T", "C")


def empty(c: Connection) -> None:
    make(c, "E", "e.>", allow_direct=True)
    consume(c, "E", "C")


def acks_of(c: Connection, count: int) -> list[str]:
    """Where so many messages of T are to be acknowledged."""
    c.sub("own", "own")
    c.pub("$JS.API.CONSUMER.MSG.NEXT.T.C", str(count), "own")
    return [(frame.reply or b"").decode() for frame in c.take(count)]


def pulled(c: Connection, to: str, payload: str) -> None:
    filled(c, payload)
    c.pub("$JS.API.CONSUMER.MSG.NEXT.T.C", "2", to)


def next_one(c: Connection, to: str, payload: str) -> None:
    filled(c, payload)
    c.request("t.a", payload, is_kept=False)
    (ack,) = acks_of(c, 1)
    c.pub(ack, '+NXT {"batch":2}', to)


def pushed(c: Connection, to: str, payload: str) -> None:
    filled(c, payload)
    consume(c, "T", "P", deliver_subject=to)


def status(c: Connection, to: str, _: str) -> None:
    empty(c)
    for _ in range(2):
        c.pub("$JS.API.CONSUMER.MSG.NEXT.E.C", {"batch": 1, "no_wait": True}, to)


def heartbeat(c: Connection, to: str, _: str) -> None:
    empty(c)
    consume(c, "E", "P", deliver_subject=to, idle_heartbeat=100 * MS)


def acked(c: Connection, to: str, payload: str) -> None:
    filled(c, payload)
    for ack in acks_of(c, 2):
        c.pub(ack, "+ACK", to)


def puback(c: Connection, to: str, _: str) -> None:
    make(c, "T", "t.>")
    for _ in range(2):
        c.pub("t.a", "x", to)


def refusal(c: Connection, to: str, _: str) -> None:
    make(c, "T", "t.>")
    for _ in range(2):
        c.pub("t.a", "x", to, ["Nats-Expected-Stream: NO"])


def api_answer(c: Connection, to: str, _: str) -> None:
    for _ in range(2):
        c.pub("$JS.API.STREAM.INFO.NONE", "", to)


def system_answer(c: Connection, to: str, _: str) -> None:
    for _ in range(2):
        c.pub("$SYS.REQ.USER.INFO", "", to)


def direct(c: Connection, to: str, payload: str) -> None:
    filled(c, payload)
    for _ in range(2):
        c.pub("$JS.API.DIRECT.GET.T.t.a", "", to)


def direct_status(c: Connection, to: str, _: str) -> None:
    empty(c)
    for _ in range(2):
        c.pub("$JS.API.DIRECT.GET.E.e.a", "", to)


def republished(c: Connection, to: str, payload: str) -> None:
    make(c, "T", "t.>", republish={"src": "t.a", "dest": to})
    for _ in range(2):
        c.request("t.a", payload, is_kept=False)


def advisory(c: Connection, to: str, _: str) -> None:
    make(c, "T1", "t1")
    make(c, "T2", "t2")


class Way(NamedTuple):
    origin: str  # the name of its Origin
    publish: Callable[[Connection, str, str], None]
    is_asked: bool = True  # the subject is the reply of a client's message, and so never $JS.ACK
    has_own_subject: bool = False  # it goes where it goes


WAYS = {
    "a pulled message": Way("DELIVERY", pulled),
    "the message after `+NXT`": Way("DELIVERY", next_one),
    "a pushed message": Way("DELIVERY", pushed, is_asked=False),
    "the status of a pull request": Way("STATUS", status),
    "a push consumer's heartbeat or flow control request": Way("STATUS", heartbeat, is_asked=False),
    "the answer to an ack": Way("ANSWER", acked),
    "a PubAck": Way("PUBACK", puback),
    "the refusal of a publish": Way("PUBACK", refusal),
    "an answer of `$JS.API`": Way("ANSWER", api_answer),
    "an answer of `$SYS.REQ`": Way("ANSWER", system_answer),
    "a message got directly": Way("DIRECT", direct),
    "the status of a direct get": Way("ANSWER", direct_status),
    "a republished message": Way("REPUBLISH", republished, is_asked=False),
    "an advisory or a metric": Way("EVENT", advisory, is_asked=False, has_own_subject=True),
}

# The listeners: a case of each shows what has become of two messages that came to it.

ADVISED = "$JS.EVENT.ADVISORY.STREAM.CREATED.*"


def observer(s: Script, subject: str) -> Connection:
    """Another connection, which hears a subject."""
    found = s.connect("observer")
    found.sub(subject, "1")
    found.flush()
    return found


def to_clients(s: Script, way: Way) -> None:
    c, to = s.connect(), ADVISED if way.has_own_subject else "heard"
    one, member = observer(s, to), s.connect("member")
    member.sub(to, "1", "group")
    member.flush()
    way.publish(c, to, "hello")
    frames = one.take(2)
    member.take(2)
    s.value("is heard", {"as": [frame.subject.decode() for frame in frames]})


def to_streams(s: Script, way: Way) -> None:
    c, to = s.connect(), ADVISED if way.has_own_subject else "taken"
    make(c, "TAKES", to.replace("*", ">"))
    one = observer(s, to)
    way.publish(c, to, "hello")
    one.take(2)
    c.until("STREAM.INFO.TAKES", "", lambda a: a["state"]["messages"] >= 2, is_kept=False)
    stored = quiet(c, "STREAM.MSG.GET.TAKES", {"seq": 1})["message"]
    s.value("is stored", {"as": stored["subject"]})


def victim(c: Connection) -> None:
    """A stream with two messages that nobody means to touch, one of which waits for its ack."""
    make(c, "V", "v.>")
    for _ in range(2):
        c.request("v.a", "precious", is_kept=False)
    consume(c, "V", "C")


def to_services(s: Script, way: Way) -> None:
    c, to = s.connect(), "$JS.API.STREAM.PURGE.V"
    victim(c)
    one, audit = observer(s, to), s.connect("audit")
    audit.sub("$JS.EVENT.ADVISORY.API", "1")
    audit.flush()
    way.publish(c, to, "")
    one.take(2)

    def is_obeyed() -> bool:
        quiet(c, "STREAM.INFO.V")
        frames = audit.take_until(b'"subject":"$JS.API.STREAM.INFO.V"')
        return any(json.loads(frame.payload)["subject"] == to for frame in frames)

    obeys = soon(is_obeyed)
    s.value("is asked to purge", {"obeys": obeys, "messages left": quiet(c, "STREAM.INFO.V")["state"]["messages"]})


def soon(is_so: Callable[[], bool]) -> bool:
    """The real server does what its own messages ask in a thread of its own: it gets the time of some requests."""
    return any(is_so() for _ in range(REQUESTS))


def to_acks(s: Script, way: Way) -> None:
    c = s.connect()
    victim(c)
    c.sub("victims", "victims")
    c.pub("$JS.API.CONSUMER.MSG.NEXT.V.C", "1", "victims")
    (frame,) = c.take(1)
    to = (frame.reply or b"").decode()
    one = observer(s, to)
    if way.is_asked:
        c.pub("t.a", "+ACK", to)
        c.flush("a reply that is the server's own")
        return
    way.publish(c, to, "+ACK")
    one.take(2)
    found = quiet(c, "CONSUMER.INFO.V.C")
    s.value("is sent +ACK", {"obeys": found["num_ack_pending"] == 0})


def to_pulls(s: Script, way: Way) -> None:
    c, to = s.connect(), "$JS.API.CONSUMER.MSG.NEXT.V.C"
    victim(c)
    one = observer(s, to)
    way.publish(c, to, "1")
    one.take(2)
    c.sub("mine", "mine")
    c.pub(to, {"batch": 1, "no_wait": True}, "mine")  # waits behind what came before it
    (frame,) = c.take(1)
    s.value("is asked for a message", {"obeys": b".1.1.1." not in (frame.reply or b"")})


def to_flow(s: Script, way: Way) -> None:
    """A consumer waits for the answer to flow control; its heartbeats say so."""
    c, reader = s.connect(), observer(s, "flows")
    make(c, "V", "v.>")
    for _ in range(7):
        c.request("v.a", "x" * 500_000, is_kept=False)
    flow = {"flow_control": True, "idle_heartbeat": 100 * MS, "ack_policy": "none"}
    consume(c, "V", "F", deliver_subject="flows", **flow)
    frames = reader.take_until(b"FlowControl Request")
    to = (frames[-1].reply or b"").decode()
    reader.take_until(b"Consumer-Stalled")  # all that may be under way is
    one = observer(s, to)
    way.publish(c, to, "")
    one.take(2)

    def goes_on() -> bool:
        return any(frame.subject == b"v.a" for frame in reader.take_until(b"Idle Heartbeat"))

    s.value("is sent an answer", {"obeys": any(goes_on() for _ in range(HEARTBEATS))})


LISTENERS = {
    "clients": to_clients,
    "streams": to_streams,
    "services": to_services,
    "acks": to_acks,
    "pull requests": to_pulls,
    "flow control": to_flow,
}


def name_of(way: str, listener: str) -> str:
    return f"{way} → {listener}"


for _way, _made in WAYS.items():
    for _listener, _shown in LISTENERS.items():
        if not _made.has_own_subject or _listener in ("clients", "streams"):
            add(GROUP, name_of(_way, _listener), partial(_shown, way=_made))


# Users who may do one thing, in the account of others and in the system account.

LOW = 'publish: ["t.>", "$JS.API.CONSUMER.MSG.NEXT.T.C", "$JS.API.DIRECT.GET.T.>", "$JS.ACK.T.C.>"], subscribe: "low.>"'
SYSTEM_LOW = 'publish: ["$SYS.REQ.SERVER.PING.IDZ", "$SYS.REQ.USER.INFO", "$JS.API.INFO"], subscribe: "low.>"'
CONFIG = (
    BASE
    + JETSTREAM
    + f"""accounts {{
 A {{ jetstream: enabled, users: [
   {{user: a, password: a}}, {{user: low, password: low, permissions: {{ {LOW} }} }} ] }}
 SYS {{ users: [ {{user: s, password: s}}, {{user: slow, password: slow, permissions: {{ {SYSTEM_LOW} }} }} ] }}
}}
system_account: SYS
"""
)
RESTRICTED = {"config": CONFIG, "is_alone": True}


def user(s: Script, name: str, label: str) -> Connection:
    return s.connect(label, user=name, **{"pass": name})


def low_asks(s: Script, asks: Callable[[Connection, str], None], command: str, payload: str) -> None:
    """A user of few rights names a command as the reply of what it may ask for."""
    c, low, to = user(s, "a", "a"), user(s, "low", "low"), f"$JS.API.{command}"
    victim(c)
    filled(c, payload)
    one = s.connect("observer", user="a", **{"pass": "a"})
    one.sub(to, "1")
    one.flush()
    low.pub(to, payload)
    low.flush("asks for it itself")
    asks(low, to)
    one.take(2)

    def found() -> dict[str, Any]:
        return {
            "streams": quiet(c, "STREAM.NAMES")["streams"],
            "messages": c.api("STREAM.INFO.V", is_kept=False).get("state", {}).get("messages"),
            "consumers": c.api("CONSUMER.NAMES.V", is_kept=False).get("consumers"),
        }

    whole = {"streams": ["T", "V"], "messages": 2, "consumers": ["C"]}
    soon(lambda: found() != whole)
    s.value("what is left", found())


def low_pulls(low: Connection, to: str) -> None:
    low.pub("$JS.API.CONSUMER.MSG.NEXT.T.C", "2", to)


def low_gets(low: Connection, to: str) -> None:
    for _ in range(2):
        low.pub("$JS.API.DIRECT.GET.T.t.a", "", to)


def low_acks(low: Connection, to: str) -> None:
    low.sub("low.own", "own")
    low.pub("$JS.API.CONSUMER.MSG.NEXT.T.C", "2", "low.own")
    for frame in low.take(2):
        low.pub((frame.reply or b"").decode(), "+ACK", to)


NEW = '{"name":"NEW","subjects":["new"]}'
COMMANDS = {
    "STREAM.DELETE.V": "",
    "STREAM.PURGE.V": "",
    "STREAM.MSG.DELETE.V": '{"seq":1}',
    "STREAM.CREATE.NEW": NEW,
    "CONSUMER.DELETE.V.C": "",
}
for _may, _asks, _commands in (
    ("pull", low_pulls, COMMANDS),
    ("get", low_gets, COMMANDS),
    ("ack", low_acks, ("STREAM.DELETE.V", "STREAM.PURGE.V")),
):
    for _command in _commands:
        _run = partial(low_asks, asks=_asks, command=_command, payload=COMMANDS[_command])
        add(GROUP, f"a user who may {_may}: {_command}", _run, **RESTRICTED)


def system_asks(s: Script, subject: str) -> None:
    """A user of the system account who may look at one page has an account purged."""
    c, low, to = user(s, "a", "a"), user(s, "slow", "low"), "$JS.API.ACCOUNT.PURGE.A"
    victim(c)
    one = user(s, "s", "observer")
    one.sub(to, "1")
    one.flush()
    for _ in range(2):
        low.pub(subject, "", to)
    one.take(2)
    s.value("streams", quiet(c, "STREAM.NAMES")["streams"])


for _subject in ("$SYS.REQ.SERVER.PING.IDZ", "$SYS.REQ.USER.INFO", "$JS.API.INFO"):
    add(GROUP, f"a user of the system account: {_subject}", partial(system_asks, subject=_subject), **RESTRICTED)
