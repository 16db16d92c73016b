"""Large commits are written while earlier ones are synced: a crash or a fault costs only what no sync covered."""

from __future__ import annotations

import errno
import random
import shutil
from pathlib import Path

import pytest

from penstock.errors import StoreError
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.store.write.batch import Batch
from penstock.testing import CrashDisk, CrashImage
from support.crash_cases import booted, campaign_size, check_images, chunk_seed
from support.threaded_writer import STREAM_ID, Writer

pytestmark = pytest.mark.campaign
STATES = campaign_size(1_000) // 5
SIZE = 200_000  # five to a block, two to a batch: blocks end in the middle of batches
BATCHES = 40
LIMITS = Limits(block_size=1 << 20)
TEMPORARY = shutil.ignore_patterns("*.tmp")  # summaries that a thread is about to rename
PILED = 60
PIECE_MAX = 6 << 20  # the bytes that one commit writes, and that are written during the sync of another one


def test_a_crash_keeps_what_a_sync_had_covered(scratch: Path) -> None:
    seed = chunk_seed("early writes", "disk")
    disk = CrashDisk(scratch)
    disk.sync_delay_us = 4_000
    writer = Writer(scratch / "s", disk, LIMITS, SIZE)
    for n in range(BATCHES):
        writer.publish(n)
        writer.look()
    writer.finish()
    assert len(writer.durable) == BATCHES
    syncs = [op for op in disk.ops if op.kind == "sync_file"]
    writes = [op for op in disk.ops if op.kind == "pwrite" and (op.path or "").endswith(".blk")]
    beside = [op for op in writes if any(s.start <= op.index < s.index for s in syncs)]
    assert beside, "nothing was written while something was synced"
    writer.stop()
    check_images(disk, scratch / "images", STATES // 10, seed, check)


def test_what_piles_up_behind_a_slow_sync_is_committed_in_pieces(scratch: Path) -> None:
    """In a single commit the publisher of its first message would wait for the last one, and the disk would be idle
    until then.
    """
    disk = CrashDisk(scratch)
    writer = Writer(scratch / "s", disk, Limits(block_size=64 << 20), SIZE)
    with disk.holding("sync_file"):
        for n in range(PILED):
            writer.publish(n)
    writer.finish()
    assert len(writer.durable) == PILED
    begins = [op.start for op in disk.ops if op.kind == "sync_file"]
    writes = [op for op in disk.ops if op.kind == "pwrite"]
    assert sum(op.size for op in writes) > PILED * 2 * SIZE
    for begin, end in zip([0, *begins], begins, strict=False):
        assert sum(op.size for op in writes if begin <= op.index < end) < PIECE_MAX
    writer.stop()


def test_the_directory_is_synced_once_for_each_new_block(scratch: Path) -> None:
    disk = CrashDisk(scratch)
    disk.sync_delay_us = 2_000
    writer = Writer(scratch / "s", disk, LIMITS, SIZE)
    before = disk.position
    for n in range(BATCHES):
        writer.publish(n)
        writer.look()
    writer.finish()
    ops = disk.ops[before:]
    made = [op for op in ops if op.kind == "create_file" and op.path.endswith(".blk")]
    syncs = [op for op in ops if op.kind == "sync_dir"]
    assert len(made) > 10
    assert len(syncs) <= len(made)
    assert syncs[-1].start > made[-1].index
    writer.stop()


def check(image: CrashImage) -> None:
    answered = image.mark or 0
    with booted(image.is_power_cut):
        store = FileStore(image.path / "s", STREAM_ID, limits=LIMITS, durability="disk")
    for seq in range(1, answered + 1):
        assert len(store.load(seq).data) == SIZE + 9
    assert store.state().last_seq >= answered
    store.stop()


def check_killed(root: Path, copy: Path, durable: list[int]) -> None:
    """A kill right after a rollback: refused messages are gone, acknowledged ones are there."""
    shutil.copytree(root, copy, ignore=TEMPORARY)
    store = FileStore(copy, STREAM_ID, limits=LIMITS, durability="disk")
    assert [message.seq for message in store.read()] == list(range(1, (durable or [0])[-1] + 1))
    store.stop()
    shutil.rmtree(copy)


def check_agree(writer: Writer, copy: Path, limits: Limits) -> None:
    """A kill now: the next process finds the contents that this one shows."""
    shutil.copytree(writer.root, copy, ignore=TEMPORARY)
    store = FileStore(copy, STREAM_ID, limits=limits, durability="disk")
    assert [message.seq for message in store.read()] == [message.seq for message in writer.store.read()]
    store.stop()
    shutil.rmtree(copy)


@pytest.mark.parametrize("kind", ["pwrite", "sync_file", "create_file"])
def test_after_a_fault_memory_and_disk_agree_on_what_the_limits_removed(scratch: Path, kind: str) -> None:
    """One commit with its deletes succeeds, the next one fails: messages that the first one removed do not
    come back.
    """
    chance = random.Random(chunk_seed("pieces and limits", kind))
    limits = Limits(block_size=1 << 20, max_msgs=9)
    for _ in range(max(6, STATES // 25)):
        disk = CrashDisk(scratch)
        disk.sync_delay_us = 2_000
        writer = Writer(scratch / "s", disk, limits, SIZE)
        for n in range(BATCHES):
            if chance.random() < 0.15:
                disk.clear_faults()
                disk.fail_at(chance.randint(1, 4), errno.ENOSPC, kinds=kind)
            writer.publish(n)
            if writer.look():
                check_agree(writer, scratch / "copy", limits)
        disk.clear_faults()
        disk.fail_at(1, errno.ENOSPC, kinds=kind, persistent=True)  # none of the others has to overlap a commit
        with pytest.raises(StoreError):
            writer.store.append(Batch.of([("a", bytes(SIZE))] * 6))  # more than a block
            writer.store.commit()
        disk.clear_faults()
        writer.look()
        check_agree(writer, scratch / "copy", limits)
        writer.finish()
        writer.stop()
        shutil.rmtree(writer.root)  # this disk keeps a log of all its calls


def test_a_batch_that_goes_over_blocks_is_kept_whole_or_not_at_all(scratch: Path) -> None:
    """A block boundary inside a batch does not end a commit, however large the batch is."""
    disk = CrashDisk(scratch)
    store = FileStore(scratch / "s", STREAM_ID, limits=Limits(block_size=4 << 20), durability="disk", disk=disk)
    store.append(Batch.of([("a", b"first")]))
    store.commit()
    disk.fail_at(1, errno.ENOSPC, kinds="create_file", persistent=True)
    with pytest.raises(StoreError):
        store.append(Batch.of([("a", bytes(SIZE))] * 30))
        store.commit()
    disk.clear_faults()
    assert store.state().last_seq == 1
    store.append(Batch.of([("a", bytes(SIZE))] * 30))
    store.commit()
    assert store.state().messages == 31
    store.stop()


@pytest.mark.parametrize("kind", ["pwrite", "sync_file", "sync_dir", "create_file"])
def test_a_fault_while_both_are_under_way(scratch: Path, kind: str) -> None:
    seed = chunk_seed("early faults", kind)
    chance = random.Random(seed)
    for number in range(max(4, STATES // 25)):
        disk = CrashDisk(scratch)
        disk.sync_delay_us = 2_000
        root = scratch / "s"
        writer = Writer(root, disk, LIMITS, SIZE)
        for n in range(BATCHES):
            writer.hurt(chance, 0.15, kind, within=4)
            writer.publish(n)
            if writer.look():
                check_killed(root, scratch / "copy", writer.durable)
        writer.finish()
        found = {message.seq: message.data for message in writer.store.read()}
        assert found.keys() >= set(writer.durable), f"seed {seed}, run {number}"
        writer.publish(BATCHES)
        writer.finish()
        assert writer.durable, "it does not go on"  # everything before may have been lost with one sync
        writer.stop()
        again = FileStore(root, STREAM_ID, limits=LIMITS, durability="disk")
        assert {message.seq: message.data for message in again.read()}.items() >= found.items()
        again.stop()
        shutil.rmtree(root)
