"""A kill at any call while streams and consumers are created, changed and deleted: every state opens, and none is
reported as damage.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.check.repair import repair_store
from penstock.check.store import check_store
from penstock.errors import NotAStore
from penstock.testing import CrashDisk, CrashImage, crash_images
from support.crash_cases import booted, campaign_size, chunk_seed

pytestmark = pytest.mark.campaign
STATES = campaign_size(1_000) // 5


def record(root: Path) -> CrashDisk:
    root.mkdir()
    disk = CrashDisk(root)
    for account in ("$G", "APP"):
        with penstock.open(root / "db", disk=disk, account=account) as db:
            for name in ("A", "B"):
                stream = db.stream(name, max_msgs=9)
                stream.publish(name, b"kept")
            stream.consumer("c")
            stream.delete_consumer("c")
            stream.consumer("d")
            db.stream("A", max_msgs=5)
            db.delete_stream("B")
    disk.mark("all")
    return disk


def check(image: CrashImage) -> None:
    root = image.path / "db"
    try:
        found = check_store(str(root))
    except NotAStore:
        found = None  # it was just being created
    else:
        power_cut = {"damaged file", "missing file", "damaged consumers"} if image.is_power_cut else set()
        told = [problem for problem in found.damage if problem.kind not in power_cut]
        assert not told, f"called damage: {told}"
    with booted(image.is_power_cut):
        for account in ("$G", "APP"):
            with penstock.open(root, account=account) as db:
                for name in db.streams():
                    db.get_stream(name).publish(name, b"goes on")
                db.stream("B", max_msgs=9).publish("B", b"made again")
    assert check_store(str(root)).is_ok
    assert not list(root.glob("*/*.deleted")) and not list(root.rglob("*.tmp"))


def test_every_state_opens_and_is_clean_then(scratch: Path) -> None:
    seed = chunk_seed("half made")
    disk = record(scratch / "run")
    (scratch / "images").mkdir()
    for mode in ("kill", None):
        modes = {"modes": (mode,)} if mode else {}
        for image in crash_images(disk, scratch / "images", count=STATES, seed=seed, **modes):  # type: ignore[arg-type]
            try:
                check(image)
            except BaseException as error:
                error.add_note(f"seed {seed}, image: {image.description}")
                raise
            image.remove()


def test_a_stream_that_cannot_be_repaired_does_not_keep_the_others_from_it(scratch: Path) -> None:
    root = scratch / "db"
    with penstock.open(root) as db:
        for name in ("A", "B"):
            for n in range(5):
                db.stream(name).publish(name, b"message %d" % n)
    (root / "$G" / "HALF" / "blocks").mkdir(parents=True)
    (root / "$G" / "HALF" / "config.json.1-00.tmp").write_bytes(b"{")
    found = check_store(str(root))
    assert found.is_ok and "being created" in found.streams[-1].notes[0]
    for name in ("config.json", "config.copy.json"):
        (root / "$G" / "A" / name).unlink()
    block = root / "$G" / "A" / "blocks" / "000001.blk"
    block.write_bytes(b"?" * 9000)
    block.with_suffix(".sum").unlink(missing_ok=True)
    good = (root / "$G" / "B" / "blocks" / "000001.blk").read_bytes()
    (root / "$G" / "B" / "blocks" / "000001.blk").write_bytes(good.replace(b"message 2", b"massage 2"))
    done = repair_store(str(root), None)
    assert list(done.failed) == ["A"] and "no block tells its identity" in done.failed["A"]
    assert done.lost == {"B": [(3, 4)]}
    assert done.after is not None and not done.after.is_ok
    assert not (root / "$G" / "HALF").exists()
    assert block.read_bytes() == b"?" * 9000, "what is not understood stays"
