"""Shared by the tests of bad input, load and faults: a client that publishes and sends requests, a probe that measures
whether other clients are slowed down, and the memory of a process.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from types import TracebackType
from typing import Any

from support.wire_client import Closed, Frame, Silent, WireClient

SLOW_S = 0.5  # limit for one round of the probe during an attack, on a machine that has other work, too
STUCK_S = 3.0
TRACE = re.compile(r"Traceback|^\s+File \"", re.MULTILINE)

BYSTANDER = """
import select, socket, sys, time
port, every_s = int(sys.argv[1]), float(sys.argv[2])
client = socket.create_connection(("127.0.0.1", port), timeout=15)
client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
client.sendall(b'CONNECT {"verbose":false}\\r\\nSUB probe.%d 1\\r\\nPING\\r\\n' % port)
def read(end):
    found = b""
    while not found.endswith(end):
        part = client.recv(65536)
        assert part, "the server has closed the connection"
        found += part.replace(b"PING\\r\\n", b"")
read(b"PONG\\r\\n")
print("ready", flush=True)
is_over = False
while not is_over:
    is_over = bool(select.select([sys.stdin], [], [], every_s)[0])
    began = time.perf_counter()
    client.sendall(b"PUB probe.%d 1\\r\\nx\\r\\nPING\\r\\n" % port)
    read(b"x\\r\\nPONG\\r\\n")
    print(time.perf_counter() - began, flush=True)
"""


class Client(WireClient):
    """A connection that has sent CONNECT and subscribed to `inbox`."""

    def __init__(self, port: int, inbox: str = "_INBOX.me", **options: Any) -> None:
        self._open(port, inbox)
        self.info = json.loads(self.receive().text)
        connect = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "protocol": 1,
            **options,
        }
        self.send(b"CONNECT " + json.dumps(connect).encode() + b"\r\nSUB " + self.inbox + b".* 1\r\n")
        self.ping()

    def _open(self, port: int, inbox: str) -> None:
        WireClient.__init__(self, port)
        self.inbox = inbox.encode()
        self.count = 0
        self._passed: deque[Frame] = deque()  # messages that arrived while the client waited for something else

    def __del__(self) -> None:
        self.close()

    def ping(self, wait: float = 10.0) -> float:
        """Seconds until the PONG; messages that arrive before it are kept for `message`."""
        began = time.perf_counter()
        self.send(b"PING\r\n")
        while (frame := self.receive(wait)).verb != "PONG":
            if frame.verb in ("MSG", "HMSG"):
                self._passed.append(frame)
        return time.perf_counter() - began

    def kept(self) -> list[Frame]:
        """The messages that arrived before the last PONG and have not been read yet."""
        found = list(self._passed)
        self._passed.clear()
        return found

    def message(self, wait: float = 10.0) -> Frame:
        """The next message; PINGs of the server are answered on the way."""
        return self._passed.popleft() if self._passed else self._next(wait)

    def _next(self, wait: float) -> Frame:
        while True:
            frame = self.receive(wait)
            if frame.verb == "PING":
                self.send(b"PONG\r\n")
            elif frame.verb in ("MSG", "HMSG"):
                return frame

    def pub(self, subject: str, payload: bytes = b"", reply: str = "") -> bytes:
        return f"PUB {subject} {reply + ' ' if reply else ''}{len(payload)}\r\n".encode() + payload + b"\r\n"

    def publish(self, subject: str, payload: bytes = b"", reply: str = "") -> None:
        self.send(self.pub(subject, payload, reply))

    def request(self, subject: str, payload: bytes | dict[str, Any] = b"", wait: float = 10.0) -> Frame:
        """The reply to a request; other messages that arrive before it are kept for `message`."""
        self.count += 1
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        reply = f"{self.inbox.decode()}.{self.count}"
        self.publish(subject, body, reply)
        while True:
            frame = self._next(wait)
            if frame.subject == reply.encode():
                return frame
            self._passed.append(frame)

    def ask(self, subject: str, payload: bytes | dict[str, Any] = b"", wait: float = 10.0) -> dict[str, Any]:
        """The reply to a request, decoded from JSON."""
        found = json.loads(self.request(subject, payload, wait).payload)
        assert isinstance(found, dict)
        return found

    def api(self, subject: str, payload: bytes | dict[str, Any] = b"") -> dict[str, Any]:
        return self.ask(f"$JS.API.{subject}", payload)

    def create(self, name: str, *subjects: str, **config: Any) -> None:
        found = self.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects, **config})
        assert "error" not in found, found

    def state(self, name: str) -> dict[str, Any]:
        found = self.api(f"STREAM.INFO.{name}")
        assert "error" not in found, found
        state = found["state"]
        assert isinstance(state, dict)
        return state

    def drain(self, wait: float = 5.0) -> list[Frame]:
        """Everything that arrives until the server closes the connection."""
        frames = []
        try:
            while True:
                frames.append(self.receive(wait))
        except Closed:
            return frames

    def is_alive(self) -> bool:
        try:
            self.ping(5)
        except (Closed, Silent):
            return False
        return True


class Probe:
    """A bystander in a process of its own: it keeps sending itself a message and a PING. `rounds` holds how long each
    round took.
    """

    def __init__(self, port: int, every_s: float = 0.005) -> None:
        self._arguments = [sys.executable, "-c", BYSTANDER, str(port), str(every_s)]
        self.rounds: list[float] = []

    def __enter__(self) -> Probe:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._arguments, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.rounds.append(float(line))

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None and self._process.stderr is not None
        self._process.stdin.close()  # the process ends after the current round
        said = self._process.stderr.read()
        self._process.wait(15)
        self._thread.join(5)
        self._process.stdout.close()
        self._process.stderr.close()
        assert e is not None or not said, said

    @property
    def median_s(self) -> float:
        return statistics.median(self.rounds)

    @property
    def worst_s(self) -> float:
        return max(self.rounds)


def memory_mb(pid: int) -> float:
    """The resident memory of a process."""
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} has ended")


def assert_no_trace(log: list[str]) -> None:
    text = "".join(log)
    assert not TRACE.search(text), text
