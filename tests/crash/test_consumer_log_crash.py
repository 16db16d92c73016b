"""Consumer logs in crash images: nothing that was synced is lost, every consumer is in a state that it once had.

`N=` sets the images in all (default 1200), `SEED=` another campaign.
"""

from __future__ import annotations

import errno
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.base.disk import Disk
from penstock.store.consumer_log.consumer_log import ConsumerLog, read_entries
from penstock.store.open.report import Report
from penstock.store.write.committer import Committer
from penstock.testing import SPACE_KINDS, SYNC_KINDS, CrashDisk, CrashImage, crash_images
from support.crash_cases import STREAM_ID, campaign_size, chunk_seed

pytestmark = pytest.mark.campaign
STEPS = 60
RUNS = 6
PER_RUN = max(1, campaign_size(1200) // RUNS)
WHATS = ("put", "put", "note", "note", "note", "note", "notes", "config", "remove", "fold", "sync", "reopen")
States = dict[int, tuple[bytes, bytes]]


class Story:
    """One run: all consumers after each step, and the last steps that were written and synced."""

    def __init__(self, folder: Path, disk: Disk, seed: int) -> None:
        self.folder, self.disk, self.chance = folder, disk, random.Random(seed)
        self.all: States = {}
        self.states: list[States] = [{}]
        self.safe: list[tuple[int, int]] = [(0, 0)]  # the steps that must survive a kill, and a power cut
        self.committer = Committer()
        self.log = self.open()

    def open(self) -> ConsumerLog:
        return ConsumerLog(self.disk, str(self.folder), STREAM_ID, "disk", self.committer, Report())

    def step(self, what: str) -> None:
        chance, number = self.chance, self.chance.choice(list(self.all) or [0])
        if what == "put" or not number:
            number = self.log.next_number
            self.put(number, b"config %d" % number, bytes(chance.choice([0, 10, 700])))
        elif what == "config":
            self.put(number, self.all[number][0] + b"+", self.all[number][1])
        elif what == "remove" and len(self.all) > 1:
            del self.all[number]
            self.log.remove(number)
        elif what.startswith("note"):
            for _ in range(chance.choice([1, 2, 40]) if what == "notes" else 1):
                number = chance.choice(list(self.all))
                self.note(number, chance.randbytes(chance.choice([1, 20, 400])))
        elif what == "fold":
            self.fold()
        elif what == "reopen":
            self.turn()
            self.log.close()
            self.log = self.open()
            assert told(self.log) == self.all

    def put(self, number: int, meta: bytes, state: bytes) -> None:
        self.all[number] = meta, state
        self.log.put(number, meta, state)

    def note(self, number: int, changes: bytes) -> None:
        meta, state = self.all[number]
        self.all[number] = meta, state + changes
        self.log.note(number, changes)

    def fold(self) -> None:
        self.log.fold((number, *one) for number, one in self.all.items())

    def turn(self) -> None:
        if self.log.wants_fold:
            self.fold()
        self.log.submit()

    def run(self) -> None:
        assert isinstance(self.disk, CrashDisk)
        for n in range(1, STEPS + 1):
            what = self.chance.choice(WHATS)
            self.step(what)
            self.turn()
            self.log.flush(False)
            written, synced = n, self.safe[-1][1]
            if what in ("sync", "reopen"):
                self.log.wait()
                synced = n
            self.states.append(dict(self.all))
            self.safe.append((written, synced))
            self.disk.mark(n)
        self.log.close()
        self.committer.stop()


def told(log: ConsumerLog) -> States:
    return {number: (one.meta, b"".join([one.state, *one.notes])) for number, one in log.entries.items()}


def check_image(story: Story, image: CrashImage) -> None:
    folder, mark = image.path / "stream" / "consumers", image.mark or 0
    report = Report()
    before = {
        number: (one.meta, b"".join([one.state, *one.notes]))
        for number, one in read_entries(Disk(), str(folder), STREAM_ID, report).items()
    }
    window = story.states[story.safe[mark][image.is_power_cut] : mark + 2]
    for number in {number for state in window for number in state} | before.keys():
        seen = [state.get(number) for state in window]
        found = before.get(number)
        assert found in seen or partly(seen, found), f"consumer {number}: {found!r:.60}"
    if not image.is_power_cut:
        assert report.is_clean, [str(one) for one in report.findings]
    check_goes_on(folder, before)


def partly(seen: list[tuple[bytes, bytes] | None], found: tuple[bytes, bytes] | None) -> bool:
    """Whether a step that changes many consumers may have survived in part."""
    if found is None:
        return False
    return any(
        old is not None and new is not None and new[1].startswith(found[1]) and found[1].startswith(old[1])
        for old, new in pairwise(seen)
    )


def check_goes_on(folder: Path, before: States) -> None:
    """The log accepts changes, and keeps them and everything else over a stop."""
    committer = Committer()
    log = ConsumerLog(Disk(), str(folder), STREAM_ID, "disk", committer, Report())
    assert told(log) == before
    number = log.next_number
    assert number not in before
    log.put(number, b"new", b"")
    wanted = before | {number: (b"new", b"")}
    log.fold((each, *one) for each, one in wanted.items())
    log.note(number, b"x")
    log.close()
    committer.stop()
    report = Report()
    entries = read_entries(Disk(), str(folder), STREAM_ID, report)
    wanted[number] = b"new", b"x"
    assert {each: (one.meta, b"".join([one.state, *one.notes])) for each, one in entries.items()} == wanted
    assert report.is_clean, [str(one) for one in report.findings]


@pytest.mark.parametrize("run", range(RUNS))
def test_a_crash_loses_nothing_that_was_synced(scratch: Path, run: int) -> None:
    seed = chunk_seed("consumer log", run)
    (scratch / "run" / "stream").mkdir(parents=True)
    (scratch / "images").mkdir()
    disk = CrashDisk(scratch / "run")
    story = Story(scratch / "run" / "stream" / "consumers", disk, seed)
    story.run()
    for image in crash_images(disk, scratch / "images", count=PER_RUN, seed=seed):
        try:
            check_image(story, image)
        except BaseException as error:
            error.add_note(f"seed {seed}, image: {image.description}")
            raise
        image.remove()


@pytest.mark.parametrize("fault", ["eio", "enospc", "sync"])
def test_a_failure_at_any_call_loses_nothing(scratch: Path, fault: str) -> None:
    """Fail each call in turn: memory stays correct, and all of it is on disk after a retry."""
    code, kinds = {
        "eio": (errno.EIO, SPACE_KINDS | SYNC_KINDS),
        "enospc": (errno.ENOSPC, SPACE_KINDS),
        "sync": (errno.EIO, SYNC_KINDS),
    }[fault]
    for n in range(1, 200):
        folder = scratch / str(n)
        folder.mkdir()
        disk = CrashDisk(folder)
        story = Story(folder / "consumers", disk, 7)
        disk.fail_at(n, code, kinds=kinds)
        for what in ("put", "put", "sync", "note", "fold", "note", "sync", "notes", "remove", "fold", "sync", "note"):
            story.step(what)
            story.turn()
            if what == "sync" and story.log.flush(True) < 0:
                assert story.log.failure() is not None
        if story.log.failure() is not None:
            story.log.retry()
        story.turn()
        if story.log.flush(True) < 0:  # the fault fired just now
            story.log.retry()
            story.turn()
        story.log.close()
        story.committer.stop()
        report = Report()
        entries = read_entries(Disk(), str(folder / "consumers"), STREAM_ID, report)
        found = {number: (one.meta, b"".join([one.state, *one.notes])) for number, one in entries.items()}
        assert found == story.all and report.is_clean, f"call {n}"
        if not disk.fired:
            return
    raise AssertionError("the calls did not end")


def test_a_sync_beside_the_commit_threads_covers_every_file(scratch: Path) -> None:
    """A commit thread that had finished with an old file removed it from the list during another thread's sync, which
    then left out the new file and reported it as synced.
    """
    (scratch / "stream").mkdir()
    disk = CrashDisk(scratch / "stream")
    story = Story(scratch / "stream" / "consumers", disk, 1)
    story.step("put")
    story.turn()
    story.log.wait()
    with ThreadPoolExecutor(1) as pool, disk.holding("sync_file"):
        story.step("note")
        story.turn()
        story.log.sync()
        disk.wait_held()  # the commit thread is about to sync the old file
        story.fold()
        story.log.submit()
        flushed = pool.submit(story.log.flush, True)
        disk.wait_held(2)
        disk.release()
        assert flushed.result() == 0
    synced = {op.path for op in disk.ops if op.kind == "sync_file"}
    assert any(str(path).endswith("000002.log") for path in synced)
    story.log.close()
    story.committer.stop()
