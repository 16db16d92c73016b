"""WebSocket: what the real server answers to a handshake and to frames, good and bad, and what ours does."""

from __future__ import annotations

import base64
import re
import socket
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.server.auth.auth import Credentials
from penstock.server.options import WebsocketOptions
from penstock.server.websocket.codec import BROWSER_FRAME_SIZE, WebsocketCodec
from penstock.server.websocket.handshake import Handshake, Refusal, Upgrade
from support.servers import ServerProcess

KEY = "x3JJHMbDL1EzLkh9GBhXDw=="
MASK = b"abcd"
MAX_PAYLOAD = 1024
ATTEMPTS = 100  # the real server closes a connection at once, and its last frame may get lost
WEBSOCKET_PORT = re.compile(r"Listening for websocket clients on wss?://\S+?:(\d+)\s*$")


def websocket_port(server: ServerProcess) -> int:
    return next(int(found[1]) for line in server.log if (found := WEBSOCKET_PORT.search(line)))


def request(path: str = "/", method: str = "GET", without: str = "", **changes: str) -> bytes:
    headers = {
        "Host": "127.0.0.1:80",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
    }
    headers |= {name.replace("_", "-"): value for name, value in changes.items()}
    headers.pop(without, None)
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


# Handshakes.

CONFIG = """
host: 127.0.0.1
port: -1
websocket {
  listen: "127.0.0.1:-1", no_tls: true, compression: true, headers: {"X-Extra": "yes"}
  same_origin: true, allowed_origins: ["http://ok.com", "https://ok2.com:8443"]
}
"""
OPTIONS = WebsocketOptions(
    compression=True,
    headers={"X-Extra": "yes"},
    same_origin=True,
    allowed_origins=["http://ok.com", "https://ok2.com:8443"],
)
HANDSHAKES = {
    "a plain one": request(),
    "any path": request("/any/path?with=query"),
    "mqtt": request("/mqtt"),
    "another method": request(method="POST"),
    "no host": request(without="Host"),
    "no upgrade": request(without="Upgrade"),
    "upgrade among others": request(Upgrade="h2c, WebSocket"),
    "no connection": request(without="Connection"),
    "connection among others": request(Connection="keep-alive, upgrade"),
    "no key": request(without="Sec-WebSocket-Key"),
    "a key that is none": request(Sec_WebSocket_Key="abc"),
    "a key of another size": request(Sec_WebSocket_Key=base64.b64encode(b"x" * 15).decode()),
    "another version": request(Sec_WebSocket_Version="8"),
    "another origin": request(Origin="http://evil.com"),
    "the same origin, not listed": request(Origin="http://127.0.0.1"),
    "a listed origin": request(Origin="http://ok.com", Host="ok.com"),
    "a listed origin with its port": request(Origin="http://OK.com:80", Host="ok.com"),
    "an origin that is none": request(Origin="nonsense"),
    "an origin that is null": request(Origin="null"),
    "the old origin header": request(Sec_WebSocket_Origin="http://evil.com"),
    "compression": request(Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits"),
    "compression among others": request(Sec_WebSocket_Extensions="foo, permessage-deflate"),
    "other extensions": request(Sec_WebSocket_Extensions="x-foo"),
    "no masking": request(Nats_No_Masking="true"),
    "a subprotocol": request(Sec_WebSocket_Protocol="nats"),
    "garbage": b"\x16\x03\x01aaaa\r\n\r\n",
    "plain http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a nats client": b"CONNECT {}\r\n\r\n",
    "more than a request": request() + b"\x81\x80abcd",
}


@pytest.fixture(scope="module", params=["real", "ours"])
def strict(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with ServerProcess(request.param, CONFIG) as server:
        yield server


def without_date(head: bytes) -> bytes:
    return re.sub(rb"Date: [^\r]*\r\n", b"Date: now\r\n", head)


@pytest.mark.parametrize("name", HANDSHAKES)
def test_a_handshake_is_answered_as_a_server_answers_it(strict: ServerProcess, name: str) -> None:
    with socket.create_connection(("127.0.0.1", websocket_port(strict)), timeout=3) as client:
        client.sendall(HANDSHAKES[name])
        theirs = b""
        while b"\r\n\r\n" not in theirs and (part := client.recv(65536)):
            theirs += part
        head, _, rest = theirs.partition(b"\r\n\r\n")
        if head:
            head += b"\r\n\r\n"
        size = re.search(rb"Content-Length: (\d+)", head)
        while size and len(rest) < int(size[1]):
            rest += client.recv(65536)
        while b"Connection: close" in head and (part := client.recv(65536)):
            rest += part
    ours = Handshake(OPTIONS, is_tls=False).receive(HANDSHAKES[name])
    assert ours is not None
    body = b"" if isinstance(ours, Upgrade) else rest
    assert without_date(ours.reply) == without_date(head + body)
    assert isinstance(ours, Upgrade) == (b" 101 " in head)


def test_a_request_may_come_in_pieces_and_again_after_a_refusal() -> None:
    handshake = Handshake(WebsocketOptions(), is_tls=False)
    for byte in request(without="Upgrade")[:-1]:
        assert handshake.receive(bytes([byte])) is None
    refused = handshake.receive(b"\n")
    assert isinstance(refused, Refusal) and not refused.is_final
    assert refused.reason == "invalid value for header 'Upgrade'"
    assert isinstance(handshake.receive(request()), Upgrade)


def test_a_head_without_end_and_a_body_are_the_end() -> None:
    handshake = Handshake(WebsocketOptions(), is_tls=False)
    refused = handshake.receive(b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 100_000)
    assert isinstance(refused, Refusal) and refused.is_final and b" 431 " in refused.reply
    refused = Handshake(WebsocketOptions(), is_tls=False).receive(request(Content_Length="5") + b"12345")
    assert isinstance(refused, Refusal) and refused.is_final


def test_cookies_and_proxies_are_heard() -> None:
    options = WebsocketOptions(user_cookie="u", pass_cookie="p", token_cookie="t")
    upgrade = Handshake(options, is_tls=False).receive(
        request(Cookie='x=1; u=me; p="se=cret"; t=tok; v', X_Forwarded_For="10.0.0.7", User_Agent="Mozilla/5.0 Firefox")
    )
    assert isinstance(upgrade, Upgrade)
    assert upgrade.cookies == Credentials("me", "se=cret", "tok")
    assert upgrade.client_ip == "10.0.0.7" and upgrade.is_browser and not upgrade.is_compressed_whole
    plain = Handshake(WebsocketOptions(), is_tls=False).receive(request(Cookie="=1; u=me", X_Forwarded_For="unknown"))
    assert isinstance(plain, Upgrade) and plain.cookies == Credentials() and plain.client_ip == ""


def test_the_same_origin_goes_by_scheme_host_and_port() -> None:
    options = WebsocketOptions(same_origin=True)
    cases = [
        ("https://a.com", "a.com", True, True),
        ("https://a.com:443", "A.com", True, True),
        ("http://a.com", "a.com", True, False),
        ("https://a.com:444", "a.com", True, False),
        ("http://[::1]:80", "[::1]:80", False, True),
        ("http://a:b:c", "a", False, False),
    ]
    for origin, host, is_tls, is_allowed in cases:
        found = Handshake(options, is_tls).receive(request(Origin=origin, Host=host))
        assert isinstance(found, Upgrade) == is_allowed, origin


texts = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=40)


@settings(deadline=None)  # a busy machine is no fault
@given(
    headers=st.dictionaries(
        st.sampled_from(["Host", "Origin", "Upgrade", "Connection", "Cookie", "X_Forwarded_For", "User_Agent"])
        | st.sampled_from(["Sec_WebSocket_Key", "Sec_WebSocket_Version", "Sec_WebSocket_Extensions", "Content_Length"]),
        texts,
    ),
    path=texts,
)
def test_no_request_raises(headers: dict[str, str], path: str) -> None:
    options = WebsocketOptions(
        same_origin=True, allowed_origins=["http://ok.com"], user_cookie="u", compression=True, headers={"A": "b"}
    )
    data = request("/" + path).decode("latin-1")
    for name, value in headers.items():
        data = data.replace("\r\n\r\n", f"\r\n{name.replace('_', '-')}: {value}\r\n\r\n")
    Handshake(options, is_tls=False).receive(data.encode("latin-1"))
    Handshake(options, is_tls=True).receive(request(path, **headers).decode().encode("latin-1", "replace"))


@settings(deadline=None)  # a busy machine is no fault
@given(st.binary(max_size=300))
def test_no_bytes_before_the_handshake_raise(data: bytes) -> None:
    Handshake(WebsocketOptions(), is_tls=False).receive(data)
    Handshake(WebsocketOptions(), is_tls=False).receive(b"GET / HTTP/1.1\r\n" + data)


# Frames.


def frame(
    payload: bytes, kind: int = 2, is_final: bool = True, mask: bytes = MASK, flags: int = 0, size: int | None = None
) -> bytes:
    """A frame of a client."""
    first = (0x80 if is_final else 0) | flags | kind
    size = len(payload) if size is None else size
    masked = 0x80 if mask else 0
    if size < 126:
        head = bytes([first, masked | size])
    elif size < 65536:
        head = struct.pack(">BBH", first, masked | 126, size)
    else:
        head = struct.pack(">BBQ", first, masked | 127, size)
    if mask:
        payload = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
    return head + mask + payload


def packed(payload: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return (packer.compress(payload) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]


def is_whole(data: bytes) -> bool:
    if len(data) < 2:
        return False
    size, head = data[1] & 0x7F, 2
    if size == 126:
        head, size = 4, int.from_bytes(data[2:4], "big")
    elif size == 127:
        head, size = 10, int.from_bytes(data[2:10], "big")
    return len(data) >= head + size


@dataclass(frozen=True)
class Frames:
    """Bytes of a client whose connection is open, and whether it is to be one with compression."""

    data: bytes
    is_compressed: bool = False
    is_masked: bool = True


PONG = b"\x82\x06PONG\r\n"
PING = b"PING\r\n"
EXCHANGES = {
    "a command": Frames(frame(PING)),
    "a command as text": Frames(frame(PING, kind=1)),
    "two commands in a frame": Frames(frame(PING + PING)),
    "a command in two frames": Frames(frame(PING[:2]) + frame(PING[2:])),
    "a command in fragments": Frames(frame(b"PI", is_final=False) + frame(b"NG", 0, False) + frame(b"\r\n", 0)),
    "an empty frame": Frames(frame(b"") + frame(PING)),
    "a ping between fragments": Frames(frame(b"PI", is_final=False) + frame(b"hi", 9) + frame(b"NG\r\n", 0)),
    "a pong": Frames(frame(b"hi", 10) + frame(PING)),
    "a ping without a payload": Frames(frame(b"", 9)),
    "a close": Frames(frame(struct.pack(">H", 1000) + b"bye", 8)),
    "a close without a status": Frames(frame(b"", 8)),
    "a close with half a status": Frames(frame(b"\x03", 8)),
    "a close with a reserved status": Frames(frame(struct.pack(">H", 1005), 8)),
    "a close with an own status": Frames(frame(struct.pack(">H", 4999) + b"x", 8)),
    "a close with a status too high": Frames(frame(struct.pack(">H", 5000), 8)),
    "a close with bytes that are no text": Frames(frame(struct.pack(">H", 1000) + b"\xff\xfe", 8)),
    "no mask": Frames(frame(PING, mask=b"")),
    "no mask where none is wanted": Frames(frame(PING, mask=b""), is_masked=False),
    "a reserved bit": Frames(frame(PING, flags=0x20)),
    "compression without agreement": Frames(frame(packed(PING), flags=0x40)),
    "an unknown kind": Frames(frame(PING, 3)),
    "an unknown control": Frames(frame(PING, 11)),
    "a control frame too long": Frames(frame(b"x" * 126, 9)),
    "a control frame in parts": Frames(frame(b"x", 9, is_final=False)),
    "a compressed control frame": Frames(frame(b"x", 9, flags=0x40), is_compressed=True),
    "a continuation of nothing": Frames(frame(PING, 0)),
    "a message inside another": Frames(frame(b"PI", is_final=False) + frame(b"NG\r\n")),
    "a size with its highest bit": Frames(bytes([0x82, 0xFF]) + b"\xff" * 8 + MASK),
    "a compressed command": Frames(frame(packed(PING), flags=0x40), is_compressed=True),
    "a compressed command in fragments": Frames(
        frame(packed(PING)[:3], flags=0x40, is_final=False) + frame(packed(PING)[3:], 0), is_compressed=True
    ),
    "an uncompressed command after a compressed one": Frames(
        frame(packed(b""), flags=0x40) + frame(PING), is_compressed=True
    ),
    "a compressed continuation": Frames(
        frame(packed(PING)[:3], flags=0x40, is_final=False) + frame(packed(PING)[3:], 0, flags=0x40), is_compressed=True
    ),
    "garbage as compressed": Frames(frame(b"\xff" * 40, flags=0x40), is_compressed=True),
    "a compressed bomb": Frames(frame(packed(b"PUB x 1020\r\n" + b"a" * 200_000), flags=0x40), is_compressed=True),
}


@pytest.fixture(scope="module", params=["real", "ours"])
def open_to_all(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    config = 'websocket { listen: "127.0.0.1:-1", no_tls: true, compression: true }\n'
    with ServerProcess(request.param, f"host: 127.0.0.1\nport: -1\nmax_payload: {MAX_PAYLOAD}\n" + config) as server:
        yield server


def opening(given: Frames) -> bytes:
    changes = {"Sec_WebSocket_Extensions": "permessage-deflate"} if given.is_compressed else {}
    return request(**changes, **({} if given.is_masked else {"Nats_No_Masking": "true"}))


def answers(port: int, given: Frames) -> bytes:
    """What a server sends back for the frames: everything after INFO, up to a close or to the answer of a last ping."""
    mask = MASK if given.is_masked else b""
    with socket.create_connection(("127.0.0.1", port), timeout=3) as client:
        client.sendall(opening(given))
        said = b""
        while b"\r\n\r\n" not in said:
            said += client.recv(65536)
        said = said.partition(b"\r\n\r\n")[2]
        while not is_whole(said):
            said += client.recv(65536)
        client.sendall(frame(b'CONNECT {"verbose":false}\r\n', mask=mask) + given.data + frame(b"last", 9, mask=mask))
        found = b""
        while b"\x8a\x04last" not in found:
            try:
                part = client.recv(65536)
            except ConnectionResetError:
                break
            if not part:
                break
            found += part
        return found


def our_answers(given: Frames, chunk: int = 1 << 20) -> bytes:
    """The same from the codec, with a parser that knows one command."""
    upgrade = Handshake(WebsocketOptions(compression=True), is_tls=False).receive(opening(given))
    assert isinstance(upgrade, Upgrade)
    codec = WebsocketCodec(upgrade, MAX_PAYLOAD)
    data = given.data + frame(b"last", 9, mask=MASK if given.is_masked else b"")
    sent, commands = b"", b""
    for at in range(0, len(data), chunk):
        commands += codec.receive(data[at : at + chunk])
        while PING in commands:
            commands = commands.replace(PING, b"", 1)
            sent += codec.encode(b"PONG\r\n")
        sent += b"".join(codec.outgoing())
        if codec.end:
            return sent + codec.closing(codec.end)
    return sent


def frames_of(data: bytes) -> list[bytes]:
    """Whole frames; how commands are shared out among frames of data is left open."""
    found = []
    while data:
        size, head = data[1] & 0x7F, 2
        if size == 126:
            size, head = int.from_bytes(data[2:4], "big"), 4
        found.append(data[: head + size])
        data = data[head + size :]
    controls = [frame for frame in found if frame[0] & 0x08]
    commands = b"".join(frame[2:] for frame in found if not frame[0] & 0x08)
    return [commands, *controls]


@pytest.mark.parametrize("name", EXCHANGES)
def test_frames_are_answered_as_a_server_answers_them(open_to_all: ServerProcess, name: str) -> None:
    ours = frames_of(our_answers(EXCHANGES[name]))
    assert frames_of(our_answers(EXCHANGES[name], chunk=1)) == ours
    for _ in range(ATTEMPTS):
        theirs = frames_of(answers(websocket_port(open_to_all), EXCHANGES[name]))
        if theirs == ours:
            return
        assert open_to_all.kind == "real", "ours loses nothing"
        assert theirs == ours[:-1] and ours[-1][0] == 0x88, "they differ in more than a close frame that was lost"
    pytest.fail(f"the real server sends no {ours[-1]!r}")


# The codec by itself.

PLAIN = Upgrade(b"")


@settings(deadline=None)  # a busy machine is no fault
@given(
    payload=st.binary(max_size=300),
    cuts=st.lists(st.integers(0, 300), max_size=5),
    splits=st.lists(st.integers(0, 600), max_size=8),
    mask=st.binary(min_size=4, max_size=4),
    is_masked=st.booleans(),
)
def test_any_bytes_come_through_any_frames_in_any_split(
    payload: bytes, cuts: list[int], splits: list[int], mask: bytes, is_masked: bool
) -> None:
    edges = sorted({0, len(payload), *(cut for cut in cuts if cut < len(payload))})
    parts = [payload[a:b] for a, b in pairwise(edges)] or [b""]
    wire = b"".join(frame(part, mask=mask if is_masked else b"") for part in parts)
    codec = WebsocketCodec(Upgrade(b"", is_masked=is_masked), MAX_PAYLOAD)
    places = sorted({0, len(wire), *(at for at in splits if at < len(wire))})
    assert b"".join(codec.receive(wire[a:b]) for a, b in pairwise(places)) == payload
    assert codec.end == "" and codec.outgoing() == []


@settings(deadline=None)  # a busy machine is no fault
@given(st.binary(max_size=200))
def test_no_bytes_of_a_client_raise(data: bytes) -> None:
    for is_compressed in (False, True):
        codec = WebsocketCodec(Upgrade(b"", is_compressed=is_compressed), MAX_PAYLOAD)
        codec.receive(data)
        assert codec.receive(b"x") == b"" or not codec.end


@pytest.mark.parametrize("size", [0, 1, 64, 65, 125, 126, 65535, 65536, 100_000])
@pytest.mark.parametrize("is_browser", [False, True], ids=["program", "browser"])
@pytest.mark.parametrize("is_compressed", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("is_whole_only", [False, True], ids=["parts", "whole"])
def test_what_is_sent_is_read_by_the_websockets_library(
    size: int, is_browser: bool, is_compressed: bool, is_whole_only: bool
) -> None:
    from websockets.client import ClientProtocol
    from websockets.extensions.permessage_deflate import PerMessageDeflate
    from websockets.frames import Frame
    from websockets.protocol import State
    from websockets.uri import parse_uri

    data = bytes(n * 7919 % 251 for n in range(size))
    codec = WebsocketCodec(
        Upgrade(b"", is_compressed=is_compressed, is_browser=is_browser, is_compressed_whole=is_whole_only), MAX_PAYLOAD
    )
    client = ClientProtocol(parse_uri("ws://localhost/"), max_size=None, state=State.OPEN)
    if is_compressed:
        client.extensions = [PerMessageDeflate(True, True, 15, 15)]
    sent = codec.encode(data)
    client.receive_data(sent)
    received = [event for event in client.events_received() if isinstance(event, Frame)]
    assert b"".join(bytes(event.data) for event in received) == data
    if is_browser and not (is_compressed and is_whole_only):
        assert all(len(event.data) <= BROWSER_FRAME_SIZE or is_compressed for event in received)
    if not is_browser:
        assert len(received) == (1 if size else 0)


def test_a_close_says_why_once() -> None:
    reasons: list[tuple[str, int]] = [
        ("Client Closed", 1000),
        ("Authentication Failure", 1008),
        ("Parse Error", 1002),
        ("Maximum Message Payload Exceeded", 1009),
        ("Server Shutdown", 1001),
        ("Kicked", 1011),
    ]
    for reason, status in reasons:
        codec = WebsocketCodec(PLAIN, MAX_PAYLOAD)
        body = struct.pack(">H", status) + reason.encode()
        assert codec.closing(reason) == bytes([0x88, len(body)]) + body
        assert codec.closing(reason) == b""
    assert WebsocketCodec(PLAIN, MAX_PAYLOAD).closing("Slow Consumer (Pending Bytes)") == b""
    long = WebsocketCodec(PLAIN, MAX_PAYLOAD).closing("x" * 200)
    assert len(long) == 2 + 125 and long.endswith(b"...")
