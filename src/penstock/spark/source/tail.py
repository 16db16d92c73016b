"""Tail: one stream that a streaming query follows, and Tails: all of them. They live in the query's planning process.

The files are opened once and checked again at each trigger: an idle trigger costs a stat and a read of HEAD per stream,
and reads no block.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from penstock.base.disk import Disk
from penstock.base.seq_set import SeqSet
from penstock.errors import StreamNotFound
from penstock.format.constants import RECORDS_START
from penstock.format.identity import read_identity
from penstock.format.paths import StreamPaths
from penstock.store.index import loading, tables
from penstock.store.index.summary import OFFSETS
from penstock.store.open.marker import require_marker
from penstock.store.open.stream_folders import (
    StreamFolder,
    find_stream,
    is_stream,
    list_folders,
    list_streams,
    names_of,
)
from penstock.store.read.snapshot import Snapshot
from penstock.store.read.view import StreamView, block_views

DEAD_MAX = 500  # up to so many deleted messages in a batch are looked up one by one
TRIES_MAX = 20  # a writer may remove a block while it is being read

Found = TypeVar("Found")


class Tail:
    """A stream's committed end, as of the last `refresh`."""

    def __init__(self, root: str, disk: Disk | None = None, name: str = "") -> None:
        self.root = root
        self.name = name or os.path.basename(root)
        self.label = f"stream {self.name} in {os.path.dirname(os.path.dirname(root))}"
        self.is_missing = False
        self._disk = disk or Disk()
        self._paths = StreamPaths(root)
        self._signature: tuple[int, int, int] | None = None
        self._blocks: tuple[Any, list[dict[str, Any]]] = (None, [])
        self._snapshot = self._open()

    def _open(self) -> Snapshot:
        self._signature = self._sign()
        identity = read_identity(self._disk, self._paths)
        return Snapshot(self.root, identity.stream_id, name=self.name, disk=self._disk)

    def _sign(self) -> tuple[int, int, int] | None:
        """The identity of config.json, to detect a replaced file; None when neither it nor its copy exists."""
        for path in (self._paths.config, self._paths.config_copy):
            try:
                found = os.stat(path)
            except FileNotFoundError:
                continue
            return found.st_ino, found.st_mtime_ns, found.st_size
        return None

    def refresh(self) -> None:
        """Advance to the committed end; detect a stream that was deleted, or deleted and recreated."""
        signature = self._sign()
        self.is_missing = signature is None
        if signature is None:
            return
        if signature != self._signature:
            identity = read_identity(self._disk, self._paths)
            if identity.stream_id != self._snapshot.stream_id:
                self._snapshot.stop()
                self._snapshot = self._open()
                return
            self._signature = signature
        try:
            self._snapshot.refresh()
        except FileNotFoundError:
            self.is_missing = self._sign() is None  # deleted between the two checks
            if not self.is_missing:
                raise

    def close(self) -> None:
        self._snapshot.stop()

    # The stream's contents.

    @property
    def stream_id(self) -> str:
        return self._snapshot.stream_id.hex()

    @property
    def epoch(self) -> int:
        return self._snapshot.epoch

    @property
    def floor(self) -> int:
        return self._snapshot.index.floor

    @property
    def first_seq(self) -> int:
        return self._snapshot.index.first_seq

    @property
    def last_seq(self) -> int:
        return self._snapshot.engine.committed_seq

    def rewritten_from(self, epoch: int) -> int | None:
        return min((one.first_seq for one in self._snapshot.headers.values() if one.epoch > epoch), default=None)

    def view(self, low: int, high: int) -> StreamView:
        """The stream for a read of the sequences [low, high), its first and last block trimmed to that range."""
        return self._retried(lambda: self._trimmed(low, high))

    def _trimmed(self, low: int, high: int) -> StreamView:
        snapshot, index = self._snapshot, self._snapshot.index
        facts = {block["id"]: block for block in self.blocks()}
        blocks = []
        for block in block_views(snapshot):
            if block.first_seq < high and block.stop_seq > low:
                start, stop = block.start, block.stop
                if block.first_seq < low:
                    # Start at the record before it: if our first record is damaged, the index has no row for it.
                    start = max(start, self.byte_before(facts[block.block_id], low))
                if block.stop_seq > high:
                    stop = self.byte_of(facts[block.block_id], high)
                blocks.append(replace(block, start=start, stop=stop))
        return StreamView(
            name=self.name,
            stream_id=snapshot.stream_id,
            epoch=snapshot.epoch,
            first_seq=index.first_seq,
            last_seq=self.last_seq,
            messages=index.messages,
            bytes=index.bytes,
            blocks=tuple(blocks),
            dead=self._dead_between(max(low, index.first_seq), min(high, self.last_seq + 1)),
            disk=self._disk,
        )

    def _dead_between(self, low: int, high: int) -> SeqSet:
        """The sequences in [low, high) without a message, except those that the reader is to report as damaged."""
        found = self._gaps_between(low, high)
        for finding in self._snapshot.report.findings:
            if finding.kind == "lost sequences":  # new damage: no writer has accepted the loss yet
                for start, stop in finding.seqs:
                    for seq in range(max(start, low), min(stop, high)):
                        found.remove(seq)
        return found

    def _gaps_between(self, low: int, high: int) -> SeqSet:
        """The sequences without a message: if they are few, searched for by counting, not by walking the stream."""
        if high - low - self.count(low - 1, high - 1) > DEAD_MAX:
            return self._snapshot.query.deleted()
        found, ranges = SeqSet(), [(low, high)]
        while ranges:
            start, stop = ranges.pop()
            count = self.count(start - 1, stop - 1)
            if start < stop and count == 0:
                found.add_range(start, stop - 1)
            elif count < stop - start:
                middle = (start + stop) // 2
                ranges += [(start, middle), (middle, stop)]
        return found

    def seq_from_time(self, time_ns: int) -> int:
        """The first sequence stored at or after a time; the next sequence when there is none."""
        return self._retried(lambda: self._snapshot.seq_from_time(time_ns))

    def count(self, low: int, high: int, subjects: Sequence[str] = ()) -> int:
        """How many messages in (low, high] match."""
        if high <= low:
            return 0
        query = self._snapshot.query
        beyond = query.pending(subjects, high + 1) if high < self._snapshot.index.last_seq else 0
        return query.pending(subjects, low + 1) - beyond

    def blocks(self) -> list[dict[str, Any]]:
        """The metadata of the blocks that hold messages."""
        head = self._snapshot.head
        if self._blocks[0] is not head or head is None:
            self._blocks = (head, [block for block in self._snapshot.query.blocks() if block["live"]])
        return self._blocks[1]

    def rows(self, block: dict[str, Any]) -> memoryview:
        """The offset of each record of a block."""
        return memoryview(tables.rows_of(self._snapshot.index, block["id"], OFFSETS)).cast("I")

    def row_from(self, block: dict[str, Any], seq: int) -> int:
        """The first row of a block at or above a sequence."""
        if block["is_dense"]:
            return min(max(seq - int(block["seq_base"]), 0), int(block["rows"]))
        return bisect_left(range(block["rows"]), seq, key=lambda row: self.seq_of(block, row))

    def seq_of(self, block: dict[str, Any], row: int) -> int:
        return loading.seq_at(self._snapshot.index, block["id"], row)

    def byte_of(self, block: dict[str, Any], seq: int) -> int:
        """The offset of a block's first record at or above a sequence; the end of the block when there is none."""
        row = self.row_from(block, seq)
        return int(self.rows(block)[row] if row < block["rows"] else block["size"])

    def byte_before(self, block: dict[str, Any], seq: int) -> int:
        """The offset of a block's last record below a sequence; 0 when there is none."""
        row = self.row_from(block, seq)
        return int(self.rows(block)[row - 1]) if row else 0

    def backlog(self, low: int, high: int, subjects: Sequence[str] = ()) -> TailBacklog:
        return TailBacklog(self, low, max(low, high), subjects)

    def _retried(self, query: Callable[[], Found]) -> Found:
        """Run the query; if the writer has meanwhile removed the block that it reads, refresh and run it again."""
        for _ in range(TRIES_MAX):
            try:
                return query()
            except FileNotFoundError:
                self._snapshot.load_all()
        return query()


@dataclass(slots=True)
class TailBacklog:
    """The messages in (low, high] of a stream that the query has not read yet (`offsets.Backlog`)."""

    tail: Tail
    low: int
    high: int
    subjects: Sequence[str]
    _messages: int | None = None

    def messages(self) -> int:
        if self._messages is None:
            self._messages = self.tail._retried(lambda: self.tail.count(self.low, self.high, self.subjects))
        return self._messages

    def after_messages(self, count: int) -> int:
        if count >= self.messages():
            return self.high
        return self.tail._retried(lambda: self._search(count))

    def _search(self, count: int) -> int:
        """The lowest sequence with `count` messages in (low, sequence]: at least `count` sequences above `low`."""
        below, at = self.low, min(self.low + count, self.high)
        while self.tail.count(self.low, at, self.subjects) < count:
            below, at = at, min(self.low + 2 * (at - self.low), self.high)
        while at - below > 1:
            middle = (below + at) // 2
            if self.tail.count(self.low, middle, self.subjects) < count:
                below = middle
            else:
                at = middle
        return at

    def size(self) -> int:
        """The bytes of the records, including deleted ones between them."""
        return self.tail._retried(lambda: sum(size for _, _, _, size in self._pieces()))

    def after_size(self, size: int) -> int:
        return self.tail._retried(lambda: self._fill(size))

    def _fill(self, size: int) -> int:
        left, at = size, self.low
        for block, start, stop, piece in self._pieces():
            if piece > left:
                first = self.tail.row_from(block, start)
                rows = self.tail.rows(block)
                row = bisect_right(rows, rows[first] + left) - 1
                return self.tail.seq_of(block, row) - 1 if row > first else at
            left -= piece
            at = stop - 1
        return self.high

    def _pieces(self) -> Iterable[tuple[dict[str, Any], int, int, int]]:
        """(block, start, stop, bytes): each block's share of the range."""
        blocks = self.tail.blocks()
        first = max(bisect_right(blocks, self.low + 1, key=lambda block: int(block["first_seq"])) - 1, 0)
        for block in blocks[first:]:
            start, stop = max(block["first_seq"], self.low + 1), min(block["last_seq"], self.high) + 1
            if block["first_seq"] > self.high:
                return
            if start < stop:
                begin = RECORDS_START if start == block["first_seq"] else self.tail.byte_of(block, start)
                end = block["size"] if stop > block["last_seq"] else self.tail.byte_of(block, stop)
                yield block, start, stop, end - begin


class Tails:
    """A query's streams by directory: those that it names, or all of its stores, including streams created later."""

    def __init__(
        self,
        paths: Sequence[str],
        streams: Sequence[str] | None,
        account: str | None = None,
        disk: Disk | None = None,
    ) -> None:
        self._disk = disk or Disk()
        self._stores = [os.path.abspath(path) for path in dict.fromkeys(paths)]
        self._streams, self._account = streams, account
        self._by_root: dict[str, Tail] = {}
        self._found: dict[tuple[str, str], str] = {}  # the folder of a named stream, by store and name
        for store in self._stores:
            require_marker(store, self._disk)
        self._open_new()

    def check_named(self, known_before: Iterable[str] = ()) -> None:
        """StreamNotFound unless each named stream is in one of the stores, or was in one when the query ran before."""
        before = {os.path.basename(root) for root in known_before}
        for name in self._streams or ():
            if name.rpartition("/")[2] not in before and all(
                (store, name) not in self._found for store in self._stores
            ):
                stores = ", ".join(self._stores)
                known = [one for store in self._stores for one in list_streams(store, self._account)]
                raise StreamNotFound(f"stream {name!r} not found in {stores}; there are: {names_of(known) or 'none'}")

    def _open_new(self) -> None:
        for store in self._stores:
            for one in self._missing(store):
                try:
                    self._by_root[one.root] = Tail(one.root, self._disk, one.label)
                except FileNotFoundError:
                    continue  # it is being created or deleted just now: the next refresh decides

    def _missing(self, store: str) -> list[StreamFolder]:
        """The streams that are not followed yet; the files of followed streams are not touched."""
        left = [name for name in self._streams or () if self._found.get((store, name)) not in self._by_root]
        if self._streams is not None and not left:
            return []
        there = [one for one in list_folders(store, self._account) if one.root in self._by_root or is_stream(one.root)]
        if self._streams is not None:
            known = {name for one in there for name in (one.name, one.full_name)}
            named = {name: find_stream(store, there, name, self._account) for name in left if name in known}
            self._found |= {(store, name): one.root for name, one in named.items()}
            there = list(named.values())
        return [one for one in there if one.root not in self._by_root]

    def refresh(self) -> dict[str, Tail]:
        """All streams that exist now, by directory."""
        for tail in self._by_root.values():
            tail.refresh()
        self._open_new()
        return self.now()

    def now(self) -> dict[str, Tail]:
        """The streams as of the last `refresh`, by directory."""
        return {root: tail for root, tail in self._by_root.items() if not tail.is_missing}

    def close(self) -> None:
        for tail in self._by_root.values():
            tail.close()
