"""Fixtures for programs that speak NATS: a real server with JetStream in the test's own process, ready in milliseconds.

    async def test_orders(nats_url):
        nc = await nats.connect(nats_url)

`penstock_server` is fresh for every test: its own port, its own empty store, gone at the end. Options go through
a marker: `@pytest.mark.penstock(username="a", password="b")`; they are those of `penstock.Server`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.server.embedded import EmbeddedServer


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "penstock(**options): options of this test's penstock_server")


@pytest.fixture
def penstock_server(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    """A NATS server with JetStream, for one test. `.url`, `.port`, `.store_dir`."""
    from penstock.server.embedded import EmbeddedServer

    marker = request.node.get_closest_marker("penstock")
    options = {"durability": "os", **(marker.kwargs if marker is not None else {})}
    with EmbeddedServer(**options) as server:
        yield server


@pytest.fixture
def nats_url(penstock_server: EmbeddedServer) -> str:
    """Where a client of this test's server connects."""
    return penstock_server.url
