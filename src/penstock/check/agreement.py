"""Whether summaries, CHECKPOINT and HEAD agree with the blocks, which valid checksums alone do not prove.

An open trusts these files within bounds. Each function returns the first difference in words, or None.
"""

from __future__ import annotations

from penstock.format.block_header import BlockHeader
from penstock.format.block_scan import BlockScan
from penstock.format.constants import FLAGS, KINDS
from penstock.format.head import Head
from penstock.format.record import decode
from penstock.store.index.agreement import facts_of, filter_lacks, rows_disagree, subjects_disagree
from penstock.store.index.ids_and_expiries import IdsAndExpiries
from penstock.store.index.summary import CONTROLS, FILTER, NAMES, OFFSETS, SEQS, SIZES, SUBJECTS, Summary
from penstock.store.open.recovery import Recovered, Recovery
from penstock.store.open.report import Report
from penstock.store.read.snapshot import Snapshot

TTL_OR_ID, ERASED = FLAGS["ttl"] | FLAGS["msg_id"], FLAGS["erased"]
BLOCK_FACTS = "rows", "bytes", "time_min", "time_max", "seq_base", "last_checksum"
SKIP = KINDS.index("skip")


def summary_differs(
    summary: Summary, header: BlockHeader, scan: BlockScan, data: bytes | memoryview, next_seq: int | None
) -> str | None:
    """How a summary differs from its block, in which all records are valid; the next block begins at `next_seq`."""
    section = summary.section
    if summary.header != header:
        return "it has another header"
    if summary.last_checksum != scan.last_checksum or summary.data_size != scan.stop:
        return "it ends elsewhere"
    differs = rows_disagree(
        scan, data, section(OFFSETS), section(SIZES), section(SUBJECTS), section(SEQS), section(NAMES),
        summary.is_dense, summary.seq_base if scan.count else 0,
    )  # fmt: skip
    if differs is not None:
        return differs
    count, size, time_min, time_max, first, last = facts_of(scan)
    if count and (summary.message_bytes, summary.time_min, summary.time_max, summary.seq_base) != (
        size, time_min, time_max, first,
    ):  # fmt: skip
        return "it has other sums or times"
    is_in_next = next_seq is not None and summary.last_seq >= next_seq
    if is_in_next or summary.last_seq < max(last, last_skipped(header, scan, data)):
        return "it has another last sequence"
    if bytes(section(CONTROLS)) != b"".join(data[at : at + size] for at, size in scan.control_spans()):
        return "it has other control records"
    if filter_lacks(bytes(section(FILTER)), section(NAMES)):
        return "its filter lacks a subject"
    return _ids_or_expiries_differ(summary, scan, data)


def _ids_or_expiries_differ(summary: Summary, scan: BlockScan, data: bytes | memoryview) -> str | None:
    """Compare ids and expiries. Those of messages erased since then may still be in the summary."""
    ids = {row: (time, hashed) for row, time, hashed in summary.ids}
    expiries = dict(summary.expiries)
    if not ids and not expiries and not len(IdsAndExpiries.of_scan(scan, data)):
        return None
    rows = scan.messages()
    for row in [row for row in ids.keys() | expiries.keys() if rows[row][4] & ERASED]:
        ids.pop(row, None)
        expiries.pop(row, None)
    marked = (row for row, (*_, flags) in enumerate(rows) if flags & TTL_OR_ID and not flags & ERASED)
    for row, (_, time, hashed, expiry) in zip(marked, IdsAndExpiries.of_scan(scan, data), strict=True):
        if ids.pop(row, None) != ((time, hashed) if hashed is not None else None):
            return "it has another message id"
        if expiries.pop(row, 0) != expiry:
            return "it has another expiry"
    return "it has an id or an expiry of a message without one" if ids or expiries else None


def last_seq_of(header: BlockHeader, scan: BlockScan, data: bytes | memoryview) -> int:
    """The last sequence of a block's messages and skips."""
    return max(facts_of(scan)[5], last_skipped(header, scan, data))


def last_skipped(header: BlockHeader, scan: BlockScan, data: bytes | memoryview) -> int:
    """The last sequence that a block's skips cover; the one before its first where it has none."""
    last = header.first_seq - 1
    for offset, _ in scan.control_spans():
        record = decode(data, offset, base_seq=header.base_seq, base_time=header.base_time, salt=header.salt)
        if record["kind"] == SKIP:
            last = max(last, record["seq"] + record["value"] - 1)
    return last


class SnapshotOfBlocks(Snapshot):
    """A stream recovered from its blocks and their summaries, without the checkpoint."""

    def _recover(self, limit: tuple[int, int] | None, head: Head | None) -> tuple[Report, Recovered]:
        report, headers = Report(), dict[int, BlockHeader]()
        engine = self._begin(headers)
        recovery = Recovery(self.disk, self.paths, self.stream_id, engine, report, headers, None, head)
        self.recovered = recovery.run(limit, is_doubted=True)
        return report, self.recovered


def checkpoint_differs(snapshot: Snapshot, expiries: dict[int, int]) -> str | None:
    """How a snapshot that comes from the checkpoint, with its expiries, differs from the blocks."""
    differs = subjects_disagree(snapshot.index)
    if differs is not None:
        return differs
    blocks = SnapshotOfBlocks(snapshot.paths.root, snapshot.stream_id, name=snapshot.name, disk=snapshot.disk)
    try:
        if blocks.seen != snapshot.seen:
            return None  # its writer went on
        differs = _listing_differs(snapshot, blocks)
        if differs is not None:
            return differs
        listed, held = snapshot.index, blocks.index
        if (listed.messages, listed.bytes, listed.first_seq) != (held.messages, held.bytes, held.first_seq):
            return "other messages are alive"
        if snapshot.query.deleted() != blocks.query.deleted():
            return "other messages are deleted"
        recorded = dict(blocks.recovered.expiries)
        alive = [seq for seq in expiries.keys() | recorded.keys() if snapshot.query.next_seq((), seq, seq + 1)]
        if any(expiries.get(seq) != recorded.get(seq) for seq in alive):
            return "a message has another expiry"
    finally:
        blocks.stop()
    return None


def _listing_differs(snapshot: Snapshot, blocks: Snapshot) -> str | None:
    held = {row["id"]: row for row in blocks.query.blocks()}
    for row in snapshot.query.blocks():
        own = held.get(row["id"])
        if own is None or row["size"] != own["size"] or not (row["rows"] or own["rows"]):
            continue
        if any(row[name] != own[name] for name in BLOCK_FACTS):
            return f"it lists block {row['id']} with other messages, sums or times"
        if bool(row["is_dense"]) != bool(own["is_dense"]):
            return f"it lists block {row['id']} with other gaps"
    return None
