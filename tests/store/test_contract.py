"""One contract for every store: FileStore and MemoryStore give the same answers, except for the size formula.
Behaviours F1-F7, F13, B5-B10.

FileStore is also stopped, abandoned and opened again without its derived files: its contents may not change.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import EndOfStream, MessageDeleted, MessageNotFound, StoreClosed
from penstock.store.base import NEVER, Store
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.store.memory_store import MemoryStore
from penstock.store.state import SubjectState
from penstock.store.write.batch import Batch
from penstock.testing.clock import START_NS, FakeClock

SECOND = 10**9
STREAM_ID = bytes(range(16))
BLOCK_SIZE = 1000
HEADERS = b"NATS/1.0\r\nA: b\r\n\r\n"
OK, BAD_SUBJECT, NO_MATCH, TOO_LARGE, HEADERS_TOO_LARGE, MAX_MSGS, MAX_BYTES, MAX_PER_SUBJECT, NOT_SEQUENTIAL = range(9)


class Bench:
    """Opens stores of one kind, in one place, with one clock."""

    def __init__(self, kind: str, root: Path, durability: str) -> None:
        self.kind, self.root, self.durability = kind, root / "stream", durability
        self.clock = FakeClock()
        self.open_stores: list[Store] = []

    def open(self, **limits: Any) -> Store:
        wanted = Limits(**({"block_size": BLOCK_SIZE} | limits))
        store: Store
        if self.kind == "file":
            store = FileStore(self.root, STREAM_ID, limits=wanted, durability=self.durability, clock=self.clock)
        else:
            store = MemoryStore("m", wanted, self.clock)
        self.open_stores.append(store)
        return store

    def size(self, subject: str, payload: int, headers: int = 0) -> int:
        """The size of a message as nats-server counts it."""
        if self.kind == "memory":
            return len(subject) + headers + payload + 16
        return 22 + len(subject) + payload + 8 + (4 + headers if headers else 0)

    def close(self) -> None:
        for store in self.open_stores:
            if isinstance(store, FileStore):
                store.abandon()


@pytest.fixture(params=["file", "memory"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(request.param, tmp_path, "os")
    yield bench
    bench.close()


@pytest.fixture(params=["file-os", "file-disk", "file-lazy", "memory-os"])
def any_durability(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    kind, durability = request.param.split("-")
    bench = Bench(kind, tmp_path, durability)
    yield bench
    bench.close()


def put(store: Store, *subjects: str, size: int = 40, headers: bytes | None = None) -> list[int]:
    """Store one message per subject; returns their sequences, 0 for a refused message."""
    batch = Batch.of([(subject, b"%06d" % n + b"." * (size - 6), headers) for n, subject in enumerate(subjects)])
    store.append(batch)
    store.commit()
    return batch.seqs()


def status_of(
    store: Store, subject: str, size: int = 40, headers: bytes | None = None, *, is_rollup: bool = False
) -> int:
    batch = Batch.one(subject, b"." * size, headers)
    batch.mark(0, False, False, is_rollup)
    store.append(batch)
    store.commit()
    assert (batch.seq(0) == 0) == (batch.status(0) != OK)
    return batch.status(0)


def put_with_expiry(store: Store, subject: str, expiry: int, text: bytes) -> int:
    """A message whose headers say when it expires, as the stream stores it."""
    batch = Batch.one(subject, b"x", b"NATS/1.0\r\nNats-TTL: " + text + b"\r\n\r\n")
    batch.mark(0, True, False, False)
    store.append(batch)
    store.note_id_and_expiry(batch.seq(0), store.clock.now_ns(), None, expiry)
    store.commit()
    return batch.seq(0)


def ends(store: Store) -> tuple[int, int, int]:
    state = store.fast_state()
    return state.messages, state.first_seq, state.last_seq


def live(store: Store, *filters: str) -> list[int]:
    return [message.seq for message in store.read(filters)]


def deleted(store: Store) -> list[tuple[int, int]]:
    ranges = store.state().deleted
    assert ranges is not None
    return ranges.ranges()


def seq_of(message: Any) -> int | None:
    return None if message is None else message.seq


# Append and read.


def test_messages_come_back_as_they_went_in_over_many_blocks(any_durability: Bench) -> None:
    store, rng = any_durability.open(), random.Random(1)
    wanted = []
    for n in range(120):
        headers = rng.choice([None, HEADERS, b"NATS/1.0\r\nB: " + b"c" * rng.randrange(200) + b"\r\n\r\n"])
        payload = rng.randbytes(rng.choice([0, 1, 30, 200, 990, 1000, 3000]))
        any_durability.clock.advance(n)
        assert store.store(f"a.{n % 7}", payload, headers) == n + 1
        wanted.append((n + 1, f"a.{n % 7}", headers, payload, any_durability.clock.now_ns()))
    assert [(m.seq, m.subject, m.raw_headers, m.data, m.time_ns) for m in store.read()] == wanted
    for seq, subject, headers, payload, time in rng.sample(wanted, 30):
        m = store.load(seq)
        assert (m.subject, m.raw_headers, m.data, m.time_ns) == (subject, headers, payload, time)
    assert len(store.query.blocks()) > 20


def test_a_new_store_is_empty_and_begins_at_one(bench: Bench) -> None:
    store = bench.open()
    state = store.state()
    assert (state.messages, state.bytes, state.first_seq, state.last_seq) == (0, 0, 1, 0)
    assert (state.first_time, state.num_subjects, state.num_deleted) == (0, 0, 0)
    assert deleted(store) == [] and live(store) == []
    assert store.type == bench.kind
    assert store.load_next([], 1) is None and store.load_last() is None and store.load_prev([], 5) is None
    assert store.subjects_state() == {} and store.all_last_seqs() == [] and store.num_pending(1) == 0


def test_a_stream_may_begin_at_a_higher_sequence(bench: Bench) -> None:
    store = bench.open(first_seq=1000)
    assert ends(store) == (0, 1000, 999)
    assert put(store, "a", "b") == [1000, 1001]


def test_what_is_too_large_for_a_block_stands_alone(bench: Bench) -> None:
    store = bench.open()
    assert put(store, "a", "b", size=10) == [1, 2]
    assert put(store, "a", size=70_000) == [3]
    assert put(store, "c", size=10) == [4]
    assert [len(m.data) for m in store.read()] == [10, 10, 70_000, 10]


def test_a_given_sequence_has_to_be_the_next_one(bench: Bench) -> None:
    store = bench.open()
    store.store_raw(1, 500, "a", HEADERS, b"x")
    store.store_raw(2, 600, "b", None, b"")
    for seq in (2, 4, 1):
        with pytest.raises(ValueError, match="8"):
            store.store_raw(seq, 700, "c", None, b"")
    assert [(m.seq, m.time_ns, m.raw_headers) for m in store.read()] == [(1, 500, HEADERS), (2, 600, None)]
    store.skip(3)
    store.store_raw(6, 800, "c", None, b"z")
    assert live(store) == [1, 2, 6]


def test_the_times_of_a_stream_do_not_go_back_when_the_clock_does(bench: Bench) -> None:
    store = bench.open()
    put(store, "a")
    bench.clock.jump(-50 * SECOND)
    put(store, "b")
    assert [m.time_ns for m in store.read()] == [START_NS, START_NS]
    assert store.seq_from_time(START_NS) == 1


@pytest.mark.parametrize(
    "subject", ["", ".", "a.", ".a", "a..b", "a b", "a.*", "a.>", "*", ">", "a\tb", "a\0b", "a" * 70_000]
)
def test_a_subject_that_nobody_can_publish_to_is_refused(bench: Bench, subject: str) -> None:
    store = bench.open()
    assert status_of(store, subject) == BAD_SUBJECT
    assert ends(store) == (0, 1, 0)


def test_a_batch_takes_the_good_and_tells_of_the_bad(bench: Bench) -> None:
    store = bench.open(subjects=("a.>", "b"), max_msg_size=100)
    batch = Batch.of(
        [
            ("a.1", b"x"),
            ("c", b"x"),
            ("b", b"x" * 101),
            ("b", b"x" * 90, HEADERS),
            ("a..b", b""),
            ("b", b"x" * 100),
            ("a", b""),
        ]
    )
    assert store.append(batch) == 2
    store.commit()
    assert [batch.status(n) for n in range(7)] == [OK, NO_MATCH, TOO_LARGE, TOO_LARGE, BAD_SUBJECT, OK, NO_MATCH]
    assert batch.seqs() == [1, 0, 0, 0, 0, 2, 0]
    assert live(store) == [1, 2]


def test_a_part_of_a_batch_can_be_appended(bench: Bench) -> None:
    store = bench.open()
    batch = Batch.of([("a", b"%d" % n) for n in range(10)])
    assert store.append(batch, 2, 5) == 3
    assert store.append(batch, 7) == 3
    store.commit()
    assert [m.data for m in store.read()] == [b"2", b"3", b"4", b"7", b"8", b"9"]


def test_headers_past_64_kib_are_refused(bench: Bench) -> None:
    store = bench.open()
    assert status_of(store, "a", 1, b"NATS/1.0\r\nA: " + b"b" * 65_536 + b"\r\n\r\n") == HEADERS_TOO_LARGE
    assert status_of(store, "a", 1, b"NATS/1.0\r\nA: " + b"b" * 60_000 + b"\r\n\r\n") == OK


def test_the_reasons_why_there_is_no_message_are_told_apart(bench: Bench) -> None:
    store = bench.open()
    put(store, *["a"] * 5)
    store.skip(2)
    put(store, "a")
    store.remove(1)
    store.remove(3)
    for seq, error in ((0, MessageNotFound), (1, MessageNotFound), (3, MessageDeleted), (6, MessageNotFound),
                       (9, EndOfStream), (2**63, EndOfStream), (-1, MessageNotFound)):  # fmt: skip
        with pytest.raises(error):
            store.load(seq)
    assert store.load(8).seq == 8
    store.stop()
    with pytest.raises(StoreClosed):
        store.load(8)


def test_after_stop_writes_are_refused(bench: Bench) -> None:
    store = bench.open()
    put(store, "a")
    store.stop()
    store.stop()
    for call in (
        lambda: store.store("a", b""),
        lambda: store.skip(),
        lambda: store.remove(1),
        lambda: store.remove_many([1]),
        lambda: store.erase(1),
        lambda: store.purge(),
        lambda: store.compact(2),
        lambda: store.purge_ex("a"),
        lambda: list(store.read()),
    ):
        with pytest.raises(StoreClosed):
            call()


# Walking with filters.


SUBJECTS = ["a", "a.b", "a.c", "a.b.c", "b.x.1", "b.y.1", "b.x.2"]
FILTERS: list[list[str]] = [
    [], [">"], ["a"], ["a.*"], ["a.>"], ["*"], ["b.*.1"], ["b.x.*", "a"], ["none"], ["none.>"], ["*.*.*"],
    ["a.b", "a.c", "b.>"],
]  # fmt: skip


def wants(filters: list[str], subject: str) -> bool:
    def one(pattern: list[str], tokens: list[str]) -> bool:
        for n, token in enumerate(pattern):
            if token == ">":
                return n < len(tokens)
            if n >= len(tokens) or token not in ("*", tokens[n]):
                return False
        return len(pattern) == len(tokens)

    return not filters or any(one(pattern.split("."), subject.split(".")) for pattern in filters)


@pytest.mark.parametrize("filters", FILTERS, ids=lambda filters: ",".join(filters) or "none")
def test_filters_choose_the_same_messages_forwards_backwards_and_in_numbers(bench: Bench, filters: list[str]) -> None:
    store, rng = bench.open(), random.Random(7)
    held = {}
    for n in range(90):
        subject = rng.choice(SUBJECTS)
        held[put(store, subject)[0]] = subject
        if n % 10 == 9:
            store.skip(2)
    for seq in rng.sample(sorted(held), 40):
        assert store.remove(seq)
        del held[seq]
    for start in (1, 2, 17, 50, 90, 107, 108, 109):
        match = [seq for seq, subject in held.items() if seq >= start and wants(filters, subject)]
        assert [m.seq for m in store.read(filters, start)] == match
        assert seq_of(store.load_next(filters, start)) == (match[0] if match else None)
        before = [seq for seq, subject in held.items() if seq <= start and wants(filters, subject)]
        assert seq_of(store.load_prev(filters, start)) == (before[-1] if before else None)
        assert store.num_pending(start, filters) == len(match)
        last = {subject: seq for seq, subject in held.items() if wants(filters, subject)}
        assert store.num_pending(start, filters, last_per_subject=True) == sum(seq >= start for seq in last.values())
        wanted = SubjectState(len(match), match[0], match[-1]) if match else SubjectState(0, 0, 0)
        assert store.filtered_state(filters, start) == wanted
        quick = store.filtered_state(filters, start, with_last=False)
        assert (quick.messages, quick.first_seq) == (wanted.messages, wanted.first_seq)
        upto = {subject: seq for seq, subject in held.items() if seq <= start and wants(filters, subject)}
        assert store.last_seqs(filters, start) == sorted(upto.values())
        assert store.last_seqs(filters) == sorted(last.values())
    if len(filters) == 1:
        match = [seq for seq, subject in held.items() if wants(filters, subject)]
        assert seq_of(store.load_last(filters[0])) == (match[-1] if match else None)
        state = {
            subject: SubjectState(len(own), own[0], own[-1])
            for subject in sorted(set(held.values()))
            if wants(filters, subject) and (own := [seq for seq, name in held.items() if name == subject])
        }
        assert store.subjects_state(filters[0]) == state
        assert store.subjects_totals(filters[0]) == {name: one.messages for name, one in state.items()}


def test_a_read_stops_where_it_is_told_and_goes_on_later(bench: Bench) -> None:
    store = bench.open()
    put(store, *["a", "b"] * 30)
    assert [m.seq for m in store.read(["a"], 10, 20)] == [11, 13, 15, 17, 19]
    reader = store.read(["b"])
    assert [next(reader).seq for _ in range(30)] == list(range(2, 61, 2))
    assert next(reader, None) is None
    put(store, "a", "b")
    assert [m.seq for m in reader] == [62]


def test_removing_one_of_several_leaves_the_subject_its_first(bench: Bench) -> None:
    """Removing a later message once moved the subject's first sequence past live ones."""
    store = bench.open()
    put(store, "a", "b", "a", "a", "a")
    store.remove(3)
    assert live(store, "a") == [1, 4, 5]
    assert store.subjects_state()["a"] == SubjectState(3, 1, 5)
    store.remove(5)
    assert store.subjects_state()["a"] == SubjectState(2, 1, 4)
    store.remove(1)
    assert store.subjects_state()["a"] == SubjectState(1, 4, 4)
    store.remove(4)
    assert "a" not in store.subjects_state()
    put(store, "a")
    assert store.subjects_state()["a"] == SubjectState(1, 6, 6)


def test_more_last_sequences_than_allowed_is_an_error(bench: Bench) -> None:
    store = bench.open()
    put(store, "a", "b", "c", "a")
    assert store.last_seqs([], limit=3) == store.all_last_seqs() == [2, 3, 4]
    with pytest.raises(ValueError, match="2"):
        store.last_seqs([], limit=2)


@pytest.mark.parametrize(
    ("subjects", "filters", "is_all"),
    [
        ((), [], True),
        ((), [">"], True),
        ((), ["a", ">"], True),
        ((), ["*"], False),
        (("a", "b.>"), ["a", "b.>"], True),
        (("a", "b.>"), ["b.>"], False),
        (("a", "b.c"), ["*", "b.*"], True),
        (("a", "b.>"), ["a", "b.*"], False),
        (("a.*",), ["a.>"], True),
        (("a.>",), ["a.*"], False),
    ],
)
def test_whether_filters_mean_everything(
    bench: Bench, subjects: tuple[str, ...], filters: list[str], is_all: bool
) -> None:
    assert bench.open(subjects=subjects).filter_is_all(filters) == is_all


def test_a_sequence_is_found_by_its_time(bench: Bench) -> None:
    store = bench.open()
    for _ in range(60):
        put(store, "a", "b")
        bench.clock.advance(10)
    store.remove_many([41, 42, 43])
    for step in range(60):
        first = 2 * step + 1
        wanted = 44 if first in (41, 43) else first
        assert store.seq_from_time(START_NS + 10 * step) == wanted
        assert store.seq_from_time(START_NS + 10 * step - 9) == wanted
    assert store.seq_from_time(0) == 1
    assert store.seq_from_time(bench.clock.now_ns()) == 121
    assert bench.open(first_seq=7).seq_from_time(0) == 7 if bench.kind == "memory" else True


# Removals.


def test_a_removed_message_is_gone_from_reads_counts_and_lists(any_durability: Bench) -> None:
    bench = any_durability
    store = bench.open()
    put(store, *["a", "b"] * 30)
    assert store.remove(31) and store.remove(1) and store.remove(60)
    for seq in (31, 1, 60, 0, 61, -1, 2**63, 2**64):
        assert not store.remove(seq)
    state = store.state()
    assert (state.messages, state.first_seq, state.last_seq, state.num_deleted) == (57, 2, 60, 2)
    assert state.bytes == 57 * bench.size("a", 40)
    assert deleted(store) == [(31, 31), (60, 60)]
    assert store.subjects_totals() == {"a": 28, "b": 29}
    assert 31 not in live(store)


def test_many_are_removed_in_one_commit(bench: Bench) -> None:
    store = bench.open()
    put(store, *["a", "b"] * 50)
    assert store.remove_many([5, 5, 7, 200, 0, -3, 2**70, *range(40, 60)]) == 22
    assert store.remove_many([]) == 0
    assert deleted(store) == [(5, 5), (7, 7), (40, 59)]
    assert store.remove_many(range(1, 101)) == 78
    assert ends(store) == (0, 101, 100)
    assert put(store, "a") == [101]


def test_a_million_contiguous_deletes_are_one_range(bench: Bench) -> None:
    store = bench.open()
    put(store, "a")
    store.skip(1_000_000)
    put(store, "a")
    assert deleted(store) == [(2, 1_000_001)]
    assert store.state().num_deleted == 1_000_000


def test_an_erased_message_cannot_be_found_in_any_file(any_durability: Bench) -> None:
    bench = any_durability
    store = bench.open()
    secret, other = b"-the-secret-of-the-erased-message-", b"-what-others-say-stays-"
    seqs = [
        store.store("a", other),
        store.store("a", secret, b"NATS/1.0\r\nS: " + secret + b"\r\n\r\n"),
        store.store("b", other),
    ]
    put(store, *["c"] * 40)
    assert store.erase(seqs[1])
    assert not store.erase(seqs[1]) and not store.erase(999) and not store.erase(0)
    with pytest.raises(MessageDeleted):
        store.load(seqs[1])
    if isinstance(store, FileStore):
        store.sync()
    store.stop()
    for folder, _, names in os.walk(bench.root):
        for name in names:
            assert secret not in (Path(folder) / name).read_bytes(), name
    if bench.kind == "file":
        assert other in (bench.root / "blocks" / "000001.blk").read_bytes()
        again = bench.open()
        assert not again.lost and again.report.is_clean
        assert live(again) == [1, 3, *range(4, 44)]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_an_erase_works_in_the_active_block_and_in_a_sealed_one(bench: Bench, is_sealed: bool) -> None:
    store = bench.open()
    put(store, "a", "b", "c")
    if is_sealed:
        put(store, *["d"] * 60)
    assert store.erase(2)
    assert live(store)[:2] == [1, 3]
    assert deleted(store) == [(2, 2)]


def test_a_purge_leaves_nothing_and_the_sequences_go_on(any_durability: Bench) -> None:
    bench = any_durability
    store = bench.open()
    put(store, *["a", "b"] * 40)
    assert store.purge() == 80
    assert store.purge() == 0
    state = store.state()
    assert (state.messages, state.bytes, state.first_seq, state.last_seq) == (0, 0, 81, 80)
    assert (state.num_subjects, state.num_deleted, state.first_time) == (0, 0, 0)
    assert put(store, "a") == [81]
    assert ends(store) == (1, 81, 81)


@pytest.mark.parametrize(
    ("subject", "seq", "keep", "gone"),
    [
        ("a", 0, 0, [1, 4, 7]),
        ("a", 5, 0, [1, 4]),
        ("a", 0, 1, [1, 4]),
        ("a", 0, 3, []),
        ("a", 0, 9, []),
        ("x.*", 0, 0, [3, 5, 8]),
        ("x.*", 0, 2, [3]),
        ("x.>", 6, 0, [3, 5]),
        ("none", 0, 0, []),
        ("a", 1, 0, []),
        ("", 1, 0, []),
        (">", 1, 0, []),
        ("", 4, 0, [1, 2, 3]),
        (">", 4, 0, [1, 2, 3]),
        ("", 0, 2, [1, 2, 3, 4, 5, 6, 7]),
        (">", 0, 2, [1, 2, 3, 4, 5, 6, 7]),
        ("", 0, 0, list(range(1, 10))),
        ("a", 99, 0, [1, 4, 7]),
    ],
)
def test_a_purge_by_subject_sequence_and_number_to_keep(
    bench: Bench, subject: str, seq: int, keep: int, gone: list[int]
) -> None:
    store = bench.open()
    put(store, "a", "b", "x.1", "a", "x.2", "b", "a", "x.1", "b")
    assert store.purge_ex(subject, seq, keep) == len(gone)
    assert live(store) == [one for one in range(1, 10) if one not in gone]
    assert ends(store)[2] == 9


def test_a_purge_takes_a_sequence_or_a_number_to_keep(bench: Bench) -> None:
    store = bench.open()
    put(store, "a")
    with pytest.raises(ValueError, match="either"):
        store.purge_ex("a", 2, 1)


@pytest.mark.parametrize(
    ("seq", "purged", "wanted"),
    [
        (0, 0, (60, 1, 60)),
        (1, 0, (60, 1, 60)),
        (2, 1, (59, 2, 60)),
        (30, 29, (31, 30, 60)),
        (60, 59, (1, 60, 60)),
        (61, 60, (0, 61, 60)),
        (62, 60, (0, 62, 61)),
        (500, 60, (0, 500, 499)),
    ],
)
def test_compact_drops_below_a_sequence_and_goes_on_at_it(
    bench: Bench, seq: int, purged: int, wanted: tuple[int, int, int]
) -> None:
    store = bench.open()
    put(store, *["a"] * 60)
    assert store.compact(seq) == purged
    assert ends(store) == wanted
    assert put(store, "a") == [wanted[2] + 1]


def test_compact_walks_on_to_the_first_live_message(bench: Bench) -> None:
    store = bench.open()
    put(store, *["a"] * 60)
    store.remove_many(range(20, 50))
    assert store.compact(25) == 19
    assert ends(store) == (11, 50, 60)
    assert deleted(store) == []
    assert store.compact(10) == 0
    assert ends(store) == (11, 50, 60)


@pytest.mark.parametrize("seq", [-1, 2**63])
def test_a_sequence_that_is_none_is_refused(bench: Bench, seq: int) -> None:
    store = bench.open()
    put(store, "a", "b")
    with pytest.raises(ValueError, match="2\\^63"):
        store.compact(seq)
    with pytest.raises((ValueError, OverflowError)):
        store.truncate(seq)
    assert ends(store) == (2, 1, 2)


@pytest.mark.parametrize(
    ("seq", "wanted"),
    [
        (0, (0, 1, 0)),
        (1, (1, 1, 1)),
        (30, (30, 1, 30)),
        (59, (59, 1, 59)),
        (60, (60, 1, 60)),
        (61, (60, 1, 60)),
        (10**9, (60, 1, 60)),
    ],
)
def test_truncate_drops_above_a_sequence_and_takes_the_sequences_back(
    bench: Bench, seq: int, wanted: tuple[int, int, int]
) -> None:
    store = bench.open()
    put(store, *["a", "b"] * 30)
    bench.clock.advance(5)
    store.truncate(seq)
    assert ends(store) == wanted
    assert live(store) == list(range(1, wanted[0] + 1))
    assert store.state().bytes == wanted[0] * bench.size("a", 40)
    assert put(store, "c") == [wanted[2] + 1]
    assert store.load(wanted[2] + 1).subject == "c"
    assert store.subjects_state()["c"] == SubjectState(1, wanted[2] + 1, wanted[2] + 1)


def test_truncate_does_not_bring_back_what_was_removed(bench: Bench) -> None:
    """The records of the removals are in the part that is cut off."""
    store = bench.open()
    put(store, *["a"] * 60)
    store.remove_many([1, 2, 3, 20, 21, 55])
    put(store, *["b"] * 60)
    store.truncate(50)
    assert ends(store) == (45, 4, 50)
    assert deleted(store) == [(20, 21)]


def test_truncate_below_the_first_message_leaves_an_empty_stream(bench: Bench) -> None:
    """Counters once went below zero here."""
    store = bench.open(block_size=100_000)
    put(store, *["a"] * 10)
    store.compact(8)
    store.truncate(5)
    assert ends(store) == (0, 6, 5)
    assert put(store, "b") == [6]
    assert ends(store) == (1, 6, 6)


def test_truncate_inside_a_skipped_range_ends_there(bench: Bench) -> None:
    store = bench.open()
    put(store, "a")
    store.skip(100)
    put(store, "a")
    store.truncate(50)
    assert ends(store) == (1, 1, 50)
    assert put(store, "b") == [51]


def test_truncate_forgets_the_expiry_of_what_it_cuts_off(bench: Bench) -> None:
    """The sequence is assigned again; its new message once expired with the TTL of the old one."""
    store = bench.open()
    put(store, "a")
    seq = put_with_expiry(store, "b", bench.clock.now_ns() + SECOND, b"1")
    store.truncate(1)
    assert put(store, "c") == [seq]
    bench.clock.advance(5 * SECOND)
    assert live(store) == [1, 2]


def test_truncate_forgets_who_was_exempt_above_it(bench: Bench) -> None:
    store = bench.open(max_age_ns=SECOND)
    put(store, "a")
    put_with_expiry(store, "b", NEVER, b"never")
    store.truncate(1)
    assert put(store, "c") == [2]
    bench.clock.advance(2 * SECOND)
    assert live(store) == []


def test_truncate_keeps_skips_told_apart(bench: Bench) -> None:
    """Half of a skipped range stays; after the next open it was once reported as lost."""
    store = bench.open()
    put(store, "a")
    store.skip(100)
    put(store, "b")
    store.truncate(50)
    put(store, "c")
    if isinstance(store, FileStore):
        store.stop()
        store = bench.open()
        assert not store.lost
    with pytest.raises(MessageNotFound):
        store.load(20)


def test_a_batch_ends_as_its_messages_would_one_by_one(bench: Bench) -> None:
    """nats-server enforces limits message by message; how messages were batched must not show."""
    found = []
    for name, sizes in (("together", [[("c", 80), ("b", 5)]]), ("alone", [[("c", 80)], [("b", 5)]])):
        bench.root = bench.root.parent / name
        store = bench.open(max_bytes=bench.size("a", 80) + bench.size("b", 150) + 20, max_msgs_per_subject=1)
        put(store, "a", size=80)
        put(store, "b", size=150)
        for part in sizes:
            store.append(Batch.of([(subject, b"." * size) for subject, size in part]))
            store.commit()
        found.append(live(store))
    assert found == [[3, 4], [3, 4]]


def test_truncate_makes_a_deleted_or_skipped_sequence_new_again(bench: Bench) -> None:
    store = bench.open()
    put(store, "a", "a", "a")
    store.remove(3)
    store.skip(2)
    store.truncate(2)
    put(store, "b", "b", "b")
    assert live(store) == [1, 2, 3, 4, 5]
    store.remove(4)
    with pytest.raises(MessageDeleted):
        store.load(4)


def test_skipped_sequences_are_never_delivered_and_count_as_deleted(bench: Bench) -> None:
    store = bench.open()
    put(store, "a")
    assert store.skip() == 2
    assert store.skip(50) == 52
    assert ends(store) == (1, 1, 52)
    assert put(store, "a") == [53]
    assert deleted(store) == [(2, 52)]
    assert store.state().num_deleted == 51
    assert live(store) == [1, 53]
    for count in (0, -1, 2**63):
        with pytest.raises((ValueError, OverflowError)):
            store.skip(count)
    assert ends(store) == (2, 1, 53)


def test_skips_before_the_first_message_move_the_beginning(bench: Bench) -> None:
    store = bench.open()
    assert store.skip(9) == 9
    assert ends(store) == (0, 10, 9)
    assert put(store, "a") == [10]
    assert ends(store) == (1, 10, 10)


# Limits.


def test_the_bytes_are_counted_as_the_reference_counts_them(bench: Bench) -> None:
    store, total = bench.open(), 0
    for subject, size, headers in (("a", 0, None), ("a.b", 10, HEADERS), ("c", 7, b""), ("d", 3000, None)):
        store.store(subject, b"." * size, headers)
        total += bench.size(subject, size, len(headers or b""))
        assert store.fast_state().bytes == total
    assert (bench.size("ab", 3), bench.size("ab", 3, 5)) == ((35, 44) if bench.kind == "file" else (21, 26))
    store.remove(2)
    assert store.fast_state().bytes == total - bench.size("a.b", 10, len(HEADERS))


def test_max_msgs_drops_the_oldest(bench: Bench) -> None:
    store = bench.open(max_msgs=5)
    put(store, *["a", "b"] * 20)
    assert ends(store) == (5, 36, 40)
    assert store.subjects_totals() == {"a": 2, "b": 3}
    store.remove(38)
    put(store, "a", "a")
    assert live(store) == [37, 39, 40, 41, 42]


def test_max_bytes_drops_the_oldest(bench: Bench) -> None:
    store = bench.open(max_bytes=bench.size("a", 40) * 4 + 10)
    put(store, *["a"] * 30)
    assert ends(store) == (4, 27, 30)
    put(store, "a", size=90)
    assert live(store) == [29, 30, 31]
    put(store, "a", size=5000)
    assert ends(store) == (0, 33, 32)


@pytest.mark.parametrize("most", [1, 3])
def test_max_msgs_per_subject_drops_the_subjects_oldest(bench: Bench, most: int) -> None:
    store = bench.open(max_msgs_per_subject=most)
    for n in range(60):
        put(store, f"s.{n % 4}", "once" if n == 0 else "s.9")
    totals = store.subjects_totals()
    assert totals == {f"s.{n}": most for n in (0, 1, 2, 3, 9)} | {"once": 1}
    held = live(store)
    assert held[0] == 2 and len(held) == 5 * most + 1
    assert [store.load(seq).subject for seq in held[-2:]] == ["s.3", "s.9"]


def test_max_msgs_per_subject_keeps_the_newest_when_some_were_removed(bench: Bench) -> None:
    store = bench.open(max_msgs_per_subject=3)
    put(store, "a", "a", "a")
    store.remove(2)
    put(store, "a")
    assert live(store) == [1, 3, 4]
    put(store, "a")
    assert live(store) == [3, 4, 5]


def test_max_age_drops_what_is_as_old_as_that(bench: Bench) -> None:
    store = bench.open(max_age_ns=10 * SECOND)
    for _ in range(20):
        put(store, "a")
        bench.clock.advance(SECOND)
    # It is second 20: everything stored up to second 10 is gone.
    assert ends(store) == (9, 12, 20)
    bench.clock.advance(SECOND - 1)
    assert ends(store) == (9, 12, 20)
    bench.clock.advance(1)
    assert ends(store) == (8, 13, 20)
    bench.clock.advance(3600 * SECOND)
    assert live(store) == []
    assert ends(store) == (0, 21, 20)
    assert put(store, "a") == [21]
    bench.clock.advance(9 * SECOND)
    assert ends(store) == (1, 21, 21)


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.load_next([], 1),
        lambda store: store.load_last(),
        lambda store: store.num_pending(1),
        lambda store: store.all_last_seqs(),
        lambda store: store.subjects_totals(),
        lambda store: store.subjects_state(),
        lambda store: store.filtered_state([]).messages,
        lambda store: store.state().messages,
        lambda store: list(store.read()),
        lambda store: store.remove(1),
        lambda store: store.purge_ex("a"),
    ],
)
def test_nobody_is_shown_what_has_expired(bench: Bench, ask: Callable[[Store], Any]) -> None:
    store = bench.open(max_age_ns=SECOND)
    put(store, "a", "b")
    bench.clock.advance(SECOND)
    assert not ask(store)


def test_a_message_with_a_ttl_goes_when_it_is_due(bench: Bench) -> None:
    store = bench.open()
    now = bench.clock.now_ns()
    put(store, "a")
    seqs = [put_with_expiry(store, "b", now + seconds * SECOND, b"%d" % seconds) for seconds in (50, 2, 2, 7, 100_000)]
    put(store, "c")
    for seconds, gone in ((1, []), (2, seqs[1:3]), (6, seqs[1:3]), (7, seqs[1:4]), (50, seqs[:4]), (10**6, seqs)):
        bench.clock.set(now + seconds * SECOND - 1)
        assert set(gone) - {7} <= set(seqs)
        bench.clock.set(now + seconds * SECOND)
        assert live(store) == [seq for seq in range(1, 8) if seq not in gone], seconds
    assert store.wheel.count == 0


def test_a_removed_message_expires_no_more(bench: Bench) -> None:
    store = bench.open()
    seq = put_with_expiry(store, "a", bench.clock.now_ns() + SECOND, b"1")
    put(store, "a")
    store.remove(seq)
    bench.clock.advance(2 * SECOND)
    assert ends(store) == (1, 2, 2)


def test_an_expiry_goes_with_its_message(bench: Bench) -> None:
    store = bench.open()
    for _ in range(8):
        put_with_expiry(store, "a", bench.clock.now_ns() + 1000 * SECOND, b"1000")
    assert store.wheel.count == 8
    store.remove(3)
    store.remove_many([5, 6])
    store.compact(3)
    assert store.wheel.count == 3
    store.purge()
    assert store.wheel.count == 0


def test_never_is_exempt_from_age_too(bench: Bench) -> None:
    store = bench.open(max_age_ns=10 * SECOND)
    put(store, "a", "a")
    never = put_with_expiry(store, "b", NEVER, b"never")
    put(store, *["a"] * 40)
    bench.clock.advance(11 * SECOND)
    assert live(store) == [never]
    put(store, "c")
    bench.clock.advance(11 * SECOND)
    assert live(store) == [never]
    assert ends(store) == (1, never, 44)
    assert store.remove(never)
    put(store, "c")
    bench.clock.advance(11 * SECOND)
    assert live(store) == []


def test_a_ttl_may_be_longer_than_the_age(bench: Bench) -> None:
    """As in nats-server: max_age removes it all the same; only `never` is exempt."""
    store = bench.open(max_age_ns=10 * SECOND)
    put_with_expiry(store, "a", bench.clock.now_ns() + 60 * SECOND, b"60")
    bench.clock.advance(11 * SECOND)
    assert live(store) == []


def test_discard_new_refuses_at_max_msgs(bench: Bench) -> None:
    store = bench.open(max_msgs=3, discard_new=True)
    assert put(store, *["a"] * 5) == [1, 2, 3, 0, 0]
    assert status_of(store, "b") == MAX_MSGS
    store.remove(2)
    assert status_of(store, "b") == OK
    assert live(store) == [1, 3, 4]


def test_discard_new_refuses_at_max_bytes(bench: Bench) -> None:
    size = bench.size("a", 40)
    store = bench.open(max_bytes=3 * size, discard_new=True)
    assert put(store, *["a"] * 4) == [1, 2, 3, 0]
    assert status_of(store, "a", 0) == MAX_BYTES
    store.remove(1)
    assert status_of(store, "a", 41) == MAX_BYTES
    assert status_of(store, "a", 40) == OK
    assert store.fast_state().bytes == 3 * size


def test_discard_new_per_subject_refuses_unless_it_rolls_up(bench: Bench) -> None:
    store = bench.open(max_msgs_per_subject=2, discard_new=True, discard_new_per_subject=True)
    assert put(store, "a", "a", "a", "b") == [1, 2, 0, 3]
    assert status_of(store, "a") == MAX_PER_SUBJECT
    assert status_of(store, "b") == OK
    assert status_of(store, "a", is_rollup=True) == OK
    assert store.subjects_totals() == {"a": 2, "b": 2}


def test_discard_new_lets_a_full_subject_replace_its_own_oldest(bench: Bench) -> None:
    """The order and the exceptions are nats-server's: a full stream still accepts a message that replaces an
    old one.
    """
    store = bench.open(max_msgs=3, max_msgs_per_subject=1, discard_new=True)
    assert put(store, "a", "b", "c") == [1, 2, 3]
    assert status_of(store, "d") == MAX_MSGS
    assert status_of(store, "b") == OK
    assert live(store) == [1, 3, 4]
    store = (
        bench.open(max_bytes=2 * bench.size("a", 40), max_msgs_per_subject=1, discard_new=True)
        if bench.kind == "memory"
        else store
    )
    if bench.kind == "memory":
        assert put(store, "a", "b") == [1, 2]
        assert status_of(store, "a", 41) == MAX_BYTES
        assert status_of(store, "a", 40) == OK


def test_new_limits_hold_at_once(bench: Bench) -> None:
    store = bench.open()
    put(store, *["a", "b"] * 20)
    bench.clock.advance(SECOND)
    store.configure(Limits(block_size=BLOCK_SIZE, max_msgs_per_subject=15))
    store.enforce_limits()
    assert store.subjects_totals() == {"a": 15, "b": 15}
    store.configure(Limits(block_size=BLOCK_SIZE, max_msgs=10))
    store.enforce_limits()
    assert ends(store) == (10, 31, 40)
    store.configure(Limits(block_size=BLOCK_SIZE, max_bytes=4 * bench.size("a", 40)))
    store.enforce_limits()
    assert ends(store) == (4, 37, 40)
    store.configure(Limits(block_size=BLOCK_SIZE, max_age_ns=SECOND))
    store.enforce_limits()
    assert ends(store) == (0, 41, 40)


# The counters after every operation, and the files.


def build(store: Store, clock: FakeClock) -> None:
    """A mix of all operations, over many blocks."""
    for n in range(6):
        put(store, *[f"s.{k % 5}" for k in range(20)], headers=HEADERS if n % 2 else None)
        clock.advance(SECOND)
        store.remove_many(range(store.index.last_seq - 15, store.index.last_seq - 9))
        store.remove(store.index.last_seq)
        put(store, "once." + str(n), size=1500)
        store.erase(store.index.last_seq - 3)
        store.skip(n + 1)
        put_with_expiry(store, "ttl", clock.now_ns() + 3600 * SECOND, b"3600")
        put_with_expiry(store, "ttl", NEVER, b"never")
    store.compact(30)
    store.purge_ex("s.1", 0, 3)
    store.remove_many(range(60, 100))
    put(store, "last", "last")
    store.remove(store.index.last_seq)


def all_of(store: Store) -> dict[str, Any]:
    """Everything that the interface returns, for comparison."""
    state = store.state()
    messages = list(store.read())
    held = {m.seq for m in messages}
    return {
        "state": (state.messages, state.bytes, state.first_seq, state.last_seq, state.first_time, state.last_time),
        "counts": (state.num_subjects, state.num_deleted),
        "deleted": deleted(store),
        "lost": store.lost.ranges(),
        "subjects": store.subjects_state(),
        "totals": store.subjects_totals(),
        "last": store.all_last_seqs(),
        "messages": [(m.seq, m.subject, m.raw_headers, m.data, m.time_ns) for m in messages],
        "pending": [store.num_pending(seq, ["s.*"]) for seq in range(1, state.last_seq + 2, 7)],
        "expiries": sorted(one for one in store.wheel.entries() if one[0] in held),
        "exempt": [seq for seq in store.exempt if seq in held],
    }


def test_the_counters_stay_what_a_walk_would_count(bench: Bench) -> None:
    store = bench.open()
    build(store, bench.clock)
    state, messages = store.state(), list(store.read())
    assert state.messages == len(messages)
    assert state.bytes == sum(bench.size(m.subject, len(m.data), len(m.raw_headers or b"")) for m in messages)
    assert (state.first_seq, state.first_time) == (messages[0].seq, messages[0].time_ns)
    assert state.num_subjects == len({m.subject for m in messages})
    assert state.num_deleted == state.last_seq + 1 - state.first_seq - len(messages)
    totals: dict[str, int] = {}
    for m in messages:
        totals[m.subject] = totals.get(m.subject, 0) + 1
    assert store.subjects_totals() == totals


def test_both_stores_end_the_same_but_for_the_bytes(tmp_path: Path) -> None:
    found = []
    for kind in ("file", "memory"):
        bench = Bench(kind, tmp_path, "os")
        store = bench.open()
        build(store, bench.clock)
        one = all_of(store)
        one["state"] = one["state"][:1] + one["state"][2:]
        found.append(one)
        bench.close()
    assert found[0] == found[1]


CHECKPOINT, SUMMARIES, HEAD = "CHECKPOINT", "*.sum", "HEAD"


@pytest.mark.parametrize("durability", ["os", "disk", "lazy"])
@pytest.mark.parametrize("is_clean", [True, False], ids=["stop", "abandon"])
@pytest.mark.parametrize(
    "gone",
    [(), (CHECKPOINT,), (SUMMARIES,), (CHECKPOINT, SUMMARIES), (CHECKPOINT, SUMMARIES, HEAD), (HEAD,)],
    ids=lambda gone: "without-" + "-".join(gone) if gone else "whole",
)
def test_a_store_that_is_opened_again_holds_what_it_held(
    tmp_path: Path, durability: str, is_clean: bool, gone: tuple[str, ...]
) -> None:
    bench = Bench("file", tmp_path, durability)
    try:
        store = bench.open()
        build(store, bench.clock)
        for _ in range(2):
            wanted = all_of(store)
            assert isinstance(store, FileStore)
            if is_clean:
                store.stop()
            else:
                store.flush_all_pending()
                store.abandon()
            for name in gone:
                for path in bench.root.rglob(name):
                    path.unlink()
            store = bench.open()
            assert store.report.is_clean, [str(one) for one in store.report.findings]
            assert all_of(store) == wanted
            put(store, "again", "s.1")
            store.remove(store.index.last_seq)
    finally:
        bench.close()


@pytest.mark.parametrize(
    "gone", [(), (CHECKPOINT,), (SUMMARIES,), (CHECKPOINT, SUMMARIES, HEAD)], ids=lambda gone: "-".join(gone) or "whole"
)
@pytest.mark.parametrize("is_clean", [True, False], ids=["stop", "abandon"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_sequences_never_fall_back_when_every_message_is_gone(
    tmp_path: Path, gone: tuple[str, ...], is_clean: bool, rounds: int
) -> None:
    """An empty stream once forgot its last sequence, or reported all its deleted messages as lost."""
    bench = Bench("file", tmp_path, "os")
    store = bench.open()
    put(store, *["a"] * 50)
    store.purge()
    for _ in range(rounds):
        assert isinstance(store, FileStore)
        store.stop() if is_clean else store.abandon()
        for name in gone:
            for path in bench.root.rglob(name):
                path.unlink()
        store = bench.open()
        assert ends(store) == (0, 51, 50)
        assert not store.lost, [str(one) for one in store.report.findings]
    assert put(store, "a") == [51]
    bench.close()


def why_none(store: Store, seq: int) -> type[Exception]:
    with pytest.raises((MessageDeleted, MessageNotFound)) as error:
        store.load(seq)
    return error.type


@pytest.mark.parametrize("has_retired", [False, True], ids=["all-blocks", "without-a-dead-block"])
@pytest.mark.parametrize(
    "gone", [(), (CHECKPOINT,), (SUMMARIES,), (CHECKPOINT, SUMMARIES, HEAD)], ids=lambda gone: "-".join(gone) or "whole"
)
def test_skips_and_deletes_are_told_apart_after_an_open(
    tmp_path: Path, gone: tuple[str, ...], has_retired: bool
) -> None:
    """Also when the block that held both was removed from the disk, because it had no live message."""
    bench = Bench("file", tmp_path, "os")
    store = bench.open()
    assert isinstance(store, FileStore)
    put(store, *["a"] * 25)
    store.skip(2)
    put(store, *["a"] * 40)
    store.sync()
    store.remove_many([5, 28, 29, *(range(15, 50) if has_retired else ())])
    store.sync()
    put(store, *["b"] * 60)
    store.sync()
    store.remove(60)
    ids = {block["id"] for block in store.query.blocks()}
    assert (len(ids) < max(ids)) == has_retired
    for _ in range(2):
        assert {seq: why_none(store, seq) for seq in (5, 26, 27, 28, 29)} == {
            5: MessageDeleted,
            26: MessageNotFound,
            27: MessageNotFound,
            28: MessageDeleted,
            29: MessageDeleted,
        }
        assert isinstance(store, FileStore)
        store.stop()
        for name in gone:
            for path in bench.root.rglob(name):
                path.unlink()
        store = bench.open()
    bench.close()


def test_limits_hold_after_an_open_and_nothing_is_told_lost(tmp_path: Path) -> None:
    """Blocks without live messages are removed: their messages were deleted, not lost."""
    bench = Bench("file", tmp_path, "os")
    store = bench.open(max_msgs_per_subject=1)
    put(store, "first")
    for n in range(100):
        put(store, f"n.{n % 7}", size=100)
    wanted = all_of(store)
    for is_clean in (True, False, True):
        assert isinstance(store, FileStore)
        store.sync()
        store.stop() if is_clean else store.abandon()
        store = bench.open(max_msgs_per_subject=1)
        assert store.report.is_clean, [str(one) for one in store.report.findings]
        assert all_of(store) == wanted
    bench.close()


@pytest.mark.parametrize("is_clean", [True, False], ids=["stop", "abandon"])
def test_a_skip_below_the_first_message_is_not_told_lost(tmp_path: Path, is_clean: bool) -> None:
    bench = Bench("file", tmp_path, "os")
    store = bench.open()
    assert isinstance(store, FileStore)
    put(store, "a")
    store.skip()
    put(store, "b")
    store.remove(1)
    store.stop() if is_clean else store.abandon()
    store = bench.open()
    assert not store.lost, [str(one) for one in store.report.findings]
    assert ends(store) == (1, 3, 3)
    bench.close()


def test_an_empty_checkpoint_explains_no_hole(tmp_path: Path) -> None:
    """A checkpoint without blocks fits any stream: messages deleted after it were once reported as lost."""
    bench = Bench("file", tmp_path, "os")
    bench.open().stop()  # type: ignore[attr-defined]
    store = bench.open()
    assert isinstance(store, FileStore)
    for _ in range(3):
        # Later blocks are removed too, and with them the delete records of the first ones.
        put(store, *["x"] * 60)
        store.sync()
        store.remove_many(range(1, store.index.last_seq - 5))
        store.sync()
        store.remove(store.index.last_seq)
    wanted = all_of(store)
    store.abandon()
    store = bench.open()
    assert not store.lost, [str(one) for one in store.report.findings]
    assert all_of(store) == wanted
    bench.close()


def test_truncate_tells_nothing_lost_of_blocks_that_went_before(tmp_path: Path) -> None:
    """The record of a removed block is in the part that is cut off."""
    bench = Bench("file", tmp_path, "os")
    store = bench.open()
    assert isinstance(store, FileStore)
    put(store, *["x"] * 100)
    store.sync()
    store.remove_many(range(10, 70))
    for seq in (71, 72):
        store.sync()
        store.remove(seq)
    store.remove_many(range(1, 10))
    put(store, *["y"] * 5)
    store.truncate(90)
    assert not store.lost, [str(one) for one in store.report.findings]
    assert ends(store) == (19, 70, 90)
    bench.close()


def test_a_mark_holds_also_when_its_block_is_sealed_before_it_is_noted(tmp_path: Path) -> None:
    """A batch may roll to the next block before the caller has seen the sequences that the batch was assigned."""
    bench = Bench("file", tmp_path, "os")
    store = bench.open()
    assert isinstance(store, FileStore)
    batch = Batch.of([("a", b"", b"NATS/1.0\r\nNats-TTL: 5\r\n\r\n")] + [("b", b"x" * 300)] * 8)
    batch.mark(0, True, False, False)
    store.append(batch)
    store.note_id_and_expiry(1, bench.clock.now_ns(), None, bench.clock.now_ns() + 5 * SECOND)
    store.commit()
    store.abandon()
    bench.clock.advance(10 * SECOND)
    assert live(bench.open())[:1] == [2]
    bench.close()


def test_a_block_from_the_middle_may_go(tmp_path: Path) -> None:
    bench = Bench("file", tmp_path, "os")
    store = bench.open()
    assert isinstance(store, FileStore)
    put(store, "keep", *["x"] * 100)
    store.sync()
    store.remove_many(range(10, 80))
    store.sync()
    put(store, *["y"] * 100)
    store.sync()
    store.remove(101)
    blocks = len(store.query.blocks())
    wanted = all_of(store)
    store.stop()
    assert len(list(bench.root.glob("blocks/*.blk"))) <= blocks
    store = bench.open()
    assert not store.lost
    assert all_of(store) == wanted
    store.truncate(90)
    assert not store.lost
    assert ends(store) == (20, 1, 90)
    bench.close()


@pytest.mark.parametrize("is_clean", [True, False], ids=["stop", "abandon"])
@pytest.mark.parametrize(
    "gone", [(), (CHECKPOINT,), (SUMMARIES,), (CHECKPOINT, SUMMARIES)], ids=lambda gone: "-".join(gone) or "whole"
)
def test_expiries_are_registered_again_after_an_open(tmp_path: Path, is_clean: bool, gone: tuple[str, ...]) -> None:
    bench = Bench("file", tmp_path, "os")
    store = bench.open(max_age_ns=100 * SECOND)
    assert isinstance(store, FileStore)
    now = bench.clock.now_ns()
    put(store, *["a"] * 30)
    short = put_with_expiry(store, "b", now + 5 * SECOND, b"5")
    never = put_with_expiry(store, "b", NEVER, b"never")
    put(store, *["a"] * 30)
    middle = put_with_expiry(store, "b", now + 50 * SECOND, b"50")
    store.stop() if is_clean else store.abandon()
    for name in gone:
        for path in bench.root.rglob(name):
            path.unlink()
    bench.clock.advance(6 * SECOND)
    store = bench.open(max_age_ns=100 * SECOND)
    assert live(store, "b") == [never, middle] and short not in live(store)
    bench.clock.set(now + 50 * SECOND)
    assert live(store, "b") == [never]
    bench.clock.set(now + 100 * SECOND)
    assert live(store) == [never]
    bench.close()


def test_an_open_expires_what_grew_too_old_meanwhile(tmp_path: Path) -> None:
    bench = Bench("file", tmp_path, "os")
    store = bench.open(max_age_ns=10 * SECOND)
    put(store, *["a"] * 50)
    store.stop()  # type: ignore[attr-defined]
    bench.clock.advance(11 * SECOND)
    store = bench.open(max_age_ns=10 * SECOND)
    assert ends(store) == (0, 51, 50)
    bench.close()


def test_a_file_store_can_be_deleted(tmp_path: Path) -> None:
    bench = Bench("file", tmp_path, "os")
    store = bench.open()
    assert isinstance(store, FileStore)
    put(store, *["a"] * 50)
    store.delete()
    assert list(bench.root.rglob("*.blk")) == []
    store = bench.open()
    assert ends(store) == (0, 1, 0)
    bench.close()


def test_an_erase_that_was_cut_short_is_finished_by_the_next_open(tmp_path: Path) -> None:
    """Its record was on disk, but its bytes were not overwritten: the payload once stayed for good."""
    bench = Bench("file", tmp_path, "disk")
    store = bench.open()
    assert isinstance(store, FileStore)
    put(store, "a", "b")
    secret = b"a secret that nobody may read"
    store.store("s", secret, b"NATS/1.0\r\nKey: hidden\r\n\r\n")
    put(store, "c")
    assert store.engine.delete(3, 0, bench.clock.now_ns())
    store.engine.log_erase(3, bench.clock.now_ns())
    store.commit()
    store.abandon()
    assert any(secret in path.read_bytes() for path in bench.root.rglob("*.blk"))
    store = bench.open()
    for path in (path for path in bench.root.rglob("*") if path.is_file()):
        assert secret not in path.read_bytes() and b"hidden" not in path.read_bytes(), path
    assert live(store) == [1, 2, 4]
    bench.close()


def test_the_checksum_of_the_last_record_is_known_also_after_an_open(tmp_path: Path) -> None:
    bench = Bench("file", tmp_path, "os")
    store = bench.open()
    assert isinstance(store, FileStore)
    put(store, *["a"] * 30)
    wanted = {block["id"]: block["last_checksum"] for block in store.query.blocks()}
    for is_clean in (True, False):
        for block_id, checksum in wanted.items():
            end = store.query.block(block_id)["size"]
            store.sync()
            data = Path(store.block_path(block_id)).read_bytes()
            assert data[end - 8 : end] == checksum.to_bytes(8, "little")
        store.stop() if is_clean else store.abandon()
        store = bench.open()
        assert isinstance(store, FileStore)
        assert {block["id"]: block["last_checksum"] for block in store.query.blocks()} == wanted
    bench.close()
