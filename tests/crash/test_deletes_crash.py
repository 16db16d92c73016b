"""DELETES in crash images: a removal by a user that was acknowledged is known after any cut, and no other removal is.

`N=` sets the images in all (default 400), `SEED=` another campaign.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.base.seq_set import SeqSet
from penstock.store.base import ROLLUP
from penstock.store.deletes.deletes import read_deletes
from penstock.store.deletes.deletes_file import BY_USER
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.store.write.batch import Batch
from penstock.testing import CrashDisk, CrashImage, FakeClock, crash_images
from support.crash_cases import STREAM_ID, booted, campaign_size, chunk_seed

pytestmark = pytest.mark.campaign
SECOND = 10**9
LIMITS = Limits(block_size=3000, max_age_ns=60 * SECOND, max_msgs=150)
STEPS = 25
RUNS = 4
PER_RUN = max(1, campaign_size(400) // (2 * RUNS))
WHATS = ("append", "append", "append", "remove", "range", "erase", "subject", "floor", "rollup", "age", "reopen")


class Story:
    """One run: after each step, which sequences a user has removed, and which existed."""

    def __init__(self, root: Path, durability: str, seed: int, disk: CrashDisk) -> None:
        self.root, self.durability, self.disk = root, durability, disk
        self.chance, self.clock = random.Random(seed), FakeClock()
        self.taken: list[set[int]] = [set()]
        self.what = ["open"]

    def run(self) -> None:
        store = self.open(self.root, self.disk)
        for step in range(STEPS):
            alive = _alive(store)
            what = self.chance.choice(WHATS) if step else "append"
            store, is_by_user = self.take(store, what)
            self.taken.append(self.taken[-1] | (alive - _alive(store) if is_by_user else set()))
            self.what.append(what)
            self.disk.mark(step + 1)
        store.stop()
        self.taken.append(self.taken[-1])

    def open(self, root: Path, disk: CrashDisk | None = None) -> FileStore:
        return FileStore(
            root, STREAM_ID, name="CASE", limits=LIMITS, durability=self.durability, clock=self.clock, disk=disk
        )

    def take(self, store: FileStore, what: str) -> tuple[FileStore, bool]:
        """The store, and whether a user removed the missing messages."""
        seq = self.chance.randint(store.index.first_seq, store.index.last_seq + 1)
        if what == "append":
            fill(store, self.chance.randint(1, 80))
        elif what == "age":
            self.clock.advance(self.chance.choice([20, 61]) * SECOND)
            store.expire(self.clock.now_ns())
        elif what == "reopen":
            store.stop()
            store = self.open(self.root, self.disk)
        elif what == "remove":
            store.remove(seq)
        elif what == "range":
            store.remove_many(range(seq, seq + 60))
        elif what == "erase":
            store.erase(seq)
        elif what == "subject":
            store.purge_ex("a.1")
        elif what == "floor":
            store.purge_ex(seq=seq)
        elif what == "rollup":
            store.compact(seq, ROLLUP)
        if self.chance.random() < 0.7:
            housekeep(store)
        return store, what not in ("append", "age", "reopen")


def fill(store: FileStore, count: int) -> None:
    store.append(Batch.of([(f"a.{n % 3}", bytes(80)) for n in range(count)]))
    store.commit()


def housekeep(store: FileStore) -> None:
    for _ in range(2):
        store.sync()
        store.after_commit()


def _alive(store: FileStore) -> set[int]:
    return {message.seq for message in store.read()}


def told(root: Path, last: int) -> set[int]:
    reasons = read_deletes(str(root), STREAM_ID).by_reason(SeqSet(), last)
    return {seq for reason in BY_USER for seq in reasons.get(reason, ())}


def check_image(story: Story, image: CrashImage) -> None:
    root, mark = image.path / "stream", image.mark or 0
    with booted(image.is_power_cut):
        store = story.open(root)
    try:
        last, alive = store.index.last_seq, _alive(store)
        for _ in range(2):
            found = told(root, last)
            assert not found & alive, "what is there was not taken away"
            # A floor above the end removes sequences that never held a message: the check skips those.
            stored = {seq for seq in range(1, last + 1) if not store.was_skipped(seq)}
            assert found & stored <= story.taken[mark + 1], "age and limits are nobody's delete"
            if story.durability == "disk" or not image.is_power_cut:
                assert story.taken[mark] - alive <= found, "what was told to a user is known"
                assert not story.taken[mark] & alive
            fill(store, 120)  # the limits remove the rest, and whole blocks
            housekeep(store)
            alive = _alive(store)
    finally:
        store.abandon()


@pytest.mark.parametrize("run", range(RUNS))
@pytest.mark.parametrize("durability", ["disk", "os"])
def test_a_crash_leaves_the_reasons_right(scratch: Path, durability: str, run: int) -> None:
    seed = chunk_seed("deletes", durability, run)
    (scratch / "run").mkdir()
    (scratch / "images").mkdir()
    disk = CrashDisk(scratch / "run")
    story = Story(scratch / "run" / "stream", durability, seed, disk)
    story.run()
    for image in crash_images(disk, scratch / "images", count=PER_RUN, seed=seed):
        try:
            check_image(story, image)
        except BaseException as error:
            mark = image.mark or 0
            error.add_note(f"{durability}, seed {seed}, steps {story.what[max(mark - 3, 0) : mark + 2]}")
            error.add_note(f"image: {image.description}")
            raise
        image.remove()
