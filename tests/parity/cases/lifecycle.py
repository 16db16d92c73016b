"""A server that stops, starts again, is told to leave, or reads its configuration anew."""

from __future__ import annotations

import signal
from typing import Any

from parity.cases.publish_headers import everything
from parity.catalog import case
from parity.questions import NS, stream
from parity.script import Connection, Script
from support.servers import BASE, JETSTREAM

GROUP = "lifecycle"
JS = {"config": BASE + JETSTREAM, "is_alone": True}
PLAIN = {"config": BASE, "is_alone": True}


def watching(s: Script) -> Connection:
    """A connection whose INFO frames are shown from here on."""
    c = s.connect()
    c.flush()
    c.show_info = True
    return c


@case(GROUP, "a stop: clients are told", **PLAIN)
def stop(s: Script) -> None:
    c = watching(s)
    s.server.signal(signal.SIGTERM)
    c.expect_close("TERM")


@case(GROUP, "an interrupt: clients are told", **PLAIN)
def interrupt(s: Script) -> None:
    c = s.connect()
    s.server.signal(signal.SIGINT)
    c.expect_close("INT")


LAME = BASE + 'lame_duck_duration: "30s"\nlame_duck_grace_period: "100ms"\n'


@case(GROUP, "lame duck: INFO says so, then the connection ends", config=LAME, is_alone=True)
def lame_duck(s: Script) -> None:
    c = watching(s)
    s.server.signal(signal.SIGUSR2)
    c.expect_close("USR2")


@case(GROUP, "lame duck: messages still go through", config=LAME, is_alone=True)
def lame_duck_works(s: Script) -> None:
    a, b = watching(s), s.connect("b")
    a.sub("ld.a", "1")
    a.flush()
    s.server.signal(signal.SIGUSR2)
    a.read(1, "USR2")
    a.show_info = False
    b.pub("ld.a", "x")
    b.flush()
    a.read(1)


CONFIG = stream(allow_direct=True, metadata={"a": "1"}, max_msgs=100)


def fill(s: Script, **more: Any) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", CONFIG | more, is_kept=False)
    for n in range(6):
        c.request(f"t.{n % 3}", f"m{n}", [f"Nats-Msg-Id: {n}"], is_kept=False)
    c.api("STREAM.MSG.DELETE.T", {"seq": 2}, is_kept=False)
    c.api("STREAM.MSG.DELETE.T", {"seq": 6}, is_kept=False)


@case(GROUP, "a stream is there after a restart", **JS)
def restart(s: Script) -> None:
    fill(s)
    s.server.restart()
    c = s.connect("b")
    c.api("STREAM.NAMES")
    everything(c)
    c.request("t.a", "x", ["Nats-Msg-Id: 4"])
    c.request("t.a", "x", ["Nats-Expected-Last-Msg-Id: 5"])
    c.request("t.0", "x", ["Nats-Expected-Last-Subject-Sequence: 4"])
    c.api("INFO")


@case(GROUP, "a purged stream is there after a restart", **JS)
def restart_purged(s: Script) -> None:
    fill(s)
    s.connect("p").api("STREAM.PURGE.T", is_kept=False)
    s.server.restart()
    c = s.connect("b")
    c.api("STREAM.INFO.T", {"deleted_details": True})
    c.request("t.a", "x")


@case(GROUP, "a deleted stream is gone after a restart", **JS)
def restart_deleted(s: Script) -> None:
    fill(s)
    s.connect("p").api("STREAM.DELETE.T", is_kept=False)
    s.server.restart()
    c = s.connect("b")
    c.api("STREAM.NAMES")
    c.request("t.a", "x")


@case(GROUP, "an updated stream is there after a restart", **JS)
def restart_updated(s: Script) -> None:
    fill(s)
    s.connect("p").api("STREAM.UPDATE.T", CONFIG | {"subjects": ["t.>", "v.>"], "max_msgs": 4}, is_kept=False)
    s.server.restart()
    c = s.connect("b")
    c.api("STREAM.INFO.T", {"deleted_details": True, "subjects_filter": ">"})
    c.request("v.a", "x")


@case(GROUP, "a sealed stream is sealed after a restart", **JS)
def restart_sealed(s: Script) -> None:
    fill(s)
    s.connect("p").api("STREAM.UPDATE.T", CONFIG | {"sealed": True}, is_kept=False)
    s.server.restart()
    c = s.connect("b")
    c.api("STREAM.INFO.T")
    c.request("t.a", "x")


@case(GROUP, "a memory stream is there after a restart, empty", **JS)
def restart_memory(s: Script) -> None:
    fill(s, storage="memory")
    s.server.restart()
    c = s.connect("b")
    c.api("STREAM.NAMES")
    c.api("STREAM.INFO.T")


@case(GROUP, "what grew old during a restart is gone", **JS)
def restart_age(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(max_age=NS // 2, duplicate_window=NS // 2), is_kept=False)
    c.request("t.a", "x", is_kept=False)
    s.server.restart()
    s.connect("b").until("STREAM.INFO.T", "", lambda answer: answer["state"]["messages"] == 0)


@case(GROUP, "a first sequence is kept over a restart", **JS)
def restart_first_seq(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(first_seq=50), is_kept=False)
    s.server.restart()
    b = s.connect("b")
    b.api("STREAM.INFO.T")
    b.request("t.a", "x")


@case(GROUP, "what was acknowledged is there after a kill", **JS)
def kill(s: Script) -> None:
    fill(s)
    s.server.restart(kill=True)
    c = s.connect("b")
    answer = c.api("STREAM.INFO.T", is_kept=False)
    s.value("last sequence", answer["state"]["last_seq"])


USERS = BASE + "authorization { users: [ {user: u, password: p}, {user: v, password: q} ] }\n"
FEWER = BASE + "authorization { users: [ {user: v, password: q} ] }\n"
OTHER = BASE + "authorization { users: [ {user: u, password: new}, {user: v, password: q} ] }\n"
LESS = (
    BASE
    + 'authorization { users: [ {user: u, password: p, permissions: { publish: "a" }}, {user: v, password: q} ] }\n'
)
RELOADED = "Reloaded server configuration"


def reload(s: Script, config: str) -> None:
    s.server.configure(config)
    s.server.signal(signal.SIGHUP)
    assert s.server.wait_for_log(RELOADED), s.server.log[-5:]


@case(GROUP, "reload: a user is gone", config=USERS, is_alone=True)
def reload_user(s: Script) -> None:
    u, v = s.connect(user="u", **{"pass": "p"}), s.connect("v", user="v", **{"pass": "q"})
    reload(s, FEWER)
    u.expect_close("the user that is gone")
    v.flush("the user that is still there")
    s.open("w").tell('CONNECT {"verbose":false,"user":"u","pass":"p"}\r\n')


@case(GROUP, "reload: a password is another", config=USERS, is_alone=True)
def reload_password(s: Script) -> None:
    u = s.connect(user="u", **{"pass": "p"})
    reload(s, OTHER)
    u.expect_close("the password is another")
    s.connect("w", user="u", **{"pass": "new"}).flush()


@case(GROUP, "reload: permissions are fewer", config=USERS, is_alone=True)
def reload_permissions(s: Script) -> None:
    u = s.connect(user="u", **{"pass": "p"})
    reload(s, LESS)
    w = s.connect("w", user="u", **{"pass": "p"})
    w.tell("PUB a 1\r\nx\r\nPUB b 1\r\nx\r\n")
    u.tell("PUB a 1\r\nx\r\nPUB b 1\r\nx\r\n")


@case(GROUP, "reload: max_payload is less", config=BASE, is_alone=True)
def reload_payload(s: Script) -> None:
    c = watching(s)
    reload(s, BASE + "max_payload: 10\n")
    c.flush("after the reload")
    c.pub("a", "x" * 11)
    c.expect_close()


@case(GROUP, "reload: nothing has changed", config=BASE, is_alone=True)
def reload_nothing(s: Script) -> None:
    c = s.connect()
    reload(s, BASE)
    c.flush()


@case(GROUP, "reload: a file that is wrong changes nothing", config=USERS, is_alone=True)
def reload_wrong(s: Script) -> None:
    c = s.connect(user="u", **{"pass": "p"})
    s.server.configure("authorization { users: [\n")
    s.server.signal(signal.SIGHUP)
    assert s.server.wait_for_log("Failed to reload server configuration"), s.server.log[-5:]
    c.flush()
    s.connect("w", user="u", **{"pass": "p"}).flush()
