"""scan: the messages of a stream's files as Arrow record batches.

Blocks that cannot hold a wanted row, by sequence, time or subject, are not opened. A block is read in one go and walked
by scan/columns.pyx. It knows no database: a StreamView says which files there are and how far they are committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from penstock.base.bloom_filter import may_match
from penstock.base.subject import Filters
from penstock.errors import CorruptBlock, StoreError
from penstock.format.block_header import decode_front
from penstock.format.constants import RECORDS_START
from penstock.format.record import RecordError
from penstock.scan.batch import record_batch
from penstock.scan.block_memory import BlockMemory
from penstock.scan.columns import BATCH_BYTES_MAX, COLUMN_BITS, HEADERS_RAW, Columns, Spares, read_columns
from penstock.scan.schema import HeadersAs, choose_columns, schema

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.store.read.view import BlockView, StreamView

BATCH_ROWS = 65536
BATCH_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a block that are no whole record, and the sequences [seq_start, seq_stop) that they may have held."""

    path: str
    block_id: int
    offset: int
    size: int
    reason: str
    seq_start: int
    seq_stop: int


@dataclass(slots=True)
class _Part:
    """What one block gave: batches in order, and its damage."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)


class Scan(Iterator["pa.RecordBatch"]):
    """The record batches of a scan, in sequence order, and what it met on the way.

    Always true: `blocks_opened` and `damage` speak of the batches taken so far (with threads, of a few more blocks).
    """

    def __init__(
        self,
        view: StreamView,
        *,
        subjects: Iterable[bytes | str] | None = None,
        start_seq: int | None = None,
        stop_seq: int | None = None,
        since: int | None = None,
        until: int | None = None,
        columns: Iterable[str] | None = None,
        headers: HeadersAs = "map",
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
        threads: int = 1,
        on_damage: Literal["report", "raise"] = "report",
    ) -> None:
        if on_damage not in ("report", "raise"):
            raise ValueError(f"on_damage={on_damage!r}: report or raise")
        if batch_rows < 1 or not 1 <= batch_bytes <= BATCH_BYTES_MAX or threads < 1:
            raise ValueError(
                f"batch_rows={batch_rows}, batch_bytes={batch_bytes}, threads={threads}: "
                f"each at least 1, batch_bytes at most {BATCH_BYTES_MAX}"
            )
        if isinstance(subjects, str | bytes):
            subjects = [subjects]
        self.view = view
        self.schema = schema(columns, headers)
        self.blocks_total = len(view.blocks)
        self.blocks_opened = 0
        self.damage: list[Damage] = []
        self._subjects = list(subjects or ())
        self._filters = Filters(self._subjects)
        if self._filters.is_all:
            self._subjects = []
        self._low = max(view.first_seq, 0 if start_seq is None else start_seq)
        self._high = min(view.last_seq + 1, view.last_seq + 1 if stop_seq is None else stop_seq)
        self._since, self._until = since, until
        self._mask = sum(COLUMN_BITS[name] for name in choose_columns(columns))
        if headers == "raw" and self._mask & COLUMN_BITS["headers"]:
            self._mask += HEADERS_RAW - COLUMN_BITS["headers"]
        self._batch_rows, self._batch_bytes = batch_rows, batch_bytes
        self._spares = Spares()
        self._is_strict = on_damage == "raise"
        self.next_seq = self._low
        """From here on a scan that was stopped by a file that is gone would go on."""
        self._batches = self._run() if threads == 1 else self._run_threads(threads)

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def close(self) -> None:
        """End the scan early: threads stop after the block that they are at."""
        self._batches.close()

    # Which blocks

    def _wanted(self) -> Iterator[BlockView]:
        for block in self.view.blocks:
            if max(block.first_seq, self._low) < min(block.stop_seq, self._high) and may_hold(
                block, self._subjects, self._since, self._until
            ):
                yield block

    # Blocks to batches

    def _run(self) -> Generator[pa.RecordBatch, None, None]:
        buffer = BlockMemory()
        for block in self._wanted():
            self.blocks_opened += 1
            for columns, damage in self._walk(block, buffer):
                self._report(damage)
                self.next_seq = max(self.next_seq, columns.seq_next)
                if columns.row_count:
                    yield record_batch(columns, self.schema)

    def _run_threads(self, threads: int) -> Generator[pa.RecordBatch, None, None]:
        buffers: SimpleQueue[BlockMemory] = SimpleQueue()
        for _ in range(threads):
            buffers.put(BlockMemory())
        parts: deque[Future[_Part]] = deque()
        blocks = self._wanted()
        with ThreadPoolExecutor(threads, thread_name_prefix="penstock-scan") as pool:
            try:
                while True:
                    while len(parts) <= threads and (block := next(blocks, None)) is not None:
                        self.blocks_opened += 1
                        parts.append(pool.submit(self._read_part, block, buffers))
                    if not parts:
                        return
                    part = parts.popleft().result()
                    self._report(part.damage)
                    yield from part.batches
            finally:
                for waiting in parts:
                    waiting.cancel()

    def _read_part(self, block: BlockView, buffers: SimpleQueue[BlockMemory]) -> _Part:
        part, buffer = _Part(), buffers.get()
        try:
            for columns, damage in self._walk(block, buffer):
                part.damage += damage
                if columns.row_count:
                    part.batches.append(record_batch(columns, self.schema))
                if damage and self._is_strict:
                    break
        finally:
            buffers.put(buffer)
        return part

    def _report(self, damage: list[Damage]) -> None:
        self.damage += damage
        if damage and self._is_strict:
            raise CorruptBlock(damage[0].path, damage[0].offset, damage[0].reason)

    def _walk(self, block: BlockView, buffer: BlockMemory) -> Iterator[tuple[Columns, list[Damage]]]:
        """The batches of one block, each with the damage met in it."""
        low, high = max(block.first_seq, self._low), min(block.stop_seq, self._high)
        size = self._read(block, buffer)
        at, seq_next, was_read_again = 0, 0, False
        while True:
            try:
                columns = read_columns(
                    buffer.pages,
                    at,
                    size,
                    base_seq=block.base_seq,
                    base_time=block.base_time,
                    salt=block.salt,
                    seq_next=seq_next,
                    min_seq=low,
                    stop_seq=high,
                    min_time=self._since,
                    stop_time=self._until,
                    filters=self._filters,
                    dead=self.view.dead,
                    columns=self._mask,
                    stream=self.view.name,
                    max_rows=self._batch_rows,
                    max_bytes=self._batch_bytes,
                    spares=self._spares,
                )
            except RecordError as error:
                raise StoreError(f"{block.path} from byte {block.start} on, {error}") from None
            if (columns.damage or columns.torn is not None) and not was_read_again:
                # An erase beside us may have been half done; it keeps every length, so we go on from where we were.
                was_read_again, size = True, self._read(block, buffer)
                block = self._as_its_header_says(block)
                continue
            yield columns, self._damage_of(block, columns, size, low, high)
            at, seq_next = columns.next_offset, columns.seq_next
            if columns.finished:
                return

    def _read(self, block: BlockView, buffer: BlockMemory) -> int:
        """Fill the buffer from the block's first record on; how many bytes there were."""
        disk, size = self.view.disk, block.stop - block.start
        buffer.reserve(size)
        fd = disk.open(block.path)
        try:
            with memoryview(buffer.pages) as whole, whole[:size] as part:
                return disk.read_into(fd, part, block.start)
        finally:
            disk.close(fd)

    def _as_its_header_says(self, block: BlockView) -> BlockView:
        """A view made without opening the blocks relies on the checkpoint, which may be wrong about them."""
        disk = self.view.disk
        fd = disk.open(block.path)
        try:
            header = decode_front(disk.read(fd, RECORDS_START), block.path)
        finally:
            disk.close(fd)
        if header is None or (header.stream_id, header.block_id) != (self.view.stream_id, block.block_id):
            return block
        return replace(block, base_seq=header.base_seq, base_time=header.base_time, salt=header.salt)

    def _damage_of(self, block: BlockView, columns: Columns, size: int, low: int, high: int) -> list[Damage]:
        """The damage that may have cost a wanted row, including damage for which this is unknown."""
        found = []
        ends_early = columns.finished and size < block.stop - block.start
        for (offset, length), (seq_start, seq_stop) in zip(columns.damage, columns.gaps, strict=True):
            at_end = offset + length == size
            if at_end and seq_start >= high:
                continue  # nothing committed was there
            if seq_start < seq_stop and not self._may_lack(max(seq_start, low), min(seq_stop, high)):
                continue
            found.append((offset, length, "checksum differs", seq_start, seq_stop))
        if columns.torn is not None and self._may_lack(max(columns.seq_next, low), high):
            found.append((columns.torn, size - columns.torn, "the record is cut off", columns.seq_next, high))
        elif ends_early and self._may_lack(max(columns.seq_next, low), high):
            missing = block.stop - block.start - size
            found.append((size, missing, "the file ends early", columns.seq_next, high))
        return [
            Damage(
                block.path,
                block.block_id,
                block.start + offset,
                length,
                reason,
                max(seq_start, block.first_seq),
                seq_stop,
            )
            for offset, length, reason, seq_start, seq_stop in found
        ]

    def _may_lack(self, start: int, stop: int) -> bool:
        """Whether some sequence of [start, stop) should have been there."""
        if start >= stop:
            return False
        if self.view.dead is None:
            return True
        absent = self.view.dead.absent_from(start)
        return absent is not None and absent < stop


def may_hold(block: BlockView, subjects: Sequence[bytes | str], since: int | None, until: int | None) -> bool:
    """Whether a block can hold a message of these subjects (all without any) and times, by what is known of it."""
    if block.time_min <= block.time_max and (
        (since is not None and block.time_max < since) or (until is not None and block.time_min >= until)
    ):
        return False
    if not subjects or not block.subject_filter:
        return True
    return any(may_match(block.subject_filter, subject) for subject in subjects)


class Asked(TypedDict, total=False):
    """The keywords of a scan; `Scan` has their defaults."""

    subjects: Iterable[bytes | str] | None
    start_seq: int | None
    stop_seq: int | None
    since: int | None
    until: int | None
    columns: Iterable[str] | None
    headers: HeadersAs
    batch_rows: int
    batch_bytes: int
    threads: int
    on_damage: Literal["report", "raise"]


def scan(view: StreamView, **asked: Unpack[Asked]) -> Scan:
    """The messages with start_seq <= seq < stop_seq and since <= time < until (nanoseconds) that match `subjects`.

    Batches come in sequence order, each with at most `batch_rows` rows and `batch_bytes` of subjects, headers and
    payloads. Damage is listed in the scan's `damage`, or raised as CorruptBlock when it is met.
    """
    return Scan(view, **asked)


def to_table(view: StreamView, **asked: Unpack[Asked]) -> pa.Table:
    """What `scan` gives, as one table."""
    import pyarrow as pa

    found = Scan(view, **asked)
    return pa.Table.from_batches(list(found), found.schema)
