"""The view of deletes: which sequences were removed since a position in the stream, and why, according to its control
records.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.disk import Disk
from penstock.base.seq_set import SeqSet
from penstock.format.paths import StreamPaths
from penstock.store.base import ROLLUP
from penstock.store.deletes import deletes_file as kept_deletes
from penstock.store.deletes import recorder as deletes_keeper
from penstock.store.deletes.deletes import Deletes, Position, by_reason, gone_from, read_deletes, without
from penstock.store.deletes.deletes_file import BY_USER, DeletesFile, write_kept
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.store.read.view import view_of
from penstock.store.write.batch import Batch
from penstock.testing import FakeClock

STREAM_ID = bytes(16)
SECOND = 10**9


def open_store(root: Path, clock: FakeClock | None = None, **limits: int) -> FileStore:
    return FileStore(
        root, STREAM_ID, limits=Limits(block_size=4000, **limits), durability="os", clock=clock or FakeClock()
    )


def fill(store: FileStore, count: int) -> None:
    for n in range(count):
        store.append(Batch.of([(f"a.{n % 3}", bytes(100))]))
    store.commit()


def told(found: Deletes, last: int = 10**9) -> dict[str, list[tuple[int, int]]]:
    return {reason: seqs.ranges() for reason, seqs in by_reason(found.removals, SeqSet(), last).items()}


def test_each_way_of_taking_away_has_its_reason(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 100)
    store.remove(50)
    store.remove_many([60, 61, 62])
    store.erase(70)
    store.purge_ex(seq=11)
    assert told(read_deletes(str(tmp_path), STREAM_ID)) == {
        "user": [(50, 50), (60, 62)],
        "erase": [(70, 70)],
        "purge": [(1, 10)],
    }
    store.stop()
    assert told(read_deletes(str(tmp_path), STREAM_ID))["erase"] == [(70, 70)]


def test_age_is_no_delete_of_the_user_and_what_had_aged_is_not_purged(tmp_path: Path) -> None:
    clock = FakeClock()
    store = open_store(tmp_path, clock, max_age_ns=60 * SECOND)
    fill(store, 20)
    clock.advance(59 * SECOND)
    fill(store, 20)
    clock.advance(2 * SECOND)
    store.expire(clock.now_ns())
    store.purge_ex(seq=31)
    assert told(read_deletes(str(tmp_path), STREAM_ID)) == {"max_age": [(1, 20)], "purge": [(21, 30)]}
    store.stop()


def test_from_a_position_on_only_what_came_since_is_new(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 40)
    store.remove(3)
    first = read_deletes(str(tmp_path), STREAM_ID)
    assert first.position is not None
    gone = SeqSet()
    by_reason(first.removals, gone, 100)
    store.remove(4)
    fill(store, 100)
    store.remove(90)
    second = read_deletes(str(tmp_path), STREAM_ID, first.position, store.epoch)
    assert {reason: seqs.ranges() for reason, seqs in by_reason(second.removals, gone, 100).items()} == {
        "user": [(4, 4), (90, 90)]
    }
    assert second.missing == []
    assert second.position is not None and second.position.block_id > first.position.block_id
    store.stop()


def housekeep(store: FileStore) -> None:
    """One sync makes the dead blocks known, the next one the records that say so."""
    for _ in range(3):
        store.sync()
        store.after_commit()


def block_ids(root: Path) -> set[int]:
    return {int(path.stem) for path in (root / "blocks").glob("*.blk")}


def retire_deletes(root: Path) -> tuple[FileStore, Position]:
    """Messages 1 to 199 are deleted, and the blocks with their delete records are removed."""
    store = open_store(root)
    fill(store, 40)
    before = read_deletes(str(root), STREAM_ID).position
    assert before is not None
    fill(store, 100)
    store.remove_many(range(1, 130))
    fill(store, 100)  # the delete record goes with its block, once that block is dead too
    store.remove_many(range(130, 200))
    housekeep(store)
    assert before.block_id not in block_ids(root)
    return store, before


def test_what_the_records_of_a_block_said_is_known_when_the_block_is_gone(tmp_path: Path) -> None:
    store, before = retire_deletes(tmp_path)
    for _ in range(2):
        found = read_deletes(str(tmp_path), STREAM_ID, before, store.epoch)
        assert found.missing == []
        assert {reason: seqs.ranges() for reason, seqs in found.by_reason(SeqSet(), 999).items()} == {
            "user": [(1, 199)]
        }
        store.stop()
        store = open_store(tmp_path)
    assert store.report.findings == []
    store.delete()
    assert not (tmp_path / "DELETES").exists()


@pytest.mark.parametrize("damage", ["missing", "flipped", "of another stream", "empty"])
def test_without_a_whole_file_of_deletes_only_the_reasons_are_lost(tmp_path: Path, damage: str) -> None:
    store, before = retire_deletes(tmp_path)
    store.stop()
    path = tmp_path / "DELETES"
    data = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "flipped":
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        write_kept(Disk(), StreamPaths(str(tmp_path)), b"x" * 16, DeletesFile(1))
    found = read_deletes(str(tmp_path), STREAM_ID, before, store.epoch)
    assert found.missing[0] == before.block_id  # the reader knows that the reason is unknown
    assert told(found) == {"user": [(130, 199)]}  # a block that still exists holds the reason
    store = open_store(tmp_path)
    assert [finding.kind for finding in store.report.findings] == ([] if damage == "missing" else ["set aside"])
    assert store.index.messages == 41
    store.purge_ex(seq=221)
    fill(store, 100)
    store.remove_many(range(221, 300))
    housekeep(store)
    found = read_deletes(str(tmp_path), STREAM_ID, before, store.epoch)
    # from here on the reasons are known again
    assert told(found) == {"user": [(130, 199), (221, 299)], "purge": [(200, 220)]}
    assert found.missing and max(found.missing) < min(block_ids(tmp_path))
    store.stop()


def test_nothing_is_written_for_blocks_that_age_took_but_that_it_is_kept_from_now_on(tmp_path: Path) -> None:
    clock = FakeClock()
    store = open_store(tmp_path, clock, max_age_ns=60 * SECOND)
    written = []
    for _ in range(4):
        fill(store, 200)
        clock.advance(61 * SECOND)
        store.expire(clock.now_ns())
        housekeep(store)
        path = tmp_path / "DELETES"
        written.append(path.stat().st_ino)
    assert len(set(written)) == 1
    store.stop()


def test_a_purge_takes_nothing_that_had_aged_before_however_many_blocks_are_gone(tmp_path: Path) -> None:
    """The floor of a purge covers everything below it: when the block with the record of age was removed, the purge was
    reported for messages that age had removed.
    """
    clock = FakeClock()
    store = open_store(tmp_path, clock, max_age_ns=60 * SECOND)
    fill(store, 100)
    store.remove(100)
    clock.advance(61 * SECOND)
    fill(store, 100)
    store.remove(150)
    store.purge()
    fill(store, 100)
    clock.advance(61 * SECOND)
    fill(store, 100)
    housekeep(store)
    assert min(block_ids(tmp_path)) > 5
    store.stop()
    store = open_store(tmp_path, clock, max_age_ns=60 * SECOND)
    found = read_deletes(str(tmp_path), STREAM_ID)
    by_user = {reason: seqs.ranges() for reason, seqs in found.by_reason(SeqSet(), 999).items() if reason in BY_USER}
    assert by_user == {"user": [(100, 100), (150, 150)], "purge": [(101, 149), (151, 200)]}
    store.stop()


def test_many_rollups_between_two_syncs_are_one_entry(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for _ in range(50):
        fill(store, 2)
        store.compact(store.index.last_seq, ROLLUP)
    assert len(store.deletes.pending) < 4
    store.stop()
    assert told(read_deletes(str(tmp_path), STREAM_ID)) == {"rollup": [(1, 99)]}


def test_a_purge_of_a_stream_with_many_holes_keeps_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletes_keeper, "RANGES_MAX", 20)
    store = open_store(tmp_path)
    fill(store, 100)
    store.remove_many(range(2, 101, 2))
    store.purge_ex(seq=20)  # deleted one by one
    store.purge()
    store.stop()
    found = read_deletes(str(tmp_path), STREAM_ID)
    taken = found.by_reason(SeqSet(), 100)["purge"]
    assert found.forgotten_below == 82
    assert list(taken) == [*range(1, 20, 2), *range(83, 101, 2)]


def test_beyond_its_size_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_deletes, "RANGES_MAX", 10)
    kept = DeletesFile(1)
    for seq in range(2, 42, 2):
        kept.add("user" if seq % 4 else "purge", seq, seq)
    kept.trim()
    assert kept.low == 32
    assert sorted(kept.removals(), key=lambda one: one[1]) == [
        ("user" if seq % 4 else "purge", seq, seq + 1) for seq in range(32, 42, 2)
    ]


def test_a_full_disk_does_not_keep_dead_blocks_from_making_room(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = FileStore(tmp_path, STREAM_ID, limits=Limits(block_size=4000), durability="os", disk=disk)
    fill(store, 200)
    disk.is_full = True
    store.purge()
    housekeep(store)
    assert len(block_ids(tmp_path)) == 1
    assert not (tmp_path / "DELETES").exists()
    disk.is_full = False
    fill(store, 100)
    store.purge()
    housekeep(store)
    assert told(read_deletes(str(tmp_path), STREAM_ID)) == {"purge": [(1, 300)]}
    store.stop()


class FaultyDisk(Disk):
    """A disk with no space for DELETES."""

    is_full = False

    def write_file(self, path: Any, data: Any, sync: bool = True) -> None:
        if self.is_full and os.fspath(path).endswith("DELETES"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        super().write_file(path, data, sync)


def test_what_is_not_committed_is_not_read(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 10)
    store.engine.delete(5, 0, 0)
    assert told(read_deletes(str(tmp_path), STREAM_ID)) == {}
    store.commit()
    assert told(read_deletes(str(tmp_path), STREAM_ID)) == {"user": [(5, 5)]}
    store.stop()


def test_sequences_that_are_given_out_again_are_noticed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 40)
    epoch, before = store.epoch, read_deletes(str(tmp_path), STREAM_ID)
    assert read_deletes(str(tmp_path), STREAM_ID, before.position, epoch).reused_from is None
    store.truncate(20)
    fill(store, 40)
    found = read_deletes(str(tmp_path), STREAM_ID, before.position, epoch)
    assert found.reused_from == 21
    store.stop()


def test_gone_is_all_that_the_view_does_not_hold(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 30)
    store.purge_ex(seq=5)
    store.remove_many([10, 11, 25])
    assert gone_from(view_of(store), 20).ranges() == [(1, 4), (10, 11)]
    assert gone_from(view_of(store), 32).ranges() == [(1, 4), (10, 11), (25, 25), (31, 32)]
    store.stop()


# Whatever happens to a stream, it knows which messages a user removed.

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 60)),
        st.tuples(
            st.sampled_from(["remove", "erase", "subject", "floor", "rollup", "truncate"]), st.floats(0, 1)
        ),
        st.tuples(st.sampled_from(["age", "purge", "housekeep", "reopen", "crash"]), st.just(0)),
        st.tuples(st.just("range"), st.tuples(st.floats(0, 1), st.integers(1, 80))),
    ),
    min_size=3,
    max_size=25,
)  # fmt: skip


@settings(max_examples=int(os.environ.get("N", 60)), deadline=None)
@given(STEPS, st.sampled_from([0, 100]), st.sampled_from([0, 40]))
def test_a_stream_knows_what_its_users_took_away(steps: list[tuple[str, Any]], max_msgs: int, per_subject: int) -> None:
    clock, expected, stored = FakeClock(), dict[int, str](), set[int]()
    limits = {"max_age_ns": 60 * SECOND, "max_msgs": max_msgs or -1, "max_msgs_per_subject": per_subject or -1}
    with TemporaryDirectory() as folder:
        root = Path(folder)
        store = open_store(root, clock, **limits)
        for what, value in steps:
            alive, last = {message.seq for message in store.read()}, store.index.last_seq
            store, reason = take_step(store, clock, limits, what, value)
            left = {message.seq for message in store.read()}
            stored |= left | (set(range(last + 1, store.index.last_seq + 1)) if what == "append" else set())
            if what == "truncate":
                stored = left | {seq for seq in stored if seq <= store.index.last_seq}
                last = store.index.last_seq
                expected = {seq: reason for seq, reason in expected.items() if seq <= last}
            elif reason:
                expected |= {seq: reason for seq in alive - left}
            found = read_deletes(folder, STREAM_ID)
            assert found.missing == [] or min(found.missing) < min(block_ids(root))
            reasons = found.by_reason(SeqSet(), 10**9)
            by_user = {seq: reason for reason in BY_USER for seq in reasons.get(reason, ()) if seq in stored}
            assert by_user == expected
        store.stop()


def take_step(
    store: FileStore, clock: FakeClock, limits: dict[str, int], what: str, value: Any
) -> tuple[FileStore, str]:
    """The store, and the reason if a user removed messages."""
    root, last = Path(store.paths.root), store.index.last_seq
    if what == "append":
        fill(store, value)
        clock.advance(7 * SECOND)
        store.expire(clock.now_ns())
    elif what == "age":
        clock.advance(20 * SECOND)
        store.expire(clock.now_ns())
    elif what == "remove":
        store.remove(int(value * last))
        return store, "user"
    elif what == "range":
        start = int(value[0] * last)
        store.remove_many(range(start, start + value[1]))
        return store, "user"
    elif what == "erase":
        store.erase(int(value * last))
        return store, "erase"
    elif what == "subject":
        store.purge_ex(f"a.{int(value * 2.9)}")
        return store, "purge"
    elif what == "floor":
        store.purge_ex(seq=int(value * last) + 2)
        return store, "purge"
    elif what == "purge":
        store.purge()
        return store, "purge"
    elif what == "rollup":
        store.compact(int(value * last) + 2, ROLLUP)
        return store, "rollup"
    elif what == "truncate":
        store.truncate(int(value * last))
    elif what == "housekeep":
        housekeep(store)
    elif what == "reopen":
        store.stop()
        store = open_store(root, clock, **limits)
    elif what == "crash":
        store.abandon()
        store = open_store(root, clock, **limits)
    return store, ""


SEQS = st.sets(st.integers(1, 60), max_size=40)


def of(seqs: set[int]) -> SeqSet:
    found = SeqSet()
    for seq in seqs:
        found.add(seq)
    return found


@given(SEQS, SEQS)
def test_without_is_the_difference_of_sets(some: set[int], other: set[int]) -> None:
    assert set(without(of(some), of(other))) == some - other


@given(
    st.lists(
        st.tuples(st.sampled_from(["user", "purge", "max_age", "compact"]), st.integers(1, 50), st.integers(1, 9)),
        max_size=20,
    ),
    SEQS,
    st.integers(0, 60),
)
def test_the_first_reason_that_took_a_sequence_counts(
    removals: list[tuple[str, int, int]], before: set[int], last: int
) -> None:
    expected: dict[int, str] = {}
    for reason, start, count in removals:
        for seq in range(start, start + count):
            if seq <= last and seq not in before and reason != "compact":
                expected.setdefault(seq, reason)
    gone = of(before)
    found = by_reason([(reason, start, start + count) for reason, start, count in removals], gone, last)
    assert {seq: reason for reason, seqs in found.items() for seq in seqs} == expected
    assert set(gone) == before | expected.keys()


@given(st.lists(st.integers(1, 70_000), min_size=1, max_size=400, unique=True))
@settings(max_examples=40, deadline=None)
def test_many_deleted_in_any_order_are_told_in_order(seqs: list[int]) -> None:
    with TemporaryDirectory() as folder:
        store = FileStore(Path(folder), STREAM_ID, durability="os")
        store.append(Batch.of([("a", b"")] * 70_000))
        assert store.remove_many(seqs) == len(seqs)
        store.commit()
        gone = told(read_deletes(folder, STREAM_ID))["user"]
        assert [seq for first, last in gone for seq in range(first, last + 1)] == sorted(seqs)
        store.stop()
