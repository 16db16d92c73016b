"""Database for event loops: the names and rules of `penstock.db.database`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Unpack

from penstock.aio.buckets import KeyValue, ObjectStore
from penstock.aio.stream import Stream
from penstock.base.clock import Clock
from penstock.base.disk import Disk
from penstock.db import database
from penstock.db.buckets.kv_entry import STREAM_PREFIX as KEY_VALUE_PREFIX
from penstock.db.buckets.kv_entry import KeyValueOptions
from penstock.db.buckets.object_info import STREAM_PREFIX as OBJECT_STORE_PREFIX
from penstock.db.buckets.object_info import ObjectStoreOptions
from penstock.store.open.report import Finding
from penstock.stream.config import StreamConfig


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
        """An existing stream; raises StreamNotFound otherwise."""
        await asyncio.to_thread(self._db.get_stream, name)
        return await self.stream(name)

    async def create_stream(self, config: StreamConfig) -> Stream:
        """Create a stream from a whole configuration."""
        await asyncio.to_thread(self._db.create_stream, config)
        return await self.stream(config.name)

    async def update_stream(self, config: StreamConfig) -> Stream:
        """Replace the configuration of a stream, under JetStream's rules."""
        await asyncio.to_thread(self._db.update_stream, config)
        return await self.stream(config.name)

    async def accounts(self) -> list[str]:
        """The accounts that have streams in this directory, sorted. Each is opened separately, with `account=`."""
        return await asyncio.to_thread(self._db.accounts)

    @property
    def findings(self) -> list[Finding]:
        """What opening the store found wrong or put off in the store itself; each stream has its own findings."""
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
        """Open a key-value bucket, or create it; see the sync method."""
        found = await asyncio.to_thread(lambda: self._db.key_value(bucket, **options))
        return KeyValue(found, await self.stream(found.stream.name))

    async def key_values(self) -> list[str]:
        return await asyncio.to_thread(self._db.key_values)

    async def delete_key_value(self, bucket: str) -> None:
        await asyncio.to_thread(self._db.delete_key_value, bucket)
        self._forget(KEY_VALUE_PREFIX + bucket)

    async def object_store(self, bucket: str, **options: Unpack[ObjectStoreOptions]) -> ObjectStore:
        """Open an object store, or create it; see the sync method."""
        found = await asyncio.to_thread(lambda: self._db.object_store(bucket, **options))
        return ObjectStore(found, await self.stream(found.stream.name))

    async def object_stores(self) -> list[str]:
        return await asyncio.to_thread(self._db.object_stores)

    async def delete_object_store(self, bucket: str) -> None:
        await asyncio.to_thread(self._db.delete_object_store, bucket)
        self._forget(OBJECT_STORE_PREFIX + bucket)

    async def close(self) -> None:
        """Close the database; publishes that still wait get their answer."""
        try:
            if self._sync is not None:
                await asyncio.to_thread(self._sync.close)
        finally:
            # Only now: a commit thread writes to the streams' descriptors until it is stopped.
            for one in self._streams.values():
                one._detach()
            self._streams.clear()
