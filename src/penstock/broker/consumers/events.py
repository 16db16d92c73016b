"""ConsumerEvents: the events of consumers that become advisories: sampled acks, naks, messages given up, pins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.consumer.consumer import Consumer


class ConsumerEvents(Protocol):
    """Publishes advisories. Cheap without a subscriber; belongs to the loop's thread."""

    def changed(self, name: str, what: str) -> None:
        """A consumer came ("create") or went ("delete"), or changed ("update", which has no advisory)."""

    def acked(self, consumer: Consumer, consumer_seq: int, stream_seq: int, delay_ns: int, deliveries: int) -> None:
        """A message was acknowledged `delay_ns` after its delivery, and is one of the sample."""

    def naked(self, consumer: Consumer, consumer_seq: int, stream_seq: int, deliveries: int) -> None:
        """A message was refused, and is delivered again."""

    def terminated(
        self, consumer: Consumer, consumer_seq: int, stream_seq: int, deliveries: int, reason: str = ""
    ) -> None:
        """A message is not delivered again: its receiver said so, or the stream has lost it."""

    def given_up(self, consumer: Consumer, stream_seq: int, deliveries: int) -> None:
        """A message was delivered as often as it may be, and never acknowledged."""

    def paused(self, consumer: Consumer) -> None:
        """A pause began, or ended."""

    def pinned(self, consumer: Consumer, group: str, pin_id: str) -> None:
        """One client of a group of requests is pinned: it alone gets messages."""

    def unpinned(self, consumer: Consumer, group: str, reason: str) -> None:
        """No client is pinned any more; the reason is "timeout" or "admin"."""
