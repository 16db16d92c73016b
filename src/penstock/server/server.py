"""Server: owns the listeners, accounts, JetStream and monitoring; starts, reloads, enters lame duck mode, stops.

server = Server(options)
await server.start()        # listening when it returns
...
await server.stop()         # acknowledged messages are safe, clients are notified
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.api.shutdown_replies import ShutdownReplies
from penstock.base.clock import SYSTEM
from penstock.broker.account import Account
from penstock.broker.io.pressure import Pressure
from penstock.broker.routing.router import Router
from penstock.broker.tick import Tick
from penstock.errors import PenstockError
from penstock.server.advertise import advertised
from penstock.server.auth import nkeys
from penstock.server.auth.auth import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT, Authenticator
from penstock.server.clock_watch import ClockWatch
from penstock.server.connection import Connection
from penstock.server.disconnect_queue import DisconnectQueue
from penstock.server.jetstream_control import JetStreamControl
from penstock.server.listener import Listener
from penstock.server.log import lifecycle
from penstock.server.log.log import Log
from penstock.server.monitor import Monitor
from penstock.server.monitor.closed import ClosedConnection, ClosedConnections
from penstock.server.options import Options
from penstock.server.system.system import System
from penstock.version import VERSION as PENSTOCK_VERSION
from penstock.wire.info import Info, make_info

if TYPE_CHECKING:
    import ssl

    from penstock.api.jetstream import JetStream
    from penstock.db.database import Database
    from penstock.server.reload import Change

LAME_DUCK_SLICE_S = 0.05
LINGER_S = 1.0  # at the stop: how long a client may take to read its last bytes
ABORT_S = 0.5
TlsParts = tuple[
    "ssl.SSLContext | None", "ssl.SSLContext | None", str
]  # context for clients, context for WebSockets, when the first one's certificate expires


class StartError(PenstockError):
    """The server cannot start: the text names the cause."""


class Server:
    """One server. All of its state belongs to the loop's thread."""

    def __init__(self, options: Options, log: Log | None = None, database: Database | None = None) -> None:
        self.options = options
        self.log = log or Log(options, None)
        self.id = nkeys.server_id()
        self.name = options.server_name or f"penstock-{self.id[1:9].lower()}"
        self.start_ns = self.config_load_ns = time.time_ns()
        self.began_ns = SYSTEM.now_ns()  # the same on a clock that is never set, to measure the uptime
        self.accounts: dict[str, Account] = {}
        self.system: Account | None = None
        self.connections: dict[int, Connection] = {}
        self.lingering: set[Connection] = set()  # closed, but their last bytes are not yet sent
        self.closed = ClosedConnections(max(options.max_closed_clients, 1))
        self.total_connections = 0
        self.slow_consumers = 0
        self.stale_connections = 0
        self._stalls_gone = 0
        self.is_ready = False
        self.is_lame_duck = False
        self.is_stopping = False
        self.jetstream: JetStream | None = None
        self.jetstream_control = JetStreamControl(self, database)
        self.tls_context: ssl.SSLContext | None = None
        self.ws_tls_context: ssl.SSLContext | None = None
        self.tls_not_after = ""
        self.authenticator = Authenticator(options)
        self.router = Router()
        self._clock_watch = ClockWatch(self, database.clock if database is not None else SYSTEM)
        self.router.no_stall = options.no_fast_producer_stall
        self.port = 0
        self.ws_port = 0
        self._listeners: list[Listener] = []
        self._next_cid = 0
        self._info: Info | None = None
        self._stopped: asyncio.Event | None = None
        self._lame_duck_task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.reread: Callable[[], None] | None = None  # reads the configuration file again and calls `reload`
        self.monitor = Monitor(self)
        self.system_service = System(self)

    # Facts for INFO and monitoring.

    @property
    def stalls(self) -> int:
        """How often publishers were stalled, including those that have disconnected."""
        return self._stalls_gone + sum(connection.stalls for connection in self.connections.values())

    @property
    def default_account(self) -> Account:
        """The account of clients that need not authenticate."""
        return self.accounts[GLOBAL_ACCOUNT]

    @property
    def info(self) -> Info:
        """The part of INFO that all clients share."""
        assert self._info is not None, "made by `start`"
        return self._info

    @property
    def auth_required(self) -> bool:
        return self.authenticator.tells_required()

    @property
    def tls_required(self) -> bool:
        return self.options.tls is not None and not self.options.tls.allow_non_tls

    @property
    def tls_verify(self) -> bool:
        return self.options.tls is not None and (self.options.tls.verify or self.options.tls.verify_and_map)

    @property
    def connect_urls(self) -> list[str]:
        """Other servers that clients could connect to: none, since there is no cluster."""
        return []

    @property
    def ws_connect_urls(self) -> list[str]:
        return []

    @property
    def http_port(self) -> int:
        return self.monitor.http_port

    @property
    def https_port(self) -> int:
        return self.monitor.https_port

    def info_line(self, connection: Connection, **changes: Any) -> bytes:
        """INFO for one client."""
        assert self._info is not None
        own: dict[str, Any] = {"client_id": connection.cid, "client_ip": connection.ip}
        if connection.nonce and not changes.get("connect_info"):
            own["nonce"] = connection.nonce.decode()
        if connection.tls is not None and connection.tls.is_first:
            own["tls_required"] = True  # as nats-server says even if plain clients are allowed
        if connection.kind == "websocket":
            is_tls = self.ws_tls_context is not None
            own |= {
                "host": self.options.websocket.host,
                "port": self.ws_port,
                "auth_required": self.authenticator.tells_required("websocket"),
                "tls_required": is_tls,
                "tls_available": is_tls,
            }
        if changes.get("connect_info") and connection.account is not None:
            own["remote_account"] = connection.account.name
            own["acc_is_sys"] = connection.account is self.system
            own["max_payload"] = connection.max_payload
        if self.is_lame_duck:
            own["ldm"] = True
        if connection.connect is not None:  # only the first INFO leaves it out if authentication is optional
            own["auth_required"] = self.authenticator.is_required(connection.kind)
        return self._info.but(**(own | changes)).line()

    def new_nonce(self) -> bytes:
        return nkeys.new_nonce()

    # The start.

    async def start(self) -> None:
        """Open the store and listen; raises StartError or a StoreError with the cause."""
        self.loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        lifecycle.starting(self.log, self.options, self.name, self.id, PENSTOCK_VERSION)
        try:
            self.router.send_together()
        except OSError as error:
            lifecycle.no_io_uring(self.log, error)
        self.tick = Tick(self.loop, self.router, self._pressure())
        self.disconnects = DisconnectQueue(self.loop)
        try:
            self._make_accounts()
            self.take_tls(self.make_tls(self.options))
            if self.options.jetstream.enabled or self.jetstream_control.database is not None:
                await self.jetstream_control.start()
            self.make_info()
            self.system_service.start()
            await self.monitor.start()
            await self._listen()
        except BaseException:
            await self._release()
            for account in self.accounts.values():
                account.close()
            self.tick.close()
            self.router.send_alone()
            raise
        self._clock_watch.start()
        self.is_ready = True
        lifecycle.ready(self.log)

    def _pressure(self) -> Pressure | None:
        """The kernel's report of CPU shortage: the loop stops polling when it takes a processor from others."""
        try:
            return Pressure()
        except OSError as error:
            lifecycle.no_pressure_information(self.log, error)
            return None

    def _make_accounts(self) -> None:
        options = self.options
        self.add_account(GLOBAL_ACCOUNT, None)
        for name, account in options.accounts.items():
            self.add_account(name, account.limits)
        if not options.no_system_account or options.jetstream.enabled:  # JetStream needs one
            name = options.system_account or SYSTEM_ACCOUNT
            if name not in self.accounts:
                self.add_account(name, None)
            self.system = self.accounts[name]

    def add_account(self, name: str, limits: Any) -> Account:
        account = self.accounts.get(name)
        if account is None:
            account = self.accounts[name] = Account(name, self.tick)
        account.limits = limits
        return account

    def make_tls(self, options: Options) -> TlsParts:
        """The TLS contexts for `options`; raises if a file is missing or invalid."""
        tls, websocket = options.tls, options.websocket.tls
        if tls is None and websocket is None:
            return None, None, ""
        from penstock.server.tls.tls import make_context, not_after

        return (
            make_context(tls) if tls is not None else None,
            make_context(websocket) if websocket is not None else None,
            not_after(tls) if tls is not None else "",
        )

    def take_tls(self, parts: TlsParts) -> None:
        self.tls_context, self.ws_tls_context, self.tls_not_after = parts

    def make_info(self) -> None:
        options = self.options
        tls = options.tls
        host, port = advertised(options.client_advertise, options.host, self.port)
        self._info = make_info(
            server_id=self.id,
            server_name=self.name,
            host=host,
            port=port,
            max_payload=options.max_payload,
            auth_required=self.auth_required,
            tls_required=self.tls_required,
            tls_verify=self.tls_verify,
            tls_available=tls is not None and tls.allow_non_tls,
            jetstream=self.jetstream is not None,
            domain=options.jetstream.domain,
            connect_urls=tuple(self.connect_urls),
            ws_connect_urls=tuple(self.ws_connect_urls),
        )
        if options.no_header_support:
            self._info = self._info.but(headers=False)

    async def _listen(self) -> None:
        options = self.options
        websocket = options.websocket
        if websocket.port:
            listener = Listener(self, "websocket")
            self.ws_port = await listener.start(websocket.host, websocket.port)
            self._listeners.append(listener)
            lifecycle.websocket(self.log, websocket.host, self.ws_port, self.ws_tls_context is not None)
        if not options.dont_listen:
            listener = Listener(self, "nats")
            self.port = await listener.start(options.host, options.port)
            self._listeners.append(listener)
            self.make_info()
            lifecycle.listening(self.log, options, options.host, self.port)

    # Connections.

    def next_cid(self) -> int:
        self._next_cid += 1
        return self._next_cid

    def admit(self, connection: Connection) -> bool:
        """Register a new connection; False if it exceeds the limit and was closed."""
        self.total_connections += 1
        self.connections[connection.cid] = connection
        self.log.debug(f"{connection.label} - Client connection created")
        limit = self.options.max_connections
        if limit > 0 and len(self.connections) > limit:
            connection.send_info()
            connection.send_error("maximum connections exceeded")
            self.log.error(f"{connection.label} - maximum connections exceeded")
            connection.close("Maximum Connections Exceeded")
            return False
        return True

    def may_enter(self, account: Account) -> bool:
        limits = account.limits
        return limits is None or limits.max_connections < 0 or len(account.clients) < limits.max_connections

    def client_connected(self, connection: Connection) -> None:
        self.system_service.connected(connection)

    def connection_closing(self, connection: Connection, reason: str) -> None:
        """Called before the connection's subscriptions are removed."""
        if self.connections.pop(connection.cid, None) is not None:
            self.closed.append(ClosedConnection.of(connection, reason, SYSTEM.now_ns()))
            self._stalls_gone += connection.stalls
            self.log.debug(f"{connection.label} - Client connection closed: {reason}")

    def connection_closed(self, connection: Connection) -> None:
        """Publish a disconnect event, also for a connection that was never authenticated: it counts with $G."""
        self.system_service.disconnected(connection, connection.reason)

    def auth_failed(self, connection: Connection, why: str) -> None:
        self.log.error(f"{connection.label} - {why}")
        self.system_service.auth_error(connection, "Authentication Failure")

    def slow_consumer(self, connection: Connection, why: str) -> None:
        self.slow_consumers += 1
        if connection.account is not None:
            connection.account.slow_consumers += 1
        self.log.notice(f"{connection.label} - Slow Consumer Detected: {why}")

    def stale_connection(self, connection: Connection) -> None:
        self.stale_connections += 1
        self.log.debug(f"{connection.label} - Stale Client Connection - Closing")

    def keep(self, task: asyncio.Task[None]) -> None:
        """Keep a reference to a task until it is done; its error is logged."""
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.log.error(f"reload: {task.exception()}")

    # Reload.

    def reload(self, options: Options | None = None, changes: list[Change] | None = None) -> None:
        """Apply a changed configuration; None: have the file read again by the program that runs the server."""
        from penstock.server.reconfigure import reconfigure
        from penstock.server.reload import NO_FILE, ReloadError

        if options is not None:
            reconfigure(self, options, changes or [])
            self.config_load_ns = time.time_ns()
        elif self.reread is not None:
            self.reread()
        else:
            raise ReloadError(NO_FILE)

    # The end.

    def lame_duck(self) -> None:
        """Lame duck mode: accept no new clients, notify the present ones, and close them one by one."""
        if self._lame_duck_task is None and not self.is_stopping:
            self._lame_duck_task = self.loop.create_task(self._lame_duck())

    async def _lame_duck(self) -> None:
        options = self.options
        lifecycle.lame_duck(self.log)
        self.is_lame_duck = True
        for listener in self._listeners:
            await listener.stop()
        self.system_service.lame_duck()
        await self.jetstream_control.stop(ShutdownReplies.LAME_DUCK)
        for connection in list(self.connections.values()):
            if connection.connect is not None and connection.connect.protocol >= 1:
                connection.send_info()
        await asyncio.sleep(options.lame_duck_grace_period)
        waiting = list(self.connections.values())
        left_s = max(options.lame_duck_duration - options.lame_duck_grace_period, 0.0)
        pause_s = min(left_s / max(len(waiting), 1), 1.0)
        owed_s = 0.0
        for connection in waiting:
            connection.close("Server Shutdown")
            owed_s += pause_s
            if owed_s >= LAME_DUCK_SLICE_S:  # close many clients per timer, not one
                await asyncio.sleep(owed_s)
                owed_s = 0.0
        self._lame_duck_task = None
        await self._stop()

    async def stop(self) -> None:
        """Make accepted messages durable, notify the clients, release everything. Calling it twice is harmless.

        If a database cannot be closed cleanly, the rest is done all the same, and its error is raised at the end.
        """
        if not self.is_stopping:
            await self._stop()
        await self.wait()

    async def _stop(self) -> None:
        self.is_stopping = True
        self.is_ready = False
        lifecycle.stopping(self.log)
        if self._lame_duck_task is not None:
            self._lame_duck_task.cancel()
        for listener in self._listeners:
            await listener.stop()
        await self.jetstream_control.quiet()
        self.system_service.shutdown()
        self.tick.end()
        for connection in list(self.connections.values()):
            connection.close("Server Shutdown")
        await self.jetstream_control.stop(ShutdownReplies.SILENCE)  # clients reconnect while databases close
        await self._release()
        await self._linger()
        for account in self.accounts.values():
            account.close()
        self.tick.close()
        self.router.send_alone()
        lifecycle.stopped(self.log)
        assert self._stopped is not None
        self._stopped.set()

    async def _linger(self) -> None:
        """Wait until clients have read their last bytes, or LINGER_S have passed."""
        for seconds in (LINGER_S, ABORT_S):
            until = self.loop.time() + seconds
            while self.lingering and self.loop.time() < until:
                await asyncio.sleep(0.005)
            for connection in tuple(self.lingering):
                connection.transport.abort()

    async def _release(self) -> None:
        for listener in self._listeners:
            await listener.stop()
        self._listeners.clear()
        self._clock_watch.stop()
        if self.jetstream is not None:
            await self.jetstream.stop()
            self.jetstream = None
        await self.monitor.stop()
        self.system_service.stop()
        self.authenticator.close()

    async def wait(self) -> None:
        """Return when the server has stopped; raises the error of a database that could not be closed cleanly."""
        assert self._stopped is not None
        await self._stopped.wait()
        if self.jetstream_control.failure is not None:
            raise self.jetstream_control.failure
