"""verify: every checksum of every file of a store, in parallel. `penstock pipeline verify` runs it.

The checks are in penstock.check; this module runs each of its parts as a Spark task. Planning reads names, sizes, HEAD
and configurations: one task for a stream's files other than blocks, and one for each run of blocks.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.base.disk import Disk
from penstock.check.parts import Part, plan_parts
from penstock.check.problem import PartCheck, Problem, StoreCheck, StreamCheck
from penstock.check.store import check_part, check_root, chosen_folders
from penstock.db.lock import holder_of
from penstock.scan.block_memory import BlockMemory
from penstock.spark.pipelines.jobs import OnProgress, cores_of, job_frame, small_frame, watched

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MAX_BYTES = 128 << 20  # a task costs about 60 ms before it does anything
SCHEMA = "stream string, cpu_ns long, found string"
DAMAGE = (
    "stream string, block long, path string, offset long, size long, reason string, "
    "first_seq long, last_seq long, messages long, known boolean"
)
_memory = BlockMemory()  # reused by later tasks of the process: fresh memory costs as much as reading into it


@dataclass(frozen=True, slots=True)
class Verified:
    """The totals and findings of a check. `damage` has a row for each damaged place."""

    check: StoreCheck
    damage: DataFrame
    cpu_seconds: float  # of the workers, while they checked
    tasks: int

    @property
    def is_ok(self) -> bool:
        """Whether there is no damage other than what a repair has recorded."""
        return self.check.is_ok

    @property
    def problems(self) -> list[tuple[str, Problem]]:
        """All problems, each with the label of its stream: "" for the store itself."""
        return _labelled(self.check)


def run(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    streams: Sequence[str] | None = None,
    account: str | None = None,
    max_bytes: int = MAX_BYTES,
    on_progress: OnProgress | None = None,
) -> Verified:
    """Check a store, or some of its streams; a writer may be running."""
    root = os.path.abspath(os.fspath(path))
    began = time.monotonic()
    check = StoreCheck(root, None, check_root(root))  # NotAStore and StreamNotFound come before Spark starts a job
    folders = chosen_folders(root, streams, account)
    check.holder = holder_of(root)
    plan = partial(plan_parts, Disk(), folders, check.holder is not None, max_bytes, cores_of(spark))
    with watched(spark, on_progress):
        rows = job_frame(spark, "verify", SCHEMA, plan, check_in_task).collect()
    parts: dict[str, list[PartCheck]] = {}
    for row in rows:
        parts.setdefault(row["stream"], []).append(parse_part(row["found"]))
    check.streams = [StreamCheck.of_parts(folder, parts.get(folder.root, ())) for folder in folders]
    check.seconds = time.monotonic() - began
    return Verified(
        check=check,
        damage=small_frame(spark, DAMAGE, [_row(label, problem) for label, problem in _labelled(check)]),
        cpu_seconds=sum(row["cpu_ns"] for row in rows) / 1e9,
        tasks=len(rows),
    )


def check_in_task(part: Part) -> Iterator[pa.RecordBatch]:
    """One row: the stream's folder, and the findings in the part."""
    import pyarrow as pa

    began = time.process_time_ns()
    found = check_part(Disk(), part, _memory)
    row = [part.folder.root, time.process_time_ns() - began, json.dumps(asdict(found))]
    names = [field.split()[0] for field in SCHEMA.split(", ")]
    yield pa.RecordBatch.from_pydict({name: [value] for name, value in zip(names, row, strict=True)})


def parse_part(text: str) -> PartCheck:
    fields = json.loads(text)
    for name in ("problems", "checkpoint_problems"):
        fields[name] = [Problem(**one | {"seqs": _ranges(one["seqs"])}) for one in fields[name]]
    for name in ("lost", "newly_lost"):
        fields[name] = list(_ranges(fields[name]))
    return PartCheck(**fields)


def _ranges(value: list[list[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((start, stop) for start, stop in value)


def _labelled(check: StoreCheck) -> list[tuple[str, Problem]]:
    return [("", problem) for problem in check.problems] + [
        (stream.folder.label, problem) for stream in check.streams for problem in stream.problems
    ]


def _row(label: str, problem: Problem) -> tuple[Any, ...]:
    first, last = (problem.seqs[0][0], problem.seqs[-1][1] - 1) if problem.seqs else (None, None)
    count = sum(stop - start for start, stop in problem.seqs)
    return (
        label, problem.block_id or None, problem.path, problem.offset, problem.size, problem.text, first, last, count,
        problem.is_known,
    )  # fmt: skip
