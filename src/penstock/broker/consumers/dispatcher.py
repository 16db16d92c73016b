"""ConsumerDispatcher: the consumers of one stream on the server. It serves them once in each tick of the loop.

The loop never waits for the stream's lock: if another thread has it, the dispatcher tries again a millisecond later.
The consumer log gets all changes of a tick together. A client that wants an answer to its ack gets it once the ack is
durable.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING

from penstock.broker.consumers.delivery import Delivery
from penstock.broker.consumers.session import SessionScheduler
from penstock.broker.routing.origin import Origin
from penstock.db.loop_commits import RETRY_S
from penstock.errors import StoreError

if TYPE_CHECKING:
    import asyncio

    from penstock.broker.streams.endpoint import StreamEndpoint
    from penstock.consumer.consumer import Consumer

log = logging.getLogger("penstock")
LOG_RETRY_S = 1.0  # between two attempts to write to a consumer log that has failed
COOL_S = 5.0  # cached parts of block files are freed when nobody has read them for so long
LET_GO_SLICE = 2000  # messages deleted in one tick because the consumer that kept them is gone
SHUTDOWN = b"409 Server Shutdown"
DELETED = b"409 Consumer Deleted"


class ConsumerDispatcher:
    """One stream's consumers. Belongs to the loop's thread.

    Always true: `deliveries` has every consumer of the stream, at most one tick after it was created.
    """

    def __init__(self, endpoint: StreamEndpoint) -> None:
        self._endpoint = weakref.ref(endpoint)  # the endpoint owns this object
        self.account = endpoint.account
        self.stream = endpoint.stream
        self.consumers = endpoint.stream.consumers
        self.tick = endpoint.tick
        self.loop = endpoint.tick.loop
        self.scheduler = SessionScheduler(self.account.router, self.account.sublist, self._has_work)
        self.deliveries: dict[str, Delivery] = {}
        self.is_closed = False
        self._thread = threading.get_ident()
        self._answers: deque[tuple[int, list[bytes]]] = deque()  # (log position, replies due at it)
        self._served_seq = 0  # what was committed when all consumers were last served
        self._retry: asyncio.TimerHandle | None = None
        self._log_retry: asyncio.TimerHandle | None = None
        self._cooling: asyncio.TimerHandle | None = None
        self._is_notified = False
        self._is_notifying_others = False
        self.consumers.on_change.append(self._changed)
        self.stream.listeners.append(self._notify)
        for consumer in self.consumers:
            self._follow(consumer, "create")

    @property
    def endpoint(self) -> StreamEndpoint:
        endpoint = self._endpoint()
        assert endpoint is not None, "an endpoint outlives its dispatcher"
        return endpoint

    # Which consumers there are.

    def _changed(self, consumer: Consumer, what: str) -> None:
        """A consumer was created, changed or deleted, maybe by another thread."""
        if threading.get_ident() == self._thread:
            self._follow(consumer, what)
        elif not self.loop.is_closed():
            self.tick.call_first(self._follow, consumer, what)

    def _follow(self, consumer: Consumer, what: str) -> None:
        if self.is_closed:
            return
        delivery = self.deliveries.get(consumer.name)
        is_gone = what == "delete" or consumer.is_deleted
        if delivery is not None and (delivery.consumer is consumer) == is_gone:
            # It was deleted; or another thread has deleted its predecessor of the same name, which is notified later.
            del self.deliveries[consumer.name]
            delivery.close(DELETED)
            delivery = None
        if is_gone:
            return
        if delivery is None:
            self.deliveries[consumer.name] = Delivery(self, consumer)
        else:
            delivery.configured()

    def let_go(self, gone: Consumer, start: int = 0) -> None:
        """Delete messages that only the deleted consumer `gone` needed: a slice now, the rest in later ticks."""
        if self.is_closed:
            return
        if not self.stream.try_lock():
            self.loop.call_later(RETRY_S, self.let_go, gone, start)
            return
        try:
            if self.stream.store.engine.is_closed:
                return
            start = self.consumers.let_go(gone, LET_GO_SLICE, start)
            self.tick.wait_for(self.endpoint)
        finally:
            self.stream.unlock()
        if start:
            self.loop.call_soon(self.let_go, gone, start)
        else:
            gone.engine.release()

    def clock_changed(self) -> None:
        """The machine's clock was set, or the machine has slept."""
        for delivery in self.deliveries.values():
            delivery.clock_changed()

    def configured(self) -> None:
        """The stream's configuration has changed."""
        for delivery in self.deliveries.values():
            delivery.configured()

    # Work.

    def _has_work(self) -> None:
        self.tick.schedule_dispatcher(self)

    def _notify(self) -> None:
        """Other code in this process, maybe another thread, has published or changed the state of a consumer."""
        is_here = threading.get_ident() == self._thread
        if self._is_notified or (is_here and self._is_notifying_others) or self.loop.is_closed():
            return
        self._is_notified = True
        if is_here:
            self.loop.call_soon(self._notified)
        else:
            self.loop.call_soon_threadsafe(self._notified)

    def _notified(self) -> None:
        self._is_notified = False
        if not self.is_closed:
            self._served_seq = 0  # serve all, also without a new message: an ack, a nak, a resume
            self.serve(looks_anew=True)
            self.tick.end()

    def tell_others(self) -> None:
        """Wake the stream's other listeners in this process; the dispatcher needs no call to itself."""
        if len(self.stream.listeners) > 1:
            self._is_notifying_others = True
            try:
                self.stream.tell_listeners()
            finally:
                self._is_notifying_others = False

    def committed(self) -> None:
        """A commit has ended: deliver the messages that it made visible."""
        if self.deliveries:
            self.serve(looks_anew=True)

    def serve(self, looks_anew: bool = False) -> None:
        """Serve consumers that have work, within the tick's slice of time. `looks_anew`: there may be new messages."""
        store = self.stream.store
        if not self.stream.try_lock():
            self._served_seq = 0 if looks_anew else self._served_seq
            self._retry_soon(RETRY_S)
            return
        try:
            if self.is_closed or store.engine.is_closed:
                return
            if self._answers:
                self._restart_log()
            if looks_anew:
                committed = store.engine.committed_seq
                self.scheduler.schedule_interested(committed != self._served_seq)
                self._served_seq = committed
            if not self.scheduler.has_work:
                return
            if self.scheduler.serve(store.clock.now_ns(), self.tick.slice_ns):
                self.tick.schedule_dispatcher(self)
            self._flush()
            if self._cooling is None and self.consumers.windows.count:
                self._cooling = self.loop.call_later(COOL_S, self._cool)
        except Exception:
            self._retry_log_soon()  # serves those who wait, if nothing else does so before
            raise
        finally:
            self.stream.unlock()

    def _retry_soon(self, seconds: float) -> None:
        if self._retry is None:
            self._retry = self.loop.call_later(seconds, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        if not self.is_closed:
            self.serve(looks_anew=self._served_seq == 0)
            self.tick.end()

    def _cool(self) -> None:
        """Free cached parts of block files that no consumer has read for a while."""
        self._cooling = None
        is_warm = True
        if self.stream.try_lock():
            try:
                is_warm = self.consumers.windows.cool()
            finally:
                self.stream.unlock()
        if is_warm and not self.is_closed:
            self._cooling = self.loop.call_later(COOL_S, self._cool)

    def _retry_log_soon(self) -> None:
        if self._log_retry is None:
            self._log_retry = self.loop.call_later(LOG_RETRY_S, self._retry_log_now)

    def _retry_log_now(self) -> None:
        self._log_retry = None
        self._try_again()

    def _flush(self) -> None:
        """Write all changed consumers to the log at once, and keep the replies until that is durable."""
        changed, replies = self.scheduler.take_changed(), self.scheduler.take_replies()
        if not changed and not replies:
            return
        for delivery in changed:
            self.consumers.touch(delivery.consumer)
        self.tell_others()  # a thread of the library may wait for an ack or a nak so that it can fetch more
        store = self.stream.store
        try:
            position = self.consumers.flush()
        except StoreError as error:
            log.warning("stream %s: consumers' changes could not be written: %s", self.stream.name, error)
            self._answers.append((self.consumers.log.position if self.consumers.log is not None else 0, replies))
            self._retry_log_soon()
            return
        if store.committed_position < store.engine.position:
            self.tick.wait_for(self.endpoint)
        if replies:
            self._answers.append((position, replies))
            if not self.settle():
                self.consumers.sync(position)
                self.tick.wait_for(self.endpoint)

    def _restart_log(self) -> None:
        """Acks wait for a log that has failed: begin a new one with the state of all consumers."""
        consumer_log = self.consumers.log
        if consumer_log is None or consumer_log.failure() is None or self._log_retry is not None:
            return
        consumer_log.retry()
        try:
            self.consumers.flush()
        except StoreError as error:
            log.warning("stream %s: consumers' changes cannot be written: %s", self.stream.name, error)
            self._retry_log_soon()
            return
        self.consumers.sync(consumer_log.position)
        self.tick.wait_for(self.endpoint)

    @property
    def is_quiet(self) -> bool:
        """There are no consumers, and nobody waits for an answer."""
        return not self.deliveries and not self._answers

    @property
    def has_answers(self) -> bool:
        """Somebody waits until its ack is durable."""
        return bool(self._answers)

    @property
    def answered_position(self) -> int:
        """The position in the consumer log that must be durable before all acks are answered."""
        return self._answers[-1][0] if self._answers else 0

    def settle(self) -> bool:
        """Answer the clients whose acks are durable; returns whether nobody waits any more."""
        while self._answers and self.consumers.is_durable(self._answers[0][0]):
            for reply in self._answers.popleft()[1]:
                self.account.publish(Origin.ANSWER, reply)
        if self._answers and self.consumers.log is not None and self.consumers.log.failure() is not None:
            self._retry_log_soon()
        return not self._answers

    # The end.

    def release(self) -> None:
        """The server stops: clients whose pull requests wait get a status."""
        for delivery in self.deliveries.values():
            delivery.release(SHUTDOWN, True)
        self.account.router.flush()

    def close(self) -> None:
        """Deliver nothing any more. Clients that still wait are told why: stream deleted, or server stopped."""
        if self.is_closed:
            return
        self.is_closed = True
        is_gone = self.stream.store.engine.is_closed
        if self._changed in self.consumers.on_change:
            self.consumers.on_change.remove(self._changed)
        if self._notify in self.stream.listeners:
            self.stream.listeners.remove(self._notify)
        for timer in (self._retry, self._log_retry, self._cooling):
            if timer is not None:
                timer.cancel()
        for delivery in self.deliveries.values():
            if not is_gone:
                delivery.release(SHUTDOWN, True)
            delivery.close(DELETED)
        self.deliveries.clear()
        self.scheduler.close()
        self.tick.forget_dispatcher(self)
