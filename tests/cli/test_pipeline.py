"""penstock pipeline NAME: what it prints, its exit codes, and one line for what cannot run."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli.pipeline_run import _print_state, explain
from support.cli_cases import Run, block, flip, spawn

pytest.importorskip("pyspark")
from penstock.spark.pipelines.report import Facts


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """One session for the commands of this file: each would start its own."""
    from penstock.spark import session

    found = session(**{"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": 2})
    yield found
    found.stop()


def test_verify_says_what_is_sound_and_what_is_not(run: Run, root: Path, spark: Any, tmp_path: Path) -> None:
    done = run("pipeline", "verify", root)
    assert done.code == 0 and "every checksum holds" in done.text
    at = flip(block(root, "BIG"), b"message 020")
    done = run("pipeline", "verify", root, "--json", "--out", tmp_path / "damage.csv")
    assert done.code == 1
    (problem,) = done.json["problems"]
    assert problem["seqs"] == [[20, 20]] and problem["offset"] <= at < problem["offset"] + problem["size"]
    assert [one["messages"] for one in done.json["streams"]] == [59, 100]
    assert "000001.blk" in (tmp_path / "damage.csv").read_text()
    done = run("pipeline", "verify", root, "-s", "BIG")
    assert done.code == 1 and "costs message 20" in done.text.replace("\n", " ")


def test_state_prints_tables_and_writes_a_report(run: Run, root: Path, spark: Any, tmp_path: Path) -> None:
    done = run("pipeline", "state", root, "--report", tmp_path / "state.html", "--tables", tmp_path / "tables")
    assert done.code == 0, done.err
    assert "orders.eu" in done.text and "BIG" in done.text
    assert (tmp_path / "state.html").read_text().startswith("<!doctype html>")
    assert spark.read.parquet(str(tmp_path / "tables" / "streams")).count() == 3
    facts = run("pipeline", "state", root, "-s", "ORDERS", "--json", "--duplicates", "none").json
    assert [row["messages"] for row in facts["streams"]] == [98, 98]


def test_a_damaged_block_stops_the_counting_with_one_line(run: Run, root: Path, spark: Any) -> None:
    flip(block(root, "BIG"), b"message 020")
    done = run("pipeline", "state", root, "-s", "BIG", "--duplicates", "none")
    assert done.code == 2 and "000001.blk" in done.err.splitlines()[-1]
    assert [one for one in done.err.splitlines() if one.startswith("penstock: ")] == done.err.splitlines()[-1:]
    facts = run("pipeline", "state", root, "-s", "BIG", "--duplicates", "none", "--skip-damaged", "--json").json
    assert facts["percentiles"][0]["count"] == 58, "times between 59 messages"


def test_lake_decode_and_replay_run_from_the_command_line(run: Run, spark: Any, tmp_path: Path) -> None:
    """Their rules have tests of their own: here it is the options."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    with penstock.open(data, durability="os") as db:
        db.stream("S", subjects=["s.>"]).publish_many([(f"s.{n % 2}", b'{"n": %d}' % n) for n in range(20)])
        db.stream("COPY", subjects=["copy"])
    done = run("pipeline", "lake", data, lake, "-s", "S", "--partition-by", "stream")
    assert done.code == 0 and "20 messages" in done.text, done.err
    assert "nothing new" in run("pipeline", "lake", data, lake, "-s", "S").text
    done = run("pipeline", "decode", data, tmp_path / "out", "-s", "S", "--subject", "s.1", "--schema", "n LONG")
    assert done.code == 0, done.err
    assert {row["n"] for row in spark.read.parquet(str(tmp_path / "out")).collect()} == set(range(1, 20, 2))
    (tmp_path / "to_copy.py").write_text(
        "from pyspark.sql import functions as f\ndef change(df): return df.withColumn('subject', f.lit('copy'))\n"
    )
    done = run("pipeline", "replay", data, data, "-s", "S", "--to-stream", "COPY", "--start-seq", "11",
               "--transform", f"{tmp_path / 'to_copy.py'}:change", "--json")  # fmt: skip
    assert done.code == 0, done.err
    assert done.json["rows"] == 10
    with penstock.open(data, read_only=True) as db:
        assert db.get_stream("COPY").state().messages == 10


def test_migrate_exits_with_1_when_lines_were_set_aside(run: Run, spark: Any, tmp_path: Path) -> None:
    old = tmp_path / "old" / "ORDERS"
    old.mkdir(parents=True)
    lines = [
        json.dumps({"Sequence": n, "Subject": "orders.a", "PayloadBase64": base64.b64encode(b"%d" % n).decode(),
                    "TimestampUtc": "2024-05-06T07:08:09Z"})
        for n in (1, 2, 5)
    ]  # fmt: skip
    (old / "messages.jsonl").write_text("\n".join([*lines, "{bad"]))
    done = run("pipeline", "migrate", tmp_path / "data", tmp_path / "old")
    assert done.code == 1
    assert "ORDERS: 3 messages" in done.text and "1 line could not be taken" in done.err
    with penstock.open(tmp_path / "data", read_only=True) as db:
        assert [one.seq for one in db.get_stream("ORDERS").read()] == [1, 2, 5]
    done = run("pipeline", "migrate", tmp_path / "data", tmp_path / "old")
    assert done.code == 2 and done.err.count("\n") == 1 and "holds messages already" in done.err


@pytest.mark.parametrize(
    "args, said",
    [
        (["verify", "missing"], "there is no such directory"),
        (["state", "missing"], "there is no such directory"),
        (["migrate", "data", "missing"], "no such file or folder"),
        (["verify", "missing", "--out", "x.txt"], "the name ends in"),
        (["verify", "missing", "--conf", "x"], "KEY=VALUE"),
        (["verify"], "Missing argument"),
    ],
)
def test_what_cannot_run_is_one_line(
    run: Run, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("pipeline", *args)
    assert done.code == 2 and done.out == b""
    assert said in done.err and done.err.startswith("penstock: ") and done.err.count("\n") == 1


def test_every_pipeline_has_help() -> None:
    done = spawn("pipeline", "--help")
    assert done.code == 0
    for name in ("verify", "state", "migrate", "lake", "replay", "decode"):
        assert name in done.text


def test_without_pyspark_one_line_says_what_to_install(root: Path) -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        f"from penstock.cli import main; sys.exit(main(['pipeline', 'verify', {str(root)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "penstock: pyspark is not installed: pip install 'penstock[spark]'\n"


def test_the_words_of_a_failed_job_are_ours_where_it_has_them() -> None:
    text = "Job aborted\n  File x\npenstock.spark.errors.PenstockSparkError: data/000001.blk: gone\n at java"
    assert explain(text, "log") == "data/000001.blk: gone"
    assert explain("[BAD] something\nmore", "/tmp/log") == "[BAD] something (Spark's log: /tmp/log)"


def test_the_state_names_every_stream_in_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table of seven wide numbers once left the stream's name no column."""
    monkeypatch.setenv("COLUMNS", "80")
    many = 123_456_789_012
    names = ("messages", "bytes", "subjects", "deleted", "skipped", "lost", "duplicates")
    row = dict.fromkeys(names, many) | {"mean_per_minute": many, "peak_per_minute": many}
    consumer = {"consumer": "billing", "delivered_seq": many, "ack_floor_seq": many, "num_ack_pending": 9_999,
                "num_pending": 99_999, "num_given_up": 9_999}  # fmt: skip
    subject = {"subject": "orders.eu.42", "messages": many, "data_bytes": many, "first_seq": many, "last_seq": many}
    percentiles = {"what": "size"} | dict.fromkeys(("min", "p50", "p90", "p99", "max"), many)
    _print_state(
        Facts(
            path="/data",
            streams=[{"stream": "*"} | row, {"stream": "APP/ORDERS"} | row],
            percentiles=[{"stream": "APP/ORDERS"} | percentiles],
            histograms={},
            rates=("minute", []),
            top_subjects=[{"stream": "APP/ORDERS"} | subject],
            gaps=[],
            duplicates=[],
            consumers=[{"stream": "APP/ORDERS"} | consumer],
        )
    )
    lines = capsys.readouterr().out.splitlines()
    heads = [line for line in lines if line.startswith(("stream", " stream"))]
    assert len(heads) == 5
    assert sum("APP/ORDERS" in line for line in lines) == 5, "\n".join(lines)
    assert sum(line.count(f"{many:,}") for line in lines) == 3 + 2 + 1 + 2, "no number is cut"
    assert "billing" in "".join(lines)


def test_the_state_fits_80_columns_with_numbers_of_a_million(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    row = dict.fromkeys(
        ("messages", "bytes", "subjects", "deleted", "skipped", "lost", "duplicates", "mean_per_minute",
         "peak_per_minute"), 1_234_567,
    )  # fmt: skip
    _print_state(
        Facts("/data", [{"stream": "*"} | row, {"stream": "ORDERS"} | row], [], {}, ("minute", []), [], [], [])
    )
    lines = capsys.readouterr().out.splitlines()
    assert sum("ORDERS" in line for line in lines) == 2 and max(map(len, lines)) <= 80
