"""Reading and changing a stream under its lock, without blocking the loop while another thread holds the lock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from penstock.db.loop_commits import RETRY_S
from penstock.errors import StreamNotFound

if TYPE_CHECKING:
    from penstock.broker.streams.endpoint import StreamEndpoint

T = TypeVar("T")


async def read_locked(endpoint: StreamEndpoint, read: Callable[[], T]) -> T:
    """What `read` returns under the stream's lock. If another thread holds the lock, a helper thread waits for it.

    Raises StreamNotFound if the stream was deleted while the request waited.
    """
    if endpoint.stream.try_lock():
        try:
            return _read_open(endpoint, read)
        finally:
            endpoint.stream.unlock()

    return await asyncio.to_thread(read_locked_blocking, endpoint, read)


def read_locked_blocking(endpoint: StreamEndpoint, read: Callable[[], T]) -> T:
    """As `read_locked`, for a thread that may wait for the lock."""
    with endpoint.stream.locked():
        return _read_open(endpoint, read)


def _read_open(endpoint: StreamEndpoint, read: Callable[[], T]) -> T:
    if endpoint.stream.store.engine.is_closed:
        raise StreamNotFound
    return read()


async def change_locked(endpoint: StreamEndpoint, change: Callable[[], T]) -> T:
    """What `change` returns under the stream's lock, always in the loop's thread, as its subscribers require."""
    while not endpoint.stream.try_lock():
        await asyncio.sleep(RETRY_S)
    try:
        if endpoint.is_closed:
            raise StreamNotFound
        return change()
    finally:
        endpoint.stream.unlock()
