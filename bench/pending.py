"""How long does it take to count pending messages for a wildcard that matches half of very many subjects?"""

from __future__ import annotations

import time

import penstock
from bench.harness import PENDING_FILTERS, Bench, child, median, warm_cache

SHARES = (0.0, 0.01, 0.25, 0.5, 0.6, 0.75, 0.99)  # where in the stream the count starts


def run(bench: Bench) -> str:
    path, total = bench.many_subjects(), bench.message_count
    warm_cache(path)
    with penstock.open(path, durability="os") as db:
        stream = db.stream("S")
        for subject in PENDING_FILTERS:
            stream.pending(total // 2, subject)
            found = {share: _ask(stream, subject, max(1, int(total * share)), total) for share in SHARES}
            what = f"pending {subject}, {bench.many_count:,} subjects, slowest of {len(SHARES)} starts"
            bench.add(what, max(found.values()), "ms", at_most=20)
            bench.add("  from the middle", found[0.5], "ms")
        if bench.is_quick:
            _check(stream, total)
    first = child("pending", path)
    for subject in PENDING_FILTERS:
        bench.add(f"  {subject} from the middle, first time in a process", first["ms"][subject], "ms")
    bench.add("  memory that these two took", first["rss_growth"] / 1e6, "MB")
    return "the first question of a process, which loads what it needs (shown last); deletes; last_per_subject"


def _ask(stream: penstock.Stream, subject: str, seq: int, total: int) -> float:
    """The median in milliseconds of nine counts, each from a later start, so that a cached answer would be wrong."""
    took = []
    for n in range(9):
        start = time.perf_counter()
        found = stream.pending(seq + n, subject)
        took.append((time.perf_counter() - start) * 1e3)
        share = found / (total - seq - n + 1)
        assert 0.4 < share < 0.6, f"half of them match, not {share:.2f}"
    return median(took)


def _check(stream: penstock.Stream, total: int) -> None:
    """Check the count against a slow computation."""
    start = total // 2 + 17
    slow = sum(batch.num_rows for batch in stream.scan("*.x.*", start_seq=start, columns=["seq"]))
    assert slow == stream.pending(start, "*.x.*"), "pending counts what a scan finds"
