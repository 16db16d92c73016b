"""Looking at a stream, and changing it, under its lock, without making the loop wait for the thread that has it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from penstock.broker.streams.endpoint import RETRY_S
from penstock.errors import StreamNotFound

if TYPE_CHECKING:
    from penstock.broker.streams.endpoint import Intake

T = TypeVar("T")


async def locked(intake: Intake, look: Callable[[], T]) -> T:
    """What `look` finds under the stream's lock. Where another thread has it, we wait in a thread, not in the loop.

    StreamNotFound where the stream was deleted while its request waited.
    """
    lock = intake.stream._lock
    if lock.acquire(blocking=False):
        try:
            return _look_at(intake, look)
        finally:
            lock.release()

    return await asyncio.to_thread(under_lock, intake, look)


def under_lock(intake: Intake, look: Callable[[], T]) -> T:
    with intake.stream._lock:
        return _look_at(intake, look)


def _look_at(intake: Intake, look: Callable[[], T]) -> T:
    if intake.stream.store.engine.is_closed:
        raise StreamNotFound
    return look()


async def changed(intake: Intake, change: Callable[[], T]) -> T:
    """What `change` gives under the stream's lock, always in the loop's thread: who follows a stream lives there."""
    lock = intake.stream._lock
    while not lock.acquire(blocking=False):
        await asyncio.sleep(RETRY_S)
    try:
        if intake.is_closed:
            raise StreamNotFound
        return change()
    finally:
        lock.release()
