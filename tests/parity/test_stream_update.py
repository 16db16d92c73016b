"""STREAM.UPDATE.

The cases: cases/stream_update.py; the real server\'s answers: recorded/stream_update.json.
"""

from __future__ import annotations

import pytest

from parity.catalog import Case, assert_as_recorded, params
from support.servers import Servers


@pytest.mark.parametrize("case", params("stream_update"))
def test_our_answers_are_the_real_servers(case: Case, ours: Servers) -> None:
    assert_as_recorded(case, ours)
