"""How long does it take to count what is pending behind a wildcard that matches half of very many subjects?"""

from __future__ import annotations

import os
import time

import penstock
from bench.child import rss
from bench.harness import Bench, median

FILTERS = ("a.>", "*.x.*")  # by its beginning, and by a token in the middle: each half of the subjects


def run(bench: Bench) -> str:
    path, total = bench.many_subjects(), bench.message_count
    starts = [max(1, int(total * share)) for share in (0.0, 0.01, 0.25, 0.5, 0.6, 0.75, 0.99)]
    with penstock.open(path, durability="os") as db:
        stream = db.stream("S")
        before = rss()
        for subject in FILTERS:
            start = time.perf_counter()
            stream.pending(total // 2, subject)
            bench.add(f"pending {subject} from the middle, first time", (time.perf_counter() - start) * 1e3, "ms")
        worst: dict[str, float] = {}
        for subject in FILTERS:
            for seq in starts:
                took = []
                for n in range(9):
                    # A little further each time: an answer that was only remembered would not do.
                    start = time.perf_counter()
                    found = stream.pending(seq + n, subject)
                    took.append((time.perf_counter() - start) * 1e3)
                    share = found / (total - seq - n + 1)
                    assert 0.4 < share < 0.6 or total - seq < 1000, f"half of them match, not {share:.2f}"
                worst[subject] = max(worst.get(subject, 0.0), median(took))
                if seq == total // 2:
                    bench.add(f"  {subject} from the middle", median(took), "ms")
        for subject in FILTERS:
            bench.add(
                f"pending {subject}, {bench.many_count:,} subjects, worst of {len(starts)} starts",
                worst[subject],
                "ms",
                at_most=20,
            )
        bench.add("  memory that the questions took", (rss() - before) / 1e6, "MB")
        if total <= 1_000_000:
            _check(stream, total)
    return "the first question of a process (shown above it), deletes in between, last_per_subject"


def _check(stream: penstock.Stream, total: int) -> None:
    """The count against the slow way, in --quick."""
    start = total // 2 + 17
    slow = sum(batch.num_rows for batch in stream.scan("*.x.*", start_seq=start, columns=["seq"]))
    assert slow == stream.pending(start, "*.x.*"), os.path.basename(__file__)
