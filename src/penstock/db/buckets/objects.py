"""ObjectStore: files of any size in a stream, in the NATS clients' layout (object_info.py). `Database.object_store`
opens one; clients of a server see the same objects under the same names."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from penstock.db.buckets.object_info import (
    CHUNK_SIZE,
    ROLLUP,
    STREAM_PREFIX,
    ObjectHeaders,
    ObjectInfo,
    ObjectLayout,
    ObjectLink,
    ObjectOptions,
    ObjectStoreOptions,
    encode_digest,
    encode_headers,
    encode_meta,
    make_nuid,
)
from penstock.db.buckets.object_result import ObjectResult
from penstock.db.buckets.watch_source import Fed, WatchSource, What
from penstock.db.buckets.watcher import Watcher
from penstock.db.stream import Stream, StreamState
from penstock.errors import (
    BadLink,
    BucketNotFound,
    ObjectExists,
    ObjectNotFound,
    PublishRefused,
)
from penstock.stream.config import StreamConfig

if TYPE_CHECKING:
    from penstock.db.database import Database

GROUP_SIZE = 4 * 1024 * 1024  # bytes of chunks in one commit
LINKS_MAX = 16

Source = bytes | bytearray | memoryview | str | os.PathLike[str] | BinaryIO
"""What `put` takes: bytes, an open binary file, or the path of one (text is a path, not content)."""


@dataclass(frozen=True, slots=True)
class ObjectStoreStatus:
    """The configuration and contents of an object store."""

    bucket: str
    config: StreamConfig
    state: StreamState

    @property
    def description(self) -> str:
        return self.config.description

    @property
    def size(self) -> int:
        """The bytes of all chunks and meta messages."""
        return self.state.bytes

    @property
    def ttl_ns(self) -> int:
        """How long an object lives; 0: for ever."""
        return self.config.max_age

    @property
    def is_sealed(self) -> bool:
        return self.config.sealed


class ObjectStore:
    """An object store. Thread-safe. When `put` returns, the object is stored completely; until then, the name has its
    old object."""

    def __init__(self, database: Database, stream: Stream, layout: ObjectLayout) -> None:
        self._database = database
        self._stream = stream
        self._layout = layout

    @property
    def bucket(self) -> str:
        return self._layout.bucket

    @property
    def stream(self) -> Stream:
        """The stream below."""
        return self._stream

    # In.

    def put(
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
        if chunk_size < 1:
            raise ValueError(f"chunk_size {chunk_size} is not above 0")
        self._layout.meta(name)  # refuse an invalid name before anything is read
        nuid = make_nuid()
        subject = self._layout.chunks(nuid)
        digest, size, count = hashlib.sha256(), 0, 0
        try:
            with _opened(data) as file:
                for group in _groups(file, chunk_size):
                    self._publish_chunks(subject, group)
                    for chunk in group:
                        digest.update(chunk)
                        size += len(chunk)
                    count += len(group)
            info = ObjectInfo(
                name=name,
                bucket=self.bucket,
                nuid=nuid,
                size=size,
                chunks=count,
                digest=encode_digest(digest.digest()),
                description=description,
                headers=encode_headers(headers),
                metadata=metadata or {},
                options=ObjectOptions(max_chunk_size=chunk_size),
            )
            with self._stream.locked():  # the object that this one replaces, even if two puts run at once
                before = self._find(name)
                info = self._publish_meta(info)
        except BaseException:
            if count:
                self._stream.purge(subject)
            raise
        self._purge_chunks(before)
        return info

    def _publish_chunks(self, subject: str, chunks: list[bytes]) -> None:
        try:
            self._stream.publish_many([(subject, chunk) for chunk in chunks])
        except PublishRefused as error:
            self._stream.purge(subject)  # the chunks of this group that were stored
            raise error.refused[0][1] from None

    def _publish_meta(self, info: ObjectInfo) -> ObjectInfo:
        """Publish a meta message; the caller holds the stream's lock and has checked the current one under it."""
        now = self._stream.store.clock.wall_ns()
        ack = self._stream.publish(self._layout.meta(info.name), encode_meta(info, now), ROLLUP)
        return msgspec.structs.replace(info, time_ns=self._stream.get(ack.seq).time_ns)

    def _purge_chunks(self, info: ObjectInfo | None) -> None:
        """Delete the chunks of an object that was replaced or deleted."""
        if info is not None and not info.is_deleted and info.nuid:
            self._stream.purge(self._layout.chunks(info.nuid))

    # Out.

    def get(self, name: str, *, show_deleted: bool = False) -> ObjectResult:
        """An object: `.info`, and its bytes as `.data`, as an open binary file, or chunk by chunk. Links are followed.

        Size and digest are checked at the end; BadObject is raised if they differ from what was put.
        """
        store, info = self, self.info(name, show_deleted=show_deleted)
        for _ in range(LINKS_MAX):
            if info.link is None:
                return ObjectResult(info, store._stream, store._layout.chunks(info.nuid))
            if not info.link.name:
                raise BadLink(f"object {name!r} of object store {self.bucket} is a link to all of {info.link.bucket}")
            store = find_object_store(self._database, info.link.bucket)
            info = store.info(info.link.name)
        raise BadLink(f"object {name!r} of object store {self.bucket}: more than {LINKS_MAX} links lead nowhere")

    def info(self, name: str, *, show_deleted: bool = False) -> ObjectInfo:
        """The metadata of an object; raises ObjectNotFound if there is none."""
        info = self._find(name)
        if info is None:
            raise ObjectNotFound(self.bucket, name)
        if info.is_deleted and not show_deleted:
            raise ObjectNotFound(self.bucket, name, "it was deleted")
        return info

    def _find(self, name: str) -> ObjectInfo | None:
        message = self._stream.last(self._layout.meta(name))
        return None if message is None else self._layout.info(message)

    def list(self, *, show_deleted: bool = False) -> list[ObjectInfo]:
        """The metadata of all objects, ordered by name."""
        feed, found = self._feed(), []
        while (taken := feed.take()) != [None]:
            found += [info for fed in taken if fed and (info := self._watched(fed, not show_deleted)) is not None]
        return sorted(found, key=lambda info: info.name)

    def watch(
        self,
        *,
        include_history: bool = False,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        timeout: float | None = None,
    ) -> Watcher[ObjectInfo]:
        """The metadata of each object, then one None, then every change as it is committed.

        include_history: start with every stored change. updates_only: only new changes, and no None. ignore_deletes: no
        deleted objects. With `timeout`, the watch ends when nothing has arrived for that many seconds.
        """
        feed = self._feed(include_history, updates_only)
        return Watcher(self._stream, feed, lambda fed: self._watched(fed, ignore_deletes), timeout)

    def _feed(self, include_history: bool = False, updates_only: bool = False) -> WatchSource:
        if include_history and updates_only:
            raise ValueError("watch: include_history and updates_only exclude each other")
        what: What = "new" if updates_only else "all" if include_history else "last"
        return WatchSource(self._stream, [self._layout.every_meta], what)

    def _watched(self, fed: Fed, ignore_deletes: bool) -> ObjectInfo | None:
        if not fed.message.data:
            return None  # a marker that the stream itself stored
        info = self._layout.info(fed.message)
        return None if ignore_deletes and info.is_deleted else info

    # Changes.

    def delete(self, name: str) -> ObjectInfo:
        """Delete an object with its chunks; its metadata stays, marked as deleted (`show_deleted`)."""
        with self._stream.locked():
            info = self.info(name)
            gone = msgspec.structs.replace(info, is_deleted=True, size=0, chunks=0, digest="")
            gone = self._publish_meta(gone)
        self._purge_chunks(info)
        return gone

    def update_meta(
        self,
        name: str,
        *,
        new_name: str | None = None,
        description: str | None = None,
        headers: ObjectHeaders | None = None,
        metadata: dict[str, str] | None = None,
    ) -> ObjectInfo:
        """Change an object's metadata or name; what is not given stays."""
        changes: dict[str, Any] = {
            "name": new_name,
            "description": description,
            "headers": None if headers is None else encode_headers(headers),
            "metadata": metadata,
        }
        wanted = {key: value for key, value in changes.items() if value is not None}
        with self._stream.locked():
            info = msgspec.structs.replace(self.info(name), **wanted)
            other = self._find(info.name) if info.name != name else None
            if other is not None and not other.is_deleted:
                raise ObjectExists(self.bucket, info.name)
            info = self._publish_meta(info)
            if info.name != name:
                self._stream.purge(self._layout.meta(name))
        return info

    def add_link(self, name: str, target: ObjectInfo | str) -> ObjectInfo:
        """Store a link to an object of this store or (with an ObjectInfo) of another."""
        info = self.info(target) if isinstance(target, str) else target
        if info.is_deleted:
            raise BadLink(f"link {name!r} of object store {self.bucket}: object {info.name!r} was deleted")
        if info.link is not None:
            raise BadLink(f"link {name!r} of object store {self.bucket}: {info.name!r} is a link itself")
        return self._put_link(name, ObjectLink(info.bucket, info.name))

    def add_bucket_link(self, name: str, store: ObjectStore | str) -> ObjectInfo:
        """Store a link to a whole object store."""
        bucket = store if isinstance(store, str) else store.bucket
        return self._put_link(name, ObjectLink(ObjectLayout(bucket).bucket))

    def _put_link(self, name: str, link: ObjectLink) -> ObjectInfo:
        info = ObjectInfo(name=name, bucket=self.bucket, nuid=make_nuid(), options=ObjectOptions(link=link))
        with self._stream.locked():
            before = self._find(name)
            if before is not None and not before.is_deleted and before.link is None:
                raise ObjectExists(self.bucket, name)
            return self._publish_meta(info)

    # The store.

    def seal(self) -> None:
        """Refuse all changes from now on, for ever."""
        self._database.stream(self._layout.stream, sealed=True)

    def status(self) -> ObjectStoreStatus:
        return ObjectStoreStatus(self.bucket, self._stream.config, self._stream.state())

    def __repr__(self) -> str:
        return f"<penstock.ObjectStore {self.bucket} in {self._database.path!r}>"


def open_object_store(database: Database, bucket: str, options: ObjectStoreOptions) -> ObjectStore:
    """Open an object store, create it if it does not exist, or change it where the options differ."""
    layout = ObjectLayout(bucket)
    is_new = layout.stream not in database
    if is_new and database.is_read_only:
        raise BucketNotFound(bucket, "object store", database.path, object_store_names(database))
    stream = database.stream(layout.stream, **layout.stream_fields(options, is_new=is_new))
    return ObjectStore(database, stream, layout)


def find_object_store(database: Database, bucket: str) -> ObjectStore:
    """An existing object store; raises BucketNotFound otherwise."""
    layout = ObjectLayout(bucket)
    if layout.stream not in database:
        raise BucketNotFound(bucket, "object store", database.path, object_store_names(database))
    return ObjectStore(database, database.get_stream(layout.stream), layout)


def object_store_names(database: Database) -> list[str]:
    return [name.removeprefix(STREAM_PREFIX) for name in database.streams() if name.startswith(STREAM_PREFIX)]


def delete_object_store(database: Database, bucket: str) -> None:
    database.delete_stream(find_object_store(database, bucket)._layout.stream)


@contextmanager
def _opened(data: Source) -> Iterator[BinaryIO]:
    if isinstance(data, bytes | bytearray | memoryview):
        yield io.BytesIO(data)
    elif isinstance(data, str | os.PathLike):
        with Path(data).open("rb") as file:
            yield file
    elif hasattr(data, "read"):
        yield data
    else:
        raise TypeError(f"an object is bytes, an open binary file, or the path of one, not {type(data).__name__}")


def _groups(file: BinaryIO, chunk_size: int) -> Iterator[list[bytes]]:
    """The chunks of a file, in groups that are committed together."""
    group: list[bytes] = []
    while chunk := _read_full(file, chunk_size):
        group.append(chunk)
        if len(group) * chunk_size >= GROUP_SIZE:
            yield group
            group = []
    if group:
        yield group


def _read_full(file: BinaryIO, size: int) -> bytes:
    """Read `size` bytes, or fewer at the end of the file: a pipe returns them in pieces."""
    parts: list[bytes] = []
    left = size
    while left:
        part = file.read(left)
        if not isinstance(part, bytes):
            raise TypeError(f"an object's file gives bytes, not {type(part).__name__}: open it in binary mode")
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
