"""After a crash the stream and the consumer log may end at different moments."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import penstock
from penstock.consumer.config import make_config
from penstock.consumer.consumer import Consumer
from penstock.consumer.rules import admit
from penstock.db.stream import Stream


def add(stream: Stream, name: str = "c", **config: object) -> Consumer:
    consumers = stream.consumers
    consumer = consumers.create(admit(make_config(name, **config), stream.config, consumers.configs))
    consumers.flush()
    return consumer


def take(stream: Stream, consumer: Consumer, most: int) -> list[int]:
    got = [one.message.seq for one in consumer.engine.take(stream.store.clock.now_ns(), most)]
    stream.consumers.touch(consumer)
    stream.consumers.flush()
    return got


def test_a_consumer_ahead_of_its_stream_goes_on_and_no_sequence_is_used_twice(tmp_path: Path) -> None:
    data, old = tmp_path / "data", tmp_path / "old"
    with penstock.open(data, durability="os") as db:
        stream = db.stream("S", subjects=["s"])
        consumer = add(stream, ack_policy="explicit")
        stream.publish_many([("s", b"%d" % n) for n in range(10)])
    shutil.copytree(data, old)
    with penstock.open(data, durability="os") as db:
        stream = db.stream("S")
        stream.publish_many([("s", b"more")] * 5)
        assert take(stream, stream.consumers.by_name["c"], 12) == list(range(1, 13))
    # A power cut removed the end of the stream, but not that of the consumer log.
    shutil.rmtree(old / "$G" / "S" / "consumers")
    shutil.copytree(data / "$G" / "S" / "consumers", old / "$G" / "S" / "consumers")
    with penstock.open(old, durability="os") as db:
        stream = db.stream("S")
        assert any("lost" in finding.kind for finding in stream.findings)
        assert stream.publish("s", b"new").seq == 13
        consumer = stream.consumers.by_name["c"]
        assert consumer.engine.num_pending == 1
        assert consumer.engine.num_ack_pending == 10, "11 and 12 are gone: nobody waits for their acks"
        assert take(stream, consumer, 5) == [13]


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_what_was_acknowledged_and_not_yet_deleted_is_deleted_at_the_open(tmp_path: Path, retention: str) -> None:
    data, old = tmp_path / "data", tmp_path / "old"
    with penstock.open(data, durability="os") as db:
        stream = db.stream("S", subjects=["s.*"], retention=retention)
        add(stream, ack_policy="explicit", filter_subject="s.a")
        stream.publish_many([("s.a", b"1"), ("s.b", b"2"), ("s.a", b"3"), ("s.a", b"4")])
    shutil.copytree(data, old)
    with penstock.open(data, durability="os") as db:
        stream = db.stream("S")
        consumer = stream.consumers.by_name["c"]
        take(stream, consumer, 2)
        consumer.engine.ack(3, 0, 1)
        stream.consumers.touch(consumer)
        stream.consumers.flush()
        assert [message.data for message in stream.read("s.a")] == [b"1", b"4"]
    shutil.rmtree(old / "$G" / "S" / "consumers")
    shutil.copytree(data / "$G" / "S" / "consumers", old / "$G" / "S" / "consumers")
    with penstock.open(old, durability="os") as db:
        stream = db.stream("S")
        left = [b"1", b"2", b"4"] if retention == "workqueue" else [b"1", b"4"]
        assert [message.data for message in stream.read()] == left
        assert stream.consumers.by_name["c"].engine.num_ack_pending == 1


def test_a_state_that_cannot_be_read_begins_anew_and_the_consumer_stays(tmp_path: Path) -> None:
    with penstock.open(tmp_path, durability="os") as db:
        stream = db.stream("S", subjects=["s"])
        consumer = add(stream, ack_policy="explicit")
        stream.publish_many([("s", b"")] * 3)
        take(stream, consumer, 2)
        assert stream.consumers.log is not None
        stream.consumers.log.note(consumer.number, b"\xff\xff\xff")  # no delta
        stream.consumers.log.submit()
    with penstock.open(tmp_path, durability="os") as db:
        stream = db.stream("S")
        assert any("begins anew" in finding.text for finding in stream.findings)
        assert take(stream, stream.consumers.by_name["c"], 5) == [1, 2, 3]


def test_a_consumer_that_is_to_start_above_the_end_moves_nothing(tmp_path: Path) -> None:
    """Such a start was mistaken for deliveries of messages lost in a power cut: the stream would have jumped there."""
    with penstock.open(tmp_path, durability="os") as db:
        stream = db.stream("S", subjects=["s"])
        add(stream, "later", deliver_policy="by_start_sequence", opt_start_seq=50)
        consumer = add(stream, "reset", ack_policy="explicit")
        stream.publish_many([("s", b"")] * 3)
        take(stream, consumer, 2)
        stream.consumers.reset(consumer, 2**62)
        stream.consumers.flush()
    with penstock.open(tmp_path, durability="os") as db:
        stream = db.stream("S")
        assert stream.publish("s", b"new").seq == 4
        assert stream.consumers.by_name["later"].engine.next_seq == 50
        assert stream.consumers.by_name["later"].engine.num_pending == 0
        assert stream.consumers.by_name["reset"].engine.next_seq == 2**62


def test_an_interest_stream_deletes_nothing_while_a_consumer_cannot_be_read(tmp_path: Path) -> None:
    with penstock.open(tmp_path, durability="os") as db:
        stream = db.stream("S", subjects=["s.*"], retention="interest")
        consumer = add(stream, ack_policy="explicit", filter_subject="s.a")
        add(stream, "other", ack_policy="explicit", filter_subject="s.b")
        stream.publish_many([("s.a", b"1"), ("s.b", b"2")])
        assert stream.consumers.log is not None
        stream.consumers.log.put(consumer.number, b"{no configuration", consumer.table.encode())
        stream.consumers.log.submit()
    with penstock.open(tmp_path, durability="os") as db:
        stream = db.stream("S")
        assert any("cannot be read" in finding.text for finding in stream.findings)
        other = stream.consumers.by_name["other"]
        assert take(stream, other, 5) == [2]
        other.engine.ack(2, 0, 1)
        stream.consumers.touch(other)
        stream.consumers.flush()
        stream.publish("s.c", b"3")
        assert [message.data for message in stream.read()] == [b"1", b"2", b"3"]
