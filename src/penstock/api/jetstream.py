"""JetStream of one server: the store directory, the accounts that use it, the API, and the limits of all accounts.

The store directory is an ordinary Penstock store: when the server has stopped, `penstock.open` opens the streams of
account $G, and with `account=` those of the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from penstock.api import (
    account_info,
    cluster_requests,
    consumer_requests,
    consumers,
    messages,
    purge,
    snapshots,
    streams,
)
from penstock.api.account import JetStreamAccount
from penstock.api.advisories import Advisories
from penstock.api.call import Call, Endpoint, Fields
from penstock.api.direct import get_direct, no_responders
from penstock.api.request import Api
from penstock.api.shutdown_replies import ShutdownReplies
from penstock.api.usage import ServerLimits, Usage, server_limits
from penstock.broker.account import Account, Request, Service
from penstock.broker.routing.origin import Origin
from penstock.db.database import Database
from penstock.errors import MemoryExceeded, PenstockError, StorageExceeded, StoreError, StreamNotFound

if TYPE_CHECKING:
    from penstock.server.options import JetStreamLimits, JetStreamOptions, Options

log = logging.getLogger("penstock.api")
ENDPOINTS = (
    *account_info.ENDPOINTS,
    *streams.ENDPOINTS,
    *purge.ENDPOINTS,
    *messages.ENDPOINTS,
    *consumers.ENDPOINTS,
    *consumer_requests.ENDPOINTS,
    *snapshots.ENDPOINTS,
    *cluster_requests.ENDPOINTS,
)
TEMPORARY = os.path.join(tempfile.gettempdir(), "nats", "penstock")  # if no store_dir is given
WATCH_S = 1.0
SCARCE_BYTES = 1 << 30  # more than one second can write: with less space left, every batch is checked
_PLAIN = re.compile(r"[^\x00-\x20\x7f.*>/\\%]")
DIRECT = b"$JS.API.DIRECT.GET"
NEXT = b"CONSUMER.MSG.NEXT."
MAPPED = (b"$KV.", b"$OBJ.")  # buckets that are also reached through a domain's API
SERVED = (
    b"STREAM.",
    b"CONSUMER.",
    b"DIRECT.",
    b"META.",
    b"SERVER.",
    b"ACCOUNT.",
)  # served under a domain's name, in addition to INFO


def folder_of(account: str) -> str:
    """The folder of an account in the store: its name, with characters that folders cannot have written as %2E."""
    return "".join(
        char if _PLAIN.match(char) else "".join(f"%{byte:02X}" for byte in char.encode()) for char in account
    )


def _republish(request: Request) -> int:
    """Publish a client's message on the subject that it was mapped to; returns how many subscribers received it."""
    return request.account.publish(Origin.CLIENT, request.subject, request.payload, request.headers, request.reply)


class Host(Protocol):
    """The server, as far as JetStream depends on it."""

    name: str
    loop: asyncio.AbstractEventLoop
    options: Options
    accounts: dict[str, Account]

    @property
    def system(self) -> Account | None: ...


class JetStream:
    """JetStream of one server, from `start` to `stop`. Belongs to the loop's thread."""

    def __init__(self, options: JetStreamOptions, server: Host, database: Database | None = None) -> None:
        """`database` is one that the caller opened: it serves its account, and stays open at the end."""
        self.options = options
        self.server_name = server.name
        self.domain = options.domain
        self.loop = loop = server.loop
        self.max_pending = server.options.max_pending
        self._server = server
        self._lent = database
        self.is_temporary = database is None and not options.store_dir
        self.store_dir = database.path if database is not None else os.path.abspath(options.store_dir or TEMPORARY)
        self.limits = ServerLimits(0, 0)
        self.window_ns_max = int(options.duplicate_window * 1e9)  # 0: any
        self.accounts: dict[str, JetStreamAccount] = {}
        self.advisories = Advisories(server.name, self.domain, time.time_ns)
        self.api = Api(
            (*ENDPOINTS, Endpoint("ACCOUNT.PURGE", 1, "account_purge_response", self._purge_account, is_system=True)),
            loop,
            self.advisories,
            strict=options.strict,
            queue_max=options.request_queue_limit or 10_000,
        )
        self.is_closed = False
        self.is_scarce = False
        self._shutdown_replies: ShutdownReplies | None = None  # once it stops
        self._services: dict[Account, list[Service]] = {}
        self._watch: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Create the store directory and compute the limits. Accounts are enabled one by one after this."""
        await asyncio.to_thread(self._make_store_dir)
        self.limits = server_limits(self.options.max_memory, self.options.max_storage, self.store_dir)
        self._watch_space()
        self.api.system = self._server.system
        if self._server.system is not None:
            self._serve(self._server.system)

    def _make_store_dir(self) -> None:
        try:
            if self.is_temporary:
                _make_own_folder(os.path.dirname(self.store_dir))
                _make_own_folder(self.store_dir)
            os.makedirs(self.store_dir, mode=0o700, exist_ok=True)
        except OSError as error:
            if isinstance(error, FileExistsError | NotADirectoryError):
                why = f"storage directory is not a directory: {error.filename}"
            else:
                reason = (error.strerror or str(error)).lower()
                why = f"could not create storage directory - mkdir {error.filename}: {reason}"
            raise StoreError(f"Can't start JetStream: {why}") from error

    # Accounts.

    def check_shares(self, shares: Iterable[JetStreamLimits]) -> None:
        """Raise if the accounts' limits together exceed the server's."""
        given = list(shares)
        memory = sum(max(share.max_memory, 0) for share in given)
        storage = sum(max(share.max_storage, 0) for share in given)
        error = (
            MemoryExceeded() if memory > self.limits.max_memory
            else StorageExceeded() if storage > self.limits.max_storage
            else None
        )  # fmt: skip
        if error is not None:
            raise StoreError(
                "Can't start JetStream: Error enabling jetstream on configured accounts: "
                f"{error.description} ({error.err_code})"
            )

    async def enable(self, account: Account, limits: JetStreamLimits) -> JetStreamAccount:
        """Enable JetStream for an account: its streams are open and accept messages when this returns."""
        lent = self._lent
        if lent is not None and lent.account == account.name:
            database = lent
        else:
            database = await asyncio.to_thread(self._open, account.name)
        found = JetStreamAccount(self, account, database, limits, is_lent=database is lent)
        self.accounts[account.name] = found
        account.jetstream = found
        await asyncio.to_thread(found.open_streams)
        found.follow_all()
        self._serve(account)
        return found

    def refuse(self, account: Account) -> None:
        """Answer the requests of an account without JetStream: it is not enabled."""
        self._serve(account)

    async def disable(self, account: Account) -> None:
        """Disable JetStream for an account. Its streams stay in the store; its requests are refused from now on."""
        found = self.accounts.pop(account.name, None)
        if found is not None:
            await found.drain()
            await found.close()

    def forget(self, account: Account) -> None:
        """Stop answering the requests of an account that was disabled and then removed."""
        for service in self._services.pop(account, ()):
            service.close()

    def _open(self, name: str) -> Database:
        root = self._lent.root if self._lent is not None else None
        for one in self.accounts.values():
            root = root or one.database.root
        return Database(self.store_dir, durability=self.options.durability, account=folder_of(name), root=root)

    def _serve(self, account: Account) -> None:
        if account in self._services:
            return
        services = self._services[account] = [account.serve("$JS.API.>", self._request)]
        if self.domain:
            services.append(account.serve(f"$JS.{self.domain}.API.>", self._domain_request))

    # Requests.

    def _request(self, request: Request) -> None:
        subject = request.subject
        is_system = request.account is self._server.system  # it has no streams to read from
        if (
            not is_system
            and subject.startswith(DIRECT)
            and (len(subject) == len(DIRECT) or subject[len(DIRECT)] == ord("."))
        ):
            if self._shutdown_replies is not ShutdownReplies.SILENCE:
                get_direct(request)
        elif self._shutdown_replies is None:
            self.api.handle(request)

    def _domain_request(self, request: Request) -> None:
        """A request under the domain's name, or a publish to a bucket there. Other subjects have no responders."""
        tail = request.subject[len(self.domain) + 9 :]
        if tail.startswith(MAPPED):
            request.subject = tail
            if not _republish(request):
                no_responders(request)
            return
        if not tail.startswith(SERVED) and tail != b"INFO":
            no_responders(request)
            return
        request.subject = b"$JS.API." + tail
        if tail.startswith(NEXT):
            if not _republish(request):
                no_responders(request)
        else:
            self._request(request)

    async def _purge_account(self, call: Call) -> Fields:
        """Delete all streams of an account for the system account; an unknown account has none."""
        account = self.accounts.get(call.names[0])
        names = sorted(account.streams) if account is not None else []
        has_account = call.names[0] in self._server.accounts
        log.info(
            "Purge request for account %s (streams: %d, hasAccount: %s)",
            call.names[0], len(names), str(has_account).lower(),
        )  # fmt: skip
        if account is not None:
            for name in names:
                try:
                    await streams.delete_stream(account, name)
                except StreamNotFound:
                    continue  # it was deleted meanwhile
        return {"initiated": True}

    # Usage of all accounts.

    @property
    def usage(self) -> Usage:
        return sum((account.usage for account in self.accounts.values()), Usage())

    @property
    def max_memory(self) -> int:
        return self.limits.max_memory

    @property
    def max_storage(self) -> int:
        return self.limits.max_storage

    @property
    def memory_used(self) -> int:
        return self.usage.memory

    @property
    def storage_used(self) -> int:
        return self.usage.storage

    @property
    def memory_reserved(self) -> int:
        return self.usage.reserved_memory

    @property
    def storage_reserved(self) -> int:
        return self.usage.reserved_storage

    @property
    def api_total(self) -> int:
        return self.api.total

    @property
    def api_errors(self) -> int:
        return self.api.errors

    @property
    def api_inflight(self) -> int:
        return self.api.inflight

    def is_exhausted(self, storage: str) -> bool:
        """Whether streams with this storage have used up the server's limit."""
        return self.usage.used(storage) > self.limits.of(storage)

    def _watch_space(self) -> None:
        """Check once a second whether free space has become scarce, or no longer is."""
        if self.options.max_storage < 0 and self.is_exhausted("file"):
            # The limit was not configured but computed at the start, maybe on a full disk. It never shrinks.
            now = server_limits(self.options.max_memory, self.options.max_storage, self.store_dir)
            if now.max_storage > self.limits.max_storage:
                self.limits = now
        usage = self.usage
        is_scarce = any(self.limits.of(one) - usage.used(one) < SCARCE_BYTES for one in ("memory", "file"))
        if is_scarce != self.is_scarce:
            self.is_scarce = is_scarce
            for account in self.accounts.values():
                account.guard_all()
        self._watch = self.loop.call_later(WATCH_S, self._watch_space)

    # The end.

    async def quiet(self, replies: ShutdownReplies) -> None:
        """Accept no more; what was accepted is durable and answered when this returns. Only the first call counts."""
        if self._shutdown_replies is not None:
            return
        self._shutdown_replies = replies
        if replies is ShutdownReplies.NO_RESPONDERS:
            for services in self._services.values():
                for service in services:
                    service.close()
        elif replies is ShutdownReplies.SILENCE:
            for jetstream in self.accounts.values():
                for subject in jetstream.subjects:
                    jetstream.account.serve(subject, _ignore)
        await self.api.close()
        for account in tuple(self.accounts.values()):
            await account.drain()

    async def stop(self, replies: ShutdownReplies = ShutdownReplies.NO_RESPONDERS) -> None:
        """Answer the requests in progress, accept no more, and close all databases. Calling it twice is harmless.

        If closing some of them fails, all are closed and the first error is raised.
        """
        if self.is_closed:
            return
        await self.quiet(replies)
        self.is_closed = True
        if self._watch is not None:
            self._watch.cancel()
        errors: list[PenstockError | OSError] = []
        for account in self.accounts.values():
            try:
                await account.close()
            except (PenstockError, OSError) as error:
                errors.append(error)
        self.accounts.clear()
        self._services.clear()
        if errors:
            raise errors[0]


def _make_own_folder(path: str) -> None:
    """Create a folder in a place where every user may create one: refuse it if another user can write to it."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
        raise StoreError(
            f"Can't start JetStream: {path} belongs to user {found.st_uid}, or others may write to it: "
            "choose a place with --store_dir"
        )


def _ignore(request: Request) -> None:
    """A handler that sends no reply."""
