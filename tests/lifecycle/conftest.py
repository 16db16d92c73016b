"""The raw clients and certificates of the server's tests are used here too; these tests' helpers lie beside them."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "server"), str(HERE.parent / "parity")]  # their modules look beside them


@pytest.fixture
def root() -> Iterator[Path]:
    """A place for a store, not there yet, in memory: the disk is not the question here."""
    path = Path(tempfile.mkdtemp(prefix="penstock-lifecycle-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    try:
        yield path / "data"
    finally:
        shutil.rmtree(path, ignore_errors=True)
