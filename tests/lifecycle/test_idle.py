"""What a burst of load made a process hold goes back once it is over: windows of block files, images of blocks; and the
threads that it needs do not become more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.broker.consumers import dispatcher
from penstock.cli.serve_run import _start_threads
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.store.write.batch import Batch
from penstock.store.write.committer import Committer
from support.footprint import MB, anonymous_bytes
from support.served import served

WINDOW = 272 << 10  # of a block file that consumers read
BLOCK = 8 << 20
COMMIT_THREADS = 4
LIMITS = Limits(block_size=BLOCK)


def wait_until(is_so: Callable[[], bool]) -> None:
    stop = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < stop, "it did not come about"
        time.sleep(0.01)


def test_windows_that_consumers_read_no_more_go_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "COOL_S", 0.5)
    with served() as here:
        here.client.api("STREAM.CREATE.IDLE", {"name": "IDLE", "subjects": ["idle.>"]})
        for _ in range(24):
            here.client.send(here.client.pub("idle.a", b"." * 1000) * 1000)
            here.client.ping()
        wanted = {"stream_name": "IDLE", "config": {"name": "c", "ack_policy": "none"}}
        assert "error" not in here.client.api("CONSUMER.CREATE.IDLE.c", wanted)
        windows = here.server.jetstream.accounts["$G"].stream("IDLE").dispatcher.consumers.windows
        before, most = anonymous_bytes(), 0
        for _ in range(16):
            here.client.publish("$JS.API.CONSUMER.MSG.NEXT.IDLE.c", b'{"batch": 1000}', "_INBOX.me.pull")
            for _ in range(1000):
                here.client.message()
            most = max(most, windows.count)
        assert most, "it was read from the files"
        wait_until(lambda: windows.count == 0)
        wait_until(lambda: anonymous_bytes() - before < MB)


def test_an_image_that_nobody_needs_goes_back_to_the_system(tmp_path: Path) -> None:
    with penstock.open(tmp_path, durability="os") as db:
        stream = db.stream("S", subjects=["s.>"])
        stream.publish_many([("s.a", b"")])
        committer = stream.store.committer
        committer.spare_ns = 100_000_000
        before = anonymous_bytes()
        for _ in range(30):
            stream.publish_many([("s.a", bytes(10_000))] * 100)
        db.delete_stream("S")
        assert committer.counts[1], "one was kept"
        wait_until(lambda: committer.counts[1] == 0)
        wait_until(lambda: anonymous_bytes() - before < 3 * MB)  # a commit thread unmaps it


def test_commit_threads_are_one_or_all(tmp_path: Path) -> None:
    committer, seen = Committer(), set()
    stores = [FileStore(tmp_path / str(n), bytes(16), limits=LIMITS, committer=committer) for n in range(6)]
    try:
        for _ in range(20):
            for store in stores:
                store.append(Batch.of([("a", bytes(100_000))]))
                store.submit()
                seen.add(committer.counts[0])
            for store in stores:
                store.commit()
    finally:
        for store in stores:
            store.abandon()
        committer.stop()
    assert seen <= {0, 1, COMMIT_THREADS}, seen
    assert COMMIT_THREADS in seen


def test_the_servers_executor_has_all_its_threads_from_the_beginning_on() -> None:
    executor = _start_threads()
    try:
        count = len(executor._threads)
        assert count == executor._max_workers

        async def use() -> None:
            asyncio.get_running_loop().set_default_executor(executor)
            await asyncio.gather(*(asyncio.to_thread(time.sleep, 0.01) for _ in range(4 * count)))
            assert len(executor._threads) == count

        asyncio.run(use())
    finally:
        executor.shutdown()
