"""penstock export: exactly the lines, and nothing else."""

from __future__ import annotations

import base64
import csv
import io
import json
from pathlib import Path

import pytest

import penstock
from support.cli_cases import Run, block, flip, spawn, writer

KEYS = ["stream", "seq", "time_ns", "subject", "headers_b64", "payload_b64"]


def test_a_line_has_exactly_these_keys(run: Run, root: Path) -> None:
    done = run("export", root, "--stream", "ORDERS", "--format", "jsonl")
    assert done.code == 0 and done.err == ""
    with penstock.open(root, read_only=True) as db:
        stored = list(db.stream("ORDERS").read())
    assert len(done.lines) == len(stored) == 98
    for line, message in zip(done.lines, stored, strict=True):
        assert list(line) == KEYS
        headers = base64.b64encode(message.raw_headers).decode() if message.raw_headers is not None else None
        payload = base64.b64encode(message.data).decode()
        assert list(line.values()) == ["ORDERS", message.seq, message.time_ns, message.subject, headers, payload]


def test_a_line_byte_for_byte(run: Run, tmp_path: Path) -> None:
    line = (
        b'{"stream": "S", "seq": 5, "time_ns": 1700000000000000001, "subject": "a.\\u00e9.\\"q", '
        b'"headers_b64": "TkFUUy8xLjANCkE6IDENCg0K", "payload_b64": "AP8="}\n'
    )
    (tmp_path / "in.jsonl").write_bytes(line)
    assert run("import", tmp_path / "data", tmp_path / "in.jsonl").code == 0
    assert run("export", tmp_path / "data").out == line


def test_standard_output_is_pure(root: Path) -> None:
    done = spawn("export", root)
    assert done.code == 0 and done.err == ""
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["stream"] for line in lines] == ["BIG"] * 60 + ["ORDERS"] * 98
    assert done.out.endswith(b"\n")


def test_filters(run: Run, root: Path) -> None:
    def seqs(*args: object) -> list[int]:
        return [line["seq"] for line in run("export", root, "-s", "ORDERS", *args).lines]

    assert seqs("--subject", "orders.eu.1") == [n for n in range(1, 101) if n % 2 and n % 5 == 1]
    assert seqs("--subject", "orders.eu.1", "--subject", "orders.us.0") == [
        n for n in range(1, 101) if n % 10 in (0, 1)
    ]
    assert seqs("--start-seq", "98") == [98, 99, 100]
    assert len(seqs("--since", "-1h")) == 98
    assert seqs("--until", "-1h") == []
    assert seqs("--since", "2100-01-01") == []
    with penstock.open(root, read_only=True) as db:
        time_ns = db.stream("ORDERS").get(1).time_ns
    assert len(seqs("--since", time_ns)) == 98


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "7d", ""])
def test_a_bad_time(run: Run, root: Path, text: str) -> None:
    done = run("export", root, "--since", text)
    assert done.code == 2 and done.err.startswith("penstock: --since: not a time") and not done.out


def test_a_bad_filter(run: Run, root: Path) -> None:
    done = run("export", root, "--subject", "orders..eu")
    assert done.code == 2 and done.err.startswith("penstock: ") and done.err.count("\n") == 1


def test_csv_has_the_same_columns(run: Run, root: Path, tmp_path: Path) -> None:
    lines = run("export", root, "-s", "ORDERS").lines
    done = run("export", root, "-s", "ORDERS", "-f", "csv")
    rows = list(csv.DictReader(io.StringIO(done.text)))
    assert list(rows[0]) == KEYS
    assert [{key: str(value or "") for key, value in line.items()} for line in lines] == rows
    assert run("export", root, "-s", "ORDERS", "-f", "csv", "-o", tmp_path / "o.csv").out == b""
    assert (tmp_path / "o.csv").read_bytes() == done.out


def test_parquet(run: Run, root: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    done = run("export", root, "-s", "ORDERS", "-f", "parquet", "-o", tmp_path / "o.parquet")
    assert done.code == 0 and done.out == b"" and "98 messages" in done.err
    with penstock.open(root, read_only=True) as db:
        assert pq.read_table(tmp_path / "o.parquet").equals(db.stream("ORDERS").to_arrow())


def test_parquet_of_several_streams_is_one_file_or_those_of_a_folder(run: Run, root: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    assert run("export", root, "-f", "parquet", "-o", tmp_path / "all.parquet").code == 0
    assert pq.read_table(tmp_path / "all.parquet").column("stream").value_counts().to_pylist() == [
        {"values": "BIG", "counts": 60}, {"values": "ORDERS", "counts": 98},
    ]  # fmt: skip
    assert run("export", root, "-f", "parquet", "-o", f"{tmp_path / 'all'}/").code == 0
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["BIG.parquet", "ORDERS.parquet"]
    assert pq.read_metadata(tmp_path / "all" / "BIG.parquet").num_rows == 60


def test_parquet_needs_a_place(run: Run, root: Path) -> None:
    done = run("export", root, "--format", "parquet")
    assert done.code == 2 and "--out" in done.err and not done.out


def test_a_file_appears_whole_or_not_at_all(run: Run, root: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.jsonl"
    out.write_text("the one before")
    assert run("export", root, "--subject", "bad..filter", "-o", out).code == 2
    assert out.read_text() == "the one before"
    assert run("export", root, "-o", out).code == 0
    assert out.read_bytes() == run("export", root).out
    assert [path.name for path in tmp_path.iterdir() if ".tmp" in path.name] == []
    assert run("export", root, "-o", tmp_path).code == 2, "a directory"
    assert run("export", root, "-o", tmp_path / "no" / "such").code == 2


def test_damage_is_told_and_the_rest_is_written(run: Run, root: Path) -> None:
    flip(block(root, "BIG"), b"message 020")
    done = run("export", root, "-s", "BIG")
    assert done.code == 1
    assert [line["seq"] for line in done.lines] == [n for n in range(1, 61) if n != 20]
    assert "left out: 20 of BIG" in done.err and done.err.count("\n") == 1
    assert run("repair", root).code == 0
    assert run("export", root, "-s", "BIG").code == 0, "what is recorded as lost is not told again"


def test_beside_a_writer_sequences_never_fall_or_repeat(run: Run, root: Path) -> None:
    with writer(root):
        for _ in range(3):
            done = run("export", root, "-s", "ORDERS")
            assert done.code == 0
            seqs = [line["seq"] for line in done.lines]
            assert seqs == sorted(set(seqs)) and len(seqs) > 98
