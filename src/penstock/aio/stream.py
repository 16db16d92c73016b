"""Stream for event loops: the names and rules of `penstock.db.stream`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from penstock.aio.consumer import Consumer
from penstock.db import stream
from penstock.db.loop_commits import RETRY_S, SUBMIT_BYTES, LoopCommits
from penstock.db.stream import Ack, Acks, Headers, Item, StreamState, Subjects, When
from penstock.errors import ApiError, StoreClosed
from penstock.format.head import Head
from penstock.store.open.report import Finding
from penstock.store.read.message import Message
from penstock.store.read.snapshot import Snapshot
from penstock.store.state import SubjectState
from penstock.store.write.batch import Batch
from penstock.stream.config import StreamConfig
from penstock.stream.stream import acks_of

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from penstock.db.consumer_open import ConsumerOptions
    from penstock.store.open.adoption import Adopted

T = TypeVar("T")
YIELD_MESSAGES = 64  # messages until other tasks get a turn


class Stream:
    """One stream on an event loop. Use it on the loop that opened it."""

    def __init__(self, sync: stream.Stream) -> None:
        self._sync = sync
        self._core = sync.store.engine
        self._loop = asyncio.get_running_loop()
        self._news: set[asyncio.Event] = set()
        self._turn = asyncio.Lock()
        self._waits_for_disk = sync.commit_pump.waits_for_disk
        self._is_submit_due = False
        self._event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._commits = LoopCommits(self._loop, sync.commit_pump, self._event_fd)
        self._loop.add_reader(self._event_fd, self._committed)
        sync.listeners.append(self._told)

    @property
    def name(self) -> str:
        return self._sync.name

    @property
    def config(self) -> StreamConfig:
        return self._sync.config

    @property
    def created(self) -> datetime:
        return self._sync.created

    @property
    def findings(self) -> list[Finding]:
        """What was found damaged, rebuilt or set aside since the stream was opened."""
        return self._sync.findings

    @property
    def sync_stream(self) -> stream.Stream:
        """The same stream for threads."""
        return self._sync

    # Commits.

    def _committed(self) -> None:
        """After a commit or a failed one: complete the futures whose position is reached or lost."""
        try:
            os.eventfd_read(self._event_fd)
        except BlockingIOError:
            return
        self._settle()

    def _settle(self) -> None:
        commits = self._commits
        is_lost = commits.has_waiters and commits.has_failed and not self._core.is_closed
        if is_lost and not commits.roll_back():
            self._loop.call_later(RETRY_S, self._settle)
            return
        commits.settle()
        self._wake()

    def _told(self) -> None:
        """Called after a publish of another thread was committed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for event in self._news:
            event.set()

    async def _wait(self, position: int) -> None:
        """Return when what was appended up to `position` is durable; raise if it was lost."""
        if self._commits.is_durable(position):
            self._sync.store.check_position(position)
            self._commits.tidy()
        else:
            await self._commits.add_waiter(position)
        self._sync.tell_listeners()

    async def _in_turn(self, call: Callable[[], T]) -> T:
        """The result of `call`: called at once if the stream's lock is free, else in a thread, so that the loop runs
        on."""
        if not self._turn.locked() and self._sync.try_lock():
            try:
                return call()
            finally:
                self._sync.unlock()
        async with self._turn:  # one at a time: publishes keep their order
            return await asyncio.to_thread(call)

    # Consumers.

    async def consumer(self, name: str | None = None, **options: Unpack[ConsumerOptions]) -> Consumer:
        """Open a consumer, or create it; see the sync method."""
        return Consumer(await asyncio.to_thread(lambda: self._sync.consumer(name, **options)), self)

    async def consumers(self) -> list[str]:
        """The names of its consumers, sorted."""
        return await asyncio.to_thread(lambda: self._sync.consumers())

    async def delete_consumer(self, name: str) -> None:
        """Delete a consumer and its state; raises ConsumerNotFound if there is none."""
        await asyncio.to_thread(self._sync.delete_consumer, name)

    # Publishing.

    async def publish(self, subject: str | bytes, data: bytes = b"", headers: Headers = None) -> Ack:
        """Store one message; returns when it is safe at the store's durability."""
        acks = await self._publish(Batch.one(subject, data, headers))
        ack = acks[0]
        assert ack is not None
        return ack

    async def publish_many(self, messages: Iterable[Item]) -> Acks:
        """Store many messages in one commit, checked in order; see the sync method."""
        return await self._publish(Batch.of(messages))

    async def _publish(self, batch: Batch) -> Acks:
        refused, duplicates, position = await self._in_turn(lambda: self._append(batch))
        await self._wait(position)
        return acks_of(self._sync.rules.config.name, batch, refused, duplicates)

    def _append(self, batch: Batch) -> tuple[list[tuple[int, ApiError]], dict[int, int], int]:
        """Append a batch, and submit it now or at the end of this loop iteration. Returns the refused messages, the
        duplicates, and the position up to which the log must be durable for the rest to be safe."""
        with self._sync.locked():
            self._sync.check_open()
            refused, duplicates = self._sync.rules.take(batch)
            if not self._waits_for_disk or self._core.position - self._commits.submitted >= SUBMIT_BYTES:
                self._commits.submit()
                return refused, duplicates, self._commits.submitted
            if not self._is_submit_due:
                self._is_submit_due = True
                self._loop.call_soon_threadsafe(self._submit)
            return refused, duplicates, self._core.position

    def _submit(self) -> None:
        """Submit everything appended in this loop iteration: one sync for all of it."""
        if not self._sync.try_lock():
            self._loop.call_later(RETRY_S, self._submit)
            return
        try:
            self._is_submit_due = False
            self._commits.submit()
        finally:
            self._sync.unlock()

    # Reading.

    async def get(self, seq: int) -> Message:
        return await self._in_turn(lambda: self._sync.get(seq))

    async def last(self, subject: str = ">") -> Message | None:
        return await self._in_turn(lambda: self._sync.last(subject))

    def read(
        self,
        subjects: Subjects = None,
        *,
        start_seq: int | None = None,
        stop_seq: int | None = None,
        since: When = None,
        until: When = None,
    ) -> AsyncIterator[Message]:
        """The stored messages in order; see the sync method."""
        return _spread(self._sync.read(subjects, start_seq=start_seq, stop_seq=stop_seq, since=since, until=until))

    def follow(
        self,
        subjects: Subjects = None,
        *,
        start_seq: int | None = None,
        since: When = None,
        timeout: float | None = None,
    ) -> AsyncIterator[Message]:
        """Messages as they arrive: only new ones, or from `start_seq` or `since` on. Ends after `timeout` seconds
        without a message, and when the database is closed."""
        return self._followed(*self._sync._follow_from(subjects, start_seq, since), timeout)

    async def _followed(self, filters: list[str], next_seq: int, timeout: float | None) -> AsyncIterator[Message]:
        news = asyncio.Event()
        self._news.add(news)
        try:
            while True:
                news.clear()
                seen = self._sync._head()
                reader = self._sync._reader(filters, next_seq, 2**63 - 1)
                has_any = False
                async for message in _spread(self._sync._chunks(reader)):
                    has_any = True
                    next_seq = message.seq + 1
                    yield message
                if has_any:
                    continue
                next_seq = max(next_seq, reader.next_seq)
                try:
                    async with asyncio.timeout(timeout):
                        await self._next_news(news, seen)
                except TimeoutError:
                    return
        except StoreClosed:
            if not self._sync.was_closed:
                raise  # the stream was deleted
        finally:
            self._news.discard(news)

    async def _next_news(self, news: asyncio.Event, seen: Head | None) -> None:
        store = self._sync.store
        if not isinstance(store, Snapshot):
            await news.wait()
            return
        while not news.is_set() and not self._sync._has_news(store, seen):
            await asyncio.sleep(stream.POLL_S)

    # Queries and deletes: in a thread, because they may take long.

    async def state(self) -> StreamState:
        return await asyncio.to_thread(self._sync.state)

    async def subjects(self, subject: str = ">") -> dict[str, int]:
        return await asyncio.to_thread(self._sync.subjects, subject)

    async def subjects_state(self, subject: str = ">") -> dict[str, SubjectState]:
        return await asyncio.to_thread(self._sync.subjects_state, subject)

    async def pending(self, start_seq: int, subjects: Subjects = None, *, last_per_subject: bool = False) -> int:
        return await asyncio.to_thread(
            lambda: self._sync.pending(start_seq, subjects, last_per_subject=last_per_subject)
        )

    async def seq_at(self, when: When) -> int:
        return await asyncio.to_thread(self._sync.seq_at, when)

    async def delete(self, seq: int) -> bool:
        return await asyncio.to_thread(self._sync.delete, seq)

    async def delete_many(self, seqs: Iterable[int]) -> int:
        return await asyncio.to_thread(self._sync.delete_many, seqs)

    async def erase(self, seq: int) -> bool:
        return await asyncio.to_thread(self._sync.erase, seq)

    async def adopt(self, job: str, tasks: Sequence[dict[str, Any]], *, query: str = "", batch: int = 0) -> Adopted:
        """Adopt staged messages, in a thread; see the sync method."""
        return await asyncio.to_thread(lambda: self._sync.adopt(job, tasks, query=query, batch=batch))

    async def purge(self, subject: str = "", *, seq: int = 0, keep: int = 0) -> int:
        return await asyncio.to_thread(lambda: self._sync.purge(subject, seq=seq, keep=keep))

    async def to_arrow(self, subjects: Subjects = None, **options: Any) -> pa.Table:
        return await asyncio.to_thread(lambda: self._sync.to_arrow(subjects, **options))

    async def to_polars(self, subjects: Subjects = None, **options: Any) -> pl.DataFrame:
        return await asyncio.to_thread(lambda: self._sync.to_polars(subjects, **options))

    async def sync(self) -> None:
        await asyncio.to_thread(self._sync.sync)

    async def update(self, **config: Any) -> None:
        await asyncio.to_thread(lambda: self._sync.update(**config))

    def _detach(self) -> None:
        """The stream is closed: fail everything that still waits."""
        if self._event_fd >= 0:
            self._commits.stop()
            self._loop.remove_reader(self._event_fd)
            os.close(self._event_fd)
            self._event_fd = -1
            self._sync.listeners.remove(self._told)
        self._settle()
        self._commits.fail_waiters(StoreClosed(f"stream {self.name} was closed before it was safe"))


async def _spread(found: Iterator[Message]) -> AsyncIterator[Message]:
    """Yield messages one by one, and let other tasks run now and then."""
    for count, message in enumerate(found, 1):
        yield message
        if count % YIELD_MESSAGES == 0:
            await asyncio.sleep(0)
