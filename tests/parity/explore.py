"""Look for differences with more seeds than are recorded: python tests/parity/explore.py GROUP FIRST LAST

Both servers run; the conversations of the random groups (random_protocol, random_streams, random_requests) with these
seeds go to each of them, and where the transcripts differ the diff is printed.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # it runs without pytest

from parity.catalog import cases_of, difference, run
from support.servers import Servers

SILENCES_MAX = 5


def main() -> int:
    group, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    module = importlib.import_module(f"parity.cases.{group}")
    like = cases_of(group)[0]
    count = silences = 0
    with Servers("real") as real, Servers("ours") as ours:
        for seed in range(first, last):
            case = dataclasses.replace(like, name=f"seed {seed}", run=module.conversation(seed))
            expected, is_whole = run(case, real)
            got, is_answered = run(case, ours)
            silences = 0 if is_answered else silences + 1
            if silences == SILENCES_MAX:
                print(f"Penstock has been silent {silences} times in a row: seed {seed} is the last")
                return 1
            found = difference(expected, got)
            if found and is_whole:
                count += 1
                print(f"--- {group}: seed {seed}\n{found}", flush=True)
    print(f"{group}: {last - first} seeds, {count} differ")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
