"""Consumer: the library's handle of one consumer: fetch, iterate, acknowledge, by JetStream's rules and without a
server.

A consumer belongs to its stream and outlives its handles, except a consumer without a name. Several threads may fetch
from one consumer, and so may a server of the same database and its clients: each message goes to one of them. A fetch
waits for events (a commit, an ack, a deadline); it does not poll.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from penstock.base.duration import NS_PER_SECOND, Duration, duration_ns, parse_time
from penstock.consumer import consumer as inner_consumer
from penstock.consumer.config import ConsumerConfig
from penstock.consumer.engine import Delivered
from penstock.consumer.moment import Moment
from penstock.consumer.requests import reset_seq, with_pause
from penstock.db.consumer_info import ConsumerInfo, info_of
from penstock.db.consumer_message import ConsumerMessage, DeliveredMessage
from penstock.errors import ConsumerDeleted, FetchRefused, ReadOnlyStore, StoreClosed, StoreError, WriteFailed
from penstock.store.base import NEVER

if TYPE_CHECKING:
    from penstock.db.stream import Stream

Inner = inner_consumer.Consumer

FETCH_S = 5.0
SLICE = 256  # messages taken before the lock is released
WAIT_S_MAX = 86_400.0  # a deadline that is farther off is checked once a day
PAUSE_LOOK_NS = NS_PER_SECOND  # a pause ends by the machine's clock, which may be set meanwhile
log = logging.getLogger("penstock")


class Taken(NamedTuple):
    """The messages taken, and the seconds until the next attempt is worthwhile without other events (None: never)."""

    messages: list[Delivered]
    wait_s: float | None


class Consumer:
    """A handle of one consumer. Thread-safe.

    The handle ends with `with`, with `close`, or when it is garbage-collected. A consumer without a name is deleted
    with its handle; a named one stays.
    """

    def __init__(self, stream: Stream, inner: Inner, *, is_owner: bool) -> None:
        """`is_owner`: the consumer is deleted with this handle. The caller holds the stream's lock."""
        self._stream = stream
        self._inner = inner
        self._is_closed = False
        inner.keepers += 1
        inner.engine.tells = True
        self._finalizer = weakref.finalize(self, _let_go, stream, inner, is_owner)
        self._finalizer.atexit = False  # closing the database removes consumers without a name anyway

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def stream(self) -> Stream:
        return self._stream

    @property
    def config(self) -> ConsumerConfig:
        return self._inner.config

    # Delivery.

    def fetch(self, batch: int = 1, timeout: float | None = FETCH_S) -> list[ConsumerMessage]:
        """Up to `batch` messages: all that may be delivered now or, if there are none, the first that may be delivered
        within `timeout` seconds (0: do not wait; None: no limit). Returns an empty list if none arrived.

        A message is delivered to this caller alone; it is delivered again after `ack_wait` unless it is acknowledged.
        """
        self._check_batch(batch)
        taken = self._take(batch)
        if not taken.messages and timeout != 0:
            taken = self._wait_for(batch, timeout)
        return [ConsumerMessage(one, self) for one in taken.messages]

    def next(self, timeout: float | None = FETCH_S) -> ConsumerMessage | None:
        """The next message; None if none arrived within `timeout` seconds."""
        found = self.fetch(1, timeout)
        return found[0] if found else None

    def messages(self, *, timeout: float | None = None, prefetch: int = 1) -> Iterator[ConsumerMessage]:
        """Messages as they arrive, until the handle or the database is closed; with `timeout`, until none has arrived
        for that many seconds.

        prefetch: deliver that many at once and yield them one by one. This is faster, but the `ack_wait` of each begins
        at delivery, and messages that the loop has not reached when it ends are delivered again only after it.
        """
        while not self._is_closed:
            try:
                found = self.fetch(prefetch, timeout)
            except StoreClosed:
                if self._is_closed or self._stream.was_closed:
                    return  # another thread closed the handle or the database
                raise
            if not found:
                return
            yield from found

    def __iter__(self) -> Iterator[ConsumerMessage]:
        return self.messages()

    def _check_batch(self, batch: int) -> None:
        if batch < 1:
            raise ValueError(f"batch {batch}: at least 1")
        most = self.config.max_batch
        if 0 < most < batch:
            raise FetchRefused(self._what, f"its max_batch is {most}, not {batch}")

    def _wait_for(self, batch: int, timeout: float | None) -> Taken:
        stop = None if timeout is None else time.monotonic() + timeout
        woken = threading.Event()
        self._stream.listeners.append(woken.set)
        try:
            while True:
                woken.clear()
                taken = self._take(batch)
                left = None if stop is None else stop - time.monotonic()
                if taken.messages or (left is not None and left <= 0):
                    return taken
                woken.wait(min((wait for wait in (taken.wait_s, left) if wait is not None), default=None))
        finally:
            self._stream.listeners.remove(woken.set)

    def _take(self, batch: int) -> Taken:
        """Deliver what may be delivered now, without waiting."""
        found: list[Delivered] = []
        while True:
            with self._stream.locked():
                self._check()
                self._check_fetch()
                store, engine = self._stream.store, self._inner.engine
                store.expire_if_due()
                now = store.clock.now_ns()
                taken = engine.take(now, min(batch - len(found), SLICE))
                self._inner.last_active_ns = now
                self._write_down()
                self._tell_of_given_up()
                found += taken
                if len(taken) < SLICE or len(found) >= batch:
                    return Taken(found, None if found else self._wait_s(now))

    def _tell_of_given_up(self) -> None:
        """Log the messages that reached max_deliver; a server publishes an advisory instead."""
        if not self._stream.consumers.on_change:
            self._inner.engine.take_dropped()
            for seq, deliveries in self._inner.engine.take_given_up():
                log.warning("%s: message %d was delivered %d times, and is given up", self._what, seq, deliveries)

    def _wait_s(self, now: int) -> float | None:
        """Seconds until something may happen without an event: a deadline, the end of a pause, the expiry of a
        message."""
        engine, store = self._inner.engine, self._stream.store
        dues = [engine.wake_ns] if engine.wake_ns else []
        if self._inner.is_paused(now):
            dues += [now + PAUSE_LOOK_NS]
        else:
            due = engine.next_due_ns
            dues += [] if due is None else [due]
            dues += [store.next_due] if engine.is_full and store.next_due != NEVER else []
        return min(max(min(dues) - now, 0) / NS_PER_SECOND, WAIT_S_MAX) if dues else None

    # Acknowledgements.

    def ack(self, messages: Iterable[DeliveredMessage], *, sync: bool = False) -> int:
        """Acknowledge many messages at once; returns how many were pending. sync: return when that is durable."""
        return self._tell(
            lambda now: sum(self._inner.engine.ack(one.seq, one.consumer_seq, now) for one in messages), sync
        )

    def _ack(self, message: DeliveredMessage, sync: bool) -> bool:
        return self._tell(lambda now: self._inner.engine.ack(message.seq, message.consumer_seq, now), sync) > 0

    def _nak(self, message: DeliveredMessage, delay: Duration | None) -> bool:
        wait = 0 if delay is None else duration_ns(delay)
        done = self._tell(lambda now: self._inner.engine.nak(message.seq, now + wait if wait > 0 else 0)) > 0
        self._wake()
        return done

    def _term(self, message: DeliveredMessage, reason: str) -> bool:
        done = self._tell(lambda now: self._inner.engine.term(message.seq, message.consumer_seq, now)) > 0
        if done and reason:
            log.info("%s: message %d is terminated: %s", self._what, message.seq, reason)
        return done

    def _progress(self, message: DeliveredMessage) -> bool:
        return self._tell(lambda now: self._inner.engine.progress(message.seq, now)) > 0

    def _tell(self, say: Callable[[int], int], sync: bool = False) -> int:
        """Apply `say` to the engine and record the change; with `sync`, durably. Does nothing if the consumer was
        deleted."""
        stream, inner = self._stream, self._inner
        with stream.locked():
            stream.check_open()
            if inner.is_deleted:
                if sync:
                    raise ConsumerDeleted(stream.name, inner.name)
                return 0
            was_full = inner.engine.is_full
            now = stream.store.clock.now_ns()
            done = say(now)
            inner.last_active_ns = now
            position = self._write_down(sync)
        if done and was_full:
            self._wake()
        if sync:
            wait_durable(stream, position)
        return done

    def _write_down(self, sync: bool = False) -> int:
        """Hand the changes to the consumers' log; returns their position in it. Unless a caller waits for them, a
        failing disk delays nothing: memory has the changes, and they are written when the disk works again."""
        self._stream.consumers.touch(self._inner)
        if sync:
            return flush(self._stream)
        try:
            return self._stream.consumers.flush()
        except StoreError as error:
            log.warning("%s: what it did cannot be written down yet: %s", self._what, error)
            return 0

    def _wake(self) -> None:
        """Wake the threads, tasks and servers that may be able to deliver something now."""
        if self._stream.listeners:
            self._stream.tell_listeners()

    # The consumer.

    def info(self) -> ConsumerInfo:
        """The consumer's configuration and progress."""
        stream = self._stream
        with stream.locked():
            if stream._is_beside:
                inner = stream.consumers.by_name.get(self.name)  # as the writer has it now
                if inner is None:
                    raise ConsumerDeleted(stream.name, self.name)
                return info_of(stream.name, inner, stream.store.clock.now_ns())
            self._check()
            stream.store.expire_if_due()
            return info_of(stream.name, self._inner, stream.store.clock.now_ns())

    def pause(self, how_long: Duration | datetime) -> ConsumerInfo:
        """Stop delivering for a while ("10m", or seconds) or until a time; `resume` ends the pause."""
        now = self._stream.store.clock.wall_ns()
        until = parse_time(how_long) if isinstance(how_long, datetime) else now + duration_ns(how_long)
        return self._set_pause(Moment(until))

    def resume(self) -> ConsumerInfo:
        """End a pause. Calling it twice is harmless."""
        return self._set_pause(None)

    def _set_pause(self, until: Moment | None) -> ConsumerInfo:
        with self._stream.locked():
            self._check()
            consumers = self._stream.consumers
            consumers.set_config(self._inner, with_pause(self.config, until))
            position = flush(self._stream)
        return self._changed(position)

    def reset(self, seq: int = 0) -> ConsumerInfo:
        """Start again at a sequence of the stream, or (0) after what is acknowledged. Pending messages are forgotten,
        and deliveries count from 1. Raises InvalidReset if the sequence lies before the consumer's configured start."""
        with self._stream.locked():
            self._check()
            consumers, store = self._stream.consumers, self._stream.store
            floor = self._inner.table.ack_floor_stream_seq
            consumers.reset(self._inner, reset_seq(self.config, seq, floor, store.seq_from_time))
            position = flush(self._stream)
        return self._changed(position)

    def _changed(self, position: int) -> ConsumerInfo:
        self._wake()
        wait_durable(self._stream, position)
        return self.info()

    # Closing.

    @property
    def _what(self) -> str:
        return f"consumer {self.name} of stream {self._stream.name}"

    def _check(self) -> None:
        self._stream.check_open()
        if self._is_closed:
            raise StoreClosed(f"this handle of {self._what} is closed: open another with stream.consumer()")
        if self._stream._is_beside:
            raise ReadOnlyStore(self._stream._database.path, f"{self._what} is only for looking at")
        if self._inner.is_deleted:
            raise ConsumerDeleted(self._stream.name, self.name)

    def _check_fetch(self) -> None:
        config = self._inner.config
        if config.deliver_subject:
            raise FetchRefused(self._what, f"it pushes to {config.deliver_subject}: subscribe to that on a server")
        if config.priority_policy != "none":
            raise FetchRefused(self._what, "its priority groups are for clients of a server")

    def close(self) -> None:
        """Close this handle, and delete a consumer without a name. Closing twice is harmless."""
        self._is_closed = True
        self._finalizer()
        is_forked = self._stream.commit_pump.is_forked
        if self._stream._orphans and not is_forked:  # the finalizer did not get the lock; here we can wait for it
            with self._stream.locked():
                sweep_orphans(self._stream)
        self._wake()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<penstock.Consumer {self.name} of {self._stream.name}>"


def _let_go(stream: Stream, inner: Inner, is_owner: bool) -> None:
    """A handle is gone. The garbage collector may call this at any point, even while this thread is changing the stream
    under its lock; then the next call that opens or lists consumers cleans up."""
    if stream.commit_pump.is_forked:
        return
    stream._orphans.append((inner, is_owner))
    if not stream.locked()._is_owned() and stream.try_lock():  # type: ignore[attr-defined]
        try:
            sweep_orphans(stream)
        finally:
            stream.unlock()


def sweep_orphans(stream: Stream) -> None:
    """Forget handles that are gone, and delete the consumers that belong to them. The caller holds the stream's
    lock."""
    while stream._orphans:
        inner, is_owner = stream._orphans.popleft()
        inner.keepers -= 1
        if is_owner and not inner.is_deleted and not stream.store.engine.is_closed:
            stream.consumers.delete(inner.name)
            stream.consumers.flush()


def flush(stream: Stream) -> int:
    """Hand the consumers' changes to their log, for a caller that will wait for them; a failed disk is tried again at
    once. The caller holds the stream's lock."""
    kept = stream.consumers.log
    if kept is not None and kept.failure() is not None:
        kept.retry()
    return stream.consumers.flush()


def wait_durable(stream: Stream, position: int) -> None:
    """Return when the consumers' log up to `position` is as durable as the store promises; raise if it cannot be.

    The lock is released while the disk works: other threads continue, and share the sync.
    """
    with stream.locked():
        kept = stream.consumers.log
        if kept is None or kept.durability == "lazy" or kept.committed(position):
            return
        stream.check_open()
        stream._log_users += 1
    try:
        answer = kept.flush(kept.durability == "disk")
    finally:
        with stream.locked():
            stream._log_users -= 1
            stream._log_free.notify_all()
    if answer < 0 or not kept.committed(position):
        raise kept.failure() or WriteFailed("write", kept.folder, errno.EIO)
