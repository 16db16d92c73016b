"""Consumers by chance.

The cases: cases/random_consumers.py; the real server's answers: recorded/random_consumers.json.
"""

from __future__ import annotations

import pytest

from parity.catalog import Case, assert_as_recorded, params
from support.servers import Servers


@pytest.mark.parametrize("case", params("random_consumers"))
def test_our_answers_are_the_real_servers(case: Case, ours: Servers) -> None:
    assert_as_recorded(case, ours)
