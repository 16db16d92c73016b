"""ClosedConnection: the facts of a closed connection, for /connz?state=closed."""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from penstock.server.auth.auth import GLOBAL_ACCOUNT, Credentials

if TYPE_CHECKING:
    from penstock.server.connection import Connection
    from penstock.server.tls.tls import PeerFacts

SUBSCRIPTIONS_MAX = 1024  # kept of one connection …
SUBSCRIPTIONS_KEPT = 100_000  # … and of all: some megabytes


_Held = tuple[bytes, bytes, bytes, int, int]  # as the kernel lists them
_PACKED = msgspec.msgpack.Decoder(tuple[_Held, ...])


@dataclass(frozen=True, slots=True)
class HeldSubscription:
    subject: str
    queue: str
    sid: str
    msgs: int
    max: int

    @classmethod
    def of(cls, held: _Held) -> HeldSubscription:
        """A subscription from the compiled list."""
        subject, queue, sid, msgs, most = held
        return cls(
            subject.decode(errors="replace"), queue.decode(errors="replace"), sid.decode(errors="replace"), msgs, most
        )


@dataclass(slots=True)  # not frozen: those are three times as long in the making
class ClosedConnection:
    """The facts of a connection at one moment, not to be changed; `stop_ns` is 0 while it is open.

    Its times are of the clock that is never set (base/clock.pyx).
    """

    cid: int
    type: str  # nats, websocket
    ip: str
    port: int
    start_ns: int
    last_activity_ns: int
    stop_ns: int
    reason: str
    rtt_ns: int
    pending: int
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    stalls: int
    sub_count: int
    name: str
    lang: str
    version: str
    tls: PeerFacts | None
    user: str
    account: str
    held_count: int
    held: bytes  # its subscriptions, packed: those of closed connections are rarely read

    @property
    def subscriptions(self) -> tuple[HeldSubscription, ...]:
        return tuple(HeldSubscription.of(one) for one in _PACKED.decode(self.held)) if self.held_count else ()

    @classmethod
    def of(
        cls, connection: Connection, reason: str = "", stop_ns: int = 0, with_subscriptions: bool = True
    ) -> ClosedConnection:
        """The facts of `connection` now. Called before its subscriptions are removed."""
        client = connection.client
        held = client.subscriptions()[:SUBSCRIPTIONS_MAX] if with_subscriptions and client.sub_count else []
        return cls(
            cid=client.cid,
            type=connection.kind,
            ip=sys.intern(connection.ip),
            port=connection.port,
            start_ns=connection.start_ns,
            last_activity_ns=connection.last_activity_ns,
            stop_ns=stop_ns,
            reason=reason,
            rtt_ns=connection.rtt_ns,
            pending=client.pending,
            in_msgs=client.in_msgs,
            out_msgs=client.out_msgs,
            in_bytes=client.in_bytes,
            out_bytes=client.out_bytes,
            stalls=client.stalls,
            sub_count=client.sub_count,
            name=connection.name,
            lang=sys.intern(connection.lang),
            version=sys.intern(connection.version),
            tls=connection.tls,
            user=user_name(connection),
            account=account_name(connection),
            held_count=len(held),
            held=msgspec.msgpack.encode(held) if held else b"",
        )


class ClosedConnections(deque[ClosedConnection]):
    """The connections closed last, up to a configured number; subscriptions are only kept for the last of them."""

    def __init__(self, count_max: int) -> None:
        super().__init__(maxlen=count_max)
        self._with_subscriptions: deque[ClosedConnection] = deque()
        self._kept = 0

    def append(self, closed: ClosedConnection) -> None:
        oldest = self[0] if len(self) == self.maxlen else None
        super().append(closed)
        if oldest is not None and self._with_subscriptions and self._with_subscriptions[0] is oldest:
            self._forget_oldest()  # that connection was dropped altogether
        if closed.held_count:
            self._with_subscriptions.append(closed)
            self._kept += closed.held_count
            while self._kept > SUBSCRIPTIONS_KEPT:
                self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Drop the subscriptions of the oldest connection that has any."""
        oldest = self._with_subscriptions.popleft()
        self._kept -= oldest.held_count
        oldest.held_count, oldest.held = 0, b""


def user_name(connection: Connection) -> str:
    """The connection's user, or the name that it gave before it was refused."""
    if connection.user or connection.connect is None:
        return connection.user
    return Credentials.of(connection.connect).shown


def account_name(connection: Connection) -> str:
    """The connection's account. One that is not authenticated counts with $G, as in nats-server."""
    return connection.account.name if connection.account is not None else GLOBAL_ACCOUNT
