"""PinnedClient: the one client that a consumer with the policy pinned_client serves, until it asks no more."""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING

from penstock.wire.nuid import make_nuid

if TYPE_CHECKING:
    import asyncio

    from penstock.broker.consumers.delivery import Delivery


class PinnedClient:
    """Who is pinned, since when. The id itself is the delivery's `pin_id`: the compiled side compares it."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery: Delivery = weakref.proxy(delivery)  # which has us
        self._timer: asyncio.TimerHandle | None = None
        self.since_ns = 0

    @property
    def _group(self) -> str:
        return self._delivery.config.priority_groups[0]

    def assign(self) -> None:
        """Pin whoever comes next."""
        delivery = self._delivery
        delivery.pin_id = make_nuid().encode()
        self.since_ns = time.time_ns()
        self.hold()
        delivery.news.pinned(delivery.consumer, self._group, delivery.pin_id.decode())

    def hold(self) -> None:
        """It has asked: the time until it is taken for gone begins anew."""
        self._stop()
        delay_s = self._delivery.config.priority_timeout / 1e9
        self._timer = self._delivery.owner.loop.call_later(delay_s, self._timed_out)

    def _timed_out(self) -> None:
        self._timer = None
        delivery = self._delivery
        if delivery.pin_id and not delivery.is_closed:
            self.clear()
            delivery.news.unpinned(delivery.consumer, self._group, "timeout")
            delivery.touch()

    def clear(self) -> None:
        """Nobody is pinned."""
        self._stop()
        self._delivery.pin_id = b""
        self.since_ns = 0

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
