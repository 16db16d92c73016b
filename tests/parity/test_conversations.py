"""Every recorded conversation, held with our server: it answers as nats-server does, unless we differ on purpose.

The conversations are in cases/, one file per group; nats-server's answers are in recorded/ under the same name. The
group `publishes` has more to check than its answers and stands in test_publishes.py.
"""

from __future__ import annotations

import pytest

from parity.catalog import GROUPS, Case, assert_as_recorded, params
from support.servers import Servers

CASES = [param for group in GROUPS if group != "publishes" for param in params(group)]


@pytest.mark.parametrize("case", CASES)
def test_our_answers_are_the_real_servers(case: Case, ours: Servers) -> None:
    assert_as_recorded(case, ours)
