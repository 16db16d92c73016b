"""Clients that publish, fetch and acknowledge until the server is killed, and records (`Book`) of what they know.

A book is kept across all restarts of the server. It knows what a consumer has certainly acknowledged (a double ack that
the server answered) and what it may have acknowledged (an ack without an answer). A delivery after a certain ack is a
broken promise: both use one connection, so their order is known.
"""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from support.attack import Client

WAIT_S = 30.0
ACK_WAIT_NS = 10**9
BATCH = 100


@dataclass(frozen=True, slots=True)
class Frame:
    subject: str
    sid: int
    reply: str
    headers: bytes
    payload: bytes


class Wire:
    """A connection that reads frames from a buffered file; raises ConnectionError when the server is gone."""

    def __init__(self, port: int, *inboxes: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._file = self._socket.makefile("rb", buffering=1 << 16)
        lines = "".join(f"SUB {inbox} {sid}\r\n" for sid, inbox in enumerate(inboxes, 1))
        self.send(b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"protocol":1}\r\n' + lines.encode())

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def publish(self, subject: str, payload: bytes = b"", reply: str = "") -> bytes:
        return f"PUB {subject} {reply} {len(payload)}\r\n".encode() + payload + b"\r\n"

    def receive(self) -> Frame:
        while True:
            line = self._file.readline()
            if not line.endswith(b"\n"):
                raise ConnectionError("the server has closed the connection")
            verb, *words = line.decode().split()
            if verb == "PING":
                self.send(b"PONG\r\n")
            if verb == "-ERR":
                raise AssertionError(line)
            if verb not in ("MSG", "HMSG"):
                continue
            size, header_size = int(words[-1]), int(words[-2]) if verb == "HMSG" else 0
            body = self._file.read(size + 2)
            if len(body) < size + 2:
                raise ConnectionError("the server has closed the connection")
            reply = words[2] if len(words) == (5 if verb == "HMSG" else 4) else ""
            if body.startswith(b"NATS/1.0 503"):
                raise ConnectionError("the server is stopping: nobody answers")
            return Frame(words[0], int(words[1]), reply, body[:header_size], body[header_size:size])

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class Life(threading.Thread):
    """A client that works until the server is gone; it fails if it ends for any other reason."""

    def __init__(self, port: int, seed: int, *inboxes: str) -> None:
        super().__init__(daemon=True)
        self.rng = random.Random(seed)
        self.failure: BaseException | None = None
        self.done = 0  # PubAcks received
        self._wire = Wire(port, *inboxes)

    def close(self) -> None:
        """Close a client that was never started."""
        self._wire.close()

    def run(self) -> None:
        try:
            while True:
                self.work()
        except OSError:
            pass  # the server is gone: the expected end
        except Exception as error:  # noqa: BLE001 - shown by the test
            self.failure = error
        finally:
            self._wire.close()

    def work(self) -> None:
        raise NotImplementedError


class Publisher(Life):
    """Publishes to `subjects` with fifty messages in flight, and records every PubAck."""

    def __init__(self, port: int, seed: int, name: str, subjects: list[str]) -> None:
        super().__init__(port, seed, f"_INBOX.{name}.*")
        self.name = name
        self.subjects = subjects
        self.acked: dict[int, tuple[str, bytes]] = {}
        self._count = 0

    def message(self, number: int) -> tuple[str, bytes]:
        return self.subjects[number % len(self.subjects)], f"{self.name} {number}".encode()

    def work(self) -> None:
        frames = []
        for number in range(self._count, self._count + 50):
            subject, payload = self.message(number)
            frames.append(self._wire.publish(subject, payload, f"_INBOX.{self.name}.{number}"))
        self._count += 50
        self._wire.send(b"".join(frames))
        for _ in frames:
            answer = self._wire.receive()
            found = json.loads(answer.payload)
            assert "error" not in found, found
            self.acked[found["seq"]] = self.message(int(answer.subject.rpartition(".")[2]))
            self.done += 1


@dataclass(slots=True)
class Book:
    """One consumer, and what its clients know about it."""

    stream: str
    name: str
    policy: str
    filter: str
    sure: set[int] = field(default_factory=set)
    maybe: set[int] = field(default_factory=set)
    sure_floor: int = 0  # ack policy `all`: everything up to here is certainly acknowledged …
    maybe_floor: int = 0  # … and everything up to here possibly
    broken: list[str] = field(default_factory=list)

    def create(self, client: Client) -> None:
        config: dict[str, Any] = {"durable_name": self.name, "ack_policy": self.policy, "filter_subject": self.filter}
        if self.policy != "none":
            config["ack_wait"] = ACK_WAIT_NS
        if self.policy == "all":
            config["max_ack_pending"] = -1  # the consumer is drained before anything is acknowledged
        wanted = {"stream_name": self.stream, "config": config}
        answer = client.api(f"CONSUMER.CREATE.{self.stream}.{self.name}", wanted)
        assert "error" not in answer, answer

    def matches(self, subject: str) -> bool:
        return self.filter.endswith(">") or subject == self.filter

    def is_sure(self, seq: int) -> bool:
        return seq <= self.sure_floor or seq in self.sure

    def is_maybe(self, seq: int) -> bool:
        return seq <= self.maybe_floor or seq in self.maybe

    def sending(self, seq: int) -> None:
        """Note that an ack of `seq` is about to be sent."""
        if self.policy == "all":
            self.maybe_floor = max(self.maybe_floor, seq)
        else:
            self.maybe.add(seq)

    def answered(self, seq: int) -> None:
        """Note that the server has answered the ack of `seq`."""
        if self.policy == "all":
            self.sure_floor = max(self.sure_floor, seq)
        else:
            self.sure.add(seq)

    def delivered(self, frame: Frame) -> Delivery:
        delivery = Delivery.of(frame)
        if self.is_sure(delivery.seq):
            self.broken.append(f"{self.name}: {frame.reply} was acknowledged, and the ack answered")
        return delivery


@dataclass(frozen=True, slots=True)
class Delivery:
    """The fields of an ack subject."""

    seq: int
    consumer_seq: int
    deliveries: int
    subject: str
    payload: bytes
    reply: str

    @classmethod
    def of(cls, frame: Frame) -> Delivery:
        deliveries, seq, consumer_seq = (int(word) for word in frame.reply.split(".")[-5:-2])
        return cls(seq, consumer_seq, deliveries, frame.subject, frame.payload, frame.reply)


class Worker(Life):
    """A client of one consumer: it fetches, and acknowledges in every way, or not at all."""

    def __init__(self, port: int, seed: int, book: Book) -> None:
        self.inbox = f"_INBOX.{book.name}"
        super().__init__(port, seed, f"{self.inbox}.m", f"{self.inbox}.a.*")
        self.book = book

    def work(self) -> None:
        for delivery in self.fetch(BATCH, expires_ns=10**9):
            chance = self.rng.random()
            if self.book.policy == "none" or chance > 0.9:
                continue  # not acknowledged: the message is redelivered
            if self.book.policy == "all" and chance > 0.05:
                continue  # one ack for several messages
            self.acknowledge(delivery, chance)

    def acknowledge(self, delivery: Delivery, chance: float = 0.0) -> None:
        """Send an ack whose answer arrives among the deliveries that follow."""
        if chance > 0.8:
            self._wire.send(self._wire.publish(delivery.reply, b"-NAK"))
            return
        self.book.sending(delivery.seq)
        payload = b"+TERM" if chance > 0.75 and self.book.policy == "explicit" else b"+ACK"
        answer = "" if 0.6 < chance <= 0.75 else f"{self.inbox}.a.{delivery.seq}"
        self._wire.send(self._wire.publish(delivery.reply, payload, answer))

    def fetch(self, count: int, expires_ns: int) -> Iterator[Delivery]:
        """The deliveries of one pull request, until it is filled or expires."""
        request = json.dumps({"batch": count, "expires": expires_ns}).encode()
        next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.book.stream}.{self.book.name}"
        self._wire.send(self._wire.publish(next_subject, request, f"{self.inbox}.m"))
        left = count
        while left:
            frame = self._wire.receive()
            if frame.sid == 2:
                self.take_answer(frame)
            elif frame.reply:
                left -= 1
                yield self.book.delivered(frame)
            else:
                assert frame.headers.startswith((b"NATS/1.0 408", b"NATS/1.0 409")), frame
                return

    def take_answer(self, frame: Frame) -> None:
        assert not frame.payload and not frame.headers, frame
        self.book.answered(int(frame.subject.rpartition(".")[2]))
        self.done += 1

    def drain(self, count: int) -> list[Delivery]:
        """Fetch all `count` messages that the consumer has pending, and acknowledge each with a double ack."""
        found: dict[int, Delivery] = {}
        stop = time.monotonic() + WAIT_S
        while len(found) < count:
            assert time.monotonic() < stop, f"{self.book.name}: {len(found)} of {count} came"
            for delivery in self.fetch(min(BATCH, count - len(found)), expires_ns=10**9):
                found.setdefault(delivery.seq, delivery)
                if self.book.policy == "explicit":
                    self.acknowledge(delivery)
        if found and self.book.policy == "all":  # an earlier ack would cover messages that are still to come
            self.acknowledge(found[max(found)])
        while self.book.policy != "none" and not all(map(self.book.is_sure, found)):
            self.take_answer(self._wire.receive())
        return list(found.values())
