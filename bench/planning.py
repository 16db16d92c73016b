"""What does it take to plan a parallel read of 100,000 blocks, most of a terabyte?"""

from __future__ import annotations

import pickle
import shutil
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import penstock
from bench.harness import Bench
from penstock.kernel.disk import Disk
from penstock.scan.lean import open_snapshot
from penstock.scan.plan import plan, view_at
from penstock.store.identity import read_identity
from penstock.store.layout import StreamPaths
from penstock.testing.many_blocks import ROWS, multiply_blocks

ROUNDS = 3
T = TypeVar("T")


def run(bench: Bench) -> str:
    count = bench.size(100_000, 10_000)
    root = str(bench.work / "planning" / "$G" / "S")
    with penstock.open(bench.work / "planning", durability="os") as db:
        db.stream("S", subjects=["many.>"]).publish_many([("many.last", b"x")] * ROWS)
    multiply_blocks(root, count, files=True)
    took: dict[str, float] = {}
    for _ in range(ROUNDS):
        view = _timed(took, "view", lambda: view_at(root))
        parts = _timed(took, "plan", partial(plan, view))
        low, high = view.blocks[count // 2].time_min, view.blocks[count // 2 + count // 20].time_min
        _timed(took, "slice", partial(plan, view, since=low, until=high))
        _timed(took, "subject", partial(plan, view, subjects=["many.77.1"]))
    identity = read_identity(Disk(), StreamPaths(root))
    _timed(took, "beside", lambda: open_snapshot(root, identity.stream_id, "S", Disk()).stop())
    _timed(took, "full", lambda: view_at(root, lean=False))
    blocks = f"{count:,} blocks"
    bench.add(f"view of {blocks}, nothing after the checkpoint", took["view"], "s")
    bench.add(f"  with a writer running: {blocks}", took["beside"], "s")
    bench.add("  with a look at every block", took["full"], "s", ratio=took["full"] / took["view"], ratio_to="the view")
    bench.add(f"plan of all of them, {len(parts):,} parts", took["plan"], "s")
    bench.add("plan of a 5 % time slice", took["slice"], "s")
    bench.add("plan of one subject", took["subject"], "s")
    bench.add("the parts as they go to the tasks", len(pickle.dumps(parts)) / 1e6, "MB")
    shutil.rmtree(bench.work / "planning")
    return "the messages; blocks are files with a header and no records, in the page cache; processor time, not wall"


def _timed(took: dict[str, float], what: str, action: Callable[[], T]) -> T:
    start = time.process_time()
    found = action()
    took[what] = min(took.get(what, 1e9), time.process_time() - start)
    return found
