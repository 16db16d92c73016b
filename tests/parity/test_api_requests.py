"""What holds for every request to the API.

The cases: cases/api_requests.py; the real server\'s answers: recorded/api_requests.json.
"""

from __future__ import annotations

import pytest

from parity.catalog import Case, assert_as_recorded, params
from support.servers import Servers


@pytest.mark.parametrize("case", params("api_requests"))
def test_our_answers_are_the_real_servers(case: Case, ours: Servers) -> None:
    assert_as_recorded(case, ours)
