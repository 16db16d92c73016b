"""Measurements in a separate process: `python -m bench.child ACTION DIR` prints its result as JSON."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock
from bench import per_subject
from bench.harness import PENDING_FILTERS, SUBJECT_COUNT, Messages, io_count, subjects
from penstock.base.disk import Disk

FETCH_SIZE = 500


class WatchedDisk(Disk):
    """A disk that counts the bytes read from each file while a store opens."""

    def __init__(self) -> None:
        self.bytes_read: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def open(self, path: Any, mode: str = "r") -> int:
        fd = super().open(path, mode)
        self._names[fd] = os.path.basename(path)
        return fd

    def read(self, fd: int, size: int, offset: int = 0) -> bytes:
        found = super().read(fd, size, offset)
        self._note(self._names.get(fd, "?"), len(found))
        return found

    def read_into(self, fd: int, out: Any, offset: int = 0) -> int:
        got = super().read_into(fd, out, offset)
        self._note(self._names.get(fd, "?"), got)
        return got

    def read_file(self, path: Any) -> bytes:
        found = super().read_file(path)
        self._note(os.path.basename(path), len(found))
        return found

    def _note(self, name: str, size: int) -> None:
        self.bytes_read[name] = self.bytes_read.get(name, 0) + size


def rss() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure_open(path: str, is_watched: bool) -> dict[str, Any]:
    """Open the store and its stream: seconds, memory, bytes read."""
    disk = WatchedDisk() if is_watched else None
    before, read_before = rss(), io_count("rchar")
    start, cpu_start = time.perf_counter(), time.process_time()
    db = penstock.open(path, durability="os", disk=disk)
    stream = db.stream("S")
    took, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    read, after = io_count("rchar") - read_before, rss()
    state = stream.state()
    answer = {
        "seconds": took,
        "cpu_seconds": cpu,
        "rss_before": before,
        "rss_after": after,
        "read": read,
        "files": disk.bytes_read if disk else {},
        "messages": state.messages,
        "last_seq": state.last_seq,
    }
    db.close()
    return answer


def ask_pending(path: str) -> dict[str, Any]:
    """The first counts in a process: milliseconds for each filter, and the memory that they took."""
    with penstock.open(path, read_only=True) as db:
        stream = db.stream("S")
        middle, took = stream.state().last_seq // 2, {}
        ctypes.CDLL(None).malloc_trim(0)  # else they would reuse memory freed by opening, and seem to take none
        before = rss()
        for subject in PENDING_FILTERS:
            start = time.perf_counter()
            stream.pending(middle, subject)
            took[subject] = (time.perf_counter() - start) * 1e3
        return {"ms": took, "rss_growth": rss() - before}


def write_until_killed(path: str) -> None:
    """Publish batch after batch; after each, print the last acknowledged sequence."""
    messages = Messages(subjects(SUBJECT_COUNT))
    db = penstock.open(path, durability="os")
    stream = db.stream("S")
    batches = [messages.batch(1000) for _ in range(20)]
    while True:
        for batch in batches:
            last = stream.publish_many(batch)[-1]
            assert last is not None
            print(last.seq, flush=True)


def fetch_with_nats_py(port: str, count: int) -> dict[str, Any]:
    """Fetch and acknowledge `count` messages of stream S; the clock stops when the ack floor is at the last one."""
    import nats  # only here: other actions must not pay for the import
    from nats.js.api import ConsumerConfig

    async def fetch() -> float:
        client = await nats.connect(f"nats://127.0.0.1:{port}")
        stream = client.jetstream()
        config = ConsumerConfig(max_ack_pending=2 * FETCH_SIZE)
        subscription = await stream.pull_subscribe("bench.>", durable="py", stream="S", config=config)
        start, got = time.perf_counter(), 0
        while got < count:
            for message in await subscription.fetch(min(FETCH_SIZE, count - got), timeout=10):
                await message.ack()
                got += 1
        await client.flush()
        while (floor := (await subscription.consumer_info()).ack_floor) is None or floor.consumer_seq < count:
            await asyncio.sleep(0.001)  # no notification: poll
        took = time.perf_counter() - start
        await client.close()
        return took

    cpu_start = time.process_time()
    took = asyncio.run(fetch())
    cpu = time.process_time() - cpu_start
    return {"seconds": took, "rate": count / took, "busy": cpu / took, "cpu_us": cpu / count * 1e6}


def main() -> None:
    actions: dict[str, Callable[..., Any]] = {
        "open": lambda path: measure_open(path, False),
        "open-watched": lambda path: measure_open(path, True),
        "pending": ask_pending,
        "per_subject": lambda path, count, seconds: per_subject.measure(Path(path), int(count), float(seconds)),
        "write": write_until_killed,
        "nats-py": lambda port, count: fetch_with_nats_py(port, int(count)),
    }
    print(json.dumps(actions[sys.argv[1]](*sys.argv[2:])))


if __name__ == "__main__":
    main()
