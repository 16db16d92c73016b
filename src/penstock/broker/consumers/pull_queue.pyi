from typing import Protocol, final

from penstock.broker.consumers.outbox import Outbox

class PullQueueHost(Protocol):
    """What a pull queue calls: the owner of the consumer's pin."""

    def pin(self) -> None:
        """Pin the client of the request that is first of its group: set the outbox's `pin_id`."""

    def unpin(self) -> None:
        """Clear the outbox's `pin_id`: the client that was just pinned does not get the message."""

@final
class PullQueue:
    """The pull requests that wait for a consumer's messages."""

    active_ns: int
    is_prioritized: bool
    is_pinned: bool
    is_overflow: bool
    max_waiting: int
    max_batch: int
    max_expires_ns: int
    max_bytes: int
    def __init__(self, outbox: Outbox, host: PullQueueHost) -> None: ...
    def add(self, reply: bytes, request: object, now_ns: int, mono_ns: int, has_group: bool) -> None: ...
    @property
    def num_waiting(self) -> int: ...
    def release(self, status: bytes | None, tells_rest: bool) -> None: ...
