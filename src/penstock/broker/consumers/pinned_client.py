"""PinnedClient: the client that alone gets the messages of a consumer with the policy pinned_client."""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING

from penstock.wire.nuid import make_nuid

if TYPE_CHECKING:
    import asyncio

    from penstock.broker.consumers.delivery import Delivery


class PinnedClient:
    """When a client was pinned, and until when. The pin id is in the session's outbox: compiled code compares it."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery: Delivery = weakref.proxy(delivery)  # it owns this object
        self._timer: asyncio.TimerHandle | None = None
        self.since_ns = 0

    @property
    def _group(self) -> str:
        return self._delivery.config.priority_groups[0]

    def assign(self) -> None:
        """Pin the client whose request is served next."""
        delivery = self._delivery
        pin_id = make_nuid()
        delivery.session.outbox.pin_id = pin_id.encode()
        self.since_ns = time.time_ns()
        self.hold()
        delivery.events.pinned(delivery.consumer, self._group, pin_id)

    def hold(self) -> None:
        """The pinned client has sent a request: the time until it counts as gone begins again."""
        self._stop()
        delay_s = self._delivery.config.priority_timeout / 1e9
        self._timer = self._delivery.owner.loop.call_later(delay_s, self._timed_out)

    def _timed_out(self) -> None:
        self._timer = None
        delivery = self._delivery
        if delivery.pin_id and not delivery.is_closed:
            self.clear()
            delivery.events.unpinned(delivery.consumer, self._group, "timeout")
            delivery.session.schedule()

    def clear(self) -> None:
        """Pin no client."""
        self._stop()
        self._delivery.session.outbox.pin_id = b""
        self.since_ns = 0

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
