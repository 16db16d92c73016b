"""Clients that do not read are disconnected a few at a time, and the memory of their pending bytes is freed."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Any, cast

import pytest

import penstock
from penstock.broker.io import send_buffer as pieces
from penstock.server.disconnect_queue import SLICE_S, DisconnectQueue
from support.attack import Client

if TYPE_CHECKING:
    from penstock.server.connection import Connection

READERS, SIZE = 30, 8192


class Slow:
    """A connection whose disconnect takes longer than a slice."""

    def __init__(self, turns: list[int], order: list[int], number: int) -> None:
        self.turns, self.order, self.number = turns, order, number

    def disconnect(self, why: str, reason: str) -> None:
        self.order.append(self.number)
        self.turns[-1] += 1
        until = time.perf_counter() + SLICE_S
        while time.perf_counter() < until:
            pass
        if self.number == 3:
            raise RuntimeError("on purpose")


def test_after_a_slice_other_work_comes_first() -> None:
    async def run() -> tuple[list[int], list[int]]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: None)
        queue, turns, order = DisconnectQueue(loop), [0], []
        for number in range(10):
            queue.add(cast("Connection", Slow(turns, order, number)), "why", "reason")
        while len(order) < 10:
            await asyncio.sleep(0)
            turns.append(0)
        return turns, order

    turns, order = asyncio.run(run())
    assert order == list(range(10)), "each once, also those behind one that fails"
    assert max(turns) == 1


@pytest.mark.parametrize("how", ["deadline", "pending"])
def test_clients_that_do_not_read_are_disconnected_and_their_memory_is_freed(how: str) -> None:
    """All at once: they were disconnected in one turn, and the pending bytes of each were one block of memory."""
    with penstock.Server() as server:
        dead = []
        for _ in range(READERS):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(("127.0.0.1", server.port))
            one.sendall(b'CONNECT {"verbose":false,"name":"dead"}\r\nSUB big 1\r\nPING\r\n')
            while b"PONG" not in one.recv(4096):
                pass
            dead.append(one)
        there = Client(server.port)
        connections = server.server.connections
        found = [each for each in connections.values() if each.name == "dead"]
        if how == "pending":
            for each in found:
                each.max_pending = 3 << 20
        while how == "deadline" and min(each.pending for each in found) < 6 << 20:
            there.publish("big", bytes(SIZE))
            there.ping()
        for each in found:
            waiting: Any = each.transport.waiting
            if how == "deadline":
                assert waiting.capacity_max == pieces.PIECE_BYTES
                server.server.loop.call_soon_threadsafe(each._disconnect_soon, "why", "Slow Consumer (Write Deadline)")
        while any(each.cid in connections for each in found):
            if how == "pending":
                there.publish("big", bytes(SIZE))
            there.ping()
        assert server.server.slow_consumers == READERS
        assert all(each.pending == each.backlog for each in found), "nothing is kept for those who are gone"
        there.ping()
        pieces.wait_until_freed()
        assert pieces.memory()[0] <= pieces.SPARE_BYTES
        for one in dead:
            one.close()
