"""Database and Stream for event loops: the names and rules of `penstock.db`."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from penstock.aio.buckets import KeyValue, ObjectStore
from penstock.aio.consumer import Consumer
from penstock.base.clock import Clock
from penstock.base.disk import Disk
from penstock.db import database, stream
from penstock.db.buckets.kv_entry import STREAM_PREFIX as KEY_VALUE_PREFIX
from penstock.db.buckets.kv_entry import KeyValueOptions
from penstock.db.buckets.object_info import STREAM_PREFIX as OBJECT_STORE_PREFIX
from penstock.db.buckets.object_info import ObjectStoreOptions
from penstock.db.stream import Ack, Acks, Headers, Item, StreamState, Subjects, When
from penstock.db.waiters import Waiters
from penstock.errors import ApiError, PublishRefused, StoreClosed, StoreError
from penstock.format.head import Head
from penstock.store.file_store import FileStore
from penstock.store.open.report import Finding
from penstock.store.read.message import Message
from penstock.store.read.snapshot import Snapshot
from penstock.store.state import SubjectState
from penstock.store.write.batch import Batch
from penstock.stream.config import StreamConfig
from penstock.stream.stream import raise_only

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from penstock.db.consumer_open import ConsumerOptions
    from penstock.store.open.adoption import Adopted

T = TypeVar("T")
log = logging.getLogger("penstock")
_CHUNK = 64  # messages between two turns of the loop
SUBMIT_BYTES = 1 << 18  # as much is worth its own sync: the disk works while the loop appends more
RETRY_S = 0.002  # until the next look at a lock that another thread had


def open(
    path: str | os.PathLike[str],
    *,
    durability: str = "disk",
    read_only: bool = False,
    account: str = "$G",
    disk: Disk | None = None,
    clock: Clock | None = None,
) -> Database:
    """As `penstock.open`; used as `async with`."""
    return Database(
        lambda: database.Database(
            path, durability=durability, read_only=read_only, account=account, disk=disk, clock=clock
        )
    )


class Database:
    """A directory of streams on an event loop."""

    def __init__(self, opener: Callable[[], database.Database]) -> None:
        self._opener = opener
        self._sync: database.Database | None = None
        self._streams: dict[str, Stream] = {}

    async def __aenter__(self) -> Database:
        self._sync = await asyncio.to_thread(self._opener)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def _db(self) -> database.Database:
        if self._sync is None:
            raise RuntimeError("use it as `async with penstock.aio.open(...) as db`")
        return self._sync

    async def stream(self, name: str, **config: Any) -> Stream:
        """Open a stream, or create it."""
        found = await asyncio.to_thread(lambda: self._db.stream(name, **config))
        if name not in self._streams:
            self._streams[name] = Stream(found)
        return self._streams[name]

    async def get_stream(self, name: str) -> Stream:
        """A stream that exists."""
        await asyncio.to_thread(self._db.get_stream, name)
        return await self.stream(name)

    async def create_stream(self, config: StreamConfig) -> Stream:
        """Create a stream from a whole configuration."""
        await asyncio.to_thread(self._db.create_stream, config)
        return await self.stream(config.name)

    async def update_stream(self, config: StreamConfig) -> Stream:
        """Give a stream another configuration."""
        await asyncio.to_thread(self._db.update_stream, config)
        return await self.stream(config.name)

    async def accounts(self) -> list[str]:
        """The accounts of this directory that have streams, sorted; each is opened by itself, with `account=`."""
        return await asyncio.to_thread(self._db.accounts)

    @property
    def findings(self) -> list[Finding]:
        """What was found of the store itself when it was opened; each stream has its own."""
        return self._db.findings

    async def streams(self) -> list[str]:
        return await asyncio.to_thread(self._db.streams)

    async def delete_stream(self, name: str) -> None:
        await asyncio.to_thread(self._db.delete_stream, name)
        self._forget(name)

    def _forget(self, name: str) -> None:
        known = self._streams.pop(name, None)
        if known is not None:
            known._detach()

    async def key_value(self, bucket: str, **options: Unpack[KeyValueOptions]) -> KeyValue:
        """Open a key-value bucket, or create it; as the sync face's."""
        found = await asyncio.to_thread(lambda: self._db.key_value(bucket, **options))
        return KeyValue(found, await self.stream(found.stream.name))

    async def key_values(self) -> list[str]:
        return await asyncio.to_thread(self._db.key_values)

    async def delete_key_value(self, bucket: str) -> None:
        await asyncio.to_thread(self._db.delete_key_value, bucket)
        self._forget(KEY_VALUE_PREFIX + bucket)

    async def object_store(self, bucket: str, **options: Unpack[ObjectStoreOptions]) -> ObjectStore:
        """Open an object store, or create it; as the sync face's."""
        found = await asyncio.to_thread(lambda: self._db.object_store(bucket, **options))
        return ObjectStore(found, await self.stream(found.stream.name))

    async def object_stores(self) -> list[str]:
        return await asyncio.to_thread(self._db.object_stores)

    async def delete_object_store(self, bucket: str) -> None:
        await asyncio.to_thread(self._db.delete_object_store, bucket)
        self._forget(OBJECT_STORE_PREFIX + bucket)

    async def close(self) -> None:
        """As the sync face's; publishes that still wait get their answer."""
        try:
            if self._sync is not None:
                await asyncio.to_thread(self._sync.close)
        finally:
            # Not before: a commit thread writes to their descriptors until it is stopped.
            for one in self._streams.values():
                one._detach()
            self._streams.clear()


class Stream:
    """One stream on an event loop. Use it on the loop that opened it."""

    def __init__(self, sync: stream.Stream) -> None:
        self._sync = sync
        self._core = sync.store.engine
        self._loop = asyncio.get_running_loop()
        self._waiters = Waiters(self._loop, sync.store)
        self._news: set[asyncio.Event] = set()
        self._turn = asyncio.Lock()
        self._has_syncs = isinstance(sync.store, FileStore) and sync.store.durability == "disk"
        self._is_submit_due = False
        self._submitted = 0
        self._event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._core.log.set_notify(self._event_fd)
        self._loop.add_reader(self._event_fd, self._committed)
        sync._listeners.append(self._told)

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
        """The same stream's sync face."""
        return self._sync

    # Commits.

    def _committed(self) -> None:
        """A commit thread says that something moved: wake those whose position is reached, or lost."""
        try:
            os.eventfd_read(self._event_fd)
        except BlockingIOError:
            return
        self._settle()

    def _settle(self) -> None:
        store = self._sync.store
        if self._waiters and self._core.log.failure() is not None and not self._core.is_closed:
            # What was not committed is rolled back, so that those who wait for it can be told.
            if not self._sync._lock.acquire(blocking=False):
                self._loop.call_later(RETRY_S, self._settle)
                return
            try:
                store.retry()
            except StoreError as error:
                log.warning("stream %s: %s", self.name, error)  # the next publish is refused with it
            finally:
                self._sync._lock.release()
        self._waiters.wake()
        self._tidy()
        self._wake()

    def _tidy(self) -> None:
        """Housekeeping after a commit. Whoever has the lock just now does the same at its end."""
        if self._sync._lock.acquire(blocking=False):
            try:
                if not self._core.is_closed:
                    self._core.note_committed()
                    self._sync.store.after_commit()
            finally:
                self._sync._lock.release()

    def _told(self) -> None:
        """A sync publish in another thread was committed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for event in self._news:
            event.set()

    async def _wait(self, position: int) -> None:
        store = self._sync.store
        if self._core.log.failure() is None and store.committed_position >= position:
            store.check_position(position)
            self._tidy()
            self._sync._tell()
            return
        await self._waiters.add(position)
        self._sync._tell()

    async def _in_turn(self, call: Callable[[], T]) -> T:
        """What `call` gives: at once when the stream's lock is free, else in a thread, so that the loop goes on."""
        if not self._turn.locked() and self._sync._lock.acquire(blocking=False):
            try:
                return call()
            finally:
                self._sync._lock.release()
        async with self._turn:  # one after the other: publishes keep their order
            return await asyncio.to_thread(call)

    # Consumers.

    async def consumer(self, name: str | None = None, **options: Unpack[ConsumerOptions]) -> Consumer:
        """Open a consumer, or create it; as the sync face's."""
        return Consumer(await asyncio.to_thread(lambda: self._sync.consumer(name, **options)), self)

    async def consumers(self) -> list[str]:
        """The names of its consumers, sorted."""
        return await asyncio.to_thread(lambda: self._sync.consumers())

    async def delete_consumer(self, name: str) -> None:
        """Remove a consumer, and what it knew; ConsumerNotFound without one."""
        await asyncio.to_thread(self._sync.delete_consumer, name)

    # In.

    async def publish(self, subject: str | bytes, data: bytes = b"", headers: Headers = None) -> Ack:
        """Store one message; returns when it is safe at the store's durability."""
        acks = await self._publish(Batch.one(subject, data, headers))
        ack = acks[0]
        assert ack is not None
        return ack

    async def publish_many(self, messages: Iterable[Item]) -> Acks:
        """Store many in one commit, judged in order; as the sync face's."""
        return await self._publish(Batch.of(messages))

    async def _publish(self, batch: Batch) -> Acks:
        rules = self._sync._rules
        refused, duplicates, position = await self._in_turn(lambda: self._take(batch))
        await self._wait(position)
        acks = Acks(rules.config.name, batch, duplicates)
        if refused:
            if batch.count == 1:
                raise_only(refused)
            raise PublishRefused(refused, acks, batch.count, batch.subject(refused[0][0]).decode("utf-8", "replace"))
        return acks

    def _take(self, batch: Batch) -> tuple[list[tuple[int, ApiError]], dict[int, int], int]:
        """Append and submit: what was refused, the duplicates, the position at which the rest is safe."""
        rules = self._sync._rules
        with self._sync._lock:
            self._sync._check()
            refused, duplicates = rules.take(batch)
            if not self._has_syncs or self._core.position - self._submitted >= SUBMIT_BYTES:
                self._submitted = rules.store.submit()
                return refused, duplicates, self._submitted
            if not self._is_submit_due:
                self._is_submit_due = True
                self._loop.call_soon_threadsafe(self._submit)
            return refused, duplicates, self._core.position

    def _submit(self) -> None:
        """Hand over what was appended in this turn of the loop: one sync for all of it."""
        if not self._sync._lock.acquire(blocking=False):
            self._loop.call_later(RETRY_S, self._submit)
            return
        try:
            self._is_submit_due = False
            if not self._core.is_closed:
                self._submitted = self._sync.store.submit()
        finally:
            self._sync._lock.release()

    # Out.

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
        """The messages there are, in order."""
        return _spread(self._sync.read(subjects, start_seq=start_seq, stop_seq=stop_seq, since=since, until=until))

    def follow(
        self,
        subjects: Subjects = None,
        *,
        start_seq: int | None = None,
        since: When = None,
        timeout: float | None = None,
    ) -> AsyncIterator[Message]:
        """Messages as they come: new ones only, or from `start_seq` or `since` on; ends after `timeout` seconds
        without one, and when the database is closed."""
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

    # Questions, and away: in a thread, as they may be long.

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
        """As the sync face's, in a thread."""
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
        """The stream is closed: nobody waits for anything any more."""
        if self._event_fd >= 0:
            self._core.log.set_notify(-1)
            self._loop.remove_reader(self._event_fd)
            os.close(self._event_fd)
            self._event_fd = -1
            self._sync._listeners.remove(self._told)
        self._settle()
        self._waiters.fail(StoreClosed(f"stream {self.name} was closed before it was safe"))


async def _spread(found: Iterator[Message]) -> AsyncIterator[Message]:
    """Messages one by one, with a turn for the others on the loop now and then."""
    for count, message in enumerate(found, 1):
        yield message
        if count % _CHUNK == 0:
            await asyncio.sleep(0)
