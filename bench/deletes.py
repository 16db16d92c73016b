"""What do many deletes cost: in time, and in bytes written?"""

from __future__ import annotations

import random
from pathlib import Path

import penstock
from bench.harness import Bench, block_files, io_count, seconds_of

SINGLES = 1000


def run(bench: Bench) -> str:
    path, total = bench.few_subjects(), bench.message_count
    count = bench.size(1_000_000, 100_000)
    with penstock.open(path, durability="disk") as db:
        stream = db.stream("S")
        # Do not begin with the first message: that would only raise the floor.
        ordered = range(total // 10, total // 10 + count)
        took, written, grown = _delete(stream, path, list(ordered))
        bench.add(f"{count:,} deletes in order, disk: bytes written in all", written, "bytes", at_most=1024)
        bench.add("  of them to the last block", grown, "bytes")
        bench.add("  time", took, "s")
        scattered = random.Random(6).sample(range(ordered.stop, total + 1), count)
        took, written, grown = _delete(stream, path, scattered)
        bench.add(f"{count:,} random deletes, disk", took, "s", at_most=2.0)
        bench.add(f"{count:,} random deletes: bytes written for each", written / count, "bytes", at_most=24)
        bench.add("  of them to the last blocks", grown / count, "bytes")
        single = seconds_of(lambda: [stream.delete(seq) for seq in range(1, SINGLES + 1)])
        bench.add("one delete() after the other, disk", single / SINGLES * 1e6, "µs")
        assert stream.state().first_seq == SINGLES + 1, "the first ones are gone"
    return "giving back the space of mostly dead blocks, which is a later issue"


def _delete(stream: penstock.Stream, store: Path, seqs: list[int]) -> tuple[float, float, float]:
    """Seconds, bytes written by any call, bytes by which block files grew."""
    before, last_id = stream.state().messages, block_files(store)[-1].name
    size, written = _size_from(store, last_id), io_count("wchar")
    took = seconds_of(lambda: stream.delete_many(seqs))
    written = io_count("wchar") - written
    assert before - stream.state().messages == len(seqs), "each was there, and is gone"
    return took, float(written), float(_size_from(store, last_id) - size)


def _size_from(store: Path, name: str) -> int:
    """Bytes in the block files from a given one on; earlier files are only ever removed."""
    return sum(path.stat().st_size for path in block_files(store) if path.name >= name)
