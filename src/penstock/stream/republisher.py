"""Republisher: holds the messages that a stream with `republish` publishes again once they are durable.

Headers are as observed on nats-server 2.15.1: a message keeps its own, followed by headers that tell where it comes
from and which sequence its subject had before.
"""

from __future__ import annotations

from collections import deque

from penstock.base.duration import format_time
from penstock.base.subject import is_valid_subject
from penstock.stream.config import Republish, StreamConfig
from penstock.stream.transform import SubjectTransform
from penstock.wire.headers import VERSION


def republisher_of(config: StreamConfig, old: Republisher | None) -> Republisher | None:
    """The republisher of this stream, if it has one. Messages that `old` still holds are still published."""
    if config.republish is None or not config.republish.dest:
        return None
    found = Republisher(config.name, config.republish)
    if old is not None:
        found.take_over(old)
    return found


class Republisher:
    """Messages that wait until they are committed, ordered by sequence."""

    __slots__ = ("_config", "_stream", "_transform", "_waiting")

    def __init__(self, stream: str, config: Republish) -> None:
        self._stream = stream.encode()
        self._config = config
        self._transform = SubjectTransform(config.src, config.dest)
        self._waiting: deque[tuple[int, bytes, bytes, bytes]] = deque()

    def take_over(self, old: Republisher) -> None:
        self._waiting = old._waiting

    def wants(self, subject: bytes) -> bool:
        """Whether messages of this subject are published again."""
        return self._transform.apply(subject) is not None

    def note(self, seq: int, time: int, subject: bytes, headers: bytes, payload: bytes, previous_seq: int) -> None:
        """A message was appended as `seq`; the previous message of its subject is `previous_seq`, 0 if there was
        none."""
        target = self._transform.apply(subject)
        if target is None or not is_valid_subject(target):
            return
        lines = b"Nats-Stream: %s\r\nNats-Subject: %s\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %s\r\n" % (
            self._stream, subject, seq, format_time(time).encode(),
        )  # fmt: skip
        lines += b"Nats-Last-Sequence: %d\r\n" % previous_seq
        if self._config.headers_only:
            lines += b"Nats-Msg-Size: %d\r\n" % len(payload)
            payload = b""
        front = headers[:-2] if headers else VERSION + b"\r\n"
        self._waiting.append((seq, target, front + lines + b"\r\n", payload))

    def take(self, committed_seq: int) -> list[tuple[bytes, bytes, bytes]]:
        """(subject, headers, payload) of the messages up to a sequence; each is returned once."""
        found = []
        while self._waiting and self._waiting[0][0] <= committed_seq:
            found.append(self._waiting.popleft()[1:])
        return found

    def forget_above(self, seq: int) -> None:
        """Roll back: the messages above `seq` were never stored."""
        while self._waiting and self._waiting[-1][0] > seq:
            self._waiting.pop()
