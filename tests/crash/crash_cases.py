"""What the crash campaigns share: scenarios, a model of what must be there after each step, and the check of a
store against it.

A Driver runs a store and notes after each acknowledged step what it holds. An image that a crash left is judged by
a window of those
states: from the last one that must have survived (how far back depends on the durability and on whether the power
was cut) to
the step that was under way. What every state of the window has must be there; what none of them has must not.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from penstock.errors import EndOfStream, MessageDeleted, MessageNotFound
from penstock.kernel.batch import Batch
from penstock.kernel.disk import Disk
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.testing import FakeClock

STREAM_ID = bytes(range(16))
DURABILITIES = ("disk", "os", "lazy")
ACKED, WRITTEN, SYNCED = range(3)  # what a step left behind is safe against: nothing, kill -9, a power cut
SEED = int(os.environ.get("SEED") or 20_261_115)

Content = tuple[str, bytes | None, bytes]


def campaign_size(default: int) -> int:
    """`N=` from the environment; empty means the default."""
    return int(os.environ.get("N") or default)


def chunk_seed(*parts: object) -> int:
    """A seed that differs per chunk and follows SEED."""
    return random.Random(f"{SEED} {parts}").getrandbits(32)


@dataclass(frozen=True, slots=True)
class State:
    """What the stream holds after a step."""

    what: str
    live: dict[int, Content] = field(default_factory=dict)
    last_seq: int = 0
    epoch: int = 0
    safety: int = SYNCED
    is_open: bool = False
    published: dict[int, Content] = field(default_factory=dict)  # by this step, also what is gone again


class Driver:
    """A store and the model of it, step by step.

    Always true: `states[-1]` is the last acknowledged one. A step that raises leaves the model as it was.
    """

    def __init__(
        self,
        path: Path,
        durability: str,
        limits: Limits,
        seed: int,
        disk: Disk | None = None,
        on_step: Callable[[int], None] | None = None,
    ) -> None:
        self.path, self.durability, self.limits = path, durability, limits
        self.disk = disk or Disk()
        self.clock = FakeClock()
        self.rng = random.Random(seed)
        self.states = [State("nothing")]
        self.on_step = on_step or (lambda number: None)
        self.usual = {"disk": SYNCED, "os": WRITTEN, "lazy": ACKED}[durability]
        self.store: FileStore | None = None
        self.number = 0
        self.under_way: dict[int, Content] = {}  # what the step that runs has published

    @property
    def live(self) -> dict[int, Content]:
        return self.states[-1].live

    @property
    def last_seq(self) -> int:
        return self.states[-1].last_seq

    def note(self, what: str, live: dict[int, Content] | None = None, last_seq: int | None = None, **more: object) -> None:
        """Acknowledged: the new state, and a mark in the disk's log."""
        before = self.states[-1]
        assert self.store is not None
        self.states.append(
            State(
                what,
                before.live if live is None else live,
                before.last_seq if last_seq is None else last_seq,
                self.store.epoch,
                **{"safety": self.usual, "is_open": True, **more},  # type: ignore[arg-type]
            )
        )
        self.on_step(len(self.states) - 1)

    # Steps.

    def open(self) -> None:
        self.store = open_store(self.path, self.durability, self.limits, self.disk, self.clock)
        self.note("open", safety=SYNCED if self.states[-1].safety == SYNCED else self.usual)

    def stop(self) -> None:
        assert self.store is not None
        self.store.stop()
        self.note("stop", safety=SYNCED, is_open=False)

    def reopen(self) -> None:
        self.stop()
        self.open()

    def make(self, subject: str | None = None) -> Content:
        """A message that no other is equal to."""
        rng = self.rng
        self.number += 1
        size = rng.choice((0, 3, 20, 60, 150, 300))
        headers = rng.choice((None, None, b"NATS/1.0\r\nA: %d\r\n\r\n" % self.number))
        return subject or f"s.{rng.randrange(12)}", headers, b"%d:" % self.number + rng.randbytes(size)

    def append(self, count: int = 1, subject: str | None = None) -> None:
        assert self.store is not None
        made = [self.make(subject) for _ in range(count)]
        batch = Batch.of([(name, payload, headers) for name, headers, payload in made])
        self.under_way = {self.last_seq + 1 + n: one for n, one in enumerate(made)}
        self.clock.advance(1_000_000)
        self.store.append(batch)
        self.store.commit()
        assert [batch.seq(n) for n in range(count)] == list(self.under_way), "sequences run on"
        live = dict(self.live)
        for seq, content in self.under_way.items():
            live[seq] = content
            most = self.limits.max_msgs_per_subject
            own = [one for one in live if live[one][0] == content[0]] if most > 0 else []
            for one in own[:-most] if own else ():
                del live[one]
        most = self.limits.max_msgs
        while 0 < most < len(live):
            del live[next(iter(live))]
        self.note(f"append {count}", live, self.last_seq + count, published=self.under_way)
        self.under_way = {}

    def drop(self, what: str, gone: Callable[[int], bool], **more: object) -> None:
        self.note(what, {seq: one for seq, one in self.live.items() if not gone(seq)}, **more)

    def any_seq(self) -> int:
        return self.rng.choice(list(self.live)) if self.live else 1

    def remove(self) -> None:
        assert self.store is not None
        seq = self.any_seq()
        assert self.store.remove(seq) == (seq in self.live)
        self.drop(f"remove {seq}", lambda one: one == seq)

    def remove_many(self) -> None:
        assert self.store is not None
        seqs = set(self.rng.sample(list(self.live), len(self.live) // 3))
        assert self.store.remove_many(list(seqs)) == len(seqs)
        self.drop(f"remove {len(seqs)}", lambda one: one in seqs)

    def erase(self) -> None:
        assert self.store is not None
        seq = self.any_seq()
        assert self.store.erase(seq) == (seq in self.live)
        self.drop(f"erase {seq}", lambda one: one == seq, safety=SYNCED if seq in self.live else self.states[-1].safety)

    def purge(self) -> None:
        assert self.store is not None
        self.store.purge()
        self.drop("purge", lambda one: True)

    def purge_subject(self) -> None:
        assert self.store is not None
        subject, keep = f"s.{self.rng.randrange(12)}", self.rng.randrange(3)
        own = [seq for seq in self.live if self.live[seq][0] == subject]
        gone = set(own[: len(own) - keep] if keep else own)
        assert self.store.purge_ex(subject, keep=keep) == len(gone)
        self.drop(f"purge {subject} keep {keep}", lambda one: one in gone)

    def compact(self) -> None:
        assert self.store is not None
        seq = self.any_seq()
        self.store.compact(seq)
        self.drop(f"compact {seq}", lambda one: one < seq)

    def compact_beyond(self) -> None:
        assert self.store is not None
        seq = self.last_seq + self.rng.randrange(2, 5)
        self.store.compact(seq)
        self.note(f"compact {seq}", {}, seq - 1)

    def skip(self) -> None:
        assert self.store is not None
        count = self.rng.randrange(1, 4)
        assert self.store.skip(count) == self.last_seq + count
        self.note(f"skip {count}", None, self.last_seq + count)

    def truncate(self) -> None:
        assert self.store is not None
        seq = self.last_seq - self.rng.randrange(min(self.last_seq, 30) + 1)
        self.store.truncate(seq)
        live = {one: self.live[one] for one in self.live if one <= seq}
        self.note(f"truncate {seq}", live, seq, safety=SYNCED if seq < self.last_seq else self.usual)

    def flush(self) -> None:
        assert self.store is not None
        self.store.flush_all_pending()
        self.note("flush", safety=max(WRITTEN, self.usual))

    def sync(self) -> None:
        assert self.store is not None
        self.store.sync()
        self.note("sync", safety=SYNCED)

    def checkpoint(self) -> None:
        assert self.store is not None
        self.store.write_checkpoint()
        self.note("checkpoint", safety=SYNCED)

    def close(self) -> None:
        """Let go of the store, whatever state it is in."""
        if self.store is not None:
            self.store.abandon()


# ---------------------------------------------------------------------------------------------------------- scenarios


def plain(d: Driver) -> None:
    """Appends over many small blocks."""
    for n in range(45):
        d.append(d.rng.randrange(1, 6))
        if n % 15 == 14:
            d.sync()


def deletes(d: Driver) -> None:
    """Single and many deletes, purges, compactions: blocks go."""
    for step in range(6):
        for _ in range(5):
            d.append(d.rng.randrange(1, 5))
        d.remove()
        d.remove_many()
        d.purge_subject()
        d.flush()
        (d.compact, d.remove, d.purge, d.remove_many, d.compact_beyond, d.compact)[step]()
    d.append(3)


def max_msgs(d: Driver) -> None:
    """The oldest go with every append."""
    for n in range(45):
        d.append(d.rng.randrange(1, 5))
        if n % 20 == 19:
            d.sync()


def per_subject(d: Driver) -> None:
    """One message per subject: blocks die in the middle, beside some that live long."""
    for n in range(50):
        if n % 12 == 0:
            d.append(1, f"rare.{n}")
        d.append(d.rng.randrange(1, 5))
        if n % 16 == 15:
            d.sync()


def erases(d: Driver) -> None:
    """Erase and skip, in the active block and in sealed ones."""
    for _ in range(8):
        d.append(3)
        d.erase()
        d.skip()
        d.append(2)
        d.flush()
    d.erase()


def truncates(d: Driver) -> None:
    """Sequences are taken back and used again."""
    for _ in range(3):
        for _ in range(8):
            d.append(d.rng.randrange(1, 4))
        d.remove_many()
        d.truncate()
        d.append(2)


def cycles(d: Driver) -> None:
    """Checkpoints, clean stops and opens."""
    for n in range(5):
        for _ in range(4):
            d.append(d.rng.randrange(1, 4))
        d.remove()
        if n % 2:
            d.checkpoint()
            d.append(2)
        d.reopen()
        d.append(1)


def mix(d: Driver) -> None:
    """Whatever the seed says."""
    steps = [
        *[d.append] * 6, *[lambda: d.append(4)] * 6, *[d.remove] * 2, d.remove_many, d.erase, d.purge_subject, d.compact,
        d.compact_beyond, d.skip, d.truncate, d.flush, d.sync, d.checkpoint, d.reopen,
    ]  # fmt: skip
    for _ in range(70):
        d.rng.choice(steps)()


SCENARIOS: dict[str, tuple[Callable[[Driver], None], Limits]] = {
    "plain": (plain, Limits(block_size=900)),
    "deletes": (deletes, Limits(block_size=900)),
    "max_msgs": (max_msgs, Limits(block_size=700, max_msgs=18)),
    "per_subject": (per_subject, Limits(block_size=600, max_msgs_per_subject=1)),
    "erases": (erases, Limits(block_size=700)),
    "truncates": (truncates, Limits(block_size=700)),
    "cycles": (cycles, Limits(block_size=700)),
    "mix": (mix, Limits(block_size=900)),
    "mix_per_subject": (mix, Limits(block_size=900, max_msgs_per_subject=2, max_msgs=40)),
}


def run(driver: Driver, name: str) -> None:
    """The whole scenario, from the first open to the last stop; the store in the end is as the model says."""
    driver.open()
    SCENARIOS[name][0](driver)
    assert driver.store is not None
    assert contents(driver.store) == driver.live
    driver.stop()


# ------------------------------------------------------------------------------------------------------- what is there


def open_store(
    path: Path, durability: str, limits: Limits, disk: Disk | None = None, clock: FakeClock | None = None
) -> FileStore:
    return FileStore(
        path, STREAM_ID, name="CASE", limits=limits, durability=durability, disk=disk or Disk(), clock=clock or FakeClock()
    )


@contextmanager
def booted(count: int) -> Iterator[None]:
    """Pretend that the machine has started again so many times, as it has after a power cut."""
    boot_id = bytes([count]) * 16
    if not count:
        yield
        return
    with patch("penstock.store.recovery.boot_id", lambda: boot_id), patch("penstock.store.file_store.boot_id",
    lambda: boot_id):
        yield


@contextmanager
def opened(path: Path, durability: str, limits: Limits, boots: int = 0) -> Iterator[FileStore]:
    """A store on a plain disk, let go in the end however that comes."""
    with booted(boots):
        store = open_store(path, durability, limits)
    try:
        yield store
    finally:
        store.abandon()


def contents(store: FileStore) -> dict[int, Content]:
    """Every message, by walking."""
    return {one.seq: (one.subject, one.raw_headers, one.data) for one in store.read()}


def size_of(content: Content) -> int:
    subject, headers, payload = content
    return 22 + len(subject) + len(payload) + 8 + (4 + len(headers) if headers else 0)


def check_counters(store: FileStore, live: dict[int, Content]) -> None:
    """What the store counts is what a walk gives."""
    state = store.fast_state()
    assert state.messages == len(live)
    assert state.bytes == sum(map(size_of, live.values()))
    assert state.first_seq == min(live, default=state.last_seq + 1)
    assert state.last_seq >= max(live, default=0)
    totals = Counter(subject for subject, _, _ in live.values())
    assert state.num_subjects == len(totals)
    assert store.subjects_totals() == totals
    for name, one in store.subjects_state().items():
        own = [seq for seq in live if live[seq][0] == name]
        assert (one.messages, one.first_seq, one.last_seq) == (len(own), own[0], own[-1]), name
    assert state.num_deleted == state.last_seq + 1 - state.first_seq - len(live)
    deleted = store.state().deleted
    assert deleted is not None and deleted.count() == state.num_deleted
    for seq in {state.first_seq - 1, state.first_seq, state.last_seq, state.last_seq + 1, *list(live)[::7]} - {0}:
        try:
            found = store.load(seq)
            assert (found.subject, found.raw_headers, found.data) == live[seq]
        except (MessageDeleted, MessageNotFound):
            assert seq not in live and seq <= state.last_seq
        except EndOfStream:
            assert seq > state.last_seq


@dataclass(frozen=True, slots=True)
class Window:
    """The states between which a crash may have come out."""

    states: list[State]

    @property
    def must(self) -> dict[int, Content]:
        first, *rest = self.states
        return {seq: one for seq, one in first.live.items() if all(state.live.get(seq) == one for state in rest)}

    def allows(self, seq: int, content: Content) -> bool:
        return any(state.live.get(seq) == content or state.published.get(seq) == content for state in self.states)

    @property
    def last_seq(self) -> int:
        return min(state.last_seq for state in self.states)


def window_at(states: list[State], mark: int | None, durability: str, is_power_cut: bool) -> Window:
    """From the last state that must be there up to the step that was under way."""
    acked = mark or 0
    needed = SYNCED if is_power_cut else WRITTEN
    start = acked
    while durability != "disk" and states[start].safety < needed and start:
        start -= 1
    return Window(states[start : acked + 2])


def check_window(store: FileStore, window: Window) -> dict[int, Content]:
    """All that must be there is, nothing else but what may be; gives what there is."""
    live = contents(store)
    for seq, content in window.must.items():
        assert live.get(seq) == content, f"message {seq} was acknowledged and is {'wrong' if seq in live else 'gone'}"
    for seq, content in live.items():
        assert window.allows(seq, content), f"message {seq} was deleted or never published: {content!r:.80}"
    check_counters(store, live)
    assert store.fast_state().last_seq >= window.last_seq
    told = [seq for seq in window.must if any(start <= seq < stop for start, stop in store.report.lost)]
    assert not told, f"reported as lost, and there: {told}"
    return live


def check_goes_on(path: Path, durability: str, limits: Limits, store: FileStore, live: dict[int, Content]) -> None:
    """It takes writes, in sequences of their own, and is the same after a clean stop."""
    last_seq = store.fast_state().last_seq
    more: dict[int, Content] = {}
    for n in range(3):
        more[last_seq + 1 + n] = "after", None, b"after %d" % n
        assert store.store("after", b"after %d" % n) == last_seq + 1 + n
    expected = live | more
    if limits.max_msgs_per_subject > 0:
        for seq in list(more)[: -limits.max_msgs_per_subject]:
            del expected[seq]
    while 0 < limits.max_msgs < len(expected):
        del expected[next(iter(expected))]
    assert contents(store) == expected
    check_counters(store, expected)
    epoch, state = store.epoch, store.fast_state()
    store.stop()
    with opened(path, durability, limits) as again:
        assert again.report.is_clean, [str(one) for one in again.report.findings]
        assert contents(again) == expected
        check_counters(again, expected)
        assert again.epoch == epoch
        after = again.fast_state()
        assert (after.first_seq, after.last_seq, after.last_time) == (state.first_seq, state.last_seq, state.last_time)
