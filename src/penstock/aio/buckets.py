"""KeyValue and ObjectStore for event loops: the names and rules of `penstock.db.buckets`.

A call that writes one message appends it at once and waits for the commit threads; calls that may take long run in a
thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from penstock.aio.watcher import Watcher
from penstock.base.duration import Duration
from penstock.db.buckets import kv, objects
from penstock.db.buckets.kv import OLD_MARKER, KeyValueStatus
from penstock.db.buckets.kv_entry import KeyValueEntry, expecting, marker
from penstock.db.buckets.object_info import CHUNK_SIZE, ObjectHeaders, ObjectInfo
from penstock.db.buckets.object_result import ObjectResult
from penstock.db.buckets.objects import ObjectStoreStatus, Source
from penstock.errors import KeyExists, RevisionMismatch, WrongLastSequence

if TYPE_CHECKING:
    from penstock.aio.stream import Stream


class KeyValue:
    """A key-value bucket on an event loop; see `penstock.db.buckets.kv.KeyValue`."""

    def __init__(self, sync: kv.KeyValue, stream: Stream) -> None:
        self._sync = sync
        self._stream = stream

    @property
    def bucket(self) -> str:
        return self._sync.bucket

    @property
    def stream(self) -> Stream:
        """The stream below: subjects are `$KV.<bucket>.<key>`."""
        return self._stream

    async def get(self, key: str, revision: int | None = None) -> KeyValueEntry:
        """The newest entry of a key, or the one with a revision. Raises KeyNotFound if there is none, and its subclass
        KeyDeleted if the entry is a deletion marker."""
        return await self._stream._in_turn(lambda: self._sync.get(key, revision))

    async def put(self, key: str, value: bytes) -> int:
        """Set a key; returns the new revision."""
        return (await self._stream.publish(self._sync._layout.subject(key), value)).seq

    async def create(self, key: str, value: bytes, *, ttl: Duration | None = None) -> int:
        """Set a key that has no value or was deleted; raises KeyExists otherwise. `ttl`: the entry expires after this
        time, in whole seconds."""
        layout = self._sync._layout
        subject = layout.subject(key)
        layout.check_ttl(ttl, self._stream.config)
        try:
            return (await self._stream.publish(subject, value, expecting(0, ttl))).seq
        except WrongLastSequence:
            last = await self._stream.last(subject)
        revision = 0 if last is None else last.seq  # None: it was removed just now
        if last is not None and not layout.entry(last).is_deleted:
            raise KeyExists(self.bucket, key, revision)
        try:
            return (await self._stream.publish(subject, value, expecting(revision, ttl))).seq
        except WrongLastSequence as error:
            raise KeyExists(self.bucket, key, error.actual) from None

    async def update(self, key: str, value: bytes, revision: int) -> int:
        """Set a key whose newest revision is `revision` (0: it has none); returns the new revision. Raises
        RevisionMismatch if the key was changed meanwhile."""
        return await self._publish(key, value, expecting(revision), revision)

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Delete a key: a marker is stored, and older entries stay in the history."""
        await self._publish(key, b"", marker("DEL", revision), revision)

    async def purge(self, key: str, *, revision: int | None = None, ttl: Duration | None = None) -> None:
        """Delete a key and its history: only a marker stays, and expires after `ttl` if one is given."""
        self._sync._layout.check_ttl(ttl, self._stream.config)
        await self._publish(key, b"", marker("PURGE", revision, ttl), revision)

    async def _publish(self, key: str, value: bytes, headers: dict[str, str], revision: int | None) -> int:
        try:
            return (await self._stream.publish(self._sync._layout.subject(key), value, headers)).seq
        except WrongLastSequence as error:
            raise RevisionMismatch(self.bucket, key, revision or 0, error.actual) from None

    async def keys(self, filters: str | Sequence[str] = ">") -> list[str]:
        """The keys that have a value and match ("a.*", "a.>", or several such filters), sorted."""
        return await asyncio.to_thread(self._sync.keys, filters)

    async def history(self, key: str) -> list[KeyValueEntry]:
        """The stored entries of a key, markers included, oldest first; the key may have wildcards."""
        return await asyncio.to_thread(self._sync.history, key)

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
        """`async for`: the newest entry of each matching key, then one None, then every change as it is committed.
        Options as for the sync method."""
        self._sync._layout.filters(keys)
        return Watcher(
            self._stream,
            lambda: self._sync._feed(keys, include_history, updates_only, resume_from),
            lambda fed: self._sync._layout.watched(fed, ignore_deletes, meta_only),
            timeout,
            is_new=updates_only,
        )

    async def status(self) -> KeyValueStatus:
        return await asyncio.to_thread(self._sync.status)

    async def purge_deletes(self, older_than: Duration = OLD_MARKER) -> int:
        """Remove the markers of deleted keys and everything older on those keys; returns how many keys were removed."""
        return await asyncio.to_thread(self._sync.purge_deletes, older_than)


class ObjectStore:
    """An object store on an event loop, as `penstock.db.buckets.objects`. Files are read and written in threads."""

    def __init__(self, sync: objects.ObjectStore, stream: Stream) -> None:
        self._sync = sync
        self._stream = stream

    @property
    def bucket(self) -> str:
        return self._sync.bucket

    @property
    def stream(self) -> Stream:
        """The stream below."""
        return self._stream

    async def put(
        self,
        name: str,
        data: Source,
        *,
        description: str = "",
        headers: ObjectHeaders | None = None,
        metadata: dict[str, str] | None = None,
        chunk_size: int = CHUNK_SIZE,
    ) -> ObjectInfo:
        """Store an object: bytes, an open binary file, or the path of one. It replaces the name's previous object."""
        return await asyncio.to_thread(
            lambda: self._sync.put(
                name, data, description=description, headers=headers, metadata=metadata, chunk_size=chunk_size
            )
        )

    async def get(self, name: str, *, show_deleted: bool = False) -> AsyncObjectResult:
        """An object: `.info`, and its bytes with `await .read()` or chunk by chunk with `async for`."""
        return AsyncObjectResult(await asyncio.to_thread(lambda: self._sync.get(name, show_deleted=show_deleted)))

    async def info(self, name: str, *, show_deleted: bool = False) -> ObjectInfo:
        """The metadata of an object; raises ObjectNotFound if there is none."""
        return await self._stream._in_turn(lambda: self._sync.info(name, show_deleted=show_deleted))

    async def list(self, *, show_deleted: bool = False) -> list[ObjectInfo]:
        """The metadata of all objects, ordered by name."""
        return await asyncio.to_thread(lambda: self._sync.list(show_deleted=show_deleted))

    def watch(
        self,
        *,
        include_history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        timeout: float | None = None,
    ) -> Watcher[ObjectInfo]:
        """`async for`: the metadata of each object, then one None, then every change as it is committed. Options as for
        the sync method."""
        return Watcher(
            self._stream,
            lambda: self._sync._feed(include_history, updates_only),
            lambda fed: self._sync._watched(fed, ignore_deletes),
            timeout,
            is_new=updates_only,
        )

    async def delete(self, name: str) -> ObjectInfo:
        """Delete an object with its chunks; its metadata stays, marked as deleted (`show_deleted`)."""
        return await asyncio.to_thread(self._sync.delete, name)

    async def update_meta(
        self,
        name: str,
        *,
        new_name: str | None = None,
        description: str | None = None,
        headers: ObjectHeaders | None = None,
        metadata: dict[str, str] | None = None,
    ) -> ObjectInfo:
        """Change an object's metadata or name; what is not given stays."""
        return await asyncio.to_thread(
            lambda: self._sync.update_meta(
                name, new_name=new_name, description=description, headers=headers, metadata=metadata
            )
        )

    async def add_link(self, name: str, target: ObjectInfo | str) -> ObjectInfo:
        """Store a link to an object of this store or (with an ObjectInfo) of another."""
        return await asyncio.to_thread(self._sync.add_link, name, target)

    async def add_bucket_link(self, name: str, store: ObjectStore | str) -> ObjectInfo:
        """Store a link to a whole object store."""
        return await asyncio.to_thread(
            self._sync.add_bucket_link, name, store if isinstance(store, str) else store.bucket
        )

    async def seal(self) -> None:
        """Refuse all changes from now on, for ever."""
        await asyncio.to_thread(self._sync.seal)

    async def status(self) -> ObjectStoreStatus:
        return await asyncio.to_thread(self._sync.status)


class AsyncObjectResult:
    """Reads an object all at once or chunk by chunk, and checks its digest at the end."""

    def __init__(self, sync: ObjectResult) -> None:
        self._sync = sync
        self._chunks = sync.iter_chunks()

    @property
    def info(self) -> ObjectInfo:
        return self._sync.info

    async def read(self) -> bytes:
        """The rest of the content; iterate over a large object instead."""
        return await asyncio.to_thread(lambda: b"".join(self._chunks))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await asyncio.to_thread(next, self._chunks, None)) is not None:
            yield chunk
