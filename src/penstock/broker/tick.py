"""Tick: the end of a turn of the loop. Batches go to the commit threads, answers and frames to the sockets.

All streams tell one eventfd of their commits; it wakes the loop, and the answers that are durable leave.
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
    from penstock.broker.streams.endpoint import Intake

log = logging.getLogger("penstock")
# A processor that went to sleep takes longer to wake than a client takes to ask again, or a disk to sync. So after a
# turn the loop looks at its sockets without sleeping for a moment, as long as that mostly finds something and
# no task on this machine waits for a processor (broker/io/pressure.py).
LINGER_S = 60e-6
LINGER_COMMIT_S = 250e-6  # while a commit is under way: nobody else wants the processor
SOON_S = 300e-6  # a turn this soon after the last is one that lingering is for
IDLE_TURNS_MAX = 4  # so many in a row that came later: there is nothing to wait for
SPIN_NS = 20_000  # of that time in one go: others have callbacks, too
QUIET_NS = 15_000  # a client that has its answer says more within this
GATHER_NS = 200_000  # so long, at most, the next commit waits for those who were answered
ANSWER_S = 0.001  # so long publishers are answered in a turn, with looks at the sockets between; the others in the next
SLICE_NS = 1_000_000  # of delivery in one turn of the loop
SLICE_NS_MIN = 100_000  # for each stream


class Tick:
    """The end of each turn of one loop's work.

    Always true: a turn comes to its end, whatever one stream or one client does in it; the others are served.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, router: Router, pressure: Pressure | None = None) -> None:
        """`pressure` becomes ours; without it the loop never polls, since nobody knows what that would cost others."""
        self.loop = loop
        self.router = router
        self.sockets = EpollSet(loop)
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._touched: dict[Intake, None] = {}  # once each, however many reads it took something from; in their order
        self._waiting: set[Intake] = set()
        self._left: dict[Intake, None] = {}  # they have more answers: the next turn serves them, with what it brings
        self._gathering: list[Intake] = []  # their next commits wait for those who were answered in this turn
        self._dispatchers: dict[ConsumerDispatcher, None] = {}  # consumers heard something, or have more to deliver
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
        """No stream may tell of its commits any more, and nothing is read from clients."""
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
        """A turn that was asked for; with what has come by now."""
        self._is_requested = False
        self.router.begin_tick()
        self.sockets.poll()
        self.end(self.sockets.is_signalled)

    def call_first(self, callback: Callable[..., object], *args: Any) -> None:
        """From any thread: call back on the loop's, before it reads what clients send after this."""
        self.sockets.first.append((callback, args))
        self.loop.call_soon_threadsafe(self._poll)

    def touch(self, intake: Intake) -> None:
        """`intake` has appended something."""
        self._touched[intake] = None

    def schedule_dispatcher(self, dispatcher: ConsumerDispatcher) -> None:
        """Consumers of a stream have something to do."""
        self._dispatchers[dispatcher] = None

    def wait_for(self, intake: Intake) -> None:
        """`intake` has something that waits for a commit."""
        self._waiting.add(intake)

    def end(self, is_signalled: bool = False) -> None:
        """Submit, settle, flush: once for everything that came in this turn; `is_signalled` of a commit's end."""
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
            for intake in touched:
                self._serve(intake)
        if self._gathering:
            self._gather()
        self._flush()

    def _share(self, count: int) -> None:
        """So many streams share the time that deliveries of a turn may take."""
        self.slice_ns = max(SLICE_NS // (count or 1), SLICE_NS_MIN)

    def _serve_waiting(self) -> None:
        """A commit thread says that something moved."""
        waiting, self._waiting = self._waiting, set()
        self._share(len(waiting))
        for intake in waiting:
            self._touched.pop(intake, None)
            self._serve(intake)

    def _serve(self, intake: Intake) -> None:
        try:
            if intake.can_gather:
                self._gathering.append(intake)
            else:
                intake.submit()
            intake.settle()
            while intake.ingest.is_due:
                self.sockets.poll()  # those who were answered say more: that is read, and costs no turn of its own
                intake.answer()
                if perf_counter() >= self._answer_until:
                    break
            if intake.ingest.is_due:
                self._left[intake] = None
        except Exception:
            log.exception("stream %s: its turn failed", intake.name)
        self._wait_if_so(intake)

    def _wait_if_so(self, intake: Intake) -> None:
        if intake.is_waiting:
            self._waiting.add(intake)

    def _gather(self) -> None:
        """Read what those say who were answered, if they do so at once, and begin the next commits with it."""
        gathering, self._gathering = self._gathering, []
        came = self.router.take_batches()
        if not self._left:
            wanted = sum(intake.answered for intake in gathering) - came
            self.sockets.gather(self.router, wanted, QUIET_NS, GATHER_NS)
            self.router.take_batches()
        for intake in gathering:
            if intake.is_closed:
                continue
            try:
                intake.submit(begins=len(gathering) == 1 and not self._left)
            except Exception:
                log.exception("stream %s: its commit could not be begun", intake.name)
            # What came, and was refused, has nothing to wait for: it stays touched, and the next turn answers it.
            self._wait_if_so(intake)

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
        """Turns follow each other closely, and nobody else wants the processor."""
        pressure = self._pressure
        return self._idle_turns < IDLE_TURNS_MAX and pressure is not None and not pressure.is_short(self._ended)

    def _stay_awake(self) -> None:
        """Look at the sockets once more without sleeping."""
        if perf_counter() < self._awake_until:
            self._call_soon(self._stay_awake)
            self._poll(SPIN_NS)
        else:
            self._is_awake = False

    def _poll(self, spin_ns: int = 0) -> None:
        """Read what clients have sent, and hear of commits: that is a turn."""
        self.router.begin_tick()
        if not self.sockets.poll(spin_ns):
            self.router.postpone_tick()
        elif not self.sockets.is_signalled and not self._touched and not self._dispatchers and self.router.can_wait():
            self.router.postpone_tick()  # a turn costs more than such a message
            self._awake_until = perf_counter() + LINGER_COMMIT_S
        else:
            self.end(self.sockets.is_signalled)

    def forget(self, intake: Intake) -> None:
        """`intake` is closed."""
        self._waiting.discard(intake)
        self._touched.pop(intake, None)
        self._left.pop(intake, None)

    def forget_dispatcher(self, dispatcher: ConsumerDispatcher) -> None:
        """`dispatcher` is closed."""
        self._dispatchers.pop(dispatcher, None)


def _no_tick() -> None:
    """The router's last turn is over: what connections that end still say is sent by nobody."""
