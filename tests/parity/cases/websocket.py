"""WebSocket: the upgrade and what it is refused for, frames of every kind, credentials in cookies."""

from __future__ import annotations

from parity.catalog import add, case
from parity.script import Connection, Script
from support.servers import BASE
from support.websocket_client import BINARY, CLOSE, CONTINUED, PING, PONG, TEXT, WebSocketWire, frame, request

GROUP = "websocket"


def config(more: str = "", outside: str = "") -> str:
    return BASE + outside + f"websocket {{ host: 127.0.0.1, port: -1, no_tls: true, {more} }}\n"


PLAIN = config()
NEW = 'CONNECT {"verbose":false,"protocol":0,"headers":true}\r\n'


def upgraded(
    s: Script, name: str = "a", headers: dict[str, str | None] | None = None
) -> tuple[Connection, WebSocketWire]:
    """A connection after its upgrade, whose answer is in the transcript."""
    wire = WebSocketWire(s.server.websocket_port)
    s.value("upgrade", wire.upgrade(request(headers or {})))
    return s.open_on(wire, name), wire


HEADS: list[tuple[str, dict[str, str | None]]] = [
    ("as it should be", {}),
    ("no Upgrade", {"Upgrade": None}),
    ("another Upgrade", {"Upgrade": "h2c"}),
    ("Upgrade in capitals", {"Upgrade": "WebSocket"}),
    ("several Upgrades", {"Upgrade": "h2c, websocket"}),
    ("no Connection", {"Connection": None}),
    ("another Connection", {"Connection": "keep-alive"}),
    ("several Connections", {"Connection": "keep-alive, Upgrade"}),
    ("Connection in small letters", {"Connection": "upgrade"}),
    ("no key", {"Sec-WebSocket-Key": None}),
    ("an empty key", {"Sec-WebSocket-Key": ""}),
    ("a short key", {"Sec-WebSocket-Key": "abc"}),
    ("no version", {"Sec-WebSocket-Version": None}),
    ("version 8", {"Sec-WebSocket-Version": "8"}),
    ("no host", {"Host": None}),
    ("an extension", {"Sec-WebSocket-Extensions": "permessage-deflate"}),
    ("a protocol", {"Sec-WebSocket-Protocol": "nats"}),
    ("an origin", {"Origin": "http://127.0.0.1"}),
    ("an origin from elsewhere", {"Origin": "http://example.org"}),
]


def asking(headers: dict[str, str | None]) -> object:
    def run(s: Script) -> None:
        wire = WebSocketWire(s.server.websocket_port)
        s.open_on(wire)
        s.value("answer", wire.upgrade(request(headers)))

    return run


for title, headers in HEADS:
    add(GROUP, f"upgrade: {title}", asking(headers), config=PLAIN)

LINES = [
    "POST / HTTP/1.1",
    "GET / HTTP/1.0",
    "GET /other/path HTTP/1.1",
    "GET /leafnode HTTP/1.1",
    "GET /?a=b HTTP/1.1",
    "HELLO",
]


def first_line(line: str) -> object:
    def run(s: Script) -> None:
        wire = WebSocketWire(s.server.websocket_port)
        s.open_on(wire)
        s.value("answer", wire.upgrade(request({}, line)))

    return run


for line in LINES:
    add(GROUP, f"upgrade: {line}", first_line(line), config=PLAIN)

ORIGINS = config("same_origin: true")
ALLOWED = config('allowed_origins: ["http://example.org", "https://example.com:8443"]')
for title, settings, origin in [
    ("same origin, and it is", ORIGINS, "same"),
    ("same origin, and it is another port", ORIGINS, "http://127.0.0.1:1"),
    ("same origin, and it is another host", ORIGINS, "http://example.org"),
    ("same origin, and none is told", ORIGINS, None),
    ("same origin, and it is nonsense", ORIGINS, "::nonsense"),
    ("allowed origins, and it is one", ALLOWED, "http://example.org"),
    ("allowed origins, and it is one with its port", ALLOWED, "http://example.org:80"),
    ("allowed origins, and it is the other", ALLOWED, "https://example.com:8443"),
    ("allowed origins, and it is none of them", ALLOWED, "http://example.net"),
    ("allowed origins, by another scheme", ALLOWED, "https://example.org"),
    ("allowed origins, and none is told", ALLOWED, None),
]:

    def origins(s: Script, origin: str | None = origin) -> None:
        host = f"127.0.0.1:{s.server.websocket_port}"
        wire = WebSocketWire(s.server.websocket_port)
        s.open_on(wire)
        s.value(
            "answer", wire.upgrade(request({"Host": host, "Origin": f"http://{host}" if origin == "same" else origin}))
        )

    add(GROUP, title, origins, config=settings)


@case(GROUP, "the protocol in frames", config=PLAIN)
def protocol(s: Script) -> None:
    c, _ = upgraded(s)
    c.show_info = True
    c.read(1)
    c.tell(NEW + "SUB ws.a 1\r\nPUB ws.a 2\r\nhi\r\n")
    c.tell(b"HPUB ws.a 12 13\r\nNATS/1.0\r\n\r\nx\r\n")


@case(GROUP, "a frame for each byte", config=PLAIN)
def bytes_alone(s: Script) -> None:
    c, wire = upgraded(s)
    for byte in (NEW + "SUB wb.a 1\r\nPUB wb.a 2\r\nhi\r\n").encode():
        wire.send(bytes([byte]))
    c.flush()


@case(GROUP, "a message to and from a plain client", config=PLAIN)
def both(s: Script) -> None:
    c, _ = upgraded(s)
    plain = s.connect("b")
    c.tell(NEW + "SUB wp.a 1\r\n")
    plain.sub("wp.b", "1")
    plain.pub("wp.a", "to the socket")
    plain.flush()
    c.tell("PUB wp.b 3\r\nhow\r\n")
    plain.flush()


@case(GROUP, "large messages", config=PLAIN)
def large(s: Script) -> None:
    c, _ = upgraded(s)
    c.tell(NEW + "SUB wl.a 1\r\n")
    for size in (125, 126, 200, 65535, 70000):
        c.pub("wl.a", "x" * size)
        c.flush(f"{size} bytes")


ODD_FRAMES: list[tuple[str, bytes]] = [
    ("a text frame", frame(TEXT, b"PING\r\n")),
    ("a pong", frame(PONG, b"hello")),
    ("a ping that is too long", frame(PING, b"x" * 126)),
    ("a ping in pieces", frame(PING, b"x", is_final=False)),
    ("a close", frame(CLOSE, b"")),
    ("a close with a status", frame(CLOSE, b"\x03\xe8bye")),
    ("a close with one byte", frame(CLOSE, b"x")),
    ("a close with a status that is none", frame(CLOSE, b"\x00\x01")),
    ("an unmasked frame", frame(BINARY, b"PING\r\n", is_masked=False)),
    ("a frame with a reserved bit", frame(BINARY, b"PING\r\n", reserved=4)),
    ("a frame with another reserved bit", frame(BINARY, b"PING\r\n", reserved=2)),
    ("an unknown frame", frame(3, b"PING\r\n")),
    ("an unknown control frame", frame(11, b"x")),
    ("an empty frame", frame(BINARY, b"")),
    ("two pieces", frame(BINARY, b"PI", is_final=False) + frame(CONTINUED, b"NG\r\n")),
    ("a continuation of nothing", frame(CONTINUED, b"PING\r\n")),
    ("a piece, and a new frame", frame(BINARY, b"PI", is_final=False) + frame(BINARY, b"NG\r\n")),
]


def odd_frame(data: bytes) -> object:
    def run(s: Script) -> None:
        c, wire = upgraded(s)
        c.tell(NEW)
        # Whether the real server's close frame still comes before the end is chance.
        wire.send_raw(data + frame(BINARY, b"PING\r\n"))
        c.read_until_pong("the frame, then PING", leave_out=b"close 1")

    return run


for title, data in ODD_FRAMES:
    add(GROUP, f"frame: {title}", odd_frame(data), config=PLAIN)

USERS = (
    "authorization { users: [ {user: u, password: p},"
    " {user: w, password: p, allowed_connection_types: [STANDARD]} ] }\n"
)
AUTH = config(outside=USERS)
COOKIES = config('user_cookie: "nu", pass_cookie: "np"', USERS)
NO_AUTH = config("no_auth_user: u", USERS)
TOKEN = config('token_cookie: "nt"', "authorization { token: t }\n")
OWN = config("authorization { username: x, password: y }", "authorization { user: u, password: p }\n")
for title, settings, cookie, options in [
    ("right", AUTH, None, ',"user":"u","pass":"p"'),
    ("wrong", AUTH, None, ',"user":"u","pass":"x"'),
    ("nothing", AUTH, None, ""),
    ("a user for plain connections alone", AUTH, None, ',"user":"w","pass":"p"'),
    ("cookies", COOKIES, "nu=u; np=p", ""),
    ("wrong cookies", COOKIES, "nu=u; np=x", ""),
    ("wrong cookies, the right in CONNECT", COOKIES, "nu=u; np=x", ',"user":"u","pass":"p"'),
    ("cookies, the wrong in CONNECT", COOKIES, "nu=u; np=p", ',"user":"u","pass":"x"'),
    ("other cookies", COOKIES, "a=b", ',"user":"u","pass":"p"'),
    ("a token's cookie", TOKEN, "nt=t", ""),
    ("a token's wrong cookie", TOKEN, "nt=x", ""),
    ("no_auth_user", NO_AUTH, None, ""),
    ("the socket's own user", OWN, None, ',"user":"x","pass":"y"'),
    ("the server's user where the socket has its own", OWN, None, ',"user":"u","pass":"p"'),
]:

    def logging_in(s: Script, cookie: str | None = cookie, options: str = options) -> None:
        c, _ = upgraded(s, headers={"Cookie": cookie})
        c.tell(f'CONNECT {{"verbose":false,"protocol":0{options}}}\r\nSUB me 1\r\nPUB me 2\r\nhi\r\n')

    add(GROUP, f"logging in: {title}", logging_in, config=settings)


@case(GROUP, "pings are answered", config=PLAIN)
def pings(s: Script) -> None:
    c, wire = upgraded(s)
    c.tell(NEW)
    wire.send_raw(frame(PING, b"hello"))
    c.read(1, "a ping")
    wire.send_raw(frame(PING, b""))
    c.read(1, "an empty ping")
    wire.send_raw(frame(BINARY, b"P", is_final=False) + frame(PING, b"?"))
    c.read(1, "a ping between two pieces")
    wire.send_raw(frame(CONTINUED, b"ING\r\n"))
    c.read(1)


@case(GROUP, "headers of the server's own", config=config('headers { "X-Own": "here" }'))
def own_headers(s: Script) -> None:
    upgraded(s)


@case(GROUP, "INFO tells the socket's address", config=config('advertise: "example.org:8443"'))
def advertised(s: Script) -> None:
    c, _ = upgraded(s)
    c.show_info = True
    c.read(1)
