"""What does it take to open a large stream: after a clean stop, without its summaries, after kill -9?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from bench.harness import ROOT, Bench, block_bytes, block_files, child, median, warm_cache

RECORDS_MIN = 65536  # if more bytes of a block were read, its records were read, not only its header


def run(bench: Bench) -> str:
    few, many = bench.few_subjects(), bench.many_subjects()
    count = f"{bench.message_count // 1_000_000} M"
    child("open", few)  # the first open also pays for looking up the folder
    clean = [child("open", few) for _ in range(bench.size(5, 3))]
    bench.add(f"open {count} messages, clean stop", median(one["seconds"] for one in clean), "s", at_most=0.3)
    _forget_cached(few)
    bench.add("  nothing of it in the page cache", child("open", few)["seconds"], "s")
    warm_cache(few)
    _rebuild(bench, few)
    _kill(bench, few)
    memory = clean[-1]
    used, grown = memory["rss_after"] / 1e6, (memory["rss_after"] - memory["rss_before"]) / 1e6
    bench.add(f"memory after opening {count} messages", used, "MB", at_most=150)
    bench.add("  of it since `import penstock`", grown, "MB")
    wide = child("open", many)
    added = (wide["rss_after"] - wide["rss_before"]) / 1e6 - grown
    bench.add(f"{bench.many_count:,} subjects add", added, "MB", at_most=150)
    bench.add(f"open {count} messages on {bench.many_count:,} subjects, clean stop", wide["seconds"], "s")
    return "reading or publishing after it; what the first such call loads (see pending)"


def _rebuild(bench: Bench, store: Path) -> None:
    """Open without CHECKPOINT and summaries: everything is read from the blocks, and summaries are written again."""
    size = block_bytes(store)
    rates, cpu_rates = [], []
    for _ in range(bench.size(2, 1)):
        (store / "$G/S/CHECKPOINT").unlink()
        for path in (store / "$G/S/blocks").glob("*.sum"):
            path.unlink()
        answer = child("open", store)
        assert answer["messages"] == answer["last_seq"], "nothing is lost"
        rates.append(size / answer["seconds"] / 1e9)
        cpu_rates.append(size / answer["cpu_seconds"] / 1e9)
    bench.add("open without checkpoint and summaries", max(rates), "GB/s", at_least=1.0)
    bench.add("  per second of processor time", max(cpu_rates), "GB/s")


def _kill(bench: Bench, store: Path) -> None:
    """Kill a writer in the middle of its work, then measure what the next open reads."""
    acknowledged = _write_and_kill(store, bench.size(200_000, 100_000))
    last = block_files(store)[-1]
    last_size = last.stat().st_size
    answer = child("open-watched", store)
    assert answer["last_seq"] >= acknowledged, "what was acknowledged is there"
    files: dict[str, int] = answer["files"]
    walked = [name for name, size in files.items() if name.endswith(".blk") and size > RECORDS_MIN]
    others = sum(size for name, size in files.items() if name.endswith(".blk") and name != last.name)
    bench.add("open after kill -9", answer["seconds"], "s")
    bench.add(
        "open after kill -9: blocks whose records were read",
        float(len(walked)),
        "blocks",
        at_most=1,
        target="<= 1: the last",
    )
    bench.add(
        "  bytes read of the last block",
        files.get(last.name, 0) / 1e6,
        "MB",
        ratio=files.get(last.name, 0) / last_size,
        ratio_to="its size",
    )
    bench.add("  bytes read of the others (headers)", others / 1e6, "MB")
    bench.add("  bytes read in all (summaries, checkpoint)", answer["read"] / 1e6, "MB")


def _write_and_kill(store: Path, count: int) -> int:
    """Start a writer and kill it after `count` messages; return the last sequence that it saw acknowledged."""
    command = [sys.executable, "-m", "bench.child", "write", str(store)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        first = last = int(writer.stdout.readline())
        for line in writer.stdout:
            last = int(line)
            if last - first >= count:
                break
        writer.send_signal(signal.SIGKILL)
        left = writer.stdout.read().rpartition("\n")[0]  # the rest of its output; the last line may be cut off
    return int(left.splitlines()[-1]) if left else last


def _forget_cached(store: Path) -> None:
    """Drop a store's files from the page cache."""
    for path in store.rglob("*"):
        if not path.is_file():
            continue
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
