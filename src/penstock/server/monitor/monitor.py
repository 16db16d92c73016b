"""Monitor: the monitoring ports and their request counts. The pages are loaded only if there is a port."""

from __future__ import annotations

import ssl
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.server.log import lifecycle
from penstock.server.monitor.process import Usage

if TYPE_CHECKING:
    from penstock.server.monitor.http import HttpServer
    from penstock.server.server import Server


class Monitor:
    """Created with the server; listens after `start`, if a port is configured."""

    def __init__(self, server: Server) -> None:
        self.server: Server = weakref.proxy(server)  # which has us
        self.usage = Usage()
        self.requests: dict[str, int] = {}  # by path, for varz
        self.http_port = 0
        self.https_port = 0
        self._listeners: list[HttpServer] = []
        self._tls: ssl.SSLContext | None = None

    async def start(self) -> None:
        """Listen on the configured ports. Clients of https need no certificate."""
        options = self.server.options
        if options.http_port:
            self.http_port = await self._listen(options.http_host, options.http_port, None)
        if options.https_port:
            from penstock.server.tls.tls import make_context

            assert options.tls is not None, "the options are refused when https has no certificate"
            self._tls = make_context(replace(options.tls, verify=False, verify_and_map=False))
            self.https_port = await self._listen(options.http_host, options.https_port, self._tls)

    def reload_certificate(self) -> None:
        """Use the changed certificate for new connections over https."""
        options = self.server.options.tls
        if self._tls is not None and options is not None:
            self._tls.load_cert_chain(options.cert_file, options.key_file)

    async def stop(self) -> None:
        for listener in self._listeners:
            await listener.stop()
        self._listeners.clear()

    async def _listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        from penstock.server.monitor.http import HttpServer
        from penstock.server.monitor.pages import Pages

        listener = HttpServer(Pages(self.server, self).answer)
        port = await listener.start(host, max(0, port), tls)
        self._listeners.append(listener)
        lifecycle.http_monitor(self.server.log, host, port, tls is not None)
        return port
