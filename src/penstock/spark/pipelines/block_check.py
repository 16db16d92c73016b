"""block_check: one block of a stream against its checksums, its summary and HEAD. Rules: docs/format.md.

What `penstock verify` says of a block, for workers: a block is read once into memory that the next one uses again, and
walked once by the kernel. Only where something is wrong the stream's index is read, to tell what that costs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.base.disk import Disk
from penstock.base.seq_set import SeqSet
from penstock.errors import CorruptBlock, NewerFormat
from penstock.format.block_header import BlockHeader, decode_front, decode_header
from penstock.format.block_scan import BlockScan, scan_block
from penstock.format.constants import HEADER_SIZE, HEADER_STRIDE, KINDS, RECORDS_START
from penstock.scan.block_memory import BlockMemory
from penstock.store.index.summary import Summary, decode_summary
from penstock.store.read.damage_bounds import Neighbours
from penstock.store.read.snapshot import Snapshot

SEQ_STOP = 2**63 - 1
TRIES = 3
PAUSE_S = 0.05  # beside a writer, before something is called damaged: an erase may be under way
SKIP = KINDS.index("skip")
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is not as it was written."""

    stream: str
    block: int  # 0: of no block
    path: str
    offset: int
    size: int
    reason: str
    seqs: tuple[Range, ...] = ()  # half open: the messages that it may have cost
    is_known: bool = False  # written down by an open or a repair: no reason to fail


@dataclass(frozen=True, slots=True)
class BlockRun:
    """Blocks of one stream that one task checks, in order; as far as committed at planning."""

    root: str
    stream: str
    stream_id: bytes
    blocks: tuple[tuple[int, str], ...]  # id and name of the file
    next_name: str  # of the block after the last; "" for none
    head: tuple[int, int, int] | None  # HEAD's block, offset and committed sequence
    size: int = 0  # about what it reads


@dataclass(slots=True)
class Checked:
    """What was read, and what was wrong with it."""

    blocks: int = 0
    bytes: int = 0
    messages: int = 0
    controls: int = 0
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class IndexOfLoss:
    """A stream's index, read when the first question comes: which sequences of a range should be readable."""

    def __init__(self, root: str, stream_id: bytes, stream: str, disk: Disk) -> None:
        self.root, self.stream_id, self.stream, self.disk = root, stream_id, stream, disk
        self._snapshot: Snapshot | None = None
        self._is_read = False
        self.why = ""  # no index can be had

    def snapshot(self) -> Snapshot | None:
        if not self._is_read:
            self._is_read = True
            try:
                self._snapshot = Snapshot(self.root, self.stream_id, name=self.stream, disk=self.disk)
            except (CorruptBlock, ValueError) as error:
                self.why = str(error)
        return self._snapshot

    def newly_lost(self) -> SeqSet:
        """Lost sequences that nobody has written down; what is above HEAD came while the index was read."""
        snapshot = self.snapshot()
        return SeqSet() if snapshot is None else snapshot.unrecorded_losses()

    def lost_between(self, start: int, stop: int) -> SeqSet:
        """Those of `newly_lost` in [start, stop)."""
        found = SeqSet()
        for first, last in self.newly_lost().ranges():
            if max(first, start) <= min(last, stop - 1):
                found.add_range(max(first, start), min(last, stop - 1))
        return found

    def missing(self, start: int, stop: int) -> tuple[Range, ...]:
        """The sequences in [start, stop) that should be readable, or whose loss nobody has recorded."""
        snapshot = self.snapshot()
        if start >= stop or snapshot is None:
            return ((start, stop),) if start < stop else ()
        gone = self.lost_between(start, stop)
        seq = snapshot.query.next_seq((), start, stop)
        while seq:
            gone.add(seq)
            seq = snapshot.query.next_seq((), seq + 1, stop) if seq + 1 < stop else 0
        return tuple((first, last + 1) for first, last in gone.ranges())

    def close(self) -> None:
        if self._snapshot is not None:
            self._snapshot.stop()


_memory = BlockMemory()  # kept by the process for the tasks to come: fresh memory costs as much as reading into it


class BlockChecker:
    """Checks the blocks of a run, one after the other."""

    def __init__(self, run: BlockRun, disk: Disk | None = None) -> None:
        self.run, self.disk, self.found = run, disk or Disk(), Checked()
        self.folder = os.path.join(run.root, "blocks")
        self.index = IndexOfLoss(run.root, run.stream_id, run.stream, self.disk)

    def check(self) -> Checked:
        names = [name for _, name in self.run.blocks] + [self.run.next_name]
        try:
            following = self.front(names[0])
            low = 1
            for (block_id, name), next_name in zip(self.run.blocks, names[1:], strict=True):
                header, following = following, self.front(next_name) if next_name else None
                self.check_block(block_id, os.path.join(self.folder, name), header, following, low)
                low = header.first_seq if header is not None else low
        finally:
            self.index.close()
        return self.found

    def add(
        self, block: int, path: str, reason: str, offset: int = 0, size: int = 0, seqs: tuple[Range, ...] = (),
        is_known: bool = False,
    ) -> None:  # fmt: skip
        self.found.problems.append(Problem(self.run.stream, block, path, offset, size, reason, seqs, is_known))

    def front(self, name: str) -> BlockHeader | None:
        """The header of a block from the copy that holds; None where there is none."""
        path = os.path.join(self.folder, name)
        try:
            fd = self.disk.open(path)
        except FileNotFoundError:
            return None
        try:
            first = self.disk.read(fd, HEADER_SIZE)
            return decode_header(first, path) or decode_front(self.disk.read(fd, RECORDS_START), path)
        finally:
            self.disk.close(fd)

    def read(self, path: str, stop: int | None) -> tuple[memoryview, int]:
        """The bytes of a block up to `stop`, in memory that the next block uses again, and the file's size."""
        fd = self.disk.open(path)
        try:
            size = self.disk.size(fd)
            wanted = size if stop is None else min(stop, size)
            _memory.reserve(wanted)
            view = memoryview(_memory.pages)
            return view[: self.disk.read_into(fd, view[:wanted])], size
        finally:
            self.disk.close(fd)

    def summary_of(self, block_id: int, path: str, header: BlockHeader | None) -> Summary | None:
        name = path.removesuffix(".blk") + ".sum"
        try:
            data = self.disk.read_file(name)
        except FileNotFoundError:
            return None
        self.found.bytes += len(data)
        summary = decode_summary(data, name)
        if summary is None:
            self.add(block_id, name, "the checksum differs; it is worked out from its block", size=len(data))
            return None
        own = summary.header
        if (own.stream_id, own.block_id) != (self.run.stream_id, block_id) or (header and header.salt != own.salt):
            self.add(block_id, name, "it belongs to another block or stream", size=len(data))
            return None
        return summary

    def check_block(
        self, block_id: int, path: str, header: BlockHeader | None, following: BlockHeader | None, low: int
    ) -> None:
        """Both header copies, every record, and the summary; what a block without a header held lies above `low`."""
        summary = self.summary_of(block_id, path, header)
        header = header or (summary.header if summary is not None else None)
        try:
            if header is None or (header.stream_id, header.block_id) != (self.run.stream_id, block_id):
                self.check_stranger(block_id, path, header, low, following.first_seq if following else SEQ_STOP)
                return
            self.check_own(path, header, summary, following)
        except FileNotFoundError:
            # The writer removes blocks that hold nothing any more. One that should be there is missed by the index.
            self.found.notes.append(f"{path}: it went away before it was read")

    def check_stranger(self, block_id: int, path: str, header: BlockHeader | None, low: int, high: int) -> None:
        size = os.path.getsize(path)
        if size == 0:
            self.found.notes.append(f"{path}: an empty block: nothing was in it")
            return
        self.found.blocks += 1
        self.found.bytes += size
        why = "no header of it holds" if header is None else "it belongs to another stream or block"
        lost = self.index.lost_between(low, high)
        self.add(block_id, path, why, size=size, seqs=tuple((first, last + 1) for first, last in lost.ranges()))

    def check_own(self, path: str, header: BlockHeader, summary: Summary | None, following: BlockHeader | None) -> None:
        head = self.run.head if self.run.head is not None and self.run.head[0] == header.block_id else None
        promised = head[1] if head is not None else summary.data_size if summary is not None else None
        next_seq = following.first_seq if following is not None and following.first_seq >= header.first_seq else None
        for attempt in range(TRIES):
            data, size = self.read(path, promised)
            bad_copies = [
                at for at in (0, HEADER_STRIDE) if decode_header(bytes(data[at : at + HEADER_SIZE]), path) is None
            ]
            scan = scan_block(
                data, min(RECORDS_START, len(data)), len(data), base_seq=header.base_seq, base_time=header.base_time,
                salt=header.salt, seq_min=header.first_seq, seq_stop=SEQ_STOP if next_seq is None else next_seq,
            )  # fmt: skip
            is_short = promised is not None and size < promised
            if not (scan.damage_count or scan.torn or bad_copies or is_short):
                break
            if attempt + 1 < TRIES:
                time.sleep(PAUSE_S)
        if scan.is_newer:
            raise NewerFormat(path, 2)
        self.found.blocks += 1
        self.found.bytes += len(data)
        self.found.messages += scan.count
        self.found.controls += scan.control_count
        for at in bad_copies:
            held = "the other copy holds" if len(bad_copies) == 1 else "both are damaged; the summary has it"
            text = f"header copy {at // HEADER_STRIDE + 1} of 2: the checksum differs; {held}"
            self.add(header.block_id, path, text, at, HEADER_SIZE)
        places = list(self.places(path, data, scan, promised))
        if places:
            upper = head[2] + 1 if head is not None else next_seq or (summary.last_seq + 1 if summary else 0)
            self.judge(path, header, data, scan, summary, places, upper)
        elif summary is not None and head is None and _told(summary) != (scan.count, scan.last_checksum):
            name = path.removesuffix(".blk") + ".sum"
            self.add(header.block_id, name, "it does not agree with its block", size=os.path.getsize(name))

    def places(
        self, path: str, data: memoryview, scan: BlockScan, promised: int | None
    ) -> Iterator[tuple[int, int, int]]:
        """The damaged places: offset, size, and where the bytes that are there end."""
        for offset, size in scan.damaged():
            yield offset, size, offset + size
        if promised is not None and scan.stop < promised and (scan.torn or len(data) < promised):
            yield scan.stop, promised - scan.stop, len(data)
        elif scan.torn:
            self.found.notes.append(
                f"{path}: the last {scan.torn} bytes are no whole record: a torn tail, never acknowledged"
            )

    def judge(
        self, path: str, header: BlockHeader, data: memoryview, scan: BlockScan, summary: Summary | None,
        places: list[tuple[int, int, int]], upper: int,
    ) -> None:  # fmt: skip
        """What each damaged place may have cost."""
        recorded = set(summary.damage) if summary is not None else set()
        neighbours = Neighbours(header, data, scan)
        for offset, size, end in places:
            start, stop = neighbours.between(offset, end)
            stop = upper if stop is None else stop
            seqs = self.index.missing(start, stop)
            is_known = (offset, size) in recorded and not seqs
            is_cut = end == len(data) < offset + size
            reason = "the file ends early" if is_cut else "the checksum differs"
            if not seqs and start >= stop:
                reason += "; a control record (delete, floor or skip)"
            elif not seqs:
                reason += "; what it held was deleted or lost before"
            self.add(header.block_id, path, reason, offset, size, seqs, is_known)


def _told(summary: Summary) -> tuple[int, int]:
    """What a summary says of its block's records."""
    return summary.count, summary.last_checksum


__all__ = ["BlockChecker", "BlockRun", "Checked", "IndexOfLoss", "Problem"]
