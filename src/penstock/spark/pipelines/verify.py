"""verify: every checksum of every file of a store, in parallel. `penstock pipeline verify` runs it.

Planning lists names and reads HEAD; everything else is read in the tasks, whatever the number of blocks: runs of blocks
(block_check.py), and for each stream one task that looks at its small files and at what its index says is lost.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.base.disk import Disk
from penstock.base.ranges import subtract
from penstock.base.seq_set import SeqSet
from penstock.db.lock import holder_of
from penstock.errors import CorruptBlock
from penstock.format.block_header import boot_id
from penstock.format.checked_file import read_checked
from penstock.format.constants import HEAD_SLOT_SIZE, HEAD_SLOT_STRIDE
from penstock.format.head import decode_head
from penstock.format.identity import Identity, decode_identity, read_identity
from penstock.format.paths import StreamPaths, parse_block_name
from penstock.spark.pipelines.block_check import (
    PAUSE_S,
    TRIES,
    BlockChecker,
    BlockRun,
    Checked,
    IndexOfLoss,
    Problem,
    Range,
)
from penstock.spark.pipelines.jobs import OnProgress, cores_of, job_frame, small_frame, watched
from penstock.store.consumer_log.entries import read_entries
from penstock.store.index.checkpoint import Checkpoint, decode_checkpoint
from penstock.store.open.marker import require_marker
from penstock.store.open.report import Report
from penstock.store.open.stream_folders import StreamFolder, list_streams, pick_streams

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MAX_BYTES = 128 << 20  # a task costs about 60 ms before it does anything
EXACT_MAX = 10_000  # blocks of a stream whose sizes are asked for one by one; beyond, some stand for all
SAMPLE = 256
SCHEMA = "stream string, blocks long, bytes long, messages long, controls long, cpu_ns long, found string"
DAMAGE = (
    "stream string, block long, path string, offset long, size long, reason string, "
    "first_seq long, last_seq long, messages long, known boolean"
)


@dataclass(frozen=True, slots=True)
class StreamFiles:
    """The task that checks what a stream has besides its blocks."""

    root: str
    stream: str
    has_writer: bool


@dataclass(frozen=True, slots=True)
class StreamTotals:
    stream: str
    blocks: int = 0
    bytes: int = 0
    messages: int = 0
    controls: int = 0
    account: str = ""


@dataclass(frozen=True, slots=True)
class Verified:
    """What was checked, and what was found. `damage` is the report as a DataFrame, one row for each place."""

    path: str
    damage: DataFrame
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    streams: tuple[StreamTotals, ...]
    seconds: float
    cpu_seconds: float  # of the workers, while they checked
    tasks: int
    totals: StreamTotals = field(default_factory=lambda: StreamTotals(""))

    @property
    def is_ok(self) -> bool:
        """No damage, or only such as a repair has written down."""
        return all(problem.is_known for problem in self.problems)


def run(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    streams: Sequence[str] | None = None,
    account: str | None = None,
    max_bytes: int = MAX_BYTES,
    on_progress: OnProgress | None = None,
) -> Verified:
    """Check a store, or some of its streams, beside a running writer or with none."""
    root = os.path.abspath(os.fspath(path))
    require_marker(root, Disk())  # NotAStore and StreamNotFound before Spark has anything to do
    folders = tuple(pick_streams(root, list_streams(root, account, with_broken=True), streams, account))
    began = time.monotonic()
    plan = partial(plan_checks, root, folders, max_bytes, cores_of(spark))
    with watched(spark, on_progress):
        rows = job_frame(spark, "verify", SCHEMA, plan, check_part).collect()
    problems, notes = _merge([json.loads(row["found"]) for row in rows])
    each = [
        StreamTotals(one.label, *_sums([row for row in rows if row["stream"] == one.label]), account=one.account)
        for one in folders
    ]
    return Verified(
        path=root,
        damage=small_frame(spark, DAMAGE, map(_row, problems)),
        problems=tuple(problems),
        notes=tuple(notes),
        streams=tuple(each),
        seconds=time.monotonic() - began,
        cpu_seconds=sum(row["cpu_ns"] for row in rows) / 1e9,
        tasks=len(rows),
        totals=StreamTotals("", *_sums(rows)),
    )


def _sums(rows: list[Any]) -> tuple[int, int, int, int]:
    blocks, size, messages, controls = (
        sum(row[name] for row in rows) for name in ("blocks", "bytes", "messages", "controls")
    )
    return blocks, size, messages, controls


def _row(problem: Problem) -> tuple[Any, ...]:
    first, last = (problem.seqs[0][0], problem.seqs[-1][1] - 1) if problem.seqs else (None, None)
    count = sum(stop - start for start, stop in problem.seqs)
    return (
        problem.stream, problem.block or None, problem.path, problem.offset, problem.size, problem.reason,
        first, last, count, problem.is_known,
    )  # fmt: skip


def _merge(found: list[dict[str, Any]]) -> tuple[list[Problem], list[str]]:
    """All problems; lost sequences only where no damaged place accounts for them."""
    problems = [_problem(one) for part in found for one in part["problems"]]
    explained: dict[str, SeqSet] = {}
    for problem in problems:
        for start, stop in problem.seqs:
            explained.setdefault(problem.stream, SeqSet()).add_range(start, stop - 1)
    for part in found:
        for stream, root, ranges in part["lost"]:
            for first, last in ranges:
                for start, stop in subtract((first, last + 1), (explained.get(stream, SeqSet()),)):
                    text = "lost sequences: no record tells what became of them"
                    problems.append(Problem(stream, 0, root, 0, 0, text, ((start, stop),)))
    problems.sort(key=lambda problem: (problem.stream, problem.path, problem.offset))
    return problems, sorted(note for part in found for note in part["notes"])


def _problem(fields: dict[str, Any]) -> Problem:
    return Problem(**{**fields, "seqs": tuple((start, stop) for start, stop in fields["seqs"])})


# Planning.


def plan_checks(
    root: str, streams: Sequence[StreamFolder], max_bytes: int, min_parts: int
) -> list[StreamFiles | BlockRun]:
    """The tasks of a verification: the largest first, so that no core waits long at the end."""
    disk, has_writer = Disk(), holder_of(root) is not None
    found: list[StreamFiles | BlockRun] = []
    sized: list[tuple[StreamPaths, list[tuple[int, str]], list[int], str]] = []
    for one in streams:
        paths = StreamPaths(one.root)
        found.append(StreamFiles(paths.root, one.label, has_writer))
        blocks = list_blocks(paths)
        sized.append((paths, blocks, sizes_of(paths, blocks), one.label))
    total = sum(sum(sizes) for _, _, sizes, _ in sized)
    target = max(1, min(max_bytes, -(-total // min_parts)))
    for paths, blocks, sizes, name in sized:
        found += runs_of(disk, paths, name, blocks, sizes, target)
    return found


def list_blocks(paths: StreamPaths) -> list[tuple[int, str]]:
    """Id and file name of a stream's blocks in order, of each the newest generation: one listing, no file opened."""
    best: dict[int, tuple[int, str]] = {}
    for name in os.listdir(paths.blocks) if os.path.isdir(paths.blocks) else ():
        parsed = parse_block_name(name)
        if parsed is not None and parsed[1] > best.get(parsed[0], (0, ""))[0]:
            best[parsed[0]] = parsed[1], name
    return [(block_id, best[block_id][1]) for block_id in sorted(best)]


def sizes_of(paths: StreamPaths, blocks: list[tuple[int, str]]) -> list[int]:
    """The blocks' sizes; of very many blocks the mean of some stands for all, since each would be a request."""
    if len(blocks) <= EXACT_MAX:
        return [_size(os.path.join(paths.blocks, name)) for _, name in blocks]
    asked = blocks[:: len(blocks) // SAMPLE]
    mean = sum(_size(os.path.join(paths.blocks, name)) for _, name in asked) // len(asked)
    return [max(mean, 1)] * len(blocks)


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:  # the writer removed it
        return 0


def runs_of(
    disk: Disk, paths: StreamPaths, name: str, blocks: list[tuple[int, str]], sizes: list[int], target: int
) -> Iterator[BlockRun]:
    """The stream's blocks as runs of about `target` bytes, up to what HEAD says is committed."""
    try:
        identity = read_identity(disk, paths)
    except CorruptBlock:
        return  # nobody can say whose the blocks are; the task of the small files says so
    try:
        head = decode_head(disk.read_file(paths.head), identity.stream_id)
    except FileNotFoundError:
        head = None
    is_cut = head is not None and head.boot_id != boot_id() and not head.is_stopped  # the blocks may have more
    if head is not None and head.block_id and not is_cut:
        blocks = [one for one in blocks if one[0] <= head.block_id]
    limit = (head.block_id, head.offset, head.committed_seq) if head is not None and head.block_id else None
    yield from cut(paths, name, identity.stream_id, blocks, sizes, target, limit)


def cut(
    paths: StreamPaths,
    name: str,
    stream_id: bytes,
    blocks: list[tuple[int, str]],
    sizes: list[int],
    target: int,
    limit: tuple[int, int, int] | None,
) -> Iterator[BlockRun]:
    """Blocks in order as runs that end with the block that fills them."""
    start = size = 0
    for at in range(len(blocks)):
        size += sizes[at]
        if size >= target or at + 1 == len(blocks):
            following = blocks[at + 1][1] if at + 1 < len(blocks) else ""
            chosen = tuple(blocks[start : at + 1])
            yield BlockRun(paths.root, name, stream_id, chosen, following, limit, size)
            start, size = at + 1, 0


# In the tasks.


def check_part(part: StreamFiles | BlockRun) -> Iterator[pa.RecordBatch]:
    """One row: what the part had, and what was wrong with it, as JSON."""
    import pyarrow as pa

    began = time.process_time_ns()
    lost: list[tuple[str, str, list[Range]]] = []
    if isinstance(part, BlockRun):
        found = BlockChecker(part).check()
    else:
        found, lost = FilesChecker(part).check()
    told = json.dumps({"problems": [asdict(one) for one in found.problems], "notes": found.notes, "lost": lost})
    row = [part.stream, found.blocks, found.bytes, found.messages, found.controls, time.process_time_ns() - began, told]
    names = [field.split()[0] for field in SCHEMA.split(", ")]
    yield pa.RecordBatch.from_pydict({name: [value] for name, value in zip(names, row, strict=True)})


class FilesChecker:
    """The small files of a stream, and the blocks and sequences that should be there and are not."""

    def __init__(self, part: StreamFiles) -> None:
        self.part, self.disk, self.found = part, Disk(), Checked()
        self.paths = StreamPaths(part.root)

    def check(self) -> tuple[Checked, list[tuple[str, str, list[Range]]]]:
        identity = self.check_config()
        if identity is None:
            return self.found, []
        self.check_head(identity)
        checkpoint = self.check_checkpoint(identity)
        self.check_batches()
        self.check_consumers(identity)
        if os.path.exists(self.paths.truncate):
            self.found.notes.append(f"{self.paths.truncate}: a truncation was cut short: the next open finishes it")
        lost = SeqSet()
        for _ in range(0 if self.is_settled(identity, checkpoint) else TRIES):
            index = IndexOfLoss(self.part.root, identity.stream_id, self.part.stream, self.disk)
            try:
                lost = index.newly_lost()
                if not lost or not self.part.has_writer:
                    if index.why:
                        self.add(self.paths.checkpoint, f"the stream's state cannot be worked out: {index.why}")
                    self.check_missing(checkpoint, index)
                    break
            finally:
                index.close()
            time.sleep(PAUSE_S)  # the writer went on while the index was read
        return self.found, [(self.part.stream, self.part.root, lost.ranges())] if lost else []

    def is_settled(self, identity: Identity, checkpoint: Checkpoint | None) -> bool:
        """The stream was stopped in good order and has what its checkpoint lists: that knows what is lost."""
        data = self.read(self.paths.head)
        head = decode_head(data, identity.stream_id) if data is not None else None
        if head is None or not head.is_stopped or checkpoint is None:
            return False
        there = dict(list_blocks(self.paths))
        return (
            (checkpoint.block_id, checkpoint.offset) == (head.block_id, head.offset)
            and checkpoint.last_seq >= head.committed_seq
            and there.keys() == {row.block_id for row in checkpoint.blocks}
            and all(_size(self.paths.block(row.block_id, row.generation)) >= row.size for row in checkpoint.blocks)
        )

    def add(self, path: str, reason: str, offset: int = 0, size: int = 0, seqs: tuple[Range, ...] = ()) -> None:
        self.found.problems.append(Problem(self.part.stream, 0, path, offset, size, reason, seqs))

    def read(self, path: str) -> bytes | None:
        try:
            data = self.disk.read_file(path)
        except FileNotFoundError:
            return None
        self.found.bytes += len(data)
        return data

    def check_config(self) -> Identity | None:
        copies = []
        for path in (self.paths.config, self.paths.config_copy):
            data = self.read(path)
            copies.append((path, data, decode_identity(data, path) if data is not None else None))
        held = [identity for _, _, identity in copies if identity is not None]
        cost = "the other copy holds" if held else "the other copy neither: the stream cannot be opened"
        for path, data, identity in copies:
            if identity is None:
                why = "it is missing" if data is None else "the checksum differs"
                self.add(path, f"{why}; {cost}", size=len(data or b""))
        return max(held, key=lambda identity: identity.revision, default=None)

    def check_head(self, identity: Identity) -> None:
        bad: list[int] = []
        for _ in range(TRIES):
            data = self.read(self.paths.head)
            if data is None:
                if list_blocks(self.paths):
                    self.add(self.paths.head, "it is missing: the next open for writing makes it again")
                return
            slots = [(at, data[at : at + HEAD_SLOT_SIZE]) for at in (0, HEAD_SLOT_STRIDE)]
            bad = [at for at, slot in slots if slot.strip(b"\0") and decode_head(slot, identity.stream_id) is None]
            if not bad and not any(slot.strip(b"\0") for _, slot in slots):
                bad = [0]
            if not bad:
                return
            time.sleep(PAUSE_S)  # the writer may have been at it
        for at in bad:
            cost = "the other slot holds" if len(bad) == 1 else "neither slot holds; it is worked out from the blocks"
            self.add(self.paths.head, f"slot {at // HEAD_SLOT_STRIDE}: {cost}", at, HEAD_SLOT_SIZE)

    def check_checkpoint(self, identity: Identity) -> Checkpoint | None:
        data = self.read(self.paths.checkpoint)
        if data is None:
            return None
        found = decode_checkpoint(data)
        if found is None:
            self.add(self.paths.checkpoint, "the checksum differs; it is worked out from the blocks", size=len(data))
        elif found.stream_id != identity.stream_id:
            self.add(self.paths.checkpoint, "it belongs to another stream", size=len(data))
            return None
        return found

    def check_batches(self) -> None:
        """What was adopted, in two copies, what is being adopted, and why messages are gone."""
        for path in (self.paths.batches, self.paths.batches_copy, self.paths.adopt, self.paths.deletes):
            try:
                read_checked(self.disk, path)
            except CorruptBlock as damage:
                self.add(path, damage.reason, size=os.path.getsize(path))

    def check_consumers(self, identity: Identity) -> None:
        """The log of the stream's consumers."""
        for _ in range(TRIES):
            report = Report()
            read_entries(self.disk, self.paths.consumers, identity.stream_id, report)
            if report.is_clean or not self.part.has_writer:
                break
            time.sleep(PAUSE_S)
        for finding in report.damage:
            self.add(finding.path, finding.text, finding.offset, finding.size)

    def check_missing(self, checkpoint: Checkpoint | None, index: IndexOfLoss) -> None:
        """Blocks that the checkpoint of the last stop lists with living messages, and that are not there."""
        snapshot = index.snapshot()
        head = snapshot.head if snapshot is not None else None
        if (
            checkpoint is None
            or head is None
            or (checkpoint.block_id, checkpoint.offset) != (head.block_id, head.offset)
        ):
            return
        assert snapshot is not None
        there = {block_id for block_id, _ in list_blocks(self.paths)}
        fresh, recorded = index.newly_lost(), SeqSet()
        for first, last in snapshot.lost.ranges():
            for start, stop in subtract((first, last + 1), (fresh,)):
                recorded.add_range(start, stop - 1)
        for row in checkpoint.blocks:
            seqs = subtract((row.first_seq, row.last_seq + 1), (recorded,))
            if row.live and row.block_id not in there and seqs:
                path = self.paths.block(row.block_id, row.generation)
                self.add(path, "the block is missing", seqs=tuple(seqs))
