"""Republish: what is published again, when, and with which headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.errors import BadTransformDestination, InvalidConfig
from penstock.store.file_store import FileStore
from penstock.store.memory_store import MemoryStore
from penstock.store.write.batch import Batch
from penstock.stream.config import Republish, StreamConfig, make_config
from penstock.stream.config_rules import check_create
from penstock.stream.stream import StreamRules, limits_of
from penstock.testing import FakeClock
from penstock.wire.headers import encode

S = 1_000_000_000
LATE = 2**63 - 1


def config(**fields: Any) -> StreamConfig:
    return check_create(make_config("T", subjects="t.>", **({"republish": {"src": "t.*", "dest": "u.$1"}} | fields)))


def stream(**fields: Any) -> StreamRules:
    wanted = config(storage="memory", **fields)
    rules = StreamRules(wanted, MemoryStore("T", limits_of(wanted), FakeClock()))
    rules.is_heard = True
    return rules


def block(own: str, subject: str, seq: int, previous: int, more: str = "", time: str = "2026-11-01T00:00:00Z") -> bytes:
    return (
        f"NATS/1.0\r\n{own}Nats-Stream: T\r\nNats-Subject: {subject}\r\nNats-Sequence: {seq}\r\n"
        f"Nats-Time-Stamp: {time}\r\nNats-Last-Sequence: {previous}\r\n{more}\r\n"
    ).encode()


def test_messages_are_published_again_with_where_they_are_from() -> None:
    rules = stream()
    rules.take(Batch.of([("t.a", b"1"), ("t.a", b"2", encode({"X": "y"})), ("t.b", b"", encode({"Nats-Msg-Id": "5"}))]))
    rules.take(Batch.of([("t.b", b"again", encode({"Nats-Msg-Id": "5"})), ("t.a.b", b"not of the source")]))
    assert rules.republished(LATE) == [
        (b"u.a", block("", "t.a", 1, 0), b"1"),
        (b"u.a", block("X: y\r\n", "t.a", 2, 1), b"2"),
        (b"u.b", block("Nats-Msg-Id: 5\r\n", "t.b", 3, 0), b""),
    ]
    assert rules.republished(LATE) == [], "each is given once"


def test_headers_only_says_how_large_the_message_was() -> None:
    rules = stream(republish={"src": "t.*", "dest": "u.$1", "headers_only": True})
    rules.take(Batch.one("t.a", b"12345"))
    assert rules.republished(LATE) == [(b"u.a", block("", "t.a", 1, 0, "Nats-Msg-Size: 5\r\n"), b"")]


def test_only_what_is_committed_is_published_again(tmp_path: Path) -> None:
    wanted = config()
    store = FileStore(tmp_path / "T", bytes(16), limits=limits_of(wanted), clock=FakeClock())
    rules = StreamRules(wanted, store)
    rules.is_heard = True
    rules.take(Batch.one("t.a", b"1"))
    assert rules.republished(store.engine.committed_seq) == []
    store.commit()
    rules.take(Batch.one("t.a", b"2"))
    assert [one[2] for one in rules.republished(store.engine.committed_seq)] == [b"1"]
    store.rollback.run()
    rules.take(Batch.one("t.a", b"3"))
    store.commit()
    assert [one[2] for one in rules.republished(store.engine.committed_seq)] == [b"3"], "2 was never stored"
    store.abandon()


def test_the_subjects_are_those_that_are_stored() -> None:
    rules = stream(subject_transform={"src": "t.x.*", "dest": "t.$1"})
    rules.take(Batch.of([("t.x.b", b"1"), ("x", b"refused"), ("t.b", b"2")]))
    assert [(one[0], b"Nats-Subject: t.b\r\n" in one[1]) for one in rules.republished(LATE)] == [(b"u.b", True)] * 2


def test_rules_are_kept_while_somebody_listens() -> None:
    rules = stream(allow_rollup_hdrs=True)
    expect = encode({"Nats-Expected-Last-Subject-Sequence": "7"})
    batch = Batch.of([("t.a", b"1"), ("t.a", b"no", expect), ("t.a", b"2", encode({"Nats-Rollup": "sub"}))])
    refused, _ = rules.take(batch)
    assert [at for at, _ in refused] == [1] and batch.seqs() == [1, 0, 2]
    assert [one[2] for one in rules.republished(LATE)] == [b"1", b"2"]
    assert [message.seq for message in rules.store.read()] == [2]


def test_markers_are_published_again() -> None:
    rules = stream(subject_delete_marker_ttl="1s", max_age="1s")
    clock = rules.store.clock
    assert isinstance(clock, FakeClock)
    rules.take(Batch.one("t.a", b"1"))
    rules.expire(clock.advance(S))
    own = "Nats-Marker-Reason: MaxAge\r\nNats-TTL: 1s\r\nNats-Rollup: sub\r\n"
    assert rules.republished(LATE)[1] == (b"u.a", block(own, "t.a", 2, 1, time="2026-11-01T00:00:01Z"), b"")


def test_nothing_is_kept_for_nobody() -> None:
    rules = stream()
    rules.is_heard = False
    rules.take(Batch.one("t.a", b"1"))
    assert rules.republished(LATE) == []
    assert stream(republish=None).republished(LATE) == []
    rules = stream(republish={"src": "", "dest": ""})
    rules.take(Batch.one("t.a", b"1"))
    assert rules.republished(LATE) == []


def test_a_change_of_the_configuration_loses_nothing() -> None:
    rules = stream()
    rules.take(Batch.one("t.a", b"1"))
    rules.configure(config(storage="memory", republish={"src": "t.*", "dest": "v.$1"}))
    rules.take(Batch.one("t.a", b"2"))
    assert [one[0] for one in rules.republished(LATE)] == [b"u.a", b"v.a"]


@pytest.mark.parametrize("text", ["x\r\nPING\r\n", "x\ny", "x\ry", "x y", "x\ty", "x\0y", "x\x01y", "x\x7fy"])
def test_a_destination_that_no_message_can_be_sent_to_is_refused(text: str) -> None:
    for dest in (text + ".>", "a." + text + ".>"):
        with pytest.raises(InvalidConfig, match="for republish with transform from") as refusal:
            config(republish={"src": "t.>", "dest": dest})
        assert repr(dest)[1:-1] in repr(str(refusal.value))
        with pytest.raises(BadTransformDestination, match="invalid transform"):
            config(republish=None, subject_transform={"src": "t.>", "dest": dest})


def test_a_stream_of_before_with_such_a_destination_opens_and_sends_nothing_there() -> None:
    wanted = msgspec.structs.replace(config(storage="memory"), republish=Republish(src="t.>", dest="x\r\nPING\r\n.>"))
    rules = StreamRules(wanted, MemoryStore("T", limits_of(wanted), FakeClock()))
    rules.is_heard = True
    rules.take(Batch.of([("t.a", b"1")]))
    assert list(rules.republished(LATE)) == []
