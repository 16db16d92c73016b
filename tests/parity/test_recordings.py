"""The recordings still hold: a slice of the cases runs against the real nats-server, and every case has a recording."""

from __future__ import annotations

import pytest

from parity.catalog import GROUPS, Case, all_cases, cases_of, difference, recorded, run
from support.servers import Servers

EVERY = 10  # one case in so many; tests/parity/record.py --check runs them all
SLOW = "publish_limits"  # its cases wait for messages to grow old
RUNS = 3  # the real server is not always of one mind: its consumers' state lags behind its answers on a busy machine


@pytest.mark.parametrize("group", GROUPS)
def test_every_case_is_recorded_and_nothing_else(group: str) -> None:
    assert sorted(recorded(group)) == sorted(case.name for case in cases_of(group))


@pytest.mark.parametrize("case", [case for case in all_cases() if case.group != SLOW][::EVERY], ids=str)
def test_the_real_server_still_says_so(case: Case, real: Servers) -> None:
    known = recorded(case.group)[case.name]
    differences = []
    while len(differences) < RUNS:
        transcript, _ = run(case, real)
        found = difference(known, transcript)
        if not found:
            return
        differences.append(found)
    pytest.fail(f"{case.group}: {case.name}: differs in each of {RUNS} runs\n" + "\n".join(differences))
