"""The command line, run in this process, and a store for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import penstock
from penstock.cli import main
from support.cli_cases import BIG, Done, Run


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process: its exit code and what it wrote."""
    monkeypatch.setenv("COLUMNS", "80")

    def run_command(*args: object) -> Done:
        capfdbinary.readouterr()
        code = main([str(arg) for arg in args])
        sys.stdout.flush()
        sys.stderr.flush()
        out, err = capfdbinary.readouterr()
        return Done(code, out, err.decode())

    return run_command


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with two streams: ORDERS has headers, a delete and an erase; BIG has two blocks and a sealed one."""
    path = tmp_path / "data"
    with penstock.open(path, durability="os") as db:
        orders = db.stream("ORDERS", subjects=["orders.>"], max_age="30d")
        orders.publish_many(
            [
                (
                    f"orders.{'eu' if n % 2 else 'us'}.{n % 5}",
                    b"order %d" % n,
                    {"Nats-Msg-Id": str(n)} if n % 3 else None,
                )
                for n in range(1, 101)
            ]
        )
        orders.delete(7)
        orders.erase(9)
        big = db.stream("BIG", subjects=["big.*"])
        for n in range(1, 61):
            big.publish("big.a", b"message %03d " % n + bytes([n]) * BIG)
    return path
