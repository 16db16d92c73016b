"""The library's stream interface: publishing, reading, and what a configuration changes. Behaviours S1."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import penstock
from penstock.errors import (
    BadSubject,
    BadTtl,
    DeniedDelete,
    DeniedPurge,
    ExpectedStreamMismatch,
    InvalidConfig,
    MaxBytesExceeded,
    MaxMsgsExceeded,
    MaxMsgsPerSubjectExceeded,
    MessageTooLarge,
    ReadOnlyStore,
    RollupNotAllowed,
    StoreClosed,
    StreamNotFound,
    StreamSealed,
    SubjectNotInStream,
    SubjectOverlap,
    TtlDisabled,
    WrongLastMsgId,
    WrongLastSequence,
)
from penstock.testing import FakeClock

S = 10**9


def msg_id(name: str) -> dict[str, str]:
    return {"Nats-Msg-Id": name}


def copy_of(root: Path, name: str = "copy") -> Path:
    """The files that a killed process would leave: a copy of them as they are, without the lock."""
    target = root.parent / name
    shutil.copytree(root, target, ignore=shutil.ignore_patterns("*.tmp"))  # which a thread may be about to rename
    return target


# The sample of the issue.


def test_the_sample_works_as_printed(root: Path) -> None:
    with penstock.open(root, durability="disk") as db:
        orders = db.stream("ORDERS", subjects=["orders.>"], max_age="7d")
        ack = orders.publish("orders.eu.42", b"...", headers={"Nats-Msg-Id": "42"})
        assert (ack.seq, ack.stream, ack.duplicate) == (1, "ORDERS", False)
        acks = orders.publish_many([("orders.eu.43", b"..."), *((f"orders.us.{n}", b"%d" % n) for n in range(30))])
        assert [one.seq for one in acks] == list(range(2, 33))
        found = list(orders.read("orders.eu.*", start_seq=1))
        assert [(msg.seq, msg.subject, msg.data) for msg in found] == [
            (1, "orders.eu.42", b"..."),
            (2, "orders.eu.43", b"..."),
        ]
        assert found[0].headers == {"Nats-Msg-Id": ["42"]} and not found[1].headers
        assert found[0].time == datetime.fromtimestamp(found[0].time_ns // 1000 / 1e6, UTC)
        assert [msg.seq for msg in orders.follow("orders.>", start_seq=31, timeout=0)] == [31, 32]
        assert orders.last("orders.eu.42").seq == 1
        assert orders.get(17).subject == "orders.us.14"
        assert orders.state().messages == 32
        assert orders.subjects("orders.*") == {}
        assert orders.subjects("orders.eu.*") == {"orders.eu.42": 1, "orders.eu.43": 1}
        assert orders.delete(17) is True
        assert orders.delete_many([19, 20]) == 2
        assert orders.erase(18) is True
        assert orders.purge("orders.us.>", keep=10) == 30 - 4 - 10
        table = orders.to_arrow("orders.eu.>", since="2026-11-01")
        assert table.column_names == ["stream", "seq", "ts", "ts_ns", "subject", "headers", "payload"]
        assert table["seq"].to_pylist() == [1, 2]


# Publishing.


@pytest.mark.parametrize("durability", ["disk", "os", "lazy"])
def test_what_is_published_is_there_after_a_reopen_at_every_durability(root: Path, durability: str) -> None:
    with penstock.open(root, durability=durability) as db:
        stream = db.stream("S", subjects=["s.>"])
        for n in range(10):
            assert stream.publish(f"s.{n}", b"%d" % n).seq == n + 1
        assert [msg.data for msg in stream.read()] == [b"%d" % n for n in range(10)]
    with penstock.open(root, durability=durability) as db:
        stream = db.stream("S")
        assert [msg.data for msg in stream.read()] == [b"%d" % n for n in range(10)]
        assert stream.publish("s.x", b"").seq == 11


def test_lazy_is_written_by_a_sync(root: Path) -> None:
    with penstock.open(root, durability="lazy") as db:
        stream = db.stream("S")
        stream.publish("S", b"kept")
        stream.sync()
        with penstock.open(copy_of(root)) as other:
            assert [msg.data for msg in other.stream("S").read()] == [b"kept"]


def test_acks_are_a_lazy_sequence(root: Path) -> None:
    with penstock.open(root) as db:
        acks = db.stream("S").publish_many(("S", b"%d" % n) for n in range(100))
        assert len(acks) == 100 and repr(acks) == "<100 acks of S>"
        assert acks[0] == penstock.Ack("S", 1) and acks[-1].seq == 100 and acks[-100].seq == 1
        assert [ack.seq for ack in acks[10:13]] == [11, 12, 13]
        assert [ack.seq for ack in acks[::-50]] == [100, 50]
        assert acks[50:40] == [] and [ack.seq for ack in acks] == list(range(1, 101))
        for index in (100, -101):
            with pytest.raises(IndexError, match="of 100"):
                acks[index]


def test_publishing_nothing_is_no_error(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S")
        assert list(stream.publish_many([])) == [] and stream.state().last_seq == 0
        assert stream.publish("S").seq == 1 and stream.get(1).data == b""


def test_a_batch_is_judged_in_order_and_names_all_that_it_refused(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S", subjects=["s.>"], max_msg_size=100)
        with pytest.raises(penstock.PublishRefused) as caught:
            stream.publish_many(
                [
                    ("s.1", b"a"),
                    ("s..2", b"b"),
                    ("other", b"c"),
                    ("s.3", b"d", {"Nats-Expected-Last-Sequence": "7"}),
                    ("s.4", b"x" * 101),
                    ("s.5", b"e"),
                ]
            )
        error = caught.value
        assert [index for index, _ in error.refused] == [1, 2, 3, 4]
        assert [type(why) for _, why in error.refused] == [
            BadSubject,
            SubjectNotInStream,
            WrongLastSequence,
            MessageTooLarge,
        ]
        assert [ack and ack.seq for ack in error.acks] == [1, None, None, None, None, 2]
        assert error.count == 6 and str(error).startswith("4 of 6 messages refused; first: #1 s..2: subject 's..2'")
        assert [msg.data for msg in stream.read()] == [b"a", b"e"]


def test_a_single_publish_raises_the_rule_itself(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S", subjects=["s.>"])
        with pytest.raises(SubjectNotInStream, match=r"'x' is not one of stream S's: s.>"):
            stream.publish("x", b"")
        with pytest.raises(SubjectNotInStream):
            stream.publish_many([("x", b"")])
        assert stream.state().last_seq == 0


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (None, {}),
        (b"", {}),
        ({}, {}),
        ({"A": "1"}, {"A": ["1"]}),
        ({"A": ["1", "2"], "B": "x"}, {"A": ["1", "2"], "B": ["x"]}),
        (b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n", {"A": ["1", "2"]}),
    ],
)
def test_headers_are_a_mapping_bytes_or_nothing(root: Path, headers: object, expected: dict[str, list[str]]) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S")
        stream.publish("S", b"p", headers)
        stream.publish_many([("S", b"q", headers)])
        for seq in (1, 2):
            assert stream.get(seq).headers == expected
    with penstock.open(root) as db:
        assert db.stream("S").get(2).headers == expected


def test_payloads_are_any_bytes(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S")
        for payload in (b"\0\xff", bytearray(b"ab"), memoryview(b"cd")):
            stream.publish(b"S", payload)
        assert [msg.data for msg in stream.read()] == [b"\0\xff", b"ab", b"cd"]


# Dedupe.


def test_a_message_id_is_stored_once_within_the_window(root: Path, clock: FakeClock) -> None:
    with penstock.open(root, clock=clock) as db:
        stream = db.stream("S", duplicate_window="10s")
        assert stream.publish("S", b"1", msg_id("a")) == penstock.Ack("S", 1)
        assert stream.publish("S", b"2", msg_id("a")) == penstock.Ack("S", 1, duplicate=True)
        acks = stream.publish_many([("S", b"3", msg_id("b")), ("S", b"4", msg_id("a")), ("S", b"5", msg_id("b"))])
        assert [(ack.seq, ack.duplicate) for ack in acks] == [(2, False), (1, True), (2, True)]
        clock.advance(10 * S - 1)
        assert stream.publish("S", b"", msg_id("a")).duplicate
        clock.advance(1)
        assert stream.publish("S", b"6", msg_id("a")) == penstock.Ack("S", 3)
        assert [msg.data for msg in stream.read()] == [b"1", b"3", b"6"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_window_survives_a_reopen(root: Path, clock: FakeClock, is_clean: bool) -> None:
    db = penstock.open(root, clock=clock)
    stream = db.stream("S", max_bytes=100_000, duplicate_window="60s")  # small blocks: several are sealed
    for n in range(1500):
        stream.publish("S", b"x" * 20, msg_id(f"id-{n}"))
        clock.advance(S // 100)
    place = root
    if not is_clean:
        place = copy_of(root)
    db.close()
    first = 1500 - 1000
    with penstock.open(place, clock=clock) as db:
        stream = db.stream("S")
        for n in range(first, 1500):
            assert stream.publish("S", b"again", msg_id(f"id-{n}")) == penstock.Ack("S", n + 1, True), n
        clock.advance(50 * S + 1)
        assert not stream.publish("S", b"", msg_id(f"id-{first}")).duplicate
        assert stream.publish("S", b"", msg_id("id-1499")).duplicate


# Expectations.


def test_an_expected_sequence_must_be_the_last(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S", subjects=["s.*"])
        assert stream.publish("s.a", b"", {"Nats-Expected-Last-Sequence": "0"}).seq == 1
        assert stream.publish("s.b", b"", {"Nats-Expected-Last-Sequence": "1"}).seq == 2
        with pytest.raises(WrongLastSequence, match="wrong last sequence: 2"):
            stream.publish("s.b", b"", {"Nats-Expected-Last-Sequence": "1"})
        expected = "Nats-Expected-Last-Subject-Sequence"
        assert stream.publish("s.a", b"", {expected: "1"}).seq == 3
        with pytest.raises(WrongLastSequence, match="wrong last sequence: 3"):
            stream.publish("s.a", b"", {expected: "1"})
        assert stream.publish("s.c", b"", {expected: "3", f"{expected}-Subject": "s.a"}).seq == 4
        acks = stream.publish_many([("s.d", b"", {expected: "0"}), ("s.d", b"", {expected: "5"})])
        assert [ack.seq for ack in acks] == [5, 6], "later ones of a batch see the earlier ones"


def test_an_expected_stream_and_message_id_must_match(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S")
        stream.publish("S", b"", {"Nats-Expected-Stream": "S", **msg_id("one")})
        with pytest.raises(ExpectedStreamMismatch):
            stream.publish("S", b"", {"Nats-Expected-Stream": "T"})
        with pytest.raises(WrongLastMsgId, match="wrong last msg ID: one"):
            stream.publish("S", b"", {"Nats-Expected-Last-Msg-Id": "zero"})
    with penstock.open(root) as db:
        stream = db.stream("S")
        assert stream.publish("S", b"", {"Nats-Expected-Last-Msg-Id": "one"}).seq == 2
        with pytest.raises(WrongLastMsgId, match=r"wrong last msg ID: $"):
            stream.publish("S", b"", {"Nats-Expected-Last-Msg-Id": "one"})


def test_a_refused_message_before_it_does_not_change_the_last_id(root: Path) -> None:
    """A run of plain messages that were all refused once made the stream forget the last message id."""
    with penstock.open(root) as db:
        stream = db.stream("S")
        stream.publish("S", b"", msg_id("one"))
        with pytest.raises(penstock.PublishRefused) as caught:
            stream.publish_many([("other", b""), ("S", b"", {"Nats-Expected-Last-Msg-Id": "one"})])
        assert [ack and ack.seq for ack in caught.value.acks] == [None, 2]


# Rollup, TTL, age, limits.


def test_a_rollup_replaces_what_was_before_it(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S", subjects=["s.>"], allow_rollup_hdrs=True)
        stream.publish_many([("s.a", b"1"), ("s.b", b"2"), ("s.a", b"3")])
        stream.publish("s.a", b"sub", {"Nats-Rollup": "sub"})
        assert [(msg.subject, msg.data) for msg in stream.read()] == [("s.b", b"2"), ("s.a", b"sub")]
        stream.publish("s.c", b"all", {"Nats-Rollup": "all"})
        assert [msg.data for msg in stream.read()] == [b"all"]
        stream.publish("s.d", b"next")
    with penstock.open(root) as db:
        assert [msg.data for msg in db.stream("S").read()] == [b"all", b"next"]
        plain = db.stream("T")
        with pytest.raises(RollupNotAllowed):
            plain.publish("T", b"", {"Nats-Rollup": "sub"})


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_message_with_a_ttl_goes_when_it_ends_also_after_a_reopen(
    root: Path, clock: FakeClock, is_clean: bool
) -> None:
    db = penstock.open(root, clock=clock)
    stream = db.stream("S", allow_msg_ttl=True, max_age="1h")
    stream.publish("S", b"10s", {"Nats-TTL": "10"})
    stream.publish("S", b"1m", {"Nats-TTL": "1m"})
    stream.publish("S", b"never", {"Nats-TTL": "never"})
    stream.publish("S", b"plain")
    clock.advance(10 * S - 1)
    assert [msg.data for msg in stream.read()] == [b"10s", b"1m", b"never", b"plain"]
    clock.advance(1)
    assert [msg.data for msg in stream.read()] == [b"1m", b"never", b"plain"]
    with pytest.raises(penstock.MessageNotFound):
        stream.get(1)
    place = root if is_clean else copy_of(root)
    db.close()
    with penstock.open(place, clock=clock) as db:
        stream = db.stream("S")
        assert [msg.data for msg in stream.read()] == [b"1m", b"never", b"plain"]
        clock.advance(50 * S)
        assert [msg.data for msg in stream.read()] == [b"never", b"plain"]
        clock.advance(3600 * S)
        assert [msg.data for msg in stream.read()] == [b"never"]
        assert stream.last().data == b"never" and stream.state().messages == 1


def test_a_bad_ttl_is_refused_and_a_huge_one_is_not(root: Path, clock: FakeClock) -> None:
    with penstock.open(root, clock=clock) as db:
        stream = db.stream("S", allow_msg_ttl=True)
        for text in ("0.5s", "-1", "soon", "1d", "9" * 30):
            with pytest.raises(BadTtl):
                stream.publish("S", b"", {"Nats-TTL": text})
        stream.publish("S", b"", {"Nats-TTL": str(2**62)})
        clock.advance(10 * 365 * 86_400 * S)
        assert stream.state().messages == 1
        with pytest.raises(TtlDisabled):
            db.stream("T").publish("T", b"", {"Nats-TTL": "5"})


def test_messages_go_when_they_are_older_than_max_age(root: Path, clock: FakeClock) -> None:
    with penstock.open(root, clock=clock) as db:
        stream = db.stream("S", max_age="10s")
        for n in range(5):
            stream.publish("S", b"%d" % n)
            clock.advance(S)
        clock.advance(6 * S)
        assert [msg.data for msg in stream.read()] == [b"2", b"3", b"4"]
        clock.advance(100 * S)
        assert stream.last() is None and stream.state().first_seq == 6
        assert stream.publish("S", b"new").seq == 6


def test_discard_new_refuses_instead_of_dropping_the_oldest(root: Path) -> None:
    with penstock.open(root) as db:
        old = db.stream("OLD", max_msgs=2)
        old.publish_many([("OLD", b"%d" % n) for n in range(5)])
        assert [msg.data for msg in old.read()] == [b"3", b"4"]
        new = db.stream("NEW", max_msgs=2, discard="new")
        with pytest.raises(penstock.PublishRefused) as caught:
            new.publish_many([("NEW", b"%d" % n) for n in range(4)])
        assert [type(why) for _, why in caught.value.refused] == [MaxMsgsExceeded] * 2
        assert [msg.data for msg in new.read()] == [b"0", b"1"]
        assert new.delete(1) and new.publish("NEW", b"room").seq == 3
        with pytest.raises(MaxBytesExceeded):
            db.stream("BYTES", max_bytes=100, discard="new").publish("BYTES", b"x" * 200)
        each = db.stream("EACH", subjects=["e.*"], max_msgs_per_subject=1, discard="new", discard_new_per_subject=True)
        each.publish("e.1", b"")
        with pytest.raises(MaxMsgsPerSubjectExceeded):
            each.publish("e.1", b"")
        assert each.publish("e.2", b"").seq == 2


def test_a_sealed_stream_takes_and_gives_away_nothing(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S")
        stream.publish_many([("S", b"1"), ("S", b"2")])
        db.stream("S", sealed=True)
        with pytest.raises(StreamSealed):
            stream.publish("S", b"3")
        with pytest.raises(penstock.PublishRefused) as caught:
            stream.publish_many([("S", b"3"), ("S", b"4")])
        assert list(caught.value.acks) == [None, None]
        for away in (lambda: stream.delete(1), lambda: stream.delete_many([1]), lambda: stream.erase(1)):
            with pytest.raises(StreamSealed):
                away()
        with pytest.raises(StreamSealed):
            stream.purge()
        with pytest.raises(InvalidConfig, match="can not unseal"):
            db.stream("S", sealed=False)
    with penstock.open(root) as db:
        assert db.stream("S").config.sealed and db.stream("S").state().messages == 2


def test_deletes_and_purges_can_be_denied(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S", deny_delete=True)
        stream.publish("S", b"")
        for away in (lambda: stream.delete(1), lambda: stream.delete_many([1]), lambda: stream.erase(1)):
            with pytest.raises(DeniedDelete, match="not permitted"):
                away()
        assert stream.purge() == 1
        other = db.stream("T", deny_purge=True)
        other.publish("T", b"")
        with pytest.raises(DeniedPurge, match="not permitted"):
            other.purge()
        assert other.delete(1)


# Reading.


@pytest.fixture
def ten(root: Path, clock: FakeClock) -> penstock.Stream:
    """Ten messages, one a second, on a.0 b.1 c.2 a.3 ..."""
    with penstock.open(root, clock=clock) as db:
        stream = db.stream("S", subjects=["a.*", "b.*", "c.*"])
        for n in range(10):
            stream.publish(f"{'abc'[n % 3]}.{n}", b"%d" % n)
            clock.advance(S)
        yield stream


def seqs(found: object) -> list[int]:
    return [msg.seq for msg in found]


def test_reads_are_cut_by_sequence(ten: penstock.Stream) -> None:
    assert seqs(ten.read(start_seq=8)) == [8, 9, 10]
    assert seqs(ten.read(stop_seq=3)) == [1, 2]
    assert seqs(ten.read(start_seq=3, stop_seq=5)) == [3, 4]
    assert seqs(ten.read(start_seq=5, stop_seq=5)) == seqs(ten.read(start_seq=11)) == []
    assert seqs(ten.read(start_seq=-5, stop_seq=2)) == [1]


def test_reads_are_cut_by_time(ten: penstock.Stream, clock: FakeClock) -> None:
    start = ten.get(1).time_ns
    assert seqs(ten.read(since=start + 7 * S)) == [8, 9, 10]
    assert seqs(ten.read(since=start + 7 * S + 1)) == [9, 10]
    assert seqs(ten.read(until=start + 2 * S)) == [1, 2]
    assert seqs(ten.read(since="-3s")) == [8, 9, 10]
    assert seqs(ten.read(since="2s ago", until="now")) == [9, 10]
    assert seqs(ten.read(since=ten.get(4).time, until=ten.get(6).time)) == [4, 5]
    assert seqs(ten.read(since="2026-11-01T00:00:08Z")) == [9, 10]
    assert seqs(ten.read(since=datetime(2026, 11, 1) + timedelta(seconds=9))) == [10]
    assert seqs(ten.read(since="2027-01-01")) == [] and len(seqs(ten.read(since="2020-01-01"))) == 10
    assert ten.seq_at(start + 5 * S) == 6 and ten.seq_at("2027-01-01") == 11


def test_reads_are_cut_by_subject(ten: penstock.Stream) -> None:
    assert seqs(ten.read("a.*")) == seqs(ten.read(["a.>"])) == [1, 4, 7, 10]
    assert seqs(ten.read("*.4")) == seqs(ten.read("b.4")) == [5]
    assert seqs(ten.read(["a.*", "c.*"], start_seq=4)) == [4, 6, 7, 9, 10]
    assert seqs(ten.read(["a.0", "b.1", "z.9"])) == [1, 2]
    assert seqs(ten.read(">")) == seqs(ten.read([])) == list(range(1, 11))
    assert seqs(ten.read("nothing.here")) == []


def test_a_read_goes_on_over_what_is_deleted_meanwhile(ten: penstock.Stream) -> None:
    found = ten.read()
    assert next(found).seq == 1
    ten.delete_many(range(2, 10))
    assert seqs(found) == [10]


def test_get_tells_why_there_is_no_message(ten: penstock.Stream) -> None:
    ten.delete(5)
    ten.purge(seq=3)
    with pytest.raises(penstock.MessageDeleted, match="message 5 was deleted"):
        ten.get(5)
    with pytest.raises(penstock.EndOfStream, match="sequence 11 is past the end: the last one is 10"):
        ten.get(11)
    for seq in (0, -1, 1):
        with pytest.raises(penstock.MessageNotFound):
            ten.get(seq)
    assert ten.get(3).data == b"2"


def test_last_looks_for_the_newest_match(ten: penstock.Stream) -> None:
    assert ten.last().seq == 10 and ten.last("b.*").seq == 8 and ten.last("c.2").seq == 3
    assert ten.last("z.*") is None
    ten.delete(8)
    assert ten.last("b.*").seq == 5


def test_questions_are_answered_from_the_index(ten: penstock.Stream) -> None:
    assert list(ten.subjects("a.*").items()) == [("a.0", 1), ("a.3", 1), ("a.6", 1), ("a.9", 1)]
    assert len(ten.subjects()) == 10
    state = ten.subjects_state("b.4")["b.4"]
    assert (state.messages, state.first_seq, state.last_seq) == (1, 5, 5)
    assert ten.pending(1) == 10 and ten.pending(8, "a.*") == 1 and ten.pending(11) == 0
    assert ten.pending(1, ["a.*", "b.*"]) == 7 and ten.pending(1, last_per_subject=True) == 10


def test_the_state_counts_what_is_there(ten: penstock.Stream) -> None:
    ten.delete_many([1, 4, 5])
    state = ten.state()
    assert (state.messages, state.first_seq, state.last_seq) == (7, 2, 10)
    assert (state.num_subjects, state.num_deleted, state.deleted, state.lost) == (7, 2, [(4, 5)], [])
    assert state.first_time == datetime(2026, 11, 1, 0, 0, 1, tzinfo=UTC)
    assert state.last_time == datetime(2026, 11, 1, 0, 0, 9, tzinfo=UTC)
    assert state.bytes > 0 and state.disk_bytes > 0
    ten.purge()
    state = ten.state()
    assert (state.messages, state.bytes, state.first_seq, state.last_seq, state.first_time) == (0, 0, 11, 10, None)


# Removals.


def test_deletes_say_how_many_there_were(ten: penstock.Stream) -> None:
    assert ten.delete(3) and not ten.delete(3) and not ten.delete(99) and not ten.delete(0)
    assert ten.delete_many([3, 4, 4, 5, 99, -1, 2**70]) == 2
    assert ten.delete_many(seq for seq in (6,)) == 1 and ten.delete_many([]) == 0
    assert seqs(ten.read()) == [1, 2, 7, 8, 9, 10]


def test_an_erased_message_is_in_no_file(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S")
        stream.publish("S", b"stays")
        stream.publish("S", b"a secret payload", {"X-Secret": "a secret header"})
        stream.publish("S", b"stays")
        assert stream.erase(2) and not stream.erase(2) and not stream.erase(7)
        with pytest.raises(penstock.MessageDeleted):
            stream.get(2)
        for path in root.rglob("*"):
            assert path.is_dir() or b"a secret" not in path.read_bytes(), path
    with penstock.open(root) as db:
        assert seqs(db.stream("S").read()) == [1, 3]
    for path in root.rglob("*"):
        assert path.is_dir() or b"a secret" not in path.read_bytes(), path


def test_purges_take_all_or_a_subject_or_up_to_a_sequence_or_all_but_some(ten: penstock.Stream) -> None:
    assert ten.purge("a.*", keep=1) == 3 and seqs(ten.read("a.*")) == [10]
    assert ten.purge("b.*", seq=6) == 2 and seqs(ten.read("b.*")) == [8]
    assert ten.purge("c.2") == 1
    assert ten.purge(seq=9) == 2 and seqs(ten.read()) == [9, 10]
    assert ten.purge(seq=1) == 0 and ten.purge("none.*") == 0
    assert ten.purge(keep=1) == 1 and seqs(ten.read()) == [10]
    with pytest.raises(ValueError, match="not both"):
        ten.purge(seq=1, keep=1)
    assert ten.purge() == 1 and ten.publish("a.a", b"").seq == 11


# Configuration.


def test_a_stream_is_updated_by_asking_for_it_with_other_values(root: Path, clock: FakeClock) -> None:
    with penstock.open(root, clock=clock) as db:
        stream = db.stream("S", subjects=["s.*"], max_age="1h")
        assert stream.config.duplicate_window == 120 * S
        stream.publish_many([(f"s.{n}", b"") for n in range(10)])
        assert db.stream("S") is stream
        assert db.stream("S", max_msgs=3) is stream and stream.state().messages == 3
        assert stream.config.subjects == ("s.*",) and stream.config.max_age == 3600 * S
        stream.update(subjects=["s.*", "t.*"], max_age="30s")
        assert stream.config.duplicate_window == 30 * S
        stream.publish("t.1", b"")
        for refused in ({"storage": "memory"}, {"max_age": "1ms"}, {"subjects": ["a b"]}, {"retention": "workqueue"}):
            with pytest.raises(InvalidConfig):
                db.stream("S", **refused)
        assert stream.config.subjects == ("s.*", "t.*")
    with penstock.open(root, clock=clock) as db:
        again = db.stream("S")
        assert (again.config.max_msgs, again.config.subjects) == (3, ("s.*", "t.*"))
        assert db.stream("S", max_msgs=1).state().messages == 1
    with penstock.open(root, clock=clock) as db:
        assert db.stream("S", subjects=["s.*", "t.*"], max_msgs=1).identity.revision == 4, "no change, no new revision"


def test_denials_cannot_be_taken_back(root: Path) -> None:
    with penstock.open(root) as db:
        db.stream("S", deny_delete=True, deny_purge=True, allow_msg_ttl=True)
        for field in ("deny_delete", "deny_purge", "allow_msg_ttl"):
            with pytest.raises(InvalidConfig):
                db.stream("S", **{field: False})


def test_two_streams_do_not_take_the_same_subject(root: Path) -> None:
    with penstock.open(root) as db:
        db.stream("A", subjects=["a.*"])
        with pytest.raises(SubjectOverlap):
            db.stream("B", subjects=["a.1"])
        db.stream("B", subjects=["b.*"])
        with pytest.raises(SubjectOverlap):
            db.stream("B", subjects=["b.*", "a.x"])
        assert db.streams() == ["A", "B"] and db.stream("B").config.subjects == ("b.*",)


def test_the_first_sequence_may_be_chosen(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S", first_seq=1000)
        assert stream.state().first_seq == 1000
        assert stream.publish("S", b"").seq == 1000
    with penstock.open(root) as db:
        assert db.stream("S").publish("S", b"").seq == 1001


def test_a_memory_stream_lives_as_long_as_the_store_is_open(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("M", subjects=["m.*"], storage="memory", max_msgs=100)
        acks = stream.publish_many([(f"m.{n}", b"%d" % n) for n in range(150)])
        assert acks[-1].seq == 150 and stream.state().messages == 100
        assert stream.publish("m.1", b"", msg_id("x")).seq == 151
        assert stream.publish("m.1", b"", msg_id("x")).duplicate
        assert stream.get(150).data == b"149" and stream.delete(150) and stream.erase(149)
        assert stream.purge("m.1") == 1 and stream.last().seq == 148
        assert "M" in db and db.streams() == ["M"]
        with pytest.raises(TypeError, match="kept in memory"):
            stream.to_arrow()
        assert not list(root.glob("**/M"))
        db.delete_stream("M")
        assert db.streams() == []
        db.stream("M", storage="memory")
    with penstock.open(root) as db:
        assert db.streams() == []


# The directory.


def test_streams_are_listed_found_and_deleted(root: Path) -> None:
    with penstock.open(root) as db:
        for name in ("B", "A", "C"):
            db.stream(name).publish(name, b"")
        assert db.streams() == ["A", "B", "C"] and [stream.name for stream in db] == ["A", "B", "C"]
        assert "A" in db and "X" not in db and 5 not in db
        with pytest.raises(StreamNotFound, match="there are: A, B, C"):
            db.get_stream("X")
        gone = db.get_stream("B")
        db.delete_stream("B")
        assert db.streams() == ["A", "C"] and not list(root.glob("**/B"))
        with pytest.raises(StoreClosed):
            gone.publish("B", b"")
        with pytest.raises(StreamNotFound):
            db.delete_stream("B")
        assert db.stream("B").publish("B", b"").seq == 1
    with penstock.open(root) as db:
        assert db.streams() == ["A", "B", "C"]
        db.delete_stream("A")
        assert db.streams() == ["B", "C"]


def test_a_read_only_store_reads_and_does_not_write(root: Path) -> None:
    with penstock.open(root) as db:
        db.stream("S").publish_many([("S", b"1"), ("S", b"2")])
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with penstock.open(root, read_only=True) as db:
        stream = db.stream("S")
        assert [msg.data for msg in stream.read()] == [b"1", b"2"] and stream.get(2).data == b"2"
        assert stream.to_arrow()["seq"].to_pylist() == [1, 2] and stream.state().messages == 2
        writes = (
            lambda: stream.publish("S", b""),
            lambda: stream.publish("S", b"", msg_id("x")),
            lambda: stream.publish_many([("S", b"")]),
            lambda: stream.delete(1),
            lambda: stream.delete_many([1]),
            lambda: stream.erase(1),
            lambda: stream.purge(),
            lambda: db.stream("NEW"),
            lambda: db.stream("S", max_msgs=1),
            lambda: db.delete_stream("S"),
        )
        for write in writes:
            with pytest.raises(ReadOnlyStore):
                write()
        assert "read-only" in repr(db)
    assert before == {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_accounts_do_not_see_each_other(root: Path) -> None:
    with penstock.open(root, account="A") as db:
        db.stream("S").publish("S", b"a")
    with penstock.open(root, account="B") as db:
        assert db.streams() == []
        db.stream("S").publish("S", b"b")
    with penstock.open(root, account="A") as db:
        assert [msg.data for msg in db.stream("S").read()] == [b"a"]
