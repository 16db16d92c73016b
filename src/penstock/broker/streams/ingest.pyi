from collections.abc import Callable
from typing import Protocol

from penstock.broker.routing.client import Client
from penstock.store.write.engine import StreamEngine
from penstock.stream.stream import StreamRules

class StreamLock(Protocol):
    """A stream's lock; compiled code only tries it."""

    def acquire(self, blocking: bool = ...) -> bool: ...
    def release(self) -> None: ...

class IngestHost(Protocol):
    """What ingest, the router and the PubAck writer call: the stream's endpoint."""

    @property
    def name(self) -> str: ...
    @property
    def is_held(self) -> bool:
        """Few messages came since the running commit began: they wait for its end."""

    @property
    def has_failures(self) -> bool:
        """Some commit failed, ever: `failure_at` tells for each position whether it was kept."""

    def failure_at(self, position: int) -> bytes | None:
        """Why what was appended up to `position` was not kept, as an answer; None if it was."""

    def refusal(self, error: Exception) -> bytes:
        """The answer to a publish that was refused."""

    def touched(self) -> None:
        """A batch was appended."""

    def overflowed(self, replies: list[bytes]) -> None:
        """More waits than may: the messages with these reply subjects were not taken."""

    def has_parked(self) -> None:
        """A batch could not be appended: another thread has the stream's lock."""

    def refuse_batch(
        self, publisher: Client, subject: bytes, reply: bytes | None, headers: bytes | None, payload: bytes
    ) -> None:
        """A client asked for an atomic batch. A service: called at the end of the read."""

    def call_when_caught_up(self, callback: Callable[[], None]) -> None:
        """Call back when less waits for the disk than now."""

class Ingest:
    """The messages published to one stream in this turn of the loop, and the answers that wait for its commits."""

    endpoint: IngestHost | None
    rules: StreamRules
    lock: StreamLock
    guard: Callable[[int, int], bytes | None] | None
    engine: StreamEngine
    count_max: int
    size_max: int
    has_acks: bool
    is_over: bool
    @property
    def is_touched(self) -> bool: ...
    @property
    def parked_count(self) -> int: ...
    @property
    def parked_bytes(self) -> int: ...
    @property
    def waiting_count(self) -> int: ...
    @property
    def is_half_full(self) -> bool: ...
    def look(self) -> bool: ...
    @property
    def is_waiting(self) -> bool: ...
    @property
    def is_due(self) -> bool: ...
    def set_head(self, head: bytes) -> None: ...
    def take_parked(self) -> bool: ...
