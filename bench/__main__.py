"""Run the benches in order, print a table for each and one of all targets, and optionally save the numbers as JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bench.harness import ROOT, Bench, Row, machine, print_table, verdict

QUESTIONS = (
    "publish",
    "bandwidth",
    "publish_one",
    "read",
    "scan",
    "spark_scan",
    "spark_stream",
    "spark_write",
    "spark_lake",
    "spark_verify",
    "planning",
    "open",
    "per_subject",
    "pending",
    "deletes",  # last of those that share a data set: it deletes messages from it
    "startup",
    "server_publish",
    "server_many",
    "server_one",
    "server_core",
    "server_direct",
    "server_kv",
    "server_payload",
    "server_idle",
    "tails",
    "consumers_fetch",
    "consumers_work",
    "consumers_many",
    "consumers_tick",
    "consumers_kv",
    "consumers_py",
    "stalls",
)
GROUPS = ("server", "consumers", "spark")  # each stands for all benches whose names begin with it


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    told = f"questions to ask (all): {', '.join(QUESTIONS)}; or all of a group: {', '.join(GROUPS)}"
    parser.add_argument("names", nargs="*", metavar="name", help=told)
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: does it still run, roughly (a minute, and some for Spark)"
    )
    parser.add_argument("--json", metavar="FILE", help="write all numbers, and the machine, to FILE")
    parser.add_argument("--dir", metavar="DIR", default=str(ROOT / "bench-out"), help="where to work (bench-out/)")
    asked = parser.parse_args()
    unknown = [name for name in asked.names if name not in QUESTIONS + GROUPS]
    if unknown:
        parser.error(f"no bench {', '.join(unknown)}; there are: {', '.join(QUESTIONS + GROUPS)}")
    os.makedirs(asked.dir, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="run-", dir=asked.dir))
    facts = machine(work)
    print(f"{facts['cpu']}, {facts['cores']} cores · Linux {facts['kernel']} · {facts['file_system']} at {work}")
    print(", ".join(f"{name} {version}" for name, version in facts["versions"].items()))
    if facts["load"] > 0.5:
        print(f"NOTE: load is {facts['load']:.2f} before we begin: this machine is not quiet, the numbers are not good")
    if asked.quick:
        print("NOTE: --quick uses small sizes; the targets are meant for the full ones")
    bench = Bench(work, asked.quick)
    began = time.perf_counter()
    try:
        for name in QUESTIONS:
            group = name.partition("_")[0]
            if asked.names and name not in asked.names and not (group in GROUPS and group in asked.names):
                continue
            start = time.perf_counter()
            print(f"\n{name}", flush=True)
            bench.question = name
            leaves_out = importlib.import_module(f"bench.{name}").run(bench)
            print_table(_detail(row) for row in bench.rows if row.question == name)
            print(f"  leaves out: {leaves_out}")
            print(f"  ({time.perf_counter() - start:.0f} s)", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        try:
            os.rmdir(asked.dir)
        except OSError:
            pass  # the folder also holds files of others
    judged = [row for row in bench.rows if row.target]
    print(f"\nsummary ({time.perf_counter() - began:.0f} s)")
    print_table(
        [("what", "measured", "target", "met"), *((r.what, r.shown, r.target, verdict(r.is_met)) for r in judged)]
    )
    if asked.json:
        facts["quick"] = asked.quick
        found = {"machine": facts, "rows": [row.as_dict() for row in bench.rows]}
        Path(asked.json).write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _detail(row: Row) -> tuple[str, ...]:
    return "  " + row.what, row.shown, row.ratio_shown, row.target and f"target {row.target}", verdict(row.is_met)


if __name__ == "__main__":
    sys.exit(main())
