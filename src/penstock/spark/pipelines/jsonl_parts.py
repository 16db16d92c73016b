"""jsonl_parts: a `messages.jsonl` divided into ranges of bytes, each parsed by one task.

A line belongs to the range in which it begins; the rules for lines are in store/open/jsonl_migration.py. A line is
accepted if its sequence lies above all earlier ones, so a task needs only two facts about the ranges before its own:
their highest sequence and their number of lines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.spark.pipelines.jobs import job_frame
from penstock.spark.pipelines.migrate import Bad, Info, Survey, derived_filter
from penstock.spark.sink.staging import Message, stage_messages
from penstock.store.open.jsonl_migration import LegacyMessage, parse_line

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SURVEY_SCHEMA = "part long, lines long, messages long, high long, filters string"
SMALL = 4 << 20  # less is not worth a task, and each task leaves a block
STAGE_SCHEMA = "part long, info string, number long, why string, line binary"


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes [start, stop) of a file: the lines that begin within them."""

    part: int
    path: str
    start: int
    stop: int
    floor: int = 0  # the highest sequence before it
    before: int = 0  # how many lines there are before it


def cut(path: str, size: int, max_bytes: int) -> list[Range]:
    """A file in ranges of about equal size."""
    count = max(1, -(-size // max_bytes))
    return [Range(n, path, size * n // count, size * (n + 1) // count) for n in range(count)]


def lines_of(part: Range) -> Iterator[bytes]:
    """The lines that begin in a range, in order."""
    with open(part.path, "rb") as file:
        if part.start:
            file.seek(part.start - 1)
            file.readline()  # the rest of a line that began earlier; one byte if a line begins at `start`
        while file.tell() < part.stop and (line := file.readline()):
            yield line


def parse_range(part: Range, bad: list[tuple[int, str, bytes]]) -> Iterator[LegacyMessage]:
    """The messages of a range above its floor; rejected lines go to `bad`, by number."""
    highest = part.floor
    for number, line in enumerate(lines_of(part), part.before + 1):
        if not line.strip():
            continue
        try:
            message = parse_line(line)
            if message.seq <= highest:
                raise ValueError(f"sequence {message.seq} after {highest}")
        except (ValueError, RecursionError) as error:
            bad.append((number, str(error), line))
            continue
        highest = message.seq
        yield message


def survey_range(part: Range) -> Iterator[pa.RecordBatch]:
    """One row: the number of lines and messages, the highest sequence, and the subjects that a stream must capture."""
    import pyarrow as pa

    lines = messages = high = 0
    filters: set[str] = set()
    for line in lines_of(part):
        lines += 1
        try:
            message = parse_line(line)
        except (ValueError, RecursionError):
            continue  # the staging task reports it, with its line number
        messages, high = messages + 1, max(high, message.seq)
        filters.add(derived_filter(message.subject))
    row = {
        "part": part.part,
        "lines": lines,
        "messages": messages,
        "high": high,
        "filters": json.dumps(sorted(filters)),
    }
    yield pa.RecordBatch.from_pylist([row])


def stage_range(part: Range, root: str, job: str) -> Iterator[pa.RecordBatch]:
    """Stage a range: one row with the facts for the adoption, and one for each rejected line."""
    import pyarrow as pa

    bad: list[tuple[int, str, bytes]] = []
    taken: Iterator[Message] = (
        (one.seq, one.time_ns, one.subject, one.headers, one.payload) for one in parse_range(part, bad)
    )
    info = stage_messages(root, job, part.part, part.floor, taken)
    rows: list[dict[str, Any]] = [{"part": part.part, "info": json.dumps(info)}]
    rows += [{"part": part.part, "number": number, "why": why, "line": line} for number, why, line in bad]
    schema = pa.schema([
        ("part", pa.int64()), ("info", pa.string()), ("number", pa.int64()), ("why", pa.string()), ("line", pa.binary())
    ])  # fmt: skip
    yield pa.RecordBatch.from_pylist(rows, schema=schema)


class JsonlSource:
    """One file of lines that becomes one stream."""

    def __init__(self, stream: str, path: str, max_bytes: int, cores: int = 1) -> None:
        self.stream, self.path = stream, os.path.abspath(path)
        size = os.path.getsize(path)
        self.ranges = cut(self.path, size, min(max_bytes, max(size // cores, SMALL)))

    def survey(self, spark: SparkSession) -> Survey:
        plan: Callable[[], list[Range]] = partial(list, self.ranges)
        rows = sorted(job_frame(spark, "survey_lines", SURVEY_SCHEMA, plan, survey_range).collect())
        return Survey(
            parts=tuple((row["part"], row["messages"], row["high"]) for row in rows if row["messages"]),
            filters=tuple(sorted({one for row in rows for one in json.loads(row["filters"])})),
            lines=tuple(row["lines"] for row in rows),
        )

    def stage(self, spark: SparkSession, root: str, job: str, survey: Survey) -> tuple[list[Info], list[Bad]]:
        floors, before = survey.floors(), survey.numbers()
        told = [replace(one, floor=floors.get(one.part, 0), before=before[one.part]) for one in self.ranges]
        plan: Callable[[], list[Range]] = partial(list, told)
        work = partial(stage_range, root=root, job=job)
        rows = job_frame(spark, "stage_lines", STAGE_SCHEMA, plan, work).collect()
        bad = sorted((row for row in rows if row["info"] is None), key=lambda row: row["number"])
        return (
            [json.loads(row["info"]) for row in rows if row["info"] is not None],
            [Bad(f"line {row['number']}", row["why"], bytes(row["line"])) for row in bad],
        )
