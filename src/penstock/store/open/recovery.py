"""Recovery: from the files of a stream to its index. Rules: docs/format.md, and ARCHITECTURE.md ("Opening").

The order is: what blocks are there; the checkpoint, if it fits them; summaries of the blocks after it; a scan of
the last block and of
those without a summary; then the control records, which only ever take away. Nothing here writes; what should be
written is
collected for the store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.base.disk import Disk
from penstock.base.seq_set import SeqSet
from penstock.base.xxh64 import hash_id
from penstock.errors import NewerFormat
from penstock.format.block_header import BlockHeader, boot_id, decode_front
from penstock.format.block_scan import BlockScan, scan_block
from penstock.format.bounds import LEAP_MAX, SEQ_MAX
from penstock.format.constants import FLAGS, KINDS, REASONS, RECORDS_START
from penstock.format.head import Head, decode_head
from penstock.format.paths import StreamPaths, parse_block_name
from penstock.format.record import decode
from penstock.store.index import loading, tables
from penstock.store.index.checkpoint import BlockRow, Checkpoint, decode_checkpoint
from penstock.store.index.ids_and_expiries import IdsAndExpiries
from penstock.store.index.index import Index
from penstock.store.index.summary import CONTROLS, EXPIRIES, FILTER, IDS, NAMES, NUMBER_STOP, Summary, decode_summary
from penstock.store.open.report import Report, format_ranges
from penstock.store.write import engine_blocks
from penstock.store.write.engine import StreamEngine
from penstock.wire.headers import find
from penstock.wire.ttl import TTL_NEVER, parse_ttl

SKIP, DELETE, ERASE, FLOOR = (KINDS.index(kind) for kind in ("skip", "delete", "erase", "floor"))
LOST = REASONS.index("lost")
SKIPPED = REASONS.index("skipped")
# Deletes that another message may have been the cause of: a newer one, one too many, a marker for what grew too old;
# and what tells of those again.
FOR_ANOTHER = frozenset(
    REASONS.index(reason)
    for reason in ("rollup", "max_msgs", "max_bytes", "max_msgs_per_subject", "max_age", "ttl", "compact")
)
NEVER = 2**63 - 1
SEQ_STOP = 2**63 - 1
NUMBERS_MIN, NUMBER_WEIGHT = 65536, 3  # so many subject numbers, and one per so many bytes of what tells them


@dataclass(slots=True)
class BlockOnDisk:
    """A block file that counts."""

    path: str
    header: BlockHeader
    size: int
    scan: BlockScan | None = None
    data: bytes | memoryview = b""
    summary: Summary | None = None
    controls: bytes = b""  # the control records that are still to be applied
    all_controls: bytes = b""
    subject_filter: bytes = b""
    erased: list[int] = field(default_factory=list)
    is_suspect: bool = False  # both headers are gone: nothing is believed of it that was not read
    is_synced: bool = False  # for certain: all of it was on disk when its writer went on
    marks: IdsAndExpiries = field(default_factory=IdsAndExpiries)

    def goes_on(self) -> bool:
        """Whether a whole record stands where the scan ended: one above what was asked for, no torn tail."""
        assert self.scan is not None
        h = self.header
        try:
            decode(self.data, self.scan.stop, base_seq=h.base_seq, base_time=h.base_time, salt=h.salt)
        except ValueError:
            return False
        return True

    def is_as_listed(self, row: BlockRow) -> bool:
        """Whether a checkpoint lists it as it is; it may have grown since."""
        h = self.header
        return (
            (h.salt, h.generation, h.first_seq, h.base_seq, h.base_time)
            == (row.salt, row.generation, row.first_seq, row.base_seq, row.base_time)
            and self.size >= row.size
            and not self.is_suspect
        )

    def controls_from(self, offset: int) -> bytes:
        """The control records at or after an offset, of a block that was scanned."""
        assert self.scan is not None
        return b"".join(self.data[at : at + size] for at, size in self.scan.control_spans() if at >= offset)


@dataclass(slots=True)
class Recovered:
    """What recovery found, beyond the index that it filled."""

    head: Head | None
    checkpoint: Checkpoint | None
    blocks: list[BlockOnDisk]
    numbering: int
    epoch: int
    next_block_id: int
    doubted: list[tuple[str, int, int]]  # path, offset and size of deletes that must not be carried out
    is_clean: bool
    last_seq: int
    last_time: int
    skips: SeqSet
    lost: SeqSet
    newly_lost: SeqSet
    expiries: list[tuple[int, int]]
    erased: list[int]  # whose bytes may not have been overwritten yet
    set_aside: list[str]
    empty: list[str]
    leftovers: list[str]


def read_marks(
    rows: Iterable[tuple[int, int, int, int, bytes]],
) -> list[tuple[int, int, bytes | None, int]]:
    """(seq, time, id hash, expiry) from the headers of messages with a TTL or an id."""
    found = []
    for _row, seq, time, flags, headers in rows:
        msg_id = find(headers, b"Nats-Msg-Id") if flags & FLAGS["msg_id"] else None
        ttl = parse_ttl(find(headers, b"Nats-TTL") or b"") if flags & FLAGS["ttl"] else 0
        expiry = NEVER if ttl == TTL_NEVER else time + ttl if ttl else 0
        found.append((seq, time, hash_id(msg_id) if msg_id else None, expiry))
    return found


def recover(
    disk: Disk,
    paths: StreamPaths,
    stream_id: bytes,
    begin: Callable[[dict[int, BlockHeader]], StreamEngine],
    limit: tuple[int, int] | None = None,
    explained: SeqSet | None = None,
    head: Head | None = None,
) -> tuple[Report, Recovered]:
    """Fill an index from a stream's files, with the checkpoint if it fits. `begin` gives an empty core each time.

    It is handed the headers of the blocks as they come into the index: its arrays may be asked for at once.
    Sequences in `explained` are not lost when there is no record of them.
    """
    headers: dict[int, BlockHeader] = {}
    report = Report()
    try:
        return report, Recovery(disk, paths, stream_id, begin(headers), report, headers, explained, head).run(limit)
    except CheckpointUnfit as error:
        report = Report()
        report.add("rebuilt", paths.checkpoint, f"the checkpoint does not fit the blocks ({error}): rebuilt from them")
        headers = {}
        again = Recovery(disk, paths, stream_id, begin(headers), report, headers, explained, head)
        return report, again.run(limit, is_doubted=True)


Facts = tuple[Checkpoint | None, Checkpoint | None, Head | None]  # the checkpoint, one that is only evidence, HEAD


def _size_of(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0  # its writer removed it since


class CheckpointUnfit(ValueError):
    """The checkpoint counts rows that the blocks do not have."""


class Recovery:
    """One run of it, for one stream."""

    def __init__(
        self,
        disk: Disk,
        paths: StreamPaths,
        stream_id: bytes,
        engine: StreamEngine,
        report: Report,
        headers: dict[int, BlockHeader] | None = None,
        explained: SeqSet | None = None,
        head: Head | None = None,
    ) -> None:
        self.disk, self.paths, self.stream_id, self.engine, self.report = disk, paths, stream_id, engine, report
        self.headers: dict[int, BlockHeader] = {} if headers is None else headers
        self.explained = explained or SeqSet()
        self.buffer = bytearray()
        self.head = head  # as the caller has read it; None: read it here
        self.set_aside: list[str] = []
        self.empty: list[str] = []
        self.leftovers: list[str] = []
        self.highest_id = 0
        self.told_size = 0  # bytes of the summaries and the checkpoint: subject numbers are in proportion to it
        self.is_stopped = False
        self.trusted_seq = self.synced_seq = 0

    # What is there.

    def list_blocks(self) -> list[BlockOnDisk]:
        """The blocks that count, in order; the others are reported."""
        best: dict[int, tuple[int, str]] = {}
        names = sorted(os.listdir(self.paths.blocks)) if os.path.isdir(self.paths.blocks) else []
        for name in names:
            path = os.path.join(self.paths.blocks, name)
            parsed = parse_block_name(name)
            if parsed is None:
                if name.endswith(".sum"):
                    self.told_size += _size_of(path)
                if name.endswith(".tmp"):
                    self.leftovers.append(path)
                elif not name.endswith((".sum", ".damaged")) or not os.path.isfile(path):
                    self.report.add("unknown file", path, "not a file of ours: left alone")
                continue
            block_id, generation = parsed
            self.highest_id = max(self.highest_id, block_id)
            if generation > best.get(block_id, (0, ""))[0]:
                best[block_id] = generation, path
        blocks = []
        for block_id in sorted(best):
            found = self.read_front(block_id, best[block_id][1])
            if found is not None:
                blocks.append(found)
        return self.in_order(blocks)

    def read_front(self, block_id: int, path: str) -> BlockOnDisk | None:
        """A block's header and size; None when it is not a block of this stream: then it is set aside."""
        fd = self.disk.open(path)
        try:
            size = self.disk.size(fd)
            front = self.disk.read(fd, RECORDS_START)
        finally:
            self.disk.close(fd)
        if size == 0:
            self.empty.append(path)
            self.report.add("empty file", path, "an empty block: nothing was in it")
            return None
        header = decode_front(front, path)
        is_suspect = False
        if header is None:
            summary = self.read_summary(block_id, path)
            if summary is not None and summary.data_size <= size:
                self.report.add("rebuilt", path, "both headers are damaged: taken from the summary", size=RECORDS_START)
                header = summary.header
                is_suspect = True
        if header is not None and (header.block_id, header.generation) != parse_block_name(os.path.basename(path)):
            header = replace(header, stream_id=b"")  # of another block: its file was renamed, or it lies
        if header is None or header.stream_id != self.stream_id:
            why = "no header of it holds" if header is None else "it belongs to another stream or block"
            if header is None and size <= RECORDS_START and not front.strip(b"\0"):
                why = "it holds only zeros"
            self.set_aside.append(path)
            self.report.add("set aside", path, f"{why}: set aside", size=size)
            return None
        return BlockOnDisk(path, header, size, is_suspect=is_suspect)

    def in_order(self, blocks: list[BlockOnDisk]) -> list[BlockOnDisk]:
        """Blocks ascend in first_seq; a later block that begins lower replaces nothing: it is set aside."""
        kept: list[BlockOnDisk] = []
        for block in blocks:
            if kept and block.header.first_seq < kept[-1].header.first_seq:
                self.set_aside.append(block.path)
                self.report.add(
                    "set aside", block.path, "it begins below the block before it: set aside", size=block.size
                )
                continue
            kept.append(block)
        return kept

    def read_summary(self, block_id: int, path: str) -> Summary | None:
        name = path.removesuffix(".blk") + ".sum"
        try:
            data = self.disk.read_file(name)
        except FileNotFoundError:
            return None
        try:
            summary = decode_summary(data, name, self.number_stop)
        except NewerFormat:
            return None
        if summary is None or summary.header.stream_id != self.stream_id or summary.header.block_id != block_id:
            self.report.add("rebuilt", name, "the summary does not hold: rebuilt from the block")
            return None
        return summary

    @property
    def number_stop(self) -> int:
        """Subject numbers are below it. One that is out of proportion costs memory: then the block itself is read,
        and gives its subjects new ones."""
        return min(NUMBERS_MIN + self.told_size // NUMBER_WEIGHT, NUMBER_STOP)

    def read_head(self) -> Head | None:
        try:
            return decode_head(self.disk.read_file(self.paths.head), self.stream_id)
        except FileNotFoundError:
            return None

    def judge_head(self, head: Head | None, blocks: list[BlockOnDisk]) -> None:
        """Was the stream stopped in good order, and up to where do the blocks hold what their writer wrote?

        After a power cut a summary may be there and the end of its block not. In the same boot the system still
        has every write.
        """
        if head is None:
            return
        last = (blocks[-1].header.block_id, blocks[-1].size) if blocks else (0, 0)
        self.is_stopped = head.is_stopped and (head.block_id, head.offset) == last
        self.synced_seq = SEQ_STOP if self.is_stopped else head.synced_seq
        is_same_boot = head.boot_id == boot_id() != bytes(16)
        self.trusted_seq = SEQ_STOP if is_same_boot else self.synced_seq

    def is_possible(self, head: Head, blocks: list[BlockOnDisk]) -> bool:
        """Whether the blocks can be those of a writer who came so far: one of them ends where the next begins."""
        for at, block in enumerate(blocks):
            if block.header.block_id == head.block_id:
                after = blocks[at + 1].header.first_seq if at + 1 < len(blocks) else SEQ_MAX
                start = min(RECORDS_START, block.size)  # a crash may have left it shorter than its header
                return head.offset >= start and block.header.first_seq - 1 <= head.committed_seq < after
        return True  # its block is gone: recovery tells what that costs

    def read_checkpoint(self) -> Checkpoint | None:
        """The checkpoint, when it holds; whether it fits the blocks is another question: what it knew is evidence
        anyway."""
        try:
            data = self.disk.read_file(self.paths.checkpoint)
        except FileNotFoundError:
            return None
        self.told_size += len(data)
        found = decode_checkpoint(data)
        if found is None or found.stream_id != self.stream_id:
            self.report.add("rebuilt", self.paths.checkpoint, "the checkpoint does not hold: rebuilt from the blocks")
            return None
        return found

    def fits(self, checkpoint: Checkpoint, blocks: list[BlockOnDisk]) -> bool:
        there = {block.header.block_id: block for block in blocks}
        listed = {row.block_id for row in checkpoint.blocks}
        return (
            all(row.block_id in there and there[row.block_id].is_as_listed(row) for row in checkpoint.blocks)
            and all(
                block_id in listed or block.header.first_seq > checkpoint.last_seq for block_id, block in there.items()
            )
            and checkpoint.last_seq <= max((row.last_seq for row in checkpoint.blocks), default=0) + LEAP_MAX
        )

    # Filling the index.

    def scan(self, block: BlockOnDisk, stop_seq: int, limit: int | None = None) -> None:
        """Read and verify a block's records."""
        header = block.header
        block.data = self.read_block(block.path, block.size if limit is None else min(block.size, limit))
        start = min(RECORDS_START, len(block.data))
        scan = scan_block(
            block.data,
            start,
            len(block.data),
            base_seq=header.base_seq,
            base_time=header.base_time,
            salt=header.salt,
            seq_min=header.first_seq,
            seq_stop=stop_seq,
        )
        if scan.is_newer:
            raise NewerFormat(block.path, 2)
        block.scan = scan
        for offset, size in scan.damaged():
            self.report.add(
                "damaged records", block.path, f"{size} damaged bytes at {offset}", offset=offset, size=size
            )
        if scan.torn:
            self.report.add(
                "torn tail",
                block.path,
                f"the last {scan.torn} bytes are no whole record: the block ends at {scan.stop}",
                offset=scan.stop,
                size=scan.torn,
            )
        block.size = scan.stop
        block.controls = block.all_controls = block.controls_from(0)

    def read_block(self, path: str, size: int) -> memoryview:
        """The first bytes of a block, in memory that the next call uses again."""
        if len(self.buffer) < size:
            self.buffer = bytearray(size)
        fd = self.disk.open(path)
        try:
            got = self.disk.read_into(fd, memoryview(self.buffer)[:size])
        finally:
            self.disk.close(fd)
        return memoryview(self.buffer)[:got]

    def place(self, block: BlockOnDisk) -> None:
        header = block.header
        self.headers[header.block_id] = header
        engine_blocks.place_block(
            self.engine,
            header.block_id,
            os.fsencode(block.path),
            header.first_seq,
            header.base_seq,
            header.base_time,
            header.salt,
            block.size,
        )

    def run(self, limit: tuple[int, int] | None = None, is_doubted: bool = False) -> Recovered:
        """Fill the index. `limit` (block id, offset) is where a reader beside a writer stops.

        CheckpointUnfit: begin again with an empty index, in doubt of the checkpoint.
        """
        index = self.engine.index
        blocks = self.list_blocks()
        head = self.read_head() if self.head is None else self.head
        if head is not None and not self.is_possible(head, blocks):
            self.report.add("rebuilt", self.paths.head, "HEAD does not fit the blocks: it is worked out from them")
            head = limit = None
        if limit is not None:
            blocks = [block for block in blocks if block.header.block_id <= limit[0]]
        self.judge_head(head, blocks)
        evidence = self.read_checkpoint()
        checkpoint = evidence if evidence is not None and not is_doubted and self.fits(evidence, blocks) else None
        if evidence is not None and checkpoint is None:
            self.report.add("rebuilt", self.paths.checkpoint, "the checkpoint is stale: rebuilt from the blocks")
        listed = {row.block_id: row for row in checkpoint.blocks} if checkpoint else {}
        numbering = checkpoint.numbering if checkpoint else 0
        if checkpoint is not None:
            try:
                tables.load_subjects(index, checkpoint.subjects, checkpoint.num_subjects, self.number_stop)
            except ValueError as error:
                raise CheckpointUnfit(str(error)) from error
            loading.set_bytes(index, checkpoint.message_bytes)
        last_listed = max(listed, default=0)
        # Summaries first: they carry the numbers of subjects, which a scan would otherwise give out anew.
        for at, block in enumerate(blocks):
            block_id = block.header.block_id
            if block_id in listed and block_id != last_listed:
                continue
            if at + 1 < len(blocks):
                block.summary = self.usable_summary(block, numbering)
                if block.summary is not None:
                    numbering = block.summary.numbering
        for at, block in enumerate(blocks):
            block_id = block.header.block_id
            row = listed.get(block_id)
            is_last = at + 1 == len(blocks)
            if row is not None and block_id != last_listed:
                block.is_synced = row.last_seq < self.synced_seq
                if row.last_seq >= self.trusted_seq:
                    self.check_listed(block, row.size)
                block.size = row.size
                block.subject_filter = row.subject_filter
                self.place(block)
                loading.fill_from_summary(
                    index, block_id, row.rows, row.seq_base, row.is_dense, row.message_bytes, row.time_min,
                    row.time_max,
                    row.last_checksum,
                )  # fmt: skip
                tables.load_dead(index, block_id, row.dead, row.live, row.live_bytes)
                loading.set_bounds(index, block_id, row.last_seq, row.target_low, row.target_high)
                continue
            if block.summary is not None:
                self.load_summary(block)
            else:
                stop_seq = SEQ_STOP if is_last else blocks[at + 1].header.first_seq
                self.scan(block, stop_seq, limit[1] if limit is not None and block_id == limit[0] else None)
                self.place(block)
                assert block.scan is not None
                block.erased = loading.fill_from_scan(index, block_id, block.scan, block.data)
                block.marks = IdsAndExpiries.of_scan(block.scan, block.data)
            if row is not None:
                # Its rows up to the checkpoint are counted already, and what its records said is applied.
                if block.scan is not None:
                    block.controls = block.controls_from(row.size)
                if loading.row_count(index, block_id) < row.rows:
                    raise CheckpointUnfit(f"block {block_id} has fewer rows")
                if block.scan is not None and (
                    block.size < row.size or any(offset < row.size for offset, _ in block.scan.damaged())
                ):
                    raise CheckpointUnfit(f"block {block_id} is damaged")
                loading.count_rest(index, block_id, row.rows, row.dead, row.live, row.live_bytes)
                loading.set_bounds(index, block_id, row.last_seq, row.target_low, row.target_high)
            elif block.summary is not None:
                tables.count_names(index, block_id, block.summary.section(NAMES))
            else:
                loading.count_rows(index, block_id, 0)
            if block.scan is not None:
                # Of all blocks but the last only what is known of them stays in memory.
                block.scan.drop_rows()
                block.data = bytes(block.data) if is_last else b""
        return self.finish(blocks, head, checkpoint, evidence, numbering, last_listed)

    def check_listed(self, block: BlockOnDisk, size: int) -> None:
        """Read a block that the checkpoint lists and that the power cut may have taken from it."""
        header = block.header
        data = self.read_block(block.path, size)
        scan = scan_block(
            data, min(RECORDS_START, len(data)), len(data), base_seq=header.base_seq, base_time=header.base_time,
            salt=header.salt, seq_min=header.first_seq,
        )  # fmt: skip
        if scan.stop < size or scan.damaged():
            raise CheckpointUnfit(f"block {header.block_id} is not all there")

    def usable_summary(self, block: BlockOnDisk, numbering: int) -> Summary | None:
        """The block's summary, when it belongs to it and to the numbering of the others."""
        summary = None if block.is_suspect else self.read_summary(block.header.block_id, block.path)
        if summary is None:
            return None
        if summary.header != block.header or summary.data_size > block.size:
            self.report.add("rebuilt", block.path, "the summary is stale: rebuilt from the block")
            return None
        block.is_synced = summary.last_seq < self.synced_seq
        if summary.last_seq >= self.trusted_seq or (numbering and summary.numbering != numbering):
            return None
        if not tables.check_names(self.engine.index, summary.section(NAMES)):
            return None
        return summary

    def load_summary(self, block: BlockOnDisk) -> None:
        summary = block.summary
        assert summary is not None
        index, block_id = self.engine.index, block.header.block_id
        block.size = summary.data_size
        block.controls = bytes(summary.section(CONTROLS))
        block.subject_filter = bytes(summary.section(FILTER))
        self.place(block)
        loading.fill_from_summary(
            index, block_id, summary.count, summary.seq_base, summary.is_dense, summary.message_bytes,
            summary.time_min, summary.time_max, summary.last_checksum,
        )  # fmt: skip
        loading.set_bounds(index, block_id, summary.last_seq, SEQ_STOP, 0)
        block.marks = marks_of(index, summary)

    def finish(
        self,
        blocks: list[BlockOnDisk],
        head: Head | None,
        checkpoint: Checkpoint | None,
        evidence: Checkpoint | None,
        numbering: int,
        last_listed: int,
    ) -> Recovered:
        """Apply the control records, find where the stream begins and ends, and what is lost."""
        index = self.engine.index
        skips, lost = SeqSet(), SeqSet()
        # Blocks at the front go only after a floor record: what is missing between floor and first block is lost.
        floor = checkpoint.floor if checkpoint else 1
        last_seq = checkpoint.last_seq if checkpoint else 0
        for start, stop in checkpoint.skips if checkpoint else ():
            skips.add_range(start, stop - 1)
        for start, stop in checkpoint.lost if checkpoint else ():
            lost.add_range(start, stop - 1)
        held = max([last_seq, *(block_last for _, _, block_last in loading.block_ends(index))])
        if evidence is not None and evidence.last_seq > held + LEAP_MAX:
            evidence = None
        if head is not None and max(head.committed_seq, head.assigned_seq) > held + LEAP_MAX:
            self.report.add("rebuilt", self.paths.head, "HEAD is far beyond the blocks: it is worked out from them")
            head = None
        facts = checkpoint, evidence, head
        doubted = Doubted(self.first_gap(blocks, floor, skips, lost, facts))
        floor, gone, erased = apply_controls(blocks, skips, lost, index, floor, doubted)
        ends = loading.block_ends(index)
        for _, _, block_last in ends:
            last_seq = max(last_seq, block_last)
        data_last = last_seq
        if evidence is not None:
            last_seq = max(last_seq, evidence.last_seq)
        if head is not None:
            last_seq = max(last_seq, head.committed_seq, head.assigned_seq)
        # What a checkpoint counts is above its floor already.
        loading.set_ends(index, checkpoint.floor if checkpoint else 0, max(last_seq, data_last))
        loading.raise_floor(index, floor)
        for first, last in gone.ranges():
            loading.kill_range(index, first, last + 1)
        explained = gone.copy()
        explained.update(doubted.gone)
        newly_lost = self.find_holes(blocks, max(floor, doubted.floor), skips, explained, lost, facts)
        self.tell_lost(newly_lost)
        loading.set_ends(index, max(floor, 1), max(last_seq, data_last, floor - 1))
        loading.find_ghosts(index)
        loading.forget_changes(index)
        expiries = {seq: expiry for seq, expiry in checkpoint.expiries} if checkpoint else {}
        for block in blocks:
            if block.marks.has_expiries():
                expiries |= {seq: expiry for seq, _time, _hash, expiry in block.marks if expiry}
        times = [time for time in loading.time_bounds(index) if time is not None]
        is_clean = self.is_stopped and not newly_lost and last_seq == data_last
        told = [one.epoch for one in (head, checkpoint, evidence) if one is not None]
        epoch = max(told + [block.header.epoch for block in blocks], default=0)
        return Recovered(
            head=head,
            checkpoint=checkpoint,
            blocks=blocks,
            numbering=numbering,
            epoch=epoch,
            next_block_id=self.highest_id + 1,
            doubted=doubted.records,
            is_clean=is_clean or (head is None and not blocks and evidence is None),
            last_seq=data_last,
            last_time=max([checkpoint.last_time if checkpoint else 0, *times], default=0),
            skips=skips,
            lost=lost,
            newly_lost=newly_lost,
            expiries=sorted(expiries.items()),
            erased=erased,
            set_aside=self.set_aside,
            empty=self.empty,
            leftovers=self.leftovers,
        )

    def first_gap(self, blocks: list[BlockOnDisk], floor: int, skips: SeqSet, lost: SeqSet, facts: Facts) -> int:
        """The first sequence that a power cut may have taken out of the middle of what was being written; SEQ_STOP
        where there is none."""
        if self.trusted_seq == SEQ_STOP:
            return SEQ_STOP
        skips, lost = skips.copy(), lost.copy()
        floor, gone, _ = apply_controls(blocks, skips, lost, self.engine.index, floor)
        holes = self.find_holes(blocks, floor, skips, gone, lost, facts)
        return holes.present_from(max(self.synced_seq, 1)) or SEQ_STOP

    def find_holes(
        self, blocks: list[BlockOnDisk], floor: int, skips: SeqSet, gone: SeqSet, lost: SeqSet, facts: Facts
    ) -> SeqSet:
        """Sequences that were given out, of which no record tells what became of them."""
        checkpoint, evidence, head = facts
        holes = SeqSet()
        if evidence is not None:
            floor = max(floor, evidence.floor)  # what it knew to be gone is not lost; what is there all the same stays
        if checkpoint is not None:
            floor = max(floor, checkpoint.last_seq + 1)  # it tells what is lost below
        expected = floor
        data_last = checkpoint.last_seq if checkpoint else 0
        for _block_id, first_seq, block_last in loading.block_ends(self.engine.index):
            if first_seq > expected:
                holes.add_range(expected, first_seq - 1)
            expected = max(expected, block_last + 1)
            data_last = max(data_last, block_last)
        for block in blocks:
            if block.scan is not None or (block.summary is not None and not block.summary.is_dense):
                for first, last in loading.row_gaps(self.engine.index, block.header.block_id):
                    if last >= floor:
                        holes.add_range(max(first, floor), last)
        committed = max(head.committed_seq if head else 0, evidence.last_seq if evidence else 0)
        if committed > data_last:
            holes.add_range(max(data_last + 1, floor), committed)
        found = SeqSet()
        for first, last in holes.ranges():
            for start, stop in subtract((first, last + 1), (skips, gone, lost, self.explained)):
                found.add_range(start, stop - 1)
        return found

    def tell_lost(self, found: SeqSet) -> None:
        if found:
            ranges = tuple((first, last + 1) for first, last in found.ranges())
            self.report.add(
                "lost sequences",
                self.paths.root,
                f"{found.count()} sequences are lost: {format_ranges(ranges)}",
                seqs=ranges,
            )


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


def marks_of(index: Index, summary: Summary) -> IdsAndExpiries:
    """What a summary lists of the messages with an id or a TTL."""
    return IdsAndExpiries.of_summary(index, summary.header.block_id, summary.section(IDS), summary.section(EXPIRIES))


def subtract(span: tuple[int, int], sets: tuple[SeqSet, ...]) -> list[tuple[int, int]]:
    """What is left of a half open range without the members of the sets."""
    left = [span]
    for members in sets:
        rest: list[tuple[int, int]] = []
        for start, stop in left:
            at = start
            while at < stop:
                present = members.present_from(at)
                if present is None or present >= stop:
                    rest.append((at, stop))
                    break
                if present > at:
                    rest.append((at, present))
                absent = members.absent_from(present)
                at = stop if absent is None else absent
        left = rest
    return left


def decode_controls(block: BlockOnDisk) -> list[dict[str, Any]]:
    """A block's control records, decoded."""
    header, at, found = block.header, 0, []
    while at < len(block.controls):
        record = decode(block.controls, at, base_seq=header.base_seq, base_time=header.base_time, salt=header.salt)
        found.append(record)
        at = record["stop"]
    return found
