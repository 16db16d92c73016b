"""scan: block files, written by hand as docs/format.md has them, to Arrow batches."""

from __future__ import annotations

import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.base.bloom_filter import build_filter
from penstock.base.disk import Disk
from penstock.base.seq_set import SeqSet
from penstock.base.xxh64 import xxh64_of
from penstock.errors import CorruptBlock, StoreError
from penstock.format.record import encode_control, encode_message
from penstock.scan import scan, to_table
from penstock.scan.schema import schema
from penstock.store.read.view import BlockView, StreamView

STREAM_ID = bytes(range(16))
TIME = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
RECORDS_START = 8192


def gone(seqs: set[int]) -> SeqSet:
    dead = SeqSet()
    for seq in seqs:
        dead.add(seq)
    return dead


def block_header(block_id: int, base_seq: int, base_time: int, salt: int) -> bytes:
    head = struct.pack(
        "<8sHBBI16sQQQQqQ", b"PSTKBLK\x01", 1, 0, 0, 1, STREAM_ID, block_id, 1, base_seq, base_seq, base_time, salt
    )
    head = head.ljust(248, b"\x00")
    return (head + struct.pack("<Q", xxh64_of(head, 0))).ljust(4096, b"\x00") * 2


def subject_of(seq: int) -> str:
    return f"orders.{('eu', 'us')[seq % 2]}.{seq % 7}" if seq < 300 else f"trades.{seq % 3}"


def make_view(folder: Path, blocks: int = 4, per_block: int = 100, **changes: Any) -> StreamView:
    """Blocks of messages 1, 2, …, one second apart; from 300 on the subjects are others."""
    made = []
    for n in range(blocks):
        seqs = range(1 + n * per_block, 1 + (n + 1) * per_block)
        base: dict[str, Any] = {"base_seq": seqs[0], "base_time": TIME + seqs[0] * SECOND, "salt": 1000 + n}
        data = bytearray(block_header(n + 1, **base))
        for seq in seqs:
            head = b"NATS/1.0\r\nNats-Msg-Id: %d\r\nK: a\r\nK: b\r\n\r\n" % seq if seq % 3 == 0 else None
            data += encode_message(
                seq, TIME + seq * SECOND, subject_of(seq).encode(), head, b"payload %d" % seq, **base
            )
        data += encode_control(4, 6, seqs[-1] + 1, base["base_time"], 1, **base)
        path = folder / f"{n + 1:06}.blk"
        path.write_bytes(data)
        made.append(
            BlockView(
                path=str(path),
                block_id=n + 1,
                start=RECORDS_START,
                stop=len(data),
                first_seq=seqs[0],
                stop_seq=seqs[-1] + 1,
                time_min=TIME + seqs[0] * SECOND,
                time_max=TIME + seqs[-1] * SECOND,
                subject_filter=build_filter({subject_of(seq) for seq in seqs}),
                **base,
            )
        )
    last = blocks * per_block
    view = StreamView("ORDERS", STREAM_ID, 1, 1, last, last, 0, tuple(made), None, Disk())
    return replace(view, **changes)


def spoil(block: BlockView, offset: int, bit: int = 1) -> None:
    data = bytearray(Path(block.path).read_bytes())
    data[offset] ^= bit
    Path(block.path).write_bytes(data)


def seqs_of(view: StreamView, **asked: Any) -> list[int]:
    found: list[int] = to_table(view, **asked).column("seq").to_pylist()
    return found


def test_the_types_are_those_that_spark_expects() -> None:
    """pyspark 4.3 compares a batch with to_arrow_schema("stream string, seq long, …"), inner names included."""
    element = pa.list_(pa.field("element", pa.string(), nullable=True))
    headers = pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", element, nullable=True))
    expected = pa.schema(
        [
            pa.field("stream", pa.string(), nullable=True),
            pa.field("seq", pa.int64(), nullable=True),
            pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=True),
            pa.field("ts_ns", pa.int64(), nullable=True),
            pa.field("subject", pa.string(), nullable=True),
            pa.field("headers", headers, nullable=True),
            pa.field("payload", pa.binary(), nullable=True),
        ]
    )
    assert schema().equals(expected, check_metadata=True)
    assert str(schema()) == str(expected)
    assert schema(headers="raw").field("headers").type == pa.binary()


def test_columns_come_in_the_tables_order_and_unknown_ones_name_what_is_near() -> None:
    assert schema(["payload", "seq"]).names == ["seq", "payload"]
    with pytest.raises(ValueError, match=r"no column 'sbject': did you mean subject"):
        schema(["seq", "sbject"])
    with pytest.raises(ValueError, match=r"no column 'zzz': there are stream, seq"):
        schema(["zzz"])
    with pytest.raises(TypeError, match="list of names"):
        schema("seq")
    with pytest.raises(ValueError, match="map or raw"):
        schema(headers="json")  # type: ignore[arg-type]


def test_a_scan_gives_every_message_with_all_its_parts(tmp_path: Path) -> None:
    table = to_table(make_view(tmp_path))
    table.validate(full=True)
    assert table.schema.equals(schema(), check_metadata=True)
    rows = table.to_pylist()
    assert [row["seq"] for row in rows] == list(range(1, 401))
    for row in rows:
        seq = row["seq"]
        assert row["stream"] == "ORDERS" and row["subject"] == subject_of(seq) and row["payload"] == b"payload %d" % seq
        assert row["ts_ns"] == TIME + seq * SECOND and row["ts"].timestamp() == 1_700_000_000 + seq
        expected = [("Nats-Msg-Id", [str(seq)]), ("K", ["a", "b"])] if seq % 3 == 0 else None
        assert row["headers"] == expected


def test_headers_can_be_had_raw(tmp_path: Path) -> None:
    column = to_table(make_view(tmp_path), headers="raw", columns=["headers"]).column("headers")
    assert column[2].as_py() == b"NATS/1.0\r\nNats-Msg-Id: 3\r\nK: a\r\nK: b\r\n\r\n" and column.null_count == 400 - 133


@pytest.mark.parametrize(
    ("asked", "expected", "opened"),
    [
        ({}, range(1, 401), 4),
        ({"start_seq": 150}, range(150, 401), 3),
        ({"stop_seq": 101}, range(1, 101), 1),
        ({"start_seq": 101, "stop_seq": 201}, range(101, 201), 1),
        ({"start_seq": 401}, [], 0),
        ({"start_seq": -5, "stop_seq": 2**70}, range(1, 401), 4),
        ({"since": TIME + 250 * SECOND}, range(250, 401), 2),
        ({"until": TIME + 101 * SECOND}, range(1, 101), 1),
        ({"since": TIME + 100 * SECOND, "until": TIME + 102 * SECOND}, [100, 101], 2),
        ({"since": TIME + 900 * SECOND}, [], 0),
        ({"subjects": ["trades.>"]}, range(300, 401), 2),
        ({"subjects": "trades.1"}, range(301, 401, 3), 1),
        ({"subjects": ["orders.eu.*", b"trades.0"], "stop_seq": 9}, [2, 4, 6, 8], 1),
        ({"subjects": ["nothing.>"]}, [], 0),
        ({"subjects": [">"]}, range(1, 401), 4),
        ({"subjects": []}, range(1, 401), 4),
    ],
)
@pytest.mark.parametrize("threads", [1, 3])
def test_blocks_that_cannot_match_are_not_opened(
    tmp_path: Path, asked: dict[str, Any], expected: Any, opened: int, threads: int
) -> None:
    found = scan(make_view(tmp_path), threads=threads, **asked)
    seqs = [seq for batch in found for seq in batch.column("seq").to_pylist()]
    assert seqs == list(expected)
    assert (found.blocks_total, found.blocks_opened, found.damage) == (4, opened, [])


def test_what_is_not_known_of_a_block_excludes_nothing(tmp_path: Path) -> None:
    view = make_view(tmp_path)
    blank = tuple(replace(block, time_min=1, time_max=0, subject_filter=b"") for block in view.blocks)
    found = scan(replace(view, blocks=blank), subjects=["trades.>"], since=TIME + 350 * SECOND)
    assert sum(batch.num_rows for batch in found) == 51 and found.blocks_opened == 4


def test_sequences_outside_the_view_are_not_rows(tmp_path: Path) -> None:
    view = make_view(tmp_path, first_seq=30, last_seq=350, dead=gone({31, 33, 34, 200}))
    assert seqs_of(view) == [seq for seq in range(30, 351) if seq not in (31, 33, 34, 200)]


def test_records_beyond_a_blocks_sequences_are_ignored(tmp_path: Path) -> None:
    """They were never acknowledged: the next block begins below them."""
    view = make_view(tmp_path)
    short = replace(view.blocks[0], stop_seq=61)
    assert seqs_of(replace(view, blocks=(short, *view.blocks[1:]))) == [*range(1, 61), *range(101, 401)]


@pytest.mark.parametrize("threads", [1, 2])
def test_batches_keep_to_rows_and_bytes_and_come_in_order(tmp_path: Path, threads: int) -> None:
    view = make_view(tmp_path)
    by_rows = list(scan(view, batch_rows=30, threads=threads))
    assert [batch.num_rows for batch in by_rows] == [30, 30, 30, 10] * 4
    assert pa.Table.from_batches(by_rows).equals(to_table(view))
    by_bytes = list(scan(view, batch_bytes=500, threads=threads, columns=["seq", "payload"]))
    assert all(batch.column("payload").nbytes <= 500 + 4 * (batch.num_rows + 1) for batch in by_bytes)
    assert sum(batch.num_rows for batch in by_bytes) == 400


def test_a_scan_without_columns_still_counts_rows(tmp_path: Path) -> None:
    assert sum(batch.num_rows for batch in scan(make_view(tmp_path), columns=[])) == 400


@pytest.mark.parametrize("threads", [1, 2])
def test_damage_is_reported_with_its_place_and_what_it_may_have_held(tmp_path: Path, threads: int) -> None:
    view = make_view(tmp_path)
    spoil(view.blocks[1], RECORDS_START + 50 * 43)
    found = scan(view, threads=threads)
    seqs = [seq for batch in found for seq in batch.column("seq").to_pylist()]
    [damage] = found.damage
    lost = list(range(damage.seq_start, damage.seq_stop))
    assert len(lost) == 1 and seqs == [seq for seq in range(1, 401) if seq not in lost]
    assert damage.path == view.blocks[1].path and damage.block_id == 2 and damage.reason == "checksum differs"
    assert damage.offset <= RECORDS_START + 50 * 43 < damage.offset + damage.size
    with pytest.raises(CorruptBlock, match=rf"000002\.blk at byte {damage.offset}: checksum differs"):
        list(scan(view, threads=threads, on_damage="raise"))
    assert len(list(scan(view, threads=threads, on_damage="raise", stop_seq=101))) == 1


def test_damage_that_cost_no_wanted_row_is_not_reported(tmp_path: Path) -> None:
    view = make_view(tmp_path)
    spoil(view.blocks[0], RECORDS_START + 3)
    for asked in ({"start_seq": 2}, {"start_seq": 50}):
        found = scan(view, **asked)  # type: ignore[arg-type]
        assert sum(batch.num_rows for batch in found) == 401 - asked["start_seq"] and found.damage == []
    found = scan(replace(view, dead=gone({1})))
    assert sum(batch.num_rows for batch in found) == 399 and found.damage == []


def test_a_torn_tail_is_damage_only_where_a_committed_sequence_is_missing(tmp_path: Path) -> None:
    view = make_view(tmp_path, blocks=1)
    [block] = view.blocks
    data = Path(block.path).read_bytes()
    base: dict[str, Any] = {"base_seq": block.base_seq, "base_time": block.base_time, "salt": block.salt}
    tail = encode_message(101, TIME, b"never.acknowledged", None, b"x" * 50, **base)[:30]
    Path(block.path).write_bytes(data + tail)
    longer = replace(view, blocks=(replace(block, stop=len(data) + len(tail)),))
    found = scan(longer)
    assert sum(batch.num_rows for batch in found) == 100 and found.damage == []
    for garbage in (tail, b"\x20" + b"\xff" * 40):
        Path(block.path).write_bytes(data + garbage)
        lacking = replace(view, last_seq=101, blocks=(replace(block, stop=len(data) + len(garbage), stop_seq=102),))
        found = scan(lacking)
        assert sum(batch.num_rows for batch in found) == 100
        [damage] = found.damage
        assert (damage.offset, damage.size, damage.seq_start, damage.seq_stop) == (len(data), len(garbage), 101, 102)


def test_a_file_that_ends_before_its_committed_bytes_is_reported(tmp_path: Path) -> None:
    view = make_view(tmp_path, blocks=1)
    [block] = view.blocks
    records = Path(block.path).read_bytes()
    Path(block.path).write_bytes(records[: RECORDS_START + 1000])
    found = scan(view)
    kept = sum(batch.num_rows for batch in found)
    [damage] = found.damage
    assert 0 < kept < 100 and (damage.seq_start, damage.seq_stop) == (kept + 1, 101)
    Path(block.path).write_bytes(b"")
    found = scan(view)
    assert list(found) == [] and found.damage[0].reason == "the file ends early"


def test_every_truncation_gives_only_whole_rows(tmp_path: Path) -> None:
    view = make_view(tmp_path, blocks=1, per_block=6)
    [block] = view.blocks
    whole = Path(block.path).read_bytes()
    good = to_table(view).to_pylist()
    for size in range(RECORDS_START, len(whole)):
        Path(block.path).write_bytes(whole[:size])
        found = scan(view)
        rows = [row for batch in found for row in batch.to_pylist()]
        assert rows == good[: len(rows)] and (len(rows) == 6 or found.damage)


class ErasingDisk(Disk):
    """The first read of a block falls into an erase that is half done."""

    def __init__(self) -> None:
        self.reads = 0

    def read_into(self, fd: int, out: Any, offset: int = 0) -> int:
        got = super().read_into(fd, out, offset)
        self.reads += 1
        if self.reads == 1:
            out[30] ^= 0xFF
        return got


def test_a_bad_checksum_is_read_again_before_it_is_called_damage(tmp_path: Path) -> None:
    disk = ErasingDisk()
    found = scan(make_view(tmp_path, blocks=1, disk=disk), on_damage="raise")
    assert sum(batch.num_rows for batch in found) == 100 and disk.reads == 2


def test_a_newer_record_and_a_missing_file_are_errors_that_name_the_file(tmp_path: Path) -> None:
    view = make_view(tmp_path, blocks=1)
    [block] = view.blocks
    newer = bytes([13, 5, 100, 0, 0, 0])
    data = Path(block.path).read_bytes() + newer + xxh64_of(newer, block.salt).to_bytes(8, "little")
    Path(block.path).write_bytes(data)
    with pytest.raises(StoreError, match=r"000001\.blk.*newer"):
        list(scan(replace(view, last_seq=500, blocks=(replace(block, stop=len(data), stop_seq=500),))))
    Path(block.path).unlink()
    with pytest.raises(FileNotFoundError, match=r"000001\.blk"):
        list(scan(view))


@pytest.mark.parametrize(
    "bad",
    [
        {"batch_rows": 0},
        {"batch_bytes": 0},
        {"batch_bytes": 2**30 + 1},
        {"threads": 0},
        {"on_damage": "ignore"},
        {"subjects": ["a..b"]},
        {"columns": ["nope"]},
        {"headers": "none"},
    ],
)
def test_arguments_that_make_no_sense_are_refused_at_once(tmp_path: Path, bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        scan(make_view(tmp_path, blocks=1), **bad)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_scan_can_be_left_early(tmp_path: Path, threads: int) -> None:
    found = scan(make_view(tmp_path), threads=threads, batch_rows=10)
    assert next(found).num_rows == 10
    found.close()
    assert list(found) == []


def test_importing_penstock_and_the_scan_does_not_import_pyarrow() -> None:
    code = "import sys, penstock, penstock.scan, penstock.store.read.view; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
