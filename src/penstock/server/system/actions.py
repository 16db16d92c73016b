"""SystemActions: `$SYS` requests without a page: count, user info, reload, kick, lame duck for one client."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from penstock.base.subject import covers, matches
from penstock.errors import InvalidJson, PenstockError
from penstock.server.monitor.page import LOOK_SLICE, RequestError, yield_to_loop
from penstock.server.system import options as body
from penstock.server.system.events import ServerInfo, account_connections
from penstock.wire import go_json
from penstock.wire.go_decode import decode_one

if TYPE_CHECKING:
    from penstock.broker.account import Account, Request
    from penstock.server.connection import Connection
    from penstock.server.options import Permissions, SubjectPermission
    from penstock.server.server import Server


class SystemActions:
    def __init__(self, server: Server, next_info: Callable[[], ServerInfo]) -> None:
        self._server = server
        self._next_info = next_info

    # Subscribers and connections.

    async def debug_subscribers(self, request: Request) -> None:
        """The number of subscribers in the requester's account for the subject (and queue group) in the body."""
        if request.client is None:
            return
        words = request.payload.decode("utf-8", "replace").strip().split(" ")
        queue = words[1].encode() if len(words) > 1 else None
        request.respond(b"%d" % await _count(request.account, words[0], queue))

    async def count_subscribers(self, request: Request) -> None:
        """The same for any account; requested by servers and tools."""
        if not request.payload:
            self._server.log.error("request requires a body")
            return
        try:
            asked = decode_one(request.payload, body.NSUBS)
            queue = base64.b64decode(asked["queue"], validate=True) if asked.get("queue") else None
        except (InvalidJson, binascii.Error) as error:
            self._server.log.error(f"Error unmarshalling account nsubs request message: {error}")
            return
        account = self._server.accounts.get(asked.get("acc", ""))
        if account is not None and account.clients:
            request.respond(b"%d" % await _count(account, asked.get("subject", ""), queue))

    async def count_connections(self, request: Request, name: str) -> None:
        """The number of connections of an account; there is no reply if it has none."""
        try:
            asked = decode_one(request.payload, body.CONNS) if request.payload else {}
        except InvalidJson as error:
            why = body.why(error)
            self._server.log.error(f"Error unmarshalling account connections request message: {why}")
            return
        account = self._server.accounts.get(name)
        if asked.get("acc", name) == name and account is not None and account.clients:
            request.respond(go_json.encode(account_connections(account, self._next_info())))

    # The requester.

    async def user_info(self, request: Request) -> None:
        """The requester's user and permissions."""
        if request.reply is None or request.client is None:
            return
        connection = cast("Connection", request.client)
        name = request.account.name
        data: dict[str, Any] = {"user": connection.user, "account": name, "account_name": name}
        identity = connection.identity
        if identity is not None and identity.permissions is not None:
            data["permissions"] = _permissions(identity.permissions)
        request.respond(go_json.encode({"server": self._next_info(), "data": data}))

    async def no_user_info(self, request: Request) -> None:
        """The subject to which accounts map `user_info`; a direct request has no user."""
        if request.reply is not None:
            request.respond(go_json.encode({"server": self._next_info(), "data": {"user": "", "account": ""}}))

    # Changes of the server and its clients.

    async def reload(self, options: object) -> None:
        try:
            self._server.reload()
        except (PenstockError, OSError, ValueError) as error:
            raise RequestError(str(error)) from None

    async def kick(self, request: Request) -> None:
        cid = self._cid(request, body.KICK)
        if cid is not None:
            connection = self._server.connections.get(cid)
            self._done(request, "" if connection is not None else "no such client or leafnode id")
            if connection is not None:
                connection.close("Kicked")

    async def lame_duck(self, request: Request) -> None:
        """Tell one client that the server is about to stop, so that it connects elsewhere."""
        cid = self._cid(request, body.LAME_DUCK)
        if cid is None:
            return
        connection = self._server.connections.get(cid)
        if connection is None:
            self._done(request, "no such client id")
        elif connection.connect is None or connection.connect.protocol < 1 or not connection.has_told_account:
            self._done(request, "client does not support Lame Duck Mode or is not ready to receive the notification")
        else:
            connection.send_info(ldm=True)
            self._done(request, "")

    def _cid(self, request: Request, struct: Any) -> int | None:
        """The client id in a request; None if it is for another server, has no reply subject, or does not parse."""
        if request.reply is None:
            return None
        try:
            cid = decode_one(request.payload, struct).get("cid", 0)
            _, filters = body.FILTERS.decode(request.payload)
        except InvalidJson as error:
            self._server.log.error(f"Error unmarshalling kick client request: {body.why(error)}")
            return None
        return int(cid) if body.is_for(self._server, filters) else None

    def _done(self, request: Request, why: str) -> None:
        answer: dict[str, Any] = {"server": self._next_info()}
        if why:
            answer["error"] = {"code": 500, "description": why}
        request.respond(go_json.encode(answer))


async def _count(account: Account, subject: str, queue: bytes | None) -> int:
    """The number of clients' subscriptions that match a literal subject, or lie within a wildcard."""
    is_literal = not any(token in ("*", ">") for token in subject.split("."))
    count = seen = 0
    for client in list(account.clients.values()):
        for heard, group, *_ in client.subscriptions():
            seen += 1
            if seen % LOOK_SLICE == 0:
                await yield_to_loop()
            if (queue is None or queue == group) and (
                matches(subject, heard) if is_literal else covers(subject, heard)
            ):
                count += 1
    return count


def _permissions(permissions: Permissions) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "publish": _subjects(permissions.publish),
        "subscribe": _subjects(permissions.subscribe),
    }
    if permissions.responses is not None:
        expires = round(permissions.responses.expires * 1_000_000_000)
        shown["responses"] = {"max": permissions.responses.max_msgs, "ttl": expires}
    return shown


def _subjects(permission: SubjectPermission | None) -> dict[str, list[str]]:
    shown: dict[str, list[str]] = {}
    if permission is not None and permission.allow:
        shown["allow"] = list(permission.allow)
    if permission is not None and permission.deny:
        shown["deny"] = list(permission.deny)
    return shown
