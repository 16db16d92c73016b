"""InsideClient: a client of an account without a socket, in the process and on the loop of the server.

Only clients and streams receive the messages that the server itself publishes (docs/publishes.md); with this client a
test can receive them too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.routing.link import Link
from penstock.broker.routing.router import Router
from penstock.broker.routing.sublist import Sublist

if TYPE_CHECKING:
    from penstock.broker.account import Account

_cids = itertools.count(1 << 40)  # a range that a server never assigns
_open: set[InsideClient] = set()  # keeps clients alive: a sublist only borrows them


class Heard(NamedTuple):
    """A delivered message."""

    subject: bytes
    reply: bytes | None
    headers: bytes | None
    payload: bytes


Handler = Callable[[Heard], object]


class InsideClient(Link):
    """Subscribes, with one handler for each subscription, called at the end of the loop's tick."""

    def __init__(self, router: Router, sublist: Sublist, account: Account | None = None) -> None:
        super().__init__(router, next(_cids))
        self.is_verbose = self.is_pedantic = False
        self.has_headers = self.takes_headers = True
        self.said: list[bytes] = []  # -ERR and the like
        self._handlers: dict[bytes, Handler] = {}
        self.join(account, sublist)
        _open.add(self)

    def subscribe(self, subject: str, handler: Handler, queue: str = "") -> None:
        sid = b"%d" % (len(self._handlers) + 1)
        self._handlers[sid] = handler
        self.feed(b"SUB %b %b %b\r\n" % (subject.encode(), queue.encode(), sid))

    def publish(self, subject: bytes, payload: bytes = b"", headers: bytes | None = None, reply: bytes = b"") -> None:
        head = b"PUB" if headers is None else b"HPUB"
        sizes = b"%d" % len(payload) if headers is None else b"%d %d" % (len(headers), len(headers) + len(payload))
        self.feed(b"%b %b %b %b\r\n%b%b\r\n" % (head, subject, reply, sizes, headers or b"", payload))

    def close(self) -> None:
        """Remove all subscriptions; a second call has no effect."""
        if not self.is_closed:
            self.forget_subs()
            _open.discard(self)

    # Calls from the router.

    def flush(self) -> None:
        data = self.take_out()
        while data:
            line, _, data = data.partition(b"\r\n")
            verb, *words = line.split()
            if verb not in (b"MSG", b"HMSG"):
                self.said.append(line)
                continue
            headers_size = int(words[-2]) if verb == b"HMSG" else 0
            size = int(words[-1])
            names = words[: -2 if verb == b"HMSG" else -1]
            body, data = data[:size], data[size + 2 :]
            headers = body[:headers_size] or None
            heard = Heard(names[0], names[2] if len(names) == 3 else None, headers, body[headers_size:])
            self._handlers[names[1]](heard)

    def protocol_error(self, text: bytes) -> None:
        self.said.append(text)

    def refused_publish(self, subject: bytes) -> None:
        self.said.append(b"publish: " + subject)

    def refused_reply(self, reply: bytes) -> None:
        self.said.append(b"reply: " + reply)

    def refused_subscribe(self, subject: bytes, queue: bytes) -> None:
        self.said.append(b"subscribe: " + subject)


def subscribe(account: Account, subject: str, handler: Handler) -> InsideClient:
    """A client that subscribes to one subject; `close` ends it."""
    client = InsideClient(account.router, account.sublist, account)
    client.subscribe(subject, handler)
    return client
