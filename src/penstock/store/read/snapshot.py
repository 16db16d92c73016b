"""Snapshot: a stream as a reader in another process sees it, with or without a running writer. It writes nothing.

A snapshot ends at the position that HEAD says is committed; `refresh` continues from there. Without a valid HEAD it
ends at the last whole record.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial

from penstock.base.clock import SYSTEM, Clock
from penstock.base.disk import Disk
from penstock.base.seq_set import SeqSet
from penstock.errors import CorruptBlock, ReadOnlyStore, StoreError
from penstock.format.block_header import BlockHeader, boot_id
from penstock.format.block_scan import scan_block
from penstock.format.head import Head, decode_head
from penstock.format.paths import StreamPaths
from penstock.store.base import EVERYTHING, NEVER, Store
from penstock.store.index import loading, tables
from penstock.store.index.index import Index
from penstock.store.index.sections import load_section
from penstock.store.limits import Limits
from penstock.store.open.block_on_disk import BlockOnDisk
from penstock.store.open.control_records import apply_controls
from penstock.store.open.recovery import Recovered, recover
from penstock.store.open.report import Report
from penstock.store.read.message import Message
from penstock.store.read.reader import Reader
from penstock.store.write import engine_blocks
from penstock.store.write.commit_log import CommitLog
from penstock.store.write.engine import StreamEngine

DURABLE_OS = 1
TRIES_MAX = 20  # a writer may remove or roll blocks while we list them


class StaleCore(FileNotFoundError):
    """A reader that began before a reload needs data that only the reloaded engine has: it has to begin again."""


class Snapshot(Store):
    """The committed part of a stream's files at one moment."""

    type = "file"
    is_writable = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        stream_id: bytes,
        *,
        name: str = "",
        limits: Limits | None = None,
        disk: Disk | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.paths = StreamPaths(os.fspath(path))
        self.stream_id = stream_id
        self.disk = disk or Disk()
        self.head: Head | None = None
        self.seen: Head | None = None  # HEAD as it was read, even when it does not fit the blocks
        self.reloads = 0
        name = name or os.path.basename(self.paths.root)
        super().__init__(name, clock or SYSTEM, self._new_engine(), limits or Limits())
        self.next_due = NEVER  # a snapshot expires nothing: the writer does
        self.load_all()

    def _new_engine(self) -> StreamEngine:
        engine = StreamEngine(self, Index(), CommitLog(self.disk, self.paths.blocks, DURABLE_OS, None))
        self.reloads += 1
        engine.index.loader = partial(self._load_section, self.reloads)
        return engine

    def _begin(self, headers: dict[int, BlockHeader]) -> StreamEngine:
        """An empty engine to recover into."""
        self.headers = headers
        self.use_engine(self._new_engine())
        return self.engine

    def read_head(self) -> Head | None:
        """The current HEAD; a store that was never written has none."""
        try:
            return decode_head(self.disk.read_file(self.paths.head), self.stream_id)
        except FileNotFoundError:
            return None

    def load_all(self) -> None:
        """Read the whole state from the files again."""
        for tries in range(TRIES_MAX):
            head = self.read_head()
            limit = (head.block_id, head.offset) if head is not None and head.block_id else None
            if head is not None and head.boot_id != boot_id() and not head.is_stopped:
                limit = None  # after a power cut the blocks may hold more than the HEAD that reached the disk
            try:
                report, found = self._recover(limit, head)
            except FileNotFoundError:
                if tries == TRIES_MAX - 1:
                    raise
                continue  # the writer removed a block meanwhile
            if limit is None or limit[0] in self.headers:
                break
            now = self.read_head()
            if now is None or head is None or now.counter == head.counter:
                break  # HEAD's block is gone for good; recovery has reported what is lost
            # The writer went on and removed the block of the HEAD that was read: our state is older than the files.
        self.report, self.head, self.seen = report, found.head, head
        head = found.head  # None as well when HEAD does not fit the blocks
        engine = self.engine
        self.filters = {block.header.block_id: block.subject_filter for block in found.blocks if block.subject_filter}
        self.skips, self.lost = found.skips, found.lost
        self.newly_lost = found.newly_lost  # no writer has recorded this loss yet: a scan reports where the damage is
        self.lost.update(found.newly_lost)
        self.epoch = head.epoch if head is not None else found.epoch
        engine.last_time = found.last_time
        if head is not None:
            # Messages beyond the committed position were not acknowledged.
            loading.set_ends(engine.index, engine.index.floor, max(head.committed_seq, found.last_seq))
        engine.log.start_at(engine.index.last_seq)

    def _recover(self, limit: tuple[int, int] | None, head: Head | None) -> tuple[Report, Recovered]:
        return recover(self.disk, self.paths, self.stream_id, self._begin, limit, head=head)

    def unrecorded_losses(self) -> SeqSet:
        """The lost sequences that no writer has recorded yet, up to HEAD: later ones came while the files were read."""
        found = SeqSet()
        committed = self.head.committed_seq if self.head is not None else NEVER
        for first, last in self.newly_lost.ranges():
            if first <= committed:
                found.add_range(first, min(last, committed))
        return found

    def refresh(self) -> bool:
        """Advance to what is committed now; True when there is anything new."""
        head = self.read_head()
        if head is None or head == self.seen:  # the counter alone is not enough: a truncation restarts it
            return False
        old = self.head
        if old is not None and old.block_id == head.block_id and old.epoch == head.epoch and old.offset <= head.offset:
            try:
                self._extend(old, head)
            except FileNotFoundError:
                self.load_all()  # the writer removed the block since it wrote HEAD
        else:
            self.load_all()
        return True

    def _extend(self, old: Head, head: Head) -> None:
        """Add the records between two positions of the last block."""
        index, header = self.index, self.headers.get(head.block_id)
        if header is None:
            self.load_all()
            return
        path = self.block_path(head.block_id)
        fd = self.disk.open(path)
        try:
            stop = max(min(head.offset, self.disk.size(fd)), old.offset)
            data = self.disk.read(fd, stop - old.offset, old.offset)
        finally:
            self.disk.close(fd)
        scan = scan_block(
            data,
            0,
            len(data),
            base_seq=header.base_seq,
            base_time=header.base_time,
            salt=header.salt,
            seq_min=header.first_seq,
        )
        counted = loading.row_count(index, head.block_id)
        loading.fill_from_scan(index, head.block_id, scan, data, old.offset)
        engine_blocks.set_size(self.engine, head.block_id, old.offset + len(data))
        loading.count_rest(index, head.block_id, counted, *tables.dead_and_live(index, head.block_id, counted))
        controls = b"".join(data[at : at + size] for at, size in scan.control_spans())
        block = BlockOnDisk(path, header, old.offset + len(data), controls=controls)
        floor, gone, _ = apply_controls([block], self.skips, self.lost, index, index.floor)
        last_seq = max(head.committed_seq, index.last_seq)
        loading.set_ends(index, index.floor, last_seq)
        loading.raise_floor(index, floor)
        for first, last in gone.ranges():
            loading.drop_range(index, first, last + 1)
        loading.set_ends(index, max(floor, 1), last_seq)
        loading.forget_changes(index)
        self.engine.log.start_at(last_seq)
        self.head = self.seen = head

    def read(
        self, filters: Sequence[str] = EVERYTHING, start_seq: int = 1, stop_seq: int = 2**63 - 1
    ) -> Iterator[Message]:
        """The live messages as of the last refresh; when the writer removed a block meanwhile, of a reloaded state."""
        reader = Reader(self.engine, filters, start_seq, stop_seq)
        while True:
            try:
                yield from reader
                return
            except FileNotFoundError:
                next_seq = max(reader.next_seq - 1, 1)
                self.load_all()
                reader = Reader(self.engine, filters, next_seq, stop_seq)

    def damaged_record(self, block_id: int, offset: int, seq: int) -> None:
        raise CorruptBlock(self.block_path(block_id), offset, f"message {seq}: the checksum differs")

    def _load_section(self, reload: int, block_id: int, which: int, is_doubted: bool) -> bytes:
        if reload != self.reloads:
            raise StaleCore(f"{self.paths.root} was read anew")
        path = self.paths.summary(block_id, self.headers[block_id].generation)
        return load_section(self, path, block_id, which, is_doubted)

    def block_path(self, block_id: int) -> str:
        header = self.headers.get(block_id)
        return self.paths.block(block_id, header.generation if header else 1)

    def _refuse(self) -> StoreError:
        return ReadOnlyStore(self.paths.root)

    def new_block(self, first_seq: int, time: int) -> tuple[int, bytes, bytes, int]:
        raise self._refuse()

    def append(self, batch: object, start: int = 0, stop: int | None = None, ids: object = None) -> int:
        raise self._refuse()

    def remove(self, seq: int, reason: int = 0) -> bool:
        raise self._refuse()

    def remove_many(self, seqs: object, reason: int = 0) -> int:
        raise self._refuse()

    def erase(self, seq: int) -> bool:
        raise self._refuse()

    def purge_ex(self, subject: str = "", seq: int = 0, keep: int = 0) -> int:
        raise self._refuse()

    def compact(self, seq: int, reason: int = 0) -> int:
        raise self._refuse()

    def skip(self, count: int = 1) -> int:
        raise self._refuse()

    def truncate(self, seq: int) -> None:
        raise self._refuse()

    def stop(self) -> None:
        if not self.engine.is_closed:
            self.release()


__all__ = ["Snapshot", "StaleCore"]
