"""deletes: what the control records of a stream say was taken away since a position, and why."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.batch import Batch
from penstock.kernel.seq_set import SeqSet
from penstock.store.deletes import Deletes, by_reason, gone_from, read_deletes, without
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.store.view import view_of
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


def test_a_block_that_went_with_its_records_is_named(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 40)
    before = read_deletes(str(tmp_path), STREAM_ID)
    assert before.position is not None
    fill(store, 100)
    store.remove_many(range(1, 130))
    fill(store, 100)  # the delete record goes with the block that it stands in, once that one is dead too
    store.remove_many(range(130, 200))
    for _ in range(2):  # one sync makes the dead blocks known, the next the records that say so
        store.sync()
        store.after_commit()
    found = read_deletes(str(tmp_path), STREAM_ID, before.position, store.epoch)
    assert found.missing and found.missing[0] == before.position.block_id
    store.stop()


def test_what_is_not_committed_is_not_read(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 10)
    store.core.delete(5, 0, 0)
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
