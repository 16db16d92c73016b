"""How fast does a stream become Arrow record batches, checksums verified, on one thread?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import penstock
from bench.harness import Bench, block_bytes, block_files, seconds_of, warm_cache

ROUNDS = 3
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("all columns", {}),
    ("seq and subject", {"columns": ["seq", "subject"]}),
    ("all columns of a tenth of the subjects", {"subjects": "orders.r7.*"}),
)


def run(bench: Bench) -> str:
    path = bench.few_subjects()
    warm_cache(path)
    count = bench.message_count
    stop = min(count, 4_000_000) + 1
    took: dict[str, float] = {}
    with penstock.open(path, read_only=True) as db:
        stream = db.stream("S")
        stream.view()
        for _ in range(ROUNDS):
            for what, options in CASES:
                _keep(took, what, partial(_count, stream, stop, options))
            _keep(took, "raw", lambda: _read_raw(path, stop / count))
        for batch in stream.scan(stop_seq=1000):
            assert batch.num_rows == 999, "the rows that were asked for"
    rows, size = stop - 1, block_bytes(path) * (stop - 1) / count
    for what, _ in CASES:
        rate, gbs = rows / took[what] / 1e6, size / took[what] / 1e9
        if what == CASES[0][0]:
            limit = min(8.0, rows / size * 1e3)  # in M rows/s: 1 GB/s of such records
            bench.add(
                f"scan to Arrow, {what}",
                rate,
                "M rows/s",
                at_least=limit,
                target=f">= {limit:.2f} M rows/s (1 GB/s; or 8 M)",
            )
        else:
            bench.add(f"scan to Arrow, {what}", rate, "M rows/s")
        bench.add("  in bytes of the blocks", gbs, "GB/s", ratio=took["raw"] / took[what], ratio_to="of a bare read")
    bench.add("  bare read of the same files", size / took["raw"] / 1e9, "GB/s")
    return "headers (there are none), more threads, a writer beside it, files that are not in the page cache"


def _keep(took: dict[str, float], what: str, action: Callable[[], object]) -> None:
    took[what] = min(took.get(what, 1e9), seconds_of(action))


def _read_raw(path: Any, share: float) -> None:
    """Read the share of the files, a MiB at a time into the same buffer."""
    files = block_files(path)
    buffer = bytearray(1 << 20)
    left = sum(file.stat().st_size for file in files) * share
    for file in files:
        with file.open("rb", buffering=0) as opened:
            while left > 0 and (got := opened.readinto(buffer)):
                left -= got


def _count(stream: penstock.Stream, stop: int, options: dict[str, Any]) -> int:
    return sum(batch.num_rows for batch in stream.scan(stop_seq=stop, threads=1, **options))
