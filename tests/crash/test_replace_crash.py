"""A power cut may tear a message that replaces another one: then the replaced message, which was acknowledged, is
there.

`N=` sets the images in all (default 600), `SEED=` another campaign.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.store.write.batch import Batch
from penstock.testing import CrashDisk, FakeClock, crash_images
from support.crash_cases import STREAM_ID, booted, campaign_size, chunk_seed

pytestmark = pytest.mark.campaign
SECOND = 10**9
KEYS = [f"k.{n}" for n in range(40)]
CASES = {
    "one message per subject": Limits(max_msgs_per_subject=1),
    "one message per subject in small blocks": Limits(max_msgs_per_subject=1, block_size=2000),
}
PER_CASE = max(1, campaign_size(600) // (2 * len(CASES)))


@pytest.mark.parametrize("limits", CASES.values(), ids=CASES)
@pytest.mark.parametrize("durability", ["disk", "os"])
def test_a_torn_write_takes_nothing_that_was_synced(scratch: Path, limits: Limits, durability: str) -> None:
    """Every key has one of the values that were written to it; also after a second open, when nothing is in doubt."""
    (scratch / "run").mkdir()
    (scratch / "images").mkdir()
    disk = CrashDisk(scratch / "run")

    def opened(root: Path, disk: CrashDisk | None = None) -> FileStore:
        return FileStore(root / "stream", STREAM_ID, limits=limits, clock=FakeClock(), durability=durability, disk=disk)

    store = opened(scratch / "run", disk)
    for value in (b"1", b"2", b"3"):
        store.append(Batch.of([(key, value * 60) for key in KEYS]))
        store.commit()
        store.sync()
        disk.mark(value)
    store.stop()
    seed = chunk_seed("replace", durability, limits)
    for image in crash_images(
        disk, scratch / "images", count=PER_CASE, seed=seed, modes=("torn", "reordered", "prefix")
    ):
        if image.mark is not None:
            for _ in range(2):
                with booted(image.is_power_cut):
                    again = opened(image.path)
                found = {message.subject: message.data[:1] for message in again.read()}
                again.stop()
                assert sorted(found) == sorted(KEYS), image.description
                assert all(value >= image.mark for value in found.values()), image.description
            for summary in (image.path / "stream" / "blocks").glob("*.sum"):
                summary.unlink()  # the blocks themselves say the same
            again = opened(image.path)
            assert {message.subject for message in again.read()} == set(KEYS), image.description
            again.abandon()
        image.remove()


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_no_subject_goes_without_its_marker(scratch: Path, durability: str) -> None:
    """max_age removes the last message of every subject; after a crash each subject has a message or a marker."""
    (scratch / "run").mkdir()
    (scratch / "images").mkdir()
    disk, clock = CrashDisk(scratch / "run"), FakeClock()
    limits = Limits(block_size=32_000, max_age_ns=600 * SECOND, marker_ttl_ns=60 * SECOND)

    def opened(root: Path, disk: CrashDisk | None = None) -> FileStore:
        return FileStore(root / "stream", STREAM_ID, limits=limits, clock=clock, durability=durability, disk=disk)

    store = opened(scratch / "run", disk)
    store.append(Batch.of([(KEYS[n % len(KEYS)], b"x" * 20) for n in range(400)]))
    store.commit()
    store.sync()
    disk.mark("stored")
    clock.advance(600 * SECOND)
    assert store.expire(clock.now_ns()) == 400
    store.stop()
    seed = chunk_seed("markers", durability)
    for image in crash_images(disk, scratch / "images", count=PER_CASE, seed=seed):
        if image.mark is not None:
            with booted(image.is_power_cut):
                again = opened(image.path)
            assert {message.subject for message in again.read()} == set(KEYS), image.description
            assert all(message.raw_headers for message in again.read()), "what was due has gone"
            again.abandon()
        image.remove()
