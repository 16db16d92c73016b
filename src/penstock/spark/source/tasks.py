"""tasks: how a read is divided into tasks, and the one-time setup of a task's process."""

from __future__ import annotations

import functools
import gc
import os

from penstock.spark.source.options import ReadOptions

SPLIT_BYTES = 4 << 20  # less than this is not worth a task of its own, unless the user requests it


def task_bytes(total: int, options: ReadOptions) -> int:
    """How many of `total` bytes a task reads: within the limit, and so that all cores finish together."""
    cores = len(os.sched_getaffinity(0))
    tasks = options.min_partitions or min(cores, max(total // SPLIT_BYTES, 1))
    if total > tasks * options.max_partition_bytes:
        # A last task that runs alone takes as long as one on every engine.
        rounds = -(-total // (options.max_partition_bytes * cores))
        tasks = rounds * cores
    return max(-(-total // tasks), 1)


@functools.cache
def settle_worker() -> None:
    """Freeze imported objects, once per worker: Spark's garbage collection after each task would scan them (40 ms)."""
    gc.freeze()
