"""A fresh JetStream for a test, without sockets: support/jetstream.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.jetstream import Place, opened

Test = Callable[[Place], Any]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    """Run a coroutine function with a fresh JetStream."""

    def start(test: Test, **options: Any) -> None:
        async def main() -> None:
            async with opened(tmp_path / "store", **options) as place:
                await test(place)

        asyncio.run(main())

    return start
