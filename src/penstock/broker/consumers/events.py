"""ConsumerEvents: what delivery tells of consumers: acks that are sampled, naks, messages that were given up, pins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.consumer.consumer import Consumer


class ConsumerEvents(Protocol):
    """Tells those who listen. Cheap where nobody does; belongs to the loop's thread."""

    def changed(self, name: str, what: str) -> None:
        """A consumer came ("create") or went ("delete"), or changed ("update", which is not told)."""

    def acked(self, consumer: Consumer, consumer_seq: int, stream_seq: int, delay_ns: int, deliveries: int) -> None:
        """A message was acknowledged `delay_ns` after its delivery, and is one of the sample."""

    def naked(self, consumer: Consumer, consumer_seq: int, stream_seq: int, deliveries: int) -> None:
        """A message was refused, and comes again."""

    def terminated(
        self, consumer: Consumer, consumer_seq: int, stream_seq: int, deliveries: int, reason: str = ""
    ) -> None:
        """A message will not come again: its receiver said so, or the stream has lost it."""

    def given_up(self, consumer: Consumer, stream_seq: int, deliveries: int) -> None:
        """A message was delivered as often as it may be, and never acknowledged."""

    def paused(self, consumer: Consumer) -> None:
        """A pause began, or ended."""

    def pinned(self, consumer: Consumer, group: str, pin_id: str) -> None:
        """A group of requests has one client that is served."""

    def unpinned(self, consumer: Consumer, group: str, reason: str) -> None:
        """It has none any more: "timeout", or "admin"."""
