"""How long from the start of an interpreter to an open small store?"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import penstock
from bench.harness import SUBJECT_COUNT, Bench, Messages, median, seconds_of, subjects


def run(bench: Bench) -> str:
    path = bench.work / "small"
    with penstock.open(path) as db:
        db.stream("S", subjects=["orders.>"]).publish_many(Messages(subjects(SUBJECT_COUNT)).batch(10_000))
    scripts = {
        "bare": "pass",
        "import": "import penstock",
        "open": f"import penstock; db = penstock.open({str(path)!r})",
        "stream": f"import penstock; db = penstock.open({str(path)!r}); db.stream('S').get(1)",
    }
    # As installed, with the modules compiled to .pyc; kept apart, so that the sources' folders stay as they are.
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(bench.work / "pycache")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    took: dict[str, list[float]] = {}
    for n in range(bench.size(11, 6)):
        for name, script in scripts.items():
            command = [sys.executable, "-c", script]
            seconds = seconds_of(partial(subprocess.check_call, command, env=env))
            if n:  # the first makes the .pyc files
                took.setdefault(name, []).append(seconds)
    found = {name: median(each) for name, each in took.items()}
    bench.add("import penstock; open() of a small store", found["open"], "s", at_most=0.2)
    bench.add("  and read a message of a stream", found["stream"], "s")
    bench.add("  only `import penstock`", found["import"], "s")
    bench.add("  the bare interpreter, within each", found["bare"], "s")
    return "a cold page cache; it is the whole life of the process, its end included"
