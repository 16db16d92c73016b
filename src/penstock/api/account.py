"""JetStreamAccount: JetStream for one account. Its database, its streams on the server, its limits and its counters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.api.consumer_advisories import ConsumerAdvisories
from penstock.api.direct import Direct
from penstock.api.usage import (
    OVERHEAD,
    Usage,
    account_limit,
    check_consumers,
    check_counts,
    check_max_bytes,
    check_reservation,
    usage_of,
)
from penstock.broker.streams.endpoint import StreamEndpoint
from penstock.consumer.config import CONSUMERS_MAX, ConsumerCaps
from penstock.db.database import Database
from penstock.errors import AccountLimitsExceeded, PenstockError, ResourcesExhausted, StreamNotFound
from penstock.stream.config import StreamConfig

if TYPE_CHECKING:
    from penstock.api.jetstream import JetStream
    from penstock.broker.account import Account
    from penstock.server.options import JetStreamLimits

log = logging.getLogger("penstock.api")
PULLS = "$JS.API.CONSUMER.MSG.NEXT.>"
ACKS = "$JS.ACK.>"
REOPEN_S = 1.0  # until a stream that could not be opened is tried again; twice as long each time,
REOPEN_S_MAX = 60.0  # up to this, because reading a large stream takes long


class JetStreamAccount:
    """The streams of one account on the server. Belongs to the loop's thread.

    Always true: `streams` has every open stream of the database, at most one tick after it was opened.
    """

    def __init__(
        self, jetstream: JetStream, account: Account, database: Database, limits: JetStreamLimits, *, is_lent: bool
    ) -> None:
        self.jetstream = jetstream
        self.account = account
        self.database = database
        self._limits = limits
        self.streams: dict[str, StreamEndpoint] = {}
        self.direct: dict[bytes, Direct] = {}  # streams that answer direct gets, by name
        self.failed: dict[str, str] = {}  # streams that could not be opened, and why
        self.changes = asyncio.Lock()  # held while a stream is created, changed or deleted
        self.api_total = 0
        self.api_errors = 0
        self._is_lent = is_lent
        self._reopening: asyncio.TimerHandle | None = None
        self._reopening_task: asyncio.Task[None] | None = None
        self._configs: dict[str, StreamConfig] = {}
        database.on_change.append(self._changed)

    def open_streams(self) -> None:
        """Open the streams in the store; failures are logged and tried again later. May take long."""
        for name in self.database.streams():
            self._open(name)

    def _open(self, name: str) -> None:
        """Open one stream. An error is logged and remembered: the other streams do not depend on it."""
        place = f"stream {name} of account {self.account.name}"
        try:
            stream = self.database.get_stream(name)
        except Exception as error:
            if self.failed.get(name) != str(error):  # the same error is logged once
                is_ours = isinstance(error, PenstockError | OSError)
                log.error("%s cannot be opened: %s", place, error, exc_info=None if is_ours else error)
            self.failed[name] = str(error)
            return
        self.failed.pop(name, None)
        for finding in stream.findings:
            log.warning("%s: %s", place, finding)

    def follow_all(self) -> None:
        for name in self.database.streams():
            self.follow(name)
        self._try_failed_later(REOPEN_S)

    def _try_failed_later(self, seconds: float) -> None:
        if self.failed and not self.jetstream.is_closed:
            self._reopening = self.jetstream.loop.call_later(seconds, self._try_failed, seconds)

    def _try_failed(self, seconds: float) -> None:
        """Try again to open streams. Once the first succeeds, the others are tried soon."""
        self._reopening_task = self.jetstream.loop.create_task(self._reopen(seconds))

    async def _reopen(self, seconds: float) -> None:
        async with self.changes:
            before = sorted(self.failed)
            for name in before:
                if name not in self.database.streams():
                    self.failed.pop(name, None)  # it was deleted
                elif not self.jetstream.is_closed and self._reopening is not None:
                    await asyncio.to_thread(self._open, name)
                    self.follow(name)
        self._try_failed_later(REOPEN_S if len(self.failed) < len(before) else min(2 * seconds, REOPEN_S_MAX))

    def _changed(self, name: str) -> None:
        """Code in this process, maybe in another thread, created, changed or deleted a stream: the next publish sees
        the change."""
        if not self.jetstream.loop.is_closed():
            self.account.tick.call_first(self.follow, name)

    def follow(self, name: str) -> None:
        """Take over a stream as the database has it now: created, changed or deleted. Calling it twice is harmless."""
        if self.jetstream.is_closed:
            return
        stream = self.database._known(name)
        endpoint = self.streams.get(name)
        if endpoint is not None and (stream is None or endpoint.stream is not stream):
            endpoint.close()
            del self.streams[name], self._configs[name]
            self.direct.pop(name.encode(), None)
            endpoint = None
        if stream is None:
            return
        config = stream.config
        if endpoint is None:
            self.failed.pop(name, None)
            endpoint = self.streams[name] = StreamEndpoint(
                self.account,
                stream,
                self.jetstream.domain,
                events=ConsumerAdvisories(self.jetstream.advisories, self.account, name),
                count_max=self.jetstream.options.max_buffered_msgs,
                size_max=self.jetstream.options.max_buffered_size,
            )
        elif self._configs[name] is config:
            return
        else:
            endpoint.configure()
        self._configs[name] = config
        if config.allow_direct:
            self.direct[name.encode()] = Direct(self.account, stream, self.jetstream.max_pending)
        else:
            self.direct.pop(name.encode(), None)
        endpoint.ingest.guard = self._guard(endpoint)

    def stream(self, name: str) -> StreamEndpoint:
        """The server's endpoint of a stream; StreamNotFound if there is none."""
        if name not in self.streams:
            self.follow(name)  # the library may have created it in this tick
        endpoint = self.streams.get(name)
        if endpoint is None:
            raise StreamNotFound
        return endpoint

    def tell_soon(self, stream: str, action: str) -> None:
        """Publish an advisory that a stream was created or changed, once its request is answered."""
        self.jetstream.loop.call_soon(self.jetstream.advisories.stream_action, self.account, stream, action)

    # Limits.

    @property
    def limits(self) -> JetStreamLimits:
        return self._limits

    @limits.setter
    def limits(self, limits: JetStreamLimits) -> None:
        self._limits = limits
        self.guard_all()

    @property
    def usage(self) -> Usage:
        return usage_of(endpoint.stream for endpoint in self.streams.values())

    @property
    def consumer_caps(self) -> ConsumerCaps:
        """The limits of the server and the account for consumers."""
        options = self.jetstream.options
        return ConsumerCaps(
            server_ack_pending=options.max_ack_pending,
            account_ack_pending=self.limits.max_ack_pending,
            request_batch=options.max_request_batch,
            account_consumers=self.limits.max_consumers,
            default_consumers=options.default_max_consumers or CONSUMERS_MAX,
        )

    @property
    def consumer_count(self) -> int:
        """The number of all consumers, including those that feed mirrors and sources."""
        return sum(len(endpoint.stream.consumers.by_name) for endpoint in self.streams.values())

    @property
    def memory_used(self) -> int:
        return self.usage.memory

    @property
    def storage_used(self) -> int:
        return self.usage.storage

    def check_counts(self, config: StreamConfig) -> None:
        """Raise if the account may not have one more stream, or not one with this many consumers."""
        check_counts(self.limits, config, len(self.streams) - (config.name in self.streams))

    def check_create(self, config: StreamConfig) -> None:
        """Raise if the account or the server has no room for a new stream."""
        self._check_reservation(config, config.max_bytes, self._reserved_by_others(config))

    def check_update(self, old: StreamConfig, config: StreamConfig) -> None:
        """Raise if they have no room for what a changed stream reserves in addition."""
        check_consumers(self.limits, config)
        added = max(max(config.max_bytes, 0) - max(old.max_bytes, 0), 0)
        own = max(config.max_bytes, 0) - added
        self._check_reservation(config, added, self._reserved_by_others(config) + own)

    def check_max_bytes(self, config: StreamConfig) -> None:
        check_max_bytes(self.limits, config)

    def _check_reservation(self, config: StreamConfig, added: int, reserved: int) -> None:
        server = self.jetstream
        check_reservation(self.limits, server.limits, config, added, reserved, server.usage.reserved(config.storage))

    def _reserved_by_others(self, config: StreamConfig) -> int:
        others = (endpoint.stream for name, endpoint in self.streams.items() if name != config.name)
        return usage_of(others).reserved(config.storage)

    def _guard(self, endpoint: StreamEndpoint) -> Callable[[int, int], bytes | None] | None:
        """A check that refuses batches beyond the account's or the server's limits; None if these are far away."""
        storage = endpoint.stream.config.storage
        most = account_limit(self.limits, storage)
        if most < 0 and not self.jetstream.is_scarce:
            return None

        def guard(count: int, size: int) -> bytes | None:
            if self.jetstream.is_exhausted(storage):
                return endpoint.refusal(ResourcesExhausted())
            if 0 <= most < self.usage.used(storage) + size + count * OVERHEAD[storage]:
                return endpoint.refusal(AccountLimitsExceeded())
            return None

        return guard

    def guard_all(self) -> None:
        """Update all guards: the server's free space has become scarce, or no longer is."""
        for endpoint in self.streams.values():
            endpoint.ingest.guard = self._guard(endpoint)

    # The end.

    @property
    def subjects(self) -> list[str]:
        """The subjects that its streams and consumers subscribe to."""
        heard = {subject for endpoint in self.streams.values() for subject in endpoint.stream.config.subjects}
        return [*sorted(heard), PULLS, ACKS]

    async def drain(self) -> None:
        """Accept no more messages; those accepted are durable and answered when this returns."""
        for endpoint in self.streams.values():
            endpoint.dispatcher.release()
        for endpoint in tuple(self.streams.values()):
            await endpoint.drain()
            await endpoint.answer_acks()
        for endpoint in self.streams.values():
            endpoint.dispatcher.release()  # pull requests that arrived meanwhile

    async def close(self) -> None:
        """Close the database; one that the caller provided stays open."""
        if self._reopening is not None:
            self._reopening.cancel()
            self._reopening = None
        if self._reopening_task is not None:
            await self._reopening_task
        for endpoint in self.streams.values():
            endpoint.close()
        self.streams.clear()
        self.direct.clear()
        self.database.on_change.remove(self._changed)
        self.account.jetstream = None
        if not self._is_lent:
            await asyncio.to_thread(self.database.close)
