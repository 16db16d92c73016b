"""Connection: one client on its socket, from the first INFO to the last byte. Rules: docs/wire.md.

Its compiled base class reads commands and collects frames. This class has what needs Python: authentication, error
replies, pings, and the end. `close` takes nats-server's reasons, which monitoring shows.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import TYPE_CHECKING, Any, Literal

from penstock.base.clock import SYSTEM
from penstock.broker.io.epoll_set import Socket
from penstock.broker.routing.link import Link
from penstock.server.address import shown_ip
from penstock.server.auth.auth import Claim, Credentials, Identity, compile_permissions
from penstock.server.options import Permissions
from penstock.wire import errors
from penstock.wire.connect import DEFAULTS, BadConnect, Connect, decode_connect
from penstock.wire.info import is_info

if TYPE_CHECKING:
    from penstock.broker.account import Account
    from penstock.broker.streams.ingest import Ingest
    from penstock.server.server import Server
    from penstock.server.tls.tls import PeerFacts

FIRST_PING_S = 2.0
RTT_NS_MAX = 3600 * 10**9  # how old a measured round-trip time may be
STALL_S = 0.003
THROTTLE_S = 0.02
CONFIRM_S = 30.0  # how long a password may wait to be hashed
SNIPPET = 64
_SECRETS_BEGIN = re.compile(rb"[\r\n{?]")
# The reason that monitoring shows, by the fault codes of wire/parser.pxd.
FAULT_REASONS = (
    "",
    "Protocol Violation",
    "Maximum Control Line Exceeded",
    "Maximum Message Payload Exceeded",
    "Protocol Violation",
)


class Connection(Link):
    """A client of the server. Belongs to the loop's thread."""

    is_straight = True  # the compiled socket reads and sends for it without calling Python

    def __init__(self, server: Server, cid: int, kind: Literal["nats", "websocket"] = "nats") -> None:
        super().__init__(server.router, cid)
        options = server.options
        self.server = server
        self.kind = kind
        self.transport: Any = None
        self.connect: Connect | None = None
        self.credentials = Credentials()
        self.cookies: Credentials | None = None  # from a WebSocket's handshake
        self.identity: Identity | None = None
        self.nonce = b""
        self.ip, self.port = "", 0
        self.start_ns = SYSTEM.now_ns()
        self.last_ns = time.monotonic_ns()
        self.rtt_ns = 0
        self.pings_out = 0
        self.reason = ""
        self.tls: PeerFacts | None = None
        self.has_told_account = False
        self.was_connected = False
        self.max_payload = options.max_payload
        self.max_control_line = options.max_control_line
        self.max_pending = options.max_pending
        self.max_subs = options.max_subscriptions
        self.max_sub_tokens = options.max_sub_tokens
        self.takes_headers = False
        self._ping_timer: asyncio.TimerHandle | None = None
        self._auth_timer: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._since_full = 0  # bytes given to the transport since its buffer is over the limit
        self._task: asyncio.Task[None] | None = None
        self._ping_sent_ns = 0
        self._measured_ns = -RTT_NS_MAX  # when the round-trip time was last measured
        self._is_lost = False
        self._is_disconnecting = False  # it is in the server's DisconnectQueue
        self._is_waiting = False  # until a stream accepts more
        self._is_throttled = False
        self.socket_fd = -1  # of a plain connection: bytes that nothing is queued before are sent there directly

    # Identity, for monitoring.

    @property
    def owner(self) -> Connection:
        return self

    @property
    def client(self) -> Connection:
        return self

    @property
    def place(self) -> str:
        """The client's address and port."""
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"

    @property
    def label(self) -> str:
        """The beginning of log lines: address, client library and user, as far as they are known."""
        place = f"{self.place} - {'wid' if self.kind == 'websocket' else 'cid'}:{self.cid}"
        if not self.was_connected or self.connect is None:
            return place
        version = f"v{self.connect.version}" if self.connect.version else ""
        client = ":".join(part for part in (version, self.connect.lang, self.connect.name) if part)
        who = self.identity.label if self.identity is not None else ""
        account = f"{self.account.name}/{who}" if who and self.account is not None else ""
        return " - ".join([place, *(json.dumps(part, ensure_ascii=False) for part in (client, account) if part)])

    @property
    def name(self) -> str:
        return self.connect.name if self.connect is not None else ""

    @property
    def lang(self) -> str:
        return self.connect.lang if self.connect is not None else ""

    @property
    def version(self) -> str:
        return self.connect.version if self.connect is not None else ""

    @property
    def user(self) -> str:
        return self.identity.user if self.identity is not None else ""

    @property
    def last_activity_ns(self) -> int:
        """By the same clock as `start_ns`."""
        return SYSTEM.now_ns() - (time.monotonic_ns() - self.last_ns)

    @property
    def user_permissions(self) -> Permissions | None:
        return self.identity.permissions if self.identity is not None else None

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.take(transport)
        if self.is_straight:
            self.socket_fd = self.fd = transport.get_extra_info("socket").fileno()
        if self.server.admit(self):
            self.begin()

    def take(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; on a port with TLS, `TlsNegotiation` decides what happens first."""
        self.transport = transport
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.ip, self.port = shown_ip(peer[0]), peer[1]

    def secured(self, has_sent_info: bool) -> None:
        """The TLS handshake is done; `transport` is the TLS transport."""
        self.begin(has_sent_info)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        if self._linger is not None:
            self._linger.cancel()
            self.server.lingering.discard(self)
        self.close("Client Closed" if error is None else "Read Error")

    def eof_received(self) -> None:
        """The client sends nothing more: pending bytes are still sent, but the connection ends."""
        self.close("Client Closed")

    def pause_writing(self) -> None:
        """The transport's buffer is full: the client has until the write deadline to read it."""
        if self._deadline is None:
            self._since_full = 0
            self._deadline = self.server.loop.call_later(self.server.options.write_deadline, self._too_slow)

    def resume_writing(self) -> None:
        self.backlog = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self.drained()

    def _too_slow(self) -> None:
        self._deadline = None
        if self.is_closed:
            return
        if self._since_full >= self.transport.get_write_buffer_size():  # the old bytes were sent; these are newer
            self.pause_writing()
        else:
            seconds = f"{self.server.options.write_deadline:g}s"
            why = f"WriteDeadline of {seconds} exceeded with {self.pending} total bytes."
            self._disconnect_soon(why, "Slow Consumer (Write Deadline)")

    def flush(self) -> None:
        """Send pending bytes through the transport's buffer, if the socket does not take all of them at once."""
        if self._is_lost or self.transport is None:
            return
        if self._is_disconnecting:
            self.drop_out()
            return
        if self.is_slow and not self.is_closed:
            self._is_too_far_behind()
            return
        left = self.transport.get_write_buffer_size()
        if left == 0 and self.socket_fd >= 0 and not self.is_closed:
            self.fd = self.socket_fd  # the transport's buffer is empty: later bytes may be sent directly
            if self.send_straight():
                self.backlog = 0
                self.drained()
                return
        is_full = self._deadline is not None
        size = self.pass_on_out()
        if size:
            self.backlog = left + size
            if is_full:
                self._since_full += self.transport.get_write_buffer_size() - left
            self.check_backlog()
        if self.has_drain_waiters and self._deadline is None:  # it took all: no resume_writing comes
            self.backlog = self.transport.get_write_buffer_size()
            self.drained()

    def check_backlog(self) -> None:
        """Disconnect the client if too many bytes wait in the transport; PONGs count like messages."""
        if self.backlog > self.max_pending and not self.is_closed:
            self._is_too_far_behind()

    def _is_too_far_behind(self) -> None:
        self._disconnect_soon(f"MaxPending of {self.max_pending} Exceeded", "Slow Consumer (Pending Bytes)")

    def _disconnect_soon(self, why: str, reason: str) -> None:
        if not self._is_disconnecting:
            self._is_disconnecting = True
            self.server.disconnects.add(self, why, reason)

    def disconnect(self, why: str, reason: str) -> None:
        """Close the connection of a client that does not read; nothing more is sent to it."""
        if not self.is_closed:
            self.server.slow_consumer(self, why)
            self.close(reason)
        self.drop_out()

    def pass_on_out(self) -> int:
        """Give all pending bytes to the transport; returns how many."""
        if self.is_straight and isinstance(self.transport, Socket):
            return self.transport.take(self)
        size = 0
        while data := self.take_piece():
            size += len(data)
            self.send(data)
        return size

    def send(self, data: bytes) -> None:
        """Send bytes of the protocol."""
        self.transport.write(data)

    def stalled(self) -> None:
        """The client publishes faster than a subscriber reads: pause reading for a moment."""
        if not self.transport.is_closing():
            self.transport.pause_reading()
            self.server.loop.call_later(STALL_S, self._unstall)

    def throttled(self) -> None:
        """The client makes errors faster than they can be reported: pause reading for a while."""
        if not self._is_throttled and not self.transport.is_closing():
            self._is_throttled = True
            self.transport.pause_reading()
            self.server.loop.call_later(THROTTLE_S, self._throttle_ended)

    def _throttle_ended(self) -> None:
        self._is_throttled = False
        self.unthrottle()
        self._unstall()

    def wait_for_stream(self, ingest: Ingest) -> None:
        """The client publishes faster than the disk writes: read nothing more until the stream has caught up."""
        if not self.transport.is_closing():
            self._is_waiting = True
            self.transport.pause_reading()
            assert ingest.endpoint is not None, "a closed stream gets no messages"
            ingest.endpoint.call_when_caught_up(self._has_room)

    def _has_room(self) -> None:
        self._is_waiting = False
        self._unstall()

    def _unstall(self) -> None:
        is_held_up = self.is_closed or self.is_paused or self.is_throttled or self._is_waiting
        if not is_held_up and not self.transport.is_closing():
            self.transport.resume_reading()

    # INFO and authentication.

    def begin(self, has_sent_info: bool = False) -> None:
        """Send INFO and wait for CONNECT until the authentication timeout."""
        authenticator, kind = self.server.authenticator, self.kind
        self.make_nonce()
        if authenticator.is_required(kind):
            self.awaits_auth = True
            timeout = authenticator.timeout(kind)
            self._auth_timer = self.server.loop.call_later(timeout, self._auth_timed_out)
        else:
            self.enter(self.server.default_account, None)
        if not has_sent_info:
            self.send_info()

    def make_nonce(self) -> None:
        """Create the nonce that the client signs, if any user has an nkey."""
        if self.server.authenticator.needs_nonce and not self.nonce:
            self.nonce = self.server.new_nonce()

    def send_info(self, **changes: Any) -> None:
        """Send INFO: at the start, and whenever it has changed."""
        self.write(self.server.info_line(self, **changes))

    def enter(self, account: Account, identity: Identity | None) -> None:
        """Join `account` as `identity`."""
        self.identity = identity
        if self.account is not None:
            self.account.clients.pop(self.cid, None)
            self.leave()  # even if the account is the same: CONNECT ends earlier subscriptions
        if self.account is not account:
            account.total_connections += 1
        self.join(account, account.sublist)
        account.clients[self.cid] = self
        self.is_system = account is self.server.system
        self._limit()
        if self._ping_timer is None:
            self._ping_timer = self.server.loop.call_later(self.server.options.ping_interval, self._ping)

    def keep_identity(self, identity: Identity) -> None:
        """After a reload with the same account: apply new permissions, and remove subscriptions that they deny."""
        self.identity = identity
        self._limit()
        for subject, queue, sid in self.withdraw():
            text = errors.subscription_withdrawn(_text(subject), _text(queue) if queue else None, _text(sid))
            self._violation(text)

    def _limit(self) -> None:
        options, limits, identity = self.server.options, self.account.limits, self.identity
        if limits is not None and limits.max_payload >= 0:
            self.max_payload = min(options.max_payload, limits.max_payload)
        if limits is not None and limits.max_subscriptions > 0:
            self.max_subs = min(options.max_subscriptions or limits.max_subscriptions, limits.max_subscriptions)
        self.permissions = compile_permissions(identity.permissions if identity is not None else None)

    # Callbacks of the compiled parser.

    def connected(self, text: bytes) -> None:
        """CONNECT was received."""
        try:
            connect = decode_connect(text, self.connect or DEFAULTS)
        except BadConnect as error:
            self.server.log.error(f"{self.label} - {error}")
            self.close("Protocol Violation")
            return
        self.connect = connect
        self.rtt_ns = self.rtt_ns or SYSTEM.now_ns() - self.start_ns  # a first estimate, until a PONG measures it
        self.is_verbose = connect.verbose
        self.is_pedantic = connect.pedantic
        self.has_echo = connect.echo
        self.has_headers = self.takes_headers = connect.headers and not self.server.options.no_header_support
        self.has_no_responders = connect.no_responders
        self.credentials = Credentials.of(connect, self.cookies)
        certificate = self.tls.certificate if self.tls is not None else None
        found = self.server.authenticator.judge(
            self.credentials, self.nonce, kind=self.kind, certificate=certificate, debug=self._debug
        )
        if isinstance(found, Claim):
            self.is_paused = self.awaits_auth = True  # later commands wait for the decision
            self.transport.pause_reading()
            self._stop_auth_timer()  # the client did its part; hashing takes our time
            self._task = self.server.loop.create_task(self._confirm(found))
            return
        self._decided(found)

    async def _confirm(self, claim: Claim) -> None:
        try:
            async with asyncio.timeout(CONFIRM_S):
                found = await self.server.authenticator.confirm(claim)
        except TimeoutError:
            self._auth_timed_out()
            return
        if self.is_closed:
            return
        self._decided(found)
        if not self.is_closed:
            self.resume()
            self._unstall()

    def _decided(self, found: Identity | None) -> None:
        account = self.server.accounts.get(found.account) if found is not None else None
        connect = self.connect
        assert connect is not None
        if found is None or account is None:
            self.unauthorized()
            return
        if self.account is not account and not self.server.may_enter(account):
            self.send_error(errors.ACCOUNT_CONNECTIONS_EXCEEDED)
            self.close("Maximum Account Connections Exceeded")
            return
        self._let_in(account, found)
        fault = connect.fault
        if fault is None and connect.no_responders and not self.has_headers:  # headers may be switched off
            fault = errors.NO_RESPONDERS_NEEDS_HEADERS
        if fault is not None:
            self.send_error(fault)
            self.close("No Responders Requires Headers" if connect.protocol in (0, 1) else "Protocol Violation")
            return
        self.wants_ping = connect.protocol >= 1 and not self.has_told_account
        if self.is_verbose:
            self.write(b"+OK\r\n")
        if not self.was_connected:
            self.was_connected = True
            self.server.client_connected(self)
            if self._ping_timer is not None:  # measure the round-trip time soon
                self._ping_timer.cancel()
            first_s = min(FIRST_PING_S, self.server.options.ping_interval)
            self._ping_timer = self.server.loop.call_later(first_s, self._ping)

    def _let_in(self, account: Account, identity: Identity | None) -> None:
        self.enter(account, identity)
        self.awaits_auth = False
        self._stop_auth_timer()

    def _stop_auth_timer(self) -> None:
        if self._auth_timer is not None:
            self._auth_timer.cancel()
            self._auth_timer = None

    def unauthorized(self) -> None:
        """Bad credentials, or another command than CONNECT where credentials are required."""
        anonymous = self.server.authenticator.anonymous(self.kind) if self.connect is None else None
        account = self.server.accounts.get(anonymous.account) if anonymous is not None else None
        if account is not None and self.server.may_enter(account):
            self._let_in(account, anonymous)  # a client that need not authenticate may skip CONNECT
            return
        self.server.auth_failed(self, self.credentials.refusal)
        self.send_error(errors.AUTHORIZATION_VIOLATION)
        self.close("Authentication Failure")

    def _auth_timed_out(self) -> None:
        self._auth_timer = None
        if not self.is_closed and self.awaits_auth:
            self.server.log.error(f"{self.label} - {errors.AUTHENTICATION_TIMEOUT}")
            self.send_error(errors.AUTHENTICATION_TIMEOUT)
            self.close("Authentication Timeout")

    def faulted(self, fault: int, snippet: bytes) -> None:
        """Bytes that are not a command of the protocol."""
        text = errors.FAULT_TEXTS[fault]
        self.server.log.error(f"{self.label} - {text or 'Bad arguments'}: {shown_snippet(snippet)!r}")
        if text is not None:
            self.send_error(text)
        self.close(FAULT_REASONS[fault])

    def pinged(self) -> None:
        """The first PING after CONNECT: send the client its account."""
        self.has_told_account = True
        self.send_info(connect_info=True)

    def ponged(self) -> None:
        self.pings_out = 0
        if self._ping_sent_ns:
            self.rtt_ns = time.monotonic_ns() - self._ping_sent_ns
            self._ping_sent_ns = 0

    def protocol_error(self, text: bytes) -> None:
        """Report an error that does not end the connection."""
        self.send_error(_text(text))

    def refused_publish(self, subject: bytes) -> None:
        self._violation(errors.publish_violation(_text(subject)))

    def refused_reply(self, reply: bytes) -> None:
        self._violation(errors.reply_violation(_text(reply)))

    def refused_subscribe(self, subject: bytes, queue: bytes) -> None:
        self._violation(errors.subscription_violation(_text(subject), _text(queue) if queue else None))

    def refused_tokens(self, subject: bytes) -> None:
        self._violation(errors.tokens_violation(_text(subject)))

    def _violation(self, text: str) -> None:
        self.send_error(text)
        self.server.log.error(f"{self.label} - {text}")

    def unexpected_op(self, is_error: bool, text: bytes) -> None:
        """A client sent -ERR or INFO, as servers do: -ERR ends the connection, INFO only if it does not parse."""
        if is_error:
            self.close("Client Closed")
        elif not is_info(text):
            self.close("Protocol Violation")

    def _debug(self, text: str) -> None:
        self.server.log.debug(f"{self.label} - {text}")

    def send_error(self, text: str) -> None:
        """Send -ERR."""
        if not self._is_lost:
            self.write(errors.line(text))

    # Pings.

    def _ping(self) -> None:
        """Send a PING if the connection is idle; close it if too many are unanswered."""
        if self.is_closed:
            return
        options = self.server.options
        interval = options.ping_interval
        idle_s = (time.monotonic_ns() - self.last_ns) / 1e9
        if time.monotonic_ns() - self._measured_ns > RTT_NS_MAX or idle_s >= interval:
            if self.pings_out >= options.ping_max:
                self.server.stale_connection(self)
                self.send_error(errors.STALE_CONNECTION)
                self.close("Stale Connection")
                return
            self.pings_out += 1
            self.measure_rtt()
        self._ping_timer = self.server.loop.call_later(interval, self._ping)

    def measure_rtt(self) -> None:
        """Send a PING and note the time."""
        self._ping_sent_ns = self._measured_ns = time.monotonic_ns()
        self.wants_pong = True
        self.write(b"PING\r\n")

    # The end.

    def close(self, reason: str) -> None:
        """Close the connection; pending bytes are sent first, unless the client does not read."""
        if self.reason:
            return
        self.reason = reason
        self.fd = self.socket_fd = -1  # the kernel may reuse the number
        self.server.connection_closing(self, reason)
        for timer in (self._ping_timer, self._auth_timer, self._deadline):
            if timer is not None:
                timer.cancel()
        if self._task is not None and self._task is not asyncio.current_task(self.server.loop):
            self._task.cancel()  # stops waiting for the password's hash
        self.forget_subs()
        self.drained()
        if self.account is not None:
            self.account.clients.pop(self.cid, None)
        if self.transport is not None and not self._is_lost:
            if reason.startswith("Slow Consumer"):
                self.transport.abort()
            else:
                self._send_last()
                if self.transport.get_write_buffer_size():  # close it later if it does not read
                    wait_s = self.server.options.write_deadline
                    self._linger = self.server.loop.call_later(wait_s, self.transport.abort)
                    self.server.lingering.add(self)
        self.server.connection_closed(self)

    def _send_last(self) -> None:
        self.pass_on_out()
        self.transport.close()

    def __repr__(self) -> str:
        return f"<Connection {self.label}>"


def shown_snippet(raw: bytes) -> bytes:
    """The beginning of an invalid line, for the log. It may be a misspelt CONNECT, or a browser's request to the wrong
    port: the text ends before passwords and tokens."""
    shown = _SECRETS_BEGIN.split(raw[:SNIPPET], maxsplit=1)[0]
    return shown if len(shown) == len(raw[:SNIPPET]) else shown + b"..."


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
