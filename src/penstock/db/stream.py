"""Stream: the library's handle of one stream. Thread-safe: a lock guards the index, and is released while the disk
works."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from penstock.base.duration import parse_time
from penstock.base.subject import Filters
from penstock.db.commit_pump import CommitPump
from penstock.db.stream_consumers import consumers_beside, open_consumers
from penstock.errors import (
    DeniedDelete,
    DeniedPurge,
    ReadOnlyStore,
    StoreClosed,
    StreamSealed,
)
from penstock.format.head import Head
from penstock.format.identity import Identity
from penstock.store.base import NEVER, Store
from penstock.store.file_store import FileStore
from penstock.store.open.report import Finding
from penstock.store.read.message import Message
from penstock.store.read.reader import Reader
from penstock.store.read.snapshot import Snapshot, StaleCore
from penstock.store.read.view import StreamView, view_of
from penstock.store.state import SubjectState
from penstock.store.write.batch import Batch
from penstock.stream.config import StreamConfig
from penstock.stream.stream import Ack, Acks, StreamRules, acks_of

if TYPE_CHECKING:
    from _thread import RLock

    import duckdb
    import polars as pl
    import pyarrow as pa

    from penstock.consumer.consumer import Consumer as Inner
    from penstock.consumer.consumers import Consumers
    from penstock.db.consumer import Consumer
    from penstock.db.consumer_open import ConsumerOptions
    from penstock.db.database import Database
    from penstock.db.frames.frames import StreamDataset
    from penstock.scan import Scan
    from penstock.store.open.adoption import Adopted

Headers = Mapping[str, str | Sequence[str]] | bytes | None
Item = tuple[str | bytes, bytes] | tuple[str | bytes, bytes, Headers]
Subjects = str | Sequence[str] | None
When = datetime | str | int | None
T = TypeVar("T")

CHUNK_MAX = 256  # messages read before the lock is released
POLL_S = 0.01  # how often a reader in another process polls HEAD
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StreamState:
    """What a stream holds."""

    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    first_time_ns: int
    last_time_ns: int
    num_subjects: int
    num_deleted: int
    deleted: list[tuple[int, int]]  # inclusive ranges between first and last that hold no message
    lost: list[tuple[int, int]]  # inclusive ranges that damage took
    disk_bytes: int

    @property
    def first_time(self) -> datetime | None:
        return _datetime(self.first_time_ns)

    @property
    def last_time(self) -> datetime | None:
        return _datetime(self.last_time_ns)


class Stream:
    """One stream: publish, read, follow, look things up, delete."""

    def __init__(self, database: Database, identity: Identity, rules: StreamRules) -> None:
        self._database = database
        self.identity = identity
        self.rules = rules  # under the lock
        self._pump = CommitPump(rules)
        self.listeners = self._pump.listeners  # called after commits, and when a full consumer can deliver again
        self._use_lock()
        self._store = rules.store
        self._is_beside = isinstance(rules.store, Snapshot)
        self.was_closed = False  # with the database: a reader that waits for messages ends
        committer = database.root.committer if database.root is not None else None
        self._consumers = None if self._is_beside else open_consumers(rules, committer)
        self._orphans: deque[tuple[Inner, bool]] = deque()  # consumers whose handle is gone (db/consumer.py)
        self._log_users = 0  # threads that wait for the consumers' log without the lock
        self._log_free = threading.Condition(self._lock)
        self._opened_ns = rules.store.clock.now_ns()

    # The stream's lock, for callers that use the rules, the store or the consumers directly.

    def _use_lock(self) -> None:
        self._lock = self._pump.lock
        self.try_lock = self._pump.try_lock
        self.unlock = self._pump.unlock

    def locked(self) -> RLock:
        """The stream's lock, for a `with`. An event loop must not wait for it: it calls `try_lock`, which returns False
        while another thread has the lock, and `unlock`."""
        return self._lock

    @property
    def commit_pump(self) -> CommitPump:
        """The commits of this stream, for callers that commit from an event loop."""
        return self._pump

    def after_fork(self) -> None:
        """In a forked child: refuse every later call."""
        self._pump.after_fork()
        self._use_lock()

    # Properties.

    @property
    def consumers(self) -> Consumers:
        """Calling it, `stream.consumers()`, returns the names of the consumers, sorted. Everything else needs the
        stream's lock. In a reader beside a writer this is a snapshot of the consumers as they are now."""
        if self._consumers is not None:
            return self._consumers
        with self._lock:
            self.check_open()
            store = self.rules.store
            assert isinstance(store, Snapshot)
            return consumers_beside(self.rules, store)

    @property
    def name(self) -> str:
        return self.rules.config.name

    @property
    def config(self) -> StreamConfig:
        return self.rules.config

    @property
    def store(self) -> Store:
        """The store below, for tools. It is not thread-safe: nothing else may use the stream at the same time."""
        return self.rules.store

    @property
    def findings(self) -> list[Finding]:
        """What was found damaged, rebuilt or set aside since the stream was opened."""
        return list(self.rules.store.report.findings)

    @property
    def created(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.identity.created_ns // 1000)

    # Consumers.

    def consumer(self, name: str | None = None, **options: Unpack[ConsumerOptions]) -> Consumer:
        """Open a consumer, or create it with these options (JetStream's names; durations may be "30s" and the like;
        `filter` selects subjects; ack_policy defaults to "explicit").

        A consumer with a name is durable: it remembers what was delivered and acknowledged until it is deleted. Options
        that differ from an existing consumer's update it, under JetStream's rules. A consumer without a name is deleted
        with this handle.
        """
        from penstock.db.consumer_open import open_consumer

        return open_consumer(self, name, options)

    def delete_consumer(self, name: str) -> None:
        """Delete a consumer and its state; raises ConsumerNotFound if there is none."""
        from penstock.db.consumer_open import delete_consumer

        delete_consumer(self, name)

    # Publishing.

    def publish(self, subject: str | bytes, data: bytes = b"", headers: Headers = None) -> Ack:
        """Store one message; returns when it is safe at the store's durability. Raises the error of the rule that
        refused the message."""
        batch = Batch.one(subject, data, headers)
        refused, duplicates = self._pump.publish(batch)
        if not refused and not duplicates:
            return Ack(self.rules.config.name, batch.seq(0))
        ack = acks_of(self.rules.config.name, batch, refused, duplicates)[0]
        assert ack is not None
        return ack

    def publish_many(self, messages: Iterable[Item]) -> Acks:
        """Store many messages in one commit, checked in order. Each is (subject, data) or (subject, data, headers).

        If some are refused, one PublishRefused names them and holds the acks of the others.
        """
        batch = Batch.of(messages)
        refused, duplicates = self._pump.publish(batch)
        return acks_of(self.rules.config.name, batch, refused, duplicates)

    def tell_listeners(self) -> None:
        """Wake the threads that wait for new messages, or until a consumer below its max_ack_pending can deliver
        again."""
        self._pump.tell_listeners()

    # Reading.

    def get(self, seq: int) -> Message:
        """The message with this sequence; raises EndOfStream, MessageDeleted or MessageNotFound if there is none."""
        store = self._store
        if store.next_due == NEVER and not self._is_beside:  # nothing can have expired: the fast path
            with self._lock:
                found = store.engine.load(seq)
            if type(found) is Message:
                return found
        return self._fresh(lambda store: store.load(seq))

    def last(self, subject: str = ">") -> Message | None:
        """The newest message of a subject or filter; None if there is none."""
        wanted = _one_filter(subject)
        return self._fresh(lambda store: store.load_last(wanted))

    def _fresh(self, look: Callable[[Store], T]) -> T:
        """The result of `look` on the current stream; a reader beside a writer repeats it if a block was removed
        meanwhile."""
        with self._lock:
            self.check_open()
            store = self.rules.store
            if not isinstance(store, Snapshot):
                return look(store)
            store.refresh()
            try:
                return look(store)
            except FileNotFoundError:
                store.load_all()
                return look(store)

    def read(
        self,
        subjects: Subjects = None,
        *,
        start_seq: int | None = None,
        stop_seq: int | None = None,
        since: When = None,
        until: When = None,
    ) -> Iterator[Message]:
        """The stored messages in order: from `start_seq` up to but excluding `stop_seq`, stored at or after `since` and
        before `until`."""
        filters = _filters(subjects)
        start, stop = self._fresh(lambda store: _span(store, start_seq, stop_seq, since, until))
        return self._chunks(self._reader(filters, start, stop))

    def follow(
        self,
        subjects: Subjects = None,
        *,
        start_seq: int | None = None,
        since: When = None,
        timeout: float | None = None,
    ) -> Iterator[Message]:
        """Messages as they arrive: only new ones, or from `start_seq` or `since` on. Ends after `timeout` seconds
        without a message, and when the database is closed."""
        return self._followed(*self._follow_from(subjects, start_seq, since), timeout)

    def _follow_from(self, subjects: Subjects, start_seq: int | None, since: When) -> tuple[list[str], int]:
        filters = _filters(subjects)
        if start_seq is None and since is None:
            return filters, self._fresh(lambda store: store.engine.committed_seq) + 1
        return filters, self._fresh(lambda store: _span(store, start_seq, None, since, None))[0]

    def _followed(self, filters: list[str], next_seq: int, timeout: float | None) -> Iterator[Message]:
        woken = threading.Event()
        self.listeners.append(woken.set)
        try:
            while True:
                woken.clear()
                seen = self._head()
                reader = self._reader(filters, next_seq, 2**63 - 1)
                count = 0
                for message in self._chunks(reader):
                    count += 1
                    next_seq = message.seq + 1
                    yield message
                if count:
                    continue
                next_seq = max(next_seq, reader.next_seq)
                if not self._wait_for_news(woken, seen, timeout):
                    return
        except StoreClosed:
            if not self.was_closed:
                raise  # the stream was deleted
        finally:
            self.listeners.remove(woken.set)

    def _wait_for_news(self, woken: threading.Event, seen: Head | None, timeout: float | None) -> bool:
        store = self.rules.store
        if isinstance(store, Snapshot):
            stop = None if timeout is None else time.monotonic() + timeout
            while True:
                if self._has_news(store, seen):
                    return True
                if stop is not None and time.monotonic() >= stop:
                    return False
                if woken.wait(POLL_S):
                    return True
        self.check_open()
        return woken.wait(timeout)

    def _head(self) -> Head | None:
        store = self.rules.store
        return store.head if isinstance(store, Snapshot) else None

    def _has_news(self, store: Snapshot, seen: Head | None) -> bool:
        """Whether the writer has moved on since `seen`; another thread may already have noticed it."""
        with self._lock:
            self.check_open()
            store.refresh()
            return store.head is not seen

    def _reader(self, filters: list[str], start: int, stop: int) -> Reader:
        with self._lock:
            self.check_open()
            store = self.rules.store
            if isinstance(store, Snapshot):
                store.refresh()
            store.expire_if_due()
            return Reader(store.engine, filters, start, stop)

    def _chunks(self, reader: Reader) -> Iterator[Message]:
        """Messages read in chunks, each under the lock; the first are read singly, so that a caller who wants one
        message pays for one."""
        size = 1
        while True:
            with self._lock:
                start = reader.next_seq
                try:
                    found = reader.take(size)
                except FileNotFoundError as error:
                    store = self.rules.store
                    if not isinstance(store, Snapshot):
                        raise
                    if not isinstance(error, StaleCore):
                        store.load_all()  # the writer removed the block
                    # Read again, including the messages taken before it.
                    reader = Reader(store.engine, reader.filters, start, reader.stop_seq)
                    continue
            yield from found
            if len(found) < size:
                return
            size = min(size * 4, CHUNK_MAX)

    # State.

    def state(self) -> StreamState:
        """What the stream holds; waits for what is being written to the disk."""
        with self._lock:
            store = self._settled()
            state = store.state()
        return StreamState(
            messages=state.messages,
            bytes=state.bytes,
            first_seq=state.first_seq,
            last_seq=state.last_seq,
            first_time_ns=state.first_time,
            last_time_ns=state.last_time,
            num_subjects=state.num_subjects,
            num_deleted=state.num_deleted,
            deleted=state.deleted.ranges() if state.deleted is not None else [],
            lost=state.lost.ranges() if state.lost is not None else [],
            disk_bytes=state.disk_bytes,
        )

    def subjects(self, subject: str = ">") -> dict[str, int]:
        """The number of messages of each matching subject, ordered by subject."""
        with self._lock:
            return self._settled().subjects_totals(_one_filter(subject))

    def subjects_state(self, subject: str = ">") -> dict[str, SubjectState]:
        """The number of messages, and the first and last sequence, of each matching subject."""
        with self._lock:
            return self._settled().subjects_state(_one_filter(subject))

    def pending(self, start_seq: int, subjects: Subjects = None, *, last_per_subject: bool = False) -> int:
        """The number of matching messages from a sequence on."""
        filters = _filters(subjects)
        with self._lock:
            return self._settled().num_pending(start_seq, filters, last_per_subject)

    def seq_at(self, when: When) -> int:
        """The first sequence stored at or after a time; the stream's next sequence if there is none."""
        with self._lock:
            store = self._settled()
            return store.seq_from_time(parse_time(when, store.clock.wall_ns()) if when is not None else 0)

    def _settled(self) -> Store:
        self.check_open()
        store = self.rules.store
        if isinstance(store, Snapshot):
            store.refresh()
        else:
            store.commit()
        return store

    # Deleting.

    def delete(self, seq: int) -> bool:
        """Delete a message; False if there is none with this sequence."""
        return self._take_away(lambda store: store.remove(seq))

    def delete_many(self, seqs: Iterable[int]) -> int:
        """Delete many messages in one commit; returns how many existed."""
        return self._take_away(lambda store: store.remove_many(seqs))

    def erase(self, seq: int) -> bool:
        """Delete a message and overwrite its headers and payload on disk, so that no file holds them any more."""
        return self._take_away(lambda store: store.erase(seq))

    def _take_away(self, take: Callable[[Store], T]) -> T:
        """Run `take`, which deletes messages. Consumers that had some of them pending record that, and can deliver
        others."""
        with self._lock:
            self._may_delete()
            gone = take(self.rules.store)
            consumers = self.consumers
            if consumers.by_name:
                consumers.touch_all()
                consumers.flush()
        if consumers.by_name and self.listeners:
            self.tell_listeners()
        return gone

    def purge(self, subject: str = "", *, seq: int = 0, keep: int = 0) -> int:
        """Delete the messages of a subject or filter (of all subjects without one): those below `seq`, or all but the
        newest `keep`. Returns how many were deleted."""
        if subject:
            _one_filter(subject)
        if not 0 <= seq < 2**63 or not 0 <= keep < 2**63:
            raise ValueError(f"purge: seq {seq} and keep {keep} lie between 0 and 2^63")
        with self._lock:
            self.check_open()
            if self.config.sealed:
                raise StreamSealed
            if self.config.deny_purge:
                raise DeniedPurge
            purged = self.rules.store.purge_ex(subject, seq, keep)
            self.consumers.purged(subject)
            self.consumers.flush()
        if self.consumers.by_name and self.listeners:
            self.tell_listeners()  # a consumer that was at max_ack_pending may deliver again
        return purged

    def adopt(self, job: str, tasks: Sequence[dict[str, Any]], *, query: str = "", batch: int = 0) -> Adopted:
        """Add to the stream what the tasks of a job have staged (db/stage.py): all of it or nothing, and only once for
        each batch of a query."""
        from penstock.db.adopt import adopt_staged

        with self._lock:
            self.check_open()
            if self._is_beside:
                raise ReadOnlyStore(self._database.path, "it was opened read-only")
            adopted = adopt_staged(self, job, tasks, query, batch)
        self.tell_listeners()
        return adopted

    def _may_delete(self) -> None:
        self.check_open()
        if self.config.sealed:
            raise StreamSealed
        if self.config.deny_delete:
            raise DeniedDelete

    # Tables.

    def view(self) -> StreamView:
        """A snapshot of the stream's files, for scans."""
        with self._lock:
            store = self._settled()
            if not isinstance(store, FileStore | Snapshot):
                raise TypeError(f"stream {self.name} is kept in memory: it has no files to scan")
            return view_of(store)

    def scan(
        self,
        subjects: Subjects = None,
        *,
        start_seq: int | None = None,
        stop_seq: int | None = None,
        since: When = None,
        until: When = None,
        **options: Any,
    ) -> Scan:
        """Arrow record batches, block by block. Options: columns, headers ("map" or "raw"), batch_rows, threads,
        on_damage."""
        from penstock.scan import scan

        now = self.rules.store.clock.wall_ns()
        return scan(
            self.view(),
            subjects=_filters(subjects),
            start_seq=start_seq,
            stop_seq=stop_seq,
            since=None if since is None else parse_time(since, now),
            until=None if until is None else parse_time(until, now),
            **options,
        )

    def to_arrow(self, subjects: Subjects = None, **options: Any) -> pa.Table:
        """The messages as a pyarrow.Table: stream, seq, ts, ts_ns, subject, headers, payload. Options as for `scan`."""
        import pyarrow as pa

        batches = self.scan(subjects, **options)
        return pa.Table.from_batches(list(batches), schema=batches.schema)

    def dataset(
        self, subjects: Subjects = None, *, since: When = None, until: When = None, **options: Any
    ) -> StreamDataset:
        """The messages as a pyarrow.dataset: scanner, to_table, head, count_rows. Options as for `scan`; damage raises,
        unless asked otherwise."""
        from penstock.db.frames.frames import StreamDataset

        now = self.rules.store.clock.wall_ns()
        return StreamDataset(
            self.view,
            {
                "subjects": _filters(subjects),
                "since": None if since is None else parse_time(since, now),
                "until": None if until is None else parse_time(until, now),
                "on_damage": "raise",
                **options,  # type: ignore[typeddict-item]
            },
        )

    def to_polars(self, subjects: Subjects = None, **options: Any) -> pl.DataFrame:
        """The messages as a Polars frame. Options as for `dataset`."""
        return self.dataset(subjects, **options).to_polars()

    def scan_polars(self, subjects: Subjects = None, **options: Any) -> pl.LazyFrame:
        """A lazy Polars frame that reads only the columns and blocks that a query needs. Options as for `dataset`."""
        return self.dataset(subjects, **options).scan_polars()

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None, subjects: Subjects = None, **options: Any
    ) -> duckdb.DuckDBPyRelation:
        """A DuckDB relation, which reads the columns and blocks that a query needs. Options as for `dataset`."""
        return self.dataset(subjects, **options).to_duckdb(connection)

    # Opening and closing.

    def sync(self) -> None:
        """Write everything through to the disk, whatever the durability is."""
        with self._lock:
            self.check_open()
            store = self.rules.store
            if isinstance(store, FileStore):
                store.sync()

    def update(self, **config: Any) -> None:
        """Change the configuration, under JetStream's rules."""
        self._database.stream(self.name, **config)

    def _configure(self, identity: Identity, config: StreamConfig) -> None:
        with self._lock:
            self.identity = identity
            self.rules.configure(config)
            self.consumers.configured()

    def check_open(self) -> None:
        """Raise unless the stream is open in this process."""
        self._pump.check_open()

    def _close(self) -> None:
        with self._lock:
            self.was_closed = True
            self._log_free.wait_for(lambda: not self._log_users)
            try:
                if self._consumers is not None:
                    self._consumers.close()
            finally:
                self.rules.store.stop()  # type: ignore[attr-defined]
        self.tell_listeners()

    def _let_go(self) -> None:
        """Close the stream without writing anything, because it is about to be deleted."""
        with self._lock:
            self._log_free.wait_for(lambda: not self._log_users)
            store = self.rules.store
            if self._consumers is not None:
                self._consumers.abandon()
            if isinstance(store, FileStore):
                store.abandon()
            else:
                store.stop()  # type: ignore[attr-defined]
        self.tell_listeners()

    def _delete(self) -> None:
        with self._lock:
            self.rules.store.delete()  # type: ignore[attr-defined]
        self.tell_listeners()

    def __repr__(self) -> str:
        return f"<penstock.Stream {self.name} in {os.path.basename(self._database.path)!r}>"


def _span(store: Store, start_seq: int | None, stop_seq: int | None, since: When, until: When) -> tuple[int, int]:
    start = 1 if start_seq is None else start_seq
    stop = 2**63 - 1 if stop_seq is None else stop_seq
    now = store.clock.wall_ns()
    if since is not None:
        start = max(start, store.seq_from_time(parse_time(since, now)))
    if until is not None:
        stop = min(stop, store.seq_from_time(parse_time(until, now)))
    return max(start, 1), max(stop, 0)


def _filters(subjects: Subjects) -> list[str]:
    """The filters as a list of valid ones; without a filter, everything matches."""
    found = [subjects] if isinstance(subjects, str) else list(subjects or ())
    Filters(found)
    return found


def _one_filter(subject: str) -> str:
    Filters([subject])
    return subject


def _datetime(ns: int) -> datetime | None:
    return _EPOCH + timedelta(microseconds=ns // 1000) if ns else None


__all__ = ["Ack", "Acks", "Stream", "StreamState"]
