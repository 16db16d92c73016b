"""scan/columns.pyx and its plain twin on the same blocks, damaged ones first."""

from __future__ import annotations

import mmap
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.seq_set import SeqSet
from penstock.base.subject import Filters
from penstock.format.record import RecordError, encode_control, encode_message
from penstock.scan.batch import record_batch
from penstock.scan.columns import COLUMN_BITS, HEADERS_RAW, Columns, Spares, read_columns
from penstock.scan.schema import schema
from penstock.wire import headers as header_block
from twins.columns import headers_of, read_rows, text_of
from twins.varint import write_varint
from twins.xxh64 import xxh64_of

BASE: dict[str, Any] = {"base_seq": 100, "base_time": 1_700_000_000_000_000_000, "salt": 0x1234_5678_9ABC_DEF0}
ALL = sum(COLUMN_BITS.values())
SCHEMA = schema()


def gone(seqs: set[int]) -> SeqSet:
    dead = SeqSet()
    for seq in seqs:
        dead.add(seq)
    return dead


def message(
    seq: int, subject: bytes = b"a.b", headers: bytes | None = None, payload: bytes = b"hi", time: int = 0, **kw: Any
) -> bytes:
    return encode_message(seq, BASE["base_time"] + time, subject, headers, payload, **BASE, **kw)


def control(kind: int, seq: int, value: int = 1, ranges: Any = ()) -> bytes:
    return encode_control(kind, 0, seq, BASE["base_time"], value, ranges, **BASE)


def rows_of(columns: Columns) -> list[dict[str, Any]]:
    batch = record_batch(columns, SCHEMA)
    batch.validate(full=True)
    batch = batch.set_column(2, "ts", batch.column("ts").cast(pa.int64()))
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def read_both(block: bytes, start: int = 0, **asked: Any) -> tuple[list[dict[str, Any]], list[tuple[int, int]]]:
    """Every row and the damage of a block, read in batches by both halves, which agree in all they say."""
    rows, damage, at, seq_next = [], [], start, 0
    while True:
        here = dict(BASE, seq_next=seq_next, stream="ORDERS") | asked
        one, other = read_columns(block, at, len(block), **here), read_rows(block, at, len(block), **here)
        raw = [row.pop("raw_headers") for row in other.rows]
        assert rows_of(one) == other.rows
        told = (other.next_offset, other.finished, other.damage, other.gaps, other.torn, other.seq_next)
        assert (one.next_offset, one.finished, one.damage, one.gaps, one.torn, one.seq_next) == told
        bare = read_columns(block, at, len(block), columns=ALL - COLUMN_BITS["headers"] + HEADERS_RAW, **here)
        assert record_batch(bare, schema(headers="raw")).column("headers").to_pylist() == raw
        rows += other.rows
        damage += one.damage
        at, seq_next = one.next_offset, one.seq_next
        if one.finished:
            return rows, damage


def small_block() -> tuple[list[bytes], bytes]:
    """Records of every kind, one after the other."""
    records = [
        message(100, b"orders.eu", b"NATS/1.0\r\nA: 1\r\nB: 2\r\nA: 3\r\n\r\n", b"first"),
        message(101, b"orders.us", None, b"", time=-5),
        control(1, 102, 3),
        message(105, "größe.x".encode(), b"NATS/1.0\r\n\r\n", bytes(range(40)), time=7),
        control(2, 106, 0, [(100, 101), (103, 104)]),
        message(106, b"erased", b"xxxx", b"yyyy", erased=True),
        control(3, 107, 106),
        control(4, 107, 101),
        message(107, b"a\xff\xc3b", None, b"\x00" * 30, time=123_456_789_012),
        message(108, b"last", None, b"end"),
    ]
    return records, b"".join(records)


def seqs(rows: list[dict[str, Any]]) -> list[int]:
    return [row["seq"] for row in rows]


def test_every_bit_flip_costs_only_the_record_it_hits() -> None:
    records, block = small_block()
    good, damage = read_both(block)
    assert seqs(good) == [100, 101, 105, 107, 108] and damage == []
    starts = [sum(map(len, records[:n])) for n in range(len(records) + 1)]
    for byte in range(len(block)):
        hit = max(n for n in range(len(records)) if starts[n] <= byte)
        for bit in range(8):
            spoiled = bytearray(block)
            spoiled[byte] ^= 1 << bit
            rows, damage = read_both(bytes(spoiled))
            assert all(row in good for row in rows), "a row that was never written"
            lost = {100: 0, 101: 1, 105: 3, 107: 8, 108: 9}
            assert seqs(rows) == [seq for seq in seqs(good) if lost[seq] != hit]
            if hit < len(records) - 1:
                assert damage == [(starts[hit], starts[hit + 1] - starts[hit])]


def test_every_truncation_keeps_all_whole_rows_and_names_the_torn_tail() -> None:
    records, block = small_block()
    good, _ = read_both(block)
    starts = [sum(map(len, records[:n])) for n in range(len(records) + 1)]
    for size in range(len(block) + 1):
        rows, damage = read_both(block[:size])
        assert rows == good[: len(rows)] and damage == []
        whole = max(n for n in range(len(starts)) if starts[n] <= size)
        assert len(rows) == sum(n in (0, 1, 3, 8, 9) for n in range(whole))
        torn = read_columns(block[:size], 0, size, **BASE).torn
        assert torn == (None if starts[whole] == size else starts[whole])


def test_zeros_up_to_the_end_are_a_torn_tail() -> None:
    _, block = small_block()
    read = read_columns(block + bytes(5000), 0, len(block) + 5000, **BASE)
    assert (read.torn, read.damage, read.finished) == (len(block), [], True)


def test_a_size_that_lies_past_the_end_costs_one_record() -> None:
    lying = bytearray(message(101))
    lying[0] = 0x7F
    rows, damage = read_both(message(100) + lying + message(102))
    assert seqs(rows) == [100, 102] and damage == [(len(message(100)), len(lying))]


def test_damage_names_the_sequences_that_it_may_have_held() -> None:
    block = message(100) + b"\x00" * 40 + message(107) + b"\x01" * 20
    read = read_columns(block, 0, len(block), stop_seq=120, **BASE)
    assert read.gaps == [(101, 107), (108, 120)]


def test_bytes_of_a_payload_that_fall_back_in_sequence_are_not_taken_for_a_record() -> None:
    inner = message(100, b"forged")
    outer = bytearray(message(105, payload=inner + b"x" * 20))
    outer[-1] ^= 1
    rows, _ = read_both(message(104) + outer + message(106))
    assert seqs(rows) == [104, 106]


def test_a_record_whose_sequence_falls_is_damage() -> None:
    rows, damage = read_both(message(105) + message(104) + message(106))
    assert seqs(rows) == [105, 106] and damage == [(len(message(105)), len(message(104)))]


def test_a_kind_of_a_newer_format_is_refused() -> None:
    body = bytes([5, 1, 0, 0, 0])
    head = write_varint(len(body) + 8) + body
    newer = head + xxh64_of(head, BASE["salt"]).to_bytes(8, "little")
    block = message(100) + newer
    for read in (read_columns, read_rows):
        with pytest.raises(RecordError, match="newer"):
            read(block, 0, len(block), **BASE)


@given(st.binary(max_size=400), st.integers(0, 5))
@settings(deadline=None)
def test_any_bytes_will_do(data: bytes, cut: int) -> None:
    read_both(data)
    records, _ = small_block()
    read_both(records[cut] + data + records[cut + 1])


subjects = st.one_of(
    st.binary(min_size=1, max_size=40),
    st.text(min_size=1, max_size=12).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from(
        [b"a", b"orders.eu.42", b"orders.us." + b"x" * 60, b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x9f\xbf"]
    ),
)
header_lines = st.lists(
    st.one_of(
        st.sampled_from(
            [b"A: 1", b"A:2", b"B:   x", b"bad", b":v", b"C :v", b"K\xff: v\xfe", b"\xc3\xa9: \xe2\x82\xac"]
        ),
        st.binary(max_size=12),
        st.text("AB:\r\n \t\x7f", max_size=10).map(str.encode),
    ),
    max_size=25,
)
headers = st.one_of(
    st.none(),
    header_lines.map(lambda lines: b"\r\n".join([b"NATS/1.0", *lines, b"", b""])),
    st.binary(max_size=30),
)
messages = st.lists(
    st.tuples(
        subjects,
        headers,
        st.binary(max_size=80),
        st.integers(-(10**19) // 2, 10**18),
        st.sampled_from([0, 0, 0, 0, 1, 2, 3]),
    ),
    max_size=30,
)


def build(given_messages: Any) -> bytes:
    block, seq = b"", 100
    for subject, raw, payload, time, kind in given_messages:
        if kind == 2:
            block += control(4, seq, 100)
        elif kind == 3:
            block += control(1, seq, 3)
            seq += 3
        else:
            block += message(seq, subject, raw, payload, time, erased=kind == 1)
            seq += 1
    return block


@given(
    messages,
    st.integers(1, 12),
    st.integers(1, 400),
    st.sets(st.integers(98, 140)),
    st.integers(95, 140),
    st.integers(95, 140),
    st.sampled_from([None, [">"], ["a"], ["orders.*.42", "a"], ["orders.>"]]),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=3),
)
@settings(max_examples=150, deadline=None)
def test_both_halves_make_the_same_rows_of_any_block(
    given_messages: Any,
    max_rows: int,
    max_bytes: int,
    dead: set[int],
    min_seq: int,
    stop_seq: int,
    filters: list[str] | None,
    flips: list[tuple[int, int]],
) -> None:
    block = bytearray(build(given_messages))
    read_both(bytes(block))
    for at, value in flips:
        if at < len(block):
            block[at] ^= value
    asked: dict[str, Any] = {
        "max_rows": max_rows,
        "max_bytes": max_bytes,
        "dead": gone(dead),
        "min_seq": min_seq,
        "stop_seq": stop_seq,
    }
    read_both(bytes(block), filters=None if filters is None else Filters(filters), **asked)
    read_both(bytes(block), min_time=BASE["base_time"] - 10**9, stop_time=BASE["base_time"] + 10**17)


@given(headers)
@settings(deadline=None)
def test_the_header_map_is_what_the_stream_decodes(raw: bytes | None) -> None:
    def shown(text: str) -> str:
        return text_of(text.encode("utf-8", "surrogateescape"))

    mapped = headers_of(raw)
    if raw is None:
        assert mapped is None
    else:
        decoded = header_block.decode(raw).to_dict()
        assert mapped == [(shown(key), list(map(shown, values))) for key, values in decoded.items()]


@pytest.mark.parametrize("count", [1, 16, 17, 300, 5000])
def test_repeated_keys_are_gathered_however_many_there_are(count: int) -> None:
    raw = b"NATS/1.0\r\n" + b"".join(b"K%d: %d\r\n" % (n % 97, n) for n in range(count)) + b"\r\n"
    rows, _ = read_both(message(100, headers=raw) + message(101) + message(102, headers=b""))
    keys = list(dict.fromkeys(f"K{n % 97}" for n in range(count)))
    assert [key for key, _ in rows[0]["headers"]] == keys
    assert rows[0]["headers"][0][1] == [str(n) for n in range(0, count, 97)]
    assert rows[1]["headers"] is None and rows[2]["headers"] == []


def test_more_rows_than_a_chunk_with_all_kinds_of_text() -> None:
    names = [b"plain.%d", b"gr\xc3\xb6\xc3\x9fe.%d", b"bad\xff.%d"]
    block = b"".join(
        message(
            100 + n, names[n // 300 % 3] % n, b"NATS/1.0\r\nK: %d\r\n\r\n" % n if n % 3 else None, b"p" * (n % 50), n
        )
        for n in range(2000)
    )
    rows, damage = read_both(block)
    assert len(rows) == 2000 and damage == []
    assert rows[301]["subject"] == "größe.301" and rows[601]["subject"] == "bad\\xff.601"


def test_a_block_of_nothing_but_empty_payloads() -> None:
    """Its payload column once had no memory at all, and a copy of 32 bytes at a time wrote through a null pointer."""
    rows, _ = read_both(message(100, payload=b"") + message(101, payload=b""))
    assert [row["payload"] for row in rows] == [b"", b""]


def test_microseconds_are_rounded_down_also_before_1970() -> None:
    block = b"".join(
        message(100 + n, time=time - BASE["base_time"]) for n, time in enumerate([-1, -1000, -1001, 0, 999])
    )
    rows, _ = read_both(block)
    assert [row["ts"] for row in rows] == [-1, -1, -2, 0, 0]


def test_a_batch_ends_before_it_passes_its_bytes_and_a_larger_row_stands_alone() -> None:
    block = b"".join(message(100 + n, b"s", payload=b"x" * size) for n, size in enumerate([10, 10, 500, 10, 10]))
    counts, at, seq_next = [], 0, 0
    while True:
        read = read_columns(block, at, len(block), max_bytes=22, seq_next=seq_next, **BASE)
        counts.append(read.row_count)
        at, seq_next = read.next_offset, read.seq_next
        if read.finished:
            break
    assert counts == [2, 1, 2]


def test_columns_that_are_not_asked_for_have_no_buffers_and_no_bytes() -> None:
    block = b"".join(message(100 + n, payload=b"x" * 100) for n in range(50))
    read = read_columns(block, 0, len(block), columns=COLUMN_BITS["seq"], max_bytes=1, **BASE)
    assert read.row_count == 50 and list(read.buffers) == ["seq"] and len(read.buffers["seq"][0]) == 400


def test_the_buffers_are_aligned_read_only_and_taken_without_a_copy() -> None:
    block = b"".join(message(100 + n, headers=b"NATS/1.0\r\nA: b\r\n\r\n") for n in range(1000))
    read = read_columns(block, 0, len(block), stream="S", **BASE)
    for memory in (memory for part in read.buffers.values() for memory in part):
        taken = pa.py_buffer(memory)
        assert taken.address % 64 == 0 and taken.size == len(memory) and not taken.is_mutable
        assert pa.py_buffer(memory).address == taken.address
        view = memoryview(memory)
        assert view.readonly and view.nbytes == len(memory)
    batch = record_batch(read, SCHEMA)
    del read, memory, taken, view
    assert batch.column("payload").to_pylist() == [b"hi"] * 1000


def test_spare_memory_is_used_again_and_never_while_a_batch_holds_it() -> None:
    spares = Spares()
    small = b"".join(message(100 + n, payload=b"small") for n in range(10))
    large = b"".join(message(100 + n, payload=b"x" * 300, headers=b"NATS/1.0\r\nA: b\r\n\r\n") for n in range(2000))
    held = []
    for turn in range(20):
        block = (small, large)[turn % 2]
        held.append((turn % 2, record_batch(read_columns(block, 0, len(block), spares=spares, **BASE), SCHEMA)))
        for kind, batch in held:
            batch.validate(full=True)
            assert batch.column("payload").to_pylist() == ([b"small"] * 10, [b"x" * 300] * 2000)[kind]
        del held[: turn % 4]
    del spares
    assert [batch.num_rows for _, batch in held] == [(10, 2000)[kind] for kind, _ in held]


def test_any_buffer_can_be_read(tmp_path: Any) -> None:
    _, block = small_block()
    (tmp_path / "block").write_bytes(block)
    with (tmp_path / "block").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for data in (block, bytearray(block), memoryview(block), mapped):
            assert read_columns(data, 0, len(block), **BASE).row_count == 5


def test_an_empty_range_is_finished_and_has_no_rows() -> None:
    for block, start in ((b"", 0), (message(100), len(message(100)))):
        read = read_columns(block, start, start, **BASE)
        assert (read.row_count, read.finished, read.torn, read.next_offset) == (0, True, None, start)
        assert rows_of(read_columns(block, start, start, **BASE)) == []


@pytest.mark.parametrize(
    "bad",
    [{"stop": 5000}, {"start": -1}, {"start": 5, "stop": 4}, {"max_rows": 0}, {"max_bytes": 0}, {"max_bytes": 2**31}],
)
def test_arguments_that_make_no_sense_are_refused(bad: dict[str, int]) -> None:
    asked = {"start": 0, "stop": 10} | bad
    with pytest.raises(ValueError, match=r"."):
        read_columns(bytes(100), asked.pop("start"), asked.pop("stop"), **asked)  # type: ignore[arg-type]


def test_bounds_beyond_64_bits_are_taken_for_no_bound() -> None:
    block = message(100) + message(101)
    wide: list[dict[str, Any]] = [{"min_time": -(2**70), "stop_time": 2**70}, {"min_seq": -5, "stop_seq": 2**70}]
    for asked in wide:
        assert read_columns(block, 0, len(block), **BASE, **asked).row_count == 2
    none: list[dict[str, Any]] = [{"stop_time": -(2**63)}, {"stop_seq": 0}, {"stop_seq": -3}, {"min_time": 2**70}]
    for asked in [*none, {"min_seq": 2**70}]:
        assert read_columns(block, 0, len(block), **BASE, **asked).row_count == 0


def test_threads_read_the_same_block_at_once() -> None:
    block = b"".join(message(100 + n, payload=b"x" * 100) for n in range(20_000))

    def read(_: int) -> tuple[int, bytes]:
        found = read_columns(block, 0, len(block), **BASE)
        return found.row_count, bytes(memoryview(found.buffers["seq"][0]))

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(read, range(12)))) == 1
