"""Stores in memory, for tests that do not depend on the disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing import FakeClock


@pytest.fixture
def root() -> Iterator[Path]:
    """A path for a store that does not exist yet, in a directory of its own in memory."""
    path = Path(tempfile.mkdtemp(prefix="penstock-db-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    try:
        yield path / "data"
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
