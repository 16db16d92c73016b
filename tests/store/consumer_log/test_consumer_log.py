"""The consumers of a stream on disk: what is read back from a log that was closed, cut, damaged, or not written."""

from __future__ import annotations

import errno
import os
import select
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.base.disk import Disk
from penstock.errors import DiskFull, NewerFormat, WriteFailed
from penstock.format.constants import RECORDS_START
from penstock.format.consumer_log_record import encode_record
from penstock.store.consumer_log.consumer_log import ConsumerLog, read_entries
from penstock.store.consumer_log.entries import LogHeader, list_files
from penstock.store.open.report import Report
from penstock.store.write.committer import Committer
from penstock.testing import CrashDisk

STREAM_ID = bytes(range(16))


class Owner:
    """Keeps consumers in memory as the owner of a log does: their meta, and as state all their changes so far."""

    def __init__(
        self, folder: Path, disk: Disk | None = None, durability: str = "os", committer: Committer | None = None
    ) -> None:
        self.folder, self.committer = folder, committer or Committer()
        self.report = Report()
        self.log = ConsumerLog(disk or Disk(), str(folder), STREAM_ID, durability, self.committer, self.report)
        self.all = {
            number: (entry.meta, b"".join([entry.state, *entry.notes])) for number, entry in self.log.entries.items()
        }
        self.log.forget_entries()

    def put(self, number: int, meta: bytes, state: bytes = b"") -> None:
        self.all[number] = meta, state
        self.log.put(number, meta, state)

    def note(self, number: int, changes: bytes) -> None:
        meta, state = self.all[number]
        self.all[number] = meta, state + changes
        self.log.note(number, changes)

    def remove(self, number: int) -> None:
        del self.all[number]
        self.log.remove(number)

    def fold(self) -> None:
        self.log.fold((number, *one) for number, one in self.all.items())

    def turn(self) -> int:
        """Write the changes at the end of a loop turn, as consumers do."""
        if self.log.wants_fold:
            self.fold()
        return self.log.submit()

    def close(self) -> None:
        if self.log.wants_fold:
            self.fold()
        self.log.close()
        self.committer.stop()

    def abandon(self) -> None:
        self.log.abandon()
        self.committer.stop()


def states(folder: Path, report: Report | None = None) -> dict[int, tuple[bytes, bytes]]:
    """What the files hold: the meta of each consumer, and its state with the later changes applied."""
    entries = read_entries(Disk(), str(folder), STREAM_ID, report or Report())
    return {number: (one.meta, b"".join([one.state, *one.notes])) for number, one in entries.items()}


def files(folder: Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.is_dir() else []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "consumers"


@pytest.fixture
def owner(folder: Path) -> Iterator[Owner]:
    made = Owner(folder)
    yield made
    made.abandon()


def small_log(folder: Path) -> None:
    """Two consumers in a fold, one created after it, changes of all of them, one removed."""
    made = Owner(folder)
    made.put(1, b"one", b"a")
    made.put(2, b"two", b"b")
    made.turn()
    made.put(3, b"three", b"c")
    made.put(4, b"four", b"d")
    for n in range(4):
        made.note(1, b"<1.%d>" % n)
        made.note(2, b"<2.%d>" % n)
        made.note(3, b"<3.%d>" % n)
        made.turn()
    made.remove(4)
    made.turn()
    made.close()


SMALL = {
    1: (b"one", b"a<1.0><1.1><1.2><1.3>"),
    2: (b"two", b"b<2.0><2.1><2.2><2.3>"),
    3: (b"three", b"c<3.0><3.1><3.2><3.3>"),
}


def test_a_stream_without_consumers_has_no_log(owner: Owner, folder: Path) -> None:
    owner.turn()
    owner.log.close()
    assert not folder.exists() and states(folder) == {}


def test_what_was_told_is_told_again(folder: Path) -> None:
    small_log(folder)
    report = Report()
    entries = read_entries(Disk(), str(folder), STREAM_ID, report)
    assert states(folder) == SMALL and not report.findings
    assert entries[3].state == b"c" and entries[3].notes == [b"<3.0>", b"<3.1>", b"<3.2>", b"<3.3>"]
    again = Owner(folder)
    assert again.all == SMALL and again.log.next_number == 5, "no number is given twice"
    again.note(2, b"<more>")
    again.close()
    assert states(folder)[2][1].endswith(b"<2.3><more>") and files(folder) == ["000002.log"]


def test_a_number_is_not_given_twice_however_often_the_log_is_folded(folder: Path) -> None:
    small_log(folder)
    for _ in range(3):
        again = Owner(folder)
        again.note(1, b"x")
        again.close()
    assert Owner(folder).log.next_number == 5


def test_an_open_writes_nothing_until_something_changes(folder: Path) -> None:
    small_log(folder)
    again = Owner(folder)
    assert not again.log.wants_fold
    again.turn()
    again.close()
    assert files(folder) == ["000001.log"]


def test_a_cut_keeps_all_that_was_whole_before_it(folder: Path) -> None:
    """Cut the file at every byte: each consumer is in a state that it once had, and no consumer is missing."""
    small_log(folder)
    path = folder / "000001.log"
    data = path.read_bytes()
    before: dict[int, tuple[bytes, bytes]] = {}
    for cut in [*range(0, RECORDS_START, 61), *range(RECORDS_START, len(data) + 1)]:
        path.write_bytes(data[:cut])
        report = Report()
        found = states(folder, report)
        assert report.is_clean, [str(one) for one in report.findings]
        for number, (meta, state) in before.items():
            if number != 4:
                assert found[number][0] == meta and found[number][1].startswith(state)
        before = found
    assert before == SMALL


def test_a_flipped_byte_costs_at_most_the_tail_of_one_consumer(folder: Path) -> None:
    """Flip each byte: no consumer is deleted, none comes back, and at most one returns to an earlier state."""
    small_log(folder)
    path = folder / "000001.log"
    data = path.read_bytes()
    for at in [*range(256), *range(4096, 4096 + 256), *range(RECORDS_START, len(data))]:
        flipped = bytearray(data)
        flipped[at] ^= 0x21
        path.write_bytes(flipped)
        report = Report()
        found = states(folder, report)
        assert found.keys() == SMALL.keys(), f"byte {at}"
        changed = [number for number in SMALL if found[number] != SMALL[number]]
        assert len(changed) <= 1, f"byte {at}"
        for number in changed:
            assert SMALL[number][1].startswith(found[number][1])
        told = [one.kind for one in report.findings]
        assert told, f"byte {at}: nothing was said"
        assert not report.is_clean or told == ["torn tail"], f"byte {at}"


def test_notes_behind_a_missing_one_do_not_count_for_their_consumer(folder: Path) -> None:
    small_log(folder)
    path = folder / "000001.log"
    data = path.read_bytes()
    at = data.index(b"<1.1>")
    path.write_bytes(data[:at] + b"?" + data[at + 1 :])
    report = Report()
    entries = read_entries(Disk(), str(folder), STREAM_ID, report)
    assert entries[1].notes == [b"<1.0>"] and entries[1].is_stale
    assert states(folder)[2] == SMALL[2] and not entries[2].is_stale
    texts = [one.text for one in report.findings]
    assert any("consumer number 1" in text and "delivers again" in text for text in texts), texts
    assert any(one.offset and one.size for one in report.findings)


def test_a_damaged_log_is_folded_anew_and_set_aside(folder: Path) -> None:
    small_log(folder)
    path = folder / "000001.log"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"<1.1>", b"<1?1>"))
    again = Owner(folder)
    assert not again.report.is_clean and again.log.wants_fold
    again.close()
    assert files(folder) == ["000001.log.damaged", "000002.log"]
    third = Owner(folder)
    assert third.report.is_clean and third.all == SMALL | {1: (b"one", b"a<1.0>")}
    third.note(1, b"!")  # the records that were read behind the gap are not mixed in
    third.close()
    assert states(folder)[1] == (b"one", b"a<1.0>!")


def test_a_file_of_another_stream_is_set_aside(folder: Path) -> None:
    small_log(folder)
    report = Report()
    assert read_entries(Disk(), str(folder), bytes(16), report) == {}
    assert [one.kind for one in report.findings] == ["set aside"]


def test_a_newer_version_is_refused(folder: Path) -> None:
    small_log(folder)
    path = folder / "000001.log"
    data = path.read_bytes()
    path.write_bytes(data + encode_record(9, 1, 1, b"", int.from_bytes(data[40:48], "little")))
    with pytest.raises(NewerFormat, match="upgrade"):
        Owner(folder)


def test_a_log_is_folded_when_it_has_grown(folder: Path) -> None:
    made = Owner(folder)
    for number in range(1, 4):
        made.put(number, b"meta %d" % number)
    made.turn()
    seen: set[str] = set()
    for n in range(3000):
        made.log.note(1 + n % 3, bytes(1000))
        made.turn()
        seen.update(files(folder))
    assert seen == {"000001.log", "000002.log", "000003.log"}
    made.log.flush(True)
    made.turn()
    assert files(folder) == ["000003.log"]
    made.close()
    assert states(folder).keys() == {1, 2, 3}


def test_the_old_file_stays_until_the_new_one_is_synced(owner: Owner, folder: Path) -> None:
    owner.put(1, b"one")
    owner.turn()
    owner.log.flush(False)
    owner.fold()
    owner.log.submit()
    owner.log.flush(False)
    owner.log.submit()
    assert files(folder) == ["000001.log", "000002.log"]
    owner.log.flush(True)
    owner.log.submit()
    assert files(folder) == ["000002.log"]


def test_more_than_the_image_holds_is_kept_all_the_same(folder: Path) -> None:
    """A turn with more changes than the buffer holds ends in a fold, which holds them."""
    made = Owner(folder)
    made.put(1, b"one")
    made.turn()
    for n in range(60):
        made.note(1, b"%05d" % n * 10000)
    position = made.log.position
    assert made.log.submit() == position and not made.log.committed(position), "nothing is promised before the fold"
    assert made.log.wants_fold
    made.turn()
    made.log.wait()
    assert made.log.committed(position)
    wanted = dict(made.all)
    made.close()
    assert states(folder) == wanted


def test_an_unfinished_fold_leaves_the_file_before_it_in_force(folder: Path) -> None:
    small_log(folder)
    made = Owner(folder)
    made.note(1, b"<new>")
    made.fold()
    made.log.submit()
    made.log.flush(False)
    made.abandon()
    new = folder / "000002.log"
    whole = new.read_bytes()
    for cut in [*range(0, RECORDS_START, 61), *range(RECORDS_START, len(whole) + 1)]:
        new.write_bytes(whole[:cut])
        report = Report()
        found = states(folder, report)
        assert report.is_clean and found.keys() == SMALL.keys()
        for number, (meta, state) in found.items():
            assert meta == SMALL[number][0] and state.startswith(SMALL[number][1])
    assert states(folder)[1][1].endswith(b"<new>")


def test_the_commit_thread_syncs_what_is_waited_for(folder: Path) -> None:
    made = Owner(folder, durability="disk")
    fd = os.eventfd(0)
    made.log.add_notify(fd)
    made.put(1, b"one")
    position = made.turn()
    assert not made.log.committed(position)
    made.log.sync(position)
    while not made.log.committed(position):
        assert select.select([fd], [], [], 10)[0], "nobody was told"
        os.eventfd_read(fd)
    made.note(1, b"x")
    position = made.turn()
    assert made.log.written_position == position, "small writes are made at once"
    made.log.wait()
    assert made.log.committed(position)
    made.close()
    os.close(fd)


@pytest.mark.parametrize("durability", ["disk", "os", "lazy"])
def test_what_is_committed_follows_the_stream(folder: Path, durability: str) -> None:
    made = Owner(folder, durability=durability)
    made.put(1, b"one")
    if durability == "lazy":
        assert made.log.committed(made.log.position)
    made.turn()
    assert made.log.committed(made.log.position) == (durability != "disk")
    made.log.wait()
    assert made.log.committed(made.log.position)
    made.close()


@pytest.mark.parametrize(
    ("kind", "code"), [("pwrite", errno.ENOSPC), ("sync_file", errno.EIO), ("create_file", errno.EIO)]
)
def test_nothing_is_lost_by_a_write_that_fails(tmp_path: Path, kind: str, code: int) -> None:
    disk = CrashDisk(tmp_path)
    folder = tmp_path / "consumers"
    made = Owner(folder, disk, "disk")
    if kind != "create_file":
        made.put(1, b"one", b"a")
        made.turn()
        made.log.wait()
    else:
        made.all[1] = b"one", b"a"
        made.log.put(1, b"one", b"a")
    disk.fail_at(1, code, kinds={kind}, persistent=True)
    made.note(1, b"<lost?>")
    made.turn()
    with pytest.raises(DiskFull if code == errno.ENOSPC else WriteFailed):
        made.log.wait()
    position = made.log.position
    assert made.log.failure() is not None and not made.log.committed(position)
    made.note(1, b"<later>")
    assert not made.log.wants_fold, "not at every turn while the disk is full"
    made.log.retry()
    made.turn()
    with pytest.raises(WriteFailed):
        made.log.wait()
    disk.clear_faults()
    made.log.retry()
    made.turn()
    assert made.log.failure() is None
    made.log.wait()
    assert made.log.committed(position)
    made.note(1, b"<after>")
    made.close()
    assert states(folder) == {1: (b"one", b"a<lost?><later><after>")}
    assert len(files(folder)) == 1


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    disk = CrashDisk(tmp_path)
    made = Owner(tmp_path / "consumers", disk)
    disk.fail_at(1, errno.ENOSPC, kinds={"make_dir"})
    made.put(1, b"one")
    made.turn()
    assert isinstance(made.log.failure(), DiskFull) and not made.log.wants_fold
    made.log.retry()
    made.close()
    assert states(tmp_path / "consumers") == {1: (b"one", b"")}


def test_a_close_that_could_not_write_says_so(tmp_path: Path) -> None:
    disk = CrashDisk(tmp_path)
    made = Owner(tmp_path / "consumers", disk)
    made.put(1, b"one")
    disk.fail_at(1, errno.ENOSPC, kinds={"pwrite"}, persistent=True)
    with pytest.raises(DiskFull):
        made.close()
    made.committer.stop()


def test_a_stream_that_is_deleted_takes_its_log_with_it(owner: Owner, folder: Path) -> None:
    owner.put(1, b"one")
    owner.turn()
    owner.log.delete()
    assert not folder.exists()


def test_a_change_of_somebody_unknown_is_a_mistake(owner: Owner) -> None:
    with pytest.raises(KeyError):
        owner.log.note(5, b"x")
    with pytest.raises(KeyError):
        owner.log.remove(5)


def test_a_reader_beside_the_writer_sees_what_is_written(owner: Owner, folder: Path) -> None:
    for number in range(1, 6):
        owner.put(number, b"meta")
    for _ in range(50):
        for number in range(1, 6):
            owner.note(number, b"+")
        owner.fold()
        owner.log.submit()
        owner.log.flush(True)
        owner.log.submit()
        assert states(folder) == owner.all
    assert len(list_files(str(folder))) == 1


def test_either_copy_of_the_header_will_do() -> None:
    front = LogHeader(STREAM_ID, 7, 9).encode_front()
    assert len(front) == RECORDS_START and front[:256] == front[4096 : 4096 + 256]


def test_folds_and_syncs_from_several_threads_lose_nothing(tmp_path: Path) -> None:
    """The owner appends and folds, a commit thread syncs, and another thread waits for its own syncs."""
    disk = CrashDisk(tmp_path)
    disk.sync_delay_us = 200
    made = Owner(tmp_path / "consumers", disk, "disk")
    made.put(1, b"one")
    made.turn()
    is_done = threading.Event()

    def wait_again_and_again() -> None:
        while not is_done.is_set():
            assert made.log.flush(True) == 0

    other = threading.Thread(target=wait_again_and_again)
    other.start()
    for n in range(1500):
        made.note(1, b"<%d>" % n)
        if n % 3 == 0:
            made.fold()
        position = made.log.submit()
        made.log.sync(position)
    is_done.set()
    other.join()
    wanted = dict(made.all)
    made.close()
    assert states(tmp_path / "consumers") == wanted and len(files(tmp_path / "consumers")) == 1
    report = Report()
    states(tmp_path / "consumers", report)
    assert not report.findings
