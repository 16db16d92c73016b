"""FileStore: a stream in block files. Layout: docs/format.md. What is durable when: ARCHITECTURE.md, "Commit".

All of it that does not touch files stands in base.py; how the files become an index again, in recovery.py.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from penstock.base.clock import SYSTEM, Clock
from penstock.base.disk import Disk
from penstock.base.seq_set import SeqSet
from penstock.base.subject import Filters
from penstock.errors import CorruptBlock, DiskFull, ReadOnlyStore, StoreError, WriteFailed
from penstock.format.block_header import BlockHeader, boot_id
from penstock.format.block_scan import scan_block
from penstock.format.bounds import LEAP_MAX
from penstock.format.constants import REASONS, RECORDS_START
from penstock.format.paths import StreamPaths
from penstock.format.small_file import set_aside, temporary_files
from penstock.format.truncation import Cut, read_cut, write_cut
from penstock.store.base import COMPACT, EVERYTHING, LOST, NEVER, SKIPPED, USER, Store, forget_block_memory
from penstock.store.deletes.deletes_file import BY_USER
from penstock.store.deletes.recorder import DeletesRecorder
from penstock.store.index import loading, tables
from penstock.store.index.agreement import alive_in
from penstock.store.index.checkpoint import BlockRow, Checkpoint
from penstock.store.index.ids_and_expiries import IdsAndExpiries
from penstock.store.index.index import Index
from penstock.store.index.pending_summaries import PendingSummaries
from penstock.store.index.sections import load_section
from penstock.store.index.summary import CONTROLS, decode_summary, encode_summary
from penstock.store.limits import DURABILITIES, Limits
from penstock.store.open.adoption import Adoption
from penstock.store.open.deferred_writes import Opening
from penstock.store.open.recovery import BlockOnDisk, Recovered, Recovery, marks_of, recover, subtract
from penstock.store.open.report import format_ranges
from penstock.store.write import engine_blocks
from penstock.store.write.batch import Batch
from penstock.store.write.commit_log import CommitLog
from penstock.store.write.committer import Committer
from penstock.store.write.engine import StreamEngine

SUBJECT_WEIGHT = 45  # bytes of a subject in a checkpoint, about
CHECKPOINT_WEIGHTS = 4  # times its own size in summaries are written between two checkpoints
CHECKPOINT_AFTER = 16 << 20  # bytes of summaries: a second of an open without one reads a gigabyte of them
MAX_MSGS_PER_SUBJECT = REASONS.index("max_msgs_per_subject")


class FileStore(Store):
    """A stream's messages in files; open until `stop`.

    Always true: the files tell the state up to the last commit, whatever moment the process ends at.
    """

    type = "file"

    def __init__(
        self,
        path: str | os.PathLike[str],
        stream_id: bytes,
        *,
        name: str = "",
        limits: Limits | None = None,
        durability: str = "disk",
        disk: Disk | None = None,
        clock: Clock | None = None,
        committer: Committer | None = None,
    ) -> None:
        if durability not in DURABILITIES:
            raise ValueError(f"durability {durability!r}: one of {', '.join(DURABILITIES)}")
        self.paths = StreamPaths(os.fspath(path))
        self.stream_id = stream_id
        self.disk = disk or Disk()
        self.durability = durability
        self.own_committer = committer is None
        self.committer = committer or Committer()
        self.summaries = PendingSummaries(self.disk, self.paths.blocks, self.committer, self._summary_failed)
        self.boot_id = boot_id()
        limits = limits or Limits()
        super().__init__(name or os.path.basename(self.paths.root), clock or SYSTEM, self._new_engine(), limits)
        try:
            self._open(limits)
        except BaseException as error:
            self.engine.log.detach()
            self._close()
            if isinstance(error, OSError) and error.filename is None:
                error.filename = self.paths.root  # a call on a descriptor does not know its name
            raise

    def _new_engine(self) -> StreamEngine:
        log = CommitLog(self.disk, self.paths.blocks, DURABILITIES.index(self.durability), self.committer)
        engine = StreamEngine(self, Index(), log)
        engine.index.loader = self._load_section
        return engine

    def _begin(self, headers: dict[int, BlockHeader]) -> StreamEngine:
        """An empty core to recover into."""
        self.headers = headers
        self.use_core(self._new_engine())
        self.opening.hold_again()
        return self.engine

    # Opening.

    def _open(self, limits: Limits) -> None:
        self.opening = Opening(self)
        self.uncut: list[tuple[str, int]] = []  # files that still hold what was rolled back; size 0: all of it
        try:
            if self.disk.mkdir(self.paths.root):
                self.disk.sync_folder(os.path.dirname(self.paths.root) or ".")
        except PermissionError as error:
            raise ReadOnlyStore(self.paths.root, "no permission to write there") from error
        except OSError as error:
            if error.errno == errno.EROFS:
                raise ReadOnlyStore(self.paths.root, "the file system is read-only") from error
            raise
        if os.path.lexists(self.paths.blocks) and not os.path.isdir(self.paths.blocks):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.paths.blocks)
        self.opening.do(self._make_blocks_folder)
        self.keeper = DeletesRecorder(self)
        self.keeper.load()
        self.pending_cut: Cut | None = None
        if os.path.exists(self.paths.truncate):
            self._cut_files()
        adoption = Adoption(self)
        is_moved = self.opening.do(adoption.before_open)
        self._recover(limits)
        self.opening.do(lambda: adoption.after_open(is_moved))

    def _make_blocks_folder(self) -> None:
        if self.disk.mkdir(self.paths.blocks):
            self.disk.sync_folder(self.paths.root)

    def _recover(self, limits: Limits, *, is_known: bool = False) -> None:
        """Fill the index from the files, then bring the files into order again, as far as that is possible now;
        `is_known`: this process wrote them, and knows when it took what is in them."""
        do = self.opening.do
        explained = self.pending_cut.explained() if self.pending_cut else None
        report, found = recover(self.disk, self.paths, self.stream_id, self._begin, explained=explained)
        self.voided: set[str] = set()  # blocks with records that were read and are void now: no summary may have them
        if found.doubted and not do(lambda: self._void(found.doubted)):
            self.voided = {path for path, _, _ in found.doubted}
        elif found.doubted:
            report, found = recover(self.disk, self.paths, self.stream_id, self._begin, explained=explained)
        self.report.findings += report.findings
        self.skips, self.lost = found.skips, found.lost
        self.damage: dict[int, list[tuple[int, int]]] = {}
        self.filters: dict[int, bytes] = {
            block.header.block_id: block.subject_filter for block in found.blocks if block.subject_filter
        }
        self.marks = IdsAndExpiries()
        self.unerased: set[int] = set()  # deleted by an erase that has not overwritten their bytes yet
        self.retiring: list[tuple[int, list[int]]] = []
        self.unlinking: list[str] = []  # files of removed blocks, in the order in which they must go
        self.next_block_id = found.next_block_id
        self.numbering = found.numbering or int.from_bytes(os.urandom(8), "little") | 1
        is_clean = found.is_clean
        cut = self.pending_cut
        self.epoch = max(found.epoch, cut.epoch if cut else 0) + (0 if is_clean or cut else 1)
        self.engine.last_time = found.last_time
        found.leftovers += temporary_files(self.paths.root)
        do(lambda: self._tidy(found))
        do(lambda: self._open_head(found))
        do(lambda: self._adopt_last(found, is_clean))
        do(lambda: self._drop_unfit(found))
        self.engine.log.start_at(self.index.last_seq)
        do(lambda: self._begin_head(found))
        if is_known:
            self._forget_leads_above(self.index.last_seq)
        else:
            self._count_ages()
        self._load_expiries(found.expiries)
        self.recovered_marks = IdsAndExpiries()
        self.recovered_blocks: set[int] = set()  # whose marks those are
        for block in found.blocks:
            if len(block.marks):
                self.recovered_marks.extend(block.marks)
                self.recovered_blocks.add(block.header.block_id)
        self.configure(limits)
        self.engine.log.attach()
        if not is_clean and cut is None:
            self.keeper.recover_floors(found.blocks)
        now = self.clock.now_ns()
        self.opening.last_seq = self.index.last_seq
        do(partial(self._record_losses, found, now, self.index.last_seq))
        if cut is not None and not do(lambda: self._finish_cut(cut, now)):
            self._apply_cut(cut)
        if not found.blocks and limits.first_seq > 1 and self.index.last_seq == 0:
            do(lambda: self.compact(limits.first_seq))
        self.unerased.update(found.erased)  # cut short between its record and its bytes: finished now
        do(lambda: self._finish_opening(found.erased))

    def _finish_opening(self, erased: list[int]) -> None:
        for seq in erased:
            self._try(lambda seq=seq: self._overwrite(seq))
        self.engine.log.publish_head(*engine_blocks.last_position(self.engine), False)
        self.enforce_limits()
        if self.index.emptied:
            self._retire()

    def _open_head(self, found: Recovered) -> None:
        if found.head is None and os.path.exists(self.paths.head):
            self.disk.unlink(self.paths.head)  # a slot that lies would count for newer than ours
        self.engine.log.open_head(
            self.paths.head, self.stream_id, self.boot_id, self.epoch, found.head.counter if found.head else 0
        )

    def _drop_unfit(self, found: Recovered) -> None:
        """HEAD will say that all is on disk: no older summary or checkpoint may speak of more than there is."""
        self.summaries.sync()
        if found.checkpoint is None and os.path.exists(self.paths.checkpoint):
            self.disk.unlink(self.paths.checkpoint)
            self.disk.sync_folder(self.paths.root)

    def _begin_head(self, found: Recovered) -> None:
        """Before anything is acknowledged: a HEAD that still said "stopped" after a power cut would hide that we were
        there."""
        self.engine.log.publish_head(*engine_blocks.last_position(self.engine), False)
        self.engine.log.sync_head()
        if found.head is None:
            self.disk.sync_folder(self.paths.root)

    def _void(self, records: list[tuple[str, int, int]]) -> None:
        """Make records that must not be carried out ones that nobody will read as whole: now and for good."""
        for path, offset, size in records:
            fd = self.disk.open(path, "w")
            try:
                self.disk.write(fd, bytes(8), offset + size - 8)
                self.disk.sync(fd)
            finally:
                self.disk.close(fd)

    def _tidy(self, found: Recovered) -> None:
        """Remove our own leftovers, set aside what does not parse, write the summaries that are missing."""
        for paths, take in (
            (found.leftovers, self.disk.unlink),
            (found.empty, self.disk.unlink),
            (
                found.set_aside,
                self._set_aside,
            ),
        ):
            while paths:  # may be called again after a failure
                take(paths[0])
                paths.pop(0)
        for block in found.blocks:
            if block.is_suspect:
                # Both headers are gone, and the summary has a third: put it back, so that this is told once.
                fd = self.disk.open(block.path, "w")
                try:
                    self.disk.write(fd, block.header.encode_front())
                    self.disk.sync(fd)
                finally:
                    self.disk.close(fd)
        for block in found.blocks:
            # Before a new one is written, which may fail: an older one may count subjects by other numbers.
            name = block.path.removesuffix(".blk") + ".sum"
            if block.scan is not None and os.path.lexists(name):
                self.disk.unlink(name)
        for block in found.blocks[:-1]:
            if block.scan is not None and block.path not in self.voided:
                self._write_summary(block.header.block_id, block.all_controls, block.marks, block.scan.damaged())

    def _set_aside(self, path: str) -> None:
        set_aside(self.disk, path)

    def _adopt_last(self, found: Recovered, is_clean: bool) -> None:
        """Go on in the last block after a clean stop; after an unclean one seal it as it is, synced before it is
        served."""
        if not found.blocks:
            return
        last = found.blocks[-1]
        assert last.scan is not None
        block_id = last.header.block_id
        torn = last.scan.torn or last.scan.damage_count
        # One whose header was cut short by a crash holds nothing, and records have no place in it.
        has_room = RECORDS_START <= last.size < RECORDS_START + self.limits.block_size
        if is_clean and not torn and has_room:
            capacity = RECORDS_START + max(self.limits.block_size, last.size) + 131072
            engine_blocks.continue_block(self.engine, last.data[: last.size], capacity, last.scan.control_spans())
            self.marks = last.marks
        else:
            for path in [block.path for block in found.blocks if not block.is_synced]:
                fd = self.disk.open(path, "w")
                try:
                    if path == last.path and not torn and len(last.data) > last.size:
                        self.disk.truncate(fd, last.size)  # zeros, written ahead of records that never came
                    self.disk.sync(fd)
                finally:
                    self.disk.close(fd)
            self.disk.sync_folder(self.paths.blocks)
            if last.path not in self.voided:
                self._write_summary(block_id, last.all_controls, last.marks, last.scan.damaged())
        last.data = b""

    def _record_losses(self, found: Recovered, now: int, last_seq: int) -> None:
        """Write down what is lost, so that it is told once and the sequences up to `last_seq` are never used again."""
        data_last = found.last_seq
        interior = [
            (first, min(last, data_last) + 1) for first, last in found.newly_lost.ranges() if first <= data_last
        ]
        if last_seq > data_last:
            # Sequences that were given out (HEAD knew) and of which there is no record.
            loading.set_ends(self.index, min(self.index.floor, data_last + 1), data_last)
            committed = min(last_seq, max(found.newly_lost.last or 0, data_last))
            if committed > data_last:
                self._skip(data_last + 1, committed - data_last, LOST, now)
            if last_seq > committed:
                self._skip(committed + 1, last_seq - committed, USER, now)
            self.skips.add_range(data_last + 1, last_seq)
        if interior:
            self.engine.log_ranges(interior, LOST, now)
        self.lost.update(found.newly_lost)
        if interior or last_seq > data_last:
            self.commit()

    def _skip(self, first: int, count: int, reason: int, now: int) -> None:
        """Sequences that hold no message. A block that claims the last one there is leaves none to be given out."""
        try:
            self.engine.skip(first, count, reason, now)
        except ValueError as error:
            raise CorruptBlock(self.paths.blocks, 0, f"{error}; `penstock verify` reads what is there") from error

    def go_on_above(self, seq: int) -> None:
        """Somebody has seen sequences up to `seq`: those above our last are lost, and never given out again."""
        first = self.index.last_seq + 1
        if seq < first:
            return
        self.skips.add_range(first, seq)
        self.lost.add_range(first, seq)
        lost = ((first, seq + 1),)
        text = f"a consumer was given messages {format_ranges(lost)}, which are not in the stream any more"
        self.report.add("lost sequences", self.paths.root, text, seqs=lost)
        loading.set_ends(self.index, self.index.floor, seq)
        self.opening.last_seq = seq
        self.opening.do(lambda: self._record_above(first, seq))

    def _record_above(self, first: int, seq: int) -> None:
        loading.set_ends(self.index, self.index.floor, first - 1)
        self._skip(first, seq + 1 - first, LOST, self.clock.now_ns())
        self.commit()

    # Blocks: what the core asks for.

    def block_path(self, block_id: int) -> str:
        header = self.headers.get(block_id)
        return self.paths.block(block_id, header.generation if header else 1)

    def new_block(self, first_seq: int, time: int) -> tuple[int, bytes, bytes, int]:
        """Name a new block: its id, path, the bytes before its records, and its salt."""
        block_id = self.next_block_id
        self.next_block_id += 1
        salt = int.from_bytes(os.urandom(8), "little") | 1
        header = BlockHeader(self.stream_id, block_id, self.epoch, first_seq, first_seq, time, salt)
        self.headers[block_id] = header
        return block_id, os.fsencode(self.paths.block(block_id)), header.encode_front(), salt

    def block_sealed(self, block_id: int, spans: list[tuple[int, int]]) -> None:
        """The active block is full: write its summary and give back what memory can be spared."""
        controls = engine_blocks.parts_of(self.engine, block_id, spans)
        assert self.marks is not None
        self._write_summary(block_id, controls, self.marks, [])
        self._renew_marks()
        forget_block_memory(self.engine)

    def _renew_marks(self) -> None:
        """In place: an append under way notes the next ones here."""
        assert self.marks is not None
        self.marks.clear()

    def _write_summary(
        self, block_id: int, controls: bytes, marks: IdsAndExpiries, damage: list[tuple[int, int]]
    ) -> None:
        index = self.index
        facts = self.query.block(block_id)
        names, subject_filter = tables.names_of(index, block_id)
        ids, expiries = marks.sections(index, block_id)
        data = encode_summary(
            self.headers[block_id],
            facts,
            self.numbering,
            [tables.rows_of(index, block_id, which) for which in range(4)],
            names,
            controls,
            ids,
            expiries,
            damage,
            subject_filter,
        )
        self.filters[block_id] = subject_filter
        self.summary_bytes = getattr(self, "summary_bytes", 0) + len(data)
        path = self.paths.summary(block_id, self.headers[block_id].generation)
        self.summaries.write(path, data)
        tables.release_arrays(index, block_id)

    def _summary_failed(self, path: str, error: OSError) -> None:
        """It is only a convenience: the next open makes it. The records themselves are committed elsewhere."""
        self.report.add("rebuilt", path, f"the summary was not written: {error}")
        if os.path.exists(path):
            self._try(lambda: self.disk.unlink(path))  # an older one does not say what this one would have

    def _load_section(self, block_id: int, which: int, is_doubted: bool) -> bytes:
        """An array of a sealed block: from its summary, else (or where it is doubted) from the block itself."""
        path = self.paths.summary(block_id, self.headers[block_id].generation)
        self.summaries.wait(path)
        try:
            return load_section(self, path, block_id, which, is_doubted)
        except OSError as error:
            raise WriteFailed("read", error.filename or path, error.errno or errno.EIO) from error

    # Commit and its failure.

    def commit(self) -> None:
        if self.is_put_off and not self.engine.log.has_uncommitted:
            return  # a commit of nothing must not pass for one that works
        self.engine.commit()
        self.after_commit()

    @property
    def is_untidy(self) -> bool:
        """Whether `after_commit` has something to do on the disk."""
        return bool(
            self.index.emptied
            or self.retiring
            or self.unlinking
            or 0 <= self.retire_waits_at != self.engine.synced_position
            or self.engine.sealed_count != self.sealed_seen
        )

    def after_commit(self) -> None:
        """Housekeeping that a commit makes possible: dead blocks go, images of sealed blocks too, a checkpoint
        when it is due."""
        # What was committed stays so, whatever happens here.
        if self.engine.is_closed:
            return  # while somebody waited for the commit
        if self.index.emptied or 0 <= self.retire_waits_at != self.engine.synced_position:
            self._try(self._retire)
        elif self.retiring or self.unlinking:
            self._remove_retired()
        if self.engine.sealed_count != self.sealed_seen:
            self.sealed_seen = self.engine.sealed_count
            forget_block_memory(self.engine)
            self._checkpoint_if_due()

    has_void_plan = False  # an ADOPT that nobody may follow could not be removed
    retire_waits_at = -1  # a dead block's bytes were not all on disk when this much was; -1: there is no such block
    sealed_seen = 0
    summary_bytes = 0
    checkpoint_bytes = 0

    def note_mark(self, seq: int, time: int, id_hash: bytes | None, expiry: int, now: int | None = None) -> None:
        super().note_mark(seq, time, id_hash, expiry, now)
        block_id = engine_blocks.sealed_block_of(self.engine, seq)
        if block_id:
            self._mark_summary(block_id, (seq, time, id_hash, expiry))
        else:
            assert self.marks is not None
            self.marks.append(seq, time, id_hash, expiry)

    def _mark_summary(self, block_id: int, mark: tuple[int, int, bytes | None, int]) -> None:
        """Its block was sealed in the same batch: its summary gets the mark after all."""
        path = self.paths.summary(block_id, self.headers[block_id].generation)
        self.summaries.wait(path)
        summary = decode_summary(self.disk.read_file(path), path) if os.path.exists(path) else None
        if summary is not None:  # without one the next open reads the block itself
            marks = marks_of(self.index, summary)
            marks.append(*mark)
            self._write_summary(block_id, bytes(summary.section(CONTROLS)), marks, summary.damage)
            self.summaries.wait(path)  # the older one would be believed, and the mark forgotten

    def commit_failed(self, position: int) -> None:
        """A commit did not succeed: roll back, and tell those whose messages were in it."""
        if self.engine.log.failure() is not None:
            self._roll_back()
        self.check_position(position)

    def _failure(self) -> WriteFailed:
        code, op, path = self.engine.log.failure() or (errno.EIO, "write", self.paths.root)
        if code in (errno.ENOSPC, errno.EDQUOT):
            return DiskFull(op, path, code)
        return WriteFailed(op, path, code)

    def undo_failed(self, error: BaseException) -> None:
        """An append or a delete did not come to its end: what was not committed goes, and its owners are told."""
        if not isinstance(error, StoreError):
            cause = error
            error = WriteFailed("append", self.paths.root, getattr(error, "errno", None) or errno.EIO)
            error.__cause__ = cause
        self._roll_back(error)

    def _roll_back(self, error: StoreError | None = None) -> None:
        """Forget all that is not committed; cut the files back to what is."""
        reason = error or self._failure()

        def note(low: int, high: int) -> None:
            self.failures = [*self.failures[-63:], (low, high, reason)]

        kept, gone = self.engine.undo(note)
        seq = self.engine.committed_seq
        self._forget_above(seq)
        self.keeper.rolled_back()
        self.uncut += [(os.fsdecode(path), 0) for path, is_created in gone if is_created]
        self.uncut += [(self.block_path(block_id), size) for block_id, size, is_created in kept if is_created]
        self._renew_marks()
        self._try(self._cut_back)
        self.opening.hold_again()
        for callback in self.on_rollback:
            callback(seq)

    def _cut_back(self) -> None:
        """Take out of the files what was rolled back, and their summaries with it: the next open makes new ones.

        Nothing new is written before that is done: a record that was refused must not speak again.
        """
        while self.uncut:
            path, size = self.uncut[-1]
            try:
                self.summaries.remove(path.removesuffix(".blk") + ".sum")
                if size == 0 and os.path.exists(path):
                    self.disk.unlink(path)
                elif size:
                    fd = self.disk.open(path, "w")
                    try:
                        self.disk.truncate(fd, size)
                        self.disk.sync(fd)
                    finally:
                        self.disk.close(fd)
            except OSError as error:
                self.engine.log.hold(error.errno or errno.EIO, path)
                raise self._failure() from error
            self.uncut.pop()

    def _try(self, action: object) -> None:
        """A step of cleaning up after a failure, which may fail for the same cause: then recovery does it."""
        assert callable(action)
        try:
            action()
        except (OSError, StoreError) as error:
            self.report.add("clean-up", self.paths.root, f"left for the next open: {error}")

    def retry(self) -> None:
        """Before the next append after a failure: forget what was not committed, write again what was promised."""
        if not self.opening.is_done:
            self.opening.resume()
            return
        error, log = self._failure(), self.engine.log
        if self.durability != "lazy" and log.has_uncommitted:
            self._roll_back()
        log.clear_failure()
        self._cut_back()
        if os.path.exists(self.paths.adopt):
            Adoption(self).resume()
        if (log.is_owing or self.durability == "lazy") and self.engine.sync() < 0:
            raise self._failure() from error

    def _after_adoption(self, subjects: Iterable[bytes]) -> None:
        """Bring the stream within its limits after blocks with messages on these subjects have come in."""
        now, limit = self.clock.now_ns(), self.limits.max_msgs_per_subject
        self._end_future(now)
        if limit > 0:  # first: message by message it comes before the others too
            for subject in subjects:
                alone = Filters([subject], exact=True)
                self.engine.delete_matching(alone, 1, 2**63 - 1, limit, 2**63 - 1, MAX_MSGS_PER_SUBJECT, now)
        self.engine.append(Batch(), 0, 0, now)
        self.expire(now)
        self.commit()
        self._checkpoint_if_due()

    @property
    def is_put_off(self) -> bool:
        """The files are not in order yet (opening.py): the stream can be read, and takes no writes."""
        return self.opening.is_waiting

    def flush_all_pending(self) -> None:
        """Write everything to the files."""
        if self.is_put_off:
            return  # nothing was appended
        if self.engine.write_out() < 0:
            raise self._failure()

    def sync(self) -> None:
        """Write everything to the files and through to the disk."""
        if self.is_put_off and not self.engine.log.has_uncommitted:
            return
        if self.engine.sync() < 0:
            raise self._failure()

    # Blocks that hold nothing any more.

    def _retire(self) -> None:
        """Plan the removal of dead blocks: once the records that say why are on disk."""
        self.index.emptied = False
        blocks = self.query.blocks()
        if not blocks:
            return
        planned = {block_id for _, ids in self.retiring for block_id in ids}
        dead = (
            set(engine_blocks.dead_blocks(self.engine)) - planned - {blocks[-1]["id"]}
        )  # the last one tells the last sequence
        is_waiting = any(
            block["live"] == 0 and block["is_sealed"] and block["id"] not in dead and block["id"] not in planned
            for block in blocks[:-1]
        )
        self.retire_waits_at = self.engine.synced_position if is_waiting else -1
        doomed: list[dict[str, Any]] = []
        # On disk for longer: their rows must not come back, so what tells of them stays.
        keep: list[dict[str, int]] = []
        for block in blocks:
            if block["id"] in dead:
                at = bisect_left(keep, block["target_low"], key=_last_seq)
                if at == len(keep) or keep[at]["first_seq"] > block["target_high"]:
                    doomed.append(block)
                    continue
            keep.append(block)
        if not doomed:
            return
        ids = {block["id"] for block in doomed}
        left = [block for block in blocks if block["id"] not in ids]
        holes = [
            (before["last_seq"] + 1, after["first_seq"])
            for before, after in pairwise(left)
            if before["last_seq"] + 1 < after["first_seq"]
        ]
        # What the blocks held that go is deleted, not lost: a floor below the first that stays, a record of the holes
        # between.
        floor = max(self.index.floor, left[0]["first_seq"])
        tells_floor = [block["id"] for block in blocks if block["target_low"] == 0][-1:]
        is_floor_told = floor == self.index.floor and (floor == 1 or any(one not in ids for one in tells_floor))
        if holes or not is_floor_told:
            now = self.clock.now_ns()
            if not is_floor_told:
                self.engine.log_floor(floor, COMPACT, now)
            self.engine.log_ranges(holes, COMPACT, now)
            skipped = [
                (max(start, first), min(stop, last + 1))
                for start, stop in holes
                for first, last in self.skips.ranges()
                if first < stop and last >= start
            ]
            self.engine.log_ranges(skipped, SKIPPED, now)
            self.index.emptied = True  # in case that this fails
            self.engine.commit()
            self.index.emptied = False
        self.retiring.append((self.engine.position, sorted(ids)))
        self._remove_retired()

    def _remove_retired(self) -> None:
        synced = self.engine.synced_position
        due = sorted(block_id for position, ids in self.retiring if synced >= position for block_id in ids)
        if due and not self.keeper.before_removal(due):
            return
        while self.retiring and synced >= self.retiring[0][0]:
            _, ids = self.retiring.pop(0)
            for block_id in ids:
                path = os.fsdecode(engine_blocks.remove_block(self.engine, block_id))
                header = self.headers.pop(block_id, None)
                self.filters.pop(block_id, None)
                self.unlinking += [path, self.paths.summary(block_id, header.generation if header else 1)]
            loading.drop_ghosts(self.index)
        while self.unlinking:
            # Oldest first, and none before those that it tells of: else their messages would be back at the next open.
            self.summaries.wait(self.unlinking[0])
            try:
                if os.path.exists(self.unlinking[0]):
                    self.disk.unlink(self.unlinking[0])
            except OSError as error:
                self.report.add("clean-up", self.unlinking[0], f"tried again later: {error}")
                return
            self.unlinking.pop(0)

    def raise_floor(self, seq: int, reason: int, now: int) -> int:
        is_by_user = REASONS[reason] in BY_USER and seq > self.index.floor
        taken = self.keeper.alive_below(seq) if is_by_user else None
        purged = super().raise_floor(seq, reason, now)
        if taken is not None:
            self.keeper.note_floor(reason, seq, taken)
        return purged

    # Erase.

    def erase(self, seq: int) -> bool:
        """Delete one message and overwrite its headers and payload on disk: first the record that says so, then
        the bytes."""
        if not 0 < seq < 2**63:
            return False
        self.expire_if_due()
        now = self.clock.now_ns()
        if self.engine.delete(seq, USER, now):
            self.engine.log_erase(seq, now)
            self.engine.commit()
            self.unerased.add(seq)
        elif seq not in self.unerased:
            return False
        self.sync()
        self._overwrite(seq)
        self.after_commit()  # not before: a block that goes may come back after a power cut, with what it said
        return True

    def _overwrite(self, seq: int) -> None:
        """The second half of an erase; may be repeated."""
        try:
            found = engine_blocks.overwrite(self.engine, seq, os.urandom)
            if found is not None:
                block_id, offset, data = found
                fd = engine_blocks.descriptor(self.engine, block_id)
                self.disk.write(fd, data, offset)
                self.disk.sync(fd)
        except OSError as error:
            raise WriteFailed("erase", self.paths.blocks, error.errno or errno.EIO) from error
        self.unerased.discard(seq)

    # Checkpoint and stop.

    @property
    def is_checkpoint_due(self) -> bool:
        # What the next one would weigh, by its subjects: writing it costs more than reading as many summaries does.
        weight = max(self.checkpoint_bytes, self.index.name_count * SUBJECT_WEIGHT)
        return self.summary_bytes > max(CHECKPOINT_WEIGHTS * weight, CHECKPOINT_AFTER)

    def _checkpoint_if_due(self) -> None:
        if self.is_checkpoint_due:
            self._try(self._write_state)

    def write_checkpoint(self) -> None:
        """Sync everything, then write the state as of now."""
        self.sync()
        try:
            self._write_state()
        except OSError as error:
            raise WriteFailed("write", self.paths.checkpoint, error.errno or errno.EIO) from error

    def _write_state(self) -> None:
        """Write the checkpoint. It may run ahead of un-synced blocks: an open that finds them shorter does without."""
        self.keeper.before_checkpoint()
        index = self.index
        rows = []
        for block in self.query.blocks():
            block_id = block["id"]
            header = self.headers[block_id]
            rows.append(
                BlockRow(
                    block_id=block_id,
                    generation=header.generation,
                    first_seq=block["first_seq"],
                    last_seq=block["last_seq"],
                    seq_base=block["seq_base"],
                    base_seq=block["base_seq"],
                    salt=block["salt"],
                    size=block["size"],
                    message_bytes=block["bytes"],
                    live_bytes=block["live_bytes"],
                    target_low=block["target_low"],
                    target_high=block["target_high"],
                    last_checksum=block["last_checksum"],
                    base_time=block["base_time"],
                    time_min=block["time_min"],
                    time_max=block["time_max"],
                    rows=block["rows"],
                    live=block["live"],
                    is_dense=block["is_dense"],
                    dead=tables.dead_rows(index, block_id),
                    subject_filter=self.filters.get(block_id, b""),
                )
            )
        block_id, offset = engine_blocks.last_position(self.engine)
        ahead = self.clock.offset_ns
        expiries = [(seq, due + ahead) for seq, due in self.wheel.entries() if seq >= index.first_seq]
        checkpoint = Checkpoint(
            stream_id=self.stream_id,
            epoch=self.epoch,
            block_id=block_id,
            offset=offset,
            first_seq=index.first_seq,
            last_seq=index.last_seq,
            num_subjects=index.name_count,
            last_time=self.engine.last_time,
            messages=index.messages,
            message_bytes=index.bytes,
            numbering=self.numbering,
            floor=index.floor,
            blocks=rows,
            subjects=tables.pack_subjects(index),
            expiries=sorted(expiries + [(seq, NEVER) for seq in self.exempt if seq >= index.first_seq]),
            skips=[(first, last + 1) for first, last in self.skips.ranges() if last >= index.floor],
            lost=[(first, last + 1) for first, last in self.lost.ranges()],
        )
        self.summaries.sync()
        data = checkpoint.encode()
        self.disk.write_file(self.paths.checkpoint, data)
        self.checkpoint_bytes = len(data)
        self.summary_bytes = 0

    def prepare_checkpoint(self) -> None:
        self._try(self.summaries.sync)

    def stop(self) -> None:
        """Commit, write the checkpoint, say in HEAD that all is in order. Writes are refused from now on."""
        if self.engine.is_closed:
            return
        failed: StoreError | None = None
        self.engine.log.detach()
        try:
            if self.is_put_off and not self._is_ready():
                return  # nothing was written: the next open finds the files as this one did
            if self.engine.log.failure() is not None:
                self.retry()
            self.sync()
            self._remove_retired()
            self.write_checkpoint()
            self.engine.log.publish_head(*engine_blocks.last_position(self.engine), True)
            self.engine.log.sync_head()
        except OSError as error:
            failed = WriteFailed("close", self.paths.root, error.errno or errno.EIO)
            failed.__cause__ = error
        except StoreError as error:
            failed = error
        finally:
            self._close()
        if failed is not None:
            raise failed

    def _is_ready(self) -> bool:
        try:
            self.opening.resume()
        except WriteFailed:
            return False
        return True

    def _close(self) -> None:
        self.engine.is_closed = True
        self.opening.forget()
        self.summaries.close()
        self.release()
        self.headers, self.filters = {}, {}
        if self.own_committer:
            self.committer.stop()

    def abandon(self) -> None:
        """Let go of the files without writing anything: as a crash would, but for the memory."""
        if not self.engine.is_closed:
            self.engine.log.detach()
            self._close()

    def delete(self) -> None:
        """Remove the stream's blocks and state for good."""
        self.engine.log.detach()
        self._close()
        for path in self._files():
            self.disk.unlink(path)
        self.disk.rmdir(self.paths.blocks)

    def _files(self) -> Iterator[str]:
        for name in sorted(os.listdir(self.paths.blocks), reverse=True):
            yield os.path.join(self.paths.blocks, name)
        paths = self.paths
        for path in (
            paths.checkpoint, paths.head, paths.truncate, paths.adopt, paths.batches, paths.batches_copy, paths.deletes
        ):  # fmt: skip
            if os.path.exists(path):
                yield path

    # Truncate: the one operation that takes sequences back. It is written down first and finished by the next open
    # if need be.

    def truncate(self, seq: int) -> None:
        """Delete everything above `seq`; the next sequence follows it. 0 begins anew. The epoch rises."""
        if not 0 <= seq < 2**63:
            raise ValueError(f"sequence {seq}: sequences are below 2^63")
        if seq >= self.index.last_seq:
            return
        self.sync()
        self.keeper.before_cut()
        dead = SeqSet()
        for first, last in self.query.deleted().ranges():
            if first <= seq:
                dead.add_range(first, min(last, seq))
        skips = SeqSet()
        for first, last in self.skips.ranges():
            if first <= seq:
                skips.add_range(first, min(last, seq))
        floor = min(max(self.index.floor, self.index.first_seq), seq + 1)
        keeps = self.index.messages - self.query.pending(EVERYTHING, seq + 1)
        try:
            write_cut(self.disk, self.paths, Cut(seq, floor, self.epoch + 1, dead, skips, keeps))
        except OSError as error:
            self._forget_cut(error)
        self.engine.log.detach()
        self.summaries.finish()
        self.engine.close_files()
        try:
            self._cut_files(is_ours=True)
            self.wheel.clear()
            self.exempt.clear()
            self.opening = Opening(self, is_strict=True)
            self._recover(self.limits, is_known=True)
        except (OSError, StoreError) as error:
            # It is written down: the next open finishes it.
            self.engine.log.detach()
            self._close()
            raise WriteFailed("truncate", self.paths.root, getattr(error, "errno", None) or errno.EIO) from error

    def _forget_cut(self, cause: OSError) -> None:
        """The plan of a truncation was not written down whole: none of it may be left for the next open to follow."""
        failed = WriteFailed("write", self.paths.truncate, cause.errno or errno.EIO)
        try:
            if os.path.exists(self.paths.truncate):
                self.disk.unlink(self.paths.truncate)
                self.disk.sync_folder(self.paths.root)
        except OSError:
            self.abandon()
        raise failed from cause

    def _cut_files(self, *, is_ours: bool = False) -> None:
        """Cut the files as TRUNCATE says. May be repeated: each step leaves a store that the next attempt can cut."""
        try:
            cut = read_cut(self.disk, self.paths)
            blocks = self._blocks_below(cut) if cut is not None else []
        except CorruptBlock as damage:
            if is_ours:
                raise
            self._set_aside(self.paths.truncate)
            text = f"{damage.reason}: a truncation was under way, and what it had not cut off yet stays"
            self.report.add("set aside", self.paths.truncate, text)
            return
        assert cut is not None
        self.keeper.cut(cut.seq)
        for path in (self.paths.checkpoint, self.paths.head):
            if os.path.exists(path):
                self.disk.unlink(path)
        for block in reversed(blocks):
            summary = block.path.removesuffix(".blk") + ".sum"
            if block.header.first_seq > cut.seq:
                self.disk.unlink(block.path)
            elif os.path.getsize(block.path) == block.size:
                continue
            else:
                fd = self.disk.open(block.path, "w")
                try:
                    self.disk.truncate(fd, block.size)
                    self.disk.sync(fd)
                finally:
                    self.disk.close(fd)
            if os.path.exists(summary):
                self.disk.unlink(summary)
        self.disk.sync_folder(self.paths.blocks)
        self.disk.sync_folder(self.paths.root)
        self.pending_cut = cut

    def _blocks_below(self, cut: Cut) -> list[BlockOnDisk]:
        """All blocks, each as far as it stays. CorruptBlock where the plan does not fit them: nothing is touched
        then."""
        scratch = Recovery(self.disk, self.paths, self.stream_id, self._new_engine(), self.report)
        blocks = scratch.list_blocks()
        kept, is_whole, last_seq = 0, True, 0
        for block in blocks:
            if block.header.first_seq > cut.seq:
                continue
            scratch.scan(block, cut.seq + 1)
            assert block.scan is not None
            alive, last = alive_in(block.scan, cut.dead, cut.floor)
            kept, last_seq = kept + alive, max(last_seq, last)
            is_whole = is_whole and not block.scan.damage_count and (not block.scan.torn or block.goes_on())
            block.scan.drop_rows()
            block.data = b""
        if is_whole and cut.keeps not in (None, kept):
            raise CorruptBlock(self.paths.truncate, 0, f"it keeps {cut.keeps} messages, and there are {kept}")
        missing = subtract((last_seq + 1, cut.seq + 1), (cut.explained(),)) if last_seq < cut.seq else []
        if sum(stop - start for start, stop in missing) > (0 if is_whole else LEAP_MAX):
            raise CorruptBlock(self.paths.truncate, 0, f"it keeps messages up to {cut.seq}, and the last is {last_seq}")
        return blocks

    def _finish_cut(self, cut: Cut, now: int) -> None:
        """Write again the control records that stood in the part that was cut off, then forget the plan."""
        seq, floor, dead = cut.seq, cut.floor, cut.dead
        if self.is_cut_applied:
            loading.set_ends(self.index, self.index.floor, self.cut_last)
        if seq > self.index.last_seq:
            # The last sequences that stay were deleted, and no record of them is left.
            self._skip(self.index.last_seq + 1, seq - self.index.last_seq, COMPACT, now)
        if self.is_cut_applied and floor > 1:
            self.engine.log_floor(floor, COMPACT, now)
        elif floor > self.index.floor and floor <= self.index.last_seq + 1:
            self.engine.set_floor(floor, COMPACT, now)
        left: list[tuple[int, int]] = []
        for first, last in dead.ranges():
            left += subtract((first, last + 1), (self.skips,))
            self.engine.delete_all(
                range(first, last + 1), COMPACT, now
            ) if last - first < 1 << 20 else loading.kill_range(self.index, first, last + 1)
        self.engine.log_ranges(left, COMPACT, now)
        self.engine.log_ranges([(first, last + 1) for first, last in cut.skips.ranges()], SKIPPED, now)
        self.skips.update(cut.skips)
        self.commit()
        self.pending_cut, self.is_cut_applied = None, False
        self.write_checkpoint()
        self.disk.unlink(self.paths.truncate)
        self.disk.sync_folder(self.paths.root)

    is_cut_applied = False
    cut_last = 0

    def _apply_cut(self, cut: Cut) -> None:
        """It cannot be written again now; who reads meanwhile does not see what was deleted before."""
        self.cut_last = self.index.last_seq
        if cut.seq > self.cut_last:
            loading.set_ends(self.index, self.index.floor, cut.seq)
            self.engine.log.start_at(cut.seq)
            self.opening.last_seq = cut.seq
        loading.raise_floor(self.index, cut.floor)
        for first, last in cut.dead.ranges():
            loading.kill_range(self.index, first, last + 1)
        loading.find_ghosts(self.index)
        loading.forget_changes(self.index)
        self.is_cut_applied = True

    def reset(self) -> None:
        """Begin anew: nothing stored, the next sequence is 1."""
        self.truncate(0)

    def recent_marks(self, since_ns: int) -> IdsAndExpiries:
        """The marks of the blocks that hold messages stored since a time, in rising sequences: for the dedupe window
        of a stream that was just opened."""
        recent = []
        for block in reversed(self.query.blocks()):
            if not block["rows"] or not block["is_sealed"]:
                continue
            if block["time_max"] < since_ns:
                break
            if block["id"] not in self.recovered_blocks:
                recent.append(block["id"])
        found = IdsAndExpiries()
        for block_id in reversed(recent):
            found.extend(self._marks_in(block_id))
        found.extend(self.recovered_marks)
        found.put_in_order()
        self.recovered_marks, self.recovered_blocks = IdsAndExpiries(), set()
        return found

    def _marks_in(self, block_id: int) -> IdsAndExpiries:
        """The message ids and expiries of a sealed block: from its summary, else from its records."""
        header = self.headers[block_id]
        path = self.paths.summary(block_id, header.generation)
        self.summaries.wait(path)
        summary = decode_summary(self.disk.read_file(path), path) if os.path.exists(path) else None
        if summary is not None:
            return marks_of(self.index, summary)
        data = self.disk.read_file(self.block_path(block_id))
        scan = scan_block(
            data,
            min(RECORDS_START, len(data)),
            len(data),
            base_seq=header.base_seq,
            base_time=header.base_time,
            salt=header.salt,
            seq_min=header.first_seq,
        )
        return IdsAndExpiries.of_scan(scan, data)


def _last_seq(block: dict[str, int]) -> int:
    return block["last_seq"]
