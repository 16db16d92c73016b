"""The pipeline state: what a store holds, counted in tasks, and its report."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.consumer.config import make_config
from penstock.consumer.rules import admit
from penstock.errors import NotAStore, StreamNotFound
from penstock.spark.pipelines import state
from penstock.spark.pipelines.profile import _buckets, bucket, find_gaps
from penstock.spark.pipelines.report import Facts, render
from penstock.testing import FakeClock

MINUTE = 60 * 10**9


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A has gaps, repeated ids and two blocks; B is small; C holds nothing."""
    path = tmp_path_factory.mktemp("state") / "data"
    clock = FakeClock(1_750_000_000 * 10**9)
    with penstock.open(path, durability="os", clock=clock) as db:
        a = db.stream("A", subjects=["a.>"], duplicate_window="1s")
        for n in range(600):
            clock.advance(MINUTE // 7 + n * 1000)
            a.publish(
                f"a.{n % 5}", bytes([n % 256]) * (n * 61 % 40_000), {"Nats-Msg-Id": f"id {n % 550}"} if n % 2 else None
            )
        a.delete_many([*range(100, 150), 200])
        a.store.skip(7)  # type: ignore[attr-defined]
        a.publish("a.1", b"last")
        b = db.stream("B", subjects=["b"])
        b.publish_many([("b", b"same")] * 10)
        b.consumers.create(admit(make_config("slow", ack_policy="explicit"), b.config, {}))
        b.consumers.by_name["slow"].engine.take(1, 3)
        b.consumers.touch_all()
        b.consumers.flush()
        db.stream("C", subjects=["<script>"])
    return path


@pytest.fixture(scope="module")
def found(spark: Any, root: Path) -> Any:
    result = state.run(spark, root, duplicates="both", max_bytes=2 << 20, top=10)
    yield result
    result.close()


def messages(root: Path, name: str) -> list[Any]:
    with penstock.open(root, read_only=True) as db:
        return list(db.get_stream(name).read())


def test_streams_and_subjects_are_counted(found: Any, root: Path) -> None:
    rows = {row["stream"]: row for row in found.streams.collect()}
    assert list(rows) == ["*", "A", "B", "C"]
    read = messages(root, "A")
    a = rows["A"]
    assert (a["messages"], a["subjects"], a["last_seq"]) == (len(read), 5, 608)
    assert a["data_bytes"] == sum(len(one.data) + len(one.raw_headers or b"") for one in read)
    assert (a["first_ts_ns"], a["last_ts_ns"]) == (read[0].time_ns, read[-1].time_ns)
    assert (a["deleted"], a["skipped"], a["lost"]) == (51, 7, 0)
    assert rows["C"]["messages"] == 0 and rows["C"]["first_ts_ns"] is None
    assert rows["*"]["messages"] == a["messages"] + 10
    subjects = {row["subject"]: row for row in found.subjects.collect()}
    assert {name: row["messages"] for name, row in subjects.items()} == Counter(one.subject for one in read) | {"b": 10}
    assert subjects["a.3"]["data_bytes"] == sum(
        len(one.data) + len(one.raw_headers or b"") for one in read if one.subject == "a.3"
    )


def test_rates_are_counted_by_minute_and_hour(found: Any, root: Path) -> None:
    times = [one.time_ns // MINUTE for one in messages(root, "A")]
    rows = found.minutes.filter("stream = 'A'").selectExpr("unix_timestamp(minute) div 60 m", "messages").collect()
    assert {row["m"]: row["messages"] for row in rows} == Counter(times)
    hours = found.hours.filter("stream = 'A'").selectExpr("unix_timestamp(hour) div 3600 h", "messages").collect()
    assert {row["h"]: row["messages"] for row in hours} == Counter(one // 60 for one in times)
    peak = found.streams.filter("stream = 'A'").collect()[0]["peak_per_minute"]
    assert peak == max(Counter(times).values())


def test_percentiles_are_less_than_a_percent_off(found: Any, root: Path) -> None:
    read = messages(root, "A")
    sizes = sorted(len(one.data) + len(one.raw_headers or b"") for one in read)
    waits = sorted(other.time_ns - one.time_ns for one, other in pairwise(read))
    for what, values in (("size", sizes), ("gap", waits)):
        row = found.percentiles.filter(f"stream = 'A' and what = '{what}'").collect()[0]
        assert (row["count"], row["min"], row["max"]) == (len(values), values[0], values[-1])
        assert row["mean"] == pytest.approx(statistics.fmean(values))
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            exact = values[max(0, -(-int(len(values) * share * 1e6) // 10**6) - 1)]
            assert row[name] == pytest.approx(exact, rel=0.008)


def test_gaps_and_duplicates_are_named(found: Any) -> None:
    gaps = {(row["kind"], row["first_seq"], row["last_seq"]) for row in found.gaps.collect()}
    assert gaps == {("deleted", 100, 149), ("deleted", 200, 200), ("skipped", 601, 607)}
    copies = found.duplicates.collect()
    by_id = {row["value"]: (row["messages"], row["first_seq"], row["last_seq"]) for row in copies if row["by"] == "id"}
    assert by_id == {f"id {n}": (2, n + 1, n + 551) for n in range(1, 50, 2)}
    (same,) = [row for row in copies if row["by"] == "payload" and row["stream"] == "B"]
    assert (same["messages"], same["first_seq"], same["last_seq"]) == (10, 1, 10)


class _Reader(HTMLParser):
    """What a page holds: its text, and the addresses of what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.loads, self.open = "", list[str](), list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_consumers_are_told_with_their_lag(found: Any) -> None:
    (row,) = found.consumers.collect()
    told = {"stream": "B", "consumer": "slow", "num_pending": 7, "num_ack_pending": 3, "num_given_up": 0}
    assert told.items() <= row.asDict().items() and found.facts.consumers == [row.asDict()]
    assert "slow" in render(found.facts)


def test_the_report_is_one_file_with_pictures(found: Any, tmp_path: Path) -> None:
    found.write_report(tmp_path / "report.html")
    page = _Reader()
    page.feed((tmp_path / "report.html").read_text())
    assert page.open == [] and len(page.loads) == 5
    assert all(one.startswith("data:image/svg+xml;base64,") for one in page.loads)
    assert "the state of data" in page.text and "a.3" in page.text and "Nats-Msg-Id" in page.text
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_report_escapes_what_a_store_holds() -> None:
    evil = '<script>alert("$x")</script>'
    row = {
        "stream": evil, "messages": 1, "bytes": 1, "data_bytes": 1, "subjects": 1, "first_seq": 1, "last_seq": 3,
        "first_ts_ns": 10**18, "last_ts_ns": 10**18, "deleted": 1, "skipped": 0, "lost": 1, "duplicates": 1,
        "mean_per_minute": 1.0, "peak_per_minute": 1, "peak_per_hour": 1,
    }  # fmt: skip
    facts = Facts(
        path=f"/tmp/{evil}",
        streams=[row | {"stream": "*"}, row],
        percentiles=[],
        histograms={("*", "size"): {1: (1, 1, 1, 1)}, ("*", "gap"): {}},
        rates=("minute", [{"stream": evil, "second": 60, "messages": 1, "bytes": 1}]),
        top_subjects=[{"stream": evil, "subject": evil, "messages": 1, "data_bytes": 1, "first_seq": 1, "last_seq": 1,
                       "last_ts_ns": None}],
        gaps=[{"stream": evil, "kind": "lost", "first_seq": 2, "last_seq": 2, "sequences": 1}],
        duplicates=[{"stream": evil, "by": "id", "value": evil, "messages": 2, "first_seq": 1, "last_seq": 2,
                     "seconds": 1.0}],
        consumers=[{"stream": evil, "consumer": evil, "filters": [evil], "ack_policy": evil, "delivered_seq": 1,
                    "ack_floor_seq": 1, "num_ack_pending": 1, "num_pending": 1, "num_given_up": 1}],
    )  # fmt: skip
    text = render(facts)
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_what_cannot_be_counted_is_said_before_spark_begins(spark: Any, root: Path, tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        state.run(spark, tmp_path / "nothing")
    with pytest.raises(StreamNotFound, match="A, B, C"):
        state.run(spark, root, streams=["D"])
    with pytest.raises(ValueError, match="id, payload, both or none"):
        state.run(spark, root, duplicates="some")  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**63 - 1), max_size=50))
def test_buckets_are_narrow_and_the_same_in_arrow(values: list[int]) -> None:
    import pyarrow as pa

    assert _buckets(pa.array(values, pa.int64())).to_pylist() == [bucket(one) for one in values]
    for one in values:
        assert bucket(one) <= one < bucket(one) * (1 + 1 / 128) or one == bucket(one)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 9)), min_size=1), st.floats(0.001, 0.999))
def test_quantiles_lie_where_sorted_values_have_them(values: list[tuple[int, int]], share: float) -> None:
    rows = [
        {
            "kind": "size",
            "stream": "S",
            "key": bucket(one),
            "count": count,
            "size": one * count,
            "low": one,
            "high": one,
        }
        for one, count in values
    ]
    cells = state.histograms_of(rows)["S", "size"]
    flat = sorted(one for one, count in values for _ in range(count))
    exact = flat[max(0, -(-int(len(flat) * share * 1_000_000) // 1_000_000) - 1)]
    assert bucket(state.quantile(cells, share)) == bucket(exact)


def test_gaps_of_a_stream_are_told_apart(root: Path) -> None:
    assert find_gaps(str(root / "$G" / "A"), "A") == [
        ("deleted", 100, 150),
        ("deleted", 200, 201),
        ("skipped", 601, 608),
    ]
    assert json.dumps(find_gaps(str(root / "$G" / "C"), "C")) == "[]"
