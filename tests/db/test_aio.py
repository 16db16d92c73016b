"""The async interface: the same names, shared syncs, and a loop that keeps running while the disk works."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

import penstock
import penstock.aio
from penstock.errors import DiskFull, StoreClosed, StreamNotFound, SubjectNotInStream
from penstock.testing import CrashDisk, FakeClock


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(bounded())


async def listed(found: AsyncIterator[penstock.Message]) -> list[penstock.Message]:
    return [msg async for msg in found]


@pytest.fixture
def disk(root: Path) -> CrashDisk:
    root.mkdir()
    return CrashDisk(root)


INNER = {"after_fork", "check_open", "commit_pump", "locked", "tell_listeners"}  # for other parts of penstock


def test_every_name_of_the_sync_face_is_there() -> None:
    for sync, face in ((penstock.Stream, penstock.aio.Stream), (penstock.Database, penstock.aio.Database)):
        names = {name for name in vars(sync) if not name.startswith("_")}
        missing = names - {name for name in dir(face) if not name.startswith("_")}
        assert missing <= {"store", "view", "scan", "dataset", "scan_polars", "to_duckdb"} | INNER, missing


def test_the_sample_works_on_a_loop(root: Path) -> None:
    async def work() -> None:
        async with penstock.aio.open(root) as db:
            orders = await db.stream("ORDERS", subjects=["orders.>"], max_age="7d")
            ack = await orders.publish("orders.eu.42", b"...", headers={"Nats-Msg-Id": "42"})
            assert ack == penstock.Ack("ORDERS", 1)
            assert (await orders.publish("orders.eu.42", b"...", {"Nats-Msg-Id": "42"})).duplicate
            acks = await orders.publish_many([(f"orders.us.{n}", b"%d" % n) for n in range(20)])
            assert acks[-1].seq == 21
            assert [msg.seq for msg in await listed(orders.read("orders.eu.*", start_seq=1))] == [1]
            assert [msg.seq for msg in await listed(orders.follow(start_seq=20, timeout=0.01))] == [20, 21]
            assert (await orders.last("orders.eu.42")).seq == 1 and (await orders.get(17)).data == b"15"
            assert (await orders.state()).messages == 21
            assert await orders.subjects("orders.eu.*") == {"orders.eu.42": 1}
            assert (await orders.subjects_state("orders.eu.42"))["orders.eu.42"].last_seq == 1
            assert await orders.pending(20) == 2 and await orders.seq_at("2020-01-01") == 1
            assert await orders.delete(17) and await orders.delete_many([18, 19]) == 2 and await orders.erase(20)
            assert await orders.purge("orders.us.>", keep=2) == 14
            table = await orders.to_arrow("orders.eu.>", since="2020-01-01")
            assert table["seq"].to_pylist() == [1]
            await orders.update(max_msgs=1)
            assert orders.config.max_msgs == 1 and (await orders.state()).messages == 1
            await orders.sync()
            assert await db.streams() == ["ORDERS"] and (await db.get_stream("ORDERS")) is orders
            with pytest.raises(StreamNotFound):
                await db.get_stream("X")
            other = await db.stream("OTHER")
            await db.delete_stream("OTHER")
            with pytest.raises(StoreClosed):
                await other.publish("OTHER", b"")
        with pytest.raises(StoreClosed):
            await orders.publish("orders.x", b"")

    run(work())
    with penstock.open(root) as db:
        assert db.stream("ORDERS").state().last_seq == 21


@pytest.mark.parametrize("kind", ["disk", "os", "lazy", "memory"])
def test_publishes_that_wait_at_once_keep_their_order(root: Path, kind: str) -> None:
    async def work() -> None:
        async with penstock.aio.open(root, durability="os" if kind == "memory" else kind) as db:
            stream = await db.stream("S", storage="memory" if kind == "memory" else "file")
            acks = await asyncio.gather(*(stream.publish("S", b"%d" % n) for n in range(500)))
            assert [ack.seq for ack in acks] == list(range(1, 501))
            assert [msg.data for msg in await listed(stream.read())] == [b"%d" % n for n in range(500)]

    run(work())


def test_two_thousand_publishes_share_a_few_syncs(root: Path, disk: CrashDisk) -> None:
    async def work() -> None:
        async with penstock.aio.open(root, disk=disk) as db:
            stream = await db.stream("S")
            await stream.publish("S", b"the block is there")
            before = disk.calls["sync_file"]
            acks = await asyncio.gather(*(stream.publish("S", b"%d" % n) for n in range(2000)))
            assert sorted(ack.seq for ack in acks) == list(range(2, 2002))
            assert disk.calls["sync_file"] - before <= 5

    run(work())


def test_refusals_are_raised_as_in_the_sync_face(root: Path) -> None:
    async def work() -> None:
        async with penstock.aio.open(root) as db:
            stream = await db.stream("S")
            with pytest.raises(SubjectNotInStream):
                await stream.publish("x", b"")
            with pytest.raises(penstock.PublishRefused) as caught:
                await stream.publish_many([("S", b""), ("x", b""), ("S", b"")])
            assert [ack and ack.seq for ack in caught.value.acks] == [1, None, 2]
            with pytest.raises(TypeError):
                await stream.publish("S", "text")
            with pytest.raises(penstock.EndOfStream):
                await stream.get(3)

    run(work())


@pytest.mark.parametrize("kinds", [{"sync_file"}, {"pwrite"}])
def test_a_failing_disk_refuses_publishes_until_it_works_again(
    root: Path, disk: CrashDisk, kinds: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with penstock.aio.open(root, disk=disk) as db:
            stream = await db.stream("S")
            await stream.publish("S", b"first")
            disk.fail_at(1, errno.ENOSPC, kinds=kinds, persistent=True)
            for _ in range(3):
                answers = await asyncio.gather(
                    *(stream.publish("S", b"lost") for _ in range(20)), return_exceptions=True
                )
                assert all(isinstance(answer, DiskFull) for answer in answers), answers
            assert [msg.data for msg in await listed(stream.read())] == [b"first"], "reads go on"
            disk.clear_faults()
            acks = await asyncio.gather(*(stream.publish("S", b"kept") for _ in range(20)))
            assert len({ack.seq for ack in acks}) == 20
            found = [msg.data for msg in await listed(stream.read())]
            assert found == [b"first"] + [b"kept"] * 20

    run(work())
    assert len(caplog.records) < 20, "a disk that stays full is not told of in a loop"
    with penstock.open(root) as db:
        assert [msg.data for msg in db.stream("S").read()] == [b"first"] + [b"kept"] * 20


def test_one_failed_sync_costs_only_what_was_in_it(root: Path, disk: CrashDisk) -> None:
    async def work() -> None:
        async with penstock.aio.open(root, disk=disk) as db:
            stream = await db.stream("S")
            await stream.publish("S", b"first")
            kept: dict[int, bytes] = {1: b"first"}
            for turn in range(10):
                if turn % 3 == 1:
                    disk.fail_at(1, errno.EIO, kinds={"sync_file"})
                payloads = [b"%d %d" % (turn, n) for n in range(20)]
                answers = await asyncio.gather(*(stream.publish("S", one) for one in payloads), return_exceptions=True)
                for answer, data in zip(answers, payloads, strict=True):
                    if isinstance(answer, penstock.Ack):
                        assert answer.seq not in kept
                        kept[answer.seq] = data
                    else:
                        assert isinstance(answer, penstock.StoreError)
            assert {msg.seq: msg.data for msg in await listed(stream.read())} == kept
            assert 1 + 6 * 20 <= len(kept) < 201

    run(work())


def test_a_follower_sees_what_comes_from_the_loop_and_from_threads(root: Path) -> None:
    async def work() -> None:
        async with penstock.aio.open(root) as db:
            stream = await db.stream("S", subjects=["s.*"])
            await stream.publish("s.before", b"")
            follower = stream.follow("s.a")  # from the creation of the follower on, not from its first request
            first = (await stream.publish("s.a", b"")).seq
            found: list[int] = []

            async def follow() -> None:
                async for msg in follower:
                    found.append(msg.seq)
                    if len(found) == 41:
                        return

            task = asyncio.create_task(follow())
            expected = [first]
            for _ in range(20):
                expected.append((await stream.publish("s.a", b"")).seq)
                await stream.publish("s.b", b"")
                ack = await asyncio.to_thread(stream.sync_stream.publish, "s.a", b"")
                expected.append(ack.seq)
            await task
            assert found == expected

    run(work())


def test_a_follower_of_a_reader_sees_what_a_writer_publishes(root: Path) -> None:
    async def work() -> None:
        async with penstock.aio.open(root) as writer:
            stream = await writer.stream("S")
            async with penstock.aio.open(root, read_only=True) as db:
                follower = (await db.stream("S")).follow(start_seq=1)
                for n in range(1, 30):
                    await stream.publish("S", b"%d" % n)
                    assert (await anext(follower)).seq == n

    run(work())


def test_a_close_answers_those_who_wait(root: Path, disk: CrashDisk) -> None:
    """Publishes and followers that were waiting during a close once waited forever."""

    async def work() -> None:
        async with penstock.aio.open(root, disk=disk) as db:
            stream = await db.stream("S")
            await stream.publish("S", b"first")
            disk.sync_delay_us = 20_000
            follower = asyncio.create_task(listed(stream.follow()))
            tasks = [asyncio.create_task(stream.publish("S", b"%d" % n)) for n in range(20)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await db.close()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            kept = [answer.seq for answer in answers if isinstance(answer, penstock.Ack)]
            assert all(isinstance(answer, penstock.Ack | StoreClosed) for answer in answers), answers
            assert len(await follower) <= len(kept), "it ends"
        disk.sync_delay_us = 0
        with penstock.open(root) as again:
            found = {msg.seq for msg in again.stream("S").read()}
            assert found >= set(kept)

    run(work())


def test_a_cancelled_publish_leaves_the_stream_usable(root: Path, disk: CrashDisk) -> None:
    async def work() -> None:
        async with penstock.aio.open(root, disk=disk) as db:
            stream = await db.stream("S")
            await stream.publish("S", b"first")
            disk.sync_delay_us = 20_000
            tasks = [asyncio.create_task(stream.publish("S", b"%d" % n)) for n in range(10)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[::2])
            assert all(isinstance(answer, penstock.Ack) for answer in answers[1::2])
            disk.sync_delay_us = 0
            last = await stream.publish("S", b"last")
            found = {msg.seq: msg.data for msg in await listed(stream.read())}
            assert found[last.seq] == b"last"
            assert all(found[answer.seq] == b"%d" % n for n, answer in enumerate(answers) if n % 2)
            follower = asyncio.create_task(listed(stream.follow()))
            await asyncio.sleep(0)
            follower.cancel()
            with pytest.raises(asyncio.CancelledError):
                await follower
            assert not stream._news and not stream._commits.has_waiters

    run(work())


def test_a_slow_sync_does_not_stop_the_loop(root: Path, disk: CrashDisk) -> None:
    """Neither while publishing, nor while a thread that deletes holds the stream's lock for the length of a sync."""

    async def work() -> None:
        async with penstock.aio.open(root, disk=disk) as db:
            stream = await db.stream("S")
            await stream.publish_many([("S", b"")] * 10)
            disk.sync_delay_us = 50_000
            longest, done = 0.0, False
            loop = asyncio.get_running_loop()

            async def tick() -> None:
                nonlocal longest
                last = loop.time()
                while not done:
                    await asyncio.sleep(0.001)
                    longest, last = max(longest, loop.time() - last), loop.time()

            ticker = asyncio.create_task(tick())
            for seq in range(1, 6):
                await asyncio.gather(
                    *(stream.publish("S", b"x") for _ in range(10)), stream.delete(seq), stream.state(), stream.get(9)
                )
            done = True
            await ticker
            assert (await stream.state()).messages == 55
            assert longest < 0.04, f"the loop stood still for {longest * 1000:.0f} ms"

    run(work())


def test_dedupe_and_ttl_work_on_a_loop(root: Path, clock: FakeClock) -> None:
    async def work() -> None:
        async with penstock.aio.open(root, clock=clock) as db:
            stream = await db.stream("S", allow_msg_ttl=True)
            acks = await asyncio.gather(*(stream.publish("S", b"", {"Nats-Msg-Id": str(n % 5)}) for n in range(50)))
            assert sum(not ack.duplicate for ack in acks) == 5 and {ack.seq for ack in acks} == set(range(1, 6))
            await stream.publish("S", b"short", {"Nats-TTL": "5s"})
            clock.advance(5 * 10**9)
            assert (await stream.state()).messages == 5

    run(work())


def test_it_is_used_with_async_with(root: Path) -> None:
    async def work() -> None:
        db = penstock.aio.open(root)
        with pytest.raises(RuntimeError, match="async with"):
            await db.stream("S")
        await db.close()
        assert not root.exists()

    run(work())


def test_a_large_batch_is_handed_to_the_disk_while_the_next_is_appended(root: Path) -> None:
    """Small batches of one turn of the loop share a sync; a large one does not wait for the others of its turn."""

    async def work() -> None:
        async with penstock.aio.open(root) as db:
            stream = await db.stream("S", subjects=["a"])
            submits: list[int] = []
            store = stream.sync_stream.store
            submit = store.submit
            store.submit = lambda *_: submits.append(1) or submit()  # type: ignore[func-returns-value,method-assign]
            await asyncio.gather(*(stream.publish("a", b"x") for _ in range(10)))
            assert len(submits) == 1
            await asyncio.gather(*(stream.publish("a", bytes(1 << 18)) for _ in range(10)))
            assert len(submits) == 11
            assert (await stream.state()).messages == 20

    run(work())
