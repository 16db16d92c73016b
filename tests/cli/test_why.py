"""penstock why: consumers and messages of a store explained from its files."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.consumer.config import make_config
from penstock.consumer.rules import admit
from penstock.db.database import Database
from support.cli_cases import Run, writer

NOW = 1_700_000_000_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """40 messages of which the first 10 went by max_msgs, and more in other ways; consumers in different states."""
    path = tmp_path / "data"
    with Database(path) as db:
        stream = db.stream("ORDERS", subjects=["orders.>"], max_msgs=30)
        consumers = stream.consumers
        for name, fields in (
            ("work", {"ack_policy": "explicit", "max_deliver": 2, "max_ack_pending": 4, "ack_wait": "2562000h"}),
            ("paused", {"pause_until": "2090-01-01T00:00:00Z"}),
            ("odd", {"filter_subject": "orders.odd"}),
            ("outside", {"filter_subject": "invoices.>"}),
            ("7", {"deliver_policy": "by_start_sequence", "opt_start_seq": 35}),
        ):
            consumers.create(admit(make_config(name, **fields), stream.config, consumers.configs))
        for n in range(40):
            stream.publish("orders.even", b"%d" % n)
        stream.delete(15)
        stream.erase(16)
        stream.purge(seq=13)
        engine = consumers.by_name["work"].engine
        taken = engine.take(NOW, 4)
        assert [one.message.seq for one in taken] == [13, 14, 17, 18]
        engine.ack(13, taken[0].consumer_seq, NOW)
        engine.take(NOW, 1)
        consumers.touch_all()
        consumers.flush()
    return path


def codes(run: Run, store: Path, about: object) -> list[str]:
    done = run("why", store, "ORDERS", about, "--json")
    assert done.code == 0, done.err
    return [reason["code"] for reason in done.json["reasons"]]


def test_a_consumer_says_what_keeps_it(run: Run, store: Path) -> None:
    done = run("why", store, "ORDERS", "work", "--json").json
    assert (done["delivers"], done["num_ack_pending"], done["ack_floor_seq"]) == (False, 4, 13)
    (reason,) = done["reasons"]
    assert reason["code"] == "max_ack_pending" and reason["blocking"] and "max_ack_pending is 4" in reason["text"]
    assert done["config"]["max_deliver"] == 2
    assert codes(run, store, "paused") == ["paused"]
    assert codes(run, store, "odd") == ["filter_matches_nothing"]
    assert codes(run, store, "outside") == ["filter_outside"]
    assert codes(run, store, "7") == ["ready"]  # a consumer with this name comes before the message


def test_a_consumer_is_explained_to_people(run: Run, store: Path) -> None:
    done = run("why", store, "ORDERS", "paused")
    assert done.code == 0
    title, reason = done.text.splitlines()
    assert title == "consumer paused of ORDERS" and reason.startswith(
        "  paused  it is paused until 2090-01-01T00:00:00Z (in "
    )


@pytest.mark.parametrize(
    ("seq", "code"),
    [(3, "max_msgs"), (11, "purged"), (15, "deleted"), (16, "erased"), (14, "stored"), (40, "stored"), (41, "never")],
)
def test_a_message_says_where_it_is_or_what_took_it(run: Run, store: Path, seq: int, code: str) -> None:
    done = run("why", store, "ORDERS", seq, "--json").json
    assert (done["seq"], done["code"], done["is_stored"]) == (seq, code, code == "stored")


def test_a_message_says_what_each_consumer_did_with_it(run: Run, store: Path) -> None:
    def states(seq: int) -> dict[str, str]:
        done = run("why", store, "ORDERS", seq, "--json").json
        return {one["consumer"]: one["code"] for one in done["consumers"]}

    assert states(13) == {
        "7": "before_start", "odd": "not_matched", "outside": "not_matched", "paused": "not_delivered",
        "work": "acknowledged",
    }  # fmt: skip
    assert states(14)["work"] == "pending"
    assert states(36)["7"] == states(36)["work"] == "not_delivered"
    text = run("why", store, "ORDERS", 14).text
    assert "stored" in text and "work: delivered once" in text and "it comes again" in text


def test_a_message_that_was_given_up_says_so(run: Run, store: Path) -> None:
    with penstock.open(store) as db:
        consumers = db.get_stream("ORDERS").consumers
        engine = consumers.by_name["work"].engine
        for _ in range(2):
            engine.nak(14, NOW)
            engine.take(NOW + 1, 1)
        consumers.touch_all()
        consumers.flush()
    done = run("why", store, "ORDERS", 14, "--json").json
    (work,) = (one for one in done["consumers"] if one["consumer"] == "work")
    assert (work["code"], work["deliveries"]) == ("given_up", 2)
    reasons = run("why", store, "ORDERS", "work", "--json").json
    assert reasons["given_up"] == [14] and "given_up" in [one["code"] for one in reasons["reasons"]]


def test_what_is_not_there_is_named_with_what_is(run: Run, store: Path) -> None:
    done = run("why", store, "ORDERS", "nobody")
    assert done.code == 2 and "has no consumer 'nobody'" in done.err and "7, odd, outside, paused, work" in done.err
    done = run("why", store, "NONE", "x")
    assert done.code == 2 and "NONE" in done.err
    assert run("why", store, "ORDERS", "work", "--account", "OTHER").code == 2


def test_beside_a_writer_it_says_who_knows_more(run: Run, store: Path) -> None:
    with writer(store):
        done = run("why", store, "ORDERS", "paused")
    assert done.code == 0 and "$SYS.REQ.PENSTOCK.WHY" in done.text


def test_what_consumers_and_time_took_is_told_apart(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "other"
    with penstock.open(path) as db:
        work = db.stream("WORK", subjects=["w"], retention="workqueue")
        seen = db.stream("SEEN", subjects=["i.*"], retention="interest")
        for stream in (work, seen):
            config = make_config("c", ack_policy="explicit", filter_subject="w" if stream is work else "i.a")
            stream.consumers.create(admit(config, stream.config, stream.consumers.configs))
        seen.publish_many([("i.a", b"1"), ("i.b", b"nobody wants it"), ("i.a", b"3")])
        work.publish_many([("w", b"1"), ("w", b"2")])
        for stream in (work, seen):
            engine = stream.consumers.by_name["c"].engine
            (taken,) = engine.take(NOW, 1)
            engine.ack(1, taken.consumer_seq, NOW)
            stream.consumers.touch_all()
            stream.consumers.flush()
        kept = db.stream("KEPT", subjects=["k"], max_msgs_per_subject=1, allow_rollup_hdrs=True)
        kept.publish_many([("k", b"1"), ("k", b"2")])
        kept.publish("k", b"3", {"Nats-Rollup": "all"})

    def code(stream: str, seq: int) -> str:
        found: str = run("why", path, stream, seq, "--json").json["code"]
        return found

    assert [code("WORK", 1), code("WORK", 2)] == ["acknowledged", "stored"]
    assert [code("SEEN", seq) for seq in (1, 2, 3)] == ["no_interest", "skipped", "stored"]
    assert [code("KEPT", seq) for seq in (1, 2, 3)] == ["max_msgs_per_subject", "max_msgs_per_subject", "stored"]
