"""A campaign of files that lie: one field of one file is changed and every checksum over it made right again, so that
what reads it is reached. Nothing but a PenstockError may come out of any door, memory stays in proportion, nothing
outside the store is touched; a file that only helps costs no message of which `verify` does not tell, and `repair`
brings all of them back.

`N=` sets the cases in all (default 240), `SEED=` another campaign. A failure prints the command that runs its case
again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.file_bases import KINDS

pytestmark = pytest.mark.campaign

CASES = int(os.environ.get("N") or 240)
SEED = os.environ.get("SEED") or "20261115"
WORKER = str(Path(__file__).parents[1] / "support" / "file_worker.py")
CHUNKS = 2 if CASES > 1000 else 1
FAILURES_MAX = 5


def run(kind: str, start: int, stop: int) -> list[dict[str, Any]]:
    """The failures of these cases; a process that dies is one, and those after it go on."""
    failures: list[dict[str, Any]] = []
    while start < stop and len(failures) < FAILURES_MAX:
        command = [sys.executable, WORKER, SEED, kind, str(start), str(stop)]
        done = subprocess.run(command, capture_output=True, text=True)
        lines = done.stdout.splitlines()
        failures += [json.loads(line) for line in lines if line.startswith('{"case"')]
        if lines and lines[-1] == "done":
            return failures
        begun = [int(line.split()[1]) for line in lines if line.startswith("at ")]
        assert begun, f"the worker did not come to its first case: {done.stderr[-3000:]}"
        error = f"the process ended with {done.returncode}"
        failures.append({"case": begun[-1], "error": error, "trace": done.stderr[-6000:]})
        start = begun[-1] + 1
    return failures


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_lies_crashes_nobody_and_costs_nothing_unsaid(kind: str, chunk: int) -> None:
    count = -(-CASES // (len(KINDS) * CHUNKS))
    failures = run(kind, chunk * count, (chunk + 1) * count)
    told = [f"{one['trace']}\npython {WORKER} {SEED} {kind} {one['case']} {one['case'] + 1}" for one in failures]
    assert not failures, "\n\n".join(told)
