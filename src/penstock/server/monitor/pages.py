"""Pages: the page for each path of the monitoring port, and the name under which its requests are counted."""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.errors import quote
from penstock.server import metrics
from penstock.server.monitor import index
from penstock.server.monitor.accountz import AccountzOptions, make_accountz
from penstock.server.monitor.accstatz import AccstatzOptions, make_accstatz
from penstock.server.monitor.connz import ConnzOptions, make_connz
from penstock.server.monitor.expvarz import make_expvarz, stacks
from penstock.server.monitor.healthz import HealthzOptions, make_healthz
from penstock.server.monitor.http import Response
from penstock.server.monitor.jsz import JszOptions, make_jsz
from penstock.server.monitor.page import RequestError, encode_page, is_long, page_bytes
from penstock.server.monitor.peers import (
    IpqueueszOptions,
    make_gatewayz,
    make_ipqueuesz,
    make_leafz,
    make_routez,
)
from penstock.server.monitor.query import Query
from penstock.server.monitor.subsz import SubszOptions, make_subsz
from penstock.server.monitor.varz import make_varz
from penstock.wire import go_json

if TYPE_CHECKING:
    from penstock.server.monitor.monitor import Monitor
    from penstock.server.server import Server

_JSON = "application/json"
_CORS = [("Access-Control-Allow-Origin", "*")]
_Page = Callable[[Query], Awaitable[Response]]


class Pages:
    """The pages of the monitoring port."""

    def __init__(self, server: Server, monitor: Monitor) -> None:
        self.server = server
        self._monitor = monitor
        base = server.options.http_base_path.rstrip("/")
        if base and not base.startswith("/"):
            base = f"/{base}"
        self._base = base
        self._pages: dict[str, _Page] = {
            base or "/": self._index,
            f"{base}/varz": self._varz,
            f"{base}/connz": self._connz,
            f"{base}/routez": self._routez,
            f"{base}/gatewayz": self._gatewayz,
            f"{base}/leafz": self._leafz,
            f"{base}/subsz": self._subsz,
            f"{base}/subscriptionsz": self._subsz,
            f"{base}/stacksz": self._stacksz,
            f"{base}/accountz": self._accountz,
            f"{base}/accstatz": self._accstatz,
            f"{base}/jsz": self._jsz,
            f"{base}/healthz": self._healthz,
            f"{base}/ipqueuesz": self._ipqueuesz,
            f"{base}/raftz": self._raftz,
            f"{base}/debug/vars": self._expvarz,
            f"{base}/metrics": self._metrics,
        }

    async def answer(self, target: str) -> Response:
        """The page at a request's target."""
        parts = urlsplit(target if target.startswith("/") else f"/{target}" if "://" not in target else target)
        path = unquote(parts.path) or "/"
        if target.startswith("//") or "//" in path or "/." in path:
            return _redirect(target.partition("?")[0], parts.query)
        page = self._pages.get(path)
        if page is None:
            return Response(b"404 page not found\n", 404, headers=[("X-Content-Type-Options", "nosniff")])
        try:
            return await page(Query(parts.query))
        except RequestError as error:
            return Response(str(error).encode(), 400)

    def _count(self, path: str) -> None:
        counts = self._monitor.requests
        counts[path] = counts.get(path, 0) + 1

    # The pages, in the order of the index.

    async def _index(self, query: Query) -> Response:
        self._count("/")
        return Response(index.html(self._base), content_type="text/html; charset=utf-8")

    async def _varz(self, query: Query) -> Response:
        self._count("/varz")
        return await _json(make_varz(self.server, self._monitor))

    async def _jsz(self, query: Query) -> Response:
        self._count("/jsz")
        return await _json(await make_jsz(self.server, JszOptions.of_query(query)))

    async def _connz(self, query: Query) -> Response:
        options = ConnzOptions.of_query(query)
        self._count("/connz")
        return await _json(await make_connz(self.server, options))

    async def _accountz(self, query: Query) -> Response:
        self._count("/accountz")
        return await _json(make_accountz(self.server, AccountzOptions(query.text("acc"))))

    async def _accstatz(self, query: Query) -> Response:
        self._count("/accstatz")
        return await _json(make_accstatz(self.server, AccstatzOptions(include_unused=query.boolean("unused"))))

    async def _subsz(self, query: Query) -> Response:
        self._count("/subsz")
        return await _json(await make_subsz(self.server, SubszOptions.of_query(query)))

    async def _routez(self, query: Query) -> Response:
        query.subscriptions()
        self._count("/routez")
        return await _json(make_routez(self.server))

    async def _leafz(self, query: Query) -> Response:
        self._count("/leafz")
        query.boolean("subs")
        return await _json(make_leafz(self.server))

    async def _gatewayz(self, query: Query) -> Response:
        self._count("/gatewayz")
        query.subscriptions()
        query.boolean("accs")
        return await _json(make_gatewayz(self.server))

    async def _raftz(self, query: Query) -> Response:
        return Response(b"No Raft nodes registered", 404)

    async def _healthz(self, query: Query) -> Response:
        self._count("/healthz")
        options = HealthzOptions.of_query(query)
        if options.js_enabled:
            self.server.log.warn("Healthcheck: js-enabled deprecated, use js-enabled-only instead")
        page = make_healthz(self.server, options)
        if page.error:
            self.server.log.warn(f"Healthcheck failed: {quote(page.error)}")
        elif page.errors:
            self.server.log.warn(f"Healthcheck failed: {len(page.errors)} errors")
        status, page.status_code = page.status_code, 0
        return Response(go_json.encode(page), status, _JSON, _CORS)

    async def _ipqueuesz(self, query: Query) -> Response:
        options = IpqueueszOptions(query.boolean("all"), query.text("queues"))
        text = msgspec.json.format(
            go_json.encode(make_ipqueuesz(self.server.system_service.queues(), options)), indent=3
        )
        return Response(text, 200, _JSON, _CORS)

    async def _stacksz(self, query: Query) -> Response:
        return Response(stacks(), 200, _JSON, _CORS)

    async def _expvarz(self, query: Query) -> Response:
        parts = (f'"{name}": '.encode() + go_json.encode(value) for name, value in sorted(make_expvarz().items()))
        return Response(b"{\n" + b",\n".join(parts) + b"\n}\n", 200, "application/json; charset=utf-8")

    async def _metrics(self, query: Query) -> Response:
        return Response(await metrics.text(self.server), 200, metrics.CONTENT_TYPE)


async def _json(page: Any) -> Response:
    """A long page is sent while it is encoded; a short one has a Content-Length."""
    body = encode_page(page, indent=2) if is_long(page) else await page_bytes(page, indent=2)
    return Response(body, 200, _JSON, _CORS)


def _redirect(path: str, query: str) -> Response:
    """Redirect a path with empty or dotted parts to its clean form."""
    clean = posixpath.normpath("/" + path.lstrip("/"))
    if path.endswith("/") and clean != "/":
        clean += "/"
    where = clean + (f"?{query}" if query else "")
    text = f'<a href="{where}">Temporary Redirect</a>.\n\n'.encode()
    return Response(text, 307, "text/html; charset=utf-8", [("Location", where)])
