"""What the system account hears of clients: connected, disconnected, refused. Requests for shapes are monitoring's."""

from __future__ import annotations

from parity.catalog import case
from parity.script import Connection, Script
from support.servers import BASE

GROUP = "system_events"
CONFIG = BASE + (
    "accounts { SYS { users: [{user: s, password: s}] }\nA { users: [{user: a, password: a}] } }\nsystem_account: SYS\n"
)
OPTIONS = {"config": CONFIG, "is_alone": True}


def system(s: Script, subject: str) -> Connection:
    c = s.connect("s", user="s", **{"pass": "s"})
    c.sub(subject, "1")
    c.flush()
    return c


@case(GROUP, "a client connects and goes", **OPTIONS)
def connect(s: Script) -> None:
    c = system(s, "$SYS.ACCOUNT.A.*")
    a = s.connect("a", user="a", name="me", **{"pass": "a"})
    c.read(1, "connected")
    a.sub("x", "1")
    a.pub("x", "hi")
    a.flush()
    a.close()
    c.read(1, "disconnected")


@case(GROUP, "a client is refused", **OPTIONS)
def refused(s: Script) -> None:
    c = system(s, "$SYS.SERVER.*.CLIENT.AUTH.ERR")
    s.open("a").tell('CONNECT {"verbose":false,"user":"a","pass":"x","name":"wrong"}\r\n')
    c.read(1, "refused")


@case(GROUP, "a client that breaks the protocol", **OPTIONS)
def broken(s: Script) -> None:
    c = system(s, "$SYS.ACCOUNT.A.DISCONNECT")
    a = s.connect("a", user="a", **{"pass": "a"})
    a.tell("HELLO\r\n")
    c.read(1, "disconnected")


@case(GROUP, "how many clients an account has", **OPTIONS)
def counts(s: Script) -> None:
    c = system(s, "$SYS.ACCOUNT.A.SERVER.CONNS")
    s.connect("a", user="a", **{"pass": "a"})
    c.read(1, "one")


@case(GROUP, "an ordinary account hears nothing of it", **OPTIONS)
def ordinary(s: Script) -> None:
    a = s.connect("a", user="a", **{"pass": "a"})
    s.connect("b", user="a", **{"pass": "a"})
    a.request("$SYS.REQ.SERVER.PING")
    a.request("$SYS.REQ.ACCOUNT.SYS.INFO")
    a.sub("$SYS.>", "1")
    a.pub("$SYS.REQ.SERVER.PING", "mine")
    a.flush()


@case(GROUP, "publishing in the system account reaches its own clients only", **OPTIONS)
def isolated(s: Script) -> None:
    c = system(s, "x.>")
    a = s.connect("a", user="a", **{"pass": "a"})
    a.sub("x.>", "1")
    a.flush()
    c.pub("x.y", "hi")
    c.flush()
    a.flush()


@case(GROUP, "a server introduces itself", **OPTIONS)
def introduction(s: Script) -> None:
    c = s.connect("s", user="s", **{"pass": "s"})
    c.request("$SYS.REQ.SERVER.PING.IDZ")
    c.request("$SYS.REQ.SERVER.NOSUCH.IDZ")
    c.request("$SYS.REQ.USER.INFO")
