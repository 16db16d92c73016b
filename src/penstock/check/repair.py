"""repair: keeps everything readable in a damaged store, sets the rest aside, and records which messages that cost.

Opening for writing repairs most: it sets aside files that do not parse, records lost sequences and closes the last
block. This module does what an open does not look for: damage inside sealed blocks, header copies, summaries and
configurations.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from penstock.base.ranges import subtract
from penstock.base.seq_set import SeqSet
from penstock.base.subject import is_valid_subject
from penstock.check.known_deletes import KnownDeletes, read_known_deletes
from penstock.check.open_store import OpenStore
from penstock.check.problem import Problem, Range, StoreCheck, StreamCheck
from penstock.check.store import check_root, check_store, chosen_folders, no_progress
from penstock.db.database import Database
from penstock.db.stream import Stream
from penstock.errors import PenstockError
from penstock.format.block_header import BlockHeader, decode_front
from penstock.format.block_scan import scan_block
from penstock.format.constants import FLAGS, HEADER_STRIDE, REASONS, RECORDS_START
from penstock.format.identity import Identity, read_identity, write_identity
from penstock.format.paths import parse_block_name
from penstock.format.record import decode
from penstock.format.small_file import free_name, set_aside
from penstock.store.file_store import FileStore
from penstock.store.index.checkpoint import decode_checkpoint
from penstock.store.index.ids_and_expiries import IdsAndExpiries, read_ids_and_expiries
from penstock.store.index.summary import CONTROLS, Summary, decode_summary
from penstock.store.open.report import format_ranges
from penstock.stream.config import make_config
from penstock.stream.config_json import encode_config
from penstock.stream.config_rules import check_create
from penstock.stream.derived_subjects import derived_filters

LOST, COMPACT = REASONS.index("lost"), REASONS.index("compact")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was done, or would be."""

    stream: str  # "" for the store itself
    path: str
    text: str


@dataclass(slots=True)
class Repair:
    """What a repair found, did, and left."""

    before: StoreCheck
    steps: list[Step] = field(default_factory=list)
    lost: dict[str, list[Range]] = field(default_factory=dict)  # by stream, half open; recorded by this repair
    after: StoreCheck | None = None
    failed: dict[str, str] = field(default_factory=dict)  # streams that could not be repaired, and why


def plan_repair(
    root: str,
    streams: Iterable[str] | None,
    account: str | None = None,
    advance: Callable[[int], None] = no_progress,
) -> Repair:
    """What a repair would do. Nothing is written, no lock is taken."""
    found = Repair(check_store(root, streams, account, advance=advance))
    for problem in found.before.problems:
        found.steps.append(Step("", problem.path, "write it anew"))
    for name, stream in found.before.shown():
        found.steps += [Step(name, problem.path, _plan(problem)) for problem in stream.damage]
        lost = sorted({span for problem in stream.damage for span in problem.seqs})
        if lost:
            found.lost[name] = lost
    return found


def _plan(problem: Problem) -> str:
    if problem.kind == "damaged records":
        cost = f", record {format_ranges(problem.seqs)} as lost" if problem.seqs else ""
        return f"copy the {problem.size} bytes at {problem.offset} to a .damaged file{cost}"
    if problem.kind == "lost sequences":
        return f"record {format_ranges(problem.seqs)} as lost"
    if problem.kind == "damaged header":
        return f"write the header at {problem.offset} again from what holds"
    if problem.kind == "unreadable block":
        cost = f", record {format_ranges(problem.seqs)} as lost" if problem.seqs else ""
        return f"set it aside as .damaged (or write its header again, where the checkpoint knows it){cost}"
    if problem.kind == "damaged consumers":
        return "begin a new file with what holds, set this one aside as .damaged"
    return "write it anew" if problem.kind == "missing file" else "set it aside as .damaged, write it anew"


def repair_store(
    root: str,
    streams: Iterable[str] | None,
    account: str | None = None,
    advance: Callable[[int], None] = no_progress,
) -> Repair:
    """Repair a store, or some of its streams. Takes the write lock; StoreLocked names the process that holds it."""
    root = os.path.abspath(root)
    names = list(streams) if streams else None
    problems = check_root(root)
    folders = chosen_folders(root, names, account)
    with OpenStore(root, account, read_only=False) as store:
        for one in folders:
            store.database(one.account)  # takes the lock
        if problems:
            store.database()  # writes the marker anew
        found = Repair(check_store(root, names, account, advance=advance))
        found.steps += [Step("", problem.path, "written anew") for problem in problems]
        for name, stream in found.before.shown():
            try:
                db = store.database(stream.folder.account)
                found.lost[name] = StreamRepair(db, stream, found.steps, name).run()
            except (PenstockError, OSError) as error:  # the others are repaired all the same
                found.failed[name] = str(error)
    found.lost = {name: lost for name, lost in found.lost.items() if lost}
    found.after = check_store(root, names, account)
    return found


class StreamRepair:
    """The repair of one stream, under the lock."""

    def __init__(self, db: Database, check: StreamCheck, steps: list[Step], shown: str = "") -> None:
        self.db, self.disk, self.check, self.paths, self.steps = db, db.disk, check, check.paths, steps
        self.shown = shown or check.name

    def step(self, path: str, text: str) -> None:
        self.steps.append(Step(self.shown, path, text))

    def run(self) -> list[Range]:
        """The sequences that are recorded as lost by this repair, half open."""
        config = [
            problem for problem in self.check.damage if problem.path in (self.paths.config, self.paths.config_copy)
        ]
        if len(config) == 2:
            self.rebuild_config(config)
        elif config:
            for problem in config:
                self.set_aside(problem)
        for problem in self.check.damage:
            if problem.kind == "damaged records":
                self.copy_bytes(problem)
        self.repair_headers()
        known = self.read_known_deletes()
        self.set_aside_small_files()
        stream = self.db.get_stream(self.check.name)
        before = {finding.text for finding in stream.findings}
        lost = [span for finding in stream.findings if finding.kind == "lost sequences" for span in finding.seqs]
        store = stream.store
        assert isinstance(store, FileStore)
        self.repair_consumers(stream)
        lost += self.record_losses(store)
        self.delete_again(store, known)
        self.rebuild_summaries(store)
        for finding in stream.findings:
            if finding.kind != "damaged records" and (finding.text in before or finding.kind == "set aside"):
                self.step(finding.path, finding.text)
        return sorted(set(lost))

    def set_aside(self, problem: Problem) -> None:
        target = set_aside(self.disk, problem.path)
        kept = f"; its bytes are in {os.path.basename(target)}" if target else ""
        self.step(problem.path, f"written anew{kept}")

    def repair_consumers(self, stream: Stream) -> None:
        """Write what the open could read to a new file, which replaces the damaged one."""
        damaged = [problem for problem in self.check.damage if problem.kind == "damaged consumers"]
        if damaged:
            stream.consumers.flush()
        for problem in damaged:
            self.step(problem.path, f"{problem.text}; what holds is in a new file, this one is set aside")

    # Bytes.

    def copy_bytes(self, problem: Problem) -> None:
        """Keep the bytes of a damaged place in a file beside the block."""
        fd = self.disk.open(problem.path)
        try:
            data = self.disk.read(fd, problem.size, problem.offset)
        finally:
            self.disk.close(fd)
        target = f"{problem.path}.{problem.offset}.damaged"
        if not data or (os.path.exists(target) and self.disk.read_file(target) == data):
            return
        target = free_name(target)
        self.disk.write_file(target, data)
        self.step(problem.path, f"{problem.text}; the bytes at {problem.offset} are in {os.path.basename(target)}")

    def repair_headers(self) -> None:
        """Write damaged header copies again: from the other copy, the summary, or the checkpoint."""
        kinds = ("damaged header", "unreadable block")
        for path in sorted({problem.path for problem in self.check.damage if problem.kind in kinds}):
            header, source = self.find_header(path)
            if header is None:
                continue  # the open sets the file aside
            fd = self.disk.open(path, "w")
            try:
                front = self.disk.read(fd, RECORDS_START).ljust(RECORDS_START, b"\0")
                copy = header.encode().ljust(HEADER_STRIDE, b"\0")
                for number in range(2):
                    if front[number * HEADER_STRIDE :][: len(copy)] != copy:
                        self.disk.write(fd, copy, number * HEADER_STRIDE)
                        self.step(path, f"header copy {number + 1} of 2: written again from {source}")
                self.disk.sync(fd)
            finally:
                self.disk.close(fd)

    def find_header(self, path: str) -> tuple[BlockHeader | None, str]:
        name = parse_block_name(os.path.basename(path))
        fd = self.disk.open(path)
        try:
            front = self.disk.read(fd, RECORDS_START)
        finally:
            self.disk.close(fd)
        header = decode_front(front, path)
        if header is not None:
            # A header that names another stream or block makes it a foreign file: it is set aside.
            return (header if name == (header.block_id, header.generation) else None), "the other copy"
        summary = self.read_summary(path)
        if summary is not None:
            return summary.header, "the summary"
        checkpoint = None
        if os.path.exists(self.paths.checkpoint):
            checkpoint = decode_checkpoint(self.disk.read_file(self.paths.checkpoint))
        for row in checkpoint.blocks if checkpoint else ():
            if checkpoint is not None and (row.block_id, row.generation) == name:
                header = BlockHeader(
                    checkpoint.stream_id, row.block_id, checkpoint.epoch, row.base_seq, row.first_seq, row.base_time,
                    row.salt, row.generation,
                )  # fmt: skip
                return header, "the checkpoint"
        return None, ""

    def read_summary(self, path: str) -> Summary | None:
        name = path.removesuffix(".blk") + ".sum"
        return decode_summary(self.disk.read_file(name), name) if os.path.exists(name) else None

    # Files that can be rebuilt from others.

    def set_aside_small_files(self) -> None:
        """Set aside damaged summaries, checkpoint and HEAD; the open writes new ones."""
        config = (self.paths.config, self.paths.config_copy)
        for path in sorted({p.path for p in self.check.damage if p.kind == "damaged file"} - set(config)):
            if path == self.paths.head:
                # The open needs the slot that holds: keep a copy, it writes both anew.
                target = free_name(f"{path}.damaged")
                self.disk.write_file(target, self.disk.read_file(path))
                self.step(path, f"written anew; its bytes are in {os.path.basename(target)}")
            else:
                self.set_aside(Problem("damaged file", path, ""))
        for problem in self.check.damage:
            is_summary = problem.kind == "damaged file" and problem.path.endswith(".sum")
            if is_summary or (problem.kind == "damaged records" and self.read_summary(problem.path) is None):
                # Neither block nor summary tells which rows the block had, or the checkpoint was not compared with the
                # block: it must not be used.
                if os.path.exists(self.paths.checkpoint):
                    self.disk.unlink(self.paths.checkpoint)
                    self.disk.sync_folder(self.paths.root)
                    self.step(self.paths.checkpoint, "worked out anew from the blocks")
                return

    def read_known_deletes(self) -> KnownDeletes:
        if os.path.exists(self.paths.truncate):
            return KnownDeletes()  # a truncation takes sequences back: what was known of them does not count
        identity = read_identity(self.disk, self.paths)
        damaged = {problem.path for problem in self.check.damage if problem.kind == "damaged file"}
        return read_known_deletes(self.disk, self.paths, identity.stream_id, damaged)

    def delete_again(self, store: FileStore, known: KnownDeletes) -> None:
        """Delete messages that are back because the delete record for them is damaged."""
        back = [seq for first, last in known.dead.ranges() for seq in live_in(store, first, last + 1)]
        now = store.clock.now_ns()
        if back:
            store.engine.delete_all(back, COMPACT, now)
        number = len(back)
        if store.index.floor < known.floor <= store.index.last_seq + 1:
            number += store.engine.set_floor(known.floor, COMPACT, now)
        if number:
            store.commit()
            self.step(
                self.paths.blocks, f"{number} deleted messages, whose delete records are damaged, are deleted again"
            )

    def record_losses(self, store: FileStore) -> list[Range]:
        """Delete, with reason `lost`, messages in damaged places that the index still has as readable."""
        seqs: list[int] = []
        gone: list[Range] = []
        for problem in self.check.damage:
            for start, stop in problem.seqs:
                if problem.kind == "damaged records":
                    seqs += live_in(store, start, stop)
                elif problem.kind == "missing file":
                    alive = SeqSet()  # a message in a readable block is not lost, whatever another file says
                    for seq in live_in(store, start, stop):
                        alive.add(seq)
                    gone += subtract((start, stop), (store.lost, alive))
        now = store.clock.now_ns()
        if seqs:
            store.engine.delete_all(seqs, LOST, now)
        if gone:
            store.engine.log_ranges(sorted(gone), LOST, now)
        for first, stop in _ranges(seqs) + gone:
            store.lost.add_range(first, stop - 1)
        store.commit()
        return _ranges(seqs) + gone

    def rebuild_summaries(self, store: FileStore) -> None:
        """Write the summary of each sealed block where it is missing or does not list the damage."""
        damaged: dict[str, list[Range]] = {}
        for problem in self.check.problems:
            if problem.kind == "damaged records":
                damaged.setdefault(problem.path, []).append((problem.offset, problem.size))
        blocks = store.query.blocks()
        for block in blocks:
            path = store.block_path(block["id"])
            if not block["is_sealed"]:
                continue
            summary = self.read_summary(path)
            listed = set(summary.damage) if summary is not None else set()
            if summary is None or not set(damaged.get(path, [])) <= listed:
                self.write_summary(store, path, block, summary, sorted(listed | set(damaged.get(path, []))))

    def write_summary(
        self, store: FileStore, path: str, block: dict[str, int], summary: Summary | None, damage: list[Range]
    ) -> None:
        header = store.headers[block["id"]]
        data = self.disk.read_file(path)[: block["size"]]
        base = {"base_seq": header.base_seq, "base_time": header.base_time, "salt": header.salt}
        scan = scan_block(data, min(RECORDS_START, len(data)), len(data), **base, seq_min=header.first_seq)
        controls = b"".join(data[at : at + size] for at, size in scan.control_spans())
        if summary is not None and summary.data_size == block["size"]:
            controls = bytes(summary.section(CONTROLS))  # also records that are now damaged
        with_id_or_ttl = []
        for offset, _size, seq, time, flags in scan.messages():
            if flags & (FLAGS["ttl"] | FLAGS["msg_id"]) and not flags & FLAGS["erased"]:
                with_id_or_ttl.append((0, seq, time, flags, decode(data, offset, **base)["headers"] or b""))
        store.files.write_summary(block["id"], controls, IdsAndExpiries(read_ids_and_expiries(with_id_or_ttl)), damage)
        self.step(store.paths.summary(header.block_id, header.generation), "the summary is written anew")

    # Configuration.

    def rebuild_config(self, problems: list[Problem]) -> None:
        """Make a configuration if both copies are gone: blocks have the stream's id and subjects, but no limits."""
        headers, subjects = self.read_blocks()
        if not headers:
            raise PenstockError(
                f"{self.paths.root}: neither copy of its configuration holds, and no block tells its identity; "
                "restore config.json from a copy"
            )
        for problem in problems:
            set_aside(self.disk, problem.path)
        name = self.check.name
        config = check_create(make_config(name, subjects=derived_filters(subjects) or [f"{name}.>"]))
        identity = Identity(headers[0].stream_id, max(headers[0].base_time, 0), json.loads(encode_config(config)))
        write_identity(self.disk, self.paths, replace(identity, revision=2))
        self.step(
            self.paths.config,
            f"written anew from the blocks: subjects {', '.join(config.subjects)}, no limits: set them again",
        )
        self.check = check_store(self.db.path, [self.check.folder.full_name]).streams[0]

    def read_blocks(self) -> tuple[list[BlockHeader], set[str]]:
        headers: list[BlockHeader] = []
        subjects: set[str] = set()
        names = sorted(os.listdir(self.paths.blocks)) if os.path.isdir(self.paths.blocks) else []
        for name in filter(parse_block_name, names):
            path = os.path.join(self.paths.blocks, name)
            data = self.disk.read_file(path)
            header = decode_front(data[:RECORDS_START], path)
            if header is None or (headers and header.stream_id != headers[0].stream_id):
                continue
            headers.append(header)
            base = {"base_seq": header.base_seq, "base_time": header.base_time, "salt": header.salt}
            scan = scan_block(data, min(RECORDS_START, len(data)), len(data), **base, seq_min=header.first_seq)
            for offset, *_ in scan.messages():
                subject = decode(data, offset, **base)["subject"].decode("utf-8", "replace")
                if is_valid_subject(subject):
                    subjects.add(subject)
        return headers, subjects


def live_in(store: FileStore, start: int, stop: int) -> list[int]:
    """The sequences in [start, stop) that are readable according to the index."""
    found: list[int] = []
    seq = store.query.next_seq((), start, stop)
    while seq:
        found.append(seq)
        seq = store.query.next_seq((), seq + 1, stop) if seq + 1 < stop else 0
    return found


def _ranges(seqs: list[int]) -> list[Range]:
    found: list[Range] = []
    for seq in sorted(seqs):
        if found and found[-1][1] == seq:
            found[-1] = found[-1][0], seq + 1
        else:
            found.append((seq, seq + 1))
    return found


__all__ = ["Repair", "Step", "plan_repair", "repair_store"]
