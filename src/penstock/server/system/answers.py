"""SystemAnswers: answers the requests of the system account, with the same pages as HTTP monitoring."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import InvalidJson, quote
from penstock.server.monitor.accountz import account_info, make_accountz
from penstock.server.monitor.accstatz import Accstatz, AccstatzOptions, make_accstatz
from penstock.server.monitor.connz import make_connz
from penstock.server.monitor.expvarz import make_expvarz
from penstock.server.monitor.healthz import make_healthz
from penstock.server.monitor.jsz import make_jsz, make_jsz_account
from penstock.server.monitor.page import NoAnswer, RequestError, page_bytes
from penstock.server.monitor.peers import make_gatewayz, make_ipqueuesz, make_leafz, make_routez
from penstock.server.monitor.subsz import make_subsz
from penstock.server.monitor.varz import make_varz
from penstock.server.system import options as body
from penstock.server.system.actions import SystemActions
from penstock.server.system.why import make_why
from penstock.wire import go_json, headers

if TYPE_CHECKING:
    from penstock.broker.account import Request
    from penstock.server.server import Server
    from penstock.server.system.system import System

_PROFILE_DURATION_NS_MAX = 15_000_000_000

Answer = Callable[["Request"], Awaitable[None]]


class SystemAnswers:
    """Answers requests by the names that `requests.py` gives them."""

    def __init__(self, server: Server, system: System) -> None:
        self._server = server
        self._system = system
        actions = self._actions = SystemActions(server, system.next_info)
        self._by_name: dict[str, Answer] = {
            "IDZ": self._idz,
            "STATSZ": self._statsz,
            "VARZ": self._varz,
            "SUBSZ": self._subsz,
            "CONNZ": self._connz,
            "ROUTEZ": self._routez,
            "GATEWAYZ": self._gatewayz,
            "LEAFZ": self._leafz,
            "ACCOUNTZ": self._accountz,
            "JSZ": self._jsz,
            "HEALTHZ": self._healthz,
            "PROFILEZ": self._profilez,
            "EXPVARZ": self._expvarz,
            "IPQUEUESZ": self._ipqueuesz,
            "RAFTZ": self._raftz,
            "ACCSTATZ": self._accstatz,
            "ACCOUNT.SUBSZ": self._account_subsz,
            "ACCOUNT.CONNZ": self._account_connz,
            "ACCOUNT.LEAFZ": self._leafz,
            "ACCOUNT.JSZ": self._account_jsz,
            "ACCOUNT.INFO": self._account_info,
            "ACCOUNT.STATZ": self._account_statz,
            "ACCOUNT.CONNS": self._account_conns,
            "OWN.CONNZ": self._own_connz,
            "OWN.STATZ": self._own_statz,
            "NSUBS": actions.count_subscribers,
            "SUBSCRIBERS": actions.debug_subscribers,
            "USER.INFO": actions.user_info,
            "USER.NOBODY": actions.no_user_info,
            "WHY": self._why,
            "RELOAD": self._reload,
            "KICK": actions.kick,
            "LDM": actions.lame_duck,
        }

    async def answer(self, name: str, request: Request) -> None:
        await self._by_name[name](request)

    # Replies.

    async def _reply(
        self, request: Request, kind: body.Body[Any], make: Callable[[Any], Awaitable[Any]], has_data: bool = True
    ) -> None:
        """Reply with the page that `make` returns for the request's options, or with the error in them."""
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
        text = go_json.encode({"server": self._system.next_info(), **answer})
        if encoding is None:
            request.respond(text)
            return
        if encoding == "gzip":
            text = await asyncio.to_thread(gzip.compress, text)
        request.respond(text, b"NATS/1.0\r\nContent-Encoding: %b\r\n\r\n" % encoding.encode())

    # The server's pages.

    async def _idz(self, request: Request) -> None:
        server = self._server
        request.respond(go_json.encode({"name": server.name, "host": server.info.host, "id": server.id}))

    async def _statsz(self, request: Request) -> None:
        try:
            _, filters = body.STATSZ.decode(request.payload)
        except InvalidJson as error:
            refusal = {"server": self._system.next_info(), "error": {"code": 400, "description": body.why(error)}}
            request.respond(go_json.encode(refusal))
            return
        if body.is_for(self._server, filters):
            self._system.send_stats(request.reply.decode() if request.reply is not None else None)

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
        await self._reply(
            request, body.IPQUEUESZ, _soon(lambda options: make_ipqueuesz(self._system.queues(), options))
        )

    async def _raftz(self, request: Request) -> None:
        await self._reply(request, body.RAFTZ, _soon(lambda _: {}))

    async def _reload(self, request: Request) -> None:
        await self._reply(request, body.FILTERS, self._actions.reload, has_data=False)

    async def _why(self, request: Request) -> None:
        await self._reply(request, body.WHY, lambda options: make_why(self._server, options))

    # Pages of an account.

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

    # Pages of the requester's own account.

    async def _own_connz(self, request: Request) -> None:
        async def make(options: Any) -> Any:
            options.account = request.account.name
            return await make_connz(self._server, options)

        await self._reply(request, body.CONNZ, make)

    async def _own_statz(self, request: Request) -> None:
        await self._statz_of(request, [request.account.name])


def _soon(make: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
    """An asynchronous maker from a synchronous one."""

    async def made(options: Any) -> Any:
        return make(options)

    return made


def _account_of(request: Request) -> str:
    """The account in `$SYS.REQ.ACCOUNT.<account>.<endpoint>`."""
    return request.subject.split(b".")[3].decode("utf-8", "replace")


def _wanted_encoding(request: Request) -> str | None:
    """The encoding of the reply. For one that we do not have, the reply is plain and says so."""
    if request.headers is None:
        return None
    wanted = headers.find(request.headers, b"Accept-Encoding")
    if not wanted:
        return None
    return "gzip" if b"gzip" in wanted.lower() else "identity"


def _profile(options: body.ProfilezOptions) -> dict[str, Any]:
    """There are no Go profiles here; the replies are those for an unknown profile."""
    if not options.name:
        why = "Profile name not specified"
    elif options.name == "cpu" and not 0 < options.duration <= _PROFILE_DURATION_NS_MAX:
        why = f"Duration {go_json.go_duration(options.duration)} should be between 0s and 15s"
    else:
        why = f"Profile {quote(options.name)} not found"
    return {"profile": None, "error": why}
