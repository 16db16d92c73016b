from penstock.broker.consumers.outbox import Outbox

class PullQueue(Outbox):
    """The requests that wait for a consumer's messages."""

    active_ns: int
    is_prioritized: bool
    is_pinned: bool
    is_overflow: bool
    max_waiting: int
    max_batch: int
    max_expires_ns: int
    max_bytes: int
    def add(self, reply: bytes, request: object, now_ns: int, mono_ns: int, has_group: bool) -> None: ...
    @property
    def num_waiting(self) -> int: ...
    def release(self, status: bytes | None, tells_rest: bool) -> None: ...
