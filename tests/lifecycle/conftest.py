"""Stores in memory: the disk is not the question here."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def root() -> Iterator[Path]:
    """A place for a store, not there yet, in memory: the disk is not the question here."""
    path = Path(tempfile.mkdtemp(prefix="penstock-lifecycle-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    try:
        yield path / "data"
    finally:
        shutil.rmtree(path, ignore_errors=True)
