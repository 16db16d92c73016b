"""ConsumerMessage: a message that a consumer delivered, which is acknowledged by what it is told."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from penstock.base.duration import Duration
from penstock.consumer.engine import Delivered
from penstock.store.read.message import Message
from penstock.wire.headers import Headers

if TYPE_CHECKING:
    from penstock.db.consumer import Consumer


class DeliveredMessage:
    """What both faces' messages have: the message, and its place among the consumer's deliveries."""

    __slots__ = ("consumer_seq", "deliveries", "message", "pending")

    def __init__(self, delivered: Delivered) -> None:
        self.message: Message = delivered.message
        """The message as the stream has it."""
        self.consumer_seq: int = delivered.consumer_seq
        """Which delivery of the consumer's this is."""
        self.deliveries: int = delivered.deliveries
        """How often this message was delivered, with this time: 1 at first."""
        self.pending: int = delivered.pending
        """How many messages match and were not delivered yet, after this one."""

    @property
    def seq(self) -> int:
        """Its sequence in the stream."""
        return self.message.seq

    @property
    def subject(self) -> str:
        return self.message.subject

    @property
    def data(self) -> bytes:
        return self.message.data

    @property
    def headers(self) -> Headers:
        return self.message.headers

    @property
    def time(self) -> datetime:
        """When it was stored."""
        return self.message.time

    @property
    def time_ns(self) -> int:
        return self.message.time_ns

    def __repr__(self) -> str:
        again = f", delivered {self.deliveries} times" if self.deliveries > 1 else ""
        return f"<{type(self).__name__} {self.seq} {self.subject!r} {len(self.data)} bytes{again}>"


class ConsumerMessage(DeliveredMessage):
    """A message that a consumer delivered. One that is told nothing comes again after `ack_wait`.

    Telling it something twice, or after somebody else got it and has acknowledged it, is harmless: the answer is False.
    """

    __slots__ = ("_consumer",)

    def __init__(self, delivered: Delivered, consumer: Consumer) -> None:
        self.message = delivered.message  # written out: one is made for each message
        self.consumer_seq = delivered.consumer_seq
        self.deliveries = delivered.deliveries
        self.pending = delivered.pending
        self._consumer = consumer

    def ack(self, *, sync: bool = False) -> bool:
        """It is done, and will not come again; with ack policy "all", everything before it too.

        sync: return when that is durable (a double ack); otherwise it is written soon, and after a crash the message
        may come once more. False: it was not pending (any more).
        """
        return self._consumer._ack(self, sync)

    def nak(self, delay: Duration | None = None) -> bool:
        """It was not done: let it come again, at once or after `delay` ("10s", or seconds)."""
        return self._consumer._nak(self, delay)

    def term(self, reason: str = "") -> bool:
        """It cannot be done: never let it come again. The reason goes to the log (`logging`, "penstock")."""
        return self._consumer._term(self, reason)

    def in_progress(self) -> bool:
        """It is being worked on: `ack_wait` begins anew."""
        return self._consumer._progress(self)
