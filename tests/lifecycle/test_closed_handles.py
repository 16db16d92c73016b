"""Who still has a part of a deleted stream is told that it is closed: of what gave its memory back nothing is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.db.database import Database
from penstock.db.stream import Stream
from penstock.errors import StoreClosed
from penstock.store.write.batch import Batch

STORAGES = pytest.mark.parametrize("storage", ["file", "memory"])
COUNT = 3000


@pytest.fixture
def db(root: Path) -> Iterator[Database]:
    with penstock.open(root, durability="os") as database:
        yield database


def filled(db: Database, storage: str) -> Stream:
    stream = db.stream("S", subjects=["s.>"], storage=storage)
    stream.publish_many([(f"s.{n % 50}.{n % 3}", b"x" * 100, {"Nats-Msg-Id": str(n)}) for n in range(COUNT)])
    stream.delete_many(range(10, 60))
    return stream


def assert_closed(look: Callable[[], object]) -> None:
    with pytest.raises(StoreClosed, match="stream S is closed"):
        look()


@STORAGES
def test_every_method_of_a_stream_says_that_it_is_closed(db: Database, storage: str) -> None:
    stream = filled(db, storage)
    consumer, following, reading = stream.consumer("c"), stream.follow(start_seq=1), stream.read("s.*.1")
    message = consumer.next(timeout=0)
    assert message is not None
    next(following), next(reading)
    db.delete_stream("S")
    looks: list[Callable[[], object]] = [
        lambda: stream.publish("s.a", b"x"),
        lambda: stream.publish_many([("s.a", b"x")]),
        lambda: stream.get(1),
        lambda: stream.last("s.*.1"),
        lambda: list(stream.read()),
        lambda: list(stream.follow(start_seq=1)),
        lambda: stream.state(),
        lambda: stream.subjects(),
        lambda: stream.subjects_state("s.1.*"),
        lambda: stream.pending(1, "s.*.2"),
        lambda: stream.seq_at(None),
        lambda: stream.delete(5),
        lambda: stream.delete_many([5, 6]),
        lambda: stream.erase(5),
        lambda: stream.purge(),
        lambda: stream.purge("s.1.*", keep=1),
        lambda: stream.view(),
        lambda: stream.sync(),
        lambda: stream.consumer("c"),
        lambda: stream.consumer("d"),
        lambda: stream.delete_consumer("c"),
        lambda: list(reading),
        lambda: list(following),
        lambda: consumer.fetch(1, timeout=0),
        lambda: consumer.info(),
        lambda: consumer.pause("1m"),
        lambda: consumer.reset(),
        lambda: message.ack(),
        lambda: message.nak(),
    ]
    for look in looks:
        assert_closed(look)
    consumer.close()
    assert stream.name == "S" and stream.config.subjects == ("s.>",)


@STORAGES
def test_so_do_the_parts_below_it(db: Database, storage: str) -> None:
    stream = filled(db, storage)
    store, engine, query = stream.store, stream.store.engine, stream.store.query
    wide, literal, all_of_it = store.read(["s.*.1"]), store.read(["s.7.1"]), store.read()
    next(wide), next(literal), next(all_of_it)
    query.pending(["s.*.1"], 5)  # these remember what they have worked out
    query.pending(["s.7.1"], 5)
    numbers = query.live_numbers(["s.*.1"])
    db.delete_stream("S")
    looks: list[Callable[[], object]] = [
        lambda: next(wide),
        lambda: next(literal),
        lambda: next(all_of_it),
        lambda: store.load(1),
        lambda: store.append(Batch.one("s.a", b"x")),
        lambda: store.store("s.a", b"x"),
        lambda: store.remove(1),
        lambda: store.purge(),
        lambda: store.state(),
        lambda: store.load_last("s.7.1"),
        lambda: engine.load(1),
        lambda: engine.delete(1, 0, 0),
        lambda: engine.delete_all([1, 2], 0, 0),
        lambda: engine.delete_matching(["s.*.1"], 1, 100, 0, 100, 0, 0),
        lambda: engine.set_floor(100, 0, 0),
        lambda: query.next_seq((), 1),
        lambda: query.prev_seq(["s.7.1"], COUNT),
        lambda: query.last_seq(["s.7.1"]),
        lambda: query.pending(["s.*.1"], 5),
        lambda: query.pending(["s.7.1"], 5, True),
        lambda: query.filtered_state(["s.7.1"]),
        lambda: query.totals(["s.*.1"]),
        lambda: query.live_numbers([">"]),
        lambda: query.totals_of(numbers, 0, 10),
        lambda: query.subjects_state([">"]),
        lambda: query.last_seqs(["s.*.1"]),
        lambda: query.deleted(),
    ]
    for look in looks:
        assert_closed(look)
    # What has no error to give tells of an empty stream.
    assert (query.blocks(), query.disk_bytes(), query.total(b"s.7.1")) == ([], 0, 0)
    assert engine.time_of(1) is None and engine.seq_from_time(0) == store.index.last_seq + 1
    assert (store.index.messages, store.index.bytes, store.index.last_seq) == (0, 0, COUNT)


@STORAGES
def test_a_consumer_of_it_has_nothing_more_to_tell(db: Database, storage: str) -> None:
    stream = filled(db, storage)
    consumer = stream.consumer("c", filter="s.*.1", max_ack_pending=-1)
    assert len(consumer.fetch(500)) == 500
    engine = consumer._inner.engine
    db.delete_stream("S")
    assert (engine.num_pending, engine.num_ack_pending, engine.next_due_ns) == (0, 0, None)
    assert engine.take(2**62, 10) == [] and not engine.is_ready(2**62)
    assert engine.ack(61, 1, 0) == engine.nak(61, 0) == engine.term(61, 1, 0) == engine.progress(61, 0) == 0
    engine.reconcile()


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_who_publishes_while_another_thread_deletes_the_stream_is_answered(root: Path, durability: str) -> None:
    """The commit is waited for without the lock: the store may be closed when it has ended."""
    with penstock.open(root, durability=durability) as db:
        for _ in range(20):
            stream = db.stream("S", subjects=["s.>"])
            started = threading.Barrier(4)
            ended: list[str] = []

            def publish(stream: Stream = stream, started: threading.Barrier = started) -> None:
                started.wait()
                try:
                    while True:
                        stream.publish_many([("s.a", b"x" * 2000)] * 20)
                except StoreClosed as error:
                    ended.append(str(error))  # noqa: B023

            threads = [threading.Thread(target=publish) for _ in range(3)]
            for thread in threads:
                thread.start()
            started.wait()
            stream.publish("s.a", b"x")
            db.delete_stream("S")
            for thread in threads:
                thread.join()
            assert ended == ["stream S is closed"] * 3
