"""Truncation: the one operation that takes sequences back. Rules: docs/format.md, "TRUNCATE".

Its plan is written down first (format/truncation.py), and the next open finishes it if need be.
"""

from __future__ import annotations

import errno
import os
import weakref
from typing import TYPE_CHECKING

from penstock.base.ranges import subtract
from penstock.base.seq_set import SeqSet
from penstock.errors import CorruptBlock, StoreError, WriteFailed
from penstock.format.bounds import LEAP_MAX
from penstock.format.small_file import set_aside
from penstock.format.truncation import Cut, read_cut, write_cut
from penstock.store.base import COMPACT, EVERYTHING, SKIPPED
from penstock.store.index import loading
from penstock.store.index.agreement import alive_in
from penstock.store.open.block_on_disk import BlockOnDisk
from penstock.store.open.recovery import Recovery

if TYPE_CHECKING:
    from penstock.store.file_store import FileStore

ONE_BY_ONE_MAX = 1 << 20  # sequences of a range that are deleted one by one; more are dropped as a range


class Truncation:
    """Truncates one store, under the store's lock. `pending`: a plan whose files are cut, and that is not finished."""

    def __init__(self, store: FileStore) -> None:
        self.store: FileStore = weakref.proxy(store)  # it owns us, and is freed without the garbage collector
        self.pending: Cut | None = None
        self.is_applied = False  # to the index alone, as the records could not be written
        self.last_before = 0  # the last sequence before it was applied

    def truncate(self, seq: int) -> None:
        """Delete everything above `seq`, which is below the last sequence. The epoch rises."""
        store = self.store
        store.sync()
        store.deletes.before_cut()
        dead, skips = _upto(store.query.deleted(), seq), _upto(store.skips, seq)
        floor = min(max(store.index.floor, store.index.first_seq), seq + 1)
        keeps = store.index.messages - store.query.pending(EVERYTHING, seq + 1)
        try:
            write_cut(store.disk, store.paths, Cut(seq, floor, store.epoch + 1, dead, skips, keeps))
        except OSError as error:
            self._forget_plan(error)
        store.engine.log.detach()
        store.files.summaries.finish()
        store.engine.close_files()
        try:
            self.cut_files(is_ours=True)
            store.wheel.clear()
            store.exempt.clear()
            store.defer_nothing()
            store.opening.recover(store.limits, is_known=True)
        except (OSError, StoreError) as error:
            # The plan is on disk: the next open finishes it.
            store.abandon()
            raise WriteFailed("truncate", store.paths.root, getattr(error, "errno", None) or errno.EIO) from error

    def _forget_plan(self, cause: OSError) -> None:
        """The plan was not written down whole: none of it may be left for the next open to follow."""
        store = self.store
        failed = WriteFailed("write", store.paths.truncate, cause.errno or errno.EIO)
        try:
            if os.path.exists(store.paths.truncate):
                store.disk.unlink(store.paths.truncate)
                store.disk.sync_folder(store.paths.root)
        except OSError:
            store.abandon()
        raise failed from cause

    def cut_files(self, *, is_ours: bool = False) -> None:
        """Cut the files as TRUNCATE says. May be repeated: each step leaves a store that the next attempt can cut."""
        store = self.store
        disk, paths = store.disk, store.paths
        try:
            cut = read_cut(disk, paths)
            blocks = self._blocks_below(cut) if cut is not None else []
        except CorruptBlock as damage:
            if is_ours:
                raise
            set_aside(disk, paths.truncate)
            text = f"{damage.reason}: a truncation was under way, and what it had not cut off yet stays"
            store.report.add("set aside", paths.truncate, text)
            return
        assert cut is not None
        store.deletes.cut(cut.seq)
        for path in (paths.checkpoint, paths.head):
            if os.path.exists(path):
                disk.unlink(path)
        for block in reversed(blocks):
            summary = block.path.removesuffix(".blk") + ".sum"
            if block.header.first_seq > cut.seq:
                disk.unlink(block.path)
            elif os.path.getsize(block.path) == block.size:
                continue
            else:
                fd = disk.open(block.path, "w")
                try:
                    disk.truncate(fd, block.size)
                    disk.sync(fd)
                finally:
                    disk.close(fd)
            if os.path.exists(summary):
                disk.unlink(summary)
        disk.sync_folder(paths.blocks)
        disk.sync_folder(paths.root)
        self.pending = cut

    def _blocks_below(self, cut: Cut) -> list[BlockOnDisk]:
        """All blocks, each as far as it stays. CorruptBlock where the plan does not fit them: nothing is touched
        then."""
        store = self.store
        scratch = Recovery(store.disk, store.paths, store.stream_id, store.new_engine(), store.report)
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
            raise CorruptBlock(store.paths.truncate, 0, f"it keeps {cut.keeps} messages, and there are {kept}")
        missing = subtract((last_seq + 1, cut.seq + 1), (cut.explained(),)) if last_seq < cut.seq else []
        if sum(stop - start for start, stop in missing) > (0 if is_whole else LEAP_MAX):
            text = f"it keeps messages up to {cut.seq}, and the last is {last_seq}"
            raise CorruptBlock(store.paths.truncate, 0, text)
        return blocks

    def finish(self, cut: Cut, now: int) -> None:
        """Write again the control records that stood in the part that was cut off, then forget the plan."""
        store = self.store
        index, engine = store.index, store.engine
        if self.is_applied:
            loading.set_ends(index, index.floor, self.last_before)
        if cut.seq > index.last_seq:
            # The last sequences that stay were deleted, and no record of them is left.
            store.opening.skip(index.last_seq + 1, cut.seq - index.last_seq, COMPACT, now)
        if self.is_applied and cut.floor > 1:
            engine.log_floor(cut.floor, COMPACT, now)
        elif cut.floor > index.floor and cut.floor <= index.last_seq + 1:
            engine.set_floor(cut.floor, COMPACT, now)
        left: list[tuple[int, int]] = []
        for first, last in cut.dead.ranges():
            left += subtract((first, last + 1), (store.skips,))
            if last - first < ONE_BY_ONE_MAX:
                engine.delete_all(range(first, last + 1), COMPACT, now)
            else:
                loading.drop_range(index, first, last + 1)
        engine.log_ranges(left, COMPACT, now)
        engine.log_ranges([(first, last + 1) for first, last in cut.skips.ranges()], SKIPPED, now)
        store.skips.update(cut.skips)
        store.commit()
        self.pending, self.is_applied = None, False
        store.write_checkpoint()
        store.disk.unlink(store.paths.truncate)
        store.disk.sync_folder(store.paths.root)

    def apply(self, cut: Cut) -> None:
        """The records cannot be written now: whoever reads meanwhile does not see what was deleted before."""
        store = self.store
        index = store.index
        self.last_before = index.last_seq
        if cut.seq > self.last_before:
            loading.set_ends(index, index.floor, cut.seq)
            store.engine.log.start_at(cut.seq)
            store.deferred_writes.last_seq = cut.seq
        loading.raise_floor(index, cut.floor)
        for first, last in cut.dead.ranges():
            loading.drop_range(index, first, last + 1)
        loading.find_unused_numbers(index)
        loading.forget_changes(index)
        self.is_applied = True


def _upto(seqs: SeqSet, last: int) -> SeqSet:
    """The members of a set that are not above `last`."""
    found = SeqSet()
    for first, end in seqs.ranges():
        if first <= last:
            found.add_range(first, min(end, last))
    return found
