"""StreamEndpoint: a stream on the server. It takes what is published on its subjects and answers when it is durable."""

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
HOLD_BYTES = 1 << 16  # less than this waits for the end of the commit before it
FIRST_CLIENTS = 4  # so many are answered before more is done: they go on while the others' answers are written
QUICK_DISK_S = 0.002  # a disk that takes longer may have a write wait, too: the loop leaves it to a commit thread
TOO_MANY_REQUESTS = b"NATS/1.0 429 Too Many Requests\r\n\r\n"
EXPIRE_S_MAX = 3600.0
EXPIRE_AGAIN_S = 1.0  # after a failure
RESUME_S = 0.5  # between two attempts to write what a stream's open could not


class StreamEndpoint:
    """One stream's place on the server. Everything but `stream`'s own methods belongs to the loop's thread."""

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
        """`count_max` messages, or `size_max` bytes, may wait for the stream; 0: as many as the reference lets."""
        self.account = account
        self.stream = stream
        self.events = events  # what is told of the stream's consumers
        self.tick = tick = account.tick
        self.domain = domain
        self.name = stream.name
        self._loop = tick.loop
        self._core = stream.store.engine
        self._captures: list[int] = []
        self.commits = LoopCommits(tick.loop, stream.commit_pump, tick.event_fd, tidies_in_thread=True)
        self._consumers_waiting: list[asyncio.Future[None]] = []  # for the log of consumers
        self._has_syncs = isinstance(stream.store, FileStore) and stream.store.durability == "disk"
        self._settled = -1  # how far the last commit was when everybody was told
        self.answered = 0  # clients, since the last commit began
        self._resuming: asyncio.TimerHandle | None = None
        self._is_retrying = False
        self._crowd: list[Callable[[], None]] = []  # to be called when there is room again
        self._expiry: asyncio.TimerHandle | None = None
        self._expiry_due: int | None = None
        self.is_closed = False
        self.was_purged = False  # told of a stream that never held a message
        self.began_at = stream.config.first_seq  # what an update says of it changes nothing any more
        self.ingest = Ingest()
        self.ingest.endpoint = self
        self.ingest.count_max = count_max or self.ingest.count_max
        self.ingest.size_max = size_max or self.ingest.size_max
        self.ingest.lock = stream.locked()
        self.ingest.engine = self._core
        stream.rules.is_heard = True
        stream.store.expiry_waits = False  # the loop waits for no disk
        if stream.consumers.log is not None:
            stream.consumers.log.add_notify(tick.event_fd)
        stream.consumers.on_change.append(self._consumer_changed)
        self.dispatcher = ConsumerDispatcher(self)
        self.configure()
        if isinstance(stream.store, FileStore):
            stream.store.deferred_writes.loop_thread = threading.get_ident()
            self._resume_later()

    # What it captures.

    def configure(self) -> None:
        """The stream's configuration is new or has changed: capture its subjects anew."""
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
        """Capture nothing more; return when what was captured is durable, or known to be lost."""
        self._release()
        self.tick.end()  # what was read and not yet appended
        while self.ingest.parked_count and not self.is_closed:
            await asyncio.sleep(RETRY_S)
        try:
            await self.committed()
        except StoreError as error:
            self.commits.warn(f"stream {self.name}: {error}")
        while self.ingest.is_waiting and not self.is_closed:  # many clients are answered in several turns
            self.tick.touch(self)
            self.tick.end()
            await asyncio.sleep(0)

    def close(self) -> None:
        """Capture nothing any more. Where the stream itself is gone, those who wait are told."""
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
        self._let_in()
        self._loop.call_soon(self._part)

    def _part(self) -> None:
        """Let go of the compiled side once nobody waits there for an answer: each keeps the other in memory."""
        ingest = self.ingest
        if ingest.is_touched or (ingest.is_over and (ingest.parked_count or ingest.is_waiting)):
            self._loop.call_later(RETRY_S, self._part)
        else:
            ingest.endpoint = ingest.guard = None

    # What the compiled side asks.

    def refusal(self, error: Exception) -> bytes:
        """The answer to a publish that was refused."""
        if not isinstance(error, ApiError):
            if not isinstance(error, StoreError):
                log.error("stream %s: a publish failed", self.name, exc_info=error)
            error = StoreFailed(str(error))
        return encode({"error": error.to_json(), "stream": self.name, "seq": 0})

    @property
    def has_failures(self) -> bool:
        """Some commit failed, ever: of each position it is to be asked whether it was kept."""
        return bool(self.stream.store.failures)

    def failure_at(self, position: int) -> bytes | None:
        """Why what was appended up to `position` was not kept, as an answer; None when it was."""
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
        """More waits for the stream than may: the messages of these who wait for an answer were not taken."""
        self.commits.warn(
            f"Dropping messages due to excessive stream ingest rate on '{self.account.name}' > '{self.name}'"
        )
        answer = self.refusal(TooManyRequests())
        for reply in replies:
            self.account.publish(Origin.PUBACK, reply, answer, TOO_MANY_REQUESTS)

    def call_when_caught_up(self, callback: Callable[[], None]) -> None:
        """Call back when less waits for the disk than now."""
        self._crowd.append(callback)
        self.tick.wait_for(self)
        self._let_in()  # it may have caught up already

    def _let_in(self) -> None:
        if self._crowd and (self.is_closed or self._core.is_closed or not self.ingest.look()):
            crowd, self._crowd = self._crowd, []
            for callback in crowd:
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
        """Hand over what was appended: one sync for all of it. `begins`: the loop has nothing else to do."""
        commits = self.commits
        if self._core.position == commits.submitted or self.is_held:
            return
        if commits.submit(begins and commits.commit_s < QUICK_DISK_S):
            self.answered = 0
        else:
            self.has_parked()

    @property
    def is_held(self) -> bool:
        """Little has come since the commit under way began: it waits for its end, with what the loop reads until then.

        A sync costs the same for one message as for a hundred, and the processor a tenth of what the messages do.
        """
        return (
            self.commits.commit_began > 0.0
            and self._core.position - self.commits.submitted < HOLD_BYTES
            and self.stream.store.committed_position < self.commits.submitted
        )

    @property
    def can_gather(self) -> bool:
        """A commit has just ended, and little has come meanwhile: the next may wait for those who are answered now.

        Begun at once, its sync would have all of them wait for the few who are not.
        """
        return (
            self.commits.commit_began > 0.0
            and self._has_syncs
            and self._core.position - self.commits.submitted < HOLD_BYTES
            and self.stream.store.committed_position >= self.commits.submitted
        )

    @property
    def is_waiting(self) -> bool:
        """Somebody waits for a commit, as of the last `settle`: one that has ended since has us called again."""
        if self.is_closed or self._core.is_closed:
            return False
        has_waiters = self.commits.has_waiters or self._consumers_waiting or self._crowd or self.dispatcher.has_answers
        return bool(has_waiters) or self.ingest.is_waiting or self._settled < self._core.position

    def settle(self) -> None:
        """Answer what is durable, or lost, by now; of many answers the first."""
        engine, store, commits = self._core, self.stream.store, self.commits
        if engine.is_closed:  # by the library: what it kept is acknowledged, what came too late refused
            self.answer()
            self._let_in()
            return
        has_failed = engine.log.failure() is not None
        if has_failed and not self._roll_back():
            return
        # Looked at once, before anything is delivered: a commit that ends while we are at it has us called again.
        committed = store.committed_position
        if committed == self._settled and committed < engine.position and not has_failed and self._waits_for_commit:
            return
        self._settled = committed
        if commits.commit_began and committed >= commits.submitted:
            commits.end_commit()
        self.answered += settle(self.account.router, self.ingest, self.account.sublist, FIRST_CLIENTS)
        self.dispatcher.settle()
        self.dispatcher.committed()  # a message follows its answer in one piece, where both go to one client
        self.account.router.flush()  # they have waited for the disk: the housekeeping comes after them
        commits.settle(self._schedule_expiry)
        self._wake_consumers_waiting()
        if self.stream.config.republish is not None:
            self._republish()
        self.dispatcher.tell_others()
        self._let_in()

    def answer(self) -> None:
        """Send more of the answers that are due."""
        self.answered += settle(self.account.router, self.ingest, self.account.sublist)
        self.account.router.flush()

    @property
    def _waits_for_commit(self) -> bool:
        """Nothing is to be done, or told to anybody, before the commit under way has ended."""
        others = (
            self.commits.has_waiters
            or self._consumers_waiting
            or self._crowd
            or self.stream.config.republish is not None
        )
        return not others and self.dispatcher.is_quiet and not self.ingest.is_due

    def _roll_back(self) -> bool:
        """After a failed commit: forget what was not kept, so that those who wait for it can be told."""
        if self.stream.store.has_deferred_writes:
            self._resume_later()  # nothing was appended: that was refused
            return True
        if not self.commits.roll_back():
            self.has_parked()
            return False
        return True

    # What the stream's open could not write: tried again beside the loop, however few publish.

    def _resume_later(self) -> None:
        if self._resuming is None and self.stream.store.has_deferred_writes and not self.is_closed:
            self._resuming = self._loop.call_later(RESUME_S, self._resume)

    def _resume(self) -> None:
        done = self._loop.run_in_executor(None, self._resume_aside)
        done.add_done_callback(self._resumed)

    def _resume_aside(self) -> None:
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
        """Publish what is safe by now once more, on its other subject."""
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
        """A publish whose reply asks for a batch, which the stream does not take."""
        if reply is not None and self.ingest.has_acks:
            self.account.publish(Origin.PUBACK, reply, self.refusal(BatchesDisabled()))

    async def committed(self) -> None:
        """Return once all that was appended so far is durable; raise when it was lost."""
        self.account.router.take_batches()  # what came in this turn of the loop, too
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
        """Return once all that was appended so far is durable, or known to be lost: what is there then, stays."""
        try:
            await self.committed()
        except StoreClosed:
            raise
        except StoreError:
            return  # whoever published it is told

    # Consumers.

    @property
    def deliveries(self) -> dict[str, Delivery]:
        """The stream's consumers on the server, by name."""
        return self.dispatcher.deliveries

    def _consumer_changed(self, consumer: Consumer, what: str) -> None:
        """A consumer came, changed or went; maybe in another thread, and always under the stream's lock."""
        self._loop.call_soon_threadsafe(self.events.changed, consumer.name, what)

    def flush_consumers(self) -> int:
        """Write down what has changed of consumers, and have it made durable. The caller has the stream's lock."""
        consumers = self.stream.consumers
        position = consumers.flush()
        if not consumers.is_durable(position):
            consumers.sync(position)
        return position

    async def consumers_durable(self, position: int) -> None:
        """Return once what was flushed up to `position` is durable; raise when that fails."""
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
        """Return once those are told who wait for their acks to be durable, as far as these can be written."""
        while self.dispatcher.has_answers and not self.is_closed:
            try:
                await self.consumers_durable(self.dispatcher.answered_position)
            except StoreError as error:
                self.commits.warn(f"stream {self.name}: {error}")
                return
            self.dispatcher.settle()

    def _wake_consumers_waiting(self) -> None:
        """The log of consumers may have moved: those who wait look again."""
        waiting, self._consumers_waiting = self._consumers_waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    # Time.

    def _schedule_expiry(self) -> None:
        """Have a look when the next message becomes too old."""
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
        """The machine's clock was set, or the machine has slept, and our timers with it: look at what waits for a time.

        The log of the consumers begins anew, with the times of the clock as it is now.
        """
        self._expiry_due = None
        self.dispatcher.clock_changed()
        if self._core.is_closed or not self.stream.try_lock():
            return  # whoever has the lock writes down what it does, and schedules what is due
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
