"""Record what the real server says: python tests/parity/record.py [GROUP …] [--case TEXT] [--check | --ours]

Without options every case runs against nats-server and recorded/<group>.json is written anew. `--check` only compares
with what is recorded; `--ours` runs Penstock instead and prints where it differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # it runs without pytest

from parity.catalog import GROUPS, cases_of, difference, recorded, run, write
from parity.different import DIFFERENT
from support.servers import Servers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP")
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--brief", action="store_true", help="name the cases that differ, no diffs")
    asked = parser.parse_args()
    failures = 0
    with Servers("ours" if asked.ours else "real") as servers:
        for group in asked.groups or GROUPS:
            failures += one_group(group, asked, servers)
    return 1 if failures else 0


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
