"""Does a server keep its size, and everything it acknowledged, under a long load in which everything comes and goes?

    python -m bench.soak --minutes 30 --seed 7 --out DIR [--plot FILE] [--peer]

The server is a process of its own with an empty store; this process is its clients. First the load that stays
(`soak_base`) is established, then what comes and goes (`soak_churn`) joins it for the given minutes while samples are
taken (`soak_samples`); then everything that came is deleted, and the server should be what it was. It exits with 1 when
memory, descriptors or threads grew by more than a fifth, an acknowledged message is missing, or there was an error that
nobody expected. DIR gets `soak.json`, with every sample, and the server's log.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import penstock
from bench import soak_base, soak_churn, soak_plot
from bench.harness import ROOT, machine
from bench.server import Running, Side
from bench.soak_base import Base
from bench.soak_load import Load, jetstream
from bench.soak_samples import HEADING, Probe, Row, Sample, Taken

SAMPLE_EVERY_S = 5.0
SAMPLES_MIN = 12  # of a short run
BASE_MSGS = 20_000
BASE_S = 60.0  # the base load alone, before and after; the last three quarters of it are sampled
SETTLE_S_MAX = 60.0
ERRORS_SHOWN = 20
CLOSED_MAX = (
    200  # connections that ended, of which monitoring tells: 10,000 by default, which a short run does not fill
)
SERVER = Side(
    "Penstock",
    "penstock",
    "",
    "synced to disk",
    more=f"max_pending: {soak_base.MAX_PENDING}\nwrite_deadline: {soak_base.WRITE_DEADLINE_S}s\n"
    f"max_closed_clients: {CLOSED_MAX}",
)
PEER = Side(  # what it keeps is looked for by its own readers only: we do not read its files
    "nats-server 2.15.1", "nats-server", "", "written to the page cache", more=SERVER.more
)
LOG_MARKS = ("[ERR]", "[FTL]", "Traceback", "Error:")
LOG_EXPECTED = ("Unknown Protocol Operation: b'NONSENSE", """proto='"NONSENSE""")


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked for."""

    minutes: float
    seed: int
    out: Path
    plot: Path | None = None
    is_peer: bool = False

    @property
    def sample_every_s(self) -> float:
        return min(SAMPLE_EVERY_S, self.minutes * 60 / SAMPLES_MIN)

    @property
    def base_s(self) -> float:
        return min(BASE_S, self.minutes * 10)

    @property
    def base_msgs(self) -> int:
        return BASE_MSGS if self.minutes >= 1 else BASE_MSGS // 10


@dataclass(slots=True)
class Found:
    """What a run has found."""

    taken: Taken
    rows: list[Row]
    lost: dict[str, list[int]]
    actions: Counter[str]
    errors: Counter[str]
    client_cpu_share: float
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def faults(self) -> list[str]:
        grown = [
            f"{row.measure.name.strip()} grew: {row.ratio:.2f} under load, {row.ratio_after:.2f} from beginning to end"
            for row in self.rows
            if row.has_grown
        ]
        lost = [f"{len(seqs)} acknowledged messages are missing {where}" for where, seqs in self.lost.items() if seqs]
        return grown + lost + ([f"{self.errors.total()} unexpected errors"] if self.errors else [])


# The run.


async def soak(plan: Plan, server: Running, store: Path) -> tuple[Load, Base, Taken, float]:
    """The whole load; what is left of it is only on the disk."""
    load = Load(server.port, plan.seed)
    base = Base(load, plan.base_msgs)
    probe, start = Probe(server.pid, server.monitor_port, store), time.monotonic()
    async with base.running() as client:
        alone = await asyncio.to_thread(probe.take, 0.0)
        await soak_churn.burst(load)  # all threads are there, all modules loaded
        await _settled(probe, alone, load)
        before = await _base_alone(probe, start, plan)
        _say(f"the base load is established: {_short(before[-1])}")
        cpu = time.process_time()
        async with _sampling(probe, start, plan) as under_load:
            await _churn(load, plan)
        cpu_share = (time.process_time() - cpu) / (plan.minutes * 60)
        for info in await jetstream(client).streams_info():
            if info.config.name not in (soak_base.STREAM, soak_base.QUEUE):
                load.errors[f"left over: stream {info.config.name}"] += 1
        await _settled(probe, alone, load)
        after = await _base_alone(probe, start, plan)
    return load, base, Taken(before, under_load, after), cpu_share


async def _churn(load: Load, plan: Plan) -> None:
    timer = asyncio.get_running_loop().call_later(plan.minutes * 60, load.is_over.set)
    try:
        await soak_churn.run(load)
    finally:
        timer.cancel()


@asynccontextmanager
async def _sampling(probe: Probe, start: float, plan: Plan) -> AsyncIterator[list[Sample]]:
    """Samples at an even pace while the block runs."""
    samples: list[Sample] = []

    async def take() -> None:
        told_at = 0.0
        while True:
            at = time.monotonic()
            sample = await asyncio.to_thread(probe.take, at - start)
            samples.append(sample)
            if at - told_at >= 60:
                told_at = at
                _say(_short(sample))
            await asyncio.sleep(max(0.0, at + plan.sample_every_s - time.monotonic()))

    async with asyncio.TaskGroup() as group:  # the run ends when the server does
        task = group.create_task(take())
        yield samples
        task.cancel()


async def _base_alone(probe: Probe, start: float, plan: Plan) -> list[Sample]:
    await asyncio.sleep(plan.base_s / 4)  # what goes later than its owner has gone
    async with _sampling(probe, start, plan) as samples:
        await asyncio.sleep(plan.base_s * 3 / 4)
    return samples


async def _settled(probe: Probe, alone: Sample, load: Load) -> None:
    """Return when everything that came has gone, consumers that end by themselves too."""
    stop = time.monotonic() + SETTLE_S_MAX
    while True:
        found = await asyncio.to_thread(probe.take, 0.0)
        left = {
            "streams": found.streams - alone.streams,
            "consumers": found.consumers - alone.consumers,
            "connections": found.connections - alone.connections - 1,  # a slow subscriber may be there, or not
            "subscriptions": found.subscriptions - alone.subscriptions - 2,
        }
        left = {name: count for name, count in left.items() if count > 0}
        if not left:
            return
        if time.monotonic() > stop:
            load.errors[f"still there after {SETTLE_S_MAX:g} s: {left}"] += 1
            return
        await asyncio.sleep(0.5)  # nobody tells: it is asked again


# What is found.


def missing_on_disk(store: Path, base: Base) -> list[int]:
    """Numbers that were acknowledged and should still be in the bounded stream, and are not, or stand elsewhere."""
    with penstock.open(store, read_only=True) as db:
        found = {message.seq: message.data for message in db.stream(soak_base.STREAM).read()}
    first = max(base.stored.seqs, default=0) - base.max_msgs + 1
    return [
        number
        for number, seq in enumerate(base.stored.seqs)
        if seq >= max(first, 1) and not found.get(seq, b"").startswith(b"%d " % number)
    ]


def errors_in(log: str) -> Counter[str]:
    """Lines of the server's log that tell of a fault."""
    marked = (line for line in log.splitlines() if any(mark in line for mark in LOG_MARKS))
    return Counter(f"server's log: {line}" for line in marked if not any(words in line for words in LOG_EXPECTED))


def run(plan: Plan) -> Found:
    plan.out.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="soak-", dir=plan.out))
    try:
        with (PEER if plan.is_peer else SERVER).start(work) as server:
            load, base, taken, client_cpu_share = asyncio.run(_interruptible(soak(plan, server, work / "store")))
        log = (work / "server.log").read_text()
        if server.exit_code != 0:
            load.errors[f"the server ended with {server.exit_code}"] += 1
        lost = {
            f"from what the reader of {soak_base.STREAM} got": base.stored.lost(),
            f"from what the worker of {soak_base.QUEUE} got": base.worked.lost(),
            "on the disk": [] if plan.is_peer else missing_on_disk(work / "store", base),
        }
        facts = machine(work) | {"minutes": plan.minutes, "seed": plan.seed}
        return Found(taken, taken.judge(), lost, load.actions, load.errors + errors_in(log), client_cpu_share, facts)
    finally:
        if (work / "server.log").exists():
            shutil.copy(work / "server.log", plan.out / "server.log")
        shutil.rmtree(work)


async def _interruptible(main: Any) -> Any:
    """SIGTERM ends the run as Ctrl-C does: with everything that it has started."""
    task = asyncio.ensure_future(main)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


# What is shown.


def show(found: Found) -> None:
    _print_table([HEADING, *(row.cells() for row in found.rows)])
    first, last = found.taken.under_load[0], found.taken.under_load[-1]
    print(f"\nprocessor, of one core: server {found.taken.cpu_share():.0%}, clients {found.client_cpu_share:.0%}")
    print(f"slow subscribers cut off, by the server's count: {last.slow_consumers - first.slow_consumers}")
    print("what was done: " + ", ".join(f"{count:,} {name}" for name, count in sorted(found.actions.items())))
    for told, count in found.errors.most_common(ERRORS_SHOWN):
        print(f"ERROR, {count} times: {told}")
    for where, numbers in found.lost.items():
        print(f"acknowledged messages missing {where}: {len(numbers)} {numbers[:5] or ''}")
    print("\n".join(f"FAULT: {fault}" for fault in found.faults) or "no fault")


def _print_table(lines: list[tuple[str, ...]]) -> None:
    widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
    for line in lines:
        cells = [
            cell.rjust(w) if 0 < n < len(line) - 1 else cell.ljust(w)
            for n, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def _as_json(found: Found) -> dict[str, Any]:
    return {
        "machine": found.facts,
        "faults": found.faults,
        "lost": found.lost,
        "errors": found.errors,
        "actions": found.actions,
        "cpu": {"server": found.taken.cpu_share(), "clients": found.client_cpu_share},
        "before": [asdict(sample) for sample in found.taken.before],
        "under_load": [asdict(sample) for sample in found.taken.under_load],
        "after": [asdict(sample) for sample in found.taken.after],
    }


def _short(sample: Sample) -> str:
    return (
        f"{sample.at_s / 60:5.1f} min: {sample.rss / 1e6:.0f} MB, {sample.descriptors} descriptors, "
        f"{sample.threads} threads; {sample.streams} streams, {sample.consumers} consumers, "
        f"{sample.connections} connections"
    )


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30, metavar="N", help="of the full load (30)")
    parser.add_argument("--seed", type=int, metavar="N", help="of the load's choices (by chance, and shown)")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-out" / "soak", metavar="DIR", help="bench-out/soak/")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the samples, as PNG or SVG")
    parser.add_argument("--peer", action="store_true", help="the same with nats-server; its files are not read")
    asked = parser.parse_args()
    if not 0 < asked.minutes <= 7 * 24 * 60:
        parser.error("--minutes: more than 0, and not more than a week")
    seed = asked.seed if asked.seed is not None else int.from_bytes(os.urandom(3))
    plan = Plan(asked.minutes, seed, asked.out, asked.plot, asked.peer)
    _say(f"a soak of {plan.minutes:g} minutes, seed {plan.seed}")
    try:
        found = run(plan)
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted: nothing is concluded", file=sys.stderr)
        return 130
    (plan.out / "soak.json").write_text(json.dumps(_as_json(found), indent=1) + "\n")
    if plan.plot:
        soak_plot.draw(found.taken, f"{plan.minutes:g} minutes in which everything comes and goes", plan.plot)
    show(found)
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
