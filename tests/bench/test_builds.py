"""The comparison of builds: both sides run, and what it says of two rates is true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bench.builds import compare

ROOT = Path(__file__).parents[2]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.builds", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def test_a_build_is_compared_with_itself_and_the_real_server() -> None:
    done = run("src", "src", "nats", "--slices", "2", "--messages", "160", "--connections", "8")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[-1] for row in rows] == ["src", "src", "2.15.1"]
    assert rows[0][0] == "1.000" and float(rows[1][0]) > 0


def test_large_payloads_go_into_a_new_stream_for_each_slice() -> None:
    words = ("--slices", "3", "--messages", "64", "--connections", "1", "--window", "8", "--size", "65536", "--fresh")
    done = run("src", "nats", *words)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2


def test_a_folder_without_a_build_is_refused_by_name(tmp_path: Path) -> None:
    done = run(str(tmp_path))
    assert done.returncode == 2
    assert f"{tmp_path}: no penstock in it" in done.stderr


@pytest.mark.parametrize("words", [("--slices", "0"), ("--connections", "-1"), ("--messages", "many")])
def test_counts_are_whole_numbers_above_zero(words: tuple[str, str]) -> None:
    done = run("src", f"{words[0]}={words[1]}")
    assert done.returncode == 2
    assert f"argument {words[0]}: {words[1]}: give a whole number above 0" in done.stderr


def test_neighbours_are_compared_however_fast_the_host_is() -> None:
    """Twice as fast in a slow minute and in a fast one."""
    ratio, error = compare([10.0, 100.0, 30.0], [20.0, 200.0, 60.0])
    assert ratio == pytest.approx(2.0) and error == pytest.approx(0.0)
    ratio, error = compare([10.0, 10.0], [10.0, 12.0])
    assert ratio == pytest.approx(1.0954, abs=1e-3) and error == pytest.approx(0.0999, abs=1e-3)
