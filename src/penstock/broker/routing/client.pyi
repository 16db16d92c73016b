from typing import Any, Protocol

from penstock.broker.routing.permissions import Permissions
from penstock.broker.routing.sublist import Sublist
from penstock.broker.streams.ingest import Ingest

class ClientHooks(Protocol):
    """What the router and a link call on a client for the work that needs Python; server/connection.py has it."""

    def connected(self, text: bytes) -> None:
        """CONNECT was received, with its JSON."""

    def faulted(self, fault: int, snippet: bytes) -> None:
        """Bytes that are no command were received; `fault` is one of wire/parser.pxd. Ends the connection."""

    def unauthorized(self) -> None:
        """A command other than CONNECT was received before the client was authenticated."""

    def pinged(self) -> None:
        """PING was received, and `wants_ping` was set."""

    def ponged(self) -> None:
        """PONG was received, and `wants_pong` was set."""

    def protocol_error(self, text: bytes) -> None:
        """Send -ERR with this text; the connection goes on."""

    def unexpected_op(self, is_error: bool, text: bytes) -> None:
        """-ERR or INFO was received, which only servers send."""

    def refused_publish(self, subject: bytes) -> None:
        """The client may not publish to `subject`."""

    def refused_reply(self, reply: bytes) -> None:
        """The client may not publish with this reply subject."""

    def refused_subscribe(self, subject: bytes, queue: bytes) -> None:
        """The client may not subscribe to `subject`."""

    def refused_tokens(self, subject: bytes) -> None:
        """The subject of a subscription has too many tokens."""

    def flush(self) -> None:
        """Send what waits through the transport, since the socket did not take it directly."""

    def stalled(self) -> None:
        """The client publishes faster than a subscriber reads: pause reading for a moment."""

    def throttled(self) -> None:
        """The client sends slow commands faster than others get their turn: pause reading, then `unthrottle`."""

    def wait_for_stream(self, ingest: Ingest) -> None:
        """The client publishes to a stream faster than the disk writes: pause reading until that has caught up."""

class Client(ClientHooks):
    """What a connection is allowed, what it subscribes to, and what waits for it."""

    account: Any
    permissions: Permissions | None
    awaits_auth: bool
    is_verbose: bool
    is_pedantic: bool
    has_echo: bool
    has_headers: bool
    takes_headers: bool
    has_no_responders: bool
    is_system: bool
    is_paused: bool
    is_stalled: bool
    wants_ping: bool
    wants_pong: bool
    max_payload: int
    max_control_line: int
    max_pending: int
    max_subs: int
    max_sub_tokens: int
    backlog: int
    in_msgs: int
    in_bytes: int
    out_msgs: int
    out_bytes: int
    stalls: int
    last_ns: int
    fd: int
    @property
    def cid(self) -> int: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def is_throttled(self) -> bool: ...
    @property
    def is_slow(self) -> bool: ...
    @property
    def sub_count(self) -> int: ...
    @property
    def pending(self) -> int: ...
    def drained(self) -> None: ...
    @property
    def has_drain_waiters(self) -> bool: ...
    def take_piece(self) -> bytes: ...
    def take_out(self) -> bytes: ...
    def drop_out(self) -> None: ...
    def subscriptions(self) -> list[tuple[bytes, bytes, bytes, int, int]]: ...
    def join(self, account: object, sublist: Sublist) -> None: ...
    def withdraw(self) -> list[tuple[bytes, bytes, bytes]]: ...
    def leave(self) -> None: ...
    def forget_subs(self) -> None: ...
