"""Compares a stream's index with its files: foreign and missing blocks, lost sequences, and whether the checkpoint
agrees with the blocks."""

from __future__ import annotations

import os

from penstock.base.disk import Disk
from penstock.base.ranges import subtract
from penstock.check.agreement import checkpoint_differs
from penstock.check.blocks import unconfirmed
from penstock.check.known_deletes import missing_blocks
from penstock.check.parts import StreamPart
from penstock.check.problem import PartCheck, Problem, attempts
from penstock.check.small_files import SmallFilesChecker
from penstock.check.stream_index import SEQ_STOP, StreamIndex, half_open
from penstock.errors import CorruptBlock
from penstock.format.block_header import decode_front
from penstock.format.constants import RECORDS_START
from penstock.format.paths import StreamPaths, parse_block_name
from penstock.store.index.checkpoint import Checkpoint
from penstock.store.open.report import format_ranges
from penstock.store.open.unfinished_folders import is_unfinished
from penstock.store.read.snapshot import Snapshot


def check_stream_part(disk: Disk, part: StreamPart, index: StreamIndex | None = None) -> PartCheck:
    """Check all of a stream but the contents of its blocks. Without an `index` one is read."""
    found = PartCheck()
    if is_unfinished(part.folder.root):
        text = "a stream that was being created when its process ended; the next open for writing removes it"
        found.notes.append(f"{part.folder.root}: {text}")
        return found
    files = SmallFilesChecker(disk, part.folder, part.has_writer, found)
    identity = files.run()
    if identity is None:
        return found
    own = index or StreamIndex(disk, part.folder, identity.stream_id, part.has_writer)
    try:
        StateChecker(disk, own, files.checkpoint, found).run()
    finally:
        if index is None:
            own.close()
    return found


class StateChecker:
    """Compares the index of one stream with its files; adds what it finds to `found`."""

    def __init__(self, disk: Disk, index: StreamIndex, checkpoint: Checkpoint | None, found: PartCheck) -> None:
        self.disk, self.index, self.checkpoint, self.found = disk, index, checkpoint, found
        self.paths = StreamPaths(index.folder.root)

    def run(self) -> None:
        snapshot = self.index.snapshot
        if snapshot is None:
            assert self.index.problem is not None
            self.found.problems.append(self.index.problem)
        else:
            self.add_findings(snapshot)
            self.note_later_blocks(snapshot)
            self.check_checkpoint(snapshot)
            self.check_missing_blocks(snapshot)
            self.found.lost = half_open(self.index.recorded())
            self.found.newly_lost = half_open(self.index.newly_lost)
        self.note_leftovers()

    def size_of(self, path: str) -> int:
        try:
            return os.path.getsize(path)
        except FileNotFoundError:
            return 0

    def add_findings(self, snapshot: Snapshot) -> None:
        """Files that recovery could not use as what their names say."""
        for finding in snapshot.report.findings:
            if finding.path == self.paths.head:
                self.found.add("damaged file", finding.path, finding.text, size=self.size_of(finding.path))
            elif finding.kind == "set aside":
                text, seqs = finding.text.removesuffix(": set aside"), self.lost_with(finding.path)
                if seqs:
                    text += f"; costs {format_ranges(seqs)}"
                self.found.add("unreadable block", finding.path, text, 0, finding.size, seqs)
            elif finding.kind in ("empty file", "unknown file"):
                self.found.notes.append(f"{finding.path}: {finding.text}")

    def note_later_blocks(self, snapshot: Snapshot) -> None:
        """Blocks after the one that HEAD names: its writer was killed before it wrote HEAD, or HEAD is an older one."""
        head = snapshot.head
        if head is None or not head.block_id or self.index.has_writer:
            return
        for name in sorted(os.listdir(self.paths.blocks)):
            path, parsed = os.path.join(self.paths.blocks, name), parse_block_name(name)
            if parsed is None or parsed[0] <= head.block_id or parsed[0] in snapshot.headers:
                continue
            data = self.disk.read_file(path)
            header = decode_front(data[:RECORDS_START], path)
            if header is not None and (header.block_id, header.generation) == parsed:
                self.found.notes += unconfirmed(path, header, data, 0, f"block {head.block_id}")

    def lost_with(self, path: str) -> list[tuple[int, int]]:
        """The newly lost sequences between the blocks before and after a block that cannot be read."""
        block_id = Problem("unreadable block", path, "").block_id
        low, high = self.index.last_seq_before(block_id) + 1, self.index.first_seq_after(block_id) or SEQ_STOP
        return half_open(self.index.newly_lost_in(low, high))

    def check_checkpoint(self, snapshot: Snapshot) -> None:
        """Check that the checkpoint agrees with the blocks."""
        path = self.paths.checkpoint
        if self.checkpoint is None or self.index.newly_lost:
            return
        if any(finding.path == path for finding in snapshot.report.findings):
            self.found.checkpoint_notes.append(f"{path}: it is older than the blocks, and not used")
            return
        differs: str | None = None
        for number in attempts():
            if number:
                snapshot.refresh()  # the writer went on between two reads
            try:
                differs = checkpoint_differs(snapshot, dict(self.checkpoint.expiries))
            except (CorruptBlock, ValueError) as error:
                differs = str(error)  # a block is damaged: then the result is ignored
            if differs is None or not self.index.has_writer:
                break
        if differs is not None:
            text = f"it does not agree with the blocks: {differs}"
            self.found.checkpoint_problems.append(Problem("damaged file", path, text, size=self.size_of(path)))

    def check_missing_blocks(self, snapshot: Snapshot) -> None:
        """Blocks that the checkpoint of the last stop lists and that are missing."""
        checkpoint, head = self.checkpoint, snapshot.head
        is_current = (
            checkpoint is not None
            and head is not None
            and (checkpoint.block_id, checkpoint.offset) == (head.block_id, head.offset)
        )
        if checkpoint is None or not is_current:
            return
        recorded = self.index.recorded()
        for path, live in missing_blocks(self.disk, self.paths, checkpoint):
            held = self.index.readable(0, 0)
            for first, last in live.ranges():
                held.update(self.index.readable(first, last + 1))
            if held:
                block = os.path.basename(path)
                text = f"it does not agree with the blocks: it looks for messages in {block}, which others hold"
                self.found.add("damaged file", self.paths.checkpoint, text, size=self.size_of(self.paths.checkpoint))
            lost = [left for first, last in live.ranges() for left in subtract((first, last + 1), (recorded, held))]
            if lost:
                count = sum(stop - start for start, stop in lost)
                messages = f"{count} message{'' if count == 1 else 's'}"
                text = f"the block is missing; costs {messages}, {format_ranges(lost)}"
                self.found.add("missing file", path, text, seqs=lost)

    def note_leftovers(self) -> None:
        for folder in (self.paths.root, self.paths.blocks, self.paths.consumers):
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                path = os.path.join(folder, name)
                if name.endswith(".damaged"):
                    self.found.notes.append(f"{path}: set aside earlier")
                elif name.endswith(".sum") and not os.path.exists(path.removesuffix(".sum") + ".blk"):
                    self.found.notes.append(f"{path}: a summary without its block")
                elif name.endswith(".tmp") and not self.index.has_writer:
                    self.found.notes.append(f"{path}: left over by a crash, the next open for writing removes it")


__all__ = ["StateChecker", "check_stream_part"]
