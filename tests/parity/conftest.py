"""The servers, shared by the cases of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.servers import Servers


@pytest.fixture(scope="session")
def ours() -> Iterator[Servers]:
    with Servers("ours") as servers:
        yield servers


@pytest.fixture(scope="session")
def real() -> Iterator[Servers]:
    with Servers("real") as servers:
        yield servers
