"""What the tests of bad input, load and faults share: a client that publishes and asks, a probe that measures whether
others are slowed down, the memory of a process."""

from __future__ import annotations

import json
import re
import statistics
import threading
import time
from types import TracebackType
from typing import Any

from wire_client import Closed, Frame, Silent, WireClient

SLOW_S = 0.5  # a round of the probe while others attack, on a machine that has other work, too
STUCK_S = 3.0
TRACE = re.compile(r"Traceback|^\s+File \"", re.MULTILINE)


class Client(WireClient):
    """A connection that has said CONNECT, and hears `inbox`."""

    def __init__(self, port: int, inbox: str = "_INBOX.me", **options: Any) -> None:
        super().__init__(port)
        self.inbox = inbox.encode()
        self.info = json.loads(self.receive().text)
        self.count = 0
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

    def __del__(self) -> None:
        self.close()

    def ping(self, wait: float = 10.0) -> float:
        """Seconds until the PONG; what comes before it is passed over."""
        began = time.perf_counter()
        self.send(b"PING\r\n")
        while self.receive(wait).verb != "PONG":
            pass
        return time.perf_counter() - began

    def message(self, wait: float = 10.0) -> Frame:
        """The next message; the server's pings are answered."""
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
        """The answer to a request."""
        self.count += 1
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        reply = f"{self.inbox.decode()}.{self.count}"
        self.publish(subject, body, reply)
        while True:
            frame = self.message(wait)
            if frame.subject == reply.encode():
                return frame

    def ask(self, subject: str, payload: bytes | dict[str, Any] = b"", wait: float = 10.0) -> dict[str, Any]:
        """The JSON of the answer."""
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
        """All that comes until the server closes the connection."""
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
    """A bystander: sends itself a message and a PING all the while, and remembers how long each round took."""

    def __init__(self, port: int, every_s: float = 0.005) -> None:
        self._port, self._every_s = port, every_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: BaseException | None = None
        self.rounds: list[float] = []

    def __enter__(self) -> Probe:
        self._client = Client(self._port, "_INBOX.probe")
        self._client.send(b"SUB probe 2\r\n")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join(15)
        self._client.close()
        if self._failure is not None and e is None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                began = time.perf_counter()
                self._client.publish("probe", b"x")
                assert self._client.message().payload == b"x"
                self._client.ping()
                self.rounds.append(time.perf_counter() - began)
                self._is_over.wait(self._every_s)
        except Exception as error:  # noqa: BLE001 - raised where the probe was made
            self._failure = error

    @property
    def median_s(self) -> float:
        return statistics.median(self.rounds)

    @property
    def worst_s(self) -> float:
        return max(self.rounds)


def memory_mb(pid: int) -> float:
    """What a process has in memory."""
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} has ended")


def assert_no_trace(log: list[str]) -> None:
    text = "".join(log)
    assert not TRACE.search(text), text
