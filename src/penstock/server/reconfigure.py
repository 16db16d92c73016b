"""Reconfigure: applies a changed configuration to a running server. `reload.py` has checked what may change.

Accounts are added and removed, and clients are authenticated again: those that are no longer allowed are closed, those
with fewer permissions lose subscriptions. JetStream follows in the background, because it opens and closes files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.server.auth.auth import GLOBAL_ACCOUNT, Authenticator, Claim, Identity
from penstock.wire import errors

if TYPE_CHECKING:
    from penstock.server.connection import Connection
    from penstock.server.options import Options
    from penstock.server.reload import Change
    from penstock.server.server import Server


def reconfigure(server: Server, options: Options, changes: list[Change]) -> None:
    """Apply `options` to the server. It either raises before any change, or changes everything."""
    tls = server.make_tls(options)
    authenticator = Authenticator(options)
    server.authenticator.close()
    server.authenticator = authenticator
    for name in ("port", "http_port", "https_port"):  # -1 means any port: keep the one that was chosen
        if getattr(options, name) == -1:
            setattr(options, name, getattr(server.options, name))
    if options.websocket.port == -1:
        options.websocket.port = server.options.websocket.port
    server.options = options
    server.take_tls(tls)
    server.monitor.reload_certificate()
    server.router.no_stall = options.no_fast_producer_stall
    gone = _change_accounts(server, options)
    server.make_info()
    for connection in list(server.connections.values()):
        connection.max_control_line = options.max_control_line
        connection.max_payload = options.max_payload
        _authenticate_again(server, connection)
    for name in gone:
        _remove_account(server, name)
    _close_too_many(server, options.max_connections)
    if any(
        change.name in ("accounts", "jetstream.enabled") or change.name.startswith("jetstream.max")
        for change in changes
    ):
        server.keep(server.loop.create_task(server.jetstream_control.change()))


def _change_accounts(server: Server, options: Options) -> list[str]:
    """Add the new accounts; returns the names of those to remove."""
    system = server.system.name if server.system is not None else ""
    for name, account in options.accounts.items():
        is_new = name not in server.accounts
        found = server.add_account(name, account.limits)
        if is_new:
            server.system_service.account_added(found)
    return [name for name in server.accounts if name not in (GLOBAL_ACCOUNT, system, *options.accounts)]


def _remove_account(server: Server, name: str) -> None:
    account = server.accounts.pop(name)
    server.system_service.account_removed(account)
    server.keep(server.loop.create_task(server.jetstream_control.forget_account(account)))


def _close_too_many(server: Server, limit: int) -> None:
    """Close the newest connections until the new limit is kept."""
    if limit > 0:
        for connection in list(server.connections.values())[limit:]:
            connection.send_error(errors.CONNECTIONS_EXCEEDED)
            connection.close("Maximum Connections Exceeded")


def _authenticate_again(server: Server, connection: Connection) -> None:
    """Authenticate a client again, with the new configuration."""
    if connection.account is None:
        return
    certificate = connection.tls.certificate if connection.tls is not None else None
    found = server.authenticator.judge(
        connection.credentials, connection.nonce, kind=connection.kind, certificate=certificate
    )
    if isinstance(found, Claim):
        server.keep(server.loop.create_task(_confirm_again(server, connection, found)))
    else:
        _settle(server, connection, found)


async def _confirm_again(server: Server, connection: Connection, claim: Claim) -> None:
    found = await server.authenticator.confirm(claim)
    if not connection.is_closed:
        _settle(server, connection, found)


def _settle(server: Server, connection: Connection, found: Identity | None) -> None:
    if found is not None and connection.account is server.accounts.get(found.account):
        connection.keep_identity(found)
        return
    given, authenticator = connection.credentials, server.authenticator
    if given.nkey or given.user:
        user = authenticator.nkeys.get(given.nkey) if given.nkey else authenticator.users.get(given.user)
        if user is None or (user.account or GLOBAL_ACCOUNT) != connection.account.name:
            connection.close("Client Closed")  # as nats-server: no error text for a removed user or a changed account
            return
    connection.unauthorized()
