"""Recovery: from the files of a stream to its index. Rules: docs/format.md, and ARCHITECTURE.md ("Opening").

The order is: the list of blocks; the checkpoint, if it fits them; summaries of the blocks after it; a scan of the last
block and of those without a summary; then the control records, which only ever remove. Nothing here writes; what should
be written is collected for the store.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.base.disk import Disk
from penstock.base.ranges import subtract
from penstock.base.seq_set import SeqSet
from penstock.errors import NewerFormat
from penstock.format.block_header import BlockHeader, boot_id, decode_front
from penstock.format.block_scan import scan_block
from penstock.format.bounds import LEAP_MAX, SEQ_MAX
from penstock.format.constants import RECORDS_START
from penstock.format.head import Head, decode_head
from penstock.format.paths import StreamPaths, parse_block_name
from penstock.store.index import loading, tables
from penstock.store.index.checkpoint import Checkpoint, decode_checkpoint
from penstock.store.index.ids_and_expiries import IdsAndExpiries
from penstock.store.index.summary import (
    CONTROLS,
    FILTER,
    NAMES,
    NUMBER_STOP,
    Summary,
    decode_summary,
    ids_and_expiries_of,
)
from penstock.store.open.block_on_disk import BlockOnDisk
from penstock.store.open.control_records import SEQ_STOP, Doubted, apply_controls
from penstock.store.open.report import Report, format_ranges
from penstock.store.write import engine_blocks
from penstock.store.write.engine import StreamEngine

NUMBERS_MIN, NUMBER_WEIGHT = 65536, 3  # so many subject numbers, and one per so many bytes of what tells them


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


def recover(
    disk: Disk,
    paths: StreamPaths,
    stream_id: bytes,
    begin: Callable[[dict[int, BlockHeader]], StreamEngine],
    limit: tuple[int, int] | None = None,
    explained: SeqSet | None = None,
    head: Head | None = None,
) -> tuple[Report, Recovered]:
    """Fill an index from a stream's files, with the checkpoint if it fits. `begin` returns an empty engine each time.

    `begin` gets the headers of the blocks as they come into the index, whose arrays may be loaded at once. Sequences in
    `explained` do not count as lost when no record mentions them.
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
        """The bound of subject numbers. A number out of proportion would cost memory: then the block itself is read,
        and its subjects get new numbers."""
        return min(NUMBERS_MIN + self.told_size // NUMBER_WEIGHT, NUMBER_STOP)

    def read_head(self) -> Head | None:
        try:
            return decode_head(self.disk.read_file(self.paths.head), self.stream_id)
        except FileNotFoundError:
            return None

    def judge_head(self, head: Head | None, blocks: list[BlockOnDisk]) -> None:
        """Whether the stream was stopped properly, and up to where the blocks hold everything that was written.

        After a power cut a summary may exist while the end of its block is missing. Within the same boot the system
        still has every write.
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
        """The checkpoint, if it is valid. It may not fit the blocks; even then its contents are evidence."""
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
        """The first bytes of a block, in memory that the next call reuses."""
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
                block.summary = self.usable_summary(block, numbering, blocks[at + 1].header.first_seq)
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
                block.ids_and_expiries = IdsAndExpiries.of_scan(block.scan, block.data)
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

    def usable_summary(self, block: BlockOnDisk, numbering: int, stop_seq: int) -> Summary | None:
        """The block's summary, when it belongs to it and to the numbering of the others; the next block begins at
        `stop_seq`."""
        summary = None if block.is_suspect else self.read_summary(block.header.block_id, block.path)
        if summary is None:
            return None
        if summary.header != block.header or summary.data_size > block.size or summary.last_seq >= stop_seq:
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
        block.ids_and_expiries = ids_and_expiries_of(index, summary)

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
            loading.drop_range(index, first, last + 1)
        explained = gone.copy()
        explained.update(doubted.gone)
        newly_lost = self.find_holes(blocks, max(floor, doubted.floor), skips, explained, lost, facts)
        self.tell_lost(newly_lost)
        loading.set_ends(index, max(floor, 1), max(last_seq, data_last, floor - 1))
        loading.find_unused_numbers(index)
        loading.forget_changes(index)
        expiries = {seq: expiry for seq, expiry in checkpoint.expiries} if checkpoint else {}
        for block in blocks:
            if block.ids_and_expiries.has_expiries():
                expiries |= {seq: expiry for seq, _time, _hash, expiry in block.ids_and_expiries if expiry}
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
        """The first sequence that a power cut may have lost from the middle of a running write; SEQ_STOP: none."""
        if self.trusted_seq == SEQ_STOP:
            return SEQ_STOP
        skips, lost = skips.copy(), lost.copy()
        floor, gone, _ = apply_controls(blocks, skips, lost, self.engine.index, floor)
        holes = self.find_holes(blocks, floor, skips, gone, lost, facts)
        return holes.present_from(max(self.synced_seq, 1)) or SEQ_STOP

    def find_holes(
        self, blocks: list[BlockOnDisk], floor: int, skips: SeqSet, gone: SeqSet, lost: SeqSet, facts: Facts
    ) -> SeqSet:
        """Sequences that were given out, but for which no record says what became of them."""
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
