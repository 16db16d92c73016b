from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from penstock.base.clock import Clock
from penstock.base.subject import Filters
from penstock.store.index.ids_and_expiries import IdsAndExpiries
from penstock.store.index.index import Index
from penstock.store.limits import Limits
from penstock.store.read.message import Message
from penstock.store.write.batch import Batch
from penstock.store.write.commit_log import CommitLog
from penstock.store.write.dedupe import DedupeWindow

EOF: int
NOT_FOUND: int
DELETED: int

_Filters = Sequence[str] | Sequence[bytes] | Filters

class EngineHost(Protocol):
    """What a StreamEngine asks of the store that has it. `Store` is one, and `ClosedStore` once it is closed."""

    def refuse_forked(self) -> object:
        """Raise: the process has forked since the engine was made."""

    def refuse_closed(self) -> object:
        """Raise: the stream is closed."""

    def retry(self) -> object:
        """A commit failed before this append or delete: deal with that, or raise."""

    def commit_failed(self, position: int) -> object:
        """A commit failed: roll back, and raise when what was appended up to `position` was not kept."""

    def undo_failed(self, error: BaseException) -> object:
        """An append or a delete raised half way: forget what is not committed. The engine raises `error` after it."""

class OpenEngineHost(EngineHost, Protocol):
    """What it asks of a store that is open, besides."""

    def new_block(self, first_seq: int, time: int) -> tuple[int, bytes, bytes, int]:
        """Name the next block: its id, path, the bytes before its records, and its salt."""

    def block_sealed(self, block_id: int, spans: list[tuple[int, int]]) -> object:
        """A block is full. `spans`: (offset, size) of its control records."""

    def close_idle(self) -> object:
        """Too many block files are open to be read: close some."""

    def note_lead(self, first_seq: int, lead_ns: int, now: int, is_late: bool) -> int:
        """From `first_seq` on, message times are `lead_ns` ahead of `now`: how much that may shrink before the next
        call."""

    def was_skipped(self, seq: int) -> bool:
        """Whether a sequence never held a message."""

    def note_damage(self, block_id: int, offset: int, seq: int) -> object:
        """A record was found damaged; the read goes on without it."""

    def damaged_record(self, block_id: int, offset: int, seq: int) -> object:
        """The record that was asked for is damaged: raise."""

class StreamEngine:
    """The log and the index of one stream."""

    clock: Clock
    lead_ns: int
    last_time: int
    is_closed: bool
    open_max: int

    def __init__(self, store: OpenEngineHost, index: Index, log: CommitLog) -> None: ...
    @property
    def index(self) -> Index: ...
    @property
    def log(self) -> CommitLog: ...
    @property
    def append_ns(self) -> int: ...
    @property
    def sealed_count(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def committed_position(self) -> int: ...
    @property
    def synced_position(self) -> int: ...
    @property
    def committed_seq(self) -> int: ...
    def configure(self, limits: Limits) -> None: ...
    def append(
        self,
        batch: Batch,
        start: int,
        stop: int,
        now: int,
        ids: DedupeWindow | None = None,
        ids_and_expiries: IdsAndExpiries | None = None,
    ) -> int: ...
    def seal_active(self) -> None: ...
    def log_ranges(self, ranges: Iterable[tuple[int, int]], reason: int, now: int) -> None: ...
    def subjects_over(self, per_subject: int, most: int) -> list[bytes] | None: ...
    def trim_subjects(self, start: int, stop: int, per_subject: int, reason: int, now: int) -> int: ...
    def log_floor(self, floor: int, reason: int, now: int) -> None: ...
    def log_erase(self, seq: int, now: int) -> None: ...
    def skip(self, first: int, count: int, reason: int, now: int) -> None: ...
    def delete(self, seq: int, reason: int, now: int) -> bool: ...
    def delete_all(self, seqs: Iterable[int], reason: int, now: int) -> int: ...
    def delete_matching(
        self, filters: _Filters, start: int, stop: int, keep: int, limit: int, reason: int, now: int
    ) -> int: ...
    def set_floor(self, floor: int, reason: int, now: int) -> int: ...
    def commit(self) -> None: ...
    def begin_commit(self) -> tuple[int, int]: ...
    def wait(self) -> int: ...
    def end_commit(self, token: tuple[int, int], answer: int) -> None: ...
    def submit(self, begins: bool = False) -> int: ...
    def note_committed(self) -> None: ...
    def sync(self) -> int: ...
    def write_out(self) -> int: ...
    def undo(
        self, told: Callable[[int, int], None] | None = None
    ) -> tuple[list[tuple[int, int, bool]], list[tuple[bytes, bool]]]: ...
    def close_files(self) -> None: ...
    def release(self, store: EngineHost) -> None: ...
    def load(self, seq: int) -> Message | int: ...
    def time_of(self, seq: int) -> int | None: ...
    def seq_from_time(self, time: int) -> int: ...
