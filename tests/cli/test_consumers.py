"""The consumers of a store from the command line: shown, looked through, and kept when their log is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.consumer.config import make_config
from penstock.consumer.rules import admit
from penstock.db.database import Database
from support.cli_cases import Run, flip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """20 messages: one consumer has got 12, acknowledged 10 and given up 2; another has got none of its ten."""
    with Database(tmp_path / "data") as db:
        stream = db.stream("ORDERS", subjects=["orders.>"])
        consumers = stream.consumers
        for name, fields in (
            ("work", {"ack_policy": "explicit", "max_deliver": 1}),
            ("late", {"ack_policy": "none", "deliver_policy": "new", "filter_subject": "orders.de"}),
        ):
            consumers.create(admit(make_config(name, **fields), stream.config, consumers.configs))
        for n in range(20):
            stream.publish(f"orders.{'de' if n % 2 else 'fr'}", b"%d" % n)
        engine = consumers.by_name["work"].engine
        taken = engine.take(0, 12)
        for one in taken[:10]:
            engine.ack(one.message.seq, one.consumer_seq, 1)
        engine.collect_due(60 * 10**9)
        consumers.touch_all()
        consumers.flush()
    return tmp_path / "data"


def log_of(root: Path) -> Path:
    (path,) = (root / "$G" / "ORDERS" / "consumers").glob("*.log")
    return path


def test_inspect_shows_the_consumers(run: Run, root: Path) -> None:
    done = run("inspect", root, "--json")
    assert done.code == 0
    late, work = done.json["streams"][0]["consumers"]
    assert (work["name"], work["delivered_stream_seq"], work["ack_floor_stream_seq"]) == ("work", 12, 10)
    assert (work["num_pending"], work["given_up"], work["num_ack_pending"]) == (8, [11, 12], 0)
    assert (late["name"], late["num_pending"], late["filters"]) == ("late", 10, ["orders.de"])
    text = run("inspect", root).text
    assert "work" in text and "late" in text and "orders.de" in text


def test_verify_names_damage_in_the_log_and_repair_keeps_the_consumers(run: Run, root: Path) -> None:
    assert run("verify", root).code == 0
    path = log_of(root)
    flip(path, b'"late"')
    done = run("verify", root, "--json")
    assert done.code == 1
    (problem,) = done.json["streams"][0]["problems"]
    assert problem["kind"] == "damaged consumers" and problem["file"].endswith(path.name)
    assert run("repair", root).code == 0
    assert run("verify", root).code == 0
    assert (path.parent / f"{path.name}.damaged").exists()
    with Database(root) as db:
        assert set(db.get_stream("ORDERS").consumers.by_name) == {"work", "late"}
