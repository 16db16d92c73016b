"""Opening: from the files of a stream to a store that takes writes. The steps in order: ARCHITECTURE.md, "Opening".

Recovery (recovery.py) reads and writes nothing: after it the stream can be read. Here its files are brought into order,
step by step; the steps that the disk refuses are put off (deferred_writes.py).
"""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import CorruptBlock, ReadOnlyStore
from penstock.format.block_header import BlockHeader
from penstock.format.constants import RECORDS_START
from penstock.format.small_file import set_aside, temporary_files
from penstock.store.base import LOST, USER
from penstock.store.index import loading
from penstock.store.index.ids_and_expiries import IdsAndExpiries
from penstock.store.limits import Limits
from penstock.store.open.adoption import Adoption
from penstock.store.open.block_on_disk import BlockOnDisk
from penstock.store.open.recovery import Recovered, recover
from penstock.store.open.report import format_ranges
from penstock.store.write import engine_blocks
from penstock.store.write.engine import StreamEngine

if TYPE_CHECKING:
    from penstock.store.file_store import FileStore

DoOrPutOff = Callable[[Callable[[], object]], bool]
IMAGE_MARGIN = 131072  # bytes of an image beyond the block's size, for control records


class Opening:
    """Opens one store, and fills its index anew after a truncation."""

    def __init__(self, store: FileStore) -> None:
        self.store: FileStore = weakref.proxy(store)  # it owns us, and is freed without the garbage collector
        self.voided: set[str] = set()  # blocks with records that were read and are void now: no summary may list them

    def open(self, limits: Limits) -> None:
        """Make the folders, finish what another process left half done, and recover."""
        store = self.store
        do = store.deferred_writes.do
        self._make_root()
        do(self._make_blocks_folder)
        store.deletes.load()
        if os.path.exists(store.paths.truncate):
            store.truncation.cut_files()
        adoption = Adoption(store)
        is_moved = do(adoption.before_open)
        self.recover(limits)
        do(lambda: adoption.after_open(is_moved))

    def _make_root(self) -> None:
        store = self.store
        try:
            if store.disk.mkdir(store.paths.root):
                store.disk.sync_folder(os.path.dirname(store.paths.root) or ".")
        except PermissionError as error:
            raise ReadOnlyStore(store.paths.root, "no permission to write there") from error
        except OSError as error:
            if error.errno == errno.EROFS:
                raise ReadOnlyStore(store.paths.root, "the file system is read-only") from error
            raise
        if os.path.lexists(store.paths.blocks) and not os.path.isdir(store.paths.blocks):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), store.paths.blocks)

    def _make_blocks_folder(self) -> None:
        if self.store.disk.mkdir(self.store.paths.blocks):
            self.store.disk.sync_folder(self.store.paths.root)

    def _begin(self, headers: dict[int, BlockHeader]) -> StreamEngine:
        """An empty engine to recover into."""
        store = self.store
        store.files.headers = headers
        store.use_engine(store.new_engine())
        store.deferred_writes.hold_again()
        return store.engine

    def recover(self, limits: Limits, *, is_known: bool = False) -> None:
        """Fill the index from the files, then bring the files into order again, as far as that is possible now;
        `is_known`: this process wrote them, and knows when it took what is in them."""
        store = self.store
        do, cut = store.deferred_writes.do, store.truncation.pending
        found = self._read(do)
        store.skips, store.lost = found.skips, found.lost
        store.files.recovered(found)
        store.active_ids = IdsAndExpiries()
        store.unerased = set()
        store.removal.forget_plans()
        is_clean = found.is_clean
        store.epoch = max(found.epoch, cut.epoch if cut else 0) + (0 if is_clean or cut else 1)
        store.engine.last_time = found.last_time
        found.leftovers += temporary_files(store.paths.root)
        do(lambda: self._tidy(found))
        do(lambda: self._open_head(found))
        do(lambda: self._continue_or_seal_last(found, is_clean))
        do(lambda: self._drop_unfit(found))
        store.engine.log.start_at(store.index.last_seq)
        do(lambda: self._begin_head(found))
        if is_known:
            store.forget_leads_above(store.index.last_seq)
        else:
            store.count_ages()
        store.load_expiries(found.expiries)
        store.files.keep_recovered_ids(found)
        store.configure(limits)
        store.engine.log.attach()
        if not is_clean and cut is None:
            store.deletes.recover_floors(found.blocks)
        now = store.clock.now_ns()
        store.deferred_writes.last_seq = store.index.last_seq
        do(partial(self._record_losses, found, now, store.index.last_seq))
        if cut is not None and not do(lambda: store.truncation.finish(cut, now)):
            store.truncation.apply(cut)
        if not found.blocks and limits.first_seq > 1 and store.index.last_seq == 0:
            do(lambda: store.compact(limits.first_seq))
        store.unerased.update(found.erased)  # cut short between its record and its bytes: finished now
        do(lambda: self._finish(found.erased))

    def _read(self, do: DoOrPutOff) -> Recovered:
        """What the files hold; deletes that must not be carried out are made void in them, and read again without."""
        store = self.store
        cut = store.truncation.pending
        explained = cut.explained() if cut else None
        report, found = recover(store.disk, store.paths, store.stream_id, self._begin, explained=explained)
        self.voided = set()
        if found.doubted and not do(lambda: self._void(found.doubted)):
            self.voided = {path for path, _, _ in found.doubted}
        elif found.doubted:
            report, found = recover(store.disk, store.paths, store.stream_id, self._begin, explained=explained)
        store.report.findings += report.findings
        return found

    def _void(self, records: list[tuple[str, int, int]]) -> None:
        """Overwrite the checksums of records that must not be carried out, so that nobody reads them as whole."""
        disk = self.store.disk
        for path, offset, size in records:
            fd = disk.open(path, "w")
            try:
                disk.write(fd, bytes(8), offset + size - 8)
                disk.sync(fd)
            finally:
                disk.close(fd)

    def _tidy(self, found: Recovered) -> None:
        """Remove our own leftovers, set aside what does not parse, write the summaries that are missing."""
        store = self.store
        for paths, remove in (
            (found.leftovers, store.disk.unlink),
            (found.empty, store.disk.unlink),
            (found.set_aside, partial(set_aside, store.disk)),
        ):
            while paths:  # may be called again after a failure
                remove(paths[0])
                paths.pop(0)
        for block in found.blocks:
            if block.is_suspect:
                # Both headers are gone, and the summary has a third: put it back, so that this is told once.
                fd = store.disk.open(block.path, "w")
                try:
                    store.disk.write(fd, block.header.encode_front())
                    store.disk.sync(fd)
                finally:
                    store.disk.close(fd)
        for block in found.blocks:
            # Before a new one is written, which may fail: an older one may count subjects by other numbers.
            name = block.path.removesuffix(".blk") + ".sum"
            if block.scan is not None and os.path.lexists(name):
                store.disk.unlink(name)
        for block in found.blocks[:-1]:
            if block.scan is not None:
                self._write_summary(block)

    def _write_summary(self, block: BlockOnDisk) -> None:
        """The summary of a block that was scanned."""
        assert block.scan is not None
        if block.path not in self.voided:
            self.store.files.write_summary(
                block.header.block_id, block.all_controls, block.ids_and_expiries, block.scan.damaged()
            )

    def _open_head(self, found: Recovered) -> None:
        store = self.store
        if found.head is None and os.path.exists(store.paths.head):
            store.disk.unlink(store.paths.head)  # a slot that lies would count for newer than ours
        counter = found.head.counter if found.head else 0
        store.engine.log.open_head(store.paths.head, store.stream_id, store.boot_id, store.epoch, counter)

    def _continue_or_seal_last(self, found: Recovered, is_clean: bool) -> None:
        """Continue the last block after a clean stop; after an unclean one seal it as it is, synced before it is
        served."""
        if not found.blocks:
            return
        store, last = self.store, found.blocks[-1]
        assert last.scan is not None
        torn = last.scan.torn or last.scan.damage_count
        # One whose header was cut short by a crash holds nothing, and records have no place in it.
        has_space = RECORDS_START <= last.size < RECORDS_START + store.limits.block_size
        if is_clean and not torn and has_space:
            capacity = RECORDS_START + max(store.limits.block_size, last.size) + IMAGE_MARGIN
            engine_blocks.continue_block(store.engine, last.data[: last.size], capacity, last.scan.control_spans())
            store.active_ids = last.ids_and_expiries
        else:
            for path in [block.path for block in found.blocks if not block.is_synced]:
                fd = store.disk.open(path, "w")
                try:
                    if path == last.path and not torn and len(last.data) > last.size:
                        store.disk.truncate(fd, last.size)  # zeros, written ahead of records that never came
                    store.disk.sync(fd)
                finally:
                    store.disk.close(fd)
            store.disk.sync_folder(store.paths.blocks)
            self._write_summary(last)
        last.data = b""

    def _drop_unfit(self, found: Recovered) -> None:
        """HEAD will say that all is on disk: no older summary or checkpoint may speak of more than there is."""
        store = self.store
        store.files.summaries.sync()
        if found.checkpoint is None and os.path.exists(store.paths.checkpoint):
            store.disk.unlink(store.paths.checkpoint)
            store.disk.sync_folder(store.paths.root)

    def _begin_head(self, found: Recovered) -> None:
        """Before anything is acknowledged: a HEAD that still said "stopped" after a power cut would hide that we were
        there."""
        store = self.store
        store.engine.log.publish_head(*engine_blocks.last_position(store.engine), False)
        store.engine.log.sync_head()
        if found.head is None:
            store.disk.sync_folder(store.paths.root)

    def _record_losses(self, found: Recovered, now: int, last_seq: int) -> None:
        """Write down what is lost, so that it is told once and the sequences up to `last_seq` are never used again."""
        store = self.store
        data_last = found.last_seq
        interior = [
            (first, min(last, data_last) + 1) for first, last in found.newly_lost.ranges() if first <= data_last
        ]
        if last_seq > data_last:
            # Sequences that were given out (HEAD knew) and of which there is no record.
            loading.set_ends(store.index, min(store.index.floor, data_last + 1), data_last)
            committed = min(last_seq, max(found.newly_lost.last or 0, data_last))
            if committed > data_last:
                self.skip(data_last + 1, committed - data_last, LOST, now)
            if last_seq > committed:
                self.skip(committed + 1, last_seq - committed, USER, now)
            store.skips.add_range(data_last + 1, last_seq)
        if interior:
            store.engine.log_ranges(interior, LOST, now)
        store.lost.update(found.newly_lost)
        if interior or last_seq > data_last:
            store.commit()

    def skip(self, first: int, count: int, reason: int, now: int) -> None:
        """Sequences that hold no message. A block that claims the last one there is leaves none to be given out."""
        try:
            self.store.engine.skip(first, count, reason, now)
        except ValueError as error:
            text = f"{error}; `penstock verify` reads what is there"
            raise CorruptBlock(self.store.paths.blocks, 0, text) from error

    def _finish(self, erased: list[int]) -> None:
        store = self.store
        for seq in erased:
            store.clean_up(partial(store.overwrite, seq))
        store.engine.log.publish_head(*engine_blocks.last_position(store.engine), False)
        store.enforce_limits()
        if store.index.emptied:
            store.removal.plan()

    def lose_up_to(self, seq: int) -> None:
        """Somebody has seen sequences up to `seq`: those above our last are lost, and never given out again."""
        store = self.store
        first = store.index.last_seq + 1
        if seq < first:
            return
        store.skips.add_range(first, seq)
        store.lost.add_range(first, seq)
        lost = ((first, seq + 1),)
        text = f"a consumer was given messages {format_ranges(lost)}, which are not in the stream any more"
        store.report.add("lost sequences", store.paths.root, text, seqs=lost)
        loading.set_ends(store.index, store.index.floor, seq)
        store.deferred_writes.last_seq = seq
        store.deferred_writes.do(lambda: self._record_lost(first, seq))

    def _record_lost(self, first: int, seq: int) -> None:
        store = self.store
        loading.set_ends(store.index, store.index.floor, first - 1)
        self.skip(first, seq + 1 - first, LOST, store.clock.now_ns())
        store.commit()
