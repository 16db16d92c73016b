"""The demo tells its story to the end, also the second time, and goes on on Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_the_demo_runs_twice(tmp_path: Path) -> None:
    for _ in range(2):
        command = [sys.executable, str(DEMO), "--count", "4000", "--out", str(tmp_path / "out")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
        for text in ("killed with -9", "compared one by one", "erased: no file", "every checksum holds", "Done in"):
            assert text in done.stdout
    for name in ("orders.parquet", "orders.jsonl", "orders.png"):
        assert (tmp_path / "out" / name).stat().st_size > 1000
    with open(tmp_path / "out" / "orders.jsonl", "rb") as file:
        assert sum(1 for _ in file) == 3999, "all but the erased one"
    check_pipeline(tmp_path / "out")


def test_the_server_of_the_demo_loses_nothing_it_has_acknowledged(tmp_path: Path) -> None:
    command = [sys.executable, str(DEMO.parent / "server.py"), str(tmp_path / "out"), "--seconds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    for text in ("ready after", '{"status":"ok"}', "exit code 0", " 0 missing"):
        assert text in done.stdout, done.stdout


def check_pipeline(out: Path) -> None:
    """The second half, on Spark."""
    command = [sys.executable, str(DEMO.parent / "pipeline.py"), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    for text in ("SQL over the JSON", "3,999 orders in 1 batches", "one table of 4,000 rows", "every checksum holds"):
        assert text in done.stdout, done.stdout
    for name in ("state.html", "pipeline.png"):
        assert (out / name).stat().st_size > 10_000
