"""Stores in memory where the disk is not the question."""

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
    """A place for a store, not there yet, in a directory of its own in memory."""
    path = Path(tempfile.mkdtemp(prefix="penstock-db-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    try:
        yield path / "data"
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
