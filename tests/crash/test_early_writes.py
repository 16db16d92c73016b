"""Large commits are written while those before them are synced: a crash or a fault costs what no sync covered."""

from __future__ import annotations

import errno
import random
import shutil
from pathlib import Path

import pytest
from crash_cases import booted, campaign_size, check_images, chunk_seed

from penstock.errors import StoreError
from penstock.kernel.batch import Batch
from penstock.kernel.log import Committer
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.testing import CrashDisk, CrashImage

pytestmark = pytest.mark.campaign
STATES = campaign_size(1_000) // 5
STREAM_ID = bytes(16)
SIZE = 150_000
BATCHES = 40
LIMITS = Limits(block_size=1 << 20)


class Writer:
    """Hands over batch after batch without waiting for the disk, as a server does, and notes what is durable."""

    def __init__(self, root: Path, disk: CrashDisk) -> None:
        self.disk, self.committer = disk, Committer()
        self.store = FileStore(root, STREAM_ID, limits=LIMITS, durability="disk", disk=disk, committer=self.committer)
        self.under_way: list[tuple[int, int]] = []  # (position, sequence)
        self.durable: list[int] = []
        self.lost = 0

    def publish(self, seq_hint: int) -> None:
        batch = Batch.of([("a", b"%09d" % seq_hint + bytes(SIZE))] * 2)
        try:
            self.store.append(batch)
        except StoreError:
            self.lost += 1
            return
        self.under_way.append((self.store.submit(), batch.seqs()[-1]))

    def look(self) -> bool:
        """Whether something was rolled back."""
        has_failed = self.store.core.log.failure() is not None
        if has_failed:
            try:
                self.store.retry()
            except StoreError:
                return False
        committed = self.store.committed_position
        while self.under_way and self.under_way[0][0] <= committed:
            position, seq = self.under_way.pop(0)
            try:
                self.store.check_position(position)
            except StoreError:
                self.lost += 1
                continue
            self.durable.append(seq)
            self.disk.mark(seq)
        return has_failed

    def finish(self) -> None:
        self.disk.clear_faults()
        while self.under_way:
            self.look()
        self.store.after_commit()

    def stop(self) -> None:
        self.store.stop()
        self.committer.stop()


def test_a_crash_keeps_what_a_sync_had_covered(room: Path) -> None:
    seed = chunk_seed("early writes", "disk")
    disk = CrashDisk(room)
    disk.sync_delay_us = 4_000
    writer = Writer(room / "s", disk)
    for n in range(BATCHES):
        writer.publish(n)
        writer.look()
    writer.finish()
    assert len(writer.durable) == BATCHES
    syncs = [op for op in disk.ops if op.kind == "sync_file"]
    beside = [op for op in disk.ops if op.kind == "pwrite" and any(s.start <= op.index < s.index for s in syncs)]
    assert beside, "nothing was written while something was synced"
    writer.stop()
    check_images(disk, room / "images", STATES // 10, seed, check)


def check(image: CrashImage) -> None:
    answered = image.mark or 0
    with booted(image.is_power_cut):
        store = FileStore(image.path / "s", STREAM_ID, limits=LIMITS, durability="disk")
    for seq in range(1, answered + 1):
        assert len(store.load(seq).data) == SIZE + 9
    assert store.state().last_seq >= answered
    store.stop()


def check_killed(root: Path, copy: Path, durable: list[int]) -> None:
    """A kill right after a roll back: what was refused is not there, what was promised is."""
    shutil.copytree(root, copy)
    store = FileStore(copy, STREAM_ID, limits=LIMITS, durability="disk")
    assert [message.seq for message in store.read()] == list(range(1, (durable or [0])[-1] + 1))
    store.stop()
    shutil.rmtree(copy)


@pytest.mark.parametrize("kind", ["pwrite", "sync_file", "sync_dir", "create_file"])
def test_a_fault_while_both_are_under_way(room: Path, kind: str) -> None:
    seed = chunk_seed("early faults", kind)
    chance = random.Random(seed)
    for number in range(max(4, STATES // 25)):
        disk = CrashDisk(room)
        disk.sync_delay_us = 2_000
        root = room / f"s{number}"
        writer = Writer(root, disk)
        for n in range(BATCHES):
            if chance.random() < 0.15:
                disk.clear_faults()
                code = errno.ENOSPC if chance.random() < 0.5 else errno.EIO
                disk.fail_at(chance.randint(1, 4), code, kinds=kind, short=kind == "pwrite")
            writer.publish(n)
            if writer.look():
                check_killed(root, room / "copy", writer.durable)
        writer.finish()
        found = {message.seq: message.data for message in writer.store.read()}
        assert found.keys() >= set(writer.durable), f"seed {seed}, run {number}"
        writer.publish(BATCHES)
        writer.finish()
        assert writer.durable, "it does not go on"  # all before may have been lost with one sync
        writer.stop()
        again = FileStore(root, STREAM_ID, limits=LIMITS, durability="disk")
        assert {message.seq: message.data for message in again.read()}.items() >= found.items()
        again.stop()
