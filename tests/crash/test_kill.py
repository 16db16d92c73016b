"""kill -9 of a process that writes to a real disk, many times over the same directory.

The child prints to a pipe what was acknowledged; everything printed before it died must be there. `N=` sets the cycles
in all (default 20), `SEED=` the moments and the work.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from support.crash_cases import STREAM_ID, campaign_size, check_counters, chunk_seed, contents

pytestmark = pytest.mark.campaign
CYCLES = campaign_size(20)
CASES = [("disk", False), ("os", False), ("disk", True), ("os", True)]  # durability, with deletes and limits

# Each message contains its own sequence, so that the parent can derive every byte of it.
CHILD = """
import os, random, sys
from penstock.store.write.batch import Batch
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits

path, durability, max_msgs, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
rng = random.Random(seed)
store = FileStore(path, bytes(range(16)), limits=Limits(block_size=20_000, max_msgs=max_msgs), durability=durability)
say = lambda text: os.write(1, text.encode() + b"\\n")
say(f"open {store.epoch} {store.fast_state().last_seq}")
seq = store.fast_state().last_seq
while True:
    count = rng.choice((1, 2, 10, 100))
    items = [(f"k.{n % 7}", b"%d:" % n + bytes([n % 251]) * (n % 300)) for n in range(seq + 1, seq + 1 + count)]
    store.append(Batch.of(items))
    store.commit()
    seq += count
    say(f"stored {seq}")
    if max_msgs > 0 and rng.random() < 0.3:
        first = store.fast_state().first_seq
        doomed = sorted(set(rng.sample(range(first, seq + 1), min(5, seq + 1 - first))))
        say("deleting " + " ".join(map(str, doomed)))
        store.remove_many(doomed)
        say("deleted " + " ".join(map(str, doomed)))
    if rng.random() < 0.01:
        store.write_checkpoint()
"""


def payload_of(seq: int) -> bytes:
    return b"%d:" % seq + bytes([seq % 251]) * (seq % 300)


@pytest.fixture
def real_room(tmp_path: Path) -> Iterator[Path]:
    """A directory on the real disk, beside the sources, so that fdatasync means something."""
    with tempfile.TemporaryDirectory(prefix="penstock-kill-", dir=tmp_path) as name:
        yield Path(name)


def kill_one(path: Path, durability: str, max_msgs: int, seed: int) -> list[str]:
    """Start a writer, kill it at some moment, and return its output. An incomplete last line is ignored."""
    rng = random.Random(seed)
    command = [sys.executable, "-c", CHILD, str(path), durability, str(max_msgs), str(seed)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None and child.stderr is not None
    said = b""
    try:
        deadline = time.monotonic() + 60
        until = deadline
        while time.monotonic() < until and child.poll() is None:
            ready, _, _ = select.select([child.stdout], [], [], max(0.0, min(until - time.monotonic(), 0.05)))
            if ready:
                said += os.read(child.stdout.fileno(), 1 << 16)
                if until == deadline:
                    until = time.monotonic() + rng.choice((0.0, 0.002, 0.02, 0.1, 0.4)) * rng.random()
        assert child.poll() is None, child.stderr.read().decode()
        child.send_signal(signal.SIGKILL)
        said += child.stdout.read()
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()
    assert said, "the child said nothing"
    return said.decode().split("\n")[:-1]


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda n: f"{CASES[n][0]}{'-deletes' if CASES[n][1] else ''}")
def test_a_killed_writer_keeps_what_it_acknowledged(real_room: Path, case: int) -> None:
    durability, with_deletes = CASES[case]
    max_msgs = 1500 if with_deletes else -1
    path, limits = real_room / "stream", Limits(block_size=20_000, max_msgs=max_msgs)
    stored, epoch = 0, -1
    deleted: set[int] = set()
    doubtful: set[int] = set()
    for cycle in range(-(-CYCLES // len(CASES))):
        seed = chunk_seed("kill", case, cycle)
        try:
            for line in kill_one(path, durability, max_msgs, seed):
                verb, *numbers = line.split()
                values = list(map(int, numbers))
                if verb == "open":
                    assert values[0] > epoch or epoch < 0, "the epoch tells of the kill"
                    assert values[1] >= stored
                    epoch = values[0]
                elif verb == "stored":
                    stored = values[0]
                elif verb == "deleting":
                    doubtful |= set(values)
                else:
                    deleted |= set(values)
            store = FileStore(path, STREAM_ID, limits=limits, durability=durability)
            try:
                assert store.epoch > epoch, "the epoch tells of the kill"
                epoch = store.epoch
                live = contents(store)
                check_counters(store, live)
                assert not deleted & live.keys(), "deleted, acknowledged, and back"
                last_seq = store.fast_state().last_seq
                assert last_seq >= stored
                low = 1 if max_msgs < 0 else max(live, default=0) + 1 - max_msgs
                expected = set(range(max(low, 1), stored + 1)) - deleted - doubtful
                assert expected <= live.keys(), f"acknowledged and gone: {sorted(expected - live.keys())[:9]}"
                assert all(one == (f"k.{seq % 7}", None, payload_of(seq)) for seq, one in live.items())
                assert not store.report.lost, [str(one) for one in store.report.findings]
            finally:
                store.abandon()
        except BaseException as error:
            error.add_note(f"{durability}, deletes {with_deletes}, cycle {cycle}, seed {seed}")
            raise
