"""INFO, and the limits of a server: payload, control line, subscriptions, connections, tokens, time to authenticate."""

from __future__ import annotations

import time

from parity.catalog import case
from parity.script import Script
from support.servers import BASE, JETSTREAM

GROUP = "core_limits"
SMALL = BASE + "max_payload: 100\n"
LINES = BASE + "max_control_line: 64\n"


def account(limits: str) -> str:
    return BASE + f"accounts {{ A {{ limits {{ {limits} }}, users: [{{user: u, password: p}}] }} }}\n"


def info(s: Script, **options: object) -> None:
    c = s.open()
    c.show_info = True
    c.read(1, "the first INFO")
    told = ", ".join(f'"{key}": {value}' for key, value in options.items())
    c.send(f"CONNECT {{{told}}}\r\nPING\r\n")
    c.read(2, f"CONNECT {told}, PING")
    c.send("PING\r\n")
    c.read(1, "PING again")


@case(GROUP, "INFO", config=BASE)
def plain_info(s: Script) -> None:
    info(s, verbose="false", protocol="1", headers="true")


@case(GROUP, "INFO with JetStream", config=BASE + JETSTREAM)
def jetstream_info(s: Script) -> None:
    info(s, verbose="false", protocol="1", headers="true")


@case(GROUP, "INFO with a domain", config=BASE + 'jetstream { store_dir: "$DIR", domain: hub }\n')
def domain_info(s: Script) -> None:
    info(s, verbose="false", protocol="1")


@case(GROUP, "INFO with a limit of payload, advertised", config=SMALL + 'client_advertise: "example.org:4333"\n')
def advertised_info(s: Script) -> None:
    info(s, verbose="false", protocol="1")


@case(GROUP, "INFO where passwords are wanted", config=BASE + "authorization { user: u, password: p }\n")
def auth_info(s: Script) -> None:
    info(s, verbose="false", protocol="1", user='"u"', **{"pass": '"p"'})


@case(GROUP, "INFO in an account", account="jetstream: enabled")
def account_info(s: Script) -> None:
    info(s, verbose="false", protocol="1", user=f'"{s.account}"', **{"pass": f'"{s.account}"'})


@case(GROUP, "INFO without header support", config=BASE + "no_header_support: true\n")
def no_header_info(s: Script) -> None:
    c = s.open()
    c.show_info = True
    c.read(1)
    c.tell('CONNECT {"verbose":false,"headers":true}\r\nSUB a 1\r\nPUB a 1\r\nx\r\n')
    c.tell(b"HPUB a 12 13\r\nNATS/1.0\r\n\r\nx\r\n")


@case(GROUP, "no second INFO for protocol 0", config=BASE)
def protocol_zero(s: Script) -> None:
    c = s.open()
    c.show_info = True
    c.read(1)
    c.tell('CONNECT {"verbose":false,"protocol":0}\r\n')
    c.tell("PING\r\n")


@case(GROUP, "no second INFO before CONNECT", config=BASE)
def ping_first(s: Script) -> None:
    c = s.open()
    c.show_info = True
    c.read(1)
    c.flush("PING before CONNECT")
    c.send('CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
    c.read(2, "CONNECT and PING")
    c.flush("PING again")


@case(GROUP, "verbose and the second INFO", config=BASE)
def verbose_info(s: Script) -> None:
    c = s.open()
    c.show_info = True
    c.read(1)
    c.send('CONNECT {"verbose":true,"protocol":1}\r\nPING\r\n')
    c.read(3, "CONNECT and PING")


@case(GROUP, "a payload as large as allowed", config=SMALL)
def payload_fits(s: Script) -> None:
    c = s.connect()
    c.sub("pl.a", "1")
    c.pub("pl.a", "x" * 100)
    c.flush()


@case(GROUP, "a payload that is too large", config=SMALL)
def payload_too_large(s: Script) -> None:
    c = s.connect()
    c.sub("pl.a", "1")
    c.pub("pl.a", "x" * 101)
    c.expect_close()


@case(GROUP, "a payload that is too large is refused by its size", config=SMALL)
def payload_by_size(s: Script) -> None:
    c = s.connect()
    c.send("PUB pl.a 101\r\n")
    c.expect_close()


@case(GROUP, "headers count as payload", config=SMALL)
def payload_headers(s: Script) -> None:
    c = s.connect()
    c.sub("pl.a", "1")
    c.pub("pl.a", "x" * 82, "", ["A: 1"])
    c.flush()
    c.pub("pl.a", "x" * 83, "", ["A: 1"])
    c.expect_close()


@case(GROUP, "a payload of the default limit and one more", config=BASE)
def payload_default(s: Script) -> None:
    c = s.connect()
    c.sub("pl.a", "1")
    c.pub("pl.a", "x" * 1048576)
    c.flush()
    c.send("PUB pl.a 1048577\r\n")
    c.expect_close()


@case(GROUP, "a control line as long as allowed", config=LINES)
def line_fits(s: Script) -> None:
    c = s.open()
    c.tell('CONNECT {"verbose":false}\r\n')
    c.tell("SUB " + "a" * 62 + " 1\r\n")


@case(GROUP, "a control line that is too long", config=LINES)
def line_too_long(s: Script) -> None:
    c = s.open()
    c.tell('CONNECT {"verbose":false}\r\n')
    c.tell("SUB " + "a" * 63 + " 1\r\n")


@case(GROUP, "a control line that never ends", config=LINES)
def line_never_ends(s: Script) -> None:
    c = s.open()
    c.tell('CONNECT {"verbose":false}\r\n')
    c.send("SUB " + "a" * 500)
    c.expect_close()


@case(GROUP, "PUB with a control line that is too long", config=LINES)
def pub_line_too_long(s: Script) -> None:
    c = s.open()
    c.tell('CONNECT {"verbose":false}\r\n')
    c.tell("PUB " + "a" * 100 + " 1\r\nx\r\n")


@case(GROUP, "a CONNECT that is too long", config=LINES)
def connect_too_long(s: Script) -> None:
    c = s.open()
    c.tell('CONNECT {"verbose":false,"name":"' + "n" * 100 + '"}\r\n')


@case(GROUP, "the default control line", config=BASE)
def default_line(s: Script) -> None:
    c = s.connect()
    c.tell("SUB " + "a" * 4094 + " 1\r\n")
    c.tell("SUB " + "a" * 4095 + " 1\r\n")


@case(GROUP, "a subject of many tokens", config=BASE)
def many_tokens(s: Script) -> None:
    c = s.connect()
    subject = ".".join("a" * 1000)
    c.sub(subject, "1")
    c.sub("*." * 999 + "a", "2")
    c.pub(subject, "x")
    c.flush("a subject of 1000 tokens", is_sorted=True)


@case(GROUP, "too many subscriptions", config=BASE + "max_subscriptions: 3\n")
def subscriptions(s: Script) -> None:
    c = s.connect()
    for n in range(4):
        c.sub(f"ms.{n}", str(n))
    c.flush("four subscriptions")
    for n in range(4):
        c.pub(f"ms.{n}", "x")
    c.flush("four messages")
    c.unsub("0")
    c.sub("ms.4", "4")
    c.pub("ms.4", "x")
    c.flush("one less, one more")


@case(GROUP, "too many subscriptions, verbose", config=BASE + "max_subscriptions: 1\n")
def subscriptions_verbose(s: Script) -> None:
    s.open().tell('CONNECT {"verbose":true}\r\nSUB a 1\r\nSUB b 2\r\n')


@case(GROUP, "too many tokens in a subscription", config=BASE + "max_sub_tokens: 3\n")
def tokens(s: Script) -> None:
    c = s.connect()
    c.tell("SUB a.b.c 1\r\nSUB a.b.c.d 2\r\nSUB a.b.c.d q 3\r\nSUB a.b.> 4\r\nSUB a.b.c.> 5\r\n")


@case(GROUP, "too many connections", config=BASE + "max_connections: 2\n", is_alone=True)
def connections(s: Script) -> None:
    s.connect()
    s.connect("b")
    c = s.open("c")
    c.show_info = False
    c.expect_close()


@case(
    GROUP,
    "too many connections of an account",
    is_alone=True,
    config=BASE + "accounts { A { limits { max_connections: 1 }, users: [{user: u, password: p}] } }\n",
)
def account_connections(s: Script) -> None:
    s.connect(user="u", **{"pass": "p"})
    c = s.open("b")
    c.send('CONNECT {"verbose":false,"user":"u","pass":"p"}\r\n')
    c.expect_close()


@case(
    GROUP,
    "an account's limits of payload and subscriptions",
    config=BASE
    + "accounts { A { limits { max_payload: 10, max_subscriptions: 2 }, users: [{user: u, password: p}] } }\n",
)
def account_limits(s: Script) -> None:
    c = s.open()
    c.show_info = True
    c.read(1)
    c.send('CONNECT {"verbose":false,"protocol":1,"user":"u","pass":"p"}\r\nPING\r\n')
    c.read(2)
    for n in range(3):
        c.sub(f"al.{n}", str(n))
    c.flush("three subscriptions")
    c.pub("al.0", "0123456789")
    c.flush()
    c.pub("al.0", "0123456789A")
    c.expect_close()


@case(GROUP, "nobody says CONNECT", config=BASE + "authorization { user: u, password: p, timeout: 0.3 }\n")
def auth_timeout(s: Script) -> None:
    begin = time.monotonic()
    c = s.open()
    c.expect_close()
    s.value("between 0.2 and 2 seconds", 0.2 < time.monotonic() - begin < 2)


@case(GROUP, "the server asks, and nobody answers", config=BASE + 'ping_interval: "150ms"\nping_max: 2\n')
def stale(s: Script) -> None:
    c = s.open()
    c.show_pings = True
    c.send('CONNECT {"verbose":false}\r\n')
    c.expect_close()
