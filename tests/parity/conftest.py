"""The parity tests' own modules are found beside this file; servers are shared by the cases of a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

sys.path.insert(0, os.path.dirname(__file__))

from harness import Servers


@pytest.fixture(scope="session")
def ours() -> Iterator[Servers]:
    with Servers("ours") as servers:
        yield servers


@pytest.fixture(scope="session")
def real() -> Iterator[Servers]:
    with Servers("real") as servers:
        yield servers
