"""A server prepared for an operation of `stalls`: filled streams, consumers, connections."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from bench.harness import Bench
from bench.load import drive
from bench.server import Running

HANDSHAKE = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'


class Stage:
    """A server and what an operation needs of it."""

    def __init__(self, server: Running, bench: Bench, closing: ExitStack) -> None:
        self.server, self.bench, self.closing = server, bench, closing
        self.idle = ExitStack()  # connections that only exist
        self.wire: socket.socket

    def fill(self, count: int, subjects: int, *, ids: bool = False, **config: Any) -> None:
        """Stream S with `count` messages of 128 bytes on so many subjects, in turn."""
        self.server.make_stream(**({"max_consumers": -1} | config))
        self.publish(count, subjects, ids=ids)

    def publish(self, count: int, subjects: int, *, ids: bool = False) -> None:
        more = {"ids": 1} if ids else {"frames": max(subjects, 8000)}
        drive(
            "publish",
            self.server.port,
            count=count,
            window=4000,
            refill=1000,
            keys=subjects,
            in_turn=1,
            subject="bench.x.",
            **more,
        )

    def ask(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """As `Running.request`, for what takes its time."""
        wire, lines = self.connect(timeout_s=300)
        given = b"" if body is None else json.dumps(body).encode()
        try:
            wire.sendall(b"SUB r 1\r\nPUB %s r %d\r\n%s\r\n" % (subject.encode(), len(given), given))
            while not (line := lines.readline()).startswith((b"MSG", b"HMSG")):
                if not line or line.startswith(b"-ERR"):
                    raise ConnectionError(f"{subject}: {line!r}")
            got = lines.read(int(line.split()[-1]))
        finally:
            wire.close()
        answer: dict[str, Any] = json.loads(got) if line.startswith(b"MSG") else {"error": repr(got)}
        if "error" in answer:
            raise RuntimeError(f"{self.server.side.name} on {subject}: {answer['error']}")
        return answer

    def connect(self, timeout_s: float = 60) -> tuple[socket.socket, Any]:
        wire = socket.create_connection(("127.0.0.1", self.server.port), timeout=timeout_s)
        lines = wire.makefile("rb")
        lines.readline()  # INFO
        wire.sendall(HANDSHAKE + b"PING\r\n")
        while (line := lines.readline()) != b"PONG\r\n":
            if not line or line.startswith(b"-ERR"):
                raise ConnectionError(repr(line))
        return wire, lines

    def consumer(self, name: str, **config: Any) -> None:
        wanted = {"durable_name": name, "ack_policy": "explicit", "ack_wait": 3600 * 10**9} | config
        self.ask(f"$JS.API.CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": wanted})

    def wait(self, is_done: Callable[[], bool], timeout_s: float = 120) -> None:
        stop = time.monotonic() + timeout_s
        while not is_done():
            if time.monotonic() > stop:
                raise TimeoutError(f"{self.server.side.name}: it did not come to its end in {timeout_s:g} s")
            time.sleep(0.05)  # nobody tells: it is asked again

    def messages(self) -> int:
        return int(self.server.request("$JS.API.STREAM.INFO.S")["state"]["messages"])

    def pull(self, count: int) -> None:
        """Take so many messages of consumer C without an ack."""
        wire, lines = self.connect()
        wire.sendall(b"SUB in 1\r\n")
        while count > 0:
            batch = min(count, 100_000)
            body = json.dumps({"batch": batch, "expires": 60 * 10**9}).encode()
            wire.sendall(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.C in %d\r\n%s\r\n" % (len(body), body))
            for _ in range(batch):
                while not (line := lines.readline()).startswith(b"MSG"):
                    if not line or line.startswith((b"-ERR", b"HMSG")):
                        raise ConnectionError(repr(line))
                lines.read(int(line.split()[-1]) + 2)
            count -= batch
        wire.close()
