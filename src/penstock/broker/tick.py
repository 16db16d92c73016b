"""Tick: one round of the event loop: read the sockets, hand batches to the commit threads, write answers and frames.

The commits of all streams signal one eventfd. It wakes the loop, which then answers the publishers of the messages that
have become durable.
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
# A sleeping processor takes longer to wake up than a client takes to send its next request, or a disk to sync. So after
# a tick the loop polls its sockets for a moment without sleeping, as long as that mostly finds something and no other
# task on this machine waits for a processor (broker/io/pressure.py).
LINGER_S = 60e-6
LINGER_COMMIT_S = 250e-6  # while a commit runs: the loop has nothing else to do then
SOON_S = 300e-6  # polling pays off if one tick follows the other this soon
IDLE_TICKS_MAX = 4  # after so many ticks in a row that came later, the loop sleeps at once
SPIN_NS = 20_000  # the longest poll in one callback: the loop has other callbacks to run
QUIET_NS = 15_000  # within this time a client that has its answer sends its next message
GATHER_NS = 200_000  # the longest that the next commit waits for clients that were just answered
ANSWER_S = 0.001  # how long one tick answers publishers, polling in between; the next tick answers the others
SLICE_NS = 1_000_000  # the time for deliveries in one tick, divided among the streams
SLICE_NS_MIN = 100_000  # the least for each stream


class Tick:
    """The ticks of one event loop.

    Always true: a tick runs to its end, and all other streams and clients are served, whatever one of them does.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, router: Router, pressure: Pressure | None = None) -> None:
        """`close` closes `pressure`, too. Without it the loop never polls: it cannot tell whether others would wait."""
        self.loop = loop
        self.router = router
        self.sockets = EpollSet(loop)
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._touched: dict[StreamEndpoint, None] = {}  # have appended messages, in the order of the reads
        self._waiting: set[StreamEndpoint] = set()
        self._left: dict[StreamEndpoint, None] = {}  # have more answers, which the next tick sends
        self._gathering: list[StreamEndpoint] = []  # their next commits wait for the clients answered in this tick
        self._dispatchers: dict[ConsumerDispatcher, None] = {}  # have acks, requests or messages to handle
        self.slice_ns = SLICE_NS  # how long one stream's consumers may deliver in this tick
        self._call_soon = loop.call_soon
        self._ended = self._awake_until = 0.0
        self._idle_ticks = IDLE_TICKS_MAX
        self._is_awake = False
        self._is_requested = False  # `_poll_and_end` is scheduled
        self._answer_until = 0.0
        self._pressure = pressure
        self.sockets.watch(self.event_fd)
        loop.add_reader(self.sockets.fd, self._poll)
        router.on_tick = self._request

    def close(self) -> None:
        """Stop reading from clients. The caller has made sure that no commit signals any more."""
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
        """Run the requested tick, with everything received by now."""
        self._is_requested = False
        self.router.begin_tick()
        self.sockets.poll()
        self.end(self.sockets.is_signalled)

    def call_first(self, callback: Callable[..., object], *args: Any) -> None:
        """From any thread: have the loop call back before it reads anything that clients send after this call."""
        self.sockets.first.append((callback, args))
        self.loop.call_soon_threadsafe(self._poll)

    def touch(self, endpoint: StreamEndpoint) -> None:
        """`endpoint` has appended messages."""
        self._touched[endpoint] = None

    def schedule_dispatcher(self, dispatcher: ConsumerDispatcher) -> None:
        """Consumers of a stream have work: serve them in this tick."""
        self._dispatchers[dispatcher] = None

    def wait_for(self, endpoint: StreamEndpoint) -> None:
        """`endpoint` waits for a commit: serve it when one has ended."""
        self._waiting.add(endpoint)

    def end(self, is_signalled: bool = False) -> None:
        """Commit, answer and send, once for everything received in this tick. `is_signalled`: a commit has ended."""
        now = perf_counter()
        self._idle_ticks = 0 if now - self._ended < SOON_S else min(self._idle_ticks + 1, IDLE_TICKS_MAX)
        self._answer_until = now + ANSWER_S
        self.router.begin_tick()
        self.router.take_batches()
        if is_signalled:
            os.eventfd_read(self.event_fd)
            self._serve_waiting()
        if self._dispatchers:  # before the streams: the same commit takes the messages that acks delete
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
        """Divide the tick's time for deliveries among `count` streams."""
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
                self.sockets.poll()  # answered clients send more: reading it now saves a tick
                endpoint.answer()
                if perf_counter() >= self._answer_until:
                    break
            if endpoint.ingest.is_due:
                self._left[endpoint] = None
        except Exception:
            log.exception("stream %s: its tick failed", endpoint.name)
        self._wait_if_needed(endpoint)

    def _wait_if_needed(self, endpoint: StreamEndpoint) -> None:
        if endpoint.is_waiting:
            self._waiting.add(endpoint)

    def _gather(self) -> None:
        """Wait a moment for the next messages of the clients just answered, and start the next commits with them."""
        gathering, self._gathering = self._gathering, []
        received = self.router.take_batches()
        if not self._left:
            wanted = sum(endpoint.answered for endpoint in gathering) - received
            self.sockets.gather(self.router, wanted, QUIET_NS, GATHER_NS)
            self.router.take_batches()
        for endpoint in gathering:
            if endpoint.is_closed:
                continue
            try:
                endpoint.submit(begins=len(gathering) == 1 and not self._left)
            except Exception:
                log.exception("stream %s: its commit could not be started", endpoint.name)
            # Refused messages wait for no commit: the endpoint stays touched, and the next tick answers them.
            self._wait_if_needed(endpoint)

    def _serve_dispatcher(self, dispatcher: ConsumerDispatcher) -> None:
        try:
            dispatcher.serve()
        except Exception:
            log.exception("stream %s: serving its consumers failed", dispatcher.stream.name)

    def _flush(self) -> None:
        self.router.flush()
        self.router.free_removed()
        self.router.finish_tick()
        if self._left:
            self._touched |= self._left
            self._left.clear()
        if self._touched or self._dispatchers:  # answers or republished messages went into a stream, or work is left
            self._request()
        self._ended = perf_counter()
        if self._may_poll():
            self._awake_until = self._ended + (LINGER_COMMIT_S if self._waiting else LINGER_S)
            if not self._is_awake:
                self._is_awake = True
                self._call_soon(self._stay_awake)

    def _may_poll(self) -> bool:
        """Whether ticks follow each other closely, and no other task waits for the processor."""
        pressure = self._pressure
        return self._idle_ticks < IDLE_TICKS_MAX and pressure is not None and not pressure.is_short(self._ended)

    def _stay_awake(self) -> None:
        """Poll the sockets once more without sleeping."""
        if perf_counter() < self._awake_until:
            self._call_soon(self._stay_awake)
            self._poll(SPIN_NS)
        else:
            self._is_awake = False

    def _poll(self, spin_ns: int = 0) -> None:
        """Read what clients have sent, notice ended commits, and run a tick if there is anything to do."""
        self.router.begin_tick()
        if not self.sockets.poll(spin_ns):
            self.router.postpone_tick()
        elif not self.sockets.is_signalled and not self._touched and not self._dispatchers and self.router.can_wait():
            self.router.postpone_tick()  # a tick costs more than such a message
            self._awake_until = perf_counter() + LINGER_COMMIT_S
        else:
            self.end(self.sockets.is_signalled)

    def forget(self, endpoint: StreamEndpoint) -> None:
        """`endpoint` is closed: do not serve it any more."""
        self._waiting.discard(endpoint)
        self._touched.pop(endpoint, None)
        self._left.pop(endpoint, None)

    def forget_dispatcher(self, dispatcher: ConsumerDispatcher) -> None:
        """`dispatcher` is closed: do not serve it any more."""
        self._dispatchers.pop(dispatcher, None)


def _no_tick() -> None:
    """Replaces the router's `on_tick` after the last tick: what closing connections still write is not sent."""
