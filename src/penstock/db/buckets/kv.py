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

OLD_MARKER = "30m"  # markers that are older have been seen by whoever watches


@dataclass(frozen=True, slots=True)
class KeyValueStatus:
    """What a bucket is and holds."""

    bucket: str
    config: StreamConfig
    state: StreamState

    @property
    def values(self) -> int:
        """Entries, markers and history with them."""
        return self.state.messages

    @property
    def bytes(self) -> int:
        return self.state.bytes

    @property
    def history(self) -> int:
        """Entries kept of each key."""
        return self.config.max_msgs_per_subject

    @property
    def ttl_ns(self) -> int:
        """How long an entry lives; 0: for ever."""
        return self.config.max_age

    @property
    def limit_marker_ttl_ns(self) -> int:
        """How long the marker of an expired entry lives; 0: there is none."""
        return self.config.subject_delete_marker_ttl


class KeyValue:
    """A key-value bucket. Thread-safe.

    Every put is a message of the bucket's stream and returns its revision, once it is as safe as the database's
    durability says.
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
        """The newest entry of a key, or the one with a revision. KeyNotFound without one; KeyDeleted, which is one,
        where it is the marker of a deletion."""
        entry = self._entry(key, revision)
        if entry.is_deleted:
            raise KeyDeleted(self.bucket, key, entry.revision, entry.operation)
        return entry

    def _entry(self, key: str, revision: int | None = None) -> KeyValueEntry:
        """As `get`; markers too."""
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
        """Set a key: its new revision."""
        return self._stream.publish(self._layout.subject(key), value).seq

    def create(self, key: str, value: bytes, *, ttl: Duration | None = None) -> int:
        """Set a key that has no value, or was deleted; KeyExists otherwise. `ttl`: it goes by itself after so long,
        whole seconds."""
        subject = self._layout.subject(key)
        self._layout.check_ttl(ttl, self._stream.config)
        try:
            return self._stream.publish(subject, value, expecting(0, ttl)).seq
        except WrongLastSequence:
            last = self._stream.last(subject)
        revision = 0 if last is None else last.seq  # None: it went just now
        if last is not None and not self._layout.entry(last).is_deleted:
            raise KeyExists(self.bucket, key, revision)
        try:
            return self._stream.publish(subject, value, expecting(revision, ttl)).seq
        except WrongLastSequence as error:
            raise KeyExists(self.bucket, key, error.actual) from None

    def update(self, key: str, value: bytes, revision: int) -> int:
        """Set a key whose newest revision is `revision` (0: it has none): its new one. RevisionMismatch where somebody
        was faster."""
        return self._publish(key, value, expecting(revision), revision)

    def delete(self, key: str, *, revision: int | None = None) -> None:
        """Delete a key: a marker says so, and older entries stay in its history. With `revision`, only where that is
        the newest one."""
        self._publish(key, b"", marker("DEL", revision), revision)

    def purge(self, key: str, *, revision: int | None = None, ttl: Duration | None = None) -> None:
        """Delete a key and its history: only a marker stays, for `ttl` where that is given."""
        self._layout.check_ttl(ttl, self._stream.config)
        self._publish(key, b"", marker("PURGE", revision, ttl), revision)

    def _publish(self, key: str, value: bytes, headers: dict[str, str], revision: int | None) -> int:
        try:
            return self._stream.publish(self._layout.subject(key), value, headers).seq
        except WrongLastSequence as error:
            raise RevisionMismatch(self.bucket, key, revision or 0, error.actual) from None

    # Many keys.

    def keys(self, filters: str | Sequence[str] = ">") -> list[str]:
        """The keys that have a value and match ("a.*", "a.>", or several such), sorted."""
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
        """What there is of a key, markers too, oldest first; it may have wildcards."""
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
        """The newest entry of each key that matches, one None after them, then every change as it is committed.

        include_history: first every entry there is. updates_only: only what comes, and no None. ignore_deletes: no
        markers. meta_only: no values. resume_from: first every entry from a revision on. With `timeout` it ends when
        nothing has come for so many seconds.
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
        """Remove the markers of deleted keys, and what is below them: how many keys went. Markers younger than
        `older_than` stay, so that those who watch see them; 0: none stays."""
        limit = self._stream.store.clock.wall_ns() - duration_ns(older_than)
        feed, count = self._feed(">"), 0
        while (taken := feed.take()) != [None]:
            for fed in taken:
                assert fed is not None
                entry = self._layout.entry(fed.message)
                if entry.is_deleted:
                    # Up to the marker, not beyond: somebody may have put the key again.
                    is_old = duration_ns(older_than) <= 0 or entry.time_ns <= limit
                    self._stream.purge(fed.message.subject, seq=entry.revision + (1 if is_old else 0))
                    count += is_old
        return count

    def __repr__(self) -> str:
        return f"<penstock.KeyValue {self.bucket} in {self._stream._database.path!r}>"


def open_key_value(database: Database, bucket: str, options: KeyValueOptions) -> KeyValue:
    """A bucket, made where it is not there, changed where the options say something else."""
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
