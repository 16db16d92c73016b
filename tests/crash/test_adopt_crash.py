"""A crash at any point of staging and adopting: a batch is there completely or not at all; if it is sent again, it is
stored once.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

import penstock
from penstock.base.disk import Disk
from penstock.db.adopt import root_of
from penstock.db.stage import Stage
from penstock.errors import PenstockError
from penstock.store.write.batch import Batch
from penstock.testing import CrashDisk, CrashImage, crash_images
from support.crash_cases import booted, campaign_size, chunk_seed

pytestmark = pytest.mark.campaign
BATCHES = 5
STATES = campaign_size(1_000) // 10
FAULTS = (errno.EIO, errno.ENOSPC)


@contextmanager
def small_blocks() -> Iterator[None]:
    with patch("penstock.stream.stream.block_size", lambda config: 2000):
        yield


def messages(seed: int, batch: int, task: int) -> list[tuple[str, bytes]]:
    """Batches of many blocks and of a part of one by turns; the same every time they are generated."""
    chance = random.Random(f"{seed} {batch} {task}")
    count = chance.randint(30, 60) if batch % 2 else chance.randint(0, 3)
    return [(f"a.{chance.randint(0, 3)}", b"%d/%d/%d " % (batch, task, n) + bytes(60)) for n in range(count)]


def bring(db: penstock.Database, root: Path, seed: int, batch: int, disk: Disk) -> None:
    infos = []
    for task in range(2):
        stage = Stage(root_of(root, "S"), f"q-{batch}", f"{task}-{os.urandom(4).hex()}", disk=disk)
        try:
            stage.append(Batch.of(messages(seed, batch, task)))
            infos.append(stage.finish())
        except BaseException:
            stage.store.abandon()
            raise
    db.get_stream("S").adopt(f"q-{batch}", infos, query="q", batch=batch)


def of_batch(seed: int, batch: int) -> list[bytes]:
    return [data for task in range(2) for _, data in messages(seed, batch, task)]


def record(root: Path, durability: str, seed: int) -> CrashDisk:
    root.mkdir()
    disk = CrashDisk(root)
    with small_blocks(), penstock.open(root / "db", durability=durability, disk=disk) as db:
        db.stream("S", subjects=["a.>"])
        for batch in range(BATCHES):
            bring(db, root / "db", seed, batch, disk)
            disk.mark(batch)
            db.get_stream("S").publish("a.x", b"published %d" % batch)
        disk.mark(BATCHES)
    return disk


def check(image: CrashImage, seed: int) -> None:
    root = image.path / "db"
    with small_blocks():
        with booted(image.is_power_cut), penstock.open(root) as db:
            if "S" not in db:
                assert image.mark is None
                return
            check_batches(db, seed, -1 if image.mark is None else min(image.mark, BATCHES - 1))
            for batch in range(BATCHES):
                bring(db, root, seed, batch, Disk())
            check_all(db, seed)
        with penstock.open(root) as db:
            check_all(db, seed)
            assert not [found for found in db.get_stream("S").findings if found.kind != "rebuilt"]


def batches_in(db: penstock.Database) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for msg in db.get_stream("S").read():
        if not msg.data.startswith(b"published"):
            found.setdefault(int(msg.data.partition(b"/")[0]), []).append(msg.data)
    return found


def check_batches(db: penstock.Database, seed: int, acked: int) -> None:
    found = batches_in(db)
    for batch in range(BATCHES):
        whole = of_batch(seed, batch)
        assert found.get(batch, []) in ([], whole), f"batch {batch} is there in part"
        if batch <= acked:
            assert found.get(batch, []) == whole, f"batch {batch} was acknowledged"


def check_all(db: penstock.Database, seed: int) -> None:
    found = batches_in(db)
    assert found == {batch: of_batch(seed, batch) for batch in range(BATCHES) if of_batch(seed, batch)}


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_a_crash_leaves_batches_whole(scratch: Path, durability: str) -> None:
    seed = chunk_seed("adopt", durability)
    disk = record(scratch / "run", durability, seed)
    (scratch / "images").mkdir()
    for image in crash_images(disk, scratch / "images", count=STATES // 2, seed=seed):
        try:
            check(image, seed)
        except BaseException as error:
            error.add_note(f"{durability}, seed {seed}, image: {image.description}")
            raise
        image.remove()


@pytest.mark.parametrize("is_lasting", [False, True])
def test_a_failing_disk_leaves_batches_whole(scratch: Path, is_lasting: bool) -> None:
    """Every n-th call fails, once or from then on: the batch fails, and is stored once when it is sent again."""
    seed = chunk_seed("adopt faults", is_lasting)
    chance = random.Random(seed)
    for number in range(max(20, STATES // 4)):
        root = scratch / f"run{number}"
        root.mkdir()
        disk = CrashDisk(root)
        with small_blocks():
            with penstock.open(root / "db", disk=disk) as db:
                db.stream("S", subjects=["a.>"])
                failed = acked = 0
                for batch in range(BATCHES):
                    disk.fail_at(chance.randint(1, 120), chance.choice(FAULTS), persistent=is_lasting)
                    try:
                        bring(db, root / "db", seed, batch, disk)
                        acked = batch + 1
                    except (PenstockError, OSError):
                        failed += 1
                    disk.clear_faults()
                    if acked <= batch:
                        bring(db, root / "db", seed, batch, disk)
                    check_batches(db, seed, batch)
                check_all(db, seed)
            with penstock.open(root / "db") as db:
                check_all(db, seed)
