"""Shared by the crash campaigns: scenarios, a model of what the store must hold after each step, and the check of a
store against it.

A Driver runs a store and records its contents after each acknowledged step. The image that a crash left is checked
against a window of those states: from the last one that must have survived (how far back that is depends on the
durability and on whether the power was cut) to the step that was running. The store must hold what every state of the
window holds, and nothing that no state of the window holds.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

from penstock.base.disk import Disk
from penstock.errors import EndOfStream, MessageDeleted, MessageNotFound
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.store.write.batch import Batch
from penstock.testing import CrashDisk, CrashImage, FakeClock, crash_images

STREAM_ID = bytes(range(16))
DURABILITIES = ("disk", "os", "lazy")
ACKED, WRITTEN, SYNCED = range(3)  # the failure that a finished step survives: none, kill -9, a power cut
SEED = int(os.environ.get("SEED") or 20_261_115)

Content = tuple[str, bytes | None, bytes]


def campaign_size(default: int) -> int:
    """`N=` from the environment; empty means the default."""
    return int(os.environ.get("N") or default)


def chunk_seed(*parts: object) -> int:
    """A seed that differs per chunk and is derived from SEED."""
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
    # every message that this step added, also those that are gone again
    published: dict[int, Content] = field(default_factory=dict)


class Driver:
    """A store and its model, step by step.

    Always true: `states[-1]` is the last acknowledged state. A step that raises leaves the model unchanged.
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
        self.aimed: State | None = None  # the state that the running step leads to
        self.erased: dict[int, list[bytes]] = {}  # payloads that were erased, by the number of the step

    @property
    def live(self) -> dict[int, Content]:
        return self.states[-1].live

    @property
    def last_seq(self) -> int:
        return self.states[-1].last_seq

    def aim(
        self, what: str, live: dict[int, Content] | None = None, last_seq: int | None = None, **more: object
    ) -> None:
        """Set the state that the next step leads to."""
        before = self.states[-1]
        self.aimed = State(
            what,
            before.live if live is None else live,
            before.last_seq if last_seq is None else last_seq,
            **{"safety": self.usual, "is_open": True, **more},  # type: ignore[arg-type]
        )

    def aim_without(self, what: str, gone: Callable[[int], bool], **more: object) -> None:
        self.aim(what, {seq: one for seq, one in self.live.items() if not gone(seq)}, **more)

    def note(self) -> None:
        """The step was acknowledged: its state becomes the last one, and a mark is written to the disk's log."""
        assert self.store is not None and self.aimed is not None
        self.states.append(replace(self.aimed, epoch=self.store.epoch))
        self.aimed = None
        self.on_step(len(self.states) - 1)

    # Steps.

    def open(self) -> None:
        self.aim("open", safety=SYNCED if self.states[-1].safety == SYNCED else self.usual)
        self.store = open_store(self.path, self.durability, self.limits, self.disk, self.clock)
        self.note()

    def stop(self) -> None:
        assert self.store is not None
        self.aim("stop", safety=SYNCED, is_open=False)
        self.store.stop()
        self.note()

    def reopen(self) -> None:
        self.stop()
        self.open()

    def make(self, subject: str | None = None) -> Content:
        """A message that differs from all others."""
        rng = self.rng
        self.number += 1
        size = rng.choice((0, 3, 20, 60, 150, 300))
        headers = rng.choice((None, None, b"NATS/1.0\r\nA: %d\r\n\r\n" % self.number))
        return subject or f"s.{rng.randrange(12)}", headers, b"%d:" % self.number + rng.randbytes(size)

    def append(self, count: int = 1, subject: str | None = None) -> None:
        assert self.store is not None
        made = {self.last_seq + 1 + n: self.make(subject) for n in range(count)}
        batch = Batch.of([(name, payload, headers) for name, headers, payload in made.values()])
        live = dict(self.live)
        for seq, content in made.items():
            live[seq] = content
            most = self.limits.max_msgs_per_subject
            own = [one for one in live if live[one][0] == content[0]] if most > 0 else []
            for one in own[:-most] if own else ():
                del live[one]
        while 0 < self.limits.max_msgs < len(live):
            del live[next(iter(live))]
        self.aim(f"append {count}", live, self.last_seq + count, published=made)
        self.clock.advance(1_000_000)
        self.store.append(batch)
        self.store.commit()
        assert [batch.seq(n) for n in range(count)] == list(made), "sequences run on"
        self.note()

    def any_seq(self) -> int:
        return self.rng.choice(list(self.live)) if self.live else 1

    def remove(self) -> None:
        assert self.store is not None
        seq = self.any_seq()
        self.aim_without(f"remove {seq}", lambda one: one == seq)
        assert self.store.remove(seq) == (seq in self.live)
        self.note()

    def remove_many(self) -> None:
        assert self.store is not None
        seqs = set(self.rng.sample(list(self.live), len(self.live) // 3))
        self.aim_without(f"remove {len(seqs)}", lambda one: one in seqs)
        assert self.store.remove_many(list(seqs)) == len(seqs)
        self.note()

    def erase(self) -> None:
        assert self.store is not None
        seq = self.any_seq()
        erased = [self.live[seq][2]] if seq in self.live else []
        self.aim_without(f"erase {seq}", lambda one: one == seq, safety=SYNCED if erased else self.states[-1].safety)
        assert self.store.erase(seq) == bool(erased)
        self.erased[len(self.states)] = erased
        self.note()

    def purge(self) -> None:
        assert self.store is not None
        self.aim("purge", {})
        self.store.purge()
        self.note()

    def purge_subject(self) -> None:
        assert self.store is not None
        subject, keep = f"s.{self.rng.randrange(12)}", self.rng.randrange(3)
        own = [seq for seq in self.live if self.live[seq][0] == subject]
        gone = set(own[: len(own) - keep] if keep else own)
        self.aim_without(f"purge {subject} keep {keep}", lambda one: one in gone)
        assert self.store.purge_ex(subject, keep=keep) == len(gone)
        self.note()

    def compact(self) -> None:
        assert self.store is not None
        seq = self.any_seq()
        self.aim_without(f"compact {seq}", lambda one: one < seq)
        self.store.compact(seq)
        self.note()

    def compact_beyond(self) -> None:
        assert self.store is not None
        seq = self.last_seq + self.rng.randrange(2, 5)
        self.aim(f"compact {seq}", {}, seq - 1)
        self.store.compact(seq)
        self.note()

    def skip(self) -> None:
        assert self.store is not None
        count = self.rng.randrange(1, 4)
        self.aim(f"skip {count}", None, self.last_seq + count)
        assert self.store.skip(count) == self.last_seq + count
        self.note()

    def truncate(self) -> None:
        assert self.store is not None
        if not self.last_seq:
            return
        seq = self.last_seq - self.rng.randrange(1, min(self.last_seq, 30) + 1)
        live = {one: self.live[one] for one in self.live if one <= seq}
        self.aim(f"truncate {seq}", live, seq, safety=SYNCED)
        self.store.truncate(seq)
        self.note()

    def flush(self) -> None:
        assert self.store is not None
        self.aim("flush", safety=max(WRITTEN, self.usual))
        self.store.flush_all_pending()
        self.note()

    def sync(self) -> None:
        assert self.store is not None
        self.aim("sync", safety=SYNCED)
        self.store.sync()
        self.note()

    def checkpoint(self) -> None:
        assert self.store is not None
        self.aim("checkpoint", safety=SYNCED)
        self.store.write_checkpoint()
        self.note()

    def close(self) -> None:
        """Release the store, whatever state it is in."""
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
    """Single and many deletes, purges, compactions: whole blocks are removed."""
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
    """Every append removes the oldest message."""
    for n in range(45):
        d.append(d.rng.randrange(1, 5))
        if n % 20 == 19:
            d.sync()


def per_subject(d: Driver) -> None:
    """One message per subject: blocks lose their last message in the middle of the stream, beside blocks that live
    long.
    """
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
    """Sequences are truncated and used again."""
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
    """Random steps, derived from the seed."""
    steps = [
        *[d.append] * 6, *[lambda: d.append(4)] * 6, *[d.remove] * 2, d.remove_many, d.erase, d.purge_subject,
        d.compact, d.compact_beyond, d.skip, d.truncate, d.flush, d.sync, d.checkpoint, d.reopen,
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
    """Run the whole scenario, from the first open to the last stop; check that the store finally matches the model."""
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
        path,
        STREAM_ID,
        name="CASE",
        limits=limits,
        durability=durability,
        disk=disk or Disk(),
        clock=clock or FakeClock(),
    )


@contextmanager
def booted(count: int) -> Iterator[None]:
    """Pretend that the machine has rebooted this many times, as it has after a power cut."""
    boot_id = bytes([count]) * 16
    if not count:
        yield
        return
    with (
        patch("penstock.store.open.recovery.boot_id", lambda: boot_id),
        patch("penstock.store.file_store.boot_id", lambda: boot_id),
    ):
        yield


@contextmanager
def opened(path: Path, durability: str, limits: Limits, boots: int = 0) -> Iterator[FileStore]:
    """A store on a plain disk, released at the end in any case."""
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
    """The store's counters equal those of a full walk."""
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
    """The states that a crash may have left."""

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
    """From the last state that must have survived to the step that was running."""
    acked = mark or 0
    needed = SYNCED if is_power_cut else WRITTEN
    start = acked
    while durability != "disk" and states[start].safety < needed and start:
        start -= 1
    return Window(states[start : acked + 2])


def check_window(store: FileStore, window: Window) -> dict[int, Content]:
    """The store holds everything it must, and nothing but what it may; returns its contents."""
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
    """The store accepts writes, with sequences of their own, and is unchanged after a clean stop."""
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


def check_images(disk: CrashDisk, folder: Path, count: int, seed: int, check: Callable[[CrashImage], None]) -> None:
    """Run `check` on each of `count` images; a failure names the image."""
    folder.mkdir()
    for image in crash_images(disk, folder, count=count, seed=seed):
        try:
            check(image)
        except BaseException as error:
            error.add_note(f"seed {seed}, image: {image.description}")
            raise
        image.remove()
