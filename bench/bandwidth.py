"""How much of the disk's own bandwidth does `disk` reach with larger payloads?

The other side is a bare loop: pwrite the same payload bytes, fdatasync, once per commit; into one file that grows, and
into files that roll at the size of our blocks. Our target applies with a few batches in flight, as a server or an event
loop publishes; a caller that waits for each of its batches is shown beside it: the disk is idle while it encodes.

Every slice starts from empty files. The host may back a virtual machine's memory only on first use, and page cache that
grows into such memory costs several times as much as the disk, at random for one side or the other.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import time

import penstock.aio
from bench.harness import SUBJECT_COUNT, Bench, Message, Messages, median, no_gc, subjects
from bench.raw import Raw

SLICES = 25
STEADY_MAX = 2.0
IN_FLIGHT = 8


def run(bench: Bench) -> str:
    for size, count in ((1024, 1000), (65536, 16)):
        asyncio.run(_run(bench, size, count))
    return "our bytes around the payload are not counted (1 KiB: some 3 %); disks whose cache has a battery"


async def _run(bench: Bench, size: int, count: int) -> None:
    folder = bench.place(f"bandwidth-{size}")
    commits = max(IN_FLIGHT, bench.size(64 << 20, 4 << 20) // (size * count))  # per slice
    messages = Messages(subjects(SUBJECT_COUNT), size)
    ready = [messages.batch(count) for _ in range(commits)]
    blobs = [b"".join(payload for _, payload in batch) for batch in ready]
    total = commits * count * size
    rates: dict[str, list[float]] = {"flight": [], "alone": [], "raw": [], "rolled": []}
    async with penstock.aio.open(folder / "penstock", durability="disk") as db:
        stream = await db.stream("S", subjects=["orders.>"])
        await stream.publish_many(ready[0])
        roll_size = stream.sync_stream.store.limits.block_size
        one, rolled = Raw(folder / "one", None), Raw(folder / "rolled", roll_size)
        chance = random.Random(7)
        with no_gc():
            for _ in range(bench.size(SLICES, 5)):
                for name in chance.sample(sorted(rates), len(rates)):  # at random: no fixed neighbour
                    start = time.perf_counter()
                    if name == "flight":
                        await asyncio.gather(*(_publish(stream, ready[n::IN_FLIGHT]) for n in range(IN_FLIGHT)))
                    elif name == "alone":
                        for batch in ready:
                            stream.sync_stream.publish_many(batch)
                    else:
                        (one if name == "raw" else rolled).write(blobs)
                    rates[name].append(total / (time.perf_counter() - start) / 1e6)
                    await stream.purge()
                    one.clear()
                    rolled.clear()
        one.close()
        rolled.close()
    shutil.rmtree(folder)
    own, alone, raw, files = (median(rates[name]) for name in ("flight", "alone", "raw", "rolled"))
    what = f"{size // 1024} KiB payloads, disk"
    spread = _spread(rates["raw"])
    # A bare loop that varies by more than the target's margin is no valid baseline.
    if spread <= STEADY_MAX:
        bench.add(f"{what}: of raw write+sync", own / raw, "x", at_least=0.85)
    else:
        bench.add(f"{what}: of raw write+sync", own / raw, "x", target=">= 0.85 x (UNSTEADY: no verdict)")
    bench.add(f"{what}: {count} per commit, {IN_FLIGHT} in flight", own, "MB/s")
    bench.add("  one caller that waits for each", alone, "MB/s", ratio=alone / raw, ratio_to="of raw")
    bench.add("  raw pwrite+fdatasync, one file", raw, "MB/s", ratio=own / raw, ratio_to="is Penstock's")
    rolled_as = f"  the same, a new file each {roll_size >> 20} MiB"
    bench.add(rolled_as, files, "MB/s", ratio=own / files, ratio_to="is Penstock's")
    bench.add("  the raw loop's fast slices to its slow ones (9th to 1st decile)", spread, "x")


async def _publish(stream: penstock.aio.Stream, batches: list[list[Message]]) -> None:
    for batch in batches:
        await stream.publish_many(batch)


def _spread(rates: list[float]) -> float:
    """The spread of a side's slices."""
    ordered = sorted(rates)
    return ordered[len(ordered) * 9 // 10] / ordered[len(ordered) // 10]
