"""Api: requests on $JS.API, from the subject to the reply. One for the server; the accounts share its queue.

A request that can be answered at once is answered in the same tick. One that waits for the disk, or takes
long, is queued behind the earlier requests of its connection, so that each connection gets its replies in order.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from penstock.api.call import Answer, Call, Endpoint, Fields, Unanswered
from penstock.errors import (
    ApiError,
    ApiLevelRequired,
    ClusterRequired,
    NotEnabledForAccount,
    StoreClosed,
    StoreError,
    StreamNotFound,
)
from penstock.wire.go_json import encode
from penstock.wire.level import asks_too_much

if TYPE_CHECKING:
    from penstock.api.advisories import Advisories
    from penstock.broker.account import Account, Request

log = logging.getLogger("penstock.api")
TYPE = "io.nats.jetstream.api.v1."
SYSTEM_RESPONSE = Endpoint("", 0, "system_response", lambda call: {})
SYSTEM_NOUNS = ("ACCOUNT", "META", "SERVER")
QUEUE_BYTES_MAX = 128 * 1024 * 1024  # of queued requests; ours, in addition to nats-server's limit on their count
INLINE_S = 0.001  # time per tick for requests that are answered at once; later ones are queued
PREFIX_TOKENS_MAX = 3


class Api:
    """Dispatches requests to their endpoints and sends the replies."""

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        loop: asyncio.AbstractEventLoop,
        advisories: Advisories,
        *,
        strict: bool = True,
        queue_max: int = 10_000,
    ) -> None:
        self._endpoints: dict[tuple[str, int], Endpoint] = {}
        self._open_ended: dict[str, Endpoint] = {}
        self._for_system: dict[str, Endpoint] = {}  # each takes one name
        for endpoint in endpoints:
            if endpoint.is_system:
                self._for_system[endpoint.subject] = endpoint
                continue
            self._endpoints[endpoint.subject, endpoint.names] = endpoint
            if endpoint.takes_more:
                self._open_ended[endpoint.subject] = endpoint
        self._loop = loop
        self._advisories = advisories
        self._strict = strict
        self._queue_max = queue_max
        self._lanes: dict[int, deque[Call]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn_began = 0.0
        self.system: Account | None = None
        self.queued = 0
        self.queued_bytes = 0
        self.inflight = 0
        self.total = 0
        self.errors = 0

    def handle(self, request: Request) -> None:
        """Answer a request on $JS.API that is not a direct get."""
        tokens = request.subject[8:].decode("utf-8", "surrogateescape").split(".")
        is_system = request.account is self.system and tokens != ["INFO"]
        found = self._find_for_system(tokens) if is_system else self._find(tokens)
        if found is None:
            return  # no reply, as in nats-server
        endpoint, names = found
        call = Call(request, endpoint, names, request.account.jetstream, self._strict)
        lane_id = request.client.cid if request.client is not None else 0
        lane = self._lanes.get(lane_id)
        if lane is None and self._has_time():
            self.inflight += 1
            answer = self._begin(call)
            if answer is None:
                self.inflight -= 1
                return
            lane = self._lanes[lane_id] = deque()
            self._start(self._run(lane_id, lane, call, answer))
            return
        if lane is None:
            lane = self._lanes[lane_id] = deque()
            self._start(self._drain(lane_id, lane))
        self._queue(lane, call)

    def _find(self, tokens: list[str]) -> tuple[Endpoint, list[str]] | None:
        if "" in tokens:
            return None
        count = len(tokens)
        for size in range(1, min(count, PREFIX_TOKENS_MAX) + 1):
            prefix = ".".join(tokens[:size])
            endpoint = self._endpoints.get((prefix, count - size))
            if endpoint is None:
                endpoint = self._open_ended.get(prefix)
                if endpoint is None or count - size < endpoint.names:
                    continue
            return endpoint, tokens[size:]
        return None

    def _find_for_system(self, tokens: list[str]) -> tuple[Endpoint, list[str]] | None:
        """The endpoint of a request from the system account; None for those that only a cluster answers."""
        if tokens[0] not in SYSTEM_NOUNS:
            return SYSTEM_RESPONSE, []
        endpoint = self._for_system.get(".".join(tokens[:-1]))
        return None if endpoint is None else (endpoint, tokens[-1:])

    def _has_time(self) -> bool:
        """Whether this tick may answer one more request at once."""
        now = self._loop.time()
        if not self._turn_began:
            self._turn_began = now
            self._loop.call_soon(self._end_turn)
        return now - self._turn_began < INLINE_S

    def _end_turn(self) -> None:
        self._turn_began = 0.0

    # The queue.

    def _queue(self, lane: deque[Call], call: Call) -> None:
        lane.append(call)
        self.queued += 1
        self.queued_bytes += len(call.payload)
        self.inflight += 1
        if self.queued >= self._queue_max or self.queued_bytes > QUEUE_BYTES_MAX:
            log.warning("JetStream API queue limit reached, dropping %d requests", self.queued)
            dropped = 0
            for one in self._lanes.values():
                dropped += len(one)
                one.clear()
            self.inflight -= dropped
            self.queued = self.queued_bytes = 0
            self._advisories.limit_reached(self.system, dropped)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, lane_id: int, lane: deque[Call], call: Call, answer: Answer) -> None:
        """Finish one call, then those queued behind it."""
        await self._finish(call, answer)
        self.inflight -= 1
        await self._drain(lane_id, lane)

    async def _drain(self, lane_id: int, lane: deque[Call]) -> None:
        try:
            began = self._loop.time()
            while lane:
                call = lane.popleft()
                self.queued -= 1
                self.queued_bytes -= len(call.payload)
                answer = self._begin(call)
                if answer is not None:
                    await self._finish(call, answer)
                self.inflight -= 1
                if self._loop.time() - began > INLINE_S:
                    await asyncio.sleep(0)
                    began = self._loop.time()
        finally:
            del self._lanes[lane_id]

    async def close(self) -> None:
        """Wait for the requests in progress. None is answered afterwards."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))
        self._for_system.clear()  # breaks nats-server cycle with JetStream

    # One call.

    def _begin(self, call: Call) -> Answer | None:
        """Answer at once and return None, or return the awaitable of the answer."""
        endpoint = call.endpoint
        try:
            if endpoint.needs_cluster:
                raise ClusterRequired
            if asks_too_much(call.request.headers):
                raise ApiLevelRequired
            if call.jetstream is None and not endpoint.is_system:
                raise NotEnabledForAccount if not endpoint.is_uncounted else Unanswered
            answer = endpoint.handle(call)
        except ApiError as error:
            self._refuse(call, error)
            return None
        except StoreError as error:
            self._refuse(call, store_refusal(error))
            return None
        except Unanswered:
            return None
        except Exception:  # noqa: BLE001 - our own mistake must not end the queue: it is logged and answered
            self._fail(call)
            return None
        if inspect.isawaitable(answer):
            return answer
        self._reply(call, answer)
        return None

    async def _finish(self, call: Call, answer: Answer) -> None:
        try:
            fields = await answer if inspect.isawaitable(answer) else answer
        except ApiError as error:
            self._refuse(call, error)
        except StoreError as error:
            self._refuse(call, store_refusal(error))
        except Unanswered:
            return
        except Exception:  # noqa: BLE001 - our own mistake must not end the queue: it is logged and answered
            self._fail(call)
        else:
            self._reply(call, fields)

    def _reply(self, call: Call, fields: Fields) -> None:
        reply = encode({"type": TYPE + call.endpoint.type, **fields})
        if call.endpoint.is_quiet:
            call.request.respond(reply, call.headers)
        else:
            self._send(call, reply, is_error=False)

    def _refuse(self, call: Call, error: ApiError) -> None:
        fields: Fields = {"type": TYPE + call.endpoint.type, "error": error.to_json(), **call.endpoint.zero}
        self._send(call, encode(fields), is_error=True)

    def _fail(self, call: Call) -> None:
        """Answer a request that failed by our mistake: the log gets the traceback, the client a general error."""
        subject = call.request.subject.decode("utf-8", "backslashreplace")
        log.exception("a request on %s failed", subject)
        self._refuse(call, ApiError("internal error; the server's log says more"))

    def _send(self, call: Call, reply: bytes, *, is_error: bool) -> None:
        headers = None if is_error else call.headers
        if call.endpoint.is_uncounted:
            call.request.respond(reply, headers)
            return
        self.total += 1
        self.errors += is_error
        if call.jetstream is not None:
            call.jetstream.api_total += 1
            call.jetstream.api_errors += is_error
        call.request.respond(reply, headers)
        self._advisories.audit(call.request, reply)


def store_refusal(error: StoreError) -> ApiError:
    """The ApiError for an error of the store; a stream that was closed meanwhile was deleted."""
    return StreamNotFound() if isinstance(error, StoreClosed) else ApiError(str(error))
