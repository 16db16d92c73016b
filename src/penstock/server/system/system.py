"""System: the system account's side of the server. Its requests are answered, and it is told what happens.

An event is made only when somebody listens to it; what makes events is loaded with the first. All of it runs on the
server's loop.
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
ACCOUNTS_S = 30.0  # how often accounts with connections are told of, when nothing changes


class System:
    """Does nothing where the server has no system account."""

    def __init__(self, server: Server) -> None:
        self._server: Server = weakref.proxy(server)  # which has us
        self._seq = 0
        self._requests = SystemRequests(self._server, self)
        self._stats_s = STATS_FIRST_S
        self._stats_timer: asyncio.TimerHandle | None = None
        self._accounts_timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to answer, once the accounts are there."""
        if self._server.system is None:
            return
        for account in self._server.accounts.values():
            self.account_added(account)
        self._stats_timer = self._server.loop.call_later(self._stats_s, self._beat)
        self._accounts_timer = self._server.loop.call_later(ACCOUNTS_S, self._tell_accounts)

    def stop(self) -> None:
        for timer in (self._stats_timer, self._accounts_timer):
            if timer is not None:
                timer.cancel()
        self._stats_timer = self._accounts_timer = None
        self._requests.stop()

    def account_added(self, account: Account) -> None:
        """An account is there now, at the start or after a reload: it may ask about itself."""
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
        """By name of a queue inside the server: how many wait, and how many are being answered."""
        return {"System recvQ": self._requests.queue()}

    def next_info(self) -> ServerInfo:
        """Who we are, with the number of the next message."""
        from penstock.server.system.events import server_info

        self._seq += 1
        return server_info(self._server, self._seq)

    # What happens.

    def connected(self, connection: Connection) -> None:
        """A client is in its account, and has said CONNECT."""
        self._tell_connections(connection.account)
        subject = f"$SYS.ACCOUNT.{account_name(connection)}.CONNECT"
        if self._is_heard(subject):
            from penstock.server.system.events import connect_event

            self._publish(subject, connect_event(connection, self.next_info()))

    def disconnected(self, connection: Connection, reason: str) -> None:
        """A connection ends. Its account may still list it."""
        account = connection.account
        if account is not None:
            self._tell_connections(account, leaving=1 if connection.client.cid in account.clients else 0)
        self._tell_of_end(f"$SYS.ACCOUNT.{account_name(connection)}.DISCONNECT", connection, reason)

    def auth_error(self, connection: Connection, reason: str) -> None:
        """A client showed the wrong credentials, or none."""
        self._tell_of_end(f"$SYS.SERVER.{self._server.id}.CLIENT.AUTH.ERR", connection, reason)

    def lame_duck(self) -> None:
        self._tell_of_itself("LAMEDUCK")

    def shutdown(self) -> None:
        """The server stops: the last thing that is heard of it. Clients are to be flushed after it."""
        self._tell_of_itself("SHUTDOWN")

    def send_stats(self, subject: str | None) -> None:
        """How the server fares, to `subject`, or where the heartbeats go."""
        subject = subject or f"$SYS.SERVER.{self._server.id}.STATSZ"
        if self._is_heard(subject):
            from penstock.server.system.events import stats_message

            self._publish(subject, stats_message(self._server, self.next_info()))

    # How it is told.

    def _tell_of_itself(self, what: str) -> None:
        subject = f"$SYS.SERVER.{self._server.id}.{what}"
        if self._is_heard(subject):
            self._publish(subject, self.next_info())

    def _tell_of_end(self, subject: str, connection: Connection, reason: str) -> None:
        if self._is_heard(subject):
            from penstock.server.system.events import disconnect_event

            self._publish(subject, disconnect_event(connection, self.next_info(), reason))

    def _tell_connections(self, account: Account | None, leaving: int = 0) -> None:
        """The number of an account's connections; of $G the reference does not tell."""
        if account is None or account.name == GLOBAL_ACCOUNT:
            return
        for subject in (f"$SYS.SERVER.ACCOUNT.{account.name}.CONNS", f"$SYS.ACCOUNT.{account.name}.SERVER.CONNS"):
            if self._is_heard(subject):
                from penstock.server.system.events import account_connections

                self._publish(subject, account_connections(account, self.next_info(), leaving))

    def _is_heard(self, subject: str) -> bool:
        system = self._server.system
        return system is not None and system.has_interest(subject.encode()) and not UNSENDABLE.search(subject)

    def _publish(self, subject: str, message: Any) -> None:
        assert self._server.system is not None, "nobody hears without a system account"
        self._server.system.publish(Origin.EVENT, subject.encode(), go_json.encode(message))

    def _beat(self) -> None:
        self._stats_s = min(self._stats_s * 2, STATS_S)
        self._stats_timer = self._server.loop.call_later(self._stats_s, self._beat)
        self.send_stats(None)

    def _tell_accounts(self) -> None:
        self._accounts_timer = self._server.loop.call_later(ACCOUNTS_S, self._tell_accounts)
        for account in self._server.accounts.values():
            if account.clients:
                self._tell_connections(account)
