"""Inactivity: deletes a consumer that no client uses for its inactive threshold."""

from __future__ import annotations

import random
import time
import weakref
from typing import TYPE_CHECKING

from penstock.consumer.config import INACTIVE_THRESHOLD_NS
from penstock.db.loop_commits import RETRY_S

if TYPE_CHECKING:
    import asyncio

    from penstock.broker.consumers.delivery import Delivery

JITTER_NS = 100_000_000, 1_000_000_000  # added for pull consumers: their clients may be about to send a request


class Inactivity:
    """Decides when an unused consumer is deleted.

    A push consumer is in use while its deliver subject has a subscriber. A pull consumer is in use while requests wait
    or the library has it open, and for its threshold after the last thing that a client did or could still do:
    acknowledge a message that it has got.
    """

    def __init__(self, delivery: Delivery) -> None:
        self._delivery: Delivery = weakref.proxy(delivery)  # it owns this object
        self._threshold_ns = 0
        self._timer: asyncio.TimerHandle | None = None

    def configured(self) -> None:
        """The threshold is new, or may have changed."""
        config = self._delivery.config
        wanted = config.inactive_threshold or (0 if config.is_durable else INACTIVE_THRESHOLD_NS)
        if wanted and (not config.is_push or not config.inactive_threshold):
            wanted += random.randrange(*JITTER_NS)  # so that many do not go at once
        self._threshold_ns = wanted
        self.interest_changed()

    def interest_changed(self) -> None:
        """A push consumer has its first subscriber, or has lost its last one."""
        is_in_use = self._delivery.is_push_bound
        if self._threshold_ns and not is_in_use and not self._delivery.is_closed:
            if self._timer is None:
                self._wait(self._threshold_ns)
        else:
            self.close()

    def _wait(self, delay_ns: int) -> None:
        self._timer = self._delivery.owner.loop.call_later(delay_ns / 1e9, self._look)

    def _look(self) -> None:
        self._timer = None
        delivery = self._delivery
        dispatcher = delivery.owner
        if delivery.is_closed or not self._threshold_ns:
            return
        stream = dispatcher.stream
        if not stream.try_lock():
            self._wait(int(RETRY_S * 1e9))
            return
        try:
            delay_ns = 0 if delivery.config.is_push else self._left_ns()
            if delay_ns > 0:
                self._wait(delay_ns)
            elif not stream.store.engine.is_closed and not delivery.consumer.is_deleted:
                dispatcher.let_go(dispatcher.consumers.delete(delivery.consumer.name, lets_go=False))
                dispatcher.endpoint.flush_consumers()
        finally:
            stream.unlock()

    def _left_ns(self) -> int:
        """How long a pull consumer may still be in use; 0: it is unused."""
        delivery = self._delivery
        queue = delivery.session.pull_queue
        assert queue is not None, "a push consumer has nothing left as soon as it has no subscriber"
        left = queue.active_ns + self._threshold_ns - time.monotonic_ns()
        if left > 0:
            return left
        if queue.num_waiting or delivery.consumer.keepers:
            return self._threshold_ns
        latest: int = max(delivery.session.latest_deadline_ns(), delivery.consumer.last_active_ns)
        if latest:
            return max(latest + self._threshold_ns - delivery.owner.stream.store.clock.now_ns(), 0)
        return 0

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
