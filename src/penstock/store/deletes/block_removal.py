"""BlockRemoval: removes blocks without live messages from disk, once the records that say why are synced."""

from __future__ import annotations

import os
import weakref
from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstock.store.base import COMPACT, SKIPPED
from penstock.store.index import loading
from penstock.store.write import engine_blocks

if TYPE_CHECKING:
    from penstock.store.file_store import FileStore

NOT_WAITING = -1


class BlockRemoval:
    """Plans and carries out the removal of one store's dead blocks, under the store's lock.

    Always true: a block is removed only when each of its control records is on disk elsewhere, or concerns no block
    that stays; files are removed oldest first.
    """

    def __init__(self, store: FileStore) -> None:
        self.store: FileStore = weakref.proxy(store)  # it owns us, and is freed without the garbage collector
        self.planned: list[tuple[int, list[int]]] = []  # (position that must be synced first, block ids)
        self.unlinking: list[str] = []  # files of removed blocks, in the order in which they must be unlinked
        self.waits_at = NOT_WAITING  # the synced position at which a dead block was not wholly on disk yet

    @property
    def is_due(self) -> bool:
        """Whether a removal has to be planned or carried out now."""
        return bool(
            self.store.index.emptied
            or self.planned
            or self.unlinking
            or NOT_WAITING != self.waits_at != self.store.engine.synced_position
        )

    def forget_plans(self) -> None:
        """Drop all plans: the index was filled again and knows which blocks are dead."""
        self.planned, self.unlinking = [], []

    def after_commit(self) -> None:
        """Plan removals, or continue those that are planned."""
        store = self.store
        if store.index.emptied or NOT_WAITING != self.waits_at != store.engine.synced_position:
            store.clean_up(self.plan)
        elif self.planned or self.unlinking:
            self.carry_out()

    def plan(self) -> None:
        """Find the dead blocks that may be removed, and write the records that say what became of their messages."""
        store = self.store
        store.index.emptied = False
        blocks = store.query.blocks()
        if not blocks:
            return
        planned = {block_id for _, ids in self.planned for block_id in ids}
        last_id = blocks[-1]["id"]  # the last block stays: it holds the last sequence
        dead = set(engine_blocks.dead_blocks(store.engine)) - planned - {last_id}
        is_waiting = any(
            block["live"] == 0 and block["is_sealed"] and block["id"] not in dead and block["id"] not in planned
            for block in blocks[:-1]
        )
        self.waits_at = store.engine.synced_position if is_waiting else NOT_WAITING
        doomed = _removable(blocks, dead)
        if not doomed:
            return
        ids = {block["id"] for block in doomed}
        self._record_why(blocks, ids)
        self.planned.append((store.engine.position, sorted(ids)))
        self.carry_out()

    def _record_why(self, blocks: list[dict[str, Any]], ids: set[int]) -> None:
        """Record that these blocks' messages are deleted, not lost.

        Commits a floor below the first block that stays, and a record of the holes between those that stay.
        """
        store = self.store
        left = [block for block in blocks if block["id"] not in ids]
        holes = [
            (before["last_seq"] + 1, after["first_seq"])
            for before, after in pairwise(left)
            if before["last_seq"] + 1 < after["first_seq"]
        ]
        floor = max(store.index.floor, left[0]["first_seq"])
        tells_floor = [block["id"] for block in blocks if block["target_low"] == 0][-1:]
        is_floor_told = floor == store.index.floor and (floor == 1 or any(one not in ids for one in tells_floor))
        if not holes and is_floor_told:
            return
        now = store.clock.now_ns()
        if not is_floor_told:
            store.engine.log_floor(floor, COMPACT, now)
        store.engine.log_ranges(holes, COMPACT, now)
        skipped = [
            (max(start, first), min(stop, last + 1))
            for start, stop in holes
            for first, last in store.skips.ranges()
            if first < stop and last >= start
        ]
        store.engine.log_ranges(skipped, SKIPPED, now)
        store.index.emptied = True  # planned again if the commit fails
        store.engine.commit()
        store.index.emptied = False

    def carry_out(self) -> None:
        """Remove the planned blocks, as far as the log is synced."""
        store = self.store
        synced = store.engine.synced_position
        due = sorted(block_id for position, ids in self.planned if synced >= position for block_id in ids)
        if due and not store.deletes.before_removal(due):
            return
        while self.planned and synced >= self.planned[0][0]:
            _, ids = self.planned.pop(0)
            for block_id in ids:
                path = os.fsdecode(engine_blocks.remove_block(store.engine, block_id))
                self.unlinking += [path, store.files.forget(block_id)]
            loading.free_unused_numbers(store.index)
        while self.unlinking:
            # Oldest first, and no block before those that its records concern: their messages would be back at the
            # next open.
            store.files.summaries.wait(self.unlinking[0])
            try:
                if os.path.exists(self.unlinking[0]):
                    store.disk.unlink(self.unlinking[0])
            except OSError as error:
                store.report.add("clean-up", self.unlinking[0], f"tried again later: {error}")
                return
            self.unlinking.pop(0)


def _removable(blocks: list[dict[str, Any]], dead: set[int]) -> list[dict[str, Any]]:
    """The dead blocks whose control records concern no block that stays: that block's deleted rows would come back."""
    found: list[dict[str, Any]] = []
    kept: list[dict[str, Any]] = []
    for block in blocks:
        if block["id"] in dead:
            at = bisect_left(kept, block["target_low"], key=lambda other: other["last_seq"])
            if at == len(kept) or kept[at]["first_seq"] > block["target_high"]:
                found.append(block)
                continue
        kept.append(block)
    return found
