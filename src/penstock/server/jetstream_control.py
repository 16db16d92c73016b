"""JetStreamControl: starts, changes and stops the JetStream of a server, and gives the accounts their limits."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING

from penstock.api.shutdown_replies import ShutdownReplies
from penstock.errors import PenstockError
from penstock.server.auth.auth import GLOBAL_ACCOUNT
from penstock.server.log import lifecycle
from penstock.server.options import JetStreamLimits

if TYPE_CHECKING:
    from penstock.api.jetstream import JetStream
    from penstock.broker.account import Account
    from penstock.db.database import Database
    from penstock.server.server import Server


class JetStreamControl:
    """Belongs to the loop's thread. Sets `server.jetstream`, which is None while JetStream is off."""

    def __init__(self, server: Server, database: Database | None) -> None:
        self._server_ref = weakref.ref(server)  # the server owns this object
        self.database = database  # opened by the caller, served as account $G
        self.failure: PenstockError | OSError | None = None  # of a database that could not be closed cleanly
        self._changes = asyncio.Lock()
        self._end: asyncio.Task[None] | None = None

    @property
    def _server(self) -> Server:
        server = self._server_ref()
        assert server is not None, "the server owns this object"
        return server

    async def start(self) -> None:
        """Start JetStream, and enable it for the accounts."""
        from penstock.api.jetstream import JetStream  # not loaded by a server without JetStream

        server = self._server
        lifecycle.starting_jetstream(server.log)
        server.jetstream = JetStream(server.options.jetstream, server, self.database)
        await server.jetstream.start()
        found = server.jetstream
        if found.is_temporary:
            lifecycle.temporary_store(server.log, found.store_dir)
        lifecycle.jetstream(
            server.log, server.options, found.store_dir, found.limits.max_memory, found.limits.max_storage
        )
        found.check_shares(share for name in server.accounts if (share := self._limits_of(name)) is not None)
        await self._apply_limits(found)

    async def change(self) -> None:
        """After a reload: switch JetStream on or off, and apply the accounts' limits."""
        server = self._server
        async with self._changes:
            found = server.jetstream
            try:
                if not server.options.jetstream.enabled:
                    server.jetstream = None
                    if found is not None:
                        server.log.notice("Initiating JetStream Shutdown...")
                        await found.stop()
                        server.log.notice("JetStream Shutdown")
                elif found is None:
                    await self.start()
                else:
                    await self._apply_limits(found)
            except (PenstockError, OSError) as error:
                server.log.error(f"JetStream could not be changed: {error}")
                if found is None:  # it did not start: what it opened is still empty
                    broken, server.jetstream = server.jetstream, None
                    if broken is not None:
                        await broken.stop()
            server.make_info()

    async def _apply_limits(self, jetstream: JetStream) -> None:
        server = self._server
        for account in list(server.accounts.values()):
            limits = self._limits_of(account.name)
            known = jetstream.accounts.get(account.name)
            if limits is not None and known is None:
                await jetstream.enable(account, limits)
            elif limits is not None and known is not None:
                known.limits = limits
            elif known is not None:
                await jetstream.disable(account)
            elif account is not server.system:
                jetstream.refuse(account)

    async def forget_account(self, account: Account) -> None:
        """Remove an account that is no longer configured; its streams stay in the store.

        If an account of this name is configured again meanwhile, it opens the files after this has closed them.
        """
        server = self._server
        async with self._changes:
            if server.jetstream is not None:
                await server.jetstream.disable(account)
                server.jetstream.forget(account)
        server.router.remove_sublist(account.sublist)

    def _limits_of(self, name: str) -> JetStreamLimits | None:
        """An account's limits; None: JetStream is off for it. If no accounts are configured, $G has no limits."""
        server = self._server
        found = server.options.accounts.get(name)
        if found is not None:
            return found.jetstream
        system = server.system.name if server.system is not None else ""
        is_alone = all(other == system for other in server.options.accounts)
        return JetStreamLimits() if name == GLOBAL_ACCOUNT and is_alone else None

    async def quiet(self) -> None:
        """Answer the accepted requests before the connections close; later requests get no reply."""
        server = self._server
        if server.jetstream is None or self._end is not None:
            return
        try:
            await server.jetstream.quiet(ShutdownReplies.SILENCE)
        except (PenstockError, OSError) as error:
            lifecycle.jetstream_failed(server.log, error)
        server.tick.end()  # sends the last replies

    async def stop(self, replies: ShutdownReplies) -> None:
        """Stop JetStream; later requests get `replies`. A failure is kept for the end of the server."""
        if self._end is None:
            self._end = self._server.loop.create_task(self._stop(replies))
        await asyncio.shield(self._end)  # a stop during lame duck mode must not cancel it halfway

    async def _stop(self, replies: ShutdownReplies) -> None:
        server = self._server
        if server.jetstream is None:
            return
        lifecycle.stopping_jetstream(server.log)
        try:
            await server.jetstream.stop(replies)
        except (PenstockError, OSError) as error:
            self.failure = error
            lifecycle.jetstream_failed(server.log, error)
        server.tick.end()  # sends the last replies
        server.jetstream = None
        lifecycle.jetstream_stopped(server.log)
