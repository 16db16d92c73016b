"""SystemRequests: receives the system account's requests, `$SYS.REQ.>`, and those of every account about itself.

Requests are queued and one task answers them in order: pages may be long, and are made a slice at a time. The module
with the answers is loaded with the first request.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.broker.account import Account, Request, Service
    from penstock.server.server import Server
    from penstock.server.system.answers import SystemAnswers
    from penstock.server.system.system import System

# Limits on queued requests and their bytes; further requests get no reply, and the requester times out.
QUEUE_MAX = 10_000
QUEUE_SIZE_MAX = 16 * 1024 * 1024

SERVER_ENDPOINTS = (
    *("IDZ", "STATSZ", "VARZ", "SUBSZ", "CONNZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "ACCOUNTZ", "JSZ", "HEALTHZ"),
    *("PROFILEZ", "EXPVARZ", "IPQUEUESZ", "RAFTZ"),
)
ACCOUNT_ENDPOINTS = ("SUBSZ", "CONNZ", "LEAFZ", "JSZ", "INFO", "STATZ", "CONNS")
ACTIONS = ("RELOAD", "KICK", "LDM")


class SystemRequests:
    """Subscribes to requests, queues them and has them answered."""

    def __init__(self, server: Server, system: System) -> None:
        self._server = server
        self._system: System = weakref.proxy(system)  # which has us
        self._answers: SystemAnswers | None = None
        self._queue: deque[tuple[str, Request]] = deque()
        self._queue_size = 0
        self._task: asyncio.Task[None] | None = None
        self._is_answering = False
        self._services: dict[str, list[Service]] = {}

    # Subscriptions.

    def serve_system(self, account: Account) -> None:
        """Subscribe to all requests of the system account."""
        server_id = self._server.id
        self._serve(account, "$SYS.REQ.SERVER.PING", "STATSZ")
        for name in SERVER_ENDPOINTS:
            self._serve(account, f"$SYS.REQ.SERVER.{server_id}.{name}", name)
            self._serve(account, f"$SYS.REQ.SERVER.PING.{name}", name)
        for name in ACCOUNT_ENDPOINTS:
            self._serve(account, f"$SYS.REQ.ACCOUNT.*.{name}", f"ACCOUNT.{name}")
        for name in ACTIONS:
            self._serve(account, f"$SYS.REQ.SERVER.{server_id}.{name}", name)
        self._serve(account, "$SYS.REQ.ACCOUNT.PING.STATZ", "ACCSTATZ")
        self._serve(account, "$SYS.REQ.ACCOUNT.NSUBS", "NSUBS")
        self._serve(account, "$SYS.DEBUG.SUBSCRIBERS", "SUBSCRIBERS")
        self._serve(account, "$SYS.REQ.USER.INFO", "USER.INFO")
        self._serve(account, "$SYS.REQ.USER.*.INFO", "USER.NOBODY")
        self._serve(account, "$SYS.REQ.PENSTOCK.WHY", "WHY")

    def serve_account(self, account: Account) -> None:
        """Subscribe to the requests of an account about itself."""
        self._serve(account, "$SYS.REQ.ACCOUNT.PING.CONNZ", "OWN.CONNZ")
        self._serve(account, "$SYS.REQ.SERVER.PING.CONNZ", "OWN.CONNZ")
        self._serve(account, "$SYS.REQ.ACCOUNT.PING.STATZ", "OWN.STATZ")
        self._serve(account, "$SYS.REQ.USER.INFO", "USER.INFO")

    def forget(self, name: str) -> None:
        """Remove the subscriptions of a removed account."""
        for service in self._services.pop(name, ()):
            service.close()

    def stop(self) -> None:
        for name in list(self._services):
            self.forget(name)
        self._queue.clear()
        self._queue_size = 0
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def queue(self) -> tuple[int, int]:
        """The numbers of requests that wait, and that are being answered."""
        return len(self._queue), int(self._is_answering)

    def _serve(self, account: Account, subject: str, name: str) -> None:
        self._services.setdefault(account.name, []).append(account.serve(subject, partial(self._received, name)))

    # The queue.

    def _received(self, name: str, request: Request) -> None:
        if len(self._queue) >= QUEUE_MAX or self._queue_size + len(request.payload) > QUEUE_SIZE_MAX:
            return
        self._queue_size += len(request.payload)
        self._queue.append((name, request))
        if self._task is None:
            self._begin()

    def _begin(self) -> None:
        self._task = self._server.loop.create_task(self._work())
        self._task.add_done_callback(self._worked)

    async def _work(self) -> None:
        self._is_answering = True
        if self._answers is None:
            from penstock.server.system.answers import SystemAnswers

            self._answers = SystemAnswers(self._server, self._system)
        while self._queue:
            name, request = self._queue.popleft()
            self._queue_size -= len(request.payload)
            await self._answers.answer(name, request)

    def _worked(self, task: asyncio.Task[None]) -> None:
        """The task has ended: log its error if it failed, and start again if requests are queued."""
        self._is_answering = False
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._server.log.error(f"A request of the system account could not be answered: {error!r}")
        if self._queue and not task.cancelled():  # a request arrived after the task had found the queue empty
            self._begin()
