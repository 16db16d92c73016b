"""Stores in memory: a campaign writes many small files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory in memory: the campaigns write many small files and sync none of them for real."""
    path = Path(tempfile.mkdtemp(prefix="penstock-crash-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
