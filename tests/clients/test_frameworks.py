"""Frameworks that stand on nats-py: FastStream and taskiq-nats do on our server what they do on the real one.

A smoke test of each; docs/parity.md has the counts of their own test-suites on both servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from faststream.nats import JStream, NatsBroker, NatsMessage, PullSub
from taskiq.api import run_receiver_task
from taskiq_nats import NATSObjectStoreResultBackend, PullBasedJetStreamBroker, PushBasedJetStreamBroker

from support.servers import BASE, JETSTREAM, Kind, ServerProcess

pytestmark = pytest.mark.nats_py
SECONDS = 60  # a machine with other work
kinds = pytest.mark.parametrize("kind", ["real", "ours"])


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[Kind, ServerProcess]]:
    with ServerProcess("real", BASE + JETSTREAM) as real, ServerProcess("ours", BASE + JETSTREAM) as ours:
        yield {"real": real, "ours": ours}


def run(server: ServerProcess, body: Callable[[str], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(body(f"nats://127.0.0.1:{server.port}"), SECONDS))


@kinds
def test_faststream_consumes_streams_buckets_and_objects(kind: Kind, servers: dict[Kind, ServerProcess]) -> None:
    received: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
    tries: list[int] = []

    async def body(url: str) -> None:
        broker = NatsBroker(url, logger=None)
        stream = JStream("FS", subjects=["fs.>"])

        @broker.subscriber("rpc")
        async def add(numbers: list[int]) -> int:
            return sum(numbers)

        @broker.subscriber("fs.push", "workers", stream=stream)
        @broker.publisher("fs.chained", stream="FS")
        async def chain(text: str) -> str:
            return text.upper()

        @broker.subscriber("fs.chained", stream=stream)
        async def chained(text: str) -> None:
            await received.put(("chained", text))

        @broker.subscriber(
            "fs.pull", stream=stream, durable="pull", pull_sub=PullSub(batch_size=5, batch=True, timeout=0.5)
        )
        async def pull(numbers: list[int]) -> None:
            for number in numbers:
                await received.put(("pull", number))

        @broker.subscriber("fs.again", stream=stream, durable="again", pull_sub=True)
        async def again(message: NatsMessage) -> None:
            tries.append(message.raw_message.metadata.num_delivered)
            if len(tries) < 3:
                await message.nack()
            else:
                await message.ack()
                await received.put(("again", list(tries)))

        @broker.subscriber("key", kv_watch="fs-bucket")
        async def watch(value: str) -> None:
            await received.put(("key", value))

        @broker.subscriber("fs-objects", obj_watch=True)
        async def objects(name: str) -> None:
            await received.put(("object", name))

        async with broker:
            await broker.start()
            answer = await broker.request([1, 2, 3], "rpc", timeout=5)
            assert await answer.decode() == 6
            await broker.publish("hello", "fs.push", stream="FS")
            assert await received.get() == ("chained", "HELLO")
            for number in range(12):
                await broker.publish(number, "fs.pull", stream="FS")
            assert [await received.get() for _ in range(12)] == [("pull", number) for number in range(12)]
            await broker.publish("x", "fs.again", stream="FS")
            assert await received.get() == ("again", [1, 2, 3])
            await (await broker.key_value("fs-bucket")).put("key", b"value")
            assert await received.get() == ("key", "value")
            store = await broker.object_storage("fs-objects")
            await store.put("file", b"x" * 300_000)
            assert await received.get() == ("object", "file")
            assert len((await store.get("file")).data) == 300_000
            for name in ("FS", "KV_fs-bucket", "OBJ_fs-objects"):
                await broker.config.connection_state.stream.delete_stream(name)

    run(servers[kind], body)


@kinds
@pytest.mark.parametrize("way", [PullBasedJetStreamBroker, PushBasedJetStreamBroker])
def test_taskiq_sends_tasks_and_brings_their_results_back(
    way: Any, kind: Kind, servers: dict[Kind, ServerProcess]
) -> None:
    async def body(url: str) -> None:
        options = {"servers": url, "subject": "tq.tasks", "stream_name": "TQ", "queue": "workers", "durable": "workers"}
        results: NATSObjectStoreResultBackend[Any] = NATSObjectStoreResultBackend(url, bucket_name="tq")
        broker = way(**options).with_result_backend(results)

        @broker.task
        async def power(base: int, exponent: int) -> int:
            return int(base**exponent)

        @broker.task
        async def fail() -> None:
            raise ValueError("on purpose")

        await broker.startup()
        worker = asyncio.create_task(run_receiver_task(broker))
        tasks = [await power.kiq(2, n) for n in range(20)]
        found = await asyncio.gather(*(task.wait_result(check_interval=0.01, timeout=10) for task in tasks))
        assert [result.return_value for result in found] == [2**n for n in range(20)]
        failed = await (await fail.kiq()).wait_result(check_interval=0.01, timeout=10)
        assert failed.is_err and isinstance(failed.error, ValueError)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        for name in ("TQ", "OBJ_tq"):
            await broker.js.delete_stream(name)
        await broker.shutdown()

    run(servers[kind], body)
