"""Blocks a server's loop for a while, so that everything that a test sends meanwhile arrives at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.server.embedded import EmbeddedServer


@contextmanager
def still(server: EmbeddedServer) -> Iterator[None]:
    """Block the loop in this context; afterwards it reads its sockets before it does anything else."""
    is_still, may_go = threading.Event(), threading.Event()

    def rest() -> None:
        is_still.set()
        may_go.wait(30)
        sockets = server.server.tick.sockets
        usual, sockets.poll_ns = sockets.poll_ns, 10**12  # all of it in one poll, however busy the machine is
        server.server.tick._poll()
        sockets.poll_ns = usual

    server.server.loop.call_soon_threadsafe(rest)
    is_still.wait(30)
    try:
        yield
    finally:
        may_go.set()
