"""What the library makes and deletes is gone at once: without the garbage collector, with all its memory."""

from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
import penstock.aio
from penstock.db.database import Database
from penstock.errors import PenstockError
from support.footprint import MB, Footprint, assert_leaves_nothing, no_collector

PAYLOAD = b"z" * 50_000
STORAGES = pytest.mark.parametrize("storage", ["file", "memory"])


@pytest.fixture
def db(root: Path) -> Iterator[Database]:
    with penstock.open(root, durability="os") as database:
        yield database


@STORAGES
def test_a_stream(db: Database, storage: str) -> None:
    def cycle() -> None:
        stream = db.stream("S", subjects=["s.>"], storage=storage)
        stream.publish_many([(f"s.{n}", PAYLOAD) for n in range(100)])
        stream.publish("s.id", b"x", {"Nats-Msg-Id": "one"})
        assert stream.get(7).data == PAYLOAD
        assert sum(1 for _ in stream.read("s.*")) == 101
        assert len(stream.subjects()) == 101
        stream.purge(keep=5)
        db.delete_stream("S")

    assert_leaves_nothing(cycle)


@STORAGES
def test_the_parts_of_a_stream_are_dead_right_after(db: Database, storage: str) -> None:
    with no_collector():
        stream = db.stream("S", subjects=["s.>"], storage=storage)
        stream.publish("s.a", b"x")
        parts = [weakref.ref(one) for one in (stream, stream.store, stream.consumers, stream.rules, stream._lock)]
        db.delete_stream("S")
        del stream
        assert [part() for part in parts] == [None] * len(parts)


@STORAGES
def test_who_still_has_a_deleted_stream_keeps_none_of_its_memory(db: Database, storage: str) -> None:
    kept: list[object] = []

    def cycle() -> None:
        stream = db.stream("S", subjects=["s.>"], storage=storage)
        stream.publish_many([(f"s.{n}", PAYLOAD) for n in range(100)])
        consumer = stream.consumer("c", max_ack_pending=-1)
        stream.publish_many([("s.a", b"")] * 20_000)
        consumer.fetch(20_100)
        reader = stream.read()
        next(reader)
        db.delete_stream("S")
        kept.extend([stream, consumer, reader, stream.store, stream.store.engine, stream.store.index])

    for _ in range(3):
        cycle()
    before = Footprint.now()
    for _ in range(8):
        cycle()
    after = Footprint.now()
    assert after.anonymous - before.anonymous < 8 * MB  # one alone has 5 in its blocks, and 1 in its index
    assert (after.heap - before.heap) / 8 < 128 * 1024  # of it 50,000 are the message that the reader is at


def test_a_stream_of_many_subjects(db: Database) -> None:
    names = [f"s.{n}.{n * 7919 % 9973}" for n in range(20_000)]

    def cycle() -> None:
        stream = db.stream("S", subjects=["s.>"])
        stream.publish_many([(name, b"") for name in names])
        assert stream.pending(1, "s.*.5") >= 0
        db.delete_stream("S")

    assert_leaves_nothing(cycle, 4, anonymous=12 * MB)


@STORAGES
@pytest.mark.parametrize("name", ["durable", None])
def test_a_consumer(db: Database, storage: str, name: str | None) -> None:
    stream = db.stream("S", subjects=["s.>"], storage=storage)
    stream.publish_many([(f"s.{n % 7}", b"x") for n in range(500)])

    def cycle() -> None:
        consumer = stream.consumer(name, filter="s.*", ack_wait="1m")
        messages = consumer.fetch(50, timeout=0)
        assert len(messages) == 50
        for message in messages[:20]:
            message.ack()
        messages[30].nak()
        consumer.info()
        consumer.close()
        if name is not None:
            stream.delete_consumer(name)

    assert_leaves_nothing(cycle)


def test_a_consumer_with_a_hundred_thousand_pending(db: Database) -> None:
    stream = db.stream("S", subjects=["s.>"], storage="memory")
    stream.publish_many([("s.a", b"")] * 100_000)

    def cycle() -> None:
        consumer = stream.consumer("c", max_ack_pending=-1)
        assert len(consumer.fetch(100_000)) == 100_000
        stream.delete_consumer("c")

    assert_leaves_nothing(cycle, 2, warm_up=1, anonymous=24 * MB)  # the messages handed out are 100,000 objects


def test_a_follower(db: Database) -> None:
    def cycle() -> None:
        stream = db.stream("S", subjects=["s.>"])
        stream.publish("s.a", b"x")
        assert sum(1 for _ in stream.follow(start_seq=1, timeout=0.001)) == 1
        waiting = stream.follow(start_seq=1)  # is dropped where it stands
        next(waiting)
        del waiting
        assert not stream.listeners
        db.delete_stream("S")

    assert_leaves_nothing(cycle)


def test_a_key_value_bucket_and_its_watchers(db: Database) -> None:
    def cycle() -> None:
        bucket = db.key_value("K", history=3)
        for n in range(20):
            bucket.put(f"key{n % 5}", b"value")
        with bucket.watch() as watcher:
            assert next(iter(watcher)) is not None
        assert len(list(bucket.keys())) == 5
        bucket.delete("key1")
        bucket.purge("key2")
        db.delete_key_value("K")

    assert_leaves_nothing(cycle)


def test_an_object_store(db: Database) -> None:
    def cycle() -> None:
        store = db.object_store("O")
        store.put("large", b"z" * 400_000)
        assert len(store.get("large").data) == 400_000
        store.delete("large")
        db.delete_object_store("O")

    assert_leaves_nothing(cycle)


def test_a_view_and_a_scan(db: Database) -> None:
    stream = db.stream("S", subjects=["s.>"])
    stream.publish_many([(f"s.{n}", b"x" * 100) for n in range(1000)])

    def cycle() -> None:
        assert stream.view().last_seq == 1000
        assert stream.to_arrow().num_rows == 1000

    assert_leaves_nothing(cycle)


def test_a_refused_publish_keeps_neither_its_error_nor_its_batch(db: Database) -> None:
    stream = db.stream("S", subjects=["s.>"], max_msgs=1000)
    stream.publish("s.a", b"x")
    wrong = {"Nats-Expected-Last-Sequence": "999"}
    attempts: list[Callable[[], object]] = [
        lambda: stream.publish("other", PAYLOAD),
        lambda: stream.publish("s.a", PAYLOAD, wrong),
        lambda: stream.publish_many([("s.a", PAYLOAD, wrong), ("other", PAYLOAD), ("s.b", PAYLOAD, wrong)]),
        lambda: stream.get(10**6),
        lambda: db.get_stream("nobody"),
    ]

    def cycle() -> None:
        for attempt in attempts:
            try:
                attempt()
            except PenstockError:
                continue
            raise AssertionError("it was to be refused")

    assert_leaves_nothing(cycle)


@pytest.mark.parametrize("durability", ["disk", "os", "lazy"])
def test_a_database(root: Path, durability: str) -> None:
    def cycle() -> None:
        with penstock.open(root, durability=durability) as db:
            for name in ("A", "B"):
                stream = db.stream(name, subjects=[f"{name}.>"])
                stream.publish_many([(f"{name}.{n}", b"x" * 1000) for n in range(100)])
                stream.consumer("c").fetch(10, timeout=0)
            handle = weakref.ref(db)
        del db, stream
        if not gc.isenabled():
            assert handle() is None

    assert_leaves_nothing(cycle, 4)


def test_a_reader_beside_a_writer(root: Path, db: Database) -> None:
    stream = db.stream("S", subjects=["s.>"])
    stream.publish_many([(f"s.{n}", b"x" * 100) for n in range(100)])
    stream.consumer("c").fetch(10, timeout=0)
    count = itertools.count()

    def cycle() -> None:
        with penstock.open(root, read_only=True) as beside:
            found = beside.stream("S")
            last = found.state().last_seq
            stream.publish(f"s.{next(count) % 100}", b"more")
            assert [message.seq for message in found.read(start_seq=last)] == [last, last + 1]
            assert found.consumers() == ["c"]
            found.consumer("c").info()

    assert_leaves_nothing(cycle)


def test_a_reader_that_looks_at_the_consumers_again_and_again_keeps_no_picture_of_them(
    root: Path, db: Database
) -> None:
    db.stream("S", subjects=["s.>"]).consumer("c")
    with penstock.open(root, read_only=True) as beside:
        found = beside.stream("S")
        assert_leaves_nothing(lambda: found.consumers(), 50)


def test_a_database_on_an_event_loop(root: Path) -> None:
    async def use() -> None:
        async with penstock.aio.open(root, durability="os") as db:
            stream = await db.stream("S", subjects=["s.>"])
            await stream.publish_many([(f"s.{n}", b"x") for n in range(20)])
            assert [message.seq async for message in stream.read()] == list(range(1, 21))
            assert len([message async for message in stream.follow(start_seq=11, timeout=0.001)]) == 10
            consumer = await stream.consumer("c")
            for message in await consumer.fetch(5, timeout=0):
                await message.ack()
            bucket = await db.key_value("K")
            await bucket.put("a", b"1")
            async for entry in bucket.watch():
                assert entry is not None
                break
            await db.delete_key_value("K")
            await db.delete_stream("S")

    def cycle() -> None:
        asyncio.run(use())

    assert_leaves_nothing(cycle, 3)
