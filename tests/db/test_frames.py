"""A stream as a pyarrow dataset, a DuckDB relation and a Polars frame: the values of read(), from few blocks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
import penstock.aio
from penstock.db.frames.frames import RUN_BLOCKS, _possible_subjects
from penstock.db.frames.polars_filter import to_arrow_filter
from penstock.errors import CorruptBlock
from penstock.store.limits import Limits
from penstock.testing import FakeClock

START = datetime(2026, 1, 1, tzinfo=UTC)
START_NS = int(START.timestamp()) * 10**9
COUNT, STEP_NS = 1000, 10**9 + 1_234  # one message a second, and a little that a microsecond does not show
SUBJECTS = ("orders.eu.1", "orders.eu.2", "orders.us.1", "trades.eu")
seq, ts, ts_ns, subject = (pc.field(name) for name in ("seq", "ts", "ts_ns", "subject"))


def time_of(number: int) -> datetime:
    return START + timedelta(microseconds=number * STEP_NS // 1000)


def fill(path: Path, clock: FakeClock) -> None:
    """1,000 messages in some twenty blocks; every seventh is deleted; the first 100 have their own subject."""
    clock.set(START_NS)
    with penstock.open(path, durability="os", clock=clock) as db:
        stream = db.stream("S", subjects=["orders.>", "trades.>"])
        stream.store.configure(Limits(block_size=2000))
        for n in range(1, COUNT + 1):
            clock.set(START_NS + n * STEP_NS)
            name = "orders.early" if n <= 100 else SUBJECTS[n % 4]
            stream.publish(name, b"payload %d" % n, {"N": str(n)} if n % 10 == 0 else None)
        stream.delete_many(range(7, COUNT, 7))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("frames") / "data"
    fill(found, FakeClock())
    return found


@pytest.fixture
def stream(path: Path) -> Iterator[penstock.Stream]:
    with penstock.open(path, read_only=True) as db:
        yield db.stream("S")


def rows_of(stream: penstock.Stream, **asked: Any) -> list[tuple[int, str, bytes]]:
    return [(m.seq, m.subject, m.data) for m in stream.read(**asked)]


def rows(table: pa.Table) -> list[tuple[int, str, bytes]]:
    return list(zip(*(table.column(name).to_pylist() for name in ("seq", "subject", "payload")), strict=True))


# pyarrow.dataset


def test_a_dataset_is_the_stream(stream: penstock.Stream) -> None:
    found = stream.dataset()
    assert isinstance(found, pds.Dataset) and found.schema == stream.to_arrow().schema
    assert found.to_table().equals(stream.to_arrow())
    assert rows(found.to_table()) == rows_of(stream)
    assert found.count_rows() == stream.state().messages == len(rows_of(stream))
    assert found.last_scan is not None and found.last_scan.blocks_opened == found.last_scan.blocks_total > 15


FILTERS: tuple[tuple[str, pc.Expression, Any, int], ...] = (
    ("seq range", (seq >= 500) & (seq < 520), lambda n, s: 500 <= n < 520, 2),
    ("one seq", seq == 333, lambda n, s: n == 333, 1),
    ("some seqs", seq.isin([3, 900]), lambda n, s: n in (3, 900), 2),
    ("both ends", (seq < 20) | (seq > 990), lambda n, s: n < 20 or n > 990, 2),
    ("not", ~(seq > 30), lambda n, s: n <= 30, 1),
    ("a time", ts >= pa.scalar(time_of(980)), lambda n, s: n >= 980, 2),
    ("nanoseconds", ts_ns < START_NS + 20 * STEP_NS, lambda n, s: n < 20, 1),
    ("a subject of some blocks", subject == "orders.early", lambda n, s: s == "orders.early", 4),
    ("two subjects", subject.isin(["orders.early", "orders.none"]), lambda n, s: s == "orders.early", 4),
    ("no such subject", subject == "orders.none", lambda n, s: False, 1),
    ("no subject at all", subject == "not a subject..", lambda n, s: False, 0),
    ("subject and seq", (subject == "orders.eu.1") & (seq > 980), lambda n, s: s == "orders.eu.1" and n > 980, 2),
    ("subject or seq", (subject == "orders.early") | (seq > 990), lambda n, s: n <= 100 or n > 990, 99),
    ("another subject", subject != "orders.eu.1", lambda n, s: s != "orders.eu.1", 99),
    ("a prefix", pc.starts_with(subject, "orders.e"), lambda n, s: s.startswith("orders.e"), 99),
    ("never null", seq.is_valid() & (seq > 990), lambda n, s: n > 990, 1),
    ("a number that is no whole one", seq > 990.5, lambda n, s: n > 990, 1),
    ("nothing", pc.scalar(False), lambda n, s: False, 99),
)


@pytest.mark.parametrize(("filter", "is_wanted", "opened"), [case[1:] for case in FILTERS], ids=[c[0] for c in FILTERS])
def test_a_filter_is_exact_and_opens_few_blocks(
    stream: penstock.Stream, filter: pc.Expression, is_wanted: Any, opened: int
) -> None:
    found = stream.dataset()
    table = found.to_table(filter=filter)
    assert table.equals(stream.to_arrow().filter(filter))
    assert rows(table) == [row for row in rows_of(stream) if is_wanted(row[0], row[1])]
    assert found.last_scan is not None and found.last_scan.blocks_opened <= opened
    assert found.count_rows(filter) == table.num_rows
    assert found.to_table(columns=["payload"], filter=filter).equals(table.select(["payload"]))


def test_only_the_columns_that_are_needed_are_read(stream: penstock.Stream) -> None:
    found = stream.dataset()
    assert found.to_table(columns=["subject"], filter=seq > 900).column_names == ["subject"]
    assert found.last_scan is not None and found.last_scan.schema.names == ["seq", "subject"]
    assert found.to_table(columns={"next": seq + 1}).column("next").to_pylist()[:3] == [2, 3, 4]
    assert found.last_scan.schema.names == ["seq"]
    with pytest.raises(ValueError, match="no column 'subjcet': did you mean subject"):
        found.scanner(columns=["subjcet"])


def test_what_the_dataset_was_made_with_holds_beside_the_filter(stream: penstock.Stream) -> None:
    found = stream.dataset("orders.eu.*", since=time_of(600), stop_seq=900, columns=["seq", "subject", "payload"])
    wanted = rows_of(stream, subjects="orders.eu.*", since=time_of(600), stop_seq=900)
    assert rows(found.to_table()) == wanted and found.count_rows() == len(wanted)
    one = [row for row in wanted if row[1] == "orders.eu.1"]
    assert rows(found.to_table(filter=subject.isin(["orders.eu.1", "orders.us.1"]))) == one
    assert found.to_table(filter=subject == "orders.us.1").num_rows == 0
    assert found.last_scan is not None and found.last_scan.blocks_opened == 0


def test_a_filtered_dataset_stays_filtered(stream: penstock.Stream) -> None:
    found = stream.dataset().filter(seq > 900).filter(subject == "trades.eu")
    wanted = rows_of(stream, subjects="trades.eu", start_seq=901)
    assert rows(found.to_table()) == wanted and found.count_rows() == len(wanted)
    assert found.head(2).column("seq").to_pylist() == [row[0] for row in wanted[:2]]
    assert [row[0] for row in found.scan_polars().filter(pl.col("seq") < 950).select("seq").collect().rows()] == [
        row[0] for row in wanted if row[0] < 950
    ]
    assert found.to_duckdb(duckdb.connect()).aggregate("count(*)").fetchall() == [(len(wanted),)]
    assert found.to_polars().height == len(wanted)


def test_what_pyarrow_does_past_our_scanner_is_an_error_and_no_crash(stream: penstock.Stream) -> None:
    found = stream.dataset(columns=["seq", "subject"])
    other = pds.dataset(pa.table({"seq": [5, 6], "more": ["a", "b"]}))
    assert found.sort_by([("seq", "descending")]).head(1).column("seq").to_pylist() == [1000]
    assert found.filter(seq < 7).join(other, "seq").to_table().num_rows == 6
    assert found.join(stream.dataset(columns=["seq"]), "seq").to_table().num_rows == found.count_rows()
    assert found.take([0, 2]).column("seq").to_pylist() == [1, 3]
    with pytest.raises(FileNotFoundError, match="a stream of Penstock: read it with scanner"):
        other.join(found, "seq")
    with pytest.raises(NotImplementedError, match="blocks, not fragments"):
        found.get_fragments()
    with pytest.raises(NotImplementedError, match="one schema"):
        found.replace_schema(found.schema)


def test_a_dataset_and_a_scanner_can_be_written_as_one_of_pyarrow(stream: penstock.Stream, tmp_path: Path) -> None:
    for name, rows_of_it in (("set", stream.dataset()), ("scanner", stream.dataset().scanner(filter=seq > 0))):
        pds.write_dataset(rows_of_it, tmp_path / name, format="parquet")
        assert pds.dataset(tmp_path / name).to_table().sort_by("seq").equals(stream.to_arrow())


def test_a_scanner_gives_what_pyarrow_s_own_would(stream: penstock.Stream) -> None:
    def scanner(**options: Any) -> Any:
        return stream.dataset().scanner(["subject", "seq"], seq > 500, **options)

    whole = stream.to_arrow()
    wanted = whole.filter(seq > 500).select(["subject", "seq"])
    assert scanner().to_table().equals(wanted) and scanner().to_reader().read_all().equals(wanted)
    assert scanner().projected_schema == wanted.schema
    assert scanner().count_rows() == wanted.num_rows and scanner().take([5, 1]).equals(wanted.take([5, 1]))
    assert max(batch.num_rows for batch in scanner(batch_size=3, use_threads=False).to_batches()) == 3
    assert stream.dataset().scanner(columns=[]).count_rows() == whole.num_rows
    used = scanner()
    used.head(1)
    with pytest.raises(ValueError, match="for one use"):
        used.to_table()
    with pytest.raises(TypeError, match="unexpected keyword argument 'treads'"):
        scanner(treads=1)


def test_head_reads_no_further(stream: penstock.Stream) -> None:
    found = stream.dataset()
    assert found.head(5).equals(stream.to_arrow().slice(0, 5))
    assert found.last_scan is not None and found.last_scan.blocks_opened == 1
    assert found.head(3, columns=["seq"], filter=subject == "trades.eu").column("seq").to_pylist() == [103, 107, 111]
    assert found.head(3, filter=seq > 5000).schema == found.schema
    assert found.head(0).num_rows == 0


def test_each_scan_sees_the_stream_as_it_is_then(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("S", subjects=["a.>"])
        found, frame = stream.dataset(), stream.scan_polars()
        relation = stream.to_duckdb(duckdb.connect())
        assert found.count_rows() == 0 and found.to_table().num_rows == 0 and frame.collect().height == 0
        stream.publish("a.b", b"1")
        stream.publish("a.c", b"2")
        assert found.count_rows() == found.to_table().num_rows == frame.collect().height == 2
        assert relation.aggregate("count(*)").fetchall() == [(2,)]


def test_damage_is_raised_not_left_out(root: Path, clock: FakeClock) -> None:
    fill(root, clock)
    with penstock.open(root, read_only=True) as db:
        stream = db.stream("S")
        block = next(path for one in stream.view().blocks if b"payload 250" in (path := Path(one.path)).read_bytes())
        data = bytearray(block.read_bytes())
        data[data.index(b"payload 250")] ^= 1
        block.write_bytes(data)
        whole = stream.state().messages
        for ask in (
            lambda: stream.dataset().to_table(),
            lambda: stream.to_polars(),
            lambda: stream.scan_polars().collect(),
            lambda: stream.dataset().count_rows(seq > 0),
        ):
            with pytest.raises(CorruptBlock, match=block.name):
                ask()
        with pytest.raises(Exception, match=block.name):
            stream.to_duckdb(duckdb.connect()).fetchall()
        found = stream.dataset(on_damage="report")
        assert found.to_table().num_rows == whole - 1
        assert found.last_scan is not None and len(found.last_scan.damage) == 1


def test_a_stream_in_memory_has_no_files(root: Path) -> None:
    with penstock.open(root) as db:
        stream = db.stream("M", storage="memory")
        with pytest.raises(TypeError, match="stream M is kept in memory"):
            stream.to_polars()


# DuckDB


def test_duckdb_asks_for_what_it_needs(stream: penstock.Stream) -> None:
    found, connection = stream.dataset(), duckdb.connect()
    relation = found.to_duckdb(connection)
    wanted = [row for row in rows_of(stream) if row[0] > 980 and row[1] == "orders.eu.1"]
    asked = relation.filter("seq > 980 and subject = 'orders.eu.1'").project("seq, subject, payload").order("seq")
    assert asked.fetchall() == wanted and wanted
    assert found.last_scan is not None and found.last_scan.blocks_opened <= 2
    assert found.last_scan.schema.names == ["seq", "subject", "payload"]
    asked = relation.filter(f"ts >= '{time_of(980).isoformat()}' and ts < '{time_of(990).isoformat()}'").project("seq")
    assert sorted(asked.fetchall()) == [(n,) for n in range(980, 990) if n % 7]
    assert found.last_scan.blocks_opened <= 2
    assert dict(relation.aggregate("subject, count(*)").fetchall()) == stream.subjects()
    assert relation.filter("subject in ('orders.early', 'x.y')").aggregate("count(*)").fetchall() == [(86,)]
    assert found.last_scan.blocks_opened <= 4
    assert relation.filter("subject like 'trades.%'").aggregate("count(*)").fetchall() == [
        (len(rows_of(stream, subjects="trades.>")),)
    ]


def test_duckdb_has_headers_and_may_join(stream: penstock.Stream) -> None:
    connection = duckdb.connect()
    messages = stream.to_duckdb(connection, "orders.>", start_seq=100)
    assert messages.filter("seq = 120").project("headers").fetchall() == [({"N": ["120"]},)]
    joined = messages.set_alias("a").join(messages.set_alias("b"), "a.seq = b.seq")
    assert joined.aggregate("count(*)").fetchall() == [(len(rows_of(stream, subjects="orders.>", start_seq=100)),)]


# Polars


def test_a_polars_frame_has_the_values(stream: penstock.Stream) -> None:
    frame = stream.to_polars("orders.>", start_seq=500)
    wanted = rows_of(stream, subjects="orders.>", start_seq=500)
    assert frame.select("seq", "subject", "payload").rows() == wanted
    assert frame.schema["ts"] == pl.Datetime("us", "UTC")
    assert frame["ts_ns"].to_list() == [m.time_ns for m in stream.read("orders.>", start_seq=500)]
    assert stream.scan_polars("orders.>", start_seq=500).collect().equals(frame)


LAZY: tuple[tuple[str, pl.Expr, int], ...] = (
    ("seq range", (pl.col("seq") >= 500) & (pl.col("seq") < 520), 2),
    ("between", pl.col("seq").is_between(500, 519), 2),
    ("the other way round", pl.lit(980) < pl.col("seq"), 2),
    ("some", pl.col("seq").is_in([3, 900]), 2),
    ("a time", pl.col("ts") >= time_of(980), 2),
    ("a subject", pl.col("subject") == "orders.early", 4),
    ("subjects", pl.col("subject").is_in(["orders.early", "x"]), 4),
    ("or", (pl.col("seq") < 20) | (pl.col("seq") > 990), 2),
    ("or, one side unsaid", (pl.col("seq") < 20) | pl.col("subject").str.ends_with("2"), 99),
    ("and, one side unsaid", (pl.col("seq") < 20) & pl.col("subject").str.ends_with("y"), 1),
    ("a prefix", pl.col("subject").str.starts_with("orders.e"), 99),
    ("not", ~(pl.col("seq") > 20), 99),
    ("a fraction", pl.col("seq") > 990.5, 99),
    ("a sum", pl.col("seq") + 1 > 990, 99),
    ("too large", pl.col("seq") < 2**63, 99),
)


@pytest.mark.parametrize(("predicate", "opened"), [case[1:] for case in LAZY], ids=[case[0] for case in LAZY])
def test_a_lazy_frame_filters_exactly_and_opens_few_blocks(
    stream: penstock.Stream, predicate: pl.Expr, opened: int
) -> None:
    found = stream.dataset()
    asked = found.scan_polars().filter(predicate).select("seq", "payload").collect()
    assert asked.equals(stream.to_polars().filter(predicate).select("seq", "payload"))
    assert found.last_scan is not None and found.last_scan.blocks_opened <= opened


def test_a_lazy_frame_reads_the_columns_and_rows_that_are_used(stream: penstock.Stream) -> None:
    found = stream.dataset()
    frame = found.scan_polars()
    assert frame.head(3).collect()["seq"].to_list() == [1, 2, 3]
    assert found.last_scan is not None and found.last_scan.blocks_opened == 1
    totals = frame.group_by("subject").len().sort("subject").collect().rows()
    assert totals == sorted(stream.subjects().items())
    assert found.last_scan.schema.names == ["subject"]
    assert frame.filter(pl.col("seq") > 900).select("subject").head(2).collect().height == 2


def test_the_async_face_gives_frames_too(path: Path) -> None:
    async def ask() -> pl.DataFrame:
        async with penstock.aio.open(path, read_only=True) as db:
            return await (await db.stream("S")).to_polars(columns=["seq"])

    assert asyncio.run(ask()).height == COUNT - COUNT // 7


# Logic alone


numbers = st.integers(-5, COUNT + 5)
texts = st.sampled_from((*SUBJECTS, "orders.early", "a", "z", "orders.*", "", 'q"uote', "or"))
leaves = st.one_of(
    st.builds(
        lambda op, n: op(seq, n),
        st.sampled_from([lambda a, b: a > b, lambda a, b: a <= b, lambda a, b: a == b, lambda a, b: a != b]),
        numbers,
    ),
    st.builds(lambda n: ts_ns >= START_NS + n * STEP_NS, numbers),
    st.builds(lambda n: ts < pa.scalar(time_of(n)), numbers),
    st.builds(lambda text: subject == text, texts),
    st.builds(lambda text: subject >= text, texts),
    st.builds(lambda some: subject.isin(some), st.lists(texts, min_size=1, max_size=3)),
    st.builds(lambda some: seq.isin(some), st.lists(numbers, min_size=1, max_size=3)),
)
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a: ~a, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(filter=expressions)
def test_pruning_never_loses_a_row(path: Path, filter: pc.Expression) -> None:
    with penstock.open(path, read_only=True) as db:
        stream = db.stream("S")
        assert stream.dataset().to_table(filter=filter).equals(stream.to_arrow().filter(filter))


def test_many_blocks_are_asked_about_in_runs(root: Path) -> None:
    with penstock.open(root, durability="os") as db:
        stream = db.stream("S", subjects=["a.>"])
        stream.store.configure(Limits(block_size=100))
        for _ in range(3 * RUN_BLOCKS):
            stream.publish("a.b", b"x" * 200)
        found = stream.dataset()
        assert found.to_table(filter=seq == 100).num_rows == 1
        assert found.last_scan is not None and found.last_scan.blocks_opened == 1
        assert len(stream.view().blocks) > 2 * RUN_BLOCKS


def test_subjects_are_known_only_when_nothing_else_is_taken() -> None:
    assert _possible_subjects(subject == "a.b") == ["a.b"]
    assert _possible_subjects((subject == "a.b") & (pc.field("stream") == "z")) == ["a.b"]
    assert _possible_subjects(subject > "a.b") is None
    assert _possible_subjects(subject != "a.b") is None
    assert _possible_subjects(seq > 5) is None
    assert _possible_subjects((subject == "a.b") & (subject == "a.c")) == []


def test_a_polars_filter_that_says_nothing_is_none() -> None:
    assert to_arrow_filter(pl.col("payload") == b"x") is None
    assert to_arrow_filter(pl.col("seq").map_batches(lambda some: some > 1, return_dtype=pl.Boolean)) is None
    assert str(to_arrow_filter((pl.col("seq") > 5) & (pl.col("payload") == b"x"))) == "(seq > 5)"


@pytest.mark.parametrize("name", ["polars", "duckdb"])
def test_what_is_not_installed_is_said_in_one_line(path: Path, name: str) -> None:
    code = (
        f"import sys; sys.modules[{name!r}] = None\n"
        "import penstock\n"
        f"with penstock.open({str(path)!r}, read_only=True) as db:\n"
        f"    try: db.stream('S').to_{name}()\n"
        "    except ImportError as error: sys.exit(str(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"{name} is not installed; run: pip install 'penstock[{name}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
