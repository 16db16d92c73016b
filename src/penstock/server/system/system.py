"""System: serves the system account: answers its requests and publishes events.

An event is built only if it has a subscriber; the module that builds events is loaded with the first one. All of it
runs on the server's loop.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any

from penstock.broker.routing.origin import Origin
from penstock.server.auth.auth import GLOBAL_ACCOUNT
from penstock.server.monitor.closed import account_name
from penstock.server.options import UNSENDABLE
from penstock.server.system.requests import SystemRequests
from penstock.wire import go_json

if TYPE_CHECKING:
    from penstock.broker.account import Account
    from penstock.server.connection import Connection
    from penstock.server.server import Server
    from penstock.server.system.events import ServerInfo

STATS_FIRST_S = 0.25  # then twice as long each time
STATS_S = 10.0
ACCOUNTS_S = 30.0  # how often connection counts are published without changes


class System:
    """Does nothing if the server has no system account."""

    def __init__(self, server: Server) -> None:
        self._server: Server = weakref.proxy(server)  # which has us
        self._seq = 0
        self._requests = SystemRequests(self._server, self)
        self._stats_s = STATS_FIRST_S
        self._stats_timer: asyncio.TimerHandle | None = None
        self._accounts_timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to answer, once the accounts exist."""
        if self._server.system is None:
            return
        for account in self._server.accounts.values():
            self.account_added(account)
        self._stats_timer = self._server.loop.call_later(self._stats_s, self._beat)
        self._accounts_timer = self._server.loop.call_later(ACCOUNTS_S, self._publish_accounts)

    def stop(self) -> None:
        for timer in (self._stats_timer, self._accounts_timer):
            if timer is not None:
                timer.cancel()
        self._stats_timer = self._accounts_timer = None
        self._requests.stop()

    def account_added(self, account: Account) -> None:
        """An account was added, at the start or by a reload: serve its requests about itself."""
        if self._server.system is None:
            return
        self._requests.forget(account.name)
        if account is self._server.system:
            self._requests.serve_system(account)
        else:
            self._requests.serve_account(account)

    def account_removed(self, account: Account) -> None:
        self._requests.forget(account.name)

    def queues(self) -> dict[str, tuple[int, int]]:
        """The server's internal queues by name: the numbers of requests that wait, and that are being answered."""
        return {"System recvQ": self._requests.queue()}

    def next_info(self) -> ServerInfo:
        """This server's info, with the number of the next message."""
        from penstock.server.system.events import server_info

        self._seq += 1
        return server_info(self._server, self._seq)

    # Events.

    def connected(self, connection: Connection) -> None:
        """A client was authenticated and has joined its account."""
        self._publish_connections(connection.account)
        subject = f"$SYS.ACCOUNT.{account_name(connection)}.CONNECT"
        if self._has_subscriber(subject):
            from penstock.server.system.events import connect_event

            self._publish(subject, connect_event(connection, self.next_info()))

    def disconnected(self, connection: Connection, reason: str) -> None:
        """A connection ends. Its account may still list it."""
        account = connection.account
        if account is not None:
            self._publish_connections(account, leaving=1 if connection.client.cid in account.clients else 0)
        self._publish_disconnect(f"$SYS.ACCOUNT.{account_name(connection)}.DISCONNECT", connection, reason)

    def auth_error(self, connection: Connection, reason: str) -> None:
        """A client's credentials were wrong or missing."""
        self._publish_disconnect(f"$SYS.SERVER.{self._server.id}.CLIENT.AUTH.ERR", connection, reason)

    def lame_duck(self) -> None:
        self._publish_server_event("LAMEDUCK")

    def shutdown(self) -> None:
        """The server stops: its last event. Clients must be flushed after it."""
        self._publish_server_event("SHUTDOWN")

    def send_stats(self, subject: str | None) -> None:
        """Publish the server's statistics on `subject`, or on the subject of the heartbeats."""
        subject = subject or f"$SYS.SERVER.{self._server.id}.STATSZ"
        if self._has_subscriber(subject):
            from penstock.server.system.events import stats_message

            self._publish(subject, stats_message(self._server, self.next_info()))

    # Publishing.

    def _publish_server_event(self, what: str) -> None:
        subject = f"$SYS.SERVER.{self._server.id}.{what}"
        if self._has_subscriber(subject):
            self._publish(subject, self.next_info())

    def _publish_disconnect(self, subject: str, connection: Connection, reason: str) -> None:
        if self._has_subscriber(subject):
            from penstock.server.system.events import disconnect_event

            self._publish(subject, disconnect_event(connection, self.next_info(), reason))

    def _publish_connections(self, account: Account | None, leaving: int = 0) -> None:
        """Publish the number of an account's connections; nats-server does not do so for $G."""
        if account is None or account.name == GLOBAL_ACCOUNT:
            return
        for subject in (f"$SYS.SERVER.ACCOUNT.{account.name}.CONNS", f"$SYS.ACCOUNT.{account.name}.SERVER.CONNS"):
            if self._has_subscriber(subject):
                from penstock.server.system.events import account_connections

                self._publish(subject, account_connections(account, self.next_info(), leaving))

    def _has_subscriber(self, subject: str) -> bool:
        system = self._server.system
        return system is not None and system.has_interest(subject.encode()) and not UNSENDABLE.search(subject)

    def _publish(self, subject: str, message: Any) -> None:
        assert self._server.system is not None, "nobody hears without a system account"
        self._server.system.publish(Origin.EVENT, subject.encode(), go_json.encode(message))

    def _beat(self) -> None:
        self._stats_s = min(self._stats_s * 2, STATS_S)
        self._stats_timer = self._server.loop.call_later(self._stats_s, self._beat)
        self.send_stats(None)

    def _publish_accounts(self) -> None:
        self._accounts_timer = self._server.loop.call_later(ACCOUNTS_S, self._publish_accounts)
        for account in self._server.accounts.values():
            if account.clients:
                self._publish_connections(account)
