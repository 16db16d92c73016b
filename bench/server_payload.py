"""How many bytes a second with larger payloads: `os` to nats-server, synced to the disk's own bandwidth?

The baseline of the synced row is a bare loop of pwrite and fdatasync, with as many bytes per sync as the server's
commits had. That size comes from the disk's count of flushes (one sync may cause several, so the loop's own are counted
first); if the kernel keeps no such count, half a window is assumed. The loop takes its turn like a server: started
right after files were removed, it would reuse their memory, which an idle guest must request from its host again.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from bench.harness import Bench
from bench.load import drive
from bench.raw import Raw
from bench.server import DISK, NATS, OS, ROUNDS_UNSTEADY, Answer, Running, Side, ack_meanings, take_turns

STEADY_MAX = 2.0
START_S = 0.4  # as long as a server takes


@dataclass(frozen=True, slots=True)
class BareSide(Side):
    """The bare loop, as a side."""

    def start(self, folder: Path) -> BareLoop:
        return BareLoop(self, folder)


class BareLoop(Running):
    """A placeholder for a server: nothing listens."""

    def __init__(self, side: Side, folder: Path) -> None:
        self.side, self.folder, self.pid = side, folder, os.getpid()

    def __enter__(self) -> BareLoop:
        time.sleep(START_S)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def rate(self, commit_size: int, total: int) -> float:
        """Bytes per second, from an empty file."""
        blobs = [os.urandom(commit_size)] * max(1, total // commit_size)
        raw = Raw(self.folder / "raw", None)
        start = time.perf_counter()
        raw.write(blobs)
        took = time.perf_counter() - start
        raw.clear()
        (self.folder / "raw").rmdir()
        return commit_size * len(blobs) / took


BARE = BareSide("raw pwrite+fdatasync", "", "", "synced to disk")
SERVERS = (NATS, OS, DISK)


def run(bench: Bench) -> str:
    for size, window, full in ((1024, 4000, 300_000), (65536, 256, 6_000)):
        question = _Question(bench, size, window, bench.size(full, 300))
        taken = take_turns(bench, (*SERVERS, BARE), question.ask, ROUNDS_UNSTEADY)
        name = f"{size // 1024} KiB payloads"
        bench.add(f"{name}, os: of nats-server's", taken.ratio(OS, NATS), "x", at_least=1.3)
        share = taken.ratio(DISK, BARE, "bytes_rate")
        what = f"{name}, synced to disk: of raw write+sync"
        raw_rates = taken.each(BARE, "bytes_rate")
        if max(raw_rates) <= STEADY_MAX * min(raw_rates):
            bench.add(what, share, "x", at_least=0.85)
        else:
            bench.add(what, share, "x", target=">= 0.85 x (UNSTEADY: no verdict)")
        taken.show(bench, (*SERVERS, BARE), "MB/s", field="bytes_rate", scale=1e-6)
        bench.add("  payload bytes to a commit", taken.of(DISK, "commit_size") / 1e6, "MB")
    return f"our bytes around the payload (1 KiB: some 3 %); several streams. {ack_meanings(*SERVERS)}"


class _Question:
    """One size of payload, asked of every side in turn."""

    def __init__(self, bench: Bench, size: int, window: int, count: int) -> None:
        self.bench, self.size, self.window, self.count = bench, size, window, count
        self.commit_size = size * window // 2  # of the synced server's, as far as it was seen

    def ask(self, server: Running) -> Answer:
        if isinstance(server, BareLoop):
            return {"rate": 0.0, "bytes_rate": server.rate(self.commit_size, self.size * self.count)}
        server.make_stream()
        wanted = {"size": self.size, "window": self.window, "refill": self.window // 32, "frames": self.window}
        drive("publish", server.port, count=self.window, **wanted)
        before = _flushes(server.folder)
        answer = drive("publish", server.port, count=self.count, **wanted)
        after = _flushes(server.folder)
        answer["bytes_rate"] = answer["rate"] * self.size
        if server.side is DISK:
            if before is not None and after is not None:
                commits = (after - before) / _flushes_of_a_sync(server.folder)
                self.commit_size = max(self.size, round(self.size * self.count / max(1.0, commits)))
            answer["commit_size"] = self.commit_size
        return answer


def _flushes_of_a_sync(folder: Path) -> float:
    before = _flushes(folder)
    BareLoop(BARE, folder).rate(1 << 20, 32 << 20)
    after = _flushes(folder)
    assert before is not None and after is not None
    return max(1.0, (after - before) / 32)


def _flushes(path: Path) -> int | None:
    """How many cache flushes the disk of `path` has received; None if the kernel does not count them."""
    device = os.stat(path).st_dev
    counts = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    fields = counts.read_text().split() if counts.exists() else []
    return int(fields[15]) if len(fields) > 15 else None
