"""Tick: the end of a turn of the loop. Batches go to the commit threads, answers and frames to the sockets.

The commits of all streams signal one eventfd; it wakes the loop, which then sends the answers that are durable.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from penstock.broker.io.epoll_set import EpollSet
from penstock.broker.io.pressure import Pressure
from penstock.broker.routing.router import Router

if TYPE_CHECKING:
    from penstock.broker.consumers.dispatcher import ConsumerDispatcher
    from penstock.broker.streams.endpoint import StreamEndpoint

log = logging.getLogger("penstock")
# A sleeping processor takes longer to wake up than a client takes for its next request, or a disk for a sync. So after
# a turn the loop polls its sockets for a moment without sleeping, as long as that mostly finds something and no other
# task on this machine waits for a processor (broker/io/pressure.py).
LINGER_S = 60e-6
LINGER_COMMIT_S = 250e-6  # while a commit runs: no other task wants the processor
SOON_S = 300e-6  # lingering pays off if turns follow each other this soon
IDLE_TURNS_MAX = 4  # turns in a row that came later, after which the loop does not linger
SPIN_NS = 20_000  # of that time in one callback: there are others
QUIET_NS = 15_000  # within this a client that has its answer sends more
GATHER_NS = 200_000  # the longest that the next commit waits for the clients that were answered
ANSWER_S = 0.001  # how long publishers are answered in a turn, with polls between; the others in the next turn
SLICE_NS = 1_000_000  # of delivery in one turn of the loop
SLICE_NS_MIN = 100_000  # for each stream


class Tick:
    """The end of each turn of one loop's work.

    Always true: a turn comes to its end, whatever one stream or one client does in it; the others are served.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, router: Router, pressure: Pressure | None = None) -> None:
        """`pressure` is closed with the tick. Without it the loop never polls: it cannot know the cost for others."""
        self.loop = loop
        self.router = router
        self.sockets = EpollSet(loop)
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._touched: dict[StreamEndpoint, None] = {}  # those with appended messages, in the order of the reads
        self._waiting: set[StreamEndpoint] = set()
        self._left: dict[StreamEndpoint, None] = {}  # those with more answers, which the next turn sends
        self._gathering: list[StreamEndpoint] = []  # their next commits wait for the clients answered in this turn
        self._dispatchers: dict[ConsumerDispatcher, None] = {}  # those with acks, requests or messages to handle
        self.slice_ns = SLICE_NS  # how long one stream's consumers may deliver now
        self._call_soon = loop.call_soon
        self._ended = self._awake_until = 0.0
        self._idle_turns = IDLE_TURNS_MAX
        self._is_awake = False
        self._is_requested = False  # for a turn
        self._answer_until = 0.0
        self._pressure = pressure
        self.sockets.watch(self.event_fd)
        loop.add_reader(self.sockets.fd, self._poll)
        router.on_tick = self._request

    def close(self) -> None:
        """No commit signals any more, and nothing is read from clients."""
        self.loop.remove_reader(self.sockets.fd)
        self.sockets.close()
        os.close(self.event_fd)
        if self._pressure is not None:
            self._pressure.close()
        self.router.on_tick = _no_tick

    def _request(self) -> None:
        if not self._is_requested:
            self._is_requested = True
            self._call_soon(self._poll_and_end)

    def _poll_and_end(self) -> None:
        """The requested tick, with what has come by now."""
        self._is_requested = False
        self.router.begin_tick()
        self.sockets.poll()
        self.end(self.sockets.is_signalled)

    def call_first(self, callback: Callable[..., object], *args: Any) -> None:
        """From any thread: call back on the loop's thread, before it reads what clients send after this."""
        self.sockets.first.append((callback, args))
        self.loop.call_soon_threadsafe(self._poll)

    def touch(self, endpoint: StreamEndpoint) -> None:
        """`endpoint` has appended messages."""
        self._touched[endpoint] = None

    def schedule_dispatcher(self, dispatcher: ConsumerDispatcher) -> None:
        """Consumers of a stream have something to do: serve them in this turn."""
        self._dispatchers[dispatcher] = None

    def wait_for(self, endpoint: StreamEndpoint) -> None:
        """`endpoint` has something that waits for a commit."""
        self._waiting.add(endpoint)

    def end(self, is_signalled: bool = False) -> None:
        """Commit, answer, send: once for everything that came in this turn. `is_signalled`: a commit has ended."""
        now = perf_counter()
        self._idle_turns = 0 if now - self._ended < SOON_S else min(self._idle_turns + 1, IDLE_TURNS_MAX)
        self._answer_until = now + ANSWER_S
        self.router.begin_tick()
        self.router.take_batches()
        if is_signalled:
            os.eventfd_read(self.event_fd)
            self._serve_waiting()
        if self._dispatchers:  # before the streams: what acks delete goes into the same commit
            dispatchers, self._dispatchers = self._dispatchers, {}
            self._share(len(dispatchers))
            for dispatcher in dispatchers:
                self._serve_dispatcher(dispatcher)
        if self._touched:
            touched, self._touched = self._touched, {}
            self._share(len(touched))
            for endpoint in touched:
                self._serve(endpoint)
        if self._gathering:
            self._gather()
        self._flush()

    def _share(self, count: int) -> None:
        """Divide the time for deliveries in a turn among `count` streams."""
        self.slice_ns = max(SLICE_NS // (count or 1), SLICE_NS_MIN)

    def _serve_waiting(self) -> None:
        """A commit has ended: serve the streams that wait for one."""
        waiting, self._waiting = self._waiting, set()
        self._share(len(waiting))
        for endpoint in waiting:
            self._touched.pop(endpoint, None)
            self._serve(endpoint)

    def _serve(self, endpoint: StreamEndpoint) -> None:
        try:
            if endpoint.can_gather:
                self._gathering.append(endpoint)
            else:
                endpoint.submit()
            endpoint.settle()
            while endpoint.ingest.is_due:
                self.sockets.poll()  # answered clients send more: read now, it needs no turn of its own
                endpoint.answer()
                if perf_counter() >= self._answer_until:
                    break
            if endpoint.ingest.is_due:
                self._left[endpoint] = None
        except Exception:
            log.exception("stream %s: its turn failed", endpoint.name)
        self._wait_if_so(endpoint)

    def _wait_if_so(self, endpoint: StreamEndpoint) -> None:
        if endpoint.is_waiting:
            self._waiting.add(endpoint)

    def _gather(self) -> None:
        """Read what answered clients send at once, and begin the next commits with it."""
        gathering, self._gathering = self._gathering, []
        came = self.router.take_batches()
        if not self._left:
            wanted = sum(endpoint.answered for endpoint in gathering) - came
            self.sockets.gather(self.router, wanted, QUIET_NS, GATHER_NS)
            self.router.take_batches()
        for endpoint in gathering:
            if endpoint.is_closed:
                continue
            try:
                endpoint.submit(begins=len(gathering) == 1 and not self._left)
            except Exception:
                log.exception("stream %s: its commit could not be begun", endpoint.name)
            # Messages that were refused wait for no commit: the endpoint stays touched, and the next turn answers them.
            self._wait_if_so(endpoint)

    def _serve_dispatcher(self, dispatcher: ConsumerDispatcher) -> None:
        try:
            dispatcher.serve()
        except Exception:
            log.exception("stream %s: its consumers' turn failed", dispatcher.stream.name)

    def _flush(self) -> None:
        self.router.flush()
        self.router.free_removed()
        self.router.finish_tick()
        if self._left:
            self._touched |= self._left
            self._left.clear()
        if self._touched or self._dispatchers:  # what was answered or republished went into a stream; or there is more
            self._request()
        self._ended = perf_counter()
        if self._may_poll():
            self._awake_until = self._ended + (LINGER_COMMIT_S if self._waiting else LINGER_S)
            if not self._is_awake:
                self._is_awake = True
                self._call_soon(self._stay_awake)

    def _may_poll(self) -> bool:
        """Whether turns follow each other closely, and no other task wants the processor."""
        pressure = self._pressure
        return self._idle_turns < IDLE_TURNS_MAX and pressure is not None and not pressure.is_short(self._ended)

    def _stay_awake(self) -> None:
        """Poll the sockets once more without sleeping."""
        if perf_counter() < self._awake_until:
            self._call_soon(self._stay_awake)
            self._poll(SPIN_NS)
        else:
            self._is_awake = False

    def _poll(self, spin_ns: int = 0) -> None:
        """Read what clients have sent, and notice ended commits: that is a turn."""
        self.router.begin_tick()
        if not self.sockets.poll(spin_ns):
            self.router.postpone_tick()
        elif not self.sockets.is_signalled and not self._touched and not self._dispatchers and self.router.can_wait():
            self.router.postpone_tick()  # a turn costs more than such a message
            self._awake_until = perf_counter() + LINGER_COMMIT_S
        else:
            self.end(self.sockets.is_signalled)

    def forget(self, endpoint: StreamEndpoint) -> None:
        """`endpoint` is closed."""
        self._waiting.discard(endpoint)
        self._touched.pop(endpoint, None)
        self._left.pop(endpoint, None)

    def forget_dispatcher(self, dispatcher: ConsumerDispatcher) -> None:
        """`dispatcher` is closed."""
        self._dispatchers.pop(dispatcher, None)


def _no_tick() -> None:
    """The last turn is over: what connections still write while they end is not sent."""
