"""StreamEndpoint: a stream on the server. It stores the messages published to its subjects and answers when durable."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.broker.consumers.dispatcher import ConsumerDispatcher
from penstock.broker.routing.origin import Origin
from penstock.broker.streams.ingest import Ingest
from penstock.broker.streams.puback_writer import settle
from penstock.db.loop_commits import RETRY_S, SUBMIT_BYTES, LoopCommits
from penstock.db.stream import Stream
from penstock.errors import ApiError, BatchesDisabled, StoreClosed, StoreError, StoreFailed, TooManyRequests
from penstock.store.file_store import FileStore
from penstock.wire.go_json import encode

if TYPE_CHECKING:
    from penstock.broker.account import Account
    from penstock.broker.consumers.delivery import Delivery
    from penstock.broker.consumers.events import ConsumerEvents
    from penstock.consumer.consumer import Consumer

log = logging.getLogger("penstock")
HOLD_BYTES = 1 << 16  # a smaller batch waits until the running commit ends
FIRST_CLIENTS = 4  # answered before anything else is done: they go on while the other answers are written
QUICK_DISK_S = 0.002  # on a slower disk even a write may block: the loop leaves it to a commit thread
TOO_MANY_REQUESTS = b"NATS/1.0 429 Too Many Requests\r\n\r\n"
EXPIRE_S_MAX = 3600.0
EXPIRE_AGAIN_S = 1.0  # until the next attempt, after a failure
RESUME_S = 0.5  # between two attempts to make the writes that the stream's open had to defer


class StreamEndpoint:
    """One stream on the server. Everything but `stream`'s own methods belongs to the loop's thread."""

    def __init__(
        self,
        account: Account,
        stream: Stream,
        domain: str = "",
        *,
        events: ConsumerEvents,
        count_max: int = 0,
        size_max: int = 0,
    ) -> None:
        """At most `count_max` messages and `size_max` bytes may wait for the stream; 0: nats-server's limits."""
        self.account = account
        self.stream = stream
        self.events = events  # publishes advisories about the stream's consumers
        self.tick = tick = account.tick
        self.domain = domain
        self.name = stream.name
        self._loop = tick.loop
        self._core = stream.store.engine
        self._captures: list[int] = []
        self.commits = LoopCommits(tick.loop, stream.commit_pump, tick.event_fd, tidies_in_thread=True)
        self._consumers_waiting: list[asyncio.Future[None]] = []  # wait for the consumer log
        self._has_syncs = isinstance(stream.store, FileStore) and stream.store.durability == "disk"
        self._settled = -1  # the committed position at the last `settle`
        self.answered = 0  # how many clients, since the last commit began
        self._resuming: asyncio.TimerHandle | None = None
        self._is_retrying = False
        self._caught_up: list[Callable[[], None]] = []  # to be called when the stream takes messages again
        self._expiry: asyncio.TimerHandle | None = None
        self._expiry_due: int | None = None
        self.is_closed = False
        self.was_purged = False  # shown for a stream that never held a message
        self.began_at = stream.config.first_seq  # an update of the configuration does not change it
        self.ingest = Ingest()
        self.ingest.endpoint = self
        self.ingest.count_max = count_max or self.ingest.count_max
        self.ingest.size_max = size_max or self.ingest.size_max
        self.ingest.lock = stream.locked()
        self.ingest.engine = self._core
        stream.rules.is_heard = True
        stream.store.expiry_waits = False  # the loop never waits for a disk
        if stream.consumers.log is not None:
            stream.consumers.log.add_notify(tick.event_fd)
        stream.consumers.on_change.append(self._consumer_changed)
        self.dispatcher = ConsumerDispatcher(self)
        self.configure()
        if isinstance(stream.store, FileStore):
            stream.store.deferred_writes.loop_thread = threading.get_ident()
            self._resume_later()

    # Capturing subjects.

    def configure(self) -> None:
        """Take over the stream's configuration, which is new or has changed: capture its subjects."""
        self._release()
        config = self.stream.config
        self.ingest.rules = self.stream.rules
        self.ingest.has_acks = not config.no_ack
        fields: dict[str, str] = {"stream": config.name}
        if self.domain:
            fields["domain"] = self.domain
        self.ingest.set_head(encode(fields)[:-1] + b',"seq":')
        for subject in config.subjects:
            self._captures.append(self.account.router.capture(self.account.sublist, self.ingest, subject.encode()))
        self._schedule_expiry()
        self.dispatcher.configured()

    def _release(self) -> None:
        for token in self._captures:
            self.account.router.release(self.account.sublist, token)
        self._captures.clear()

    async def drain(self) -> None:
        """Stop capturing; return when all captured messages are durable, or known to be lost."""
        self._release()
        self.tick.end()  # append the messages read before
        while self.ingest.parked_count and not self.is_closed:
            await asyncio.sleep(RETRY_S)
        try:
            await self.committed()
        except StoreError as error:
            self.commits.warn(f"stream {self.name}: {error}")
        while self.ingest.is_waiting and not self.is_closed:  # many clients are answered in several ticks
            self.tick.touch(self)
            self.tick.end()
            await asyncio.sleep(0)

    def close(self) -> None:
        """Stop capturing. If the stream itself is deleted, publishers that wait for an answer get it."""
        if self.is_closed:
            return
        self.is_closed = True
        self._release()
        self.ingest.is_over = self._core.is_closed
        while self.ingest.is_over and self.ingest.is_due:
            self.answer()
        self.dispatcher.close()
        if self._expiry is not None:
            self._expiry.cancel()
        if self._resuming is not None:
            self._resuming.cancel()
        if isinstance(self.stream.store, FileStore):
            self.stream.store.deferred_writes.loop_thread = 0
        self.stream.rules.is_heard = False
        self.stream.consumers.on_change.remove(self._consumer_changed)
        self.stream.store.expiry_waits = True
        if not self._core.is_closed:
            self.commits.stop()
            if self.stream.consumers.log is not None:
                self.stream.consumers.log.remove_notify(self.tick.event_fd)
        self.tick.forget(self)
        self.commits.fail_waiters(StoreClosed(f"stream {self.name} is closed"))
        self._wake_consumers_waiting()
        self._call_caught_up()
        self._loop.call_soon(self._break_cycle)

    def _break_cycle(self) -> None:
        """Break the reference cycle with the compiled Ingest once no publisher waits there for an answer."""
        ingest = self.ingest
        if ingest.is_touched or (ingest.is_over and (ingest.parked_count or ingest.is_waiting)):
            self._loop.call_later(RETRY_S, self._break_cycle)
        else:
            ingest.endpoint = ingest.guard = None

    # Called by the compiled Ingest and `settle`.

    def refusal(self, error: Exception) -> bytes:
        """The answer to a publish that was refused."""
        if not isinstance(error, ApiError):
            if not isinstance(error, StoreError):
                log.error("stream %s: a publish failed", self.name, exc_info=error)
            error = StoreFailed(str(error))
        return encode({"error": error.to_json(), "stream": self.name, "seq": 0})

    @property
    def has_failures(self) -> bool:
        """Whether a commit has ever failed: then `failure_at` must be called for each position."""
        return bool(self.stream.store.failures)

    def failure_at(self, position: int) -> bytes | None:
        """The error answer for messages appended up to `position` that were not kept; None if they were."""
        try:
            self.stream.store.check_position(position)
        except StoreError as error:
            return self.refusal(error)
        if self.ingest.is_over and position > self.stream.store.committed_position:
            return self.refusal(StoreClosed(f"stream {self.name} is closed"))
        return None

    def touched(self) -> None:
        """A batch was appended."""
        if self._core.position - self.commits.submitted >= SUBMIT_BYTES:
            self.submit()
        self.tick.touch(self)

    def overflowed(self, replies: list[bytes]) -> None:
        """Too much waits for the stream: refuse the messages with these reply subjects, which were dropped."""
        self.commits.warn(
            f"Dropping messages due to excessive stream ingest rate on '{self.account.name}' > '{self.name}'"
        )
        answer = self.refusal(TooManyRequests())
        for reply in replies:
            self.account.publish(Origin.PUBACK, reply, answer, TOO_MANY_REQUESTS)

    def call_when_caught_up(self, callback: Callable[[], None]) -> None:
        """Call back when the stream has caught up: less than half of what may wait for the disk does."""
        self._caught_up.append(callback)
        self.tick.wait_for(self)
        self._call_caught_up()  # it may have caught up already

    def _call_caught_up(self) -> None:
        if self._caught_up and (self.is_closed or self._core.is_closed or not self.ingest.look()):
            callbacks, self._caught_up = self._caught_up, []
            for callback in callbacks:
                callback()

    def has_parked(self) -> None:
        """A batch could not be appended: another thread has the stream."""
        if not self._is_retrying:
            self._is_retrying = True
            self._loop.call_later(RETRY_S, self._retry)

    def _retry(self) -> None:
        self._is_retrying = False
        if self.is_closed and not self.ingest.is_over:
            return
        if self.ingest.parked_count:
            if not self.ingest.take_parked():
                self.has_parked()
                return
            self.touched()
        else:
            self.tick.touch(self)
        self.tick.end()

    # Commits.

    def submit(self, begins: bool = False) -> None:
        """Commit everything appended so far, with one sync. `begins`: the loop has nothing else to do."""
        commits = self.commits
        if self._core.position == commits.submitted or self.is_held:
            return
        if commits.submit(begins and commits.commit_s < QUICK_DISK_S):
            self.answered = 0
        else:
            self.has_parked()

    @property
    def is_held(self) -> bool:
        """Whether a small batch waits: until the running commit ends, everything received meanwhile joins it.

        A sync takes the same time for one message as for a hundred, and a tenth of the processor time of the messages.
        """
        return (
            self.commits.commit_began > 0.0
            and self._core.position - self.commits.submitted < HOLD_BYTES
            and self.stream.store.committed_position < self.commits.submitted
        )

    @property
    def can_gather(self) -> bool:
        """Whether a commit has just ended and the next batch is small: it may wait for the clients answered now.

        If its commit began at once, all of them would have to wait for a sync of the few messages of other clients.
        """
        return (
            self.commits.commit_began > 0.0
            and self._has_syncs
            and self._core.position - self.commits.submitted < HOLD_BYTES
            and self.stream.store.committed_position >= self.commits.submitted
        )

    @property
    def is_waiting(self) -> bool:
        """Whether anybody waited for a commit at the last `settle`. A commit that ended since then signals again."""
        if self.is_closed or self._core.is_closed:
            return False
        has_waiters = (
            self.commits.has_waiters or self._consumers_waiting or self._caught_up or self.dispatcher.has_answers
        )
        return bool(has_waiters) or self.ingest.is_waiting or self._settled < self._core.position

    def settle(self) -> None:
        """Answer the messages that are durable or lost by now: the first clients here, the others in `answer`."""
        engine, store, commits = self._core, self.stream.store, self.commits
        if engine.is_closed:  # by the library: acknowledge the messages it kept, refuse those that came too late
            self.answer()
            self._call_caught_up()
            return
        has_failed = engine.log.failure() is not None
        if has_failed and not self._roll_back():
            return
        # Read once, before anything is delivered: a commit that ends during this call signals again.
        committed = store.committed_position
        if committed == self._settled and committed < engine.position and not has_failed and self._waits_for_commit:
            return
        self._settled = committed
        if commits.commit_began and committed >= commits.submitted:
            commits.end_commit()
        self.answered += settle(self.account.router, self.ingest, self.account.sublist, FIRST_CLIENTS)
        self.dispatcher.settle()
        self.dispatcher.committed()  # where a client gets both an answer and the message, one send has both
        self.account.router.flush()  # they have waited for the disk: send now, do the housekeeping afterwards
        commits.settle(self._schedule_expiry)
        self._wake_consumers_waiting()
        if self.stream.config.republish is not None:
            self._republish()
        self.dispatcher.tell_others()
        self._call_caught_up()

    def answer(self) -> None:
        """Send more of the answers that are due."""
        self.answered += settle(self.account.router, self.ingest, self.account.sublist)
        self.account.router.flush()

    @property
    def _waits_for_commit(self) -> bool:
        """Whether there is nothing to do and nobody to answer before the running commit ends."""
        others = (
            self.commits.has_waiters
            or self._consumers_waiting
            or self._caught_up
            or self.stream.config.republish is not None
        )
        return not others and self.dispatcher.is_quiet and not self.ingest.is_due

    def _roll_back(self) -> bool:
        """After a failed commit: forget the messages that were not kept, so that their publishers can be told."""
        if self.stream.store.has_deferred_writes:
            self._resume_later()  # all appends were refused: nothing to roll back
            return True
        if not self.commits.roll_back():
            self.has_parked()
            return False
        return True

    # Writes that the stream's open had to defer: retried in a thread, even if nobody publishes.

    def _resume_later(self) -> None:
        if self._resuming is None and self.stream.store.has_deferred_writes and not self.is_closed:
            self._resuming = self._loop.call_later(RESUME_S, self._resume)

    def _resume(self) -> None:
        done = self._loop.run_in_executor(None, self._resume_in_thread)
        done.add_done_callback(self._resumed)

    def _resume_in_thread(self) -> None:
        with self.stream.locked():
            if not self._core.is_closed and self.stream.store.has_deferred_writes:
                self.stream.store.retry()

    def _resumed(self, done: asyncio.Future[None]) -> None:
        self._resuming = None
        if not done.cancelled() and done.exception() is not None:
            self.commits.warn(f"stream {self.name}: {done.exception()}")
        self._resume_later()
        if not self.is_closed:
            self.tick.touch(self)
            self.tick.end()

    def _republish(self) -> None:
        """Republish the committed messages on their other subjects."""
        if not self.stream.try_lock():
            self.has_parked()
            return
        try:
            found = self.stream.rules.republished(self._core.committed_seq)
        finally:
            self.stream.unlock()
        for subject, headers, payload in found:
            self.account.publish(Origin.REPUBLISH, subject, payload, headers)

    def refuse_batch(
        self, client: object, subject: bytes, reply: bytes | None, headers: bytes | None, payload: bytes
    ) -> None:
        """Refuse a publish whose reply subject asks for a batch: the stream does not allow batches."""
        if reply is not None and self.ingest.has_acks:
            self.account.publish(Origin.PUBACK, reply, self.refusal(BatchesDisabled()))

    async def committed(self) -> None:
        """Return once everything appended so far is durable; raise if it was lost."""
        self.account.router.take_batches()  # messages read in this tick, too
        position = self._core.position
        if self.commits.is_durable(position):
            return
        future = self.commits.add_waiter(position)
        if self.commits.submitted < position:
            self.submit()
        self.tick.wait_for(self)
        self.commits.wake_waiters()
        await future

    async def settled(self) -> None:
        """Return once everything appended so far is durable, or known to be lost. Messages present then remain."""
        try:
            await self.committed()
        except StoreClosed:
            raise
        except StoreError:
            return  # its publisher gets the error

    # Consumers.

    @property
    def deliveries(self) -> dict[str, Delivery]:
        """The stream's consumers on the server, by name."""
        return self.dispatcher.deliveries

    def _consumer_changed(self, consumer: Consumer, what: str) -> None:
        """A consumer was created, changed or deleted, maybe by another thread, always under the stream's lock."""
        self._loop.call_soon_threadsafe(self.events.changed, consumer.name, what)

    def flush_consumers(self) -> int:
        """Write consumers' changes and start making them durable. The caller has the stream's lock."""
        consumers = self.stream.consumers
        position = consumers.flush()
        if not consumers.is_durable(position):
            consumers.sync(position)
        return position

    async def consumers_durable(self, position: int) -> None:
        """Return once the consumer log is durable up to `position`; raise if that fails."""
        consumers = self.stream.consumers
        while not consumers.is_durable(position):
            if self.is_closed:
                raise StoreClosed(f"stream {self.name} is closed")
            if consumers.log is not None and (error := consumers.log.failure()) is not None:
                raise error
            future: asyncio.Future[None] = self._loop.create_future()
            self._consumers_waiting.append(future)
            self.tick.wait_for(self)
            await future

    async def answer_acks(self) -> None:
        """Return once clients that wait for durable acks are answered, or the consumer log cannot be written."""
        while self.dispatcher.has_answers and not self.is_closed:
            try:
                await self.consumers_durable(self.dispatcher.answered_position)
            except StoreError as error:
                self.commits.warn(f"stream {self.name}: {error}")
                return
            self.dispatcher.settle()

    def _wake_consumers_waiting(self) -> None:
        """The consumer log may have moved: wake those who wait for it."""
        waiting, self._consumers_waiting = self._consumers_waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    # Time.

    def _schedule_expiry(self) -> None:
        """Set the timer for the moment when the next message becomes too old."""
        due = self.stream.rules.next_due
        if due == self._expiry_due and self._expiry is not None:
            return
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self._expiry_due = due
        if due is not None and self.stream.store.index.messages:
            delay = (due - self.stream.store.clock.now_ns()) / 1e9
            self._expiry = self._loop.call_later(min(max(delay, 0.0), EXPIRE_S_MAX), self._expire)

    def clock_changed(self) -> None:
        """The machine's clock was set, or the machine and its timers have slept: check all that waits for a time.

        The consumer log begins anew, with times by the clock as it is now.
        """
        self._expiry_due = None
        self.dispatcher.clock_changed()
        if self._core.is_closed or not self.stream.try_lock():
            return  # the thread that has the lock writes the consumers' changes and schedules what is due
        try:
            self._schedule_expiry()
            self.flush_consumers()
        except StoreError as error:
            self.commits.warn(f"stream {self.name}: {error}")
        finally:
            self.stream.unlock()

    def _expire(self) -> None:
        self._expiry = self._expiry_due = None
        if self.is_closed or self._core.is_closed:
            return
        if not self.stream.try_lock():
            self._expiry = self._loop.call_later(RETRY_S * 10, self._expire)
            return
        try:
            self.stream.rules.expire(self.stream.store.clock.now_ns())
        except StoreError as error:
            self.commits.warn(f"stream {self.name}: {error}")
            self._expiry = self._loop.call_later(EXPIRE_AGAIN_S, self._expire)
            return
        finally:
            self.stream.unlock()
        self._schedule_expiry()
        self.tick.touch(self)
        self.tick.end()
