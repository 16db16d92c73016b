"""Interest retention while there are no consumers: sequences go up, nothing is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.consumer.consumers import Consumers
from penstock.db.database import Database
from penstock.errors import BadSubject, PublishRefused, SubjectNotInStream
from penstock.store.file_store import FileStore
from penstock.store.write.batch import Batch
from penstock.stream.config import StreamConfig, make_config
from penstock.stream.config_rules import check_create
from penstock.stream.stream import StreamRules, limits_of
from penstock.testing import FakeClock


def config(**fields: Any) -> StreamConfig:
    return check_create(make_config("T", subjects="t.>", **fields))


def test_a_batch_takes_its_sequences_in_order(tmp_path: Path) -> None:
    with Database(tmp_path, clock=FakeClock(), durability="os") as database:
        stream = database.create_stream(config(retention="interest"))
        again = {"Nats-Msg-Id": "x"}
        acks = stream.publish_many([("t.a", b"1"), ("t.b", b"2", again), ("t.c", b"", again)])
        assert [(ack.seq, ack.duplicate) for ack in acks if ack] == [(1, False), (2, False), (2, True)]
        assert list(stream.read()) == [] and stream.state().last_seq == 2
    with Database(tmp_path, clock=FakeClock(), durability="os") as database:
        state = database.get_stream("T").state()
        assert (state.messages, state.first_seq, state.last_seq) == (0, 3, 2)
        assert database.get_stream("T").publish("t.a", b"").seq == 3


def test_subjects_are_still_judged(tmp_path: Path) -> None:
    with Database(tmp_path, durability="os") as database:
        stream = database.create_stream(config(retention="interest"))
        with pytest.raises(PublishRefused) as caught:
            stream.publish_many([("x", b""), ("t.a", b""), ("t..a", b"")])
        assert [type(error) for _, error in caught.value.refused] == [SubjectNotInStream, BadSubject]
        assert [ack and ack.seq for ack in caught.value.acks] == [None, 1, None]


def test_an_update_to_interest_that_a_crash_cut_short_is_finished_at_the_next_open(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "T", bytes(16), limits=limits_of(config()), durability="os")
    StreamRules(config(), store).take(Batch.of([("t.a", b"1"), ("t.b", b"2")]))
    store.stop()
    wanted = config(retention="interest")
    store = FileStore(tmp_path / "T", bytes(16), limits=limits_of(wanted), durability="os")
    rules = StreamRules(wanted, store)
    Consumers(rules, None)  # there are none, and nobody wants the messages
    assert store.index.messages == 0 and rules.last_seq == 2
    store.stop()


def test_a_roll_back_gives_the_sequences_back(tmp_path: Path) -> None:
    wanted = config(retention="interest")
    store = FileStore(tmp_path / "T", bytes(16), limits=limits_of(wanted), durability="os")
    rules = StreamRules(wanted, store)
    rules.take(Batch.of([("t.a", b"1"), ("t.b", b"2")]))
    store.commit()
    rules.take(Batch.one("t.a", b"3"))
    store.rollback.run()
    assert rules.last_seq == 2 and list(store.skips.ranges()) == [(1, 2)]
    batch = Batch.one("t.a", b"4")
    rules.take(batch)
    assert batch.seq(0) == 3
    store.abandon()
