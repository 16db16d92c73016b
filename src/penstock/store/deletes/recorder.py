"""DeletesRecorder: before a block is removed, keeps the user's deletes in its records in DELETES (deletes_file.py).

A delete record lists the messages that were live when it was written, and can be copied. A floor record does not: the
messages below it are noted from the index when the record is written. After a crash they are found in the log, exactly:
no block is removed before every floor on disk has been noted.
"""

from __future__ import annotations

import errno
import os
import weakref
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.seq_set import SeqSet
from penstock.errors import CorruptBlock
from penstock.format.constants import REASONS
from penstock.format.small_file import set_aside
from penstock.store.deletes.deletes import Removal, by_reason, in_order, read_block, read_log
from penstock.store.deletes.deletes_file import BY_USER, RANGES_MAX, DeletesFile, read_kept, write_kept
from penstock.store.open.block_on_disk import BlockOnDisk, decode_controls
from penstock.store.open.control_records import FLOOR

if TYPE_CHECKING:
    from penstock.store.file_store import FileStore


@dataclass(slots=True)
class Floors:
    """Floor records that may not be on disk yet, and the messages that they deleted."""

    position: int
    floor: int
    low: int
    taken: dict[str, SeqSet]


@dataclass(slots=True)
class Taken:
    """The messages that one floor deletes; below `low` they are not known."""

    seqs: SeqSet = field(default_factory=SeqSet)
    low: int = 1


class DeletesRecorder:
    """Keeps DELETES for one store, under the store's lock."""

    def __init__(self, store: FileStore) -> None:
        self.store: FileStore = weakref.proxy(store)  # it owns us, and is freed without the garbage collector
        self.kept = DeletesFile()
        self.is_dirty = False
        self.pending: list[Floors] = []

    def load(self) -> None:
        """Read DELETES. A damaged one is set aside: only the reasons in it are lost."""
        store, path = self.store, self.store.paths.deletes
        try:
            try:
                self.kept = read_kept(store.disk, store.paths, store.stream_id) or DeletesFile()
            except CorruptBlock as damage:
                set_aside(store.disk, path)
                store.report.add("set aside", path, f"{damage.reason}: why older messages are gone is not known")
        except OSError as error:
            self._report("not read, why older messages are gone is not known", error)

    # Floors.

    def alive_below(self, floor: int) -> Taken:
        """The messages that a floor is about to delete."""
        index, found = self.store.index, Taken()
        at, stop = index.first_seq, min(floor, index.last_seq + 1)
        dead = index.last_seq + 1 - index.first_seq - index.messages
        if not index.messages or at >= stop:
            return found
        if stop - at < min(dead, index.messages):
            # A short range at the front of a stream with many holes: asking for each message is cheaper.
            seq = self.store.query.next_seq((), at, stop)
            while seq:
                found.seqs.add(seq)
                seq = self.store.query.next_seq((), seq + 1, stop)
            return found
        holes = self.store.query.deleted().ranges()
        holes = holes[: bisect_left(holes, (stop, 0))]
        if len(holes) > RANGES_MAX // 2:  # more than DELETES ever keeps
            holes = holes[-(RANGES_MAX // 2) :]
            found.low = at = holes[0][0]
        for first, last in holes:
            if first > at:
                found.seqs.add_range(at, first - 1)
            at = last + 1
        if at < stop:
            found.seqs.add_range(at, stop - 1)
        return found

    def note_floor(self, reason: int, floor: int, taken: Taken) -> None:
        """A floor record was appended; it takes effect once it is on disk."""
        pending, committed = self.pending, self.store.engine.committed_position
        pending.append(Floors(self.store.engine.position, floor, taken.low, {REASONS[reason]: taken.seqs}))
        while len(pending) > 1 and pending[1].position <= committed:
            # Neither can be rolled back: merge them, however many rollups there are between two syncs.
            newer = pending.pop(1)
            older = pending[0]
            older.position, older.floor = newer.position, max(older.floor, newer.floor)
            older.low = max(older.low, newer.low)
            for name, seqs in newer.taken.items():
                older.taken.setdefault(name, SeqSet()).update(seqs)

    def rolled_back(self) -> None:
        committed = self.store.engine.committed_position
        self.pending = [one for one in self.pending if one.position <= committed]

    def _take_pending_floors(self) -> bool:
        """Take over the floors, once they are synced and no power cut can undo them; False when the sync failed."""
        engine = self.store.engine
        if self.pending and self.pending[-1].position > engine.synced_position and engine.sync() < 0:
            return False
        for one in self.pending:
            for reason, seqs in one.taken.items():
                for first, last in seqs.ranges():
                    self.kept.add(reason, first, last)
            self.kept.floor, self.kept.low = max(self.kept.floor, one.floor), max(self.kept.low, one.low)
            self._changed()
        self.pending.clear()
        return True

    def recover_floors(self, blocks: Iterable[BlockOnDisk]) -> None:
        """After a crash: take over the floors in these blocks that are newer than the last write of DELETES."""
        for block in blocks:
            for record in decode_controls(block) if block.controls else ():
                if record["kind"] == FLOOR and self._is_new(REASONS[record["reason"]], record["value"]):
                    self._try_to_take_all()
                    return

    def _is_new(self, reason: str, floor: int) -> bool:
        return reason in BY_USER and floor > self.kept.floor

    # All blocks.

    def take_all(self) -> None:
        """Take over the user's deletes in the records of all blocks."""
        store = self.store
        log = read_log(store.disk, store.paths, store.stream_id).removals
        reasons = by_reason(in_order(self.kept, log), SeqSet(), 2**63 - 2, is_whole=True)
        for reason in BY_USER:
            self.kept.sets[reason] = reasons.get(reason, SeqSet())
        floors = [one.stop for one in log if one.is_floor and one.reason in BY_USER]
        self.kept.floor = max([self.kept.floor, *floors])
        self._changed()

    def _try_to_take_all(self) -> None:
        try:
            self.take_all()
        except OSError as error:
            self._report("not all reasons are kept", error)

    def _report(self, what: str, error: OSError) -> None:
        self.store.report.add("clean-up", self.store.paths.deletes, f"{what}: {error}")

    def _changed(self) -> None:
        if not self.kept.since:
            self.kept.since = min(self.store.headers, default=1)
        self.is_dirty = True

    # Writing DELETES.

    def before_removal(self, ids: list[int]) -> bool:
        """Keep the user's deletes in these blocks, which are about to be removed; False when the blocks must stay."""
        if not self._take_pending_floors():
            return False
        if not self.kept.since:
            self._changed()  # from now on readers may rely on DELETES
        try:
            self._take(ids)
        except OSError as error:
            self._report("blocks stay until their records can be read", error)
            return False
        return self._write()

    def _take(self, ids: list[int]) -> None:
        for block_id in ids:
            facts = self.store.query.block(block_id)
            if facts["target_low"] > facts["target_high"]:
                continue  # it has no delete, erase or floor records
            for one in self._read(block_id):
                if one.reason not in BY_USER:
                    continue
                if one.is_floor:
                    if self._is_new(one.reason, one.stop):
                        self.take_all()  # written before floors were noted
                    continue
                self.kept.add(one.reason, one.start, one.stop - 1)
                self._changed()

    def _read(self, block_id: int) -> list[Removal]:
        store = self.store
        header = store.headers.get(block_id)
        found = read_block(store.disk, store.block_path(block_id), header) if header is not None else None
        return found or []

    def before_checkpoint(self) -> None:
        """Keep the pending floors: an open with the checkpoint does not read the records before it."""
        self._take_pending_floors()
        self._write()

    def before_cut(self) -> None:
        """Keep everything: a truncation removes records that concern messages that stay."""
        self._take_pending_floors()
        self._try_to_take_all()
        self._write()

    def cut(self, seq: int) -> None:
        """Forget the sequences above `seq`: they will be given out again."""
        self.pending.clear()
        self.kept.cut_above(seq)
        if os.path.exists(self.store.paths.deletes):
            write_kept(self.store.disk, self.store.paths, self.store.stream_id, self.kept)
            self.is_dirty = False

    def _write(self) -> bool:
        """Write DELETES if it has changed; False when blocks must not be removed.

        On a full disk they may be: their removal frees space, and DELETES is written later.
        """
        if not self.is_dirty:
            return True
        store = self.store
        try:
            write_kept(store.disk, store.paths, store.stream_id, self.kept)
        except OSError as error:
            self._report("not written, tried again later", error)
            return error.errno in (errno.ENOSPC, errno.EDQUOT)
        self.is_dirty = False
        return True
