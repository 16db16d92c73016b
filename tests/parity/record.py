"""Record what the real server says: python tests/parity/record.py [GROUP …] [--case TEXT] [--check | --ours]

Without options everything that is recorded from nats-server is recorded anew: the conversations (a group is a file in
cases/), the tables of questions (`consumer`, `stream`, `wire`) and the monitoring pages (`monitoring`). `--check` only
compares with what is recorded; `--ours` runs the conversations with Penstock instead and prints where it differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # it runs without pytest

from parity import tables
from parity.catalog import GROUPS, cases_of, difference, recorded, run, write
from parity.different import DIFFERENT
from parity.tables import TABLES
from support import monitor_record
from support.servers import Servers

MONITORING = "monitoring"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP")
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--brief", action="store_true", help="name the cases that differ, no diffs")
    asked = parser.parse_args()
    failures = 0
    wanted = asked.groups or [*GROUPS, *TABLES, MONITORING]
    with Servers("ours" if asked.ours else "real") as servers:
        for group in wanted:
            if group in GROUPS:
                failures += one_group(group, asked, servers)
            elif not (asked.ours or asked.case):
                failures += one_table(group, asked.check) if group in TABLES else monitoring(asked.check)
    return 1 if failures else 0


def one_table(name: str, is_check: bool) -> int:
    """The tables have no `--ours`: the tests of the rules replay them without a server."""
    answers = tables.ask(name)
    if not is_check:
        tables.write(name, answers)
    known = tables.recorded(name)
    differ = [group for group, cases in answers.items() if cases != known.get(group)]
    counts = {group: len(cases) for group, cases in answers.items() if isinstance(cases, list)}
    print(f"{name}: {counts}" + (f", different: {differ}" if differ else ""), flush=True)
    return len(differ)


def monitoring(is_check: bool) -> int:
    """What tests/server/monitor compares. That the real server still says so is a test there."""
    if not is_check:
        monitor_record.record()
    return 0


def one_group(group: str, asked: argparse.Namespace, servers: Servers) -> int:
    begin = time.monotonic()
    cases = [case for case in cases_of(group) if asked.case in case.name]
    known = recorded(group)
    answers = known if asked.case else {}
    failures = 0
    for case in cases:
        try:
            transcript, is_whole = run(case, servers)
        except Exception as e:  # noqa: BLE001 - a case that breaks is reported, the others still run
            print(f"--- {group}: {case.name}: {type(e).__name__}: {e}", flush=True)
            failures += 1
            continue
        if asked.check or asked.ours:
            found = difference(known.get(case.name, []), transcript)
            reason = DIFFERENT.get(group, {}).get(case.name, "") if asked.ours else ""
            if reason:
                print(
                    f"    {group}: {case.name}: differs on purpose: {reason}" if found else f"--- {case.name}: does not"
                )
            elif found:
                failures += 1
                print(f"--- {group}: {case.name}" + ("" if asked.brief else f"\n{found}"), flush=True)
        elif not is_whole:
            failures += 1
            print(f"--- {group}: {case.name}: an answer did not come:\n{transcript[-1]}", flush=True)
        else:
            answers[case.name] = transcript
    if not (asked.check or asked.ours):
        write(group, answers)
    print(f"{group}: {len(cases)} cases, {failures} differ or fail, {time.monotonic() - begin:.1f} s", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
