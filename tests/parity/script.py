"""Script: the steps of a case against a server, and the transcript of the server's answers.

A case is a function of a `Script`. Every step that reads writes an entry: the connection, the step, and the frames that
arrived. Nothing waits for time to pass: a step ends with the answer it requested, a PONG, or the connection's end.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from parity.normal import Normal
from support.servers import ServerProcess
from support.wire_client import Closed, Frame, Silent, WireClient

Json = dict[str, Any] | list[Any]
Payload = bytes | str | Json
TIMEOUTS_MAX = 2  # after this many timeouts the rest of a case tells nothing
DID_MAX = 160
DEFAULTS = {
    "verbose": False,
    "pedantic": False,
    "headers": True,
    "no_responders": True,
    "protocol": 1,
    "lang": "raw",
    "version": "0",
}


class GivenUp(Exception):
    """The server was silent too often; the transcript ends here."""


def as_bytes(payload: Payload) -> bytes:
    if isinstance(payload, bytes):
        return payload
    return payload.encode() if isinstance(payload, str) else json.dumps(payload).encode()


def header_block(lines: list[str] | bytes, first_line: str = "NATS/1.0") -> bytes:
    if isinstance(lines, bytes):
        return lines
    return (first_line + "\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode("latin-1")


class Connection:
    """One connection of a script; its steps go to the script's transcript under its name."""

    def __init__(self, script: Script, name: str, wire: WireClient | None = None) -> None:
        self.name = name
        self.show_info = False
        self.show_pings = False
        self.is_closed = False
        self._left_out = b"\0"
        self._script = script
        self._wire = wire or WireClient(script.port)
        self._inbox_count = 0

    # Steps that send without waiting for an answer.

    def send(self, data: bytes | str) -> None:
        self._wire.send(data if isinstance(data, bytes) else data.encode())

    def sub(self, subject: str, sid: str, queue: str = "") -> None:
        self.send(f"SUB {subject} {queue} {sid}\r\n")

    def unsub(self, sid: str, after: int | None = None) -> None:
        self.send(f"UNSUB {sid}\r\n" if after is None else f"UNSUB {sid} {after}\r\n")

    def pub(
        self,
        subject: str,
        payload: Payload = b"",
        reply: str = "",
        headers: list[str] | bytes | None = None,
        first_line: str = "NATS/1.0",
    ) -> None:
        body = as_bytes(payload)
        if headers is None:
            head = f"PUB {subject} {reply} {len(body)}\r\n"
        else:
            block = header_block(headers, first_line)
            head = f"HPUB {subject} {reply} {len(block)} {len(block) + len(body)}\r\n"
            body = block + body
        self.send(head.encode() + body + b"\r\n")

    # Steps that read.

    def flush(self, did: str = "flush", is_sorted: bool = False) -> list[Frame]:
        """PING, and everything up to its PONG; sorted where the server may choose an order."""
        self.send("PING\r\n")
        return self.read_until_pong(did, is_sorted)

    def read_until_pong(self, did: str, is_sorted: bool = False, leave_out: bytes = b"\0") -> list[Frame]:
        self._left_out = leave_out
        return self._read_until(did, lambda frame: frame.verb == "PONG", is_end_kept=False, is_sorted=is_sorted)

    def tell(self, data: bytes | str, is_sorted: bool = False, leave_out: bytes = b"\0") -> list[Frame]:
        """Send bytes, then PING: what the server says to them but for texts with `leave_out`, and whether it stays."""
        self._left_out = leave_out
        data = data if isinstance(data, bytes) else data.encode()
        self.send(data + b"PING\r\n")
        did = f"send {shown(data)}"
        return self._read_until(did, lambda frame: frame.verb == "PONG", is_end_kept=False, is_sorted=is_sorted)

    def read(self, count: int, did: str = "", is_sorted: bool = False) -> list[Frame]:
        """The next `count` frames."""
        left = [count]

        def is_last(_: Frame) -> bool:
            left[0] -= 1
            return left[0] == 0

        return self._read_until(did or f"read {count}", is_last, is_sorted=is_sorted)

    def read_until_status(self, did: str = "read until a status") -> list[Frame]:
        """Everything up to a message whose header line has a status."""
        return self._read_until(did, lambda f: f.headers is not None and f.headers.startswith(b"NATS/1.0 "))

    def read_until_statuses(self, count: int, did: str = "") -> list[Frame]:
        """Everything up to the `count`-th message whose header line has a status, heartbeats not counted.

        Of heartbeats that say the same one is kept: how many fit in is the clock's affair.
        """
        left = [count]

        def is_last(frame: Frame) -> bool:
            if frame.headers is not None and frame.headers.startswith(b"NATS/1.0 ") and frame.headers[9:12] != b"100":
                left[0] -= 1
            return left[0] == 0

        return self._read_until(did or f"read until {count} statuses", is_last, is_by_clock=True)

    def read_messages(self, count: int, did: str = "") -> list[Frame]:
        """The next `count` messages; statuses between them, which come by the clock, are left out."""
        frames: list[Frame] = []
        left = [count]

        def is_last(frame: Frame) -> bool:
            if frame.headers is None or not frame.headers.startswith(b"NATS/1.0 "):
                frames.append(frame)
                left[0] -= 1
            return left[0] == 0

        self._read_until(did, is_last, is_kept=False)
        self._script.note(self.name, did or f"read {count} messages", [self._told(frame) for frame in frames])
        return frames

    def read_until_subject(self, subject: str, did: str) -> list[Frame]:
        """Everything up to a message on `subject`; that nobody listens is told at once, so it comes first."""
        frames = self._read_until(did, lambda frame: frame.subject == subject.encode(), is_kept=False)
        told = [self._told(frame) for frame in frames]
        at_once = [frame for frame in told if "503" in frame.get("headers", "")]
        self._script.note(self.name, did, at_once + [frame for frame in told if frame not in at_once])
        return frames

    def take(self, count: int) -> list[Frame]:
        """The next `count` frames, which the case uses and the transcript leaves out."""
        left = [count]

        def is_last(_: Frame) -> bool:
            left[0] -= 1
            return left[0] == 0

        return self._read_until(f"take {count}", is_last, is_kept=False)

    def take_until(self, text: bytes) -> list[Frame]:
        """Everything up to a frame that has `text` in its headers or payload, for the case alone."""

        def is_last(frame: Frame) -> bool:
            return text in (frame.headers or b"") or text in frame.payload

        return self._read_until(f"take until {text.decode()}", is_last, is_kept=False)

    def take_until_subject(self, subject: str) -> list[Frame]:
        """The messages up to one on `subject`, for the case alone; no answers to requests."""
        found = self._read_until(
            f"take until {subject}", lambda frame: frame.subject == subject.encode(), is_kept=False
        )
        return [
            frame
            for frame in found
            if not frame.subject.startswith(b"_INBOX.") and not frame.subject.startswith(b"$JS.")
        ]

    def expect_close(self, did: str = "read until the end") -> list[Frame]:
        return self._read_until(did, lambda _: False)

    def request(
        self,
        subject: str,
        payload: Payload = b"",
        headers: list[str] | bytes | None = None,
        first_line: str = "NATS/1.0",
        is_kept: bool = True,
    ) -> Frame | None:
        """Publish with a new inbox as reply; the frame that comes to that inbox (others before it are kept, too)."""
        inbox = self._ask(subject, payload, headers, first_line)
        did = f"request {subject} {shown(as_bytes(payload))}".rstrip() + (
            f" {shown_headers(headers)}" if headers else ""
        )
        frames = self._read_until(did, lambda frame: frame.subject == inbox, is_kept=is_kept)
        return frames[-1] if frames and frames[-1].subject == inbox else None

    def api(self, subject: str, payload: Payload = b"", is_kept: bool = True) -> dict[str, Any]:
        """Send a request to `$JS.API.<subject>`; returns the JSON of the answer, {} if none arrived."""
        frame = self.request(f"$JS.API.{subject}", payload, is_kept=is_kept)
        if frame is None or not frame.payload.startswith(b"{"):
            return {}
        answer: dict[str, Any] = json.loads(frame.payload)
        return answer

    def many(self, subject: str, payload: Payload = b"", headers: list[str] | None = None) -> list[Frame]:
        """A request with several answers, the last of which has a status."""
        inbox = self._ask(subject, payload, headers, "NATS/1.0")

        def is_last(frame: Frame) -> bool:
            return frame.subject == inbox and (frame.headers is None or frame.headers.startswith(b"NATS/1.0 "))

        return self._read_until(f"request {subject} {shown(as_bytes(payload))}", is_last)

    def until(
        self,
        subject: str,
        payload: Payload,
        is_so: Callable[[dict[str, Any]], bool],
        seconds: float = 8,
        is_kept: bool = True,
    ) -> dict[str, Any]:
        """Ask the API again and again until its answer is so; only that answer is kept."""
        stop = time.monotonic() + seconds
        while time.monotonic() < stop:
            answer = self.api(subject, payload, is_kept=False)
            if is_so(answer):
                if is_kept:
                    self._script.normal.learn(answer)
                    self._script.note(self.name, f"until {subject}", [{"json": self._script.normal.value(answer)}])
                return answer
            time.sleep(0.01)
        self._script.silence(self.name, f"until {subject}", [])
        return {}

    def close(self) -> None:
        self._wire.close()

    def secure(self, context: ssl.SSLContext) -> None:
        """The client's side of a TLS handshake; a failed one shows as the connection's end."""
        self._wire.secure(context)

    def finish_sending(self) -> None:
        self._wire.finish_sending()

    def _ask(self, subject: str, payload: Payload, headers: list[str] | bytes | None, first_line: str) -> bytes:
        if not self._inbox_count:
            self.sub(f"_INBOX.{self.name}.*", "inbox")
        self._inbox_count += 1
        inbox = f"_INBOX.{self.name}.{self._inbox_count}"
        self.pub(subject, payload, inbox, headers, first_line)
        return inbox.encode()

    def _told(self, frame: Frame) -> dict[str, Any]:
        """The frame as the transcript has it; an inbox is named by what it was made for, not by its number."""
        told = self._script.normal.frame(frame)
        inboxes = f"_INBOX.{self.name}."
        if "subject" in told and told["subject"].startswith(inboxes):
            is_last = told["subject"] == f"{inboxes}{self._inbox_count}"
            told["subject"] = "<inbox>" if is_last else "<an earlier inbox>"
        return told

    def _is_shown(self, frame: Frame) -> bool:
        if self._left_out in frame.text:
            return False
        return (self.show_info or frame.verb != "INFO") and (self.show_pings or frame.verb != "PING")

    def _read_until(
        self,
        did: str,
        is_last: Callable[[Frame], bool],
        is_end_kept: bool = True,
        is_kept: bool = True,
        is_sorted: bool = False,
        is_by_clock: bool = False,
    ) -> list[Frame]:
        frames: list[Frame] = []
        got: list[dict[str, Any]] = []
        is_silent = False
        while True:
            try:
                frame = self._wire.receive()
            except Closed:
                self.is_closed = True
                got.append({"frame": "closed"})
                break
            except Silent:
                is_silent = True
                break
            if not self._is_shown(frame):
                continue
            is_end = is_last(frame)
            if not is_end or is_end_kept:
                frames.append(frame)
                got.append(self._told(frame))
            if is_end:
                break
        if is_sorted:
            got.sort(key=json.dumps)
        if is_by_clock:
            got = [frame for n, frame in enumerate(got) if not (n and frame == got[n - 1] and is_heartbeat(frame))]
        if is_silent:
            self._script.silence(self.name, did, got)
        elif is_kept:
            self._script.note(self.name, did, got)
        return frames


def is_heartbeat(told: dict[str, Any]) -> bool:
    return str(told.get("headers", "")).startswith("NATS/1.0 100 Idle")


class Script:
    """The connections of one case, and its transcript."""

    def __init__(self, port: int, account: str = "", server: ServerProcess | None = None) -> None:
        self._port = port
        self._server = server
        self.account = account
        self.normal = Normal({account: "<account>"} if account else {})
        self.transcript: list[dict[str, Any]] = []
        self.is_whole = True
        self._silences = 0
        self._connections: list[Connection] = []

    @property
    def server(self) -> ServerProcess:
        """The server's process; only a case that has it alone may stop it."""
        assert self._server is not None, "a case in an account has no server"
        return self._server

    @property
    def port(self) -> int:
        return self._port if self._server is None else self._server.port

    def __enter__(self) -> Script:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        for connection in self._connections:
            connection.close()

    def open(self, name: str = "a") -> Connection:
        """A connection that has sent nothing yet; INFO is read, and kept if the case has set `show_info` before."""
        connection = Connection(self, name)
        self._connections.append(connection)
        return connection

    def open_on(self, wire: WireClient, name: str = "a") -> Connection:
        """A connection to the server's port by another transport than TCP."""
        connection = Connection(self, name, wire)
        self._connections.append(connection)
        return connection

    def connect(self, label: str = "a", **options: Any) -> Connection:
        """A connection after its handshake, which is in the transcript only if it fails."""
        connection = self.open(label)
        credentials = {"user": self.account, "pass": self.account} if self.account else {}
        told = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "protocol": 1,
            "lang": "raw",
        }
        connection.send("CONNECT " + json.dumps(told | credentials | options) + "\r\n")
        connection.flush("connect")
        return connection

    def note(self, connection: str, did: str, got: list[dict[str, Any]]) -> None:
        if did == "connect" and not got:
            return
        did = self.normal.text(did)
        self.transcript.append({"on": connection, "did": did[:DID_MAX], "got": got})

    def value(self, did: str, value: Any) -> None:
        """Record a value that the case has derived from answers."""
        self.transcript.append({"did": did, "got": [{"json": self.normal.value(value)}]})

    def silence(self, connection: str, did: str, got: list[dict[str, Any]]) -> None:
        self.note(connection, did, [*got, {"frame": "nothing more came in time"}])
        self.is_whole = False
        self._silences += 1
        if self._silences >= TIMEOUTS_MAX:
            raise GivenUp


def shown(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace").replace("\r\n", "⏎")


def shown_headers(headers: list[str] | bytes | None) -> str:
    if headers is None:
        return ""
    return shown(headers) if isinstance(headers, bytes) else "[" + " | ".join(headers) + "]"
