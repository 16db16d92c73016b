"""Removals of many messages: the counters stay exact, other threads get the GIL meanwhile, and a crash keeps all or
none.
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from pathlib import Path

import pytest

from penstock.errors import StoreError
from penstock.store import base
from penstock.store.base import MAX_MSGS_PER_SUBJECT, PURGE, Store
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.store.memory_store import MemoryStore
from penstock.store.write.batch import Batch
from penstock.testing import CrashDisk, FakeClock, crash_images

COUNT, SUBJECTS = 6000, 300
STREAM_ID = bytes(16)
SECOND = 10**9


def open_file(root: Path, disk: CrashDisk | None = None, durability: str = "disk", **limits: int) -> FileStore:
    wanted = Limits(**({"block_size": 20_000} | limits))  # type: ignore[arg-type]
    return FileStore(root / "s", STREAM_ID, limits=wanted, durability=durability, clock=FakeClock(), disk=disk)


def fill(store: Store, chance: random.Random, count: int = COUNT, subjects: int = SUBJECTS) -> dict[int, str]:
    """Append messages on random subjects and delete some of them; returns those that stay."""
    first = store.index.last_seq + 1
    names = [f"s.{chance.randrange(subjects)}" for _ in range(count)]
    store.append(Batch.of([(name, b"x" * (n % 50)) for n, name in enumerate(names)]))
    store.commit()
    gone = set(chance.sample(range(first, first + count), count // 10))
    store.remove_many(sorted(gone))
    return {seq: name for seq, name in enumerate(names, first) if seq not in gone}


def check(store: Store, alive: dict[int, str]) -> None:
    """Every query of the index matches the messages that exist."""
    state = store.fast_state()
    assert [message.seq for message in store.read()] == sorted(alive)
    assert (state.messages, state.num_subjects) == (len(alive), len(set(alive.values())))
    assert state.first_seq == min(alive, default=state.last_seq + 1)
    size = sum(22 + len(name) + len(store.load(seq).data) + 8 for seq, name in alive.items())
    assert state.bytes == (size if isinstance(store, FileStore) else size - 14 * len(alive))
    assert store.subjects_totals() == Counter(alive.values())
    seqs: dict[str, list[int]] = {}
    for seq in sorted(alive):
        seqs.setdefault(alive[seq], []).append(seq)
    for name, (first, *_) in list(seqs.items())[:50]:
        found = store.filtered_state([name])
        assert (found.messages, found.first_seq, found.last_seq) == (len(seqs[name]), first, seqs[name][-1])
    assert store.all_last_seqs() == sorted(each[-1] for each in seqs.values())


@pytest.mark.parametrize("kind", ["file", "memory"])
@pytest.mark.parametrize("stays", [0, 1, 7, 400, 700, 3000, 5500])
def test_what_stays_is_counted_right_however_little_it_is(tmp_path: Path, kind: str, stays: int) -> None:
    """If few messages stay, the removal counts those, and not the removed ones."""
    chance = random.Random(stays)
    store: Store = open_file(tmp_path) if kind == "file" else MemoryStore("m", Limits(), FakeClock())
    alive = fill(store, chance)
    floor = COUNT + 1 - stays
    assert store.compact(floor, PURGE) == len([seq for seq in alive if seq < floor])
    alive = {seq: name for seq, name in alive.items() if seq >= floor}
    check(store, alive)
    alive |= fill(store, chance)
    check(store, alive)
    if isinstance(store, FileStore):
        store.stop()
        store = open_file(tmp_path)
        check(store, alive)
        store.stop()


@pytest.mark.parametrize("stays", [0, 300])
def test_a_purge_that_could_not_be_written_down_is_undone(tmp_path: Path, stays: int) -> None:
    disk = CrashDisk(tmp_path)
    store = open_file(tmp_path, disk)
    alive = fill(store, random.Random(1))
    disk.fail_at(1, errno.ENOSPC, kinds=("pwrite",), persistent=True)
    with pytest.raises(StoreError):
        store.compact(COUNT + 1 - stays, PURGE)
    disk.clear_faults()
    check(store, alive)
    assert store.purge() == len(alive)
    check(store, {})
    store.stop()


@pytest.mark.parametrize("stays", [0, 300])
def test_a_power_cut_around_a_purge_keeps_all_or_none(tmp_path: Path, stays: int) -> None:
    """The files of blocks are removed only after the floor record is synced, oldest first."""
    room = tmp_path / "run"
    room.mkdir()
    (tmp_path / "images").mkdir()
    disk = CrashDisk(room)
    store = open_file(room, disk)
    alive = fill(store, random.Random(2))
    store.sync()
    store.after_commit()
    disk.mark("filled")
    store.compact(COUNT + 1 - stays, PURGE)
    disk.mark("purged")
    for _ in range(3):
        store.sync()
        store.after_commit()
    store.append(Batch.of([("s.new", b"")]))
    store.commit()
    disk.mark("more")
    store.stop()
    after = {seq: name for seq, name in alive.items() if seq > COUNT - stays}
    seen = set()
    for image in crash_images(disk, tmp_path / "images", count=60, seed=3):
        if image.mark is None:
            continue
        found = open_file(image.path)
        there = {message.seq: message.subject for message in found.read() if message.subject != "s.new"}
        assert there == after or (image.mark == "filled" and there == alive), image.mark
        assert found.index.last_seq >= COUNT + (image.mark == "more")
        check(found, {message.seq: message.subject for message in found.read()})
        seen.add(image.mark)
        found.abandon()
        image.remove()
    assert seen == {"filled", "purged", "more"}
    assert len(list((room / "s" / "blocks").glob("*.blk"))) <= 3, "the blocks are gone"


def test_others_have_their_turn_while_much_goes(tmp_path: Path) -> None:
    """A purge of 4 M messages in a thread once held the GIL, and so stopped the server's loop, for 29 ms."""
    store = open_file(tmp_path, durability="os", block_size=1 << 20)
    names = [f"s.{n}" for n in range(40_000)]
    store.append(Batch.of([(name, b"") for name in names]))
    store.commit()
    before = store.index.gil_yields
    assert store.compact(30_001, PURGE) == 30_000  # too many stay: one by one
    assert store.index.gil_yields > before
    before = store.index.gil_yields
    assert store.purge() == 10_000
    assert store.index.gil_yields > before
    check(store, {})
    store.stop()


# Limits.


@pytest.mark.parametrize("limit", [1, 5, 30])
@pytest.mark.parametrize("subjects", [3, 1000])
def test_a_limit_per_subject_that_is_lowered_takes_the_oldest_of_each(
    tmp_path: Path, limit: int, subjects: int
) -> None:
    """With many subjects above the limit, messages were removed one by one: a million took many minutes, and everybody
    waited.
    """
    store = open_file(tmp_path)
    alive = fill(store, random.Random(limit), subjects=subjects)
    assert (store.engine.subjects_over(limit, base.ALONE_MAX) is None) == (subjects == 1000 and limit < 30)
    store.configure(Limits(block_size=20_000, max_msgs_per_subject=limit))
    store.enforce_limits()
    left: Counter[str] = Counter()
    kept = {}
    for seq in sorted(alive, reverse=True):
        left[alive[seq]] += 1
        if left[alive[seq]] <= limit:
            kept[seq] = alive[seq]
    check(store, kept)
    store.stop()
    again = open_file(tmp_path)
    check(again, kept)
    again.stop()


def test_trimming_looks_at_a_part_of_the_stream_at_a_time(tmp_path: Path) -> None:
    store = open_file(tmp_path)
    store.append(Batch.of([(f"s.{n % 2}", b"") for n in range(100)]))
    assert store.engine.trim_subjects(1, 31, 10, MAX_MSGS_PER_SUBJECT, 1) == 30
    assert store.engine.trim_subjects(31, 1000, 10, MAX_MSGS_PER_SUBJECT, 1) == 50
    store.commit()
    assert [message.seq for message in store.read()] == list(range(81, 101))
    store.stop()


@pytest.mark.parametrize("by", ["age", "ttl"])
def test_on_a_server_a_part_of_what_is_too_old_goes_at_a_time(by: str) -> None:
    """All of them were removed in one turn of the loop: 4 M messages took 49 ms."""
    store = MemoryStore("m", Limits(max_age_ns=SECOND if by == "age" else 0), FakeClock())
    store.expiry_waits = False
    count = base.EXPIRE_MAX * 3
    store.append(Batch.of([("s", b"")] * count))
    store.commit()
    if by == "ttl":
        for seq in range(1, count + 1):
            store.note_id_and_expiry(seq, store.engine.last_time, None, store.engine.last_time + SECOND)
    assert isinstance(store.clock, FakeClock)
    store.clock.advance(5 * SECOND)
    now, parts = store.clock.now_ns(), []
    while store.next_due <= now:
        parts.append(store.drop_expired(now))
    assert sum(parts) == count
    assert max(parts) <= base.EXPIRE_MAX
    assert len(parts) >= 3


def test_messages_that_never_expire_do_not_hold_up_those_behind_them() -> None:
    """There are more of them than one step removes, at the beginning of the stream and between the others."""
    store = MemoryStore("m", Limits(max_age_ns=SECOND), FakeClock())
    store.expiry_waits = False
    count = base.EXPIRE_MAX * 5
    store.append(Batch.of([("s", b"")] * count))
    store.commit()
    exempt = {seq for seq in range(1, count + 1) if seq <= base.EXPIRE_MAX * 2 or seq % 1000 == 0}
    for seq in sorted(exempt):
        store.note_id_and_expiry(seq, store.engine.last_time, None, base.NEVER)
    assert isinstance(store.clock, FakeClock)
    store.clock.advance(5 * SECOND)
    now, parts = store.clock.now_ns(), []
    while store.next_due <= now:
        parts.append(store.drop_expired(now))
        assert parts[-1] > 0
    assert sum(parts) == count - len(exempt)
    assert max(parts) <= base.EXPIRE_MAX
    assert {message.seq for message in store.read()} == exempt


def test_a_library_sees_nothing_that_is_too_old() -> None:
    store = MemoryStore("m", Limits(max_age_ns=SECOND), FakeClock())
    store.append(Batch.of([("s", b"")] * base.EXPIRE_MAX * 3))
    store.commit()
    assert isinstance(store.clock, FakeClock)
    store.clock.advance(5 * SECOND)
    assert store.fast_state().messages == 0
