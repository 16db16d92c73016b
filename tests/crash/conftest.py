"""The campaigns share crash_cases.py, which lies beside them."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, os.path.dirname(__file__))
pytest.register_assert_rewrite("crash_cases")


@pytest.fixture
def room() -> Iterator[Path]:
    """A directory in memory: the campaigns write many small files and sync none of them for real."""
    path = Path(tempfile.mkdtemp(prefix="penstock-crash-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
