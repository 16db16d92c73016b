"""The protocol's verbs: each in its forms, good and bad, on a connection of its own."""

from __future__ import annotations

from parity.catalog import add, case
from parity.script import Connection, Script
from support.servers import BASE

GROUP = "core_protocol"
OPTIONS = {"config": BASE}
PLAIN = 'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'


def after_connect(data: bytes | str) -> object:
    """A client that is connected says `data`; a subscription to what it may publish shows what was understood."""

    def run(s: Script) -> None:
        c = s.connect()
        c.send("SUB form.> s\r\n")
        c.tell(data)

    return run


def before_connect(data: bytes | str) -> object:
    """The first bytes of a client."""

    def run(s: Script) -> None:
        s.open().tell(data)

    return run


def with_options(options: str, data: bytes | str) -> object:
    def run(s: Script) -> None:
        s.open().tell(
            f"CONNECT {options}\r\nSUB form.> s\r\n".encode() + (data.encode() if isinstance(data, str) else data)
        )

    return run


HEADERS = b"NATS/1.0\r\nA: 1\r\n\r\n"  # 18 bytes

FORMS: list[tuple[str, bytes | str]] = [
    # PUB
    ("PUB whose arguments begin with a line end", "PUB \nform.a 2\r\nhi\r\n"),
    ("PUB whose arguments begin with a carriage return", "PUB \rform.a 2\r\nhi\r\n"),
    ("PUB and a line end at once", "PUB\nform.a 2\r\nhi\r\n"),
    ("HPUB whose arguments begin with a line end", b"HPUB \nform.a 18 20\r\n" + HEADERS + b"hi\r\n"),
    ("SUB whose arguments begin with a line end", "SUB \nx.0 1\r\nPUB x.0 1\r\na\r\n"),
    ("UNSUB whose arguments begin with a line end", "SUB y.0 1\r\nUNSUB \n1\r\nPUB y.0 1\r\na\r\n"),
    ("CONNECT whose arguments begin with a line end", 'CONNECT \n{"verbose":true}\r\n'),
    ("INFO whose arguments begin with a line end", "INFO \n{}\r\n"),
    ("PUB with a payload", "PUB form.a 2\r\nhi\r\n"),
    ("PUB with a reply", "PUB form.a r.r 2\r\nhi\r\n"),
    ("PUB without a payload", "PUB form.a 0\r\n\r\n"),
    ("PUB in small letters", "pub form.a 2\r\nhi\r\n"),
    ("PUB in mixed letters", "pUb form.a 2\r\nhi\r\n"),
    ("PUB with tabs between", "PUB\tform.a\tr.r\t2\r\nhi\r\n"),
    ("PUB with many blanks between", "PUB   form.a    r.r    2\r\nhi\r\n"),
    ("PUB with blanks at the end", "PUB form.a 2  \r\nhi\r\n"),
    ("PUB that ends in a line feed alone", "PUB form.a 2\nhi\r\n"),
    ("PUB whose payload ends in a line feed alone", "PUB form.a 2\r\nhi\n"),
    ("PUB whose payload has line ends in it", "PUB form.a 6\r\na\r\nb\r\n\r\n"),
    ("PUB whose payload is longer than said", "PUB form.a 2\r\nhiho\r\n"),
    ("PUB whose payload is shorter than said, by its line end", "PUB form.a 4\r\nhi\r\n\r\n"),
    ("PUB without arguments", "PUB\r\n"),
    ("PUB with a blank and no arguments", "PUB \r\n"),
    ("PUB with one argument", "PUB form.a\r\n"),
    ("PUB with four arguments", "PUB form.a r.r x 2\r\nhi\r\n"),
    ("PUB with a size that is no number", "PUB form.a x\r\nhi\r\n"),
    ("PUB with a negative size", "PUB form.a -1\r\nhi\r\n"),
    ("PUB with a signed size", "PUB form.a +2\r\nhi\r\n"),
    ("PUB with a size with zeros before it", "PUB form.a 002\r\nhi\r\n"),
    ("PUB with a fraction of a size", "PUB form.a 2.0\r\nhi\r\n"),
    ("PUB with a hexadecimal size", "PUB form.a 0x2\r\nhi\r\n"),
    ("PUB with a size past 32 bits", "PUB form.a 4294967298\r\nhi\r\n"),
    ("PUB with a size past 64 bits", "PUB form.a 18446744073709551618\r\nhi\r\n"),
    ("PUB with a size of many digits", "PUB form.a " + "9" * 40 + "\r\n"),
    ("PUB with an empty token", "PUB form..a 2\r\nhi\r\n"),
    ("PUB to a wildcard", "PUB form.* 2\r\nhi\r\n"),
    ("PUB to a full wildcard", "PUB form.> 2\r\nhi\r\n"),
    ("PUB to a subject that begins with a dot", "PUB .form 2\r\nhi\r\n"),
    ("PUB to a subject that ends in a dot", "PUB form. 2\r\nhi\r\n"),
    ("PUB with a reply that has a wildcard", "PUB form.a r.* 2\r\nhi\r\n"),
    ("PUB with a subject that is not ASCII", "PUB form.é€ 2\r\nhi\r\n"),
    ("PUB with a subject that is not UTF-8", b"PUB form.\xff\xfe 2\r\nhi\r\n"),
    ("PUB with a NUL in the subject", b"PUB form.a\x00b 2\r\nhi\r\n"),
    ("PUB with a payload that is not text", b"PUB form.a 4\r\n\x00\xff\xfe\r\r\n"),
    ("two PUBs at once", "PUB form.a 1\r\na\r\nPUB form.b 1\r\nb\r\n"),
    ("an empty line", "\r\n"),
    ("an empty line after a PUB", "PUB form.a 1\r\na\r\n\r\n"),
    ("PUB with a carriage return in the line", "PUB form.a\r 2\r\nhi\r\n"),
    # HPUB
    ("HPUB with headers and payload", b"HPUB form.a 18 20\r\n" + HEADERS + b"hi\r\n"),
    ("HPUB with a reply", b"HPUB form.a r.r 18 20\r\n" + HEADERS + b"hi\r\n"),
    ("HPUB with headers alone", b"HPUB form.a 18 18\r\n" + HEADERS + b"\r\n"),
    ("HPUB in small letters", b"hpub form.a 18 20\r\n" + HEADERS + b"hi\r\n"),
    ("HPUB with tabs between", b"HPUB\tform.a\t18\t20\r\n" + HEADERS + b"hi\r\n"),
    ("HPUB with a status line", b"HPUB form.a 24 24\r\nNATS/1.0 404 Not\r\nA: \r\n\r\n\r\n"[:-2]),
    ("HPUB without the version line", b"HPUB form.a 8 10\r\nA: 1\r\n\r\nhi\r\n"),
    ("HPUB whose headers do not end", b"HPUB form.a 10 12\r\nNATS/1.0\r\nhi\r\n"),
    ("HPUB whose headers are the version line alone", b"HPUB form.a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"),
    ("HPUB with no bytes of headers", "HPUB form.a 0 2\r\nhi\r\n"),
    ("HPUB with headers larger than all", b"HPUB form.a 20 18\r\n" + HEADERS + b"\r\n"),
    ("HPUB with one size", b"HPUB form.a 18\r\n" + HEADERS + b"\r\n"),
    ("HPUB without arguments", "HPUB\r\n"),
    ("HPUB with five arguments", b"HPUB form.a r.r x 18 20\r\n" + HEADERS + b"hi\r\n"),
    ("HPUB with negative sizes", b"HPUB form.a -1 20\r\n" + HEADERS + b"hi\r\n"),
    ("HPUB with a negative total", b"HPUB form.a 18 -1\r\n" + HEADERS + b"hi\r\n"),
    ("HPUB with sizes that are no numbers", b"HPUB form.a x y\r\n" + HEADERS + b"hi\r\n"),
    ("HPUB whose payload is longer than said", b"HPUB form.a 18 19\r\n" + HEADERS + b"hi\r\n"),
    ("HPUB to a wildcard", b"HPUB form.* 18 20\r\n" + HEADERS + b"hi\r\n"),
    # SUB and UNSUB
    ("SUB and a message for it", "SUB x.1 1\r\nPUB x.1 1\r\na\r\n"),
    ("SUB in small letters", "sub x.2 1\r\nPUB x.2 1\r\na\r\n"),
    ("SUB with tabs between", "SUB\tx.3\t1\r\nPUB x.3 1\r\na\r\n"),
    ("SUB with a queue", "SUB x.4 q 1\r\nPUB x.4 1\r\na\r\n"),
    ("SUB with a word as sid", "SUB x.5 abc-1 \r\nPUB x.5 1\r\na\r\n"),
    ("SUB that ends in a line feed alone", "SUB x.6 1\nPUB x.6 1\r\na\r\n"),
    ("SUB with a sid that is taken", "SUB x.7 1\r\nSUB x.8 1\r\nPUB x.7 1\r\na\r\nPUB x.8 1\r\nb\r\n"),
    ("SUB without arguments", "SUB\r\n"),
    ("SUB with one argument", "SUB x.9\r\n"),
    ("SUB with four arguments", "SUB x.9 q 1 2\r\n"),
    ("SUB with an empty token", "SUB x..9 1\r\n"),
    ("SUB with a dot at the end", "SUB x.9. 1\r\n"),
    ("SUB with a dot at the beginning", "SUB .x.9 1\r\n"),
    ("SUB with a full wildcard in the middle", "SUB x.>.9 1\r\n"),
    ("SUB with wildcards inside of tokens", "SUB x.a*.b> 1\r\nPUB x.a*.b> 1\r\na\r\nPUB x.ab.bc 1\r\nb\r\n"),
    ("SUB with a bad subject and a queue", "SUB x..9 q 1\r\n"),
    ("SUB to a subject that is not ASCII", "SUB x.é 1\r\nPUB x.é 1\r\na\r\n"),
    ("UNSUB", "SUB y.1 1\r\nPUB y.1 1\r\na\r\nUNSUB 1\r\nPUB y.1 1\r\nb\r\n"),
    ("UNSUB in small letters", "SUB y.2 1\r\nunsub 1\r\nPUB y.2 1\r\nb\r\n"),
    ("UNSUB of a sid that is not there", "UNSUB 99\r\n"),
    ("UNSUB after one message", "SUB y.3 1\r\nUNSUB 1 1\r\nPUB y.3 1\r\na\r\nPUB y.3 1\r\nb\r\n"),
    ("UNSUB after two of three", "SUB y.4 1\r\nUNSUB 1 2\r\n" + "PUB y.4 1\r\na\r\n" * 3),
    ("UNSUB after fewer than came", "SUB y.5 1\r\n" + "PUB y.5 1\r\na\r\n" * 3 + "UNSUB 1 2\r\nPUB y.5 1\r\nb\r\n"),
    ("UNSUB after more than came", "SUB y.6 1\r\nPUB y.6 1\r\na\r\nUNSUB 1 3\r\n" + "PUB y.6 1\r\nb\r\n" * 4),
    ("UNSUB after zero", "SUB y.7 1\r\nUNSUB 1 0\r\nPUB y.7 1\r\nb\r\n"),
    ("UNSUB after a negative number", "SUB y.8 1\r\nUNSUB 1 -1\r\nPUB y.8 1\r\nb\r\n"),
    ("UNSUB after what is no number", "SUB y.9 1\r\nUNSUB 1 x\r\nPUB y.9 1\r\nb\r\n"),
    ("UNSUB with three arguments", "UNSUB 1 2 3\r\n"),
    ("UNSUB without arguments", "UNSUB\r\n"),
    ("UNSUB taken back by a larger one", "SUB y.10 1\r\nUNSUB 1 1\r\nUNSUB 1 3\r\n" + "PUB y.10 1\r\na\r\n" * 4),
    ("UNSUB at once after a promise", "SUB y.11 1\r\nUNSUB 1 5\r\nUNSUB 1\r\nPUB y.11 1\r\na\r\n"),
    ("a sid that is used again", "SUB y.12 1\r\nUNSUB 1\r\nSUB y.13 1\r\nPUB y.12 1\r\na\r\nPUB y.13 1\r\nb\r\n"),
    # PING, PONG and what a server says
    ("PING in small letters", "ping\r\n"),
    ("PING with blanks after it", "PING   \r\n"),
    ("PING with a word after it", "PING x\r\n"),
    ("PING that ends in a line feed alone", "PING\n"),
    ("three PINGs", "PING\r\nPING\r\nPING\r\n"),
    ("PONG", "PONG\r\n"),
    ("PONG with a word after it", "PONG x\r\n"),
    ("PONG in small letters", "pong\r\n"),
    ("a client that says INFO", "INFO {}\r\n"),
    ("a client that says +OK", "+OK\r\n"),
    ("a client that says -ERR", "-ERR 'x'\r\n"),
    ("a client that says MSG", "MSG form.a 1 2\r\nhi\r\n"),
    ("a client that says HMSG", b"HMSG form.a 1 18 20\r\n" + HEADERS + b"hi\r\n"),
    # Nonsense
    ("a word that is no verb", "HELLO\r\n"),
    ("a verb's beginning", "PU form.a 2\r\nhi\r\n"),
    ("a verb that goes on", "PUBS form.a 2\r\nhi\r\n"),
    ("a verb that goes on: SUBS", "SUBS form.a 2\r\n"),
    ("a verb that goes on: UNSUBS", "UNSUBS 2\r\n"),
    ("a verb that goes on: PINGS", "PINGS\r\n"),
    ("a verb that goes on: CONNECTS", "CONNECTS {}\r\n"),
    ("a blank before the verb", " PING\r\n"),
    ("a tab before the verb", "\tPUB form.a 2\r\nhi\r\n"),
    ("NULs", b"\x00\x00\x00\x00\r\n"),
    ("bytes that are no text", bytes(range(128, 256))),
    ("an HTTP request", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    ("a route's verb RS+", "RS+ $G form.a\r\n"),
    ("a route's verb RMSG", "RMSG $G form.a 2\r\nhi\r\n"),
    ("a leaf's verb LS+", "LS+ form.a\r\n"),
    ("an account's verb A+", "A+ $G\r\n"),
    # CONNECT again
    ("CONNECT twice", PLAIN + "PUB form.a 1\r\na\r\n"),
    ("CONNECT again with verbose", 'CONNECT {"verbose":true}\r\nPUB form.a 1\r\na\r\n'),
    ("CONNECT without arguments", "CONNECT\r\n"),
    ("CONNECT with a blank", "CONNECT \r\n"),
    ("CONNECT with what is no JSON", "CONNECT x\r\n"),
    ("CONNECT with JSON that is cut", 'CONNECT {"verbose":\r\n'),
    ("CONNECT with a list", "CONNECT []\r\n"),
    ("CONNECT with null", "CONNECT null\r\n"),
    ("CONNECT in small letters", 'connect {"verbose":false}\r\n'),
    ("CONNECT with a field of the wrong kind", 'CONNECT {"verbose":"yes"}\r\n'),
    ("CONNECT with a name that is a number", 'CONNECT {"name":5}\r\n'),
    ("CONNECT with fields that do not exist", 'CONNECT {"verbose":false,"color":"red"}\r\n'),
    ("CONNECT with a protocol of 2", 'CONNECT {"verbose":false,"protocol":2}\r\n'),
    ("CONNECT with a negative protocol", 'CONNECT {"verbose":false,"protocol":-1}\r\n'),
    ("CONNECT with no_responders and no headers", 'CONNECT {"verbose":false,"no_responders":true}\r\n'),
    ("CONNECT with an account", 'CONNECT {"verbose":false,"account":"X"}\r\n'),
    ("CONNECT with a new account", 'CONNECT {"verbose":false,"new_account":true}\r\n'),
    ("CONNECT with an account and a new account", 'CONNECT {"verbose":false,"account":"X","new_account":true}\r\n'),
]
for title, data in FORMS:
    add(GROUP, title, after_connect(data), **OPTIONS)

FIRST: list[tuple[str, bytes | str]] = [
    ("PING", ""),
    ("PUB", "PUB form.a 1\r\na\r\n"),
    ("SUB and PUB", "SUB first.a 1\r\nPUB first.a 1\r\na\r\n"),
    ("UNSUB", "SUB first.b 1\r\nUNSUB 1\r\n"),
    ("HPUB", b"SUB first.c 1\r\nHPUB first.c 18 20\r\n" + HEADERS + b"hi\r\n"),
    ("PUB to a wildcard", "SUB first.* 1\r\nPUB first.> 1\r\na\r\n"),
    ("SUB with a bad subject", "SUB first..a 1\r\n"),
    ("CONNECT of nothing", "CONNECT {}\r\n"),
    ("CONNECT of nothing, then PUB", "CONNECT {}\r\nPUB form.a 1\r\na\r\n"),
    ("CONNECT with a protocol of 2", 'CONNECT {"verbose":false,"protocol":2}\r\n'),
    ("CONNECT with a protocol of 1 and verbose", 'CONNECT {"verbose":true,"protocol":1}\r\n'),
    ("CONNECT with a protocol that is text", 'CONNECT {"verbose":false,"protocol":"1"}\r\n'),
    ("CONNECT with no_responders and no headers", 'CONNECT {"verbose":false,"no_responders":true}\r\n'),
    ("CONNECT with no_responders and headers false", 'CONNECT {"headers":false,"no_responders":true}\r\n'),
    ("CONNECT with an account", 'CONNECT {"verbose":false,"account":"X"}\r\n'),
    ("CONNECT with a new account", 'CONNECT {"verbose":false,"new_account":true}\r\n'),
    ("CONNECT with credentials that nobody asked for", 'CONNECT {"verbose":false,"user":"u","pass":"p"}\r\n'),
    ("CONNECT with a token that nobody asked for", 'CONNECT {"verbose":false,"auth_token":"t"}\r\n'),
    ("CONNECT with a JWT that nobody asked for", 'CONNECT {"verbose":false,"jwt":"eyJ","sig":"x"}\r\n'),
    ("CONNECT with an nkey that nobody asked for", 'CONNECT {"verbose":false,"nkey":"UABC","sig":"x"}\r\n'),
    ("CONNECT with tls_required on a plain port", 'CONNECT {"verbose":false,"tls_required":true}\r\n'),
    ("CONNECT that ends in a line feed alone", 'CONNECT {"verbose":false}\n'),
    ("CONNECT with keys in other letters", 'CONNECT {"Verbose":false}\r\nPUB form.a 1\r\na\r\n'),
    ("CONNECT with a name with HTML in it", 'CONNECT {"verbose":false,"name":"<a>"}\r\n'),
    ("nonsense", "HELLO\r\n"),
]
for title, data in FIRST:
    add(GROUP, f"first of all: {title}", before_connect(data), **OPTIONS)

VERBOSE = '{"verbose":true,"headers":true}'
PEDANTIC = '{"verbose":false,"pedantic":true,"headers":true}'
BOTH = '{"verbose":true,"pedantic":true,"headers":true}'
BARE = '{"verbose":false,"headers":false}'
MODES: list[tuple[str, str, bytes | str]] = [
    ("verbose: PUB", VERBOSE, "PUB form.a 1\r\na\r\n"),
    ("verbose: HPUB", VERBOSE, b"HPUB form.a 18 20\r\n" + HEADERS + b"hi\r\n"),
    ("verbose: SUB and UNSUB", VERBOSE, "SUB v.a 2\r\nUNSUB 2 3\r\nUNSUB 2\r\n"),
    ("verbose: UNSUB of a sid that is not there", VERBOSE, "UNSUB 77\r\n"),
    ("verbose: a sid that is taken", VERBOSE, "SUB v.b 2\r\nSUB v.c 2\r\n"),
    ("verbose: SUB with a bad subject", VERBOSE, "SUB v..b 2\r\n"),
    ("verbose: CONNECT again", VERBOSE, f"CONNECT {VERBOSE}\r\n"),
    ("verbose: PING and PONG", VERBOSE, "PING\r\nPONG\r\n"),
    ("verbose: a reserved reply", VERBOSE, "PUB form.a $JS.ACK.x 1\r\na\r\n"),
    ("verbose: PUB whose payload is longer than said", VERBOSE, "PUB form.a 1\r\nab\r\n"),
    ("pedantic: PUB", PEDANTIC, "PUB form.a 1\r\na\r\n"),
    ("pedantic: PUB to a wildcard", PEDANTIC, "PUB form.* 1\r\na\r\n"),
    ("pedantic: PUB to a full wildcard", PEDANTIC, "PUB form.> 1\r\na\r\n"),
    ("pedantic: PUB with an empty token", PEDANTIC, "PUB form..a 1\r\na\r\n"),
    ("pedantic: PUB with a dot at the end", PEDANTIC, "PUB form.a. 1\r\na\r\n"),
    ("pedantic: HPUB to a wildcard", PEDANTIC, b"HPUB form.* 18 20\r\n" + HEADERS + b"hi\r\n"),
    ("pedantic: PUB with a reply with a wildcard", PEDANTIC, "PUB form.a r.* 1\r\na\r\n"),
    ("pedantic: PUB with a wildcard inside of a token", PEDANTIC, "PUB form.a*b 1\r\na\r\n"),
    ("pedantic: SUB with a bad subject", PEDANTIC, "SUB p..b 2\r\n"),
    ("pedantic: subject that is not UTF-8", PEDANTIC, b"PUB form.\xff 1\r\na\r\n"),
    ("verbose and pedantic: PUB to a wildcard", BOTH, "PUB form.* 1\r\na\r\n"),
    ("without headers: HPUB", BARE, b"HPUB form.a 18 20\r\n" + HEADERS + b"hi\r\n"),
    ("without headers: PUB", BARE, "PUB form.a 2\r\nhi\r\n"),
    ("echo switched off", '{"verbose":false,"echo":false}', "PUB form.a 1\r\na\r\n"),
    ("echo null", '{"verbose":false,"echo":null}', "PUB form.a 1\r\na\r\n"),
]
for title, options, data in MODES:
    add(GROUP, title, with_options(options, data), **OPTIONS)


def in_pieces(s: Script, data: bytes, sizes: list[int]) -> Connection:
    """Send in pieces; a PING of another connection between two of them lets the server read what is there."""
    c, other = s.connect(), s.connect("b")
    c.send("SUB form.> s\r\n")
    position = 0
    for size in sizes:
        c.send(data[position : position + size])
        position += size
        other.send("PING\r\n")
    c.send(data[position:])
    return c


@case(GROUP, "bytes that come one at a time", **OPTIONS)
def one_byte_at_a_time(s: Script) -> None:
    data = (
        b"PUB form.a r.r 5\r\nhello\r\nHPUB form.b 18 20\r\n" + HEADERS + b"hi\r\nSUB form.c 9\r\nPUB form.c 0\r\n\r\n"
    )
    in_pieces(s, data, [1] * len(data)).flush()


@case(GROUP, "a payload that is cut in the middle of its line end", **OPTIONS)
def cut_line_end(s: Script) -> None:
    data = b"PUB form.a 5\r\nhello\r\n"
    in_pieces(s, data, [13, 6, 1]).flush()


@case(GROUP, "a client that goes in the middle of a payload", **OPTIONS)
def gone_in_a_payload(s: Script) -> None:
    listener = s.connect("b")
    listener.sub("half.>", "1")
    listener.flush()
    c = s.connect()
    c.send("PUB half.a 100\r\nhello")
    c.finish_sending()
    c.expect_close()
    listener.flush()
