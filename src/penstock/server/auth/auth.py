"""Authenticator: checks the CONNECT of a connection against the users of the configuration.

`judge` decides at once, except for a bcrypt password, which takes long to check: then it returns a `Claim`, which
`confirm` checks in a thread. `authenticate` does both. The checks have nats-server's order; None means Authorization
Violation.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from penstock.broker.routing import permissions as kernel
from penstock.server.auth import nkeys, passwords
from penstock.server.options import Options, Permissions, User
from penstock.wire.connect import Connect

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from penstock.server.auth.certificate import PeerCertificate
    from penstock.server.tls.tls import PeerFacts

GLOBAL_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"
BCRYPT_THREADS = 2  # passwords hashed at once; other CPUs serve authenticated clients
SECOND_NS = 1_000_000_000

Kind = Literal["nats", "websocket"]
CONNECTION_TYPES: dict[Kind, str] = {"nats": "STANDARD", "websocket": "WEBSOCKET"}


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a connection. A WebSocket's cookies replace fields that its CONNECT leaves out."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    nkey: str = ""
    signature: str = ""
    asks_account: bool = False

    @classmethod
    def of(cls, connect: Connect, cookies: Credentials | None = None) -> Credentials:
        cookies = cookies or NOTHING
        return cls(
            connect.user or cookies.user,
            connect.password or cookies.password,
            connect.auth_token or cookies.token,
            connect.nkey,
            connect.sig,
            connect.names_account,
        )

    @property
    def is_anonymous(self) -> bool:
        return not (self.user or self.password or self.token)

    @property
    def shown(self) -> str:
        """The user, as connz and events show it."""
        return self.nkey or self.user or ("[REDACTED]" if self.token else "")

    @property
    def label(self) -> str:
        """The user, as log lines show it after the account (`"$G/user:a"`); empty if there is none."""
        if self.nkey:
            return f"nkey:{self.nkey}"
        return f"user:{self.user}" if self.user else "token" if self.token else ""

    @property
    def refusal(self) -> str:
        """The log text if authentication fails."""
        if self.nkey:
            return f"authentication error - Nkey {json.dumps(self.nkey)}"
        if self.user:
            return f"authentication error - User {json.dumps(self.user)}"
        return 'authentication error - Token "[REDACTED]"' if self.token else "authentication error"


NOTHING = Credentials()


@dataclass(frozen=True, slots=True)
class Identity:
    """The account, user and permissions of an authenticated connection."""

    account: str = GLOBAL_ACCOUNT
    user: str = ""  # as connz and events show it
    label: str = ""  # as log lines show it
    permissions: Permissions | None = None
    nkey: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """An identity that still depends on a password, whose hash takes a while to compute."""

    identity: Identity
    stored: str = field(repr=False)
    given: str = field(repr=False)


def compile_permissions(permissions: Permissions | None) -> kernel.Permissions | None:
    """Permissions in compiled form; one per connection, because it remembers that connection's reply subjects."""
    if permissions is None:
        return None
    publish, subscribe, responses = permissions.publish, permissions.subscribe, permissions.responses
    return kernel.Permissions(
        publish.allow if publish else None,
        publish.deny if publish else None,
        subscribe.allow if subscribe else None,
        subscribe.deny if subscribe else None,
        responses.max_msgs if responses else None,
        round(responses.expires * SECOND_NS) if responses else None,
    )


def no_debug(_: str) -> None:
    """A debug log that drops its lines."""


class Authenticator:
    """Knows the users of one configuration; a reload makes a new one.

    Always true: `users` and `nkeys` name the account and the permissions of each, defaults filled in.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.users: dict[str, User] = {}
        self.nkeys: dict[str, User] = {}
        for user in all_users(options):
            (self.nkeys if user.nkey else self.users)[user.nkey or user.username] = user
        self.no_auth_user = options.no_auth_user
        self.is_no_auth_told = bool(options.no_auth_user)
        if is_system_alone(options):
            # Only the system account has users: all others are still accepted, as a user without a name.
            self.no_auth_user = f"nats-{os.urandom(4).hex()}"
            self.users[self.no_auth_user] = User(self.no_auth_user, os.urandom(8).hex())
        self.required = bool(self.users or self.nkeys or options.username or options.authorization)
        websocket = options.websocket
        self.websocket_overrides = bool(websocket.username or websocket.token or websocket.no_auth_user)
        self._hashing: ThreadPoolExecutor | None = None

    @property
    def needs_nonce(self) -> bool:
        """Whether INFO has a nonce to sign."""
        return bool(self.nkeys)

    def is_required(self, kind: Kind = "nats") -> bool:
        """Whether a connection must authenticate before all other commands."""
        return self.required or (kind == "websocket" and self.websocket_overrides)

    def tells_required(self, kind: Kind = "nats") -> bool:
        """`auth_required` of the first INFO: False if clients are accepted without credentials."""
        if kind == "websocket":
            return self.is_required(kind)
        return self.required and not self.is_no_auth_told

    def timeout(self, kind: Kind = "nats") -> float:
        """How many seconds a connection has to send CONNECT, if authentication is required."""
        if kind == "websocket" and self.options.websocket.auth_timeout:
            return self.options.websocket.auth_timeout
        return self.options.auth_timeout

    def close(self) -> None:
        if self._hashing is not None:
            self._hashing.shutdown(wait=False, cancel_futures=True)
            self._hashing = None

    def needs_decision(self, connect: Connect, kind: Kind = "nats") -> bool:
        """Whether CONNECT must be checked at all; if not, every client is in the global account."""
        return self.is_required(kind) or connect.names_account

    async def authenticate(
        self,
        connect: Connect,
        nonce: bytes = b"",
        *,
        kind: Kind = "nats",
        tls: PeerFacts | None = None,
        cookies: Credentials | None = None,
        debug: Callable[[str], None] = no_debug,
    ) -> Identity | None:
        """The identity of a connection; None if it is refused."""
        given = Credentials.of(connect, cookies)
        certificate = tls.certificate if tls is not None else None
        found = self.judge(given, nonce, kind=kind, certificate=certificate, debug=debug)
        return await self.confirm(found) if isinstance(found, Claim) else found

    async def confirm(self, claim: Claim) -> Identity | None:
        """Check a claim's password in a thread. Cancelling this call removes it from the queue."""
        if self._hashing is None:
            from concurrent.futures import ThreadPoolExecutor

            self._hashing = ThreadPoolExecutor(BCRYPT_THREADS, thread_name_prefix="penstock-bcrypt")
        loop = asyncio.get_running_loop()
        is_right = await loop.run_in_executor(self._hashing, passwords.check_bcrypt, claim.stored, claim.given)
        return claim.identity if is_right else None

    def anonymous(self, kind: Kind = "nats") -> Identity | None:
        """The identity of a connection that does not begin with CONNECT; None if CONNECT is required."""
        if not self.is_required(kind):
            return Identity()
        name = (self.options.websocket.no_auth_user if kind == "websocket" else "") or self.no_auth_user
        user = self.users.get(name)
        if user is None or user.proxy_required or not is_kind_allowed(user, kind):
            return None
        found = self.judge(NOTHING, kind=kind)
        return found if isinstance(found, Identity) else None

    def judge(
        self,
        given: Credentials,
        nonce: bytes = b"",
        *,
        kind: Kind = "nats",
        certificate: PeerCertificate | None = None,
        debug: Callable[[str], None] = no_debug,
    ) -> Identity | Claim | None:
        """As `authenticate`, but a bcrypt password is left to `confirm`."""
        if given.asks_account:
            return None
        if not self.is_required(kind):
            return identity_of(given)
        websocket, is_override = self.options.websocket, kind == "websocket" and self.websocket_overrides
        no_auth_user = websocket.no_auth_user if is_override else self.no_auth_user
        if self.nkeys:
            if no_auth_user in self.nkeys and given.is_anonymous and not given.nkey:
                given = replace(given, nkey=no_auth_user)
            if given.nkey:
                return self._judge_nkey(given, nonce, kind, no_auth_user, debug)
        if self.users:
            if self._maps_certificates(kind):
                user = self._user_of(certificate, kind, debug)
                if user is None:
                    return None
                return self._judge_password(user, replace(given, user=user.username))
            if no_auth_user in self.users and given.is_anonymous:
                user = self.users[no_auth_user]
                given = replace(given, user=user.username, password=user.password)
            if given.user:
                return self._judge_user(given, kind, no_auth_user, debug)
        return self._judge_single(given, is_override)

    def _judge_nkey(
        self, given: Credentials, nonce: bytes, kind: Kind, no_auth_user: str, debug: Callable[[str], None]
    ) -> Identity | None:
        user = self.nkeys.get(given.nkey)
        if user is None or not is_kind_allowed(user, kind) or is_refused_proxy(user, debug):
            return None
        if user.nkey != no_auth_user:
            if not given.signature:
                debug("Signature missing")
                return None
            signature = nkeys.decode_signature(given.signature)
            if signature is None:
                debug("Signature not valid base64")
                return None
            if not nkeys.verify(user.nkey, nonce, signature):
                debug("Signature not verified")
                return None
        return identity_of(given, user)

    def _judge_user(
        self, given: Credentials, kind: Kind, no_auth_user: str, debug: Callable[[str], None]
    ) -> Identity | Claim | None:
        user = self.users.get(given.user)
        if user is None or not is_kind_allowed(user, kind) or is_refused_proxy(user, debug):
            return None
        if not user.password and user.username != no_auth_user and self._is_certificate_user(user):
            # Certificates may identify this user: no password is not the same as an empty one.
            debug(f"User {json.dumps(user.username)} requires a client certificate")
            return None
        return self._judge_password(user, given)

    def _judge_password(self, user: User, given: Credentials) -> Identity | Claim | None:
        return claimed(identity_of(given, user), user.password, given.password)

    def _judge_single(self, given: Credentials, is_override: bool) -> Identity | Claim | None:
        """Check against the single user or token of a configuration without a list of users."""
        options, websocket = self.options, self.options.websocket
        token = websocket.token if is_override else options.authorization
        username = websocket.username if is_override else options.username
        password = websocket.password if is_override else options.password
        if token:
            return claimed(identity_of(given), token, given.token)
        if username and passwords.check_plain(username, given.user):
            return claimed(identity_of(given), password, given.password)
        return None

    # Certificates.

    def _maps_certificates(self, kind: Kind) -> bool:
        tls = self.options.websocket.tls if kind == "websocket" else self.options.tls
        return tls is not None and tls.verify_and_map

    def _is_certificate_user(self, user: User) -> bool:
        """Whether a certificate could identify this user on some listener."""
        is_plain = self._maps_certificates("nats") and not self.options.dont_listen
        is_websocket = self._maps_certificates("websocket") and self.options.websocket.port != 0
        return (is_plain and is_kind_allowed(user, "nats")) or (is_websocket and is_kind_allowed(user, "websocket"))

    def _user_of(self, certificate: PeerCertificate | None, kind: Kind, debug: Callable[[str], None]) -> User | None:
        """The user that a certificate identifies: by email, DNS name or URI, else by its subject."""
        from penstock.server.auth.certificate import parse_name, same_parts

        if certificate is None:
            debug("User required in cert, no peer certificates found")
            return None
        users = {name: user for name, user in self.users.items() if is_kind_allowed(user, kind)}
        for name in certificate.names:
            if name in users:
                return users[name]
        wanted = certificate.distinguished_name
        if wanted is not None:
            parsed = [(user, parts) for user in users.values() if (parts := parse_name(user.username)) is not None]
            for user, parts in parsed:
                if parts == wanted:
                    return user
            for user, parts in parsed:
                if same_parts(parts, wanted):
                    return user
        for text in (f"{certificate.subject},{certificate.domain_components}", certificate.subject):
            if text in users:
                return users[text]
        debug(f'User in cert ["{certificate.subject}"], not found')
        return None


def identity_of(given: Credentials, user: User | None = None) -> Identity:
    if user is None:
        return Identity(user=given.shown, label=given.label)
    return Identity(user.account or GLOBAL_ACCOUNT, given.shown, given.label, user.permissions, user.nkey)


def claimed(identity: Identity, stored: str, given: str) -> Identity | Claim | None:
    """The identity if the password is right; a claim if that needs a hash."""
    if passwords.is_bcrypt(stored):
        return Claim(identity, stored, given)
    return identity if passwords.check_plain(stored, given) else None


def is_kind_allowed(user: User, kind: Kind) -> bool:
    return not user.connection_types or CONNECTION_TYPES[kind] in user.connection_types


def is_refused_proxy(user: User, debug: Callable[[str], None]) -> bool:
    """Whether the user must connect through a trusted proxy; this server has none."""
    if user.proxy_required:
        debug("proxy required")
    return user.proxy_required


def all_users(options: Options) -> list[User]:
    """The users of the authorization block and of every account."""
    found = [replace(user, permissions=user.permissions or options.default_permissions) for user in options.users]
    for account in options.accounts.values():
        found += [
            replace(user, account=account.name, permissions=user.permissions or account.default_permissions)
            for user in account.users
        ]
    return found


def is_system_alone(options: Options) -> bool:
    """Whether only the system account is configured, and no users outside of it."""
    system = options.system_account or SYSTEM_ACCOUNT
    is_said = bool(options.users or options.username or options.authorization or options.no_auth_user)
    return not is_said and list(options.accounts) == [system] and bool(options.accounts[system].users)
