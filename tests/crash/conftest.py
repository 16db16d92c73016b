"""The campaigns share what lies beside them; servers and raw clients are those of the parity and the server tests."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = os.path.dirname(__file__)
sys.path[:0] = [HERE, os.path.join(HERE, "..", "server"), os.path.join(HERE, "..", "parity")]
pytest.register_assert_rewrite("crash_cases", "consumer_load")


@pytest.fixture
def room() -> Iterator[Path]:
    """A directory in memory: the campaigns write many small files and sync none of them for real."""
    path = Path(tempfile.mkdtemp(prefix="penstock-crash-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
