"""Arrow columns to a batch: it holds what they hold, and header maps are encoded as penstock.wire.headers does."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadHeader
from penstock.scan.arrow_batch import batch_of
from penstock.scan.schema import headers_list
from penstock.store.write.batch import Batch
from penstock.wire import headers
from penstock.wire.header_maps import encode_maps

MAPS = pa.map_(pa.string(), headers_list())
KEYS = st.text(st.characters(codec="utf-8", exclude_characters=": \x7f", min_codepoint=33), min_size=1, max_size=5)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=6)
ROWS = st.lists(
    st.tuples(
        st.text(st.characters(codec="utf-8"), max_size=6),
        st.none() | st.binary(max_size=6),
        st.none() | st.dictionaries(KEYS, st.lists(VALUES, max_size=3), max_size=3),
        st.integers(1, 2**62),
    ),
    max_size=12,
)


def held(batch: Batch) -> list[tuple[bytes, int, bytes | None]]:
    return [(batch.subject(n), batch.payload_size(n), batch.headers(n)) for n in range(batch.count)]


@given(ROWS, st.integers(0, 12), st.sampled_from(["map", "raw", "none"]))
def test_a_batch_holds_what_the_columns_hold(rows: list, start: int, kind: str) -> None:  # type: ignore[type-arg]
    subjects = pa.array([row[0] for row in rows], pa.string())[start:]
    payloads = pa.array([row[1] for row in rows], pa.binary())[start:]
    raws = [None if row[2] is None else headers.encode(row[2]) for row in rows]
    given_headers = {
        "map": pa.array([None if row[2] is None else list(row[2].items()) for row in rows], MAPS)[start:],
        "raw": pa.array(raws, pa.binary())[start:],
        "none": None,
    }[kind]
    times = pa.array([row[3] for row in rows], pa.int64())[start:]
    batch = batch_of(subjects, payloads, given_headers, times)
    assert held(batch) == [
        (row[0].encode(), len(row[1] or b""), (raw or None) if kind != "none" else None)
        for row, raw in zip(rows[start:], raws[start:], strict=True)
    ]
    assert batch.has_rules == any(b"Nats-" in (raw or b"") for raw in raws[start:] if kind != "none")


@pytest.mark.parametrize("kind", [pa.large_string(), pa.large_binary(), pa.binary()])
def test_other_widths_are_taken_too(kind: pa.DataType) -> None:
    column = pa.array([b"a.b", b"c"], pa.binary()).cast(kind)
    assert held(batch_of(column, column)) == [(b"a.b", 3, None), (b"c", 1, None)]


def test_one_value_per_key_is_enough() -> None:
    maps = pa.array([[("A", "1")], None, [("B", ""), ("C", "2")]], pa.map_(pa.string(), pa.string()))
    texts = pa.array(["s"] * 3)
    assert [one[2] for one in held(batch_of(texts, texts, maps))] == [
        headers.encode({"A": "1"}),
        None,
        headers.encode({"B": "", "C": "2"}),
    ]
    assert held(batch_of(texts[2:], texts[2:], maps[2:]))[0][2] == headers.encode({"B": "", "C": "2"})


def test_nulls_and_wrong_types_are_named() -> None:
    texts = pa.array(["a", "b"])
    with pytest.raises(ValueError, match="row 1 has no subject"):
        batch_of(pa.array(["a", None]), texts)
    with pytest.raises(ValueError, match="row 0 has no time"):
        batch_of(texts, texts, None, pa.array([None, 1], pa.int64()))
    with pytest.raises(TypeError, match="not int64"):
        batch_of(texts, pa.array([1, 2]))
    with pytest.raises(TypeError, match="int64 nanoseconds, not double"):
        batch_of(texts, texts, None, pa.array([1.0, 2.0]))
    with pytest.raises(TypeError, match="header values are text or lists of text"):
        batch_of(texts, texts, pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())))
    with pytest.raises(ValueError, match="a header value is null"):
        batch_of(texts, texts, pa.array([[("a", [None])], None], MAPS))


@pytest.mark.parametrize("key", ["", "a b", "a:b", "a\n", "\x7f"])
def test_a_key_that_would_break_the_block_is_refused(key: str) -> None:
    with pytest.raises(BadHeader, match="row 1: header key"):
        batch_of(pa.array(["a", "b"]), pa.array(["", ""]), pa.array([None, [(key, ["v"])]], MAPS))


@pytest.mark.parametrize("value", ["a\nb", "\r"])
def test_a_value_that_would_break_the_block_is_refused(value: str) -> None:
    with pytest.raises(BadHeader, match="line breaks"):
        batch_of(pa.array(["a"]), pa.array([""]), pa.array([[("k", [value])]], MAPS))


def ints(*values: int) -> memoryview:
    return memoryview(pa.array(values, pa.int32()).buffers()[1]).cast("b")[: 4 * len(values)].cast("i")


@pytest.mark.parametrize(
    "offsets", [ints(0, 2, 1), ints(0, 5, 9), ints(-1, 0, 1), ints(0), ints(0, 2**31 - 1, 2**31 - 1)]
)
def test_no_offset_leads_out_of_a_buffer(offsets: memoryview) -> None:
    good, data = ints(0, 1, 2), b"xy"
    for columns in (((offsets, data), (good, data)), ((good, data), (offsets, data))):
        with pytest.raises(ValueError, match="offsets"):
            Batch.of_columns(2, *columns)
    with pytest.raises(ValueError, match="offsets"):
        Batch.of_columns(2, (good, data), (good, data), (None, 0, offsets, data))
    for place in range(4):
        parts = [ints(0, 1, 2), ints(0, 1, 2), ints(0, 1, 2), ints(0, 1, 2)]
        parts[place] = offsets
        with pytest.raises(ValueError, match="offsets"):
            encode_maps(2, None, 0, parts[0], parts[1], data, parts[2], parts[3], data)
    for bits in (b"", b"\xff"):
        with pytest.raises(ValueError, match="bitmap"):
            encode_maps(2, bits, 7, good, good, data, good, good, data)
        with pytest.raises(ValueError, match="bitmap"):
            Batch.of_columns(2, (good, data), (good, data), (bits, 7, good, data))
