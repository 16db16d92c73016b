"""Shared by the tests of delivery: a client that has a stream and consumers, sends pull requests and acks messages."""

from __future__ import annotations

import json
from typing import Any

from support.attack import Client
from support.wire_client import Frame

NS = 1_000_000_000
MS = 1_000_000


class Reader(Client):
    """A client of stream S. Messages for it are sent to `d.*`, which it subscribes to with sid 2."""

    def __init__(self, port: int, inbox: str = "_INBOX.me", **options: Any) -> None:
        super().__init__(port, inbox, **options)
        self.send(b"SUB d.* 2\r\n")

    def fill(self, count: int, subject: str = "s.a", size: int = 0) -> None:
        """Publish messages `1`, `2`, … and wait until the last one is stored."""
        for n in range(1, count):
            self.publish(subject, b"%d" % n + b"x" * size)
        if count:
            self.request(subject, b"%d" % count + b"x" * size)

    def consumer(self, name: str = "C", **config: Any) -> dict[str, Any]:
        config = {"durable_name": name, "ack_policy": "explicit", **config}
        found = self.api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
        assert "error" not in found, found
        return found

    def about(self, name: str = "C") -> dict[str, Any]:
        found = self.api(f"CONSUMER.INFO.S.{name}")
        assert "error" not in found, found
        return found

    def pull(self, reply: str = "d.p", name: str = "C", **request: Any) -> None:
        body = json.dumps(request).encode() if request else b""
        self.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", body, reply)

    def fetch(self, count: int, reply: str = "d.p", **request: Any) -> list[Frame]:
        """Pull `count` messages, and check that nothing else arrives."""
        self.pull(reply, batch=count, expires=10 * NS, **request)
        return [self.message() for _ in range(count)]


def ack_of(frame: Frame) -> tuple[int, int, int, int]:
    """(deliveries, stream seq, consumer seq, pending) from a delivery's reply subject."""
    assert frame.reply is not None
    tokens = frame.reply.split(b".")
    assert len(tokens) == 9, frame.reply
    return int(tokens[4]), int(tokens[5]), int(tokens[6]), int(tokens[8])


def status_of(frame: Frame) -> str:
    """The status line of a message, without the protocol's version."""
    assert frame.headers is not None, frame
    return frame.headers.split(b"\r\n")[0].decode().removeprefix("NATS/1.0 ")
