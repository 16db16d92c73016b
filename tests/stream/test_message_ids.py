"""Messages with ids pass in runs: judged as the rules judge each of them alone, in any mix and any batching."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import ApiError, MaxMsgsExceeded, MessageTooLarge, WrongLastMsgId
from penstock.store.file_store import FileStore
from penstock.store.memory_store import MemoryStore
from penstock.store.write.batch import Batch
from penstock.stream import rules
from penstock.stream.config import make_config
from penstock.stream.config_rules import check_create
from penstock.stream.stream import StreamRules, limits_of
from penstock.testing import FakeClock
from penstock.wire.headers import encode

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines that test are busy
SECOND = 1_000_000_000


def stream(**fields: Any) -> StreamRules:
    config = check_create(make_config("T", subjects="t.>", storage="memory", **fields))
    return StreamRules(config, MemoryStore("T", limits_of(config), FakeClock()))


def with_id(msg_id: str, **more: str) -> bytes:
    return encode({"Nats-Msg-Id": msg_id} | {key.replace("_", "-"): value for key, value in more.items()})


def answers(taken: tuple[list[tuple[int, ApiError]], dict[int, int]], batch: Batch) -> list[Any]:
    """A sequence, ("duplicate", of what) or the error, for each message."""
    refused, duplicates = taken
    found: list[Any] = [batch.seq(n) for n in range(batch.count)]
    for at, seq in duplicates.items():
        found[at] = ("duplicate", seq)
    for at, error in refused:
        assert found[at] == 0
        found[at] = error.to_json()
    return found


def test_an_id_that_comes_twice_in_one_batch_is_stored_once() -> None:
    rules = stream()
    batch = Batch.of([("t.a", b"1", with_id("a")), ("t.b", b"2", with_id("b")), ("t.a", b"3", with_id("a"))])
    assert answers(rules.take(batch), batch) == [1, 2, ("duplicate", 1)]
    again = Batch.of([("t.a", b"4", with_id("b")), ("t.a", b"5")])
    assert answers(rules.take(again), again) == [("duplicate", 2), 3]
    assert rules.store.index.messages == 3


def test_the_id_of_a_refused_message_is_free() -> None:
    rules = stream(max_msgs=1, discard="new")
    batch = Batch.of([("t.a", b"1", with_id("a")), ("t.a", b"2", with_id("b")), ("t.a", b"3", with_id("b"))])
    refused, duplicates = rules.take(batch)
    assert [(at, type(error)) for at, error in refused] == [(1, MaxMsgsExceeded), (2, MaxMsgsExceeded)]
    assert duplicates == {}
    rules.store.purge()
    again = Batch.one("t.a", b"4", with_id("b"))
    assert answers(rules.take(again), again) == [2]


def test_a_message_that_is_too_large_is_refused_before_its_id_is_looked_at() -> None:
    rules = stream(max_msg_size=60)
    first = Batch.one("t.a", b"", with_id("a"))
    rules.take(first)
    batch = Batch.of([("t.a", b"x" * 60, with_id("a")), ("t.a", b"", with_id("a"))])
    refused, duplicates = rules.take(batch)
    assert [(at, type(error)) for at, error in refused] == [(0, MessageTooLarge)] and duplicates == {1: 1}


def test_the_last_id_is_known_within_a_batch_and_after_it() -> None:
    rules = stream()
    expect = {"Nats-Expected-Last-Msg-Id": "b"}
    batch = Batch.of(
        [
            ("t.a", b"", with_id("a")),
            ("t.a", b"", with_id("b")),
            ("t.a", b"", with_id("a")),
            ("t.a", b"", encode(expect)),
        ]
    )
    assert answers(rules.take(batch), batch) == [1, 2, ("duplicate", 1), 3]
    late = Batch.one("t.a", b"", encode(expect))
    [(_, error)] = rules.take(late)[0]
    assert isinstance(error, WrongLastMsgId) and error.to_json()["description"] == "wrong last msg ID: "


def test_an_id_is_free_again_after_its_window() -> None:
    rules = stream(duplicate_window="10s")
    clock = rules.store.clock
    assert isinstance(clock, FakeClock)
    rules.take(Batch.one("t.a", b"", with_id("a")))
    clock.advance(9 * SECOND)
    batch = Batch.one("t.a", b"", with_id("a"))
    assert answers(rules.take(batch), batch) == [("duplicate", 1)]
    clock.advance(SECOND)
    batch = Batch.one("t.a", b"", with_id("a"))
    assert answers(rules.take(batch), batch) == [2]


ODD = [
    b"NATS/1.0\r\nnats-msg-id: a\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id:a\r\nNats-Msg-Id: b\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id:   \r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id: \r\nNats-Msg-Id: a\r\n\r\n",
    b"NATS/1.0 503 None\r\nNats-Msg-Id: a\r\n\r\n",
    b"NATS/1.0 503\r\n\r\n",
    b"NATS/1.0\r\nA: Nats-Msg-Id: a\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id: a",
    b"NATS/1.0\r\nNats-Msg-Id: a\r\n\r\nNats-TTL: 1\r\n",
    b"NATS/1.0\r\n\r\nNats-Msg-Id: b\r\n",
    b"Nats-Msg-Id: a\r\n\r\n",
    b"NATS/1.0\r\nNats-Request-Info: {}\r\nNats-Msg-Id: a\r\n\r\n",
    b"NATS/1.0\r\nNats-Other: x\r\n\r\n",
    b"NATS/1.0\r\nNats-Expected-Stream: X\r\nNats-Msg-Id: a\r\n\r\n",
    b"NATS/1.0\r\nNats-Expected-Last-Sequence: 1\r\n\r\n",
    b"NATS/1.0\r\nNats-Expected-Last-Msg-Id: a\r\n\r\n",
    b"\r\nNats-Msg-Id: b\r\n",
]
HEADERS = st.sampled_from(ODD) | st.sampled_from("abc").map(with_id) | st.just(b"") | st.binary(max_size=20)


@relaxed
@given(st.lists(st.tuples(st.sampled_from(["t.a", "t.b", "x", "t..a"]), HEADERS), max_size=12), st.integers(0, 9))
def test_a_run_is_judged_as_its_messages_are_alone(items: list[tuple[str, bytes]], seed: int) -> None:
    """One stream takes them in batches; the other one by one, each judged in Python."""
    together, alone = stream(max_msgs=6, discard="new"), stream(max_msgs=6, discard="new")
    found: list[Any] = []
    expected: list[Any] = []
    random_ = random.Random(seed)
    at = 0
    while at < len(items):
        stop = at + random_.randint(1, 5)
        batch = Batch.of([(subject, b"x", headers) for subject, headers in items[at:stop]])
        found += answers(together.take(batch), batch)
        at = stop
    for subject, headers in items:
        batch = Batch.one(subject, b"x", headers)
        refused: list[tuple[int, ApiError]] = []
        duplicates: dict[int, int] = {}
        alone._take_one(batch, 0, refused, duplicates)
        expected += answers((refused, duplicates), batch)
    assert found == expected
    stored = [[(m.seq, m.subject, m.raw_headers) for m in one.store.read()] for one in (together, alone)]
    assert stored[0] == stored[1]
    assert len(together.dedupe) == len(alone.dedupe)


def test_the_batch_and_the_rules_know_the_same_headers() -> None:
    assert len(rules._RULED) == 16 and max(map(len, rules._RULED)) == rules._KEY_SIZE_MAX == 43


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "T"


def open_files(path: Path, clock: FakeClock) -> StreamRules:
    config = check_create(make_config("T", subjects="t.>", max_bytes=120_000))  # blocks of 32 kB
    return StreamRules(config, FileStore(path, bytes(16), limits=limits_of(config), clock=clock, durability="os"))


@pytest.mark.parametrize("is_clean", [True, False], ids=["closed", "crashed"])
def test_ids_are_known_again_after_an_open(files: Path, is_clean: bool) -> None:
    """Over several blocks, with and without their summaries; only those of the window."""
    clock = FakeClock()
    first = open_files(files, clock)
    old = [("t.a", b"x" * 20, with_id(f"old{n}")) for n in range(300)]
    new = [("t.a", b"x" * 20, with_id(f"new{n}")) for n in range(900)]
    first.take(Batch.of(old))
    first.store.commit()
    clock.advance(first.config.duplicate_window)
    first.take(Batch.of(new))
    first.store.commit()
    assert isinstance(first.store, FileStore) and len(first.store.query.blocks()) > 2
    if is_clean:
        first.store.stop()
    else:
        first.store.abandon()
        for summary in list((files / "blocks").glob("*.sum"))[::2]:
            summary.unlink()
    again = open_files(files, clock)
    assert len(again.dedupe) == 900
    batch = Batch.of(new)
    refused, duplicates = again.take(batch)
    assert refused == [] and list(duplicates.values()) == list(range(301, 1201))
    batch = Batch.of(old)
    assert again.take(batch) == ([], {})
    again.store.stop()


def test_a_roll_back_frees_the_ids(files: Path) -> None:
    rules = open_files(files, FakeClock())
    rules.take(Batch.one("t.a", b"", with_id("kept")))
    rules.store.commit()
    rules.take(Batch.of([("t.a", b"", with_id("gone")), ("t.a", b"", with_id("kept"))]))
    assert isinstance(rules.store, FileStore)
    rules.store.rollback.run()
    batch = Batch.of([("t.a", b"", with_id("gone")), ("t.a", b"", with_id("kept"))])
    assert answers(rules.take(batch), batch) == [2, ("duplicate", 1)]
    rules.store.abandon()
