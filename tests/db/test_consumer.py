"""Consumers of the library: JetStream's rules without a server, for threads and for an event loop."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import threading
import time
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock
import penstock.aio
from penstock import errors
from penstock.aio.consumer import ConsumerMessage
from penstock.testing import CrashDisk, FakeClock

S = 10**9


@pytest.fixture
def db(root: Path) -> Iterator[penstock.Database]:
    with penstock.open(root, durability="os") as database:
        yield database


@pytest.fixture
def orders(db: penstock.Database) -> penstock.Stream:
    stream = db.stream("ORDERS", subjects=["orders.>"])
    stream.publish_many([(f"orders.{'eu' if n % 2 else 'us'}.{n}", b"%d" % n) for n in range(1, 11)])
    return stream


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(bounded())


def seqs(messages: Any) -> list[int]:
    return [msg.seq for msg in messages]


# Deliveries.


def test_a_fetch_gives_what_there_is_and_knows_its_place(orders: penstock.Stream) -> None:
    billing = orders.consumer("billing", filter="orders.eu.>", ack_wait="30s", max_deliver=5)
    first, second = billing.fetch(2)
    assert (first.seq, first.subject, first.data) == (1, "orders.eu.1", b"1")
    assert (first.consumer_seq, first.deliveries, first.pending) == (1, 1, 4)
    assert (second.seq, second.consumer_seq, second.pending) == (3, 2, 3)
    assert first.headers == {} and first.time.tzinfo is not None and first.time_ns == first.message.time_ns
    assert "orders.eu.1" in repr(first) and "billing" in repr(billing)
    assert first.ack() and second.ack()
    rest = billing.fetch(100)
    assert seqs(rest) == [5, 7, 9] and billing.ack(rest) == 3
    assert billing.fetch(100, timeout=0) == [] and billing.next(timeout=0) is None
    info = billing.info()
    assert (info.stream, info.name, info.num_pending, info.num_ack_pending) == ("ORDERS", "billing", 0, 0)
    assert (info.delivered.consumer_seq, info.delivered.stream_seq) == (5, 9)
    assert (info.ack_floor.consumer_seq, info.ack_floor.stream_seq) == (5, 9)
    assert info.config.ack_policy == "explicit" and info.config.max_deliver == 5
    assert info.created.tzinfo is not None and not info.is_paused and billing.stream is orders


def test_iterating_ends_when_nothing_comes_for_so_long(orders: penstock.Stream) -> None:
    assert seqs(orders.consumer("a").messages(timeout=0)) == list(range(1, 11))
    assert seqs(orders.consumer("b").messages(timeout=0, prefetch=3)) == list(range(1, 11))
    for msg in orders.consumer("c"):
        msg.ack()
        if msg.seq == 10:
            break


def test_consumers_go_on_where_they_were(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S")
        stream.publish_many([("S", b"%d" % n) for n in range(5)])
        consumer = stream.consumer("c")
        one, two, three = consumer.fetch(3)
        one.ack()
        three.ack(sync=True)
    with penstock.open(root) as db:
        consumer = db.stream("S").consumer("c")
        info = consumer.info()
        assert (info.delivered.stream_seq, info.ack_floor.stream_seq, info.num_ack_pending) == (3, 1, 1)
        assert seqs(consumer.fetch(10)) == [4, 5]
        assert two.seq == 2  # pending: it is redelivered after ack_wait


def test_the_policies_are_jetstreams(orders: penstock.Stream) -> None:
    def first(**options: Any) -> int:
        with orders.consumer(**options) as consumer:
            return consumer.next(timeout=0).seq

    assert first(deliver_policy="last") == 10
    assert first(deliver_policy="by_start_sequence", opt_start_seq=7) == 7
    assert first(deliver_policy="last_per_subject", filter="orders.eu.>") == 1
    assert first(deliver_policy="by_start_time", opt_start_time="2020-01-01") == 1
    assert first(filter=["orders.us.4", "orders.eu.3"]) == 3
    new = orders.consumer(deliver_policy="new")
    assert new.fetch(timeout=0) == []
    orders.publish("orders.x", b"new")
    assert seqs(new.fetch(timeout=0)) == [11]
    headers = orders.consumer(headers_only=True).next()
    assert headers.data == b"" and headers.headers.get("Nats-Msg-Size") == "1"


def test_ack_policy_all_takes_those_before_with_it(orders: penstock.Stream) -> None:
    consumer = orders.consumer("all", ack_policy="all")
    messages = consumer.fetch(5)
    assert messages[3].ack()
    assert consumer.info().num_ack_pending == 1 and consumer.info().ack_floor.stream_seq == 4
    none = orders.consumer("none", ack_policy="none")
    message = none.next()
    assert not message.ack() and none.info().num_ack_pending == 0


# Redelivery.


def test_what_is_not_acknowledged_comes_again(root: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    with penstock.open(root, durability="os", clock=clock) as db:
        stream = db.stream("S")
        stream.publish_many([("S", b"1"), ("S", b"2"), ("S", b"3")])
        consumer = stream.consumer("c", ack_wait="10s", max_deliver=2)
        one, _, three = consumer.fetch(3)
        clock.advance(5 * S)
        assert one.in_progress() and three.ack()
        clock.advance(6 * S)
        again = consumer.fetch(10, timeout=0)
        assert [(msg.seq, msg.deliveries, msg.consumer_seq) for msg in again] == [(2, 2, 4)]
        assert consumer.info().num_redelivered == 1
        clock.advance(60 * S)
        assert [(msg.seq, msg.deliveries) for msg in consumer.fetch(10, timeout=0)] == [(1, 2)]
        clock.advance(60 * S)
        assert consumer.fetch(10, timeout=0) == [] and consumer.info().num_ack_pending == 0
        assert "consumer c of stream S: message 1 was delivered 2 times, and is given up" in caplog.text


def test_a_deadline_is_the_same_after_the_store_was_opened_again(root: Path, clock: FakeClock) -> None:
    """Every open once moved it by an ack_wait."""
    with penstock.open(root, durability="os", clock=clock) as db:
        db.stream("S").publish("S", b"1")
        db.stream("S").consumer("c", ack_wait="10s").fetch(1)
    for _ in range(2):
        clock.advance(3 * S)
        with penstock.open(root, durability="os", clock=clock) as db:
            assert db.stream("S").consumer("c").fetch(1, timeout=0) == []
    clock.advance(5 * S)
    with penstock.open(root, durability="os", clock=clock) as db:
        assert db.stream("S").consumer("c").next(timeout=0).deliveries == 2


def test_nak_brings_it_at_once_or_later(root: Path, clock: FakeClock) -> None:
    with penstock.open(root, durability="os", clock=clock) as db:
        stream = db.stream("S")
        stream.publish("S", b"1")
        consumer = stream.consumer("c", backoff=["1s", "1m"], max_deliver=5)
        assert consumer.next().nak()
        assert consumer.next(timeout=0).nak(delay="30s")
        assert consumer.fetch(timeout=0) == []
        clock.advance(31 * S)
        again = consumer.next(timeout=0)
        assert again.deliveries == 3
        clock.advance(59 * S)
        assert consumer.fetch(timeout=0) == []
        clock.advance(2 * S)
        assert consumer.next(timeout=0).deliveries == 4


def test_term_is_for_good_and_says_why(orders: penstock.Stream, caplog: pytest.LogCaptureFixture) -> None:
    consumer = orders.consumer("c")
    message = consumer.next()
    with caplog.at_level(logging.INFO, "penstock"):
        assert message.term("no such customer")
    assert "consumer c of stream ORDERS: message 1 is terminated: no such customer" in caplog.text
    assert not message.nak() and consumer.info().num_ack_pending == 0 and consumer.next().seq == 2


def test_what_is_told_twice_is_harmless(db: penstock.Database, orders: penstock.Stream) -> None:
    consumer = orders.consumer("c")
    message = consumer.next()
    assert message.ack() and not message.ack() and not message.ack(sync=True)
    assert not message.nak() and not message.term() and not message.in_progress()
    late = consumer.next()
    orders.delete_consumer("c")
    assert not late.ack() and not late.nak()
    with pytest.raises(errors.ConsumerDeleted, match="consumer c of stream ORDERS was deleted: open another"):
        late.ack(sync=True)
    for call in (consumer.fetch, consumer.info, consumer.resume, consumer.reset):
        with pytest.raises(errors.ConsumerDeleted):
            call()
    db.close()
    for call in (late.ack, late.nak, late.term, late.in_progress, consumer.fetch):
        with pytest.raises(errors.StoreClosed, match="ORDERS"):
            call()


def test_a_message_that_left_the_stream_does_not_come_again(orders: penstock.Stream) -> None:
    consumer = orders.consumer("c")
    one, two = consumer.fetch(2)
    orders.delete(one.seq)
    assert not one.ack() and one.nak() is False and two.nak()
    assert seqs(consumer.fetch(1)) == [2]
    orders.purge()
    assert consumer.info().num_ack_pending == 0 and consumer.fetch(timeout=0) == []


# Waiting.


def test_a_fetch_waits_for_a_publish(orders: penstock.Stream) -> None:
    consumer = orders.consumer("c", deliver_policy="new")
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.extend(seqs(consumer.fetch(10, timeout=30))))
    thread.start()
    wait_for_listener(orders)
    orders.publish("orders.x", b"")
    thread.join(30)
    assert got == [11] and orders.listeners == []


def test_a_fetch_waits_for_a_deadline(orders: penstock.Stream) -> None:
    consumer = orders.consumer("c", ack_wait="50ms", filter="orders.eu.1")
    began = time.monotonic()
    assert consumer.next().deliveries == 1
    assert consumer.next(timeout=30).deliveries == 2
    assert 0.04 < time.monotonic() - began < 10


@pytest.mark.parametrize("free", ["ack", "term", "nak", "many", "delete", "erase", "purge"])
def test_a_fetch_waits_for_room_among_those_that_wait_for_their_ack(orders: penstock.Stream, free: str) -> None:
    consumer = orders.consumer("c", max_ack_pending=2)
    held = consumer.fetch(10)
    assert seqs(held) == [1, 2]
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.extend(seqs(consumer.fetch(10, timeout=30))))
    thread.start()
    wait_for_listener(orders)
    if free == "many":
        consumer.ack(held)
    elif free == "purge":
        orders.purge("orders.eu.1")
    elif free in ("delete", "erase"):
        getattr(orders, free)(1)
    else:
        getattr(held[0], free)()
    thread.join(30)
    assert got == {"nak": [1], "many": [3, 4]}.get(free, [3])


def test_a_fetch_waits_for_resume_and_for_a_reset(orders: penstock.Stream) -> None:
    consumer = orders.consumer("c")
    info = consumer.pause("10m")
    assert info.is_paused and 590 * S < info.pause_remaining_ns <= 600 * S
    assert consumer.fetch(timeout=0) == []
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.extend(seqs(consumer.fetch(1, timeout=30))))
    thread.start()
    wait_for_listener(orders)
    assert not consumer.resume().is_paused
    thread.join(30)
    assert got == [1]
    consumer.ack(consumer.fetch(100))
    thread = threading.Thread(target=lambda: got.extend(seqs(consumer.fetch(2, timeout=30))))
    thread.start()
    wait_for_listener(orders)
    consumer.reset(5)
    thread.join(30)
    assert got == [1, 5, 6]


def test_a_pause_ends_by_itself(orders: penstock.Stream) -> None:
    consumer = orders.consumer("c")
    consumer.pause(0.05)
    assert seqs(consumer.fetch(1, timeout=30)) == [1]
    consumer.pause(datetime.now(UTC) + timedelta(milliseconds=50))
    assert seqs(consumer.fetch(1, timeout=30)) == [2]


@pytest.mark.parametrize("end", ["close", "delete", "stream", "handle"])
def test_a_fetch_that_waits_hears_of_the_end(db: penstock.Database, orders: penstock.Stream, end: str) -> None:
    consumer = orders.consumer("c", deliver_policy="new")
    received: list[BaseException] = []

    def fetch() -> None:
        try:
            consumer.fetch(1, timeout=None)
        except errors.PenstockError as error:
            received.append(error)

    thread = threading.Thread(target=fetch)
    thread.start()
    wait_for_listener(orders)
    if end == "close":
        db.close()
    elif end == "delete":
        orders.delete_consumer("c")
    elif end == "stream":
        db.delete_stream("ORDERS")
    else:
        consumer.close()
    thread.join(30)
    assert not thread.is_alive()
    assert isinstance(received[0], errors.ConsumerDeleted if end == "delete" else errors.StoreClosed)


def wait_for_listener(stream: penstock.Stream) -> None:
    """Wait until a listener for the stream's events is registered, a hundred seconds at most."""
    for _ in range(20_000):
        if stream.listeners:
            return
        threading.Event().wait(0.005)
    raise AssertionError("nobody waits")


# Many threads.


@pytest.mark.parametrize("retention", ["limits", "workqueue", "interest"])
def test_each_message_goes_to_one_of_many_threads(db: penstock.Database, retention: str) -> None:
    stream = db.stream("S", retention=retention)
    handles = [stream.consumer("c", max_ack_pending=50) for _ in range(6)]
    total, got, is_done = 3000, [], threading.Event()

    def work(handle: penstock.Consumer) -> None:
        for msg in handle.messages(prefetch=3):  # until the database is closed
            got.append(msg.seq)
            msg.ack()
            if len(got) >= total:
                is_done.set()

    threads = [threading.Thread(target=work, args=(handle,)) for handle in handles]
    for thread in threads:
        thread.start()
    for start in range(0, total, 100):
        stream.publish_many([("S", b"%d" % n) for n in range(start, start + 100)])
    assert is_done.wait(60)
    for handle, thread in zip(handles, threads, strict=True):
        handle.close()
        thread.join(30)
        assert not thread.is_alive()
    assert sorted(got) == list(range(1, total + 1)) and stream.consumer("c").info().ack_floor.stream_seq == total
    if retention != "limits":
        assert stream.state().messages == 0


def test_a_work_queue_forgets_what_is_done(db: penstock.Database) -> None:
    stream = db.stream("W", retention="workqueue")
    stream.publish_many([("W", b"1"), ("W", b"2")])
    consumer = stream.consumer("c")
    one, two = consumer.fetch(2)
    one.ack()
    assert stream.state().messages == 1
    with pytest.raises(errors.WorkQueueMultipleUnfiltered):
        stream.consumer("other")
    two.ack()
    assert stream.state().messages == 0


# Creating, changing and deleting consumers.


def test_options_that_differ_update_it_where_they_may(orders: penstock.Stream) -> None:
    consumer = orders.consumer("c", filter="orders.eu.>", ack_wait="5s")
    assert orders.consumer("c").config.ack_wait == 5 * S
    orders.consumer("c", ack_wait="7s", description="said")
    assert (consumer.config.ack_wait, consumer.config.description) == (7 * S, "said")
    assert consumer.config.filter_subject == "orders.eu.>"
    orders.consumer("c", filter=["orders.us.2", "orders.us.4"])
    assert consumer.config.filters == ("orders.us.2", "orders.us.4") and consumer.info().num_pending == 2
    orders.consumer("c", filter=None)
    assert consumer.config.filters == ()
    with pytest.raises(errors.ConsumerCreateFailed, match="deliver policy can not be updated"):
        orders.consumer("c", deliver_policy="new")
    with pytest.raises(errors.ConsumerCreateFailed, match="did you mean 'ack_wait'"):
        orders.consumer("c", ack_wiat="5s")  # type: ignore[call-arg]
    for bad in ("", "a.b", "a b", "x" * 300):
        with pytest.raises(errors.ApiError):
            orders.consumer(bad)
    assert orders.consumers() == ["c"]


def test_consumers_are_listed_and_deleted(orders: penstock.Stream, root: Path) -> None:
    for name in ("b", "a"):
        orders.consumer(name)
    assert orders.consumers() == ["a", "b"]
    orders.delete_consumer("a")
    with pytest.raises(errors.ConsumerNotFound, match="consumer 'a' not found in stream ORDERS; there are: b"):
        orders.delete_consumer("a")
    assert orders.consumers() == ["b"]


def test_one_without_a_name_goes_with_its_handle(db: penstock.Database, root: Path) -> None:
    stream = db.stream("S", retention="interest")
    with stream.consumer() as closed:
        assert len(stream.consumers()) == 1 and closed.name
        stream.publish("S", b"1")
        assert stream.state().messages == 1
    assert stream.consumers() == [] and stream.state().messages == 0  # no consumer wants it any more
    closed.close()
    with pytest.raises(errors.StoreClosed, match=r"this handle of consumer .* is closed"):
        closed.fetch()
    collected = stream.consumer()
    assert len(stream.consumers()) == 1
    del collected
    gc.collect()
    assert stream.consumers() == []
    left = stream.consumer(filter="S")
    kept = stream.consumer("kept")
    db.close()
    with penstock.open(root) as again:
        assert again.stream("S").consumers() == ["kept"]
    del left, kept


def test_a_handle_that_is_collected_under_the_lock_goes_later(orders: penstock.Stream) -> None:
    handle = orders.consumer()
    with orders.locked():
        del handle
        gc.collect()
        assert len(orders.consumers()) == 1
    orders.consumer("other")
    assert orders.consumers() == ["other"]


def test_one_that_nobody_uses_goes_after_its_threshold(root: Path, clock: FakeClock) -> None:
    with penstock.open(root, durability="os", clock=clock) as db:
        stream = db.stream("S")
        stream.consumer("short", inactive_threshold="10s").close()
        held = stream.consumer("held", inactive_threshold="10s")
        clock.advance(11 * S)
        stream.consumer("other")
        assert stream.consumers() == ["held", "other"]
        held.close()
        stream.consumer("other")
        assert stream.consumers() == ["other"]


def test_reset_begins_again(orders: penstock.Stream) -> None:
    consumer = orders.consumer("c", deliver_policy="by_start_sequence", opt_start_seq=3)
    consumer.ack(consumer.fetch(2))
    consumer.fetch(2)
    assert consumer.reset().num_ack_pending == 0
    again = consumer.next()
    assert (again.seq, again.consumer_seq, again.deliveries) == (5, 1, 1)
    consumer.reset(4)
    assert consumer.next().seq == 4
    with pytest.raises(errors.InvalidReset, match="below start seq"):
        consumer.reset(2)


def test_what_cannot_be_fetched_is_refused(orders: penstock.Stream) -> None:
    push = orders.consumer("push", deliver_subject="to.here")
    with pytest.raises(errors.FetchRefused, match="consumer push of stream ORDERS: it pushes to"):
        push.fetch()
    grouped = orders.consumer("grouped", priority_policy="overflow", priority_groups=["a"])
    with pytest.raises(errors.FetchRefused, match="priority groups"):
        grouped.fetch()
    small = orders.consumer("small", max_batch=3)
    assert len(small.fetch(3)) == 3
    with pytest.raises(errors.FetchRefused, match="max_batch is 3, not 4"):
        small.fetch(4)
    with pytest.raises(ValueError, match="at least 1"):
        small.fetch(0)


# Beside a writer, and after a fork.


def test_a_reader_beside_the_writer_sees_consumers_and_may_not_fetch(root: Path) -> None:
    with penstock.open(root, durability="os") as db:
        stream = db.stream("S")
        stream.publish_many([("S", b"1"), ("S", b"2"), ("S", b"3")])
        consumer = stream.consumer("c")
        with penstock.open(root, read_only=True) as beside:
            seen = beside.stream("S")
            assert seen.consumers() == ["c"]
            looked = seen.consumer("c")
            assert (looked.info().num_pending, looked.config.ack_policy) == (3, "explicit")
            consumer.fetch(2)[0].ack()
            info = looked.info()
            assert (info.num_pending, info.num_ack_pending, info.ack_floor.stream_seq) == (1, 1, 1)
            for call in (looked.fetch, looked.resume, looked.reset):
                with pytest.raises(errors.ReadOnlyStore, match="consumer c of stream S is only for looking at"):
                    call()
            with pytest.raises(errors.ReadOnlyStore):
                seen.consumer("new", ack_wait="3s")
            with pytest.raises(errors.ConsumerNotFound, match="there are: c"):
                seen.consumer("new")
            with pytest.raises(errors.ReadOnlyStore):
                seen.delete_consumer("c")
            stream.delete_consumer("c")
            assert seen.consumers() == []
            with pytest.raises(errors.ConsumerDeleted):
                looked.info()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork with threads, from Python 3.12 on
def test_a_forked_child_is_refused(orders: penstock.Stream) -> None:
    consumer = orders.consumer()
    message = consumer.next()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        told = []
        for call in (consumer.fetch, message.ack, lambda: orders.consumer("c")):
            try:
                call()
            except errors.ForkedHandle:
                told.append("refused")
        consumer.close()
        os.write(writing, " ".join(told).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "refused refused refused"
    assert message.ack() and len(orders.consumers()) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork with threads, from Python 3.12 on
def test_a_double_ack_survives_a_kill(root: Path) -> None:
    """What `ack(sync=True)` has confirmed is in the files, whatever happens to the process."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        database = penstock.open(root)
        stream = database.stream("S")
        stream.publish_many([("S", b"1"), ("S", b"2")])
        one, _ = stream.consumer("c").fetch(2)
        one.ack(sync=True)
        os.write(writing, b"done")
        os._exit(1)  # nothing is closed
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "done"
    os.waitpid(pid, 0)
    with penstock.open(root) as db:
        info = db.stream("S").consumer("c").info()
        assert info.ack_floor.stream_seq == 1 and info.num_ack_pending == 1


@pytest.mark.parametrize("kind", ["pwrite", "sync_file"])
def test_a_double_ack_is_refused_while_the_disk_fails(root: Path, kind: str) -> None:
    root.mkdir()
    disk = CrashDisk(root)
    with penstock.open(root, disk=disk) as db:
        stream = db.stream("S")
        stream.publish_many([("S", b"%d" % n) for n in range(10)])
        consumer = stream.consumer("c")
        messages = consumer.fetch(5)
        assert messages[0].ack(sync=True)
        disk.fail_at(1, errno.ENOSPC, kinds={kind}, persistent=True)
        for msg in messages[1:3]:
            with pytest.raises(errors.DiskFull):
                msg.ack(sync=True)
        assert messages[3].ack() and seqs(consumer.fetch(1)) == [6]  # calls that need not reach the disk still work
        with pytest.raises(errors.DiskFull):
            stream.consumer("other")
        disk.clear_faults()
        assert messages[4].ack(sync=True), "at once"
    with penstock.open(root) as db:
        info = db.stream("S").consumer("c").info()
        assert (info.ack_floor.stream_seq, info.num_ack_pending) == (5, 1)
        assert db.stream("S").consumers() == ["c", "other"]


# On an event loop.


def test_the_async_face_does_the_same(root: Path) -> None:
    async def work() -> None:
        async with penstock.aio.open(root, durability="os") as db:
            stream = await db.stream("S", subjects=["s.>"])
            await stream.publish_many([(f"s.{n}", b"%d" % n) for n in range(1, 6)])
            consumer = await stream.consumer("c", filter="s.>", max_ack_pending=3, ack_wait="30s")
            assert consumer.name == "c" and consumer.stream is stream and consumer.config.max_ack_pending == 3
            first, second, third = await consumer.fetch(10)
            assert [first.seq, second.seq, third.seq] == [1, 2, 3]
            assert await consumer.fetch(timeout=0) == []
            waiting = asyncio.create_task(consumer.fetch(10, timeout=30))
            await asyncio.sleep(0)
            assert await first.ack() and not await first.ack()
            assert seqs(await waiting) == [4]
            assert await second.nak(delay=0.05) and await third.in_progress()
            assert await third.ack(sync=True)
            again = await consumer.next(timeout=30)
            assert (again.seq, again.deliveries) == (5, 1)
            again = await consumer.next(timeout=30)
            assert (again.seq, again.deliveries) == (2, 2)
            assert await again.term()
            waiting = asyncio.create_task(consumer.next(timeout=None))
            await asyncio.sleep(0)
            await stream.publish("s.6", b"6")
            message = await waiting
            assert message.data == b"6" and await consumer.ack([message], sync=True) == 1
            assert (await consumer.pause("1m")).is_paused
            assert not (await consumer.resume()).is_paused
            await consumer.reset(1)
            assert [msg.seq async for msg in consumer.messages(timeout=0)] == [1, 2, 3]
            assert (await consumer.info()).num_ack_pending == 3
            async with await stream.consumer() as ephemeral:
                assert len(await stream.consumers()) == 2
                async for msg in ephemeral:
                    await msg.ack()
                    if msg.seq == 6:
                        break
            assert await stream.consumers() == ["c"]
            await stream.delete_consumer("c")
            with pytest.raises(errors.ConsumerDeleted):
                await consumer.fetch()

    run(work())


def test_tasks_share_a_consumer_with_threads(root: Path) -> None:
    async def work() -> None:
        async with penstock.aio.open(root, durability="os") as db:
            stream = await db.stream("S")
            consumer = await stream.consumer("c", max_ack_pending=20)
            got: list[int] = []

            async def fetch() -> None:
                async for msg in consumer.messages(timeout=0.3):
                    got.append(msg.seq)
                    await msg.ack()

            def fetch_in_thread() -> None:
                for msg in stream.sync_stream.consumer("c").messages(timeout=0.3):
                    got.append(msg.seq)
                    msg.ack()

            tasks = [asyncio.create_task(fetch()) for _ in range(3)]
            threads = [asyncio.create_task(asyncio.to_thread(fetch_in_thread)) for _ in range(2)]
            for start in range(0, 1000, 50):
                await stream.publish_many([("S", b"%d" % n) for n in range(start, start + 50)])
            await asyncio.gather(*tasks, *threads)
            assert sorted(got) == list(range(1, 1001))

    run(work())


def test_a_handle_that_is_closed_ends_an_async_loop(root: Path) -> None:
    async def work() -> None:
        async with penstock.aio.open(root, durability="os") as db:
            stream = await db.stream("S")
            await stream.publish("S", b"1")
            consumer = await stream.consumer("c")

            async def read() -> list[int]:
                return [msg.seq async for msg in consumer]

            reading = asyncio.create_task(read())
            while not stream._news:
                await asyncio.sleep(0)
            await consumer.close()
            assert await reading == [1]

    run(work())


def test_a_fetch_that_is_cancelled_keeps_nothing_back(root: Path) -> None:
    async def work() -> None:
        async with penstock.aio.open(root, durability="os") as db:
            stream = await db.stream("S")
            consumer = await stream.consumer("c", ack_wait="1h")
            waiting = asyncio.create_task(consumer.fetch(1, timeout=None))
            while not stream._news:
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert not stream._news
            await stream.publish("S", b"1")

            # Another thread holds the lock: the fetch continues in its thread when the task is cancelled.
            has_lock, may_go = threading.Event(), threading.Event()

            def hold() -> None:
                with stream.sync_stream.locked():
                    has_lock.set()
                    may_go.wait(30)

            holder = threading.Thread(target=hold)
            holder.start()
            has_lock.wait(30)
            fetching = asyncio.create_task(consumer.fetch(1, timeout=0))
            await asyncio.sleep(0.02)
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)
            may_go.set()
            await asyncio.to_thread(holder.join)
            message = await consumer.next(timeout=30)
            assert message is not None and message.seq == 1

    run(work())


def test_an_async_fetch_that_waits_hears_of_the_end(root: Path) -> None:
    async def work() -> None:
        async with penstock.aio.open(root, durability="os") as db:
            stream = await db.stream("S")
            consumer = await stream.consumer("c")
            waiting = asyncio.create_task(consumer.fetch(1, timeout=None))
            while not stream._news:
                await asyncio.sleep(0)
            await db.close()
            with pytest.raises(errors.StoreClosed):
                await waiting

    run(work())


@pytest.mark.parametrize(
    ("sync", "face"),
    [
        (penstock.Consumer, penstock.aio.Consumer),
        (penstock.ConsumerMessage, ConsumerMessage),
        (penstock.KeyValue, penstock.aio.KeyValue),
        (penstock.ObjectStore, penstock.aio.ObjectStore),
    ],
)
def test_every_name_of_the_sync_face_is_there(sync: type, face: type) -> None:
    assert {name for name in dir(sync) if not name.startswith("_")} <= set(dir(face))
