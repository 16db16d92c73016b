"""What the control records of blocks say: skips, deletes, erases and floors. Layout: docs/format.md, "Record"."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.base.seq_set import SeqSet
from penstock.format.constants import KINDS, REASONS
from penstock.store.index import loading
from penstock.store.index.index import Index
from penstock.store.open.block_on_disk import BlockOnDisk, decode_controls

SKIP, DELETE, ERASE, FLOOR = (KINDS.index(kind) for kind in ("skip", "delete", "erase", "floor"))
LOST = REASONS.index("lost")
SKIPPED = REASONS.index("skipped")
# Deletes that another message may have caused: a newer one, one too many, a marker in place of an expired one; and
# compactions, which repeat those.
FOR_ANOTHER = frozenset(
    REASONS.index(reason)
    for reason in ("rollup", "max_msgs", "max_bytes", "max_msgs_per_subject", "max_age", "ttl", "compact")
)
SEQ_STOP = 2**63 - 1


@dataclass(slots=True)
class Doubted:
    """Deletes that stand behind a gap which a power cut made in what was being written: `first_gap` is its first
    sequence.

    They were made for messages that may lie in the gap: a newer one of the same subject, or one over a limit. Nobody
    was told of any of it yet, and what was acknowledged before must not go for a message that is not there. So they are
    not carried out. What the limits ask for is done again once the stream is open.
    """

    first_gap: int
    floor: int = 1
    gone: SeqSet = field(default_factory=SeqSet)
    records: list[tuple[str, int, int]] = field(default_factory=list)  # path, offset, size

    def take(self, block: BlockOnDisk, at: int, record: dict[str, Any]) -> bool:
        """Note a delete or floor record that is one of them; it is the block's `at`-th last control record."""
        if block.scan is None or record["seq"] <= self.first_gap or record["reason"] not in FOR_ANOTHER:
            return False
        self.records.append((block.path, *block.scan.control_spans()[-at]))
        if record["kind"] == FLOOR:
            self.floor = max(self.floor, record["value"])
        for start, stop in record["ranges"] if record["kind"] == DELETE else ():
            self.gone.add_range(start, stop - 1)
        return True


def apply_controls(
    blocks: list[BlockOnDisk],
    skips: SeqSet,
    lost: SeqSet,
    index: Index,
    floor: int,
    doubted: Doubted | None = None,
) -> tuple[int, SeqSet, list[int]]:
    """What the blocks' control records say: (floor, deleted sequences, those to be erased); adds to `skips` and `lost`,
    and to `doubted` what is not to be carried out.

    They only ever take away, so their order does not matter.
    """
    gone, erased = SeqSet(), []
    for block in blocks:
        for seq in block.erased:
            gone.add(seq)
        if not block.controls:
            continue
        low, high, block_last = SEQ_STOP, 0, block.header.first_seq - 1
        records = decode_controls(block)
        for at, record in enumerate(records):
            kind, reason, value = record["kind"], record["reason"], record["value"]
            block_last = max(block_last, record["seq"] - 1)
            if doubted is not None and kind in (DELETE, FLOOR) and doubted.take(block, len(records) - at, record):
                continue
            if kind == SKIP:
                block_last = record["seq"] + value - 1
                skips.add_range(record["seq"], block_last)
                if reason == LOST:
                    lost.add_range(record["seq"], block_last)
            elif kind == DELETE:
                for start, stop in record["ranges"]:
                    gone.add_range(start, stop - 1)
                    low, high = min(low, start), max(high, stop - 1)
                    if reason == LOST:
                        lost.add_range(start, stop - 1)
                    elif reason == SKIPPED:
                        skips.add_range(start, stop - 1)
            elif kind == ERASE:
                gone.add(value)
                erased.append(value)
                low, high = min(low, value), max(high, value)
            elif kind == FLOOR:
                floor = max(floor, value)
                low, high = 0, max(high, value - 1)
        loading.set_bounds(index, block.header.block_id, block_last, low, high)
    return floor, gone, erased
