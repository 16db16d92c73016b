"""JetStream: what a server has of it. The store directory, the accounts that use it, the API, limits for all of them.

The store directory is a Penstock store like any other: `penstock.open` opens the streams of account $G when the server
has stopped, and those of the others with their account's name.
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

from penstock.api import account_info, consumer_requests, consumers, messages, purge, snapshots, standalone, streams
from penstock.api.account import JetStreamAccount
from penstock.api.advisories import Advisories
from penstock.api.call import Call, Endpoint, Fields
from penstock.api.direct import get_direct, no_responders
from penstock.api.farewell import Farewell
from penstock.api.request import Api
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
    *standalone.ENDPOINTS,
)
TEMPORARY = os.path.join(tempfile.gettempdir(), "nats", "penstock")  # where no store_dir is given
WATCH_S = 1.0
SCARCE_BYTES = 1 << 30  # more than one second can bring: with less room every batch is looked at
_PLAIN = re.compile(r"[^\x00-\x20\x7f.*>/\\%]")
DIRECT = b"$JS.API.DIRECT.GET"
NEXT = b"CONSUMER.MSG.NEXT."
MAPPED = (b"$KV.", b"$OBJ.")  # buckets that are also reached through a domain's API
SERVED = (b"STREAM.", b"CONSUMER.", b"DIRECT.", b"META.", b"SERVER.", b"ACCOUNT.")  # below a domain, besides INFO


def folder_of(account: str) -> str:
    """The folder of an account in the store: its name, with what a folder's name cannot have as %2E and the like."""
    return "".join(
        char if _PLAIN.match(char) else "".join(f"%{byte:02X}" for byte in char.encode()) for char in account
    )


def _pass_on(request: Request) -> int:
    """Publish a client's message on the subject that it stands for: how many heard it."""
    return request.account.publish(Origin.CLIENT, request.subject, request.payload, request.headers, request.reply)


class Host(Protocol):
    """What JetStream needs of its server."""

    name: str
    loop: asyncio.AbstractEventLoop
    options: Options
    accounts: dict[str, Account]

    @property
    def system(self) -> Account | None: ...


class JetStream:
    """A server's JetStream, from `start` to `stop`. Belongs to the loop's thread."""

    def __init__(self, options: JetStreamOptions, server: Host, database: Database | None = None) -> None:
        """`database` is one that the caller has opened: it serves its account, and stays open at the end."""
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
        self._farewell: Farewell | None = None  # once it stops
        self._services: dict[Account, list[Service]] = {}
        self._watch: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Find the store directory, and how much room there is. Accounts are enabled one by one after this."""
        await asyncio.to_thread(self._make_store_dir)
        self.limits = server_limits(self.options.max_memory, self.options.max_storage, self.store_dir)
        self._look()
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
        """Raise where accounts are promised more together than there is."""
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
        """Give an account JetStream: its streams are open and take messages when this returns."""
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
        """An account without JetStream: its requests are answered so."""
        self._serve(account)

    async def disable(self, account: Account) -> None:
        """Take JetStream from an account; what it stored stays in the store, and its requests are answered so."""
        found = self.accounts.pop(account.name, None)
        if found is not None:
            await found.drain()
            await found.close()

    def forget(self, account: Account) -> None:
        """An account is gone, and has been disabled: nobody answers its requests any more."""
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
        is_system = request.account is self._server.system  # it has no streams to be read from
        if (
            not is_system
            and subject.startswith(DIRECT)
            and (len(subject) == len(DIRECT) or subject[len(DIRECT)] == ord("."))
        ):
            if self._farewell is not Farewell.SILENCE:
                get_direct(request)
        elif self._farewell is None:
            self.api.handle(request)

    def _domain_request(self, request: Request) -> None:
        """The same under the domain's own name; buckets are published to there. All else there is nobody's."""
        tail = request.subject[len(self.domain) + 9 :]
        if tail.startswith(MAPPED):
            request.subject = tail
            if not _pass_on(request):
                no_responders(request)
            return
        if not tail.startswith(SERVED) and tail != b"INFO":
            no_responders(request)
            return
        request.subject = b"$JS.API." + tail
        if tail.startswith(NEXT):
            if not _pass_on(request):
                no_responders(request)
        else:
            self._request(request)

    async def _purge_account(self, call: Call) -> Fields:
        """The system account has all streams of an account deleted; one that there is not has none."""
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
                    continue  # somebody was quicker
        return {"initiated": True}

    # What all accounts take together.

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
        """Whether streams of this storage have used up the server's room."""
        return self.usage.used(storage) > self.limits.of(storage)

    def _look(self) -> None:
        """Now and then: has the room become scarce, or is there some again?"""
        if self.options.max_storage < 0 and self.is_exhausted("file"):
            # Nobody has set the limit: it was worked out at the start, maybe on a full disk. It never shrinks.
            now = server_limits(self.options.max_memory, self.options.max_storage, self.store_dir)
            if now.max_storage > self.limits.max_storage:
                self.limits = now
        usage = self.usage
        is_scarce = any(self.limits.of(one) - usage.used(one) < SCARCE_BYTES for one in ("memory", "file"))
        if is_scarce != self.is_scarce:
            self.is_scarce = is_scarce
            for account in self.accounts.values():
                account.guard_all()
        self._watch = self.loop.call_later(WATCH_S, self._look)

    # The end.

    async def quiet(self, farewell: Farewell) -> None:
        """Take nothing more; what was taken is durable and answered when this returns. Only the first call counts."""
        if self._farewell is not None:
            return
        self._farewell = farewell
        if farewell is Farewell.GONE:
            for services in self._services.values():
                for service in services:
                    service.close()
        elif farewell is Farewell.SILENCE:
            for jetstream in self.accounts.values():
                for subject in jetstream.subjects:
                    jetstream.account.serve(subject, _ignore)
        await self.api.close()
        for account in tuple(self.accounts.values()):
            await account.drain()

    async def stop(self, farewell: Farewell = Farewell.GONE) -> None:
        """Answer what is under way, take nothing more, close the stores in good order. Twice is harmless.

        All are closed; of those that could not be in good order, the first one's error is raised.
        """
        if self.is_closed:
            return
        await self.quiet(farewell)
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
    """A folder where everybody may make one: it must be ours, or somebody else decides what the store holds."""
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
    """Heard, and not answered."""
