"""ConsumerMessage: a message that a consumer delivered, with the methods that acknowledge it."""

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
    """What the sync and the async message share: the message, and its place among the consumer's deliveries."""

    __slots__ = ("consumer_seq", "deliveries", "message", "pending")

    def __init__(self, delivered: Delivered) -> None:
        self.message: Message = delivered.message
        """The message as it is stored."""
        self.consumer_seq: int = delivered.consumer_seq
        """The number of this delivery among all of the consumer's."""
        self.deliveries: int = delivered.deliveries
        """How often this message was delivered, this time included: 1 at first."""
        self.pending: int = delivered.pending
        """How many more matching messages were not delivered yet."""

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
    """A message that a consumer delivered. It is delivered again after `ack_wait` unless it is acknowledged.

    Acknowledging it twice, or after another client received and acknowledged it, is harmless and returns False.
    """

    __slots__ = ("_consumer",)

    def __init__(self, delivered: Delivered, consumer: Consumer) -> None:
        self.message = delivered.message  # not super().__init__(): this runs for each message
        self.consumer_seq = delivered.consumer_seq
        self.deliveries = delivered.deliveries
        self.pending = delivered.pending
        self._consumer = consumer

    def ack(self, *, sync: bool = False) -> bool:
        """Acknowledge it: it is not delivered again; with ack policy "all", nor is any earlier message.

        sync: return when the ack is durable (a double ack). Otherwise it is written soon, and after a crash the message
        may be delivered once more. Returns False if the message was not pending (any more).
        """
        return self._consumer._ack(self, sync)

    def nak(self, delay: Duration | None = None) -> bool:
        """Report failure: deliver it again, at once or after `delay` ("10s", or seconds)."""
        return self._consumer._nak(self, delay)

    def term(self, reason: str = "") -> bool:
        """Report that it cannot be processed: never deliver it again. The reason is logged (`logging`, "penstock")."""
        return self._consumer._term(self, reason)

    def in_progress(self) -> bool:
        """Report that it is being processed: `ack_wait` starts anew."""
        return self._consumer._progress(self)
