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
from cli_cases import Run, block, flip, spawn

import penstock
from penstock.cli.pipeline_run import explain

pytest.importorskip("pyspark")


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
    assert done.code == 1 and "1 message of 20 to 20" in done.text.replace("\n", " ")


def test_state_prints_tables_and_writes_a_report(run: Run, root: Path, spark: Any, tmp_path: Path) -> None:
    done = run("pipeline", "state", root, "--report", tmp_path / "state.html", "--tables", tmp_path / "tables")
    assert done.code == 0, done.err
    assert "orders.eu" in done.text and "BIG" in done.text
    assert (tmp_path / "state.html").read_text().startswith("<!doctype html>")
    assert spark.read.parquet(str(tmp_path / "tables" / "streams")).count() == 3
    facts = run("pipeline", "state", root, "-s", "ORDERS", "--json", "--duplicates", "none").json
    assert [row["messages"] for row in facts["streams"]] == [98, 98]


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
