"""Steps that the cases about consumers share: a stream with messages, a consumer, a pull, an acknowledgement.

A consumer of the real server runs concurrently with the client's requests: what it sends is ordered in itself, but may
arrive before or after the answer to another request. So a case reads the frames that it waits for before its next
request, waits for an acknowledgement's answer, and shows that no more messages arrive by a status that follows them.
"""

from __future__ import annotations

from typing import Any

from parity.script import Connection, Payload, Script
from support.wire_client import Frame

MS = 1_000_000
NS = 1_000_000_000
FIVE = ("t.a", "t.b", "t.a", "t.c", "t.b")


def fill(c: Connection, subjects: tuple[str, ...] = FIVE, start: int = 1, size: int = 0) -> None:
    """Publish to `subjects` and wait for the last acknowledgement; the bodies are m1, m2 …"""
    last = len(subjects) - 1
    for n, subject in enumerate(subjects):
        body = f"m{start + n}".ljust(size, ".")
        if n < last:
            c.pub(subject, body)
        else:
            c.request(subject, body, is_kept=False)


def feed(writer: Connection, reader: Connection, subjects: tuple[str, ...], start: int = 1, size: int = 0) -> None:
    """Publish one message after the other to waiting readers: the message for `reader` is read before the next one is
    published.
    """
    for n, subject in enumerate(subjects, start):
        writer.request(subject, f"m{n}".ljust(size, "."), is_kept=False)
        reader.read(1)


def streamed(s: Script, messages: tuple[str, ...] = FIVE, size: int = 0, **more: Any) -> Connection:
    """A connection, and a stream T on t.> with `messages`."""
    c = s.connect()
    answer = c.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t.>"], **more}, is_kept=False)
    assert "error" not in answer, answer
    if messages:
        fill(c, messages, size=size)
    return c


def consume(c: Connection, is_kept: bool = False, **config: Any) -> dict[str, Any]:
    """Create the durable C with explicit acks, unless `config` says otherwise."""
    config = {"durable_name": "C", "ack_policy": "explicit"} | config
    name = config["durable_name"] or config.get("name")
    if not config["durable_name"]:
        del config["durable_name"]
    subject = f"CONSUMER.CREATE.T.{name}" if name else "CONSUMER.CREATE.T"
    answer = c.api(subject, {"stream_name": "T", "config": config}, is_kept=is_kept)
    assert is_kept or "error" not in answer, answer
    return answer


def pull(c: Connection, body: Payload = b"", reply: str = "p", consumer: str = "C") -> None:
    c.pub(f"$JS.API.CONSUMER.MSG.NEXT.T.{consumer}", body, reply)


def pulling(
    s: Script, messages: tuple[str, ...] = FIVE, stream: dict[str, Any] | None = None, **config: Any
) -> Connection:
    """A connection that subscribes to `p` with sid 1; the stream T and its durable C."""
    c = streamed(s, messages, **(stream or {}))
    consume(c, **config)
    c.sub("p", "1")
    return c


def fetch(c: Connection, count: int = 1, reply: str = "p", consumer: str = "C") -> list[Frame]:
    """Pull `count` messages and read them."""
    pull(c, {"batch": count, "expires": 5 * NS}, reply, consumer)
    return c.read(count, f"fetch {count}")


def ack(c: Connection, frame: Frame, body: Payload = "+ACK") -> None:
    """Acknowledge, and wait for the answer to the acknowledgement."""
    assert frame.reply is not None
    c.request(frame.reply.decode(), body)


def quiet_ack(c: Connection, frame: Frame, body: Payload = "+ACK", reply: str = "") -> None:
    assert frame.reply is not None
    c.pub(frame.reply.decode(), body, reply)


def settle(c: Connection, pending: int, consumer: str = "C") -> None:
    """Wait until this many messages are pending: the real server counts a published message a moment later."""
    c.until(f"CONSUMER.INFO.T.{consumer}", "", lambda a: a.get("num_pending") == pending, is_kept=False)


def take(c: Connection, pending: int, reply: str = "p", consumer: str = "C") -> list[Frame]:
    """Take everything that was just published; this consumer matches `pending` of the messages."""
    settle(c, pending, consumer)
    return no_more(c, reply, consumer)


def no_more(c: Connection, reply: str = "p", consumer: str = "C") -> list[Frame]:
    """Take what is there without waiting; the last frame is a status."""
    pull(c, {"batch": 100, "no_wait": True}, reply, consumer)
    return c.read_until_status("take what is there")


def info(c: Connection, consumer: str = "C") -> dict[str, Any]:
    return c.api(f"CONSUMER.INFO.T.{consumer}")


def until_waiting(c: Connection, count: int, consumer: str = "C") -> None:
    """Wait until this many pull requests wait."""
    c.until(f"CONSUMER.INFO.T.{consumer}", "", lambda a: a.get("num_waiting") == count)


def listening(s: Script, subject: str = "$JS.EVENT.>", name: str = "b") -> Connection:
    """Another connection, which subscribes to `subject`."""
    listener = s.connect(name)
    listener.sub(subject, "ev")
    listener.flush()
    return listener
