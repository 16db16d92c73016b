"""What tests of every layer share: the garbage of nats-py goes with the test that made it."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("support", "parity")

# How long an example takes says how busy the machine is.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")
# A client of nats-py that is refused leaves its socket to the garbage collector. What our tests leave is not forgiven.
IGNORED = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("nats_py") is not None:
            for ignored in IGNORED:
                item.add_marker(pytest.mark.filterwarnings(ignored))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Collect it at the very end, when pytest has forgotten the log too: records in it hold the client.

    Left to itself it was found in the middle of another test, which had opened no socket.
    """
    done = yield
    if item.get_closest_marker("nats_py") is not None:
        gc.collect()
    return done
