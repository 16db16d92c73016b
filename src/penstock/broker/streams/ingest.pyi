from collections.abc import Callable
from typing import Any

from penstock.store.write.engine import StreamEngine

class Ingest:
    """A stream's batch of this turn, and its answers under way."""

    intake: Any
    rules: Any
    lock: Any
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
    def is_crowded(self) -> bool: ...
    def look(self) -> bool: ...
    @property
    def is_waiting(self) -> bool: ...
    @property
    def is_due(self) -> bool: ...
    def set_head(self, head: bytes) -> None: ...
    def take_parked(self) -> bool: ...
