"""check: every checksum of a store's files, read only. Each problem is named by file, offset and sequence.

Rules: docs/format.md. Beside a running writer it goes as far as HEAD says, and reads again before it speaks of
damage: an
erase may be under way. Damage that was written down (the block's summary lists its place, the stream's lost
sequences name
what it cost) is known, and no longer a reason to fail.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from penstock.base.disk import Disk
from penstock.base.ranges import subtract
from penstock.base.seq_set import SeqSet
from penstock.check.agreement import checkpoint_differs, last_given, listing_differs, summary_differs
from penstock.check.evidence import read_evidence
from penstock.consumer.consumer import decode_meta, table_of
from penstock.db.lock import holder_of
from penstock.errors import CorruptBlock, NewerFormat, NotAStore, PenstockError
from penstock.format.block_header import BlockHeader, decode_front, decode_header
from penstock.format.block_scan import BlockScan, scan_block
from penstock.format.constants import (
    HEAD_SIZE,
    HEAD_SLOT_SIZE,
    HEAD_SLOT_STRIDE,
    HEADER_SIZE,
    HEADER_STRIDE,
    KINDS,
    RECORDS_START,
)
from penstock.format.head import Head, decode_head
from penstock.format.identity import Identity, decode_identity
from penstock.format.paths import StreamPaths, parse_block_name
from penstock.format.record import decode
from penstock.format.truncation import read_cut
from penstock.store.consumer_log.entries import Entry, read_entries
from penstock.store.deletes.deletes_file import read_kept
from penstock.store.index.checkpoint import Checkpoint, decode_checkpoint
from penstock.store.index.summary import Summary, decode_summary
from penstock.store.open.adopt_plan import check_moves, read_notes, read_plan
from penstock.store.open.half_made import DELETED, is_half_made
from penstock.store.open.marker import MARKER, MISSING, marker_damage, require_marker
from penstock.store.open.report import DAMAGE, Report, format_ranges
from penstock.store.open.stream_folders import StreamFolder, list_streams, pick_streams, shown_names
from penstock.store.read.damage_bounds import Neighbours
from penstock.store.read.snapshot import Snapshot
from penstock.stream.stored_config import stored_config

TRIES = 3
PAUSE_S = 0.05
SEQ_STOP = 2**63 - 1
MESSAGE, SKIP = KINDS.index("message"), KINDS.index("skip")
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is not as it was written."""

    # damaged records · damaged header · damaged file · damaged consumers · missing file · unreadable block ·
    # lost sequences
    kind: str
    path: str
    text: str
    offset: int = 0
    size: int = 0
    seqs: tuple[Range, ...] = ()  # half open: the messages that it costs
    is_known: bool = False  # recorded by an open or a repair


@dataclass(slots=True)
class StreamCheck:
    """What was read of one stream, and what was wrong with it."""

    folder: StreamFolder
    paths: StreamPaths
    blocks: int = 0
    messages: int = 0  # message records whose checksum holds
    controls: int = 0
    bytes: int = 0
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lost: list[Range] = field(default_factory=list)  # recorded as lost, half open

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def damage(self) -> list[Problem]:
        return [problem for problem in self.problems if not problem.is_known]

    @property
    def known(self) -> list[Problem]:
        return [problem for problem in self.problems if problem.is_known]


@dataclass(slots=True)
class StoreCheck:
    root: str
    holder: dict[str, object] | None
    problems: list[Problem] = field(default_factory=list)  # of the store itself
    streams: list[StreamCheck] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def damage(self) -> list[Problem]:
        return self.problems + [problem for stream in self.streams for problem in stream.damage]

    @property
    def known(self) -> list[Problem]:
        return [problem for stream in self.streams for problem in stream.known]

    @property
    def is_ok(self) -> bool:
        return not self.damage

    def shown(self) -> list[tuple[str, StreamCheck]]:
        """The streams, each with what people are shown as its name."""
        names = shown_names(stream.folder for stream in self.streams)
        return [(names[stream.folder], stream) for stream in self.streams]


def nothing(count: int) -> None:
    """Progress that nobody looks at."""


def chosen_folders(root: str, wanted: Iterable[str] | None = None, account: str | None = None) -> list[StreamFolder]:
    """The folders that are, or once were, streams: those that were asked for, all of all accounts without a wish."""
    return pick_streams(root, list_streams(root, account, with_broken=True), wanted, account)


def check_root(root: str) -> list[Problem]:
    """Is it a store, and does its marker hold? NotAStore and NewerFormat are raised."""
    if not os.path.isdir(root):
        raise NotAStore(root, "it is a file, not a directory" if os.path.exists(root) else "there is no such directory")
    disk, marker = Disk(), os.path.join(root, MARKER)
    damage = marker_damage(root, disk)
    require_marker(root, disk)
    if not damage:
        return []
    return [Problem("missing file" if damage == MISSING else "damaged file", marker, damage)]


def bytes_of(streams: Iterable[StreamFolder]) -> int:
    """How much a check will read, for its progress bar."""
    total = 0
    for one in streams:
        try:
            with os.scandir(StreamPaths(one.root).blocks) as entries:
                total += sum(entry.stat().st_size for entry in entries if entry.name.endswith(".blk"))
        except OSError:
            continue
    return total


def check_store(
    root: str,
    streams: Iterable[str] | None = None,
    account: str | None = None,
    *,
    disk: Disk | None = None,
    advance: Callable[[int], None] = nothing,
) -> StoreCheck:
    """Check a store, or some of its streams, or those of one account; `advance` hears of the bytes read."""
    root = os.path.abspath(root)
    began = time.monotonic()
    found = StoreCheck(root, None, check_root(root))
    folders = chosen_folders(root, streams, account)
    found.holder = holder_of(root)
    for one in folders:
        found.streams.append(StreamChecker(disk or Disk(), one, found.holder is not None, advance).run())
    found.seconds = time.monotonic() - began
    return found


UNCONFIRMED = "stand after the place that HEAD names"


class StreamChecker:
    """One check of one stream."""

    def __init__(
        self, disk: Disk, folder: StreamFolder, has_writer: bool, advance: Callable[[int], None] = nothing
    ) -> None:
        self.disk, self.advance, self.has_writer = disk, advance, has_writer
        self.paths = StreamPaths(folder.root)
        self.found = StreamCheck(folder, self.paths)
        self.snapshot: Snapshot | None = None
        self.checkpoint: Checkpoint | None = None  # where it holds
        self.listing: str | None = None  # how it differs from a block
        self.ends_lie: set[str] = set()  # blocks that do not end where a summary, or HEAD, says
        self.is_damaged = False  # some block is, or its summary: the checkpoint cannot be held against them
        self.newly_lost = SeqSet()
        self.recorded = SeqSet()  # lost, and written down
        self.explained = SeqSet()  # lost sequences that a damaged place accounts for

    def run(self) -> StreamCheck:
        if self.found.name.endswith(DELETED):
            self.found.notes.append(
                f"{self.paths.root}: left of a deleted stream, the next open for writing removes it"
            )
            return self.found
        if is_half_made(self.paths.root):
            text = "a stream that was being created when its process ended; the next open for writing removes it"
            self.found.notes.append(f"{self.paths.root}: {text}")
            return self.found
        identity = self.check_config()
        if identity is None:
            return self.found
        self.check_head(identity)
        self.check_checkpoint(identity)
        if os.path.exists(self.paths.truncate):
            self.found.notes.append("a truncation was under way: the next open for writing finishes it")
        if os.path.exists(self.paths.adopt):
            self.found.notes.append("staged blocks were being adopted: the next open for writing finishes it")
        self.check_batches(identity)
        self.check_deletes(identity)
        self.check_consumers(identity)
        self.load(identity)
        try:
            self.check_blocks()
            self.check_agreements()
            self.check_missing(identity)
            self.check_leftovers()
            self.check_lost()
        finally:
            if self.snapshot is not None:
                self.snapshot.stop()
        self.found.problems.sort(key=lambda problem: (problem.path, problem.offset))
        return self.found

    def add(
        self, kind: str, path: str, text: str, offset: int = 0, size: int = 0, seqs: Iterable[Range] = (),
        is_known: bool = False,
    ) -> None:  # fmt: skip
        self.found.problems.append(Problem(kind, path, text, offset, size, tuple(seqs), is_known))

    def read(self, path: str) -> bytes | None:
        try:
            return self.disk.read_file(path)
        except FileNotFoundError:
            return None

    # The small files.

    def check_config(self) -> Identity | None:
        """Both copies: the newer of those that hold."""
        copies: list[tuple[str, Identity | None, bool]] = []
        for path in (self.paths.config, self.paths.config_copy):
            data = self.read(path)
            copies.append((path, self.identity_in(data, path) if data is not None else None, data is not None))
        held = [identity for _, identity, _ in copies if identity is not None]
        cost = "the other copy holds" if held else "the other copy neither: the stream cannot be opened"
        for path, identity, is_there in copies:
            if identity is None and is_there:
                self.add("damaged file", path, f"it does not hold; {cost}", size=os.path.getsize(path))
            elif identity is None and path == self.paths.config_copy and held and held[0].revision == 1:
                # The first copy alone makes a stream: its process may have ended before it wrote the second.
                self.found.notes.append(f"{path}: not written yet; the next open for writing writes it")
            elif identity is None:
                self.add("missing file", path, f"it is missing; {cost}")
        if len({identity.revision for identity in held}) > 1:
            self.found.notes.append(
                "the copies of config.json differ in age: the next open for writing makes them equal"
            )
        elif len(held) == 2 and held[0] != held[1]:
            text = "it does not agree with config.json, and both are of the same age: one of them lies"
            self.add("damaged file", self.paths.config_copy, text, size=self.size_of(self.paths.config_copy))
        return max(held, key=lambda identity: identity.revision, default=None)

    def has_blocks(self) -> bool:
        return os.path.isdir(self.paths.blocks) and any(map(parse_block_name, os.listdir(self.paths.blocks)))

    def identity_in(self, data: bytes, path: str) -> Identity | None:
        """One copy of config.json; None when it does not hold, or is of no stream that can be here."""
        identity = decode_identity(data, path)
        try:
            return identity if identity is None or stored_config(identity.config, self.found.name) else None
        except (PenstockError, ValueError):
            return None

    def check_head(self, identity: Identity) -> None:
        bad: list[int] = []
        for _ in range(TRIES):
            data = self.read(self.paths.head)
            if data is None:
                if self.has_blocks():
                    self.add("missing file", self.paths.head, "it is missing: the next open for writing makes it again")
                return
            if not data.strip(b"\0") and not self.has_blocks():
                self.found.notes.append(f"{self.paths.head}: just made, nothing was committed yet")
                return
            slots = [(at, data[at : at + HEAD_SLOT_SIZE]) for at in (0, HEAD_SLOT_STRIDE)]
            bad = [at for at, slot in slots if slot.strip(b"\0") and decode_head(slot, identity.stream_id) is None]
            if not bad and not any(slot.strip(b"\0") for _, slot in slots):
                bad = [0]
            if not bad and len(data) < HEAD_SIZE:
                bad = [HEAD_SLOT_STRIDE]
            if not bad:
                return
            time.sleep(PAUSE_S)  # the writer may have been at it
        for at in bad:
            cost = "the other slot holds" if len(bad) == 1 else "neither slot holds; it is worked out from the blocks"
            self.add("damaged file", self.paths.head, f"slot {at // HEAD_SLOT_STRIDE}: {cost}", at, HEAD_SLOT_SIZE)

    def check_checkpoint(self, identity: Identity) -> None:
        data = self.read(self.paths.checkpoint)
        if data is None:
            return
        found = decode_checkpoint(data)
        if found is None:
            text = "it does not hold; it is worked out from the blocks"
        elif found.stream_id != identity.stream_id:
            text = "it belongs to another stream"
        else:
            self.checkpoint = found
            return
        self.add("damaged file", self.paths.checkpoint, text, size=len(data))

    def check_batches(self, identity: Identity) -> None:
        """What was adopted, in two copies, what is being adopted, and what is being cut off."""
        readers: dict[str, Callable[[], object]] = {
            self.paths.batches: lambda: read_notes(self.disk, self.paths.batches),
            self.paths.batches_copy: lambda: read_notes(self.disk, self.paths.batches_copy),
            self.paths.adopt: lambda: self.check_plan(identity),
            self.paths.truncate: lambda: read_cut(self.disk, self.paths),
        }
        for path, read in readers.items():
            try:
                read()
            except CorruptBlock as damage:
                self.add("damaged file", path, damage.reason, size=self.size_of(path))

    def check_plan(self, identity: Identity) -> None:
        plan = read_plan(self.disk, self.paths)
        if plan is not None and plan["mode"] == "blocks" and not self.has_writer:
            check_moves(self.disk, self.paths, identity.stream_id, plan)

    def size_of(self, path: str) -> int:
        try:
            return os.path.getsize(path)
        except FileNotFoundError:
            return 0

    def check_deletes(self, identity: Identity) -> None:
        try:
            read_kept(self.disk, self.paths, identity.stream_id)
        except CorruptBlock as damage:
            path = self.paths.deletes
            text = f"{damage.reason}; it costs no message, but why some are gone (docs/lake.md)"
            self.add("damaged file", path, text, size=os.path.getsize(path))

    def check_consumers(self, identity: Identity) -> None:
        """The log of its consumers."""
        entries: dict[int, Entry] = {}
        for _ in range(TRIES):
            report = Report()
            entries = read_entries(self.disk, self.paths.consumers, identity.stream_id, report)
            if report.is_clean or not self.has_writer:
                break
            time.sleep(PAUSE_S)
        for finding in report.findings:
            if finding.kind in DAMAGE:
                self.add("damaged consumers", finding.path, finding.text, finding.offset, finding.size)
            else:
                self.found.notes.append(f"{finding.path}: {finding.text}")
        for number, entry in entries.items():
            try:
                table_of(decode_meta(entry.meta), entry.state, entry.notes)
            except ValueError as error:
                self.add("damaged consumers", self.paths.consumers, f"consumer number {number} cannot be read: {error}")

    def load(self, identity: Identity) -> None:
        """The stream's index, to tell what a damaged place costs."""
        for _ in range(TRIES):
            try:
                self.snapshot = Snapshot(self.paths.root, identity.stream_id, name=self.found.name, disk=self.disk)
            except CorruptBlock as error:
                self.add("damaged file", error.path, error.reason, error.offset)
                return
            except ValueError as error:
                self.add("damaged file", self.paths.checkpoint, f"the stream's state cannot be worked out: {error}")
                return
            self.newly_lost = self.snapshot.unrecorded_losses()
            if not (self.newly_lost and self.has_writer):
                break
            time.sleep(PAUSE_S)  # the writer goes on while we read: ask again
        assert self.snapshot is not None
        committed = self.snapshot.head.committed_seq if self.snapshot.head is not None else SEQ_STOP
        for first, last in self.snapshot.lost.ranges():
            for start, stop in subtract((first, min(last, committed) + 1), (self.newly_lost,)):
                self.recorded.add_range(start, stop - 1)
        self.found.lost = [(first, last + 1) for first, last in self.recorded.ranges()]

    # Blocks.

    def check_blocks(self) -> None:
        if self.snapshot is None:
            self.check_blocks_alone()
            return
        headers = sorted(self.snapshot.headers.items())
        for at, (block_id, header) in enumerate(headers):
            next_seq = headers[at + 1][1].first_seq if at + 1 < len(headers) else None
            path = self.snapshot.block_path(block_id)
            try:
                self.check_block(path, header, next_seq)
            except FileNotFoundError:
                if not self.has_writer:
                    self.add("missing file", path, "it went away while it was read")
        self.note_later_blocks(self.snapshot)
        for finding in self.snapshot.report.findings:
            if finding.path == self.paths.head:
                self.add("damaged file", finding.path, finding.text, size=self.size_of(finding.path))
            elif finding.kind == "set aside":
                self.add("unreadable block", finding.path, finding.text.removesuffix(": set aside"), 0, finding.size)
            elif finding.kind in ("empty file", "unknown file"):
                self.found.notes.append(f"{finding.path}: {finding.text}")

    def check_blocks_alone(self) -> None:
        """Without an index: each block for itself."""
        names = sorted(os.listdir(self.paths.blocks)) if os.path.isdir(self.paths.blocks) else []
        for name in names:
            path = os.path.join(self.paths.blocks, name)
            if parse_block_name(name) is None:
                continue
            front = self.disk.read_file(path)[:RECORDS_START]
            header = decode_header(front[:HEADER_SIZE], path) or decode_header(
                front[HEADER_STRIDE : HEADER_STRIDE + HEADER_SIZE], path
            )
            if header is None:
                self.add("unreadable block", path, "no header of it holds", size=os.path.getsize(path))
            else:
                self.check_block(path, header, None)

    def check_block(self, path: str, header: BlockHeader, next_seq: int | None) -> None:
        """Both header copies, every record, and the summary."""
        is_told = path not in self.ends_lie
        summary = self.check_summary(path, header) if is_told else None
        head = self.snapshot.head if self.snapshot is not None and is_told else None
        is_head = head is not None and head.block_id == header.block_id
        for attempt in range(TRIES):
            size = os.path.getsize(path)
            stop = head.offset if head is not None and is_head else summary.data_size if summary is not None else size
            data = self.read_block(path, min(stop, size))
            front = [data[at : at + HEADER_SIZE] for at in (0, HEADER_STRIDE)]
            bad_copies = [n for n, copy in enumerate(front) if decode_header(copy, path) is None]
            start = min(RECORDS_START, len(data))
            scan = scan_block(
                data, start, len(data), base_seq=header.base_seq, base_time=header.base_time, salt=header.salt,
                seq_min=header.first_seq, seq_stop=SEQ_STOP if next_seq is None else next_seq,
            )  # fmt: skip
            if not (scan.damage_count or scan.torn or bad_copies or size < stop):
                break
            if attempt + 1 < TRIES:
                time.sleep(PAUSE_S)
        if scan.is_newer:
            raise NewerFormat(path, 2)
        if scan.torn and stop < size and self.goes_on(path, header, scan.stop, stop):
            self.blame_end(path, header, next_seq, is_head, stop)
            return
        self.found.blocks += 1
        self.found.messages += scan.count
        self.found.controls += scan.control_count
        self.found.bytes += len(data)
        self.advance(len(data))
        for copy in bad_copies:
            held = "the other copy holds" if len(bad_copies) == 1 else "both are damaged; the summary has it"
            text = f"header copy {copy + 1} of 2: the checksum differs; {held}"
            self.add("damaged header", path, text, copy * HEADER_STRIDE, HEADER_SIZE)
        self.check_records(path, header, data, scan, summary, next_seq, head if is_head else None, stop)
        if is_head and not self.has_writer and size > stop:
            self.note_unconfirmed(path, header, self.read_block(path, size), stop, str(stop))

    def goes_on(self, path: str, header: BlockHeader, offset: int, stop: int) -> bool:
        """Whether a whole record passes `stop`: then who said that the block ends there lies."""
        data = self.read_block(path, os.path.getsize(path))
        try:
            record = decode(data, offset, base_seq=header.base_seq, base_time=header.base_time, salt=header.salt)
        except ValueError:
            return False
        return int(record["stop"]) > stop

    def blame_end(self, path: str, header: BlockHeader, next_seq: int | None, is_head: bool, stop: int) -> None:
        """HEAD, or a summary, says that a block ends in the middle of a record: the block is looked at without it."""
        name = self.paths.head if is_head else path.removesuffix(".blk") + ".sum"
        text = f"it does not agree with the block: one of its records goes on after byte {stop}"
        self.add("damaged file", name, text, size=self.size_of(name))
        self.is_damaged = True
        self.ends_lie.add(path)
        self.check_block(path, header, next_seq)

    def note_unconfirmed(self, path: str, header: BlockHeader, data: bytes, stop: int, place: str) -> None:
        """What a killed writer wrote after its last commit: readers stop before it."""
        scan = scan_block(
            data, min(max(stop, RECORDS_START), len(data)), len(data), base_seq=header.base_seq,
            base_time=header.base_time, salt=header.salt, seq_min=header.first_seq,
        )  # fmt: skip
        if scan.count or scan.control_count:
            self.found.notes.append(
                f"{path}: {scan.count} messages and {scan.control_count} other records {UNCONFIRMED} ({place}): "
                "the next open for writing takes them in"
            )

    def note_later_blocks(self, snapshot: Snapshot) -> None:
        """Blocks after the one that HEAD names: its writer was killed before it said so, or HEAD is an older one."""
        head = snapshot.head
        if head is None or not head.block_id or self.has_writer:
            return
        for name in sorted(os.listdir(self.paths.blocks)):
            path, parsed = os.path.join(self.paths.blocks, name), parse_block_name(name)
            if parsed is None or parsed[0] <= head.block_id or parsed[0] in snapshot.headers:
                continue
            data = self.disk.read_file(path)
            header = decode_front(data[:RECORDS_START], path)
            if header is not None and (header.block_id, header.generation) == parsed:
                self.note_unconfirmed(path, header, data, 0, f"block {head.block_id}")

    def read_block(self, path: str, size: int) -> bytes:
        fd = self.disk.open(path)
        try:
            return self.disk.read(fd, size)
        finally:
            self.disk.close(fd)

    def check_records(
        self, path: str, header: BlockHeader, data: bytes, scan: BlockScan, summary: Summary | None,
        next_seq: int | None, head: Head | None, stop: int,
    ) -> None:  # fmt: skip
        """The damaged places of a block, and what each of them costs."""
        recorded = set(summary.damage) if summary is not None else set()
        is_promised = head is not None or summary is not None  # somebody said that the block goes up to `stop`
        places = [(offset, size, offset + size) for offset, size in scan.damaged()]
        if scan.stop < stop and (scan.torn or len(data) < stop) and is_promised:
            places.append((scan.stop, stop - scan.stop, len(data)))
        elif scan.torn:
            self.found.notes.append(
                f"{path}: the last {scan.torn} bytes are no whole record: a torn tail, never acknowledged"
            )
        if not places:
            is_whole = head is None or (summary is not None and summary.data_size == head.offset)
            self.check_agreement(path, header, scan, data, summary if is_whole else None, head, next_seq)
            return
        self.is_damaged = True
        neighbours = Neighbours(header, data, scan)
        for offset, size, end in places:
            start, upper = neighbours.between(offset, end)
            if upper is None:
                upper = (
                    head.committed_seq + 1 if head is not None else next_seq or (summary.last_seq + 1 if summary else 0)
                )
            seqs = self.missing(start, upper)
            is_known = (offset, size) in recorded and not seqs
            text = f"{size} bytes: " + ("the file ends early" if end == len(data) < stop else "the checksum differs")
            if seqs:
                text += f"; costs {'message' if sum(b - a for a, b in seqs) == 1 else 'messages'} {format_ranges(seqs)}"
            elif is_known and start < upper:
                text += f"; held {format_ranges([(start, upper)])}, recorded as lost or deleted"
            elif start < upper:
                text += f"; held {format_ranges([(start, upper)])}, which was deleted or lost before"
            else:
                text += "; a control record (delete, floor or skip)"
            self.add("damaged records", path, text, offset, size, seqs, is_known)

    def check_agreement(
        self, path: str, header: BlockHeader, scan: BlockScan, data: bytes, summary: Summary | None, head: Head | None,
        next_seq: int | None,
    ) -> None:  # fmt: skip
        """Do the summary, the checkpoint and HEAD say what the block says? All of them hold."""
        if summary is not None:
            differs = summary_differs(summary, header, scan, data, next_seq)
            if differs is not None:
                name = path.removesuffix(".blk") + ".sum"
                self.add("damaged file", name, f"it does not agree with its block: {differs}", size=self.size_of(name))
                self.is_damaged = True
                return
        if self.snapshot is None:
            return
        if head is not None and (head.offset != scan.stop or head.committed_seq < last_given(header, scan, data)):
            text = f"it does not agree with the block: it ends at byte {head.offset}, message {head.committed_seq}"
            self.add("damaged file", self.paths.head, text, 0, HEAD_SLOT_SIZE)
        row = self.snapshot.query.block(header.block_id)
        if self.listing is None and row["size"] == scan.stop:
            self.listing = listing_differs(row, scan)

    def check_agreements(self) -> None:
        """Does the checkpoint say what all blocks say? Where some are damaged it may know what they do not."""
        if self.checkpoint is None or self.snapshot is None or self.is_damaged or self.snapshot.newly_lost:
            return
        if any(finding.path == self.paths.checkpoint for finding in self.snapshot.report.findings):
            self.found.notes.append(f"{self.paths.checkpoint}: it is older than the blocks, and not used")
            return
        differs = self.listing
        for _ in range(TRIES if differs is None else 0):
            differs = checkpoint_differs(self.snapshot, dict(self.checkpoint.expiries))
            if differs is None or not self.has_writer:
                break
            time.sleep(PAUSE_S)
            self.snapshot.refresh()  # it went on between two looks
        if differs is not None:
            text = f"it does not agree with the blocks: {differs}"
            self.add("damaged file", self.paths.checkpoint, text, size=self.size_of(self.paths.checkpoint))

    def missing(self, start: int, stop: int) -> list[Range]:
        """The sequences in [start, stop) that should be readable, or whose loss nobody has recorded."""
        if start >= stop:
            return []
        if self.snapshot is None:
            return [(start, stop)]
        gone = SeqSet()
        for first, last in self.newly_lost.ranges():
            if max(first, start) <= min(last, stop - 1):
                gone.add_range(max(first, start), min(last, stop - 1))
        self.explained.update(gone)
        seq = self.snapshot.query.next_seq((), start, stop)
        while seq:
            gone.add(seq)
            seq = self.snapshot.query.next_seq((), seq + 1, stop) if seq + 1 < stop else 0
        return [(first, last + 1) for first, last in gone.ranges()]

    def check_summary(self, path: str, header: BlockHeader) -> Summary | None:
        name = path.removesuffix(".blk") + ".sum"
        data = self.read(name)
        if data is None:
            return None
        summary = decode_summary(data, name)
        if summary is None:
            self.add("damaged file", name, "it does not hold; it is worked out from its block", size=len(data))
        elif (summary.header.stream_id, summary.header.block_id, summary.header.salt) != (
            header.stream_id, header.block_id, header.salt,
        ):  # fmt: skip
            self.add("damaged file", name, "it belongs to another block or stream", size=len(data))
            return None
        return summary

    def check_missing(self, identity: Identity) -> None:
        """Blocks that the checkpoint of the last stop lists, and that are not there."""
        head = self.snapshot.head if self.snapshot is not None else None
        for path, live in read_evidence(self.disk, self.paths, identity.stream_id, head).missing:
            there = self.alive_in(live)
            if there:
                block = os.path.basename(path)
                text = f"it does not agree with the blocks: it looks for messages in {block}, which others hold"
                self.add("damaged file", self.paths.checkpoint, text, size=self.size_of(self.paths.checkpoint))
            known = (self.recorded, there)
            lost = [left for first, last in live.ranges() for left in subtract((first, last + 1), known)]
            for start, stop in lost:
                self.explained.add_range(start, stop - 1)
            if lost:
                number = sum(stop - start for start, stop in lost)
                text = (
                    f"the block is missing; costs {number} message{'' if number == 1 else 's'}, {format_ranges(lost)}"
                )
                self.add("missing file", path, text, seqs=lost)

    def alive_in(self, seqs: SeqSet) -> SeqSet:
        """Those of some sequences that the blocks hold which are there."""
        found = SeqSet()
        if self.snapshot is None:
            return found
        next_seq = self.snapshot.query.next_seq
        for first, last in seqs.ranges():
            seq = next_seq((), first, last + 1)
            while seq:
                found.add(seq)
                seq = next_seq((), seq + 1, last + 1) if seq < last else 0
        return found

    # What is left over.

    def check_leftovers(self) -> None:
        for folder in (self.paths.root, self.paths.blocks, self.paths.consumers):
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                path = os.path.join(folder, name)
                if name.endswith(".damaged"):
                    self.found.notes.append(f"{path}: set aside earlier")
                elif name.endswith(".sum") and not os.path.exists(path.removesuffix(".sum") + ".blk"):
                    self.found.notes.append(f"{path}: a summary without its block")
                elif name.endswith(".tmp") and not self.has_writer:
                    self.found.notes.append(f"{path}: left over by a crash, the next open for writing removes it")

    def check_lost(self) -> None:
        """Lost sequences that no damaged place accounts for: a file is missing or was set aside."""
        for first, last in self.newly_lost.ranges():
            for start, stop in subtract((first, last + 1), (self.explained,)):
                text = f"{format_ranges([(start, stop)])}: no record tells what became of them"
                self.add("lost sequences", self.paths.root, text, seqs=[(start, stop)])
