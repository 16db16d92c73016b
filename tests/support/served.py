"""A server in a thread of this process, and a way to wait until it is idle."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import penstock
from penstock.server.server import Server
from support.attack import Client

CLOSED_MAX = 2  # closed connections that monitoring still reports
TURNS = 5  # turns of the loop: callbacks, and the callbacks that those schedule
THREADS = 4  # for work that the server does outside its loop


class Served:
    """The server and one client that stays connected."""

    def __init__(self, embedded: Any) -> None:
        self.embedded = embedded
        self.server: Server = embedded.server
        self.port: int = embedded.port
        self._pool = ThreadPoolExecutor(THREADS)  # one whose size is known
        self.server.loop.call_soon_threadsafe(self.server.loop.set_default_executor, self._pool)
        self.client = Client(self.port)

    def settle(self) -> None:
        """Wait until all clients but ours are gone, and no work is left."""
        asyncio.run_coroutine_threadsafe(self._settled(), self.server.loop).result(20)
        self.client.ping()  # lost sockets are dropped when the next poll begins

    async def _settled(self) -> None:
        server = self.server
        while len(server.connections) > 1 or server.lingering or server.tick.sockets.count > 1 or server._tasks:
            await asyncio.sleep(0.001)
        await self._threads_let_go()
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def _threads_let_go(self) -> None:
        """Give every thread of the pool something else to do.

        A thread keeps references to its last call until it gets another one, which may be after the loop has received
        the result.
        """
        together = threading.Barrier(THREADS)
        await asyncio.gather(*(self.server.loop.run_in_executor(self._pool, together.wait) for _ in range(THREADS)))

    def connect(self, **options: Any) -> Client:
        return Client(self.port, **options)

    def plain(self, port: int | None = None) -> socket.socket:
        """A connection that has sent nothing yet."""
        return socket.create_connection(("127.0.0.1", port or self.port), timeout=10)


@contextmanager
def served(config: str = "", directory: Path | None = None, **options: Any) -> Iterator[Served]:
    if directory is not None:
        path = directory / "server.conf"
        path.write_text(config)
        options["config"] = path
    options["max_closed_clients"] = CLOSED_MAX
    with penstock.Server(durability="os", **options) as embedded:
        found = Served(embedded)
        try:
            yield found
        finally:
            found.client.close()
