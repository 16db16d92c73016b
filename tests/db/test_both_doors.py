"""One database with two interfaces: the library and nats-py, through a server in the same process, share streams and
consumers.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import nats
import nats.js.api
import pytest

import penstock

pytestmark = pytest.mark.nats_py


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(bounded())


def test_a_consumer_of_the_library_is_a_client_s_too(root: Path) -> None:
    async def work() -> None:
        with penstock.open(root, durability="os") as db, penstock.Server(database=db) as server:
            stream = db.stream("S", subjects=["s.>"])
            stream.publish_many([(f"s.{n}", b"%d" % n) for n in range(1, 7)])
            ours = stream.consumer("c", ack_wait="30s", max_ack_pending=3)
            nc = await nats.connect(server.url)
            js = nc.jetstream()
            theirs = await js.pull_subscribe_bind(consumer="c", stream="S")
            (first,) = ours.fetch(1)
            second, third = await theirs.fetch(2, timeout=30)
            assert [first.data, second.data, third.data] == [b"1", b"2", b"3"]
            assert (second.metadata.sequence.consumer, second.metadata.num_pending) == (2, 4)

            # As many messages are pending as permitted. An ack through one interface lets the other one continue.
            waiting = asyncio.create_task(theirs.fetch(1, timeout=30))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            assert first.ack()
            (fourth,) = await waiting
            assert fourth.data == b"4"
            fetching = asyncio.create_task(asyncio.to_thread(ours.fetch, 1, 30))
            await second.ack_sync()
            (fifth,) = await fetching
            assert fifth.data == b"5"
            fetching = asyncio.create_task(asyncio.to_thread(ours.fetch, 1, 30))
            await third.nak()
            (again,) = await fetching
            assert (again.data, again.deliveries) == (b"3", 2)
            again.nak()
            (last,) = await theirs.fetch(1, timeout=30)
            assert last.data == b"3" and last.metadata.num_delivered == 3
            await last.ack_sync()
            info = await js.consumer_info("S", "c")
            assert info.num_ack_pending == ours.info().num_ack_pending == 2
            assert info.ack_floor.stream_seq == ours.info().ack_floor.stream_seq == 3
            await nc.close()

    run(work())


def test_a_consumer_of_a_client_is_the_library_s_too(root: Path) -> None:
    async def work() -> None:
        with penstock.open(root, durability="os") as db, penstock.Server(database=db) as server:
            nc = await nats.connect(server.url)
            js = nc.jetstream()
            await js.add_stream(name="S", subjects=["s.>"])
            await js.add_consumer("S", durable_name="c", ack_policy="explicit", filter_subject="s.a", max_deliver=7)
            await js.publish("s.a", b"1")
            await js.publish("s.b", b"2")
            ours = db.stream("S").consumer("c")
            assert ours.config.max_deliver == 7 and ours.config.filter_subject == "s.a"
            message = ours.next()
            assert message.data == b"1" and message.ack(sync=True)
            fetching = asyncio.create_task(asyncio.to_thread(ours.fetch, 1, 30))
            await js.publish("s.a", b"3")
            assert [msg.data for msg in await fetching] == [b"3"]
            db.stream("S").consumer("c", max_deliver=9)
            assert (await js.consumer_info("S", "c")).config.max_deliver == 9
            await js.delete_consumer("S", "c")
            assert db.stream("S").consumers() == []
            with pytest.raises(penstock.ApiError, match="was deleted"):
                ours.fetch()
            await nc.close()

    run(work())


def test_a_request_that_waits_hears_of_what_the_library_does(root: Path) -> None:
    """Publishing, resuming, resetting and deleting, in another thread than the server's."""

    async def work() -> None:
        with penstock.open(root, durability="os") as db, penstock.Server(database=db) as server:
            stream = db.stream("S")
            ours = stream.consumer("c")
            nc = await nats.connect(server.url)
            js = nc.jetstream()
            theirs = await js.pull_subscribe_bind(consumer="c", stream="S")

            async def wait_for_request() -> None:
                while (await js.consumer_info("S", "c")).num_waiting == 0:
                    await asyncio.sleep(0.01)

            waiting = asyncio.create_task(theirs.fetch(1, timeout=30))
            await wait_for_request()
            stream.publish("S", b"1")
            (message,) = await waiting
            await message.ack_sync()
            ours.pause("10m")
            stream.publish("S", b"2")
            waiting = asyncio.create_task(theirs.fetch(1, timeout=30))
            await wait_for_request()
            ours.resume()
            (message,) = await waiting
            await message.ack_sync()
            waiting = asyncio.create_task(theirs.fetch(1, timeout=30))
            await wait_for_request()
            ours.reset(1)
            assert (await waiting)[0].data == b"1"
            await nc.close()

    run(work())


def test_on_the_server_s_own_loop_the_library_wakes_requests_too(root: Path) -> None:
    async def work() -> None:
        with penstock.open(root, durability="os") as db:
            async with penstock.Server(database=db) as server:
                stream = db.stream("S")
                ours = stream.consumer("c", max_ack_pending=1)
                nc = await nats.connect(server.url)
                js = nc.jetstream()
                theirs = await js.pull_subscribe_bind(consumer="c", stream="S")
                waiting = asyncio.create_task(theirs.fetch(1, timeout=10))
                while (await js.consumer_info("S", "c")).num_waiting == 0:
                    await asyncio.sleep(0.01)
                stream.publish_many([("S", b"1"), ("S", b"2"), ("S", b"3")])
                (first,) = await waiting
                assert first.data == b"1"
                await first.ack_sync()
                (second,) = ours.fetch(1, timeout=0)
                waiting = asyncio.create_task(theirs.fetch(1, timeout=10))
                while (await js.consumer_info("S", "c")).num_waiting == 0:
                    await asyncio.sleep(0.01)
                second.ack()
                assert (await waiting)[0].data == b"3"
                await nc.close()

    run(work())


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
def test_threads_and_clients_share_the_work(root: Path, retention: str) -> None:
    total, got, is_done = 2000, [], threading.Event()

    async def work() -> None:
        with penstock.open(root, durability="os") as db, penstock.Server(database=db) as server:
            stream = db.stream("S", retention=retention)
            handles = [stream.consumer("c", max_ack_pending=100) for _ in range(2)]

            def take(data: bytes) -> None:
                got.append(int(data))
                if len(got) >= total:
                    is_done.set()

            def read(handle: penstock.Consumer) -> None:
                for msg in handle.messages(prefetch=5):
                    take(msg.data)
                    msg.ack()

            threads = [threading.Thread(target=read, args=(handle,)) for handle in handles]
            for thread in threads:
                thread.start()
            connections = [await nats.connect(server.url) for _ in range(2)]

            async def pull(nc: nats.NATS) -> None:
                subscription = await nc.jetstream().pull_subscribe_bind(consumer="c", stream="S")
                while not is_done.is_set():
                    try:
                        for msg in await subscription.fetch(5, timeout=0.2):
                            take(msg.data)
                            await msg.ack()
                    except TimeoutError:  # nats-py has several
                        continue

            pulls = [asyncio.create_task(pull(nc)) for nc in connections]
            for start in range(0, total, 50):
                if start % 100:
                    await asyncio.to_thread(stream.publish_many, [("S", b"%d" % n) for n in range(start, start + 50)])
                else:
                    for n in range(start, start + 50):
                        await connections[0].jetstream().publish("S", b"%d" % n)
            assert await asyncio.to_thread(is_done.wait, 50)
            await asyncio.gather(*pulls)
            for handle, thread in zip(handles, threads, strict=True):
                handle.close()
                await asyncio.to_thread(thread.join, 30)
            for nc in connections:
                await nc.flush()
                await nc.close()
            assert sorted(got) == list(range(total))
            info = stream.consumer("c").info()
            assert (info.ack_floor.stream_seq, info.num_redelivered) == (total, 0)
            assert stream.state().messages == (total if retention == "limits" else 0)

    run(work())


def test_an_ephemeral_consumer_of_the_library_is_left_alone_by_the_server(root: Path) -> None:
    async def work() -> None:
        with penstock.open(root, durability="os") as db, penstock.Server(database=db) as server:
            stream = db.stream("S")
            held = stream.consumer(inactive_threshold="100ms")
            nc = await nats.connect(server.url)
            js = nc.jetstream()
            await js.add_consumer("S", name="theirs", inactive_threshold=0.1)
            while "theirs" in stream.consumers():  # the same inactivity threshold, but no handle holds it
                await asyncio.sleep(0.02)
            assert stream.consumers() == [held.name]
            held.close()
            assert stream.consumers() == []
            await nc.close()

    run(work())


def test_a_client_watches_what_the_library_puts_and_the_other_way_round(root: Path) -> None:
    async def work() -> None:
        with penstock.open(root, durability="os") as db, penstock.Server(database=db) as server:
            nc = await nats.connect(server.url)
            js = nc.jetstream()
            ours = db.key_value("settings", history=3)
            ours.put("a", b"1")
            ours.put("b", b"1")
            ours.delete("b")
            theirs = await js.key_value("settings")
            watcher = await theirs.watchall()
            seen = [await watcher.updates(timeout=30) for _ in range(3)]
            assert [entry and (entry.key, entry.operation) for entry in seen] == [("a", None), ("b", "DEL"), None]
            ours.put("c.d", b"2")
            entry = await watcher.updates(timeout=30)
            assert (entry.key, entry.value, entry.revision) == ("c.d", b"2", 4)
            with ours.watch("c.>", timeout=30) as own:
                assert [next(own).key, next(own)] == ["c.d", None]
                await theirs.put("c.d", b"3")
                assert (await asyncio.to_thread(next, own)).value == b"3"
                await theirs.purge("c.d")
                assert (await asyncio.to_thread(next, own)).operation == "PURGE"
            assert sorted(await theirs.keys()) == ours.keys() == ["a"]
            assert [(e.value, e.operation) for e in await theirs.history("b")] == [(b"1", None), (b"", "DEL")]
            await watcher.stop()
            await nc.close()

    run(work())


def test_a_client_reads_an_object_of_the_library_whole(root: Path) -> None:
    async def work() -> None:
        data = bytes(range(256)) * 2000
        with penstock.open(root, durability="os") as db, penstock.Server(database=db) as server:
            nc = await nats.connect(server.url)
            js = nc.jetstream()
            files = db.object_store("files")
            files.put("x", data)
            files.add_link("link", "x")
            theirs = await js.object_store("files")
            assert (await theirs.get("x")).data == data and (await theirs.get("link")).data == data
            assert sorted(info.name for info in await theirs.list()) == ["link", "x"]
            watcher = await theirs.watch()
            assert {(await watcher.updates(timeout=30)).name for _ in range(2)} == {"x", "link"}
            assert await watcher.updates(timeout=30) is None
            files.delete("x")
            assert (await watcher.updates(timeout=30)).deleted
            with files.watch(updates_only=True, timeout=30) as own:
                await theirs.put("y", b"theirs")
                assert (await asyncio.to_thread(next, own)).name == "y"
            assert files.get("y").data == b"theirs"
            await watcher.stop()
            await nc.close()

    run(work())


def test_what_clients_left_the_library_goes_on_with_and_the_other_way_round(root: Path) -> None:
    """The server stops, the library opens its store, and then a server opens it again."""

    async def left_by_clients() -> None:
        with penstock.Server(store_dir=root) as server:
            nc = await nats.connect(server.url)
            js = nc.jetstream()
            await js.add_stream(name="S", subjects=["s.>"])
            for n in range(1, 6):
                await js.publish(f"s.{n}", b"%d" % n)
            config = nats.js.api.ConsumerConfig(ack_wait=1)
            subscription = await js.pull_subscribe("s.>", "worker", stream="S", config=config)
            first, second, _ = await subscription.fetch(3, timeout=30)
            await first.ack_sync()
            await second.ack_sync()
            kv = await js.create_key_value(bucket="settings", history=3)
            await kv.put("a", b"1")
            await kv.put("a", b"2")
            await kv.put("b", b"1")
            await kv.delete("b")
            files = await js.create_object_store("files")
            await files.put("x", b"theirs" * 50_000)
            await nc.close()

    async def left_by_the_library() -> None:
        with penstock.Server(store_dir=root) as server:
            nc = await nats.connect(server.url)
            js = nc.jetstream()
            info = await js.consumer_info("S", "worker")
            assert (info.ack_floor.stream_seq, info.num_ack_pending, info.num_pending) == (4, 1, 0)
            subscription = await js.pull_subscribe_bind(consumer="worker", stream="S")
            (message,) = await subscription.fetch(1, timeout=30)
            assert message.data == b"5" and message.metadata.num_delivered == 2
            kv = await js.key_value("settings")
            assert (await kv.get("b")).value == b"ours" and await kv.keys() == ["b"]
            files = await js.object_store("files")
            assert (await files.get("y")).data == b"ours" * 50_000
            assert [info.name for info in await files.list(ignore_deletes=True)] == ["y"]
            await nc.close()

    run(left_by_clients())
    with penstock.open(root) as db:
        worker = db.stream("S").consumer("worker")
        assert (worker.info().ack_floor.stream_seq, worker.info().num_ack_pending) == (2, 1)
        messages = sorted((worker.next(timeout=30) for _ in range(3)), key=lambda msg: msg.seq)
        assert [(msg.seq, msg.deliveries) for msg in messages] == [(3, 2), (4, 1), (5, 1)]
        assert worker.ack(messages[:2], sync=True) == 2 and messages[2].nak()
        kv = db.key_value("settings")
        assert kv.get("a").value == b"2" and kv.keys() == ["a"] and kv.status().history == 3
        assert [entry.operation for entry in kv.history("b")] == ["PUT", "DEL"]
        kv.create("b", b"ours")
        kv.purge("a")
        files = db.object_store("files")
        assert files.get("x").data == b"theirs" * 50_000
        files.put("y", b"ours" * 50_000)
        files.delete("x")
    run(left_by_the_library())
