"""A query on a stream that ends early, in a process that then exits: no thread may still be reading for it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import penstock

ROWS = 1_500_000  # more than any reader fetches at once
RUN = """
import sys, duckdb, penstock
import pyarrow.compute as pc
db = penstock.open(sys.argv[1], read_only=True)
stream = db.get_stream("S")
rows = stream.dataset()
{}
print("done", flush=True)
"""
CASES = {
    "limit, a relation": "assert stream.to_duckdb().limit(1).fetchall()[0][1] == 1",
    "limit, the dataset in SQL": 'assert duckdb.sql("SELECT seq FROM rows LIMIT 1").fetchall() == [(1,)]',
    "limit, a filter": 'assert duckdb.sql("SELECT ts FROM rows WHERE seq > 70000 LIMIT 1").fetchall()[0][0].tzinfo',
    "a query that fails": """
try:
    duckdb.sql("SELECT CASE WHEN seq = 9 THEN error('no') ELSE 1 END AS n FROM rows").fetchall()
    raise SystemExit("it did not fail")
except duckdb.Error as error:
    assert "no" in str(error)
""",
    "a result that nobody fetches": 'found = duckdb.execute("SELECT * FROM rows"); found.fetchone()',
    "the first batch": "next(rows.to_batches())",
    "the first batch of a reader": "reader = rows.scanner(filter=pc.field('seq') > 5).to_reader(); "
    "reader.read_next_batch()",
    "head": "assert rows.head(3).num_rows == 3",
    "polars": "assert stream.scan_polars().head(1).collect().height == 1",
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("exit") / "data"
    with penstock.open(found, durability="lazy") as db:
        stream = db.stream("S", subjects=["s.*"])
        for _ in range(15):
            stream.publish_many([(f"s.{n % 5}", b"x" * 20) for n in range(ROWS // 15)])
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_query_that_ends_early_lets_the_process_end(path: Path, case: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(CASES[case]), str(path)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]


def test_the_extra_brings_what_timestamps_need() -> None:
    """DuckDB creates a TIMESTAMP WITH TIME ZONE with pytz, but does not depend on it."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert any(one.startswith("pytz") for one in project["optional-dependencies"]["duckdb"])
