"""Stored subjects that have a wildcard for a token: clients may publish to `a.*`, and the reference stores that.

As a name it is one subject like others: limits, counts and reads mean it alone. Where the reference takes the subject
of a message for a filter (a roll-up, an expected sequence of the subject) it means all that it matches. docs/parity.md.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from penstock.db.database import Database
from penstock.errors import BadSubject, WrongLastSequence
from penstock.store.file_store import FileStore
from penstock.store.write.batch import Batch
from penstock.stream.config import StreamConfig, make_config
from penstock.stream.config_rules import check_create
from penstock.stream.stream import StreamRules, limits_of
from twins.subject import is_valid_filter, matches

NAMES = [b"t.a", b"t.b", b"t.*", b"t.>", b"t.*.c", b"t.a.c", b"t.>.c", b"t.a*", b"t.*.*"]
FILTERS = ["t.*", "t.>", "t.a", "t.*.c", "t.*.*", "t.a*", "t.*.>", ">"]


def config(**fields: Any) -> StreamConfig:
    return check_create(make_config("T", subjects="t.>", allow_rollup_hdrs=True, **fields))


def opened(root: Path, wanted: StreamConfig) -> tuple[FileStore, StreamRules]:
    store = FileStore(root / "T", bytes(16), limits=limits_of(wanted), durability="os")
    return store, StreamRules(wanted, store)


def sent(*messages: Any) -> Batch:
    """As from a client of the server."""
    batch = Batch.of(messages)
    batch.takes_names = True
    return batch


def means(subject: bytes, name: bytes) -> bool:
    return matches(name, subject) if is_valid_filter(subject) else subject == name


def compare(store: FileStore, live: list[tuple[int, bytes]]) -> None:
    assert [(one.seq, one.subject.encode()) for one in store.read()] == live
    assert store.subjects_totals() == Counter(name.decode() for _, name in live)
    for text in FILTERS:
        wanted = [(seq, name) for seq, name in live if matches(name, text)]
        assert [(one.seq, one.subject.encode()) for one in store.read([text])] == wanted
        assert store.num_pending(1, [text]) == len(wanted)
        assert store.subjects_totals(text) == Counter(name.decode() for _, name in wanted)
        assert store.query.last_seq([text]) == max((seq for seq, _ in wanted), default=0)
        lasts = {name: seq for seq, name in wanted}
        assert store.last_seqs([text]) == sorted(lasts.values())


@pytest.mark.parametrize("seed", range(6))
def test_what_is_kept_under_such_names_is_what_a_model_keeps(tmp_path: Path, seed: int) -> None:
    """Publishes, roll-ups, purges and lower limits; the same after the next open, with and without a checkpoint."""
    rnd = random.Random(seed)
    most = rnd.choice([-1, 2, 3])
    store, rules = opened(tmp_path, config(max_msgs_per_subject=most))
    live: list[tuple[int, bytes]] = []
    for _ in range(150):
        name, way = rnd.choice(NAMES), rnd.random()
        if way < 0.8:
            headers = {"Nats-Rollup": "sub"} if way > 0.74 else None
            refused, _ = rules.take(sent((name, b"", headers)) if headers else sent((name, b"")))
            assert refused == []
            seq = store.index.last_seq
            if headers:
                live = [one for one in live if not means(name, one[1])]
            live.append((seq, name))
            mine = [one for one in live if one[1] == name]
            if most > 0 and len(mine) > most:
                live.remove(mine[0])
        elif way < 0.84 and live:
            text = rnd.choice(FILTERS[:-1])
            gone = [one for one in live if matches(one[1], text)]
            assert store.purge_ex(text) == len(gone)
            live = [one for one in live if one not in gone]
        elif way < 0.88:
            rules.configure(config(max_msgs_per_subject=1))
            lasts = {name: seq for seq, name in live}
            live = sorted((seq, name) for name, seq in lasts.items())
            rules.configure(config(max_msgs_per_subject=most))
        elif way < 0.92:
            store.commit()
            store.stop() if rnd.random() < 0.5 else store.abandon()
            store, rules = opened(tmp_path, config(max_msgs_per_subject=most))
        store.commit()
        compare(store, live)
    store.stop()


def test_an_expected_sequence_of_such_a_subject_is_that_of_all_that_it_matches(tmp_path: Path) -> None:
    store, rules = opened(tmp_path, config())
    rules.take(sent(("t.a", b""), ("t.b", b"")))

    def publish(subject: str, expected: int) -> int | str:
        refused, _ = rules.take(sent((subject, b"", {"Nats-Expected-Last-Subject-Sequence": str(expected)})))
        if not refused:
            return store.index.last_seq
        assert isinstance(refused[0][1], WrongLastSequence)
        return refused[0][1].description

    assert publish("t.*", 0) == "wrong last sequence: 2"
    assert [publish("t.*", 2), publish("t.>.c", 0), publish("t.>.c", 4), publish("t.b", 2)] == [3, 4, 5, 6]
    assert publish("t.*", 3) == "wrong last sequence: 6"
    store.stop()


def test_the_library_refuses_to_publish_to_them_but_reads_them(tmp_path: Path) -> None:
    """There it is a slip: somebody who publishes to a wildcard meant a filter."""
    with Database(tmp_path, durability="os") as database:
        stream = database.create_stream(config())
        with pytest.raises(BadSubject):
            stream.publish("t.*", b"")
        with stream.locked():
            assert stream.rules.take(sent(("t.*", b"1"), ("t.>.c", b"2"), ("t.a", b"3")))[0] == []
            stream.store.commit()
        with pytest.raises(BadSubject):
            stream.publish("t.*", b"")  # known by now, and refused all the same
        assert [message.subject for message in stream.read()] == ["t.*", "t.>.c", "t.a"]
        assert [message.seq for message in stream.read("t.*")] == [1, 3]
        for name, seq in (("t.*", 1), ("t.>.c", 2), ("t.a", 3)):
            table = stream.dataset().to_table(filter=pc.field("subject") == name)
            assert table["seq"].to_pylist() == [seq]


@pytest.mark.parametrize(("subject", "is_taken"), [("t.*", True), ("t.>", True), ("t.>.c", True), ("t..c", False)])
def test_a_transform_leaves_them_as_they_are(tmp_path: Path, subject: str, is_taken: bool) -> None:
    store, rules = opened(tmp_path, config(subject_transform={"src": "t.*", "dest": "u.{{wildcard(1)}}"}))
    refused, _ = rules.take(sent((subject, b""), ("t.b", b"")))
    assert [type(error) for _, error in refused] == ([] if is_taken else [BadSubject])
    store.commit()
    assert [message.subject for message in store.read()] == [*([subject] if is_taken else []), "u.b"]
    store.stop()
