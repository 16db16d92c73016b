"""tasks: into how many tasks a read is divided, and what the process of a task needs once."""

from __future__ import annotations

import functools
import gc
import os

from penstock.spark.source.options import ReadOptions

SPLIT_BYTES = 4 << 20  # less than this is not worth a task of its own, unless it is asked for


def task_bytes(total: int, options: ReadOptions) -> int:
    """How much of `total` bytes a task reads: no more than is allowed, and so that all cores end together."""
    cores = len(os.sched_getaffinity(0))
    tasks = options.min_partitions or min(cores, max(total // SPLIT_BYTES, 1))
    if total > tasks * options.max_partition_bytes:
        # A last task that runs alone takes as long as one on every engine.
        rounds = -(-total // (options.max_partition_bytes * cores))
        tasks = rounds * cores
    return max(-(-total // tasks), 1)


@functools.cache
def settle_worker() -> None:
    """Once in a worker: Spark collects garbage after every task, and would look at all that was imported (40 ms)."""
    gc.freeze()
