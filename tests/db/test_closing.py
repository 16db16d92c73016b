"""A database that is closed while others wait for its messages, dropped without a close, or opened twice."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import penstock
import penstock.aio
from penstock.db.lock import holder_of
from penstock.errors import StoreClosed, StoreLocked

WAYS: dict[str, Callable[[penstock.Database], Iterable[Any]]] = {
    "follow": lambda db: db.get_stream("S").follow(start_seq=1),
    "consumer": lambda db: db.get_stream("S").consumer("c"),
    "watch": lambda db: db.key_value("B").watch(),
}


def fill(path: Path) -> penstock.Database:
    db = penstock.open(path, durability="os")
    db.stream("S", subjects=["s.>"]).publish("s.1", b"x")
    db.key_value("B").put("k", b"v")
    return db


@pytest.mark.parametrize("way", WAYS)
def test_who_waits_for_messages_ends_quietly_when_the_database_is_closed(tmp_path: Path, way: str) -> None:
    db = fill(tmp_path)
    begun, ended = threading.Event(), []

    def wait() -> None:
        try:
            for _ in WAYS[way](db):
                begun.set()
            ended.append("quietly")
        except Exception as error:  # noqa: BLE001  told by the assertion
            ended.append(repr(error))

    thread = threading.Thread(target=wait)
    thread.start()
    assert begun.wait(60)
    db.close()
    thread.join(60)
    assert ended == ["quietly"]


@pytest.mark.parametrize("way", WAYS)
def test_who_closes_the_database_in_the_loop_ends_it(tmp_path: Path, way: str) -> None:
    db = fill(tmp_path)
    seen = 0
    for _ in WAYS[way](db):
        seen += 1
        db.close()
    assert seen == (2 if way == "watch" else 1), "what a watch had taken already is given"


def test_who_follows_beside_the_writer_ends_quietly_too(tmp_path: Path) -> None:
    with fill(tmp_path), penstock.open(tmp_path, read_only=True) as beside:
        for message in beside.get_stream("S").follow(start_seq=1):
            assert message.data == b"x"
            beside.close()


@pytest.mark.parametrize("way", WAYS)
def test_who_waits_on_a_loop_ends_quietly_too(tmp_path: Path, way: str) -> None:
    fill(tmp_path).close()

    async def work() -> str:
        begun = asyncio.Event()

        async def wait(db: Any, stream: Any, bucket: Any) -> str:
            found = {
                "follow": lambda: stream.follow(start_seq=1),
                "consumer": None,
                "watch": bucket.watch,
            }[way]
            messages = found() if found is not None else (await stream.consumer("c")).messages()
            try:
                async for _ in messages:
                    begun.set()
            except StoreClosed as error:
                return repr(error)
            return "quietly"

        async with penstock.aio.open(tmp_path, durability="os") as db:
            waiting = asyncio.create_task(wait(db, await db.stream("S"), await db.key_value("B")))
            async with asyncio.timeout(60):
                await begun.wait()
        async with asyncio.timeout(60):
            return await waiting

    assert asyncio.run(work()) == "quietly"


def test_who_follows_a_stream_that_is_deleted_is_told(tmp_path: Path) -> None:
    with fill(tmp_path) as db, pytest.raises(StoreClosed):
        for _ in db.get_stream("S").follow(start_seq=1):
            db.delete_stream("S")


def test_a_second_open_in_this_process_is_told_that_it_is_this_process(tmp_path: Path) -> None:
    with penstock.open(tmp_path), pytest.raises(StoreLocked, match=r"in this process already, since .*: use that"):
        penstock.open(tmp_path)


def test_a_database_that_is_dropped_is_closed_when_it_is_collected(tmp_path: Path) -> None:
    db = penstock.open(tmp_path, durability="lazy")
    stream = db.stream("S")
    stream.publish_many([("S", b"x")] * 100)
    del db
    gc.collect()
    assert holder_of(str(tmp_path)) is not None, "its stream is still used"
    stream.publish("S", b"y")
    del stream
    with pytest.warns(ResourceWarning, match=r"unclosed <penstock.Database .* lazy>: close it"):
        gc.collect()
    assert holder_of(str(tmp_path)) is None
    with penstock.open(tmp_path) as again:
        assert again.get_stream("S").state().messages == 101
    assert not [one for one in threading.enumerate() if one.name == "penstock-door"]


def test_who_opens_a_database_again_that_was_dropped_gets_it(tmp_path: Path) -> None:
    gc.disable()  # garbage that has not been collected yet
    try:
        penstock.open(tmp_path).stream("S").publish("S", b"x")
        with pytest.warns(ResourceWarning, match="unclosed"):
            again = penstock.open(tmp_path)
    finally:
        gc.enable()
    with again:
        assert again.get_stream("S").state().messages == 1
