"""Ages compared with the real time at which each message was stored, while the machine's clock is set again
and again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.store.base import Store
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.store.memory_store import MemoryStore
from penstock.store.write.batch import Batch
from penstock.testing import FakeClock

MS = 10**6
S = 1000 * MS
MAX_AGE = 20 * S
LATE = max(MAX_AGE // 1024, MS)


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    limits = Limits(block_size=2000, max_age_ns=MAX_AGE)
    if request.param == "memory":
        yield MemoryStore("m", limits, FakeClock())
        return
    found = FileStore(tmp_path / "stream", b"0123456789abcdef", limits=limits, durability="lazy", clock=FakeClock())
    yield found
    found.abandon()


@pytest.mark.parametrize("seed", range(12))
def test_nothing_goes_early_and_nothing_stays_long(store: Store, seed: int) -> None:
    rng, clock = random.Random(seed), store.clock
    assert isinstance(clock, FakeClock)
    taken: dict[int, int] = {}
    low = 1
    for _ in range(1500):
        choice = rng.random()
        if choice < 0.04:
            clock.jump(rng.choice([-1, 1]) * rng.choice([S // 3, 5 * S, 30 * S, 3600 * S, 10**16]))
        elif choice < 0.5:
            clock.advance(rng.choice([0, 1, MS // 3, 7 * MS, S // 3, S, 5 * S]))
        elif choice < 0.51 and store.index.last_seq:
            store.truncate(max(store.index.last_seq - rng.randint(1, 3), store.index.first_seq - 1))
            taken = {seq: at for seq, at in taken.items() if seq <= store.index.last_seq}
        else:
            batch = Batch.of([("a", b"x")] * rng.randint(1, 4))
            store.append(batch)
            store.commit()
            taken |= dict.fromkeys(batch.seqs(), clock.now_ns())
        store.expire_if_due()
        now, first = clock.now_ns(), store.index.first_seq
        assert all(now - taken[seq] >= MAX_AGE for seq in range(low, first) if seq in taken), "none is early"
        if store.index.messages:
            assert now - taken[first] < MAX_AGE + LATE, "none is later than that"
            assert store.next_due <= taken[first] + MAX_AGE + LATE
        low = first
    times = [message.time_ns for message in store.read()]
    assert times == sorted(times)
