"""Subject delete markers: when they come, in what order, in which steps, and what a crash leaves of them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from penstock.store.base import NEVER
from penstock.store.deletes import delete_markers as replacement
from penstock.store.file_store import FileStore
from penstock.store.memory_store import MemoryStore
from penstock.store.write.batch import Batch
from penstock.stream.config import StreamConfig, make_config
from penstock.stream.config_rules import check_create
from penstock.stream.stream import StreamRules, limits_of
from penstock.testing import FakeClock
from penstock.wire.headers import encode

S = 1_000_000_000
MARKER = "NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 1m0s\r\nNats-Rollup: sub\r\n\r\n"


def config(**fields: Any) -> StreamConfig:
    return check_create(make_config("T", subjects="t.>", **({"subject_delete_marker_ttl": "1m"} | fields)))


def stream(**fields: Any) -> tuple[StreamRules, FakeClock]:
    clock, wanted = FakeClock(), config(storage="memory", **fields)
    return StreamRules(wanted, MemoryStore("T", limits_of(wanted), clock)), clock


def publish(rules: StreamRules, *items: tuple[str, dict[str, str]]) -> None:
    refused, _ = rules.take(Batch.of([(subject, b"x", encode(headers)) for subject, headers in items]))
    assert refused == []
    rules.store.commit()


def holds(rules: StreamRules) -> list[tuple[int, str, bool]]:
    """(sequence, subject, is it a marker) of all that there is."""
    return [
        (message.seq, message.subject, (message.raw_headers or b"").decode() == MARKER)
        for message in rules.store.read()
    ]


def test_expiry_needs_no_publish_and_no_read() -> None:
    rules, clock = stream()
    assert rules.expire(clock.now_ns()) == 0 and rules.next_due is None
    publish(rules, ("t.a", {"Nats-TTL": "70s"}), ("t.b", {}))
    assert rules.next_due is not None and clock.now_ns() < rules.next_due <= clock.now_ns() + 70 * S
    assert rules.expire(clock.advance(69 * S)) == 0
    assert rules.expire(clock.advance(S)) == 1
    assert holds(rules) == [(2, "t.b", False), (3, "t.a", True)]
    assert rules.next_due is not None
    assert rules.expire(clock.advance(60 * S)) == 1, "the marker goes too, and leaves none"
    assert holds(rules) == [(2, "t.b", False)] and rules.next_due is None


def test_only_the_last_message_of_a_subject_leaves_a_marker() -> None:
    rules, clock = stream(max_age="10m")
    publish(rules, *[(f"t.{n % 3}", {}) for n in range(9)])
    clock.advance(60 * S)
    publish(rules, ("t.0", {}))
    assert rules.expire(clock.advance(540 * S)) == 9
    assert holds(rules) == [(10, "t.0", False), (11, "t.1", True), (12, "t.2", True)]


def test_many_expire_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacement, "STEP_MAX", 10)
    rules, clock = stream(max_age="10m")
    publish(rules, *[(f"t.{n % 7}", {}) for n in range(35)])
    now = clock.advance(600 * S)
    counts = []
    while rules.next_due is not None and rules.next_due <= now:
        counts.append(rules.expire(now))
    assert counts == [10, 10, 10, 5]
    assert [subject for _, subject, is_marker in holds(rules) if is_marker] == [f"t.{n % 7}" for n in range(28, 35)]
    rules, clock = stream(max_age="10m")
    publish(rules, *[("t.a", {}) for n in range(35)])
    clock.advance(600 * S)
    assert rules.store.fast_state().messages == 1, "a read waits for all steps"


def test_a_full_stream_has_room_for_its_markers(caplog: pytest.LogCaptureFixture) -> None:
    rules, clock = stream(max_msgs=2, discard="new", max_age="10m")
    publish(rules, ("t.a", {}), ("t.b", {}))
    with caplog.at_level(logging.WARNING, "penstock"):
        rules.expire(clock.advance(600 * S))
    assert holds(rules) == [(3, "t.a", True), (4, "t.b", True)] and not caplog.records


def test_a_marker_that_cannot_be_stored_is_told(caplog: pytest.LogCaptureFixture) -> None:
    rules, clock = stream(max_age="10m")
    publish(rules, ("t.a", {}))
    rules.configure(config(storage="memory", max_age="10m", max_msg_size=5))
    with caplog.at_level(logging.WARNING, "penstock"):
        rules.expire(clock.advance(600 * S))
    assert holds(rules) == [] and "no delete marker could be stored for t.a" in caplog.text


def test_a_sealed_stream_gets_no_markers() -> None:
    rules, _ = stream()
    assert limits_of(rules.config).marker_ttl_ns == 60 * S
    assert limits_of(make_config("T", subject_delete_marker_ttl="1m", sealed=True)).marker_ttl_ns == 0


def test_expiries_of_what_was_rolled_back_are_forgotten(tmp_path: Path) -> None:
    """Once, a message that got the sequence of one that was rolled back expired with the TTL of that one."""
    clock, wanted = FakeClock(), config()
    rules = StreamRules(wanted, FileStore(tmp_path / "T", bytes(16), limits=limits_of(wanted), clock=clock))
    rules.take(Batch.of([("t.a", b"", encode({"Nats-TTL": "70s"})), ("t.b", b"", encode({"Nats-TTL": "never"}))]))
    assert isinstance(rules.store, FileStore)
    rules.store.rollback.run()
    assert rules.store.wheel.count == 0 and len(rules.store.exempt) == 0
    publish(rules, ("t.c", {}), ("t.d", {}))
    rules.expire(clock.advance(100 * S))
    assert [subject for _, subject, _ in holds(rules)] == ["t.c", "t.d"]
    assert rules.store.next_due == NEVER
    rules.store.abandon()


def test_expiry_need_not_wait_for_the_disk(tmp_path: Path) -> None:
    clock, wanted = FakeClock(), config()
    store = FileStore(tmp_path / "T", bytes(16), limits=limits_of(wanted), clock=clock)
    rules = StreamRules(wanted, store)
    publish(rules, ("t.a", {"Nats-TTL": "70s"}))
    store.expiry_waits = False
    clock.advance(70 * S)
    assert store.fast_state().messages == 1 and store.index.last_seq == 2
    store.commit()
    assert holds(rules) == [(2, "t.a", True)]
    store.stop()
