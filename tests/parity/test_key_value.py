"""Key-value buckets and object stores on the wire.

The cases: cases/key_value.py; the real server\'s answers: recorded/key_value.json.
"""

from __future__ import annotations

import pytest

from parity.catalog import Case, assert_as_recorded, params
from support.servers import Servers


@pytest.mark.parametrize("case", params("key_value"))
def test_our_answers_are_the_real_servers(case: Case, ours: Servers) -> None:
    assert_as_recorded(case, ours)
