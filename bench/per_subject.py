"""What does `max_msgs_per_subject=1` cost with many subjects, each publish replacing the last of its subject?

It runs in a separate process: a million subject texts are placed in free heap space, so heap fragmentation left by
other benches would be measured too.
"""

from __future__ import annotations

import random
import shutil
from functools import partial
from pathlib import Path

import penstock
from bench.harness import PAYLOAD_SIZE, Bench, Messages, Payloads, child, rate_of

BATCH = 1000
ROUNDS = 3


def run(bench: Bench) -> str:
    folder, count = bench.place("per-subject"), bench.many_count
    best: dict[str, float] = child("per_subject", folder, count, 0.15 if bench.is_quick else 1.0)
    shutil.rmtree(folder)
    bench.add(
        f"max_msgs_per_subject=1, {count:,} subjects: of the rate with one",
        best["many"] / best["one"],
        "x",
        at_least=0.5,
    )
    bench.add(f"  {count:,} subjects", best["many"], "M msg/s")
    bench.add("  1,000 subjects", best["spread"], "M msg/s")
    bench.add("  one subject", best["one"], "M msg/s")
    bench.add("  one subject, no limit", best["free"], "M msg/s")
    return "the first message of each subject; the space that mostly dead blocks keep until they are compacted"


def measure(folder: Path, count: int, seconds: float) -> dict[str, float]:
    """Million messages a second of each side, the best of its rounds."""
    names = [f"sensors.{n % 1000}.{n}" for n in range(count)]
    random.Random(5).shuffle(names)
    many, one, spread = Messages(names), Messages(["sensors.0.0"]), Messages(names[:1000])
    rates: dict[str, list[float]] = {}
    with penstock.open(folder, durability="os") as db:
        many_stream, one_stream, spread_stream, free_stream = (
            db.stream(name, subjects=[f"{name}.>"], max_msgs_per_subject=limit)
            for name, limit in (("many", 1), ("one", 1), ("spread", 1), ("free", -1))
        )
        for messages, name in ((many, "many"), (one, "one"), (spread, "spread")):
            messages.names = [f"{name}.{subject}" for subject in messages.names]
        free = Messages(["free.sensors.0.0"])
        payloads = Payloads(PAYLOAD_SIZE)
        for at in range(0, count, 10_000):  # every subject has its message: from here on each replaces one
            chosen = many.names[at : at + 10_000]
            many_stream.publish_many(list(zip(chosen, payloads.take(len(chosen)), strict=True)))
        sides = (
            ("many", many, many_stream),
            ("one", one, one_stream),
            ("spread", spread, spread_stream),
            ("free", free, free_stream),
        )
        for _ in range(ROUNDS):
            for name, messages, stream in sides:
                found = rate_of(partial(messages.batch, BATCH), stream.publish_many, BATCH, seconds, 50)
                rates.setdefault(name, []).append(found / 1e6)
        assert many_stream.state().messages == count, "one message per subject"
        assert one_stream.state().messages == 1, "one message per subject"
    return {name: max(found) for name, found in rates.items()}
