"""KeyValue: a stream used as a key-value store, in the NATS clients' layout (kv_entry.py). `Database.key_value` opens
one; clients of a server see the same bucket under the same name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.duration import Duration, duration_ns
from penstock.db.buckets.kv_entry import (
    STREAM_PREFIX,
    KeyValueEntry,
    KeyValueLayout,
    KeyValueOptions,
    check_key_value,
    expecting,
    marker,
)
from penstock.db.buckets.watch_source import WatchSource, What
from penstock.db.buckets.watcher import Watcher
from penstock.db.stream import Stream, StreamState
from penstock.errors import (
    BucketNotFound,
    KeyDeleted,
    KeyExists,
    KeyNotFound,
    ReadError,
    RevisionMismatch,
    WrongLastSequence,
)
from penstock.stream.config import StreamConfig

if TYPE_CHECKING:
    from penstock.db.database import Database

OLD_MARKER = "30m"  # watchers are assumed to have seen older markers


@dataclass(frozen=True, slots=True)
class KeyValueStatus:
    """The configuration and contents of a bucket."""

    bucket: str
    config: StreamConfig
    state: StreamState

    @property
    def values(self) -> int:
        """The number of entries, including markers and history."""
        return self.state.messages

    @property
    def bytes(self) -> int:
        return self.state.bytes

    @property
    def history(self) -> int:
        """How many entries are kept of each key."""
        return self.config.max_msgs_per_subject

    @property
    def ttl_ns(self) -> int:
        """How long an entry lives; 0: for ever."""
        return self.config.max_age

    @property
    def limit_marker_ttl_ns(self) -> int:
        """How long the marker of an expired entry lives; 0: expired entries leave no marker."""
        return self.config.subject_delete_marker_ttl


class KeyValue:
    """A key-value bucket. Thread-safe.

    Each put is a message of the bucket's stream. It returns the message's revision once the message is safe at the
    database's durability.
    """

    def __init__(self, stream: Stream, layout: KeyValueLayout) -> None:
        self._stream = stream
        self._layout = layout

    @property
    def bucket(self) -> str:
        return self._layout.bucket

    @property
    def stream(self) -> Stream:
        """The stream below: subjects are `$KV.<bucket>.<key>`."""
        return self._stream

    # One key.

    def get(self, key: str, revision: int | None = None) -> KeyValueEntry:
        """The newest entry of a key, or the one with a revision. Raises KeyNotFound if there is none, and its subclass
        KeyDeleted if the entry is a deletion marker."""
        entry = self._entry(key, revision)
        if entry.is_deleted:
            raise KeyDeleted(self.bucket, key, entry.revision, entry.operation)
        return entry

    def _entry(self, key: str, revision: int | None = None) -> KeyValueEntry:
        """As `get`, but returns markers too."""
        subject = self._layout.subject(key)
        if revision is None:
            message = self._stream.last(subject)
            if message is None:
                raise KeyNotFound(self.bucket, key)
        else:
            try:
                message = self._stream.get(revision)
            except ReadError as error:
                raise KeyNotFound(self.bucket, key, revision, str(error)) from None
            if message.subject != subject:
                other = message.subject[len(self._layout.prefix) :]
                raise KeyNotFound(self.bucket, key, revision, f"that is an entry of key {other!r}")
        return self._layout.entry(message)

    def put(self, key: str, value: bytes) -> int:
        """Set a key; returns the new revision."""
        return self._stream.publish(self._layout.subject(key), value).seq

    def create(self, key: str, value: bytes, *, ttl: Duration | None = None) -> int:
        """Set a key that has no value or was deleted; raises KeyExists otherwise. `ttl`: the entry expires after this
        time, in whole seconds."""
        subject = self._layout.subject(key)
        self._layout.check_ttl(ttl, self._stream.config)
        try:
            return self._stream.publish(subject, value, expecting(0, ttl)).seq
        except WrongLastSequence:
            last = self._stream.last(subject)
        revision = 0 if last is None else last.seq  # None: it was removed just now
        if last is not None and not self._layout.entry(last).is_deleted:
            raise KeyExists(self.bucket, key, revision)
        try:
            return self._stream.publish(subject, value, expecting(revision, ttl)).seq
        except WrongLastSequence as error:
            raise KeyExists(self.bucket, key, error.actual) from None

    def update(self, key: str, value: bytes, revision: int) -> int:
        """Set a key whose newest revision is `revision` (0: it has none); returns the new revision. Raises
        RevisionMismatch if the key was changed meanwhile."""
        return self._publish(key, value, expecting(revision), revision)

    def delete(self, key: str, *, revision: int | None = None) -> None:
        """Delete a key: a marker is stored, and older entries stay in the history. With `revision`, only if that is the
        newest one."""
        self._publish(key, b"", marker("DEL", revision), revision)

    def purge(self, key: str, *, revision: int | None = None, ttl: Duration | None = None) -> None:
        """Delete a key and its history: only a marker stays, and expires after `ttl` if one is given."""
        self._layout.check_ttl(ttl, self._stream.config)
        self._publish(key, b"", marker("PURGE", revision, ttl), revision)

    def _publish(self, key: str, value: bytes, headers: dict[str, str], revision: int | None) -> int:
        try:
            return self._stream.publish(self._layout.subject(key), value, headers).seq
        except WrongLastSequence as error:
            raise RevisionMismatch(self.bucket, key, revision or 0, error.actual) from None

    # Many keys.

    def keys(self, filters: str | Sequence[str] = ">") -> list[str]:
        """The keys that have a value and match ("a.*", "a.>", or several such filters), sorted."""
        feed = self._feed(filters)
        found = set()
        while (taken := feed.take()) != [None]:
            for fed in taken:
                assert fed is not None
                entry = self._layout.watched(fed, ignore_deletes=True, meta_only=True)
                if entry is not None:
                    found.add(entry.key)
        return sorted(found)

    def history(self, key: str) -> list[KeyValueEntry]:
        """The stored entries of a key, markers included, oldest first; the key may have wildcards."""
        with self.watch(key, include_history=True) as watcher:
            found = []
            for entry in watcher:
                if entry is None:
                    break
                found.append(entry)
        return found

    def watch(
        self,
        keys: str | Sequence[str] = ">",
        *,
        include_history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        meta_only: bool = False,
        resume_from: int | None = None,
        timeout: float | None = None,
    ) -> Watcher[KeyValueEntry]:
        """The newest entry of each matching key, then one None, then every change as it is committed.

        include_history: start with every stored entry. updates_only: only new entries, and no None. ignore_deletes: no
        markers. meta_only: no values. resume_from: start with every entry from a revision on. With `timeout`, the watch
        ends when nothing has arrived for that many seconds.
        """
        feed = self._feed(keys, include_history, updates_only, resume_from)
        return Watcher(self._stream, feed, lambda fed: self._layout.watched(fed, ignore_deletes, meta_only), timeout)

    def _feed(
        self,
        keys: str | Sequence[str],
        include_history: bool = False,
        updates_only: bool = False,
        resume_from: int | None = None,
    ) -> WatchSource:
        if sum((include_history, updates_only, resume_from is not None)) > 1:
            raise ValueError("watch: include_history, updates_only and resume_from exclude each other")
        what: What = "new" if updates_only else "all" if include_history or resume_from is not None else "last"
        return WatchSource(self._stream, self._layout.filters(keys), what, resume_from or 1)

    # The bucket.

    def status(self) -> KeyValueStatus:
        return KeyValueStatus(self.bucket, self._stream.config, self._stream.state())

    def purge_deletes(self, older_than: Duration = OLD_MARKER) -> int:
        """Remove the markers of deleted keys and everything older on those keys; returns how many keys were removed.
        Markers younger than `older_than` stay, so that watchers see them; 0: no marker stays."""
        limit = self._stream.store.clock.wall_ns() - duration_ns(older_than)
        feed, count = self._feed(">"), 0
        while (taken := feed.take()) != [None]:
            for fed in taken:
                assert fed is not None
                entry = self._layout.entry(fed.message)
                if entry.is_deleted:
                    # Up to the marker only: the key may have been put again.
                    is_old = duration_ns(older_than) <= 0 or entry.time_ns <= limit
                    self._stream.purge(fed.message.subject, seq=entry.revision + (1 if is_old else 0))
                    count += is_old
        return count

    def __repr__(self) -> str:
        return f"<penstock.KeyValue {self.bucket} in {self._stream._database.path!r}>"


def open_key_value(database: Database, bucket: str, options: KeyValueOptions) -> KeyValue:
    """Open a bucket, create it if it does not exist, or change it where the options differ."""
    layout = KeyValueLayout(bucket)
    is_new = layout.stream not in database
    if is_new and database.is_read_only:
        raise BucketNotFound(bucket, "key-value bucket", database.path, key_value_names(database))
    if not is_new:
        check_key_value(database.get_stream(layout.stream).config)
    stream = database.stream(layout.stream, **layout.stream_fields(options, is_new=is_new))
    return KeyValue(stream, layout)


def key_value_names(database: Database) -> list[str]:
    return [name.removeprefix(STREAM_PREFIX) for name in database.streams() if name.startswith(STREAM_PREFIX)]


def delete_key_value(database: Database, bucket: str) -> None:
    layout = KeyValueLayout(bucket)
    if layout.stream not in database:
        raise BucketNotFound(bucket, "key-value bucket", database.path, key_value_names(database))
    database.delete_stream(layout.stream)
