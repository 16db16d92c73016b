"""The thread that submits a small commit starts its write while a commit thread wakes: a crash loses no more because of
it.
"""

from __future__ import annotations

import errno
import random
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.testing import CrashDisk, CrashImage, Op
from support.crash_cases import booted, campaign_size, check_images, chunk_seed
from support.threaded_writer import STREAM_ID, Writer

pytestmark = pytest.mark.campaign
STATES = campaign_size(1_000) // 5
SIZE = 300
LIMITS = Limits(block_size=1 << 16)  # a hundred batches fill one block
BATCHES = 250
WARM = 8  # after so many commits a file has zeros ahead of its content, …
ZEROS_MIN = 8 << 10  # … at least this many


def used(block: Path) -> int:
    return len(block.read_bytes().rstrip(b"\0"))


def begun(scratch: Path) -> Writer:
    """A writer whose file has zeros ahead: it starts writing what it submits at once."""
    writer = Writer(scratch / "s", CrashDisk(scratch), LIMITS, SIZE)
    for n in range(WARM):
        writer.publish(n)
        writer.wait()
    return writer


def test_the_caller_writes_and_what_it_cannot_write_the_commit_does(scratch: Path) -> None:
    """The fault hits the first write: the commit would fail if it did not write again itself."""
    writer = begun(scratch)
    writer.disk.fail_at(1, errno.ENOSPC, kinds="pwrite", short=True)
    writer.publish(WARM, begins=True)
    assert not writer.wait()
    assert writer.durable == [2 * (n + 1) for n in range(WARM + 1)]
    writer.stop()


def test_a_write_that_fails_again_refuses_the_message(scratch: Path) -> None:
    writer = begun(scratch)
    writer.disk.fail_at(1, errno.ENOSPC, kinds="pwrite", persistent=True)
    writer.publish(WARM, begins=True)
    assert writer.wait()
    assert (len(writer.durable), writer.lost) == (WARM, 1)
    writer.disk.clear_faults()
    writer.publish(WARM, begins=True)
    assert not writer.wait()
    assert writer.durable[-1] == 2 * WARM + 2
    writer.stop()


def test_zeros_are_written_between_commits_not_within(scratch: Path) -> None:
    """Except for the first commit of a block: a commit that wrote its own zeros would take as long as ten."""
    disk, block_size = CrashDisk(scratch), 1 << 17
    writer = Writer(scratch / "s", disk, Limits(block_size=block_size), SIZE)
    commits: Counter[str] = Counter()
    for n in range(BATCHES * 2):
        writer.publish(n, begins=True)
        writer.wait()
        block = max((scratch / "s" / "blocks").glob("*.blk"))
        commits[block.name] += 1
        deadline = time.monotonic() + 10
        while commits[block.name] > WARM and block.stat().st_size < min(block_size, used(block) + ZEROS_MIN):
            assert time.monotonic() < deadline, f"{block.name}: no zeros after commit {commits[block.name]}"
    writer.stop()
    writes: dict[int, list[Op]] = {}
    for op in disk.ops:
        if op.kind == "pwrite" and (op.path or "").endswith(".blk"):
            writes.setdefault(op.file, []).append(op)
    *whole, _ = writes.values()
    assert len(whole) > 1
    for ops in whole:
        zeros = [n for n, op in enumerate(ops) if op.size > 1000 and not any(op.data)]
        within = [n for n in zeros[:-1] if ops[n + 1].offset + ops[n + 1].size == ops[n].offset]
        assert len(within) == 1 and len(zeros) > 2


def test_nothing_is_begun_beside_a_commit(scratch: Path) -> None:
    """A thread that submits must not wait for the disk."""
    writer = begun(scratch)
    disk = writer.disk
    with disk.holding("sync_file"):
        writer.publish(WARM, begins=True)
        disk.wait_held()
        writes = disk.calls["pwrite"]
        writer.publish(WARM + 1, begins=True)
        assert disk.calls["pwrite"] == writes
    assert not writer.wait()
    writer.stop()


def test_a_crash_keeps_what_a_sync_had_covered(scratch: Path) -> None:
    seed = chunk_seed("begun commits", "disk")
    chance = random.Random(seed)
    disk = CrashDisk(scratch)
    writer = Writer(scratch / "s", disk, LIMITS, SIZE)
    for n in range(BATCHES):
        writer.publish(n, begins=chance.random() < 0.8)
        if chance.random() < 0.7:
            writer.wait()
    writer.finish()
    assert len(writer.durable) == BATCHES
    writer.stop()
    check_images(disk, scratch / "images", STATES // 4, seed, check)


def check(image: CrashImage) -> None:
    answered = image.mark or 0
    with booted(image.is_power_cut):
        store = FileStore(image.path / "s", STREAM_ID, limits=LIMITS, durability="disk")
    for seq in range(1, answered + 1):
        assert store.load(seq).data == b"%09d" % ((seq - 1) // 2) + bytes(SIZE)
    assert store.state().last_seq >= answered
    store.stop()


@pytest.mark.parametrize("kind", ["pwrite", "sync_file", "create_file"])
def test_after_a_fault_memory_and_disk_agree(scratch: Path, kind: str) -> None:
    seed = chunk_seed("begun faults", kind)
    chance = random.Random(seed)
    for number in range(max(4, STATES // 25)):
        root = scratch / "s"
        writer = Writer(root, CrashDisk(scratch), LIMITS, SIZE)
        for n in range(BATCHES):
            writer.hurt(chance, 0.1, kind, within=3)
            writer.publish(n, begins=chance.random() < 0.8)
            if chance.random() < 0.7:
                writer.wait()
        writer.finish()
        found = {message.seq: message.data for message in writer.store.read()}
        assert found.keys() >= set(writer.durable), f"seed {seed}, run {number}"
        assert len(writer.durable) > BATCHES // 2, f"seed {seed}, run {number}: {writer.lost} were lost"
        writer.stop()
        again = FileStore(root, STREAM_ID, limits=LIMITS, durability="disk")
        assert {message.seq: message.data for message in again.read()} == found, f"seed {seed}, run {number}"
        again.stop()
        shutil.rmtree(root)
