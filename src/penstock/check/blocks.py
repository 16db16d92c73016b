"""BlockChecker: both header copies of a block, every record, and the summary that stands beside it.

Rules: docs/format.md. Each block is read once, into memory that the next one uses again. Beside a writer the check
goes as far as HEAD says, and reads again before it calls anything damaged: an erase may be under way. A file that
recovery does not take for a block of the stream is left to stream_state.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise

from penstock.base.disk import Disk
from penstock.check.agreement import last_seq_of, summary_differs
from penstock.check.parts import BlockRun, read_header
from penstock.check.problem import PartCheck, attempts
from penstock.check.stream_index import SEQ_STOP, StreamIndex
from penstock.errors import NewerFormat
from penstock.format.block_header import BlockHeader, decode_header
from penstock.format.block_scan import BlockScan, scan_block
from penstock.format.constants import HEAD_SLOT_SIZE, HEADER_SIZE, HEADER_STRIDE, RECORDS_START
from penstock.format.head import Head
from penstock.format.paths import StreamPaths, parse_block_name
from penstock.format.record import decode
from penstock.scan.block_memory import BlockMemory
from penstock.store.index.summary import Summary, decode_summary
from penstock.store.open.report import format_ranges
from penstock.store.read.damage_bounds import DamageBounds

UNCONFIRMED = "stand after the place that HEAD names"


class BlockChecker:
    """Checks the blocks of a run, one after the other."""

    def __init__(
        self, disk: Disk, run: BlockRun, index: StreamIndex, memory: BlockMemory, advance: Callable[[int], None]
    ) -> None:
        self.disk, self.run, self.index, self.memory, self.advance = disk, run, index, memory, advance
        self.paths, self.found = StreamPaths(run.folder.root), PartCheck()

    def check(self) -> PartCheck:
        names = [*self.run.names, self.run.next_name]
        paths = [os.path.join(self.paths.blocks, name) if name else "" for name in names]
        header = self.read_header(paths[0])
        for path, next_path in pairwise(paths):
            next_header = self.read_header(next_path)
            try:
                self.check_block(path, header, next_header)
            except FileNotFoundError:  # a writer removes blocks in which nothing is left
                if not self.run.has_writer:
                    self.found.add("missing file", path, "it went away while it was read")
            header = next_header
        return self.found

    def read_header(self, path: str) -> BlockHeader | None:
        return read_header(self.disk, path)[0] if path else None

    def check_block(self, path: str, header: BlockHeader | None, following: BlockHeader | None) -> None:
        name = parse_block_name(os.path.basename(path))
        summary = self.check_summary(path, header)
        if header is None and summary is not None and summary.data_size <= os.path.getsize(path):
            header = summary.header
        if header is None or header.stream_id != self.run.stream_id or (header.block_id, header.generation) != name:
            return
        next_seq = None
        if following is not None and following.stream_id == header.stream_id:
            next_seq = following.first_seq if following.first_seq >= header.first_seq else None
        self.check_records(path, header, summary, next_seq)

    def check_summary(self, path: str, header: BlockHeader | None) -> Summary | None:
        name = path.removesuffix(".blk") + ".sum"
        try:
            data = self.disk.read_file(name)
        except FileNotFoundError:
            return None
        self.found.bytes += len(data)
        summary = decode_summary(data, name)
        if summary is None:
            self.found.add("damaged file", name, "it does not hold; it is worked out from its block", size=len(data))
            return None
        own, parsed = summary.header, parse_block_name(os.path.basename(path))
        is_own = parsed is not None and (own.stream_id, own.block_id) == (self.run.stream_id, parsed[0])
        if not is_own or (header is not None and header.salt != own.salt):
            self.found.add("damaged file", name, "it belongs to another block or stream", size=len(data))
            return None
        return summary

    def read_block(self, path: str, stop: int | None) -> tuple[memoryview, int]:
        """The bytes of a block up to `stop`, and the size of the file."""
        fd = self.disk.open(path)
        try:
            size = self.disk.size(fd)
            wanted = size if stop is None else min(stop, size)
            self.memory.reserve(wanted)
            view = memoryview(self.memory.pages)
            return view[: self.disk.read_into(fd, view[:wanted])], size
        finally:
            self.disk.close(fd)

    def check_records(self, path: str, header: BlockHeader, summary: Summary | None, next_seq: int | None) -> None:
        head = self.run.head if self.run.head is not None and self.run.head.block_id == header.block_id else None
        self.check_up_to_end(path, header, summary, next_seq, head)

    def check_up_to_end(
        self, path: str, header: BlockHeader, summary: Summary | None, next_seq: int | None, head: Head | None
    ) -> None:
        """Check the records up to where HEAD, or else the summary, has the block end."""
        promised = head.offset if head is not None else summary.data_size if summary is not None else None
        for _ in attempts():
            data, size = self.read_block(path, promised)
            damaged_copies = [
                at for at in (0, HEADER_STRIDE) if decode_header(bytes(data[at : at + HEADER_SIZE]), path) is None
            ]
            scan = scan_block(
                data, min(RECORDS_START, len(data)), len(data), base_seq=header.base_seq, base_time=header.base_time,
                salt=header.salt, seq_min=header.first_seq, seq_stop=SEQ_STOP if next_seq is None else next_seq,
            )  # fmt: skip
            is_short = promised is not None and size < promised
            if not (scan.damage_count or scan.torn or damaged_copies or is_short):
                break
        if scan.is_newer:
            raise NewerFormat(path, 2)
        if promised is not None and scan.torn and promised < size and self.goes_on(path, header, scan.stop, promised):
            name = self.paths.head if head is not None else path.removesuffix(".blk") + ".sum"
            text = f"it does not agree with the block: one of its records goes on after byte {promised}"
            self.found.add("damaged file", name, text, size=os.path.getsize(name))
            self.found.is_damaged = True
            self.check_up_to_end(path, header, None, next_seq, None)  # to the end of the file
            return
        self.found.blocks += 1
        self.found.messages += scan.count
        self.found.controls += scan.control_count
        self.found.bytes += len(data)
        self.advance(len(data))
        for at in damaged_copies:
            held = "the other copy holds" if len(damaged_copies) == 1 else "both are damaged; the summary has it"
            text = f"header copy {at // HEADER_STRIDE + 1} of 2: the checksum differs; {held}"
            self.found.add("damaged header", path, text, at, HEADER_SIZE)
        places = self.damaged_places(path, data, scan, promised)
        if places:
            self.found.is_damaged = True
            self.add_damage(path, header, data, scan, summary, places, head, next_seq, promised)
        else:
            self.check_agreement(path, header, scan, data, summary, head, next_seq)
        if head is not None and not self.run.has_writer and size > head.offset:
            self.note_unconfirmed(path, header, head.offset)

    def goes_on(self, path: str, header: BlockHeader, offset: int, stop: int) -> bool:
        """Whether a whole record begins at `offset` and passes `stop`: then the block does not end at `stop`."""
        data, _ = self.read_block(path, None)
        try:
            record = decode(data, offset, base_seq=header.base_seq, base_time=header.base_time, salt=header.salt)
        except ValueError:
            return False
        return int(record["stop"]) > stop

    def damaged_places(
        self, path: str, data: memoryview, scan: BlockScan, promised: int | None
    ) -> list[tuple[int, int, int]]:
        """Offset, size, and where the bytes that are there end. `promised` is where HEAD or the summary have the block
        end."""
        places = [(offset, size, offset + size) for offset, size in scan.damaged()]
        if promised is not None and scan.stop < promised and (scan.torn or len(data) < promised):
            places.append((scan.stop, promised - scan.stop, len(data)))
        elif scan.torn:
            self.found.notes.append(
                f"{path}: the last {scan.torn} bytes are no whole record: a torn tail, never acknowledged"
            )
        return places

    def add_damage(
        self, path: str, header: BlockHeader, data: memoryview, scan: BlockScan, summary: Summary | None,
        places: list[tuple[int, int, int]], head: Head | None, next_seq: int | None, promised: int | None,
    ) -> None:  # fmt: skip
        """Each damaged place, and what it costs."""
        recorded = set(summary.damage) if summary is not None else set()
        bounds = DamageBounds(header, data, scan)
        for offset, size, end in places:
            start, stop = bounds.between(offset, end)
            if stop is None and head is not None:
                stop = head.committed_seq + 1
            elif stop is None:
                after = next_seq or self.index.first_seq_after(header.block_id)
                stop = after or (summary.last_seq + 1 if summary is not None else 0)
            seqs = self.index.cost_of(start, stop)
            is_known = (offset, size) in recorded and not seqs
            is_cut = promised is not None and end == len(data) < promised
            text = f"{size} bytes: " + ("the file ends early" if is_cut else "the checksum differs")
            if seqs:
                is_one = sum(b - a for a, b in seqs) == 1
                text += f"; costs {'message' if is_one else 'messages'} {format_ranges(seqs)}"
            elif start < stop:
                gone = "recorded as lost or deleted" if is_known else "which was deleted or lost before"
                text += f"; held {format_ranges([(start, stop)])}, {gone}"
            else:
                text += "; a control record (delete, floor or skip)"
            self.found.add("damaged records", path, text, offset, size, seqs, is_known)

    def check_agreement(
        self, path: str, header: BlockHeader, scan: BlockScan, data: memoryview, summary: Summary | None,
        head: Head | None, next_seq: int | None,
    ) -> None:  # fmt: skip
        """Check that the summary and HEAD, whose checksums are valid, agree with the block."""
        if summary is not None and (head is None or summary.data_size == head.offset):
            differs = summary_differs(summary, header, scan, data, next_seq)
            if differs is not None:
                name = path.removesuffix(".blk") + ".sum"
                text = f"it does not agree with its block: {differs}"
                self.found.add("damaged file", name, text, size=os.path.getsize(name))
                self.found.is_damaged = True
                return
        if head is not None and (head.offset != scan.stop or head.committed_seq < last_seq_of(header, scan, data)):
            text = f"it does not agree with the block: it ends at byte {head.offset}, message {head.committed_seq}"
            self.found.add("damaged file", self.paths.head, text, 0, HEAD_SLOT_SIZE)

    def note_unconfirmed(self, path: str, header: BlockHeader, stop: int) -> None:
        """Note the records that a killed writer wrote after its last commit: readers stop before them."""
        data, _ = self.read_block(path, None)
        self.found.notes += unconfirmed(path, header, data, stop, str(stop))


def unconfirmed(path: str, header: BlockHeader, data: bytes | memoryview, stop: int, place: str) -> list[str]:
    """A note if whole records of a block follow `stop`, the end that HEAD has."""
    scan = scan_block(
        data, min(max(stop, RECORDS_START), len(data)), len(data), base_seq=header.base_seq,
        base_time=header.base_time, salt=header.salt, seq_min=header.first_seq,
    )  # fmt: skip
    if not scan.count and not scan.control_count:
        return []
    records = f"{scan.count} messages and {scan.control_count} other records"
    return [f"{path}: {records} {UNCONFIRMED} ({place}): the next open for writing takes them in"]


__all__ = ["UNCONFIRMED", "BlockChecker", "unconfirmed"]
