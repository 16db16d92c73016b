"""The whole store interface against a dictionary: random operations, reopened clean and unclean, with files taken away.

`N=` sets the operations in all (default 40,000), `SEED=` the first chunk's seed; a failure prints its seed and steps.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.errors import EndOfStream, MessageDeleted, MessageNotFound
from penstock.store.base import NEVER
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.store.memory_store import MemoryStore
from penstock.store.write.batch import Batch
from penstock.testing.clock import FakeClock

pytestmark = pytest.mark.campaign

OPERATIONS = int(os.environ.get("N") or 40_000)
SEED = int(os.environ.get("SEED") or 20_261_101)
FULL_CHECK_EVERY = 50
SECOND = 10**9
STREAM_ID = bytes(range(16))
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None

OK, BAD_SUBJECT, NO_MATCH, TOO_LARGE = 0, 1, 2, 3
OVER_MSGS, OVER_BYTES, OVER_SUBJECT = 5, 6, 7

CONFIGS: dict[str, Limits] = {
    "none": Limits(block_size=1000),
    "none-large-blocks": Limits(block_size=20_000),
    "max_msgs": Limits(block_size=1000, max_msgs=40),
    "max_bytes": Limits(block_size=1000, max_bytes=6000),
    "per_subject_1": Limits(block_size=1000, max_msgs_per_subject=1),
    "per_subject_3": Limits(block_size=1000, max_msgs_per_subject=3, max_msgs=60),
    "discard_new": Limits(block_size=1000, max_msgs=50, max_bytes=9000, discard_new=True),
    "discard_new_per_subject": Limits(
        block_size=1000, max_msgs=60, max_msgs_per_subject=2, discard_new=True, discard_new_per_subject=True
    ),
    "discard_new_old_per_subject": Limits(
        block_size=1000, max_msgs=30, max_bytes=6000, max_msgs_per_subject=2, discard_new=True
    ),
    "max_age": Limits(block_size=1000, max_age_ns=20 * SECOND),
    "max_age_per_subject": Limits(block_size=3000, max_age_ns=60 * SECOND, max_msgs_per_subject=5, max_msg_size=600),
    "subjects": Limits(block_size=1000, subjects=("a.>", "b.*.1", "n.*"), max_msgs=80),
}
SUBJECTS = ["a", "a.b", "a.c", "a.b.c", "b.x.1", "b.x.2", "b.y.1"] + [f"n.{n}" for n in range(25)]
BAD_SUBJECTS = ["", ".", "a..b", "a b", ".a", "a.", "a.*", "a.>"]
FILTERS: list[list[str]] = [
    [], [">"], ["a"], ["a.*"], ["a.>"], ["*"], ["*.*"], ["b.*.1"], ["b.>", "a.b"], ["n.3"], ["n.*"], ["none.*"],
    ["none"],
    ["a", "b.x.1", "n.7"], ["*.b.>"], ["n.1", "n.1", "n.*"],
]  # fmt: skip


def matches(filters: list[str], subject: str) -> bool:
    return not filters or any(_matches(one.split("."), subject.split(".")) for one in filters)


def _matches(pattern: list[str], tokens: list[str]) -> bool:
    for at, token in enumerate(pattern):
        if token == ">":
            return at < len(tokens)
        if at >= len(tokens) or token not in ("*", tokens[at]):
            return False
    return len(pattern) == len(tokens)


class Model:
    """What a store should hold: sequence -> (subject, headers, payload, time)."""

    def __init__(self, limits: Limits, in_memory: bool) -> None:
        self.limits = limits
        self.in_memory = in_memory
        self.messages: dict[int, tuple[str, bytes | None, bytes, int]] = {}
        self.bytes = 0
        self.last_seq = 0
        self.skipped: set[int] = set()
        self.expiries: dict[int, int] = {}
        self.by_subject: dict[str, dict[int, None]] = {}

    @property
    def first_seq(self) -> int:
        return next(iter(self.messages), self.last_seq + 1)

    def size(self, subject: str, headers: bytes | None, payload: bytes) -> int:
        if self.in_memory:
            return len(subject) + len(headers or b"") + len(payload) + 16
        return 22 + len(subject) + len(payload) + 8 + (4 + len(headers) if headers else 0)

    def drop(self, seq: int) -> bool:
        found = self.messages.pop(seq, None)
        if found is None:
            return False
        self.bytes -= self.size(*found[:3])
        self.expiries.pop(seq, None)
        del self.by_subject[found[0]][seq]
        if not self.by_subject[found[0]]:
            del self.by_subject[found[0]]
        return True

    def drop_all(self, seqs: list[int]) -> int:
        return sum(self.drop(seq) for seq in seqs)

    def status(self, subject: str, headers: bytes | None, payload: bytes) -> int:
        limits, own = self.limits, list(self.by_subject.get(subject, ()))
        if subject in BAD_SUBJECTS:
            return BAD_SUBJECT
        if not matches(list(limits.subjects), subject):
            return NO_MATCH
        if limits.max_msg_size >= 0 and len(headers or b"") + len(payload) > limits.max_msg_size:
            return TOO_LARGE
        if limits.discard_new:
            size = self.size(subject, headers, payload)
            is_over = 0 < limits.max_msgs_per_subject <= len(own)
            if is_over and limits.discard_new_per_subject:
                return OVER_SUBJECT
            if 0 < limits.max_msgs <= len(self.messages) and not is_over:
                return OVER_MSGS
            if 0 < limits.max_bytes < self.bytes + size and (
                not is_over or self.size(*self.messages[own[0]][:3]) < size
            ):
                return OVER_BYTES
        return OK

    def append(self, items: list[tuple[str, bytes, bytes | None]], now: int) -> list[tuple[int, int]]:
        """(status, seq) of each message."""
        limits, answers = self.limits, []
        for subject, payload, raw in items:
            headers = raw or None
            status = self.status(subject, headers, payload)
            if status:
                answers.append((status, 0))
                continue
            self.last_seq += 1
            self.messages[self.last_seq] = subject, headers, payload, now
            self.bytes += self.size(subject, headers, payload)
            own = self.by_subject.setdefault(subject, {})
            own[self.last_seq] = None
            if limits.max_msgs_per_subject > 0:
                while len(own) > limits.max_msgs_per_subject:
                    self.drop(next(iter(own)))
            answers.append((OK, self.last_seq))
        while (0 < limits.max_msgs < len(self.messages)) or (0 < limits.max_bytes < self.bytes):
            self.drop(self.first_seq)
        return answers

    def expire(self, now: int) -> None:
        age = self.limits.max_age_ns
        due = [seq for seq, expiry in self.expiries.items() if expiry <= now]
        if age:
            due += [
                seq for seq, found in self.messages.items() if found[3] <= now - age and self.expiries.get(seq) != NEVER
            ]
        self.drop_all(due)

    def skip(self, count: int) -> int:
        self.skipped.update(range(self.last_seq + 1, self.last_seq + count + 1))
        self.last_seq += count
        return self.last_seq

    def compact(self, seq: int) -> int:
        gone = self.drop_all([one for one in self.messages if one < seq])
        if seq > self.last_seq + 1:
            self.skip(seq - 1 - self.last_seq)
        return gone

    def purge_ex(self, subject: str, seq: int, keep: int) -> int:
        if seq == 1:
            return 0
        if subject in ("", ">") and not keep:
            return self.compact(seq or self.last_seq + 1)
        found = [
            one
            for one, message in self.messages.items()
            if matches([subject] if subject else [], message[0]) and (not seq or one < seq)
        ]
        return self.drop_all(found[: max(len(found) - keep, 0)])

    def truncate(self, seq: int) -> None:
        if seq >= self.last_seq:
            return
        self.drop_all([one for one in self.messages if one > seq])
        self.skipped = {one for one in self.skipped if one <= seq}
        self.last_seq = seq

    # Queries.

    def wanted(self, filters: list[str], start: int = 1) -> list[int]:
        return [seq for seq, found in self.messages.items() if seq >= start and matches(filters, found[0])]

    def last_seqs(self, filters: list[str], upto: int) -> list[int]:
        found = []
        for subject, own in self.by_subject.items():
            below = [seq for seq in own if not upto or seq <= upto]
            if below and matches(filters, subject):
                found.append(max(below))
        return sorted(found)

    def deleted(self) -> list[tuple[int, int]]:
        ranges, expected = [], self.first_seq
        for seq in [*self.messages, self.last_seq + 1]:
            if seq > expected:
                ranges.append((expected, seq - 1))
            expected = seq + 1
        return ranges


class Machine:
    """A store and its model, driven by one random number generator."""

    def __init__(self, kind: str, config: str, seed: int, root: Path) -> None:
        self.random = random.Random(seed)
        self.limits = CONFIGS[config]
        self.root = root / "stream"
        self.clock = FakeClock()
        self.is_file = kind == "file"
        self.durability = self.random.choice(["os", "os", "disk", "lazy"])
        self.model = Model(self.limits, not self.is_file)
        self.store: FileStore | MemoryStore = self.open()
        self.steps: deque[str] = deque(maxlen=12)

    def open(self) -> FileStore | MemoryStore:
        if self.is_file:
            return FileStore(self.root, STREAM_ID, limits=self.limits, durability=self.durability, clock=self.clock)
        return MemoryStore("m", self.limits, self.clock)

    def run(self, operations: int) -> None:
        for step in range(operations):
            operation = self.pick()
            self.steps.append(f"{step}: {operation.__name__}")
            operation()
            self.compare()
            if step % FULL_CHECK_EVERY == FULL_CHECK_EVERY - 1:
                self.compare_all()
        self.compare_all()
        if self.is_file:
            self.reopen()
            self.compare_all()

    def say(self, text: str) -> None:
        self.steps[-1] += f" {text}"

    def pick(self) -> Callable[[], None]:
        table: list[tuple[Callable[[], None], int]] = [
            (self.append, 45), (self.remove, 12), (self.remove_many, 4), (self.erase, 3), (self.skip, 3),
            (self.advance, 8),
            (self.purge, 1), (self.purge_ex, 4), (self.compact, 3), (self.truncate, 2),
        ]  # fmt: skip
        if self.is_file:
            table.append((self.reopen, 3))
        if len(self.model.messages) > 400:
            table.append((self.purge_ex, 40))
        return self.random.choices([one for one, _ in table], [weight for _, weight in table])[0]

    # Operations: each is run on both sides and the results are compared.

    def item(self) -> tuple[str, bytes, bytes | None]:
        rng = self.random
        subject = rng.choice(BAD_SUBJECTS) if rng.random() < 0.02 else rng.choice(SUBJECTS)
        size = rng.choice([0, 1, 5, 20, rng.randrange(40), rng.randrange(300)])
        if rng.random() < 0.03:
            size = rng.choice([990, 1000, 1500, 5000])
        headers = rng.choice(
            [
                None,
                None,
                None,
                b"",
                b"NATS/1.0\r\n\r\n",
                b"NATS/1.0\r\nA: b\r\nC: " + b"d" * rng.randrange(60) + b"\r\n\r\n",
            ]
        )
        return subject, rng.randbytes(size), headers

    def append(self) -> None:
        rng = self.random
        items = [self.item() for _ in range(rng.choice([1, 1, 1, 2, 3, 8, 20]))]
        ttls: dict[int, int] = {}
        for n, (subject, payload, _) in enumerate(items):
            if rng.random() < 0.05:
                ttls[n] = rng.choice([1, 3, 10, 40, -1])
                text = b"never" if ttls[n] < 0 else b"%d" % ttls[n]
                items[n] = subject, payload, b"NATS/1.0\r\nNats-TTL: " + text + b"\r\n\r\n"
        batch = Batch.of(items)
        for n in ttls:
            batch.mark(n, True, False, False)
        now = self.clock.now_ns()
        # A message with a mark is appended alone: its mark has to be set before its block can be sealed.
        cuts = sorted({0, len(items)} | ttls.keys() | {n + 1 for n in ttls})
        answers, taken = [], 0
        for start, stop in pairwise(cuts):
            taken += self.store.append(batch, start, stop)
            answers += self.model.append(items[start:stop], now)
            if start in ttls and batch.status(start) == OK:
                expiry = NEVER if ttls[start] < 0 else now + ttls[start] * SECOND
                self.store.note_id_and_expiry(batch.seq(start), now, None, expiry)
                if batch.seq(start) in self.model.messages:
                    self.model.expiries[batch.seq(start)] = expiry
        self.store.commit()
        self.say(f"{[(one[0], len(one[1]), len(one[2] or b'')) for one in items]} ttls {ttls}")
        assert [(batch.status(n), batch.seq(n)) for n in range(batch.count)] == answers
        assert taken == sum(status == OK for status, _ in answers)

    def some_seq(self) -> int:
        rng, model = self.random, self.model
        if model.messages and rng.random() < 0.7:
            return (
                rng.choice(list(model.messages))
                if rng.random() < 0.8
                else rng.choice([model.first_seq, max(model.messages)])
            )
        return rng.randrange(max(model.first_seq - 5, 0), model.last_seq + 5)

    def remove(self) -> None:
        seq = self.some_seq()
        self.say(str(seq))
        assert self.store.remove(seq) == self.model.drop(seq)

    def erase(self) -> None:
        seq = self.some_seq()
        self.say(str(seq))
        assert self.store.erase(seq) == self.model.drop(seq)

    def remove_many(self) -> None:
        rng = self.random
        seqs = [self.some_seq() for _ in range(rng.randrange(12))]
        if rng.random() < 0.3:
            first = self.some_seq()
            seqs += range(first, first + rng.randrange(30))
        self.say(str(seqs))
        assert self.store.remove_many(seqs) == self.model.drop_all(seqs)

    def skip(self) -> None:
        count = self.random.choice([1, 1, 2, 7, 100])
        self.say(str(count))
        assert self.store.skip(count) == self.model.skip(count)

    def advance(self) -> None:
        ns = self.random.choice([1, 1000, SECOND // 3, SECOND, 5 * SECOND, 25 * SECOND])
        self.say(f"{ns} ns")
        self.model.expire(self.clock.advance(ns))

    def purge(self) -> None:
        assert self.store.purge() == self.model.compact(self.model.last_seq + 1)

    def purge_ex(self) -> None:
        rng = self.random
        subject = rng.choice(["", ">", "a", "a.*", "n.*", "b.>", "none", "n.5", "*"])
        seq = self.some_seq() if rng.random() < 0.4 else 0
        keep = 0 if seq else rng.choice([0, 0, 1, 3, 10])
        self.say(f"{subject!r} seq {seq} keep {keep}")
        assert self.store.purge_ex(subject, seq, keep) == self.model.purge_ex(subject, seq, keep)

    def compact(self) -> None:
        rng, model = self.random, self.model
        seq = rng.choice(
            [
                0,
                1,
                model.first_seq,
                self.some_seq(),
                model.last_seq,
                model.last_seq + 1,
                model.last_seq + rng.randrange(1, 30),
            ]
        )
        self.say(str(seq))
        assert self.store.compact(seq) == model.compact(seq)

    def truncate(self) -> None:
        rng, model = self.random, self.model
        seq = rng.choice(
            [
                self.some_seq(),
                model.last_seq,
                model.last_seq - rng.randrange(10),
                model.first_seq - 1,
                model.first_seq - 3,
            ]
        )
        if rng.random() < 0.05:
            seq = 0
        seq = max(seq, 0)
        self.say(str(seq))
        self.store.truncate(seq)
        model.truncate(seq)

    def reopen(self) -> None:
        rng, store = self.random, self.store
        assert isinstance(store, FileStore)
        is_clean = rng.random() < 0.5
        if is_clean:
            store.stop()
        else:
            store.flush_all_pending()
            store.abandon()
        gone = [name for name in ("CHECKPOINT", "sum", "HEAD") if rng.random() < 0.3]
        for path in (*self.root.glob("blocks/*.sum"), self.root / "CHECKPOINT", self.root / "HEAD"):
            is_gone = path.name in gone or ("sum" in gone and path.suffix == ".sum" and rng.random() < 0.8)
            if is_gone and path.exists():
                path.unlink()
        self.say(f"{'clean' if is_clean else 'unclean'}, without {gone}")
        self.store = self.open()
        assert self.store.report.is_clean, [str(one) for one in self.store.report.findings]
        assert not self.store.lost

    # Comparisons.

    def compare(self) -> None:
        found, model = self.store.fast_state(), self.model
        assert (found.messages, found.bytes, found.first_seq, found.last_seq) == (
            len(model.messages),
            model.bytes,
            model.first_seq,
            model.last_seq,
        )
        assert found.num_subjects == len(model.by_subject)
        assert not self.store.lost, [str(one) for one in self.store.report.findings]
        assert found.num_deleted == model.last_seq + 1 - model.first_seq - len(model.messages)

    def compare_all(self) -> None:
        store, model, rng = self.store, self.model, self.random
        stored = {one.seq: (one.subject, one.raw_headers, one.data, one.time_ns) for one in store.read()}
        assert stored == model.messages
        state = store.state()
        assert state.deleted is not None and state.deleted.ranges() == model.deleted()
        assert state.first_time == (model.messages[model.first_seq][3] if model.messages else 0)
        subjects = {name: (len(own), min(own), max(own)) for name, own in model.by_subject.items()}
        assert {
            name: (one.messages, one.first_seq, one.last_seq) for name, one in store.subjects_state().items()
        } == subjects
        assert store.subjects_totals() == {name: own[0] for name, own in subjects.items()}
        assert store.all_last_seqs() == model.last_seqs([], 0)
        for seq in {self.some_seq() for _ in range(8)} | {0, model.last_seq, model.last_seq + 1}:
            self.compare_load(seq)
        for _ in range(6):
            filters, start = rng.choice(FILTERS), self.some_seq()
            wanted = model.wanted(filters, start)
            where = f"filters {filters} start {start}"
            assert store.num_pending(start, filters) == len(wanted), where
            ends = (len(wanted), wanted[0], wanted[-1]) if wanted else (0, 0, 0)
            assert store.filtered_state(filters, start) == type(store.filtered_state(filters, start))(*ends), where
            last = [seq for seq in model.last_seqs(filters, 0) if seq >= start]
            assert store.num_pending(start, filters, last_per_subject=True) == len(last), where
            assert store.last_seqs(filters) == model.last_seqs(filters, 0), where
            assert store.last_seqs(filters, max(start, 1)) == model.last_seqs(filters, max(start, 1)), where
            following = store.load_next(filters, start)
            assert (following.seq if following else None) == (wanted[0] if wanted else None), where
            before = [seq for seq in model.wanted(filters) if seq <= start]
            previous = store.load_prev(filters, start)
            assert (previous.seq if previous else None) == (before[-1] if before else None), where
            assert [one.seq for one in store.read(filters, start, start + 20)] == [
                seq for seq in wanted if seq < start + 20
            ], where
        time = self.clock.now_ns() - rng.choice([0, 1, SECOND, 5 * SECOND, 30 * SECOND, 10**15])
        after = [seq for seq, found in model.messages.items() if found[3] >= time]
        assert store.seq_from_time(time) == (after[0] if after else model.last_seq + 1)

    def compare_load(self, seq: int) -> None:
        model = self.model
        found = model.messages.get(seq)
        if found is not None:
            message = self.store.load(seq)
            assert (message.subject, message.raw_headers, message.data, message.time_ns) == found
        else:
            if seq > model.last_seq:
                error: type[Exception] = EndOfStream
            elif seq < model.first_seq or seq in model.skipped:
                error = MessageNotFound
            else:
                error = MessageDeleted
            with pytest.raises(error):
                self.store.load(seq)

    def close(self) -> None:
        if isinstance(self.store, FileStore):
            self.store.abandon()


@contextmanager
def told(machine: Machine, seed: int) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(
            f"SEED={seed}, durability {machine.durability}; the last steps:\n  " + "\n  ".join(machine.steps)
        )
        raise


CASES = [
    (kind, config, chunk)
    for config in CONFIGS
    for kind, chunks in (("file", 2), ("memory", 1))
    for chunk in range(chunks)
]


@pytest.mark.parametrize(("kind", "config", "chunk"), CASES, ids=["-".join(map(str, case)) for case in CASES])
def test_the_store_does_what_a_dictionary_would(kind: str, config: str, chunk: int) -> None:
    seed = SEED + chunk
    root = Path(tempfile.mkdtemp(prefix="penstock-model-", dir=MEMORY))
    machine = Machine(kind, config, seed, root)
    try:
        with told(machine, seed):
            machine.run(max(OPERATIONS // len(CASES), 1))
    finally:
        machine.close()
        shutil.rmtree(root)
