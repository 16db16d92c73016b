"""Account: one subject space. Its clients, streams and services receive each other's messages and no others."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from penstock.broker.routing.client import Client
from penstock.broker.routing.origin import Origin
from penstock.broker.routing.sublist import Sublist

if TYPE_CHECKING:
    from penstock.api.account import JetStreamAccount
    from penstock.broker.tick import Tick

Handler = Callable[["Request"], None]


class Limits(Protocol):
    """The limits of an account; -1: no limit."""

    max_connections: int
    max_subscriptions: int
    max_payload: int


class Request:
    """A message that a service received. Its bytes are copies and may be kept."""

    __slots__ = ("account", "client", "headers", "payload", "reply", "subject")

    def __init__(
        self,
        account: Account,
        client: Client | None,
        subject: bytes,
        reply: bytes | None,
        headers: bytes | None,
        payload: bytes,
    ) -> None:
        self.account = account
        self.client = client  # None: the server passed it on
        self.subject = subject
        self.reply = reply
        self.headers = headers
        self.payload = payload

    def respond(self, payload: bytes, headers: bytes | None = None) -> None:
        """Answer the message, if it has a reply subject."""
        if self.reply is not None:
            self.account.publish(Origin.ANSWER, self.reply, payload, headers)


class Service:
    """A handler that is subscribed to a subject until it is closed."""

    __slots__ = ("_token", "account", "handler", "subject")

    def __init__(self, account: Account, subject: str, handler: Handler, queue: str | None) -> None:
        self.account = account
        self.subject = subject
        self.handler = handler
        self._token: object | None = account.sublist.add_service(self, subject.encode(), (queue or "").encode())
        account.services.add(self)

    def __call__(
        self, client: Client | None, subject: bytes, reply: bytes | None, headers: bytes | None, payload: bytes
    ) -> None:
        self.handler(Request(self.account, client, subject, reply, headers, payload))

    def close(self) -> None:
        """Receive nothing any more. Calling it twice is harmless."""
        if self._token is not None:
            self.account.sublist.remove_service(self._token)
            self._token = None  # it refers to this object
            self.account.services.discard(self)


class Account:
    """One subject space."""

    def __init__(self, name: str, tick: Tick, limits: Limits | None = None) -> None:
        self.name = name
        self.tick = tick
        self.router = router = tick.router
        self.sublist = Sublist()
        router.add_sublist(self.sublist)
        self.limits = limits
        self.clients: dict[int, Client] = {}
        self.services: set[Service] = set()
        self.jetstream: JetStreamAccount | None = None
        self.created_ns = time.time_ns()
        self.total_connections = 0
        self.slow_consumers = 0

    def publish(
        self,
        origin: Origin,
        subject: bytes,
        payload: bytes = b"",
        headers: bytes | None = None,
        reply: bytes | None = None,
    ) -> int:
        """Publish to the subscribers that `origin` reaches (docs/publishes.md); returns how many there were."""
        return self.router.send(origin, self.sublist, subject, payload, headers, reply)

    def serve(self, subject: str, handler: Handler, queue: str | None = None) -> Service:
        """Call `handler` for every message on a subject, until the returned Service is closed."""
        return Service(self, subject, handler, queue)

    def close(self) -> None:
        """Close the services, including those that did not answer while the server stopped. No client is left."""
        for service in tuple(self.services):
            service.close()

    def has_interest(self, subject: bytes) -> bool:
        """Whether `subject` has a subscriber."""
        return self.sublist.subscriber_count(subject) > 0

    def matches(self, subject: bytes) -> int:
        """How many subscriptions match `subject`."""
        return self.sublist.subscriber_count(subject)

    @property
    def in_msgs(self) -> int:
        return self.sublist.in_msgs

    @property
    def in_bytes(self) -> int:
        return self.sublist.in_bytes

    @property
    def out_msgs(self) -> int:
        return self.sublist.out_msgs

    @property
    def out_bytes(self) -> int:
        return self.sublist.out_bytes

    def __repr__(self) -> str:
        return f"<Account {self.name}>"
