"""What does verification in Spark workers cost per byte, against the bare kernel on the same files?"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness import Bench, block_files, warm_cache
from bench.spark import in_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 4


def run(bench: Bench) -> str:
    path = bench.few_subjects()
    warm_cache(path)
    found = in_spark(bench, measure, path=str(path))
    bench.add("verify: worker CPU per GB", found["verify"] * 1e9, "s")
    bench.add("  the bare kernel on the same files", found["kernel"] * 1e9, "s")
    bench.add("verify: worker CPU per byte, of the bare kernel's", found["verify"] / found["kernel"], "x", at_most=1.25)
    bench.add("verify: wall", found["bytes"] / found["seconds"] / 1e9, "GB/s")
    return "the driver's and the JVM's CPU, which do not grow with the bytes; files that are not in the page cache"


def measure(spark: SparkSession, path: str) -> dict[str, Any]:
    """Rounds of both take turns; of each the best."""
    from penstock.spark.pipelines import verify

    best, kernel, seconds, size = 1e9, 1e9, 1e9, 0
    for _ in range(ROUNDS):
        found = verify.run(spark, path)
        assert found.is_ok and not found.problems, found.problems
        size = sum(stream.bytes for stream in found.check.streams)
        best, seconds = min(best, found.cpu_seconds / size), min(seconds, found.check.seconds)
        kernel = min(kernel, _bare_kernel(Path(path)))
    return {"verify": best, "kernel": kernel, "seconds": seconds, "bytes": size}


def _bare_kernel(path: Path) -> float:
    """CPU seconds per byte of reading each block into the same memory and checking its records, and nothing else."""
    from penstock.format.block_scan import scan_block
    from penstock.format.constants import RECORDS_START
    from penstock.scan.plan import open_views

    blocks = {Path(block.path): block for block in open_views(path)[0].blocks}
    memory = bytearray(max(file.stat().st_size for file in block_files(path)))
    total, start = 0, time.process_time()
    for file in block_files(path):
        block = blocks[file]
        with file.open("rb", buffering=0) as opened, memoryview(memory) as whole:
            size = opened.readinto(whole[: block.stop]) or 0
        scan = scan_block(
            memory, RECORDS_START, size, base_seq=block.base_seq, base_time=block.base_time, salt=block.salt
        )
        assert scan.damage_count == 0
        total += size
    return (time.process_time() - start) / total
