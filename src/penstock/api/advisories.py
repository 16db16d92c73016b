"""Advisories: the events that JetStream publishes on $JS.EVENT.ADVISORY. None is built if nobody subscribes to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.broker.routing.origin import Origin
from penstock.wire.go_json import encode, time_text
from penstock.wire.nuid import make_nuid

if TYPE_CHECKING:
    from penstock.broker.account import Account, Request

PREFIX = b"$JS.EVENT.ADVISORY."
TYPE = "io.nats.jetstream.advisory.v1."
METRIC = "io.nats.jetstream.metric.v1."
AUDIT = PREFIX + b"API"
LIMIT_REACHED = PREFIX + b"API.LIMIT_REACHED"
ACTIONS = {"create": b"STREAM.CREATED.", "delete": b"STREAM.DELETED.", "modify": b"STREAM.UPDATED."}


class Advisories:
    """Publishes the advisories of one server's JetStream."""

    def __init__(self, server_name: str, domain: str, now_ns: Callable[[], int]) -> None:
        self._server_name = server_name
        self._domain = domain
        self.now_ns = now_ns

    def stream_action(self, account: Account, stream: str, action: str) -> None:
        """A stream was created, modified or deleted."""
        subject = PREFIX + ACTIONS[action] + stream.encode()
        if account.has_interest(subject):
            self.advise(account, subject, "stream_action", {"stream": stream, "action": action})

    def audit(self, request: Request, response: bytes) -> None:
        """A request to the API was answered."""
        account = request.account
        if not account.has_interest(AUDIT):
            return
        fields: dict[str, Any] = {
            "server": self._server_name,
            "client": self._client(request),
            "subject": request.subject.decode("utf-8", "replace"),
        }
        if request.payload:
            fields["request"] = request.payload.decode("utf-8", "replace")
        fields["response"] = response.decode()
        self.advise(account, AUDIT, "api_audit", fields)

    def limit_reached(self, system: Account | None, dropped: int) -> None:
        """Requests arrived faster than they were answered, and the queued ones were dropped."""
        if system is not None and system.has_interest(LIMIT_REACHED):
            self.advise(system, LIMIT_REACHED, "api_limit_reached", {"server": self._server_name}, {"dropped": dropped})

    def advise(
        self, account: Account, subject: bytes, kind: str, fields: dict[str, Any], last: dict[str, Any] | None = None
    ) -> None:
        """An advisory of this kind; `last` comes after the domain."""
        self.send(account, subject, TYPE + kind, fields, last)

    def send(
        self, account: Account, subject: bytes, kind: str, fields: dict[str, Any], last: dict[str, Any] | None = None
    ) -> None:
        """An event of any type."""
        told = {"type": kind, "id": make_nuid(), "timestamp": time_text(self.now_ns()), **fields}
        if self._domain:
            told["domain"] = self._domain
        account.publish(Origin.EVENT, subject, encode(told | (last or {})))

    def _client(self, request: Request) -> dict[str, Any]:
        """The client that made a request, without empty fields."""
        client: Any = request.client
        if client is None:
            return {"acc": request.account.name}
        fields = {
            "start": time_text(client.start_ns),
            "host": client.ip,
            "id": client.cid,
            "acc": request.account.name,
            "user": client.user,
            "name": client.name,
            "lang": client.lang,
            "ver": client.version,
            "rtt": client.rtt_ns,
            "server": self._server_name,
            "kind": "Client",
            "client_type": client.kind,
        }
        return {key: value for key, value in fields.items() if value}
