"""KeyValue and ObjectStore for event loops: the names and rules of `penstock.db.buckets`.

What writes one message appends at once and waits for the commit threads; what may be long runs in a thread.
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
    """A key-value bucket on an event loop; as `penstock.db.buckets.kv.KeyValue`."""

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
        """The newest entry of a key, or the one with a revision. KeyNotFound without one; KeyDeleted, which is one,
        where it is the marker of a deletion."""
        return await self._stream._in_turn(lambda: self._sync.get(key, revision))

    async def put(self, key: str, value: bytes) -> int:
        """Set a key: its new revision."""
        return (await self._stream.publish(self._sync._layout.subject(key), value)).seq

    async def create(self, key: str, value: bytes, *, ttl: Duration | None = None) -> int:
        """Set a key that has no value, or was deleted; KeyExists otherwise. `ttl`: it goes by itself after so long,
        whole seconds."""
        layout = self._sync._layout
        subject = layout.subject(key)
        layout.check_ttl(ttl, self._stream.config)
        try:
            return (await self._stream.publish(subject, value, expecting(0, ttl))).seq
        except WrongLastSequence:
            last = await self._stream.last(subject)
        revision = 0 if last is None else last.seq  # None: it went just now
        if last is not None and not layout.entry(last).is_deleted:
            raise KeyExists(self.bucket, key, revision)
        try:
            return (await self._stream.publish(subject, value, expecting(revision, ttl))).seq
        except WrongLastSequence as error:
            raise KeyExists(self.bucket, key, error.actual) from None

    async def update(self, key: str, value: bytes, revision: int) -> int:
        """Set a key whose newest revision is `revision` (0: it has none): its new one. RevisionMismatch where somebody
        was faster."""
        return await self._publish(key, value, expecting(revision), revision)

    async def delete(self, key: str, *, revision: int | None = None) -> None:
        """Delete a key: a marker says so, and older entries stay in its history."""
        await self._publish(key, b"", marker("DEL", revision), revision)

    async def purge(self, key: str, *, revision: int | None = None, ttl: Duration | None = None) -> None:
        """Delete a key and its history: only a marker stays, for `ttl` where that is given."""
        self._sync._layout.check_ttl(ttl, self._stream.config)
        await self._publish(key, b"", marker("PURGE", revision, ttl), revision)

    async def _publish(self, key: str, value: bytes, headers: dict[str, str], revision: int | None) -> int:
        try:
            return (await self._stream.publish(self._sync._layout.subject(key), value, headers)).seq
        except WrongLastSequence as error:
            raise RevisionMismatch(self.bucket, key, revision or 0, error.actual) from None

    async def keys(self, filters: str | Sequence[str] = ">") -> list[str]:
        """The keys that have a value and match ("a.*", "a.>", or several such), sorted."""
        return await asyncio.to_thread(self._sync.keys, filters)

    async def history(self, key: str) -> list[KeyValueEntry]:
        """What there is of a key, markers too, oldest first; it may have wildcards."""
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
        """`async for`: the newest entry of each key that matches, one None after them, then every change as it is
        committed. Options as the sync face's."""
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
        """Remove the markers of deleted keys, and what is below them: how many keys went."""
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
        """Store an object: bytes, an open binary file, or the path of one. What the name had before goes."""
        return await asyncio.to_thread(
            lambda: self._sync.put(
                name, data, description=description, headers=headers, metadata=metadata, chunk_size=chunk_size
            )
        )

    async def get(self, name: str, *, show_deleted: bool = False) -> AsyncObjectResult:
        """An object: `.info`, and its bytes with `await .read()` or chunk by chunk with `async for`."""
        return AsyncObjectResult(await asyncio.to_thread(lambda: self._sync.get(name, show_deleted=show_deleted)))

    async def info(self, name: str, *, show_deleted: bool = False) -> ObjectInfo:
        """What is known of an object; ObjectNotFound without one."""
        return await self._stream._in_turn(lambda: self._sync.info(name, show_deleted=show_deleted))

    async def list(self, *, show_deleted: bool = False) -> list[ObjectInfo]:
        """The objects there are, by name."""
        return await asyncio.to_thread(lambda: self._sync.list(show_deleted=show_deleted))

    def watch(
        self,
        *,
        include_history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        timeout: float | None = None,
    ) -> Watcher[ObjectInfo]:
        """`async for`: what is known of each object there is, one None after them, then every change as it is
        committed. Options as the sync face's."""
        return Watcher(
            self._stream,
            lambda: self._sync._feed(include_history, updates_only),
            lambda fed: self._sync._watched(fed, ignore_deletes),
            timeout,
            is_new=updates_only,
        )

    async def delete(self, name: str) -> ObjectInfo:
        """Delete an object: its chunks go, and that there was one stays known (`show_deleted`)."""
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
        """Change what is said of an object, or its name; what is not given stays."""
        return await asyncio.to_thread(
            lambda: self._sync.update_meta(
                name, new_name=new_name, description=description, headers=headers, metadata=metadata
            )
        )

    async def add_link(self, name: str, target: ObjectInfo | str) -> ObjectInfo:
        """Let a name lead to an object, of this store or (an ObjectInfo) of another."""
        return await asyncio.to_thread(self._sync.add_link, name, target)

    async def add_bucket_link(self, name: str, store: ObjectStore | str) -> ObjectInfo:
        """Let a name lead to a whole object store."""
        return await asyncio.to_thread(
            self._sync.add_bucket_link, name, store if isinstance(store, str) else store.bucket
        )

    async def seal(self) -> None:
        """Allow no more changes, ever."""
        await asyncio.to_thread(self._sync.seal)

    async def status(self) -> ObjectStoreStatus:
        return await asyncio.to_thread(self._sync.status)


class AsyncObjectResult:
    """An object that is read: all at once, or chunk by chunk; its digest is checked at its end."""

    def __init__(self, sync: ObjectResult) -> None:
        self._sync = sync
        self._chunks = sync.iter_chunks()

    @property
    def info(self) -> ObjectInfo:
        return self._sync.info

    async def read(self) -> bytes:
        """What was not read yet; for a large object, iterate."""
        return await asyncio.to_thread(lambda: b"".join(self._chunks))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await asyncio.to_thread(next, self._chunks, None)) is not None:
            yield chunk
