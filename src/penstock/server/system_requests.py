"""SystemRequests: the services of the system account, `$SYS.REQ.>`, and those that every account has for itself.

A request waits in a queue and is answered by one task, in the order they came: pages may be long, and are made a slice
at a time. What monitoring shows over HTTP is answered here by the same makers.
"""

from __future__ import annotations

import asyncio
import gzip
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import headers
from penstock.errors import InvalidJson, quote
from penstock.server import system_options as body
from penstock.server.monitor.accountz import account_info, make_accountz
from penstock.server.monitor.accstatz import Accstatz, AccstatzOptions, make_accstatz
from penstock.server.monitor.connz import make_connz
from penstock.server.monitor.expvarz import make_expvarz
from penstock.server.monitor.healthz import make_healthz
from penstock.server.monitor.jsz import make_jsz, make_jsz_account
from penstock.server.monitor.page import NoAnswer, RequestError, page_bytes
from penstock.server.monitor.peers import QueueLength, make_gatewayz, make_ipqueuesz, make_leafz, make_routez
from penstock.server.monitor.subsz import make_subsz
from penstock.server.monitor.varz import make_varz
from penstock.server.system_actions import SystemActions
from penstock.server.system_events import ServerInfo
from penstock.wire import go_json

if TYPE_CHECKING:
    from penstock.broker.account import Account, Request, Service
    from penstock.server.server import Server

# Requests that wait, and their bytes; more are left unanswered, and the requester's time runs out.
QUEUE_MAX = 10_000
QUEUE_SIZE_MAX = 16 * 1024 * 1024
SERVER_ENDPOINTS = (
    *("IDZ", "STATSZ", "VARZ", "SUBSZ", "CONNZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "ACCOUNTZ", "JSZ", "HEALTHZ"),
    *("PROFILEZ", "EXPVARZ", "IPQUEUESZ", "RAFTZ"),
)
ACCOUNT_ENDPOINTS = ("SUBSZ", "CONNZ", "LEAFZ", "JSZ", "INFO", "STATZ", "CONNS")
_PROFILE_DURATION_NS_MAX = 15_000_000_000

Answer = Callable[["Request"], Awaitable[None]]


class SystemRequests:
    """Answers requests of the system account and, about themselves, of the others."""

    def __init__(
        self, server: Server, next_info: Callable[[], ServerInfo], send_stats: Callable[[str | None], None]
    ) -> None:
        self._server = server
        self._next_info = next_info
        self._send_stats = send_stats  # to a subject; None: where the heartbeats go
        self._actions = SystemActions(server, next_info)
        self._queue: deque[tuple[Request, Answer]] = deque()
        self._queue_size = 0
        self._task: asyncio.Task[None] | None = None
        self._is_answering = False
        self._services: dict[str, list[Service]] = {}

    # What is heard.

    def serve_system(self, account: Account) -> None:
        """Everything, for the system account."""
        actions, server_id = self._actions, self._server.id
        self._serve(account, "$SYS.REQ.SERVER.PING", self._statsz)
        for name in SERVER_ENDPOINTS:
            answer: Answer = getattr(self, f"_{name.lower()}")
            self._serve(account, f"$SYS.REQ.SERVER.{server_id}.{name}", answer)
            self._serve(account, f"$SYS.REQ.SERVER.PING.{name}", answer)
        for name in ACCOUNT_ENDPOINTS:
            self._serve(account, f"$SYS.REQ.ACCOUNT.*.{name}", getattr(self, f"_account_{name.lower()}"))
        self._serve(account, "$SYS.REQ.ACCOUNT.PING.STATZ", self._accstatz)
        self._serve(account, "$SYS.REQ.ACCOUNT.NSUBS", actions.count_subscribers)
        self._serve(account, "$SYS.DEBUG.SUBSCRIBERS", actions.debug_subscribers)
        self._serve(account, "$SYS.REQ.USER.INFO", actions.user_info)
        self._serve(account, "$SYS.REQ.USER.*.INFO", actions.no_user_info)
        for name, action in (("RELOAD", self._reload), ("KICK", actions.kick), ("LDM", actions.lame_duck)):
            self._serve(account, f"$SYS.REQ.SERVER.{server_id}.{name}", action)

    def serve_account(self, account: Account) -> None:
        """What any account may ask about itself."""
        self._serve(account, "$SYS.REQ.ACCOUNT.PING.CONNZ", self._own_connz)
        self._serve(account, "$SYS.REQ.SERVER.PING.CONNZ", self._own_connz)
        self._serve(account, "$SYS.REQ.ACCOUNT.PING.STATZ", self._own_statz)
        self._serve(account, "$SYS.REQ.USER.INFO", self._actions.user_info)

    def forget(self, name: str) -> None:
        """An account has gone."""
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

    def _serve(self, account: Account, subject: str, answer: Answer) -> None:
        def heard(request: Request) -> None:
            self._enqueue(request, answer)

        self._services.setdefault(account.name, []).append(account.serve(subject, heard))

    def _enqueue(self, request: Request, answer: Answer) -> None:
        if len(self._queue) >= QUEUE_MAX or self._queue_size + len(request.payload) > QUEUE_SIZE_MAX:
            return
        self._queue_size += len(request.payload)
        self._queue.append((request, answer))
        if self._task is None:
            self._begin()

    def _begin(self) -> None:
        self._task = self._server.loop.create_task(self._work())
        self._task.add_done_callback(self._worked)

    async def _work(self) -> None:
        self._is_answering = True
        while self._queue:
            request, answer = self._queue.popleft()
            self._queue_size -= len(request.payload)
            await answer(request)

    def _worked(self, task: asyncio.Task[None]) -> None:
        """The queue is empty, or an answer failed: that is told, and the others are answered."""
        self._is_answering = False
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._server.log.error(f"A request of the system account could not be answered: {error!r}")
            if self._queue:
                self._begin()

    # How it is answered.

    async def _reply(
        self, request: Request, kind: body.Body[Any], make: Callable[[Any], Awaitable[Any]], has_data: bool = True
    ) -> None:
        """Answer with the page that `make` gives for the request's options, or with what is wrong with them."""
        if request.reply is None:
            return
        answer: dict[str, Any] = {}
        encoding: str | None = None
        try:
            options, filters = kind.decode(request.payload)
            if not body.is_for(self._server, filters):
                return
            page = await make(options)
            if has_data:
                answer["data"] = msgspec.Raw(await page_bytes(page))
            encoding = _wanted_encoding(request)
        except InvalidJson as error:
            answer["error"] = {"code": 400, "description": body.why(error)}
        except NoAnswer:
            return
        except RequestError as error:
            if has_data:
                answer["data"] = None
            answer["error"] = {"code": 500, "description": str(error)}
        text = go_json.encode({"server": self._next_info(), **answer})
        if encoding is None:
            request.respond(text)
            return
        if encoding == "gzip":
            text = await asyncio.to_thread(gzip.compress, text)
        request.respond(text, b"NATS/1.0\r\nContent-Encoding: %b\r\n\r\n" % encoding.encode())

    # About the server.

    async def _idz(self, request: Request) -> None:
        server = self._server
        request.respond(go_json.encode({"name": server.name, "host": server.info.host, "id": server.id}))

    async def _statsz(self, request: Request) -> None:
        try:
            _, filters = body.STATSZ.decode(request.payload)
        except InvalidJson as error:
            refusal = {"server": self._next_info(), "error": {"code": 400, "description": body.why(error)}}
            request.respond(go_json.encode(refusal))
            return
        if body.is_for(self._server, filters):
            self._send_stats(request.reply.decode() if request.reply is not None else None)

    async def _varz(self, request: Request) -> None:
        await self._reply(request, body.VARZ, _soon(lambda _: make_varz(self._server, self._server.monitor)))

    async def _subsz(self, request: Request) -> None:
        await self._reply(request, body.SUBSZ, lambda options: make_subsz(self._server, options))

    async def _connz(self, request: Request) -> None:
        await self._reply(request, body.CONNZ, lambda options: make_connz(self._server, options))

    async def _routez(self, request: Request) -> None:
        await self._reply(request, body.ROUTEZ, _soon(lambda _: make_routez(self._server)))

    async def _gatewayz(self, request: Request) -> None:
        await self._reply(request, body.GATEWAYZ, _soon(lambda _: make_gatewayz(self._server)))

    async def _leafz(self, request: Request) -> None:
        await self._reply(request, body.LEAFZ, _soon(lambda _: make_leafz(self._server)))

    async def _accountz(self, request: Request) -> None:
        await self._reply(request, body.ACCOUNTZ, _soon(lambda options: make_accountz(self._server, options)))

    async def _jsz(self, request: Request) -> None:
        await self._reply(request, body.JSZ, lambda options: make_jsz(self._server, options))

    async def _healthz(self, request: Request) -> None:
        await self._reply(request, body.HEALTHZ, _soon(lambda options: make_healthz(self._server, options)))

    async def _profilez(self, request: Request) -> None:
        await self._reply(request, body.PROFILEZ, _soon(_profile))

    async def _expvarz(self, request: Request) -> None:
        await self._reply(request, body.EXPVARZ, _soon(lambda _: make_expvarz()))

    async def _ipqueuesz(self, request: Request) -> None:
        await self._reply(request, body.IPQUEUESZ, _soon(lambda options: make_ipqueuesz(self.queues(), options)))

    async def _raftz(self, request: Request) -> None:
        await self._reply(request, body.RAFTZ, _soon(lambda _: {}))

    async def _reload(self, request: Request) -> None:
        await self._reply(request, body.FILTERS, self._actions.reload, has_data=False)

    def queues(self) -> dict[str, QueueLength]:
        """What waits inside the server, and what is being answered."""
        return {"System recvQ": QueueLength(pending=len(self._queue), in_progress=int(self._is_answering))}

    # About an account.

    async def _account_subsz(self, request: Request) -> None:
        async def make(options: Any) -> Any:
            options.subscriptions, options.account = True, _account_of(request)
            return await make_subsz(self._server, options)

        await self._reply(request, body.SUBSZ, make)

    async def _account_connz(self, request: Request) -> None:
        async def make(options: Any) -> Any:
            options.account = _account_of(request)
            return await make_connz(self._server, options)

        await self._reply(request, body.CONNZ, make)

    async def _account_leafz(self, request: Request) -> None:
        await self._leafz(request)

    async def _account_jsz(self, request: Request) -> None:
        async def make(options: Any) -> Any:
            options.account = _account_of(request)
            return await make_jsz_account(self._server, options)

        await self._reply(request, body.JSZ, make)

    async def _account_info(self, request: Request) -> None:
        await self._reply(request, body.ACCOUNT_INFO, _soon(lambda _: account_info(self._server, _account_of(request))))

    async def _account_statz(self, request: Request) -> None:
        name = _account_of(request)
        if name != "PING":  # which is no account: the subject with PING has its own service
            await self._statz_of(request, [name])

    async def _account_conns(self, request: Request) -> None:
        await self._actions.count_connections(request, _account_of(request))

    async def _accstatz(self, request: Request) -> None:
        await self._statz_of(request, None)

    async def _statz_of(self, request: Request, names: list[str] | None) -> None:
        def make(options: AccstatzOptions) -> Accstatz:
            if names is not None:
                options.accounts = names
            page = make_accstatz(self._server, options)
            if not page.account_statz and not options.include_unused:
                raise NoAnswer("filtered response")
            return page

        await self._reply(request, body.ACCSTATZ, _soon(make))

    # About the requester's own account.

    async def _own_connz(self, request: Request) -> None:
        async def make(options: Any) -> Any:
            options.account = request.account.name
            return await make_connz(self._server, options)

        await self._reply(request, body.CONNZ, make)

    async def _own_statz(self, request: Request) -> None:
        await self._statz_of(request, [request.account.name])


def _soon(make: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
    """A maker that needs no slices, as one that could."""

    async def made(options: Any) -> Any:
        return make(options)

    return made


def _account_of(request: Request) -> str:
    """The account in `$SYS.REQ.ACCOUNT.<account>.<endpoint>`."""
    return request.subject.split(b".")[3].decode("utf-8", "replace")


def _wanted_encoding(request: Request) -> str | None:
    """How the answer is to be written. What we have no encoder for is sent as it is, and says so."""
    if request.headers is None:
        return None
    wanted = headers.find(request.headers, b"Accept-Encoding")
    if not wanted:
        return None
    return "gzip" if b"gzip" in wanted.lower() else "identity"


def _profile(options: body.ProfilezOptions) -> dict[str, Any]:
    """There are no Go profiles here; the answers are those for a profile that is not there."""
    if not options.name:
        why = "Profile name not specified"
    elif options.name == "cpu" and not 0 < options.duration <= _PROFILE_DURATION_NS_MAX:
        why = f"Duration {go_json.go_duration(options.duration)} should be between 0s and 15s"
    else:
        why = f"Profile {quote(options.name)} not found"
    return {"profile": None, "error": why}
