"""The loop polls its sockets only while no task on the machine waits for a processor."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from penstock.broker.io.pressure import REST_S, REST_S_MAX, SHORT, WINDOW_S, Pressure
from penstock.broker.routing.router import Router
from penstock.broker.tick import Tick
from penstock.server.embedded import EmbeddedServer
from support.attack import Client


class Account:
    """The kernel's account as we write it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.waited_us = 1_000_000
        self.write()

    def write(self) -> None:
        text = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={self.waited_us}\nfull avg10=0.00 total=7\n"
        self.path.write_text(text)

    def wait(self, seconds: float) -> None:
        """Somebody had no processor for so long."""
        self.waited_us += round(seconds * 1e6)
        self.write()


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account(tmp_path / "cpu")


def calm(account: Account, now: float) -> Pressure:
    """One that has seen a quiet window that ended at `now`."""
    found = Pressure(str(account.path))
    assert not found.is_short(now)
    return found


def test_nobody_waits_and_the_loop_polls(account: Account) -> None:
    found = calm(account, 10.0)
    for n in range(1, 20):
        account.wait(WINDOW_S * SHORT * 0.9)
        assert not found.is_short(10.0 + n * WINDOW_S * 1.001)


def test_a_moment_says_nothing(account: Account) -> None:
    found = calm(account, 10.0)
    account.wait(1.0)
    assert not found.is_short(10.0 + WINDOW_S * 0.9)
    assert found.is_short(10.0 + WINDOW_S * 1.001)


def test_the_loop_rests_longer_each_time_and_shortly_after_a_quiet_window(account: Account) -> None:
    found = calm(account, 0.0)
    now, rest_s = WINDOW_S, REST_S
    rests: list[float] = []
    for _ in range(12):
        account.wait(now)
        assert found.is_short(now)
        assert found.is_short(now + rest_s * 0.99)  # nobody asks the kernel meanwhile
        rests.append(rest_s)
        now, rest_s = now + rest_s, min(rest_s * 2, REST_S_MAX)
    assert rests[-1] == REST_S_MAX
    assert not found.is_short(now)
    now += WINDOW_S * 1.001
    account.wait(WINDOW_S)
    assert found.is_short(now) and found.is_short(now + REST_S * 0.99)
    assert not found.is_short(now + REST_S)


def test_a_kernel_without_the_account_is_an_error_and_leaves_no_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        Pressure(str(tmp_path / "none"))
    (tmp_path / "odd").write_text("nothing of that kind")
    with pytest.raises(ValueError):
        Pressure(str(tmp_path / "odd"))
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("is_short", [False, True])
def test_the_turn_asks_before_it_polls(account: Account, is_short: bool) -> None:
    """While somebody waits, the loop sleeps after a turn, however closely turns follow each other."""
    polls: list[int] = []

    class Watched(Tick):
        def _poll(self, spin_ns: int = 0) -> None:
            if spin_ns:
                polls.append(spin_ns)
            super()._poll(spin_ns)

    async def run() -> None:
        found = Pressure(str(account.path))
        if is_short:
            account.wait(1e9)
        turn = Watched(asyncio.get_running_loop(), Router(), found)
        for _ in range(3):
            turn.end()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        turn.close()

    asyncio.run(run())
    assert bool(polls) is not is_short


def test_a_server_on_such_a_kernel_says_so_and_serves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Pressure.__init__, "__defaults__", (str(tmp_path / "none"),))
    log = tmp_path / "log"
    with EmbeddedServer(log=True, log_file=str(log)) as server:
        client = Client(server.port, "_INBOX.x")
        client.ping()
        client.close()
    assert "the loop sleeps after each turn" in log.read_text()
