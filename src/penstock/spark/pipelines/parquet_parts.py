"""parquet_parts: Parquet with the columns of our table, as the source of a migration.

A first job reads sequences and subjects, file by file; then each run of sequences is read from the files that overlap
it, sorted, and staged. Files in the order of their sequences, such as exports, are therefore read only once.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.base.subject import explain_subject
from penstock.spark.pipelines.jobs import job_frame
from penstock.spark.pipelines.migrate import Bad, Info, MigrationRefused, Survey, derived_filter
from penstock.spark.sink.staging import Message, stage_messages
from penstock.wire.headers import encode

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.dataset import Dataset
    from pyspark.sql import SparkSession

RUN = 250_000  # sequences that one task stages: they are sorted in memory
SURVEY_SCHEMA = "file long, stream string, part long, messages long, high long, filters string"
STAGE_SCHEMA = "info string, seq long, why string"


@dataclass(frozen=True, slots=True)
class Run:
    """The sequences [part * RUN, (part + 1) * RUN) of one stream, and the files that overlap them."""

    source: str
    files: tuple[str, ...]
    stream: str | None  # None: the files hold only one stream
    part: int
    floor: int


def is_parquet(source: str) -> bool:
    """A Parquet file, or a folder with Parquet files at any depth."""
    if os.path.isfile(source):
        with open(source, "rb") as file:
            return file.read(4) == b"PAR1"
    return any(name.endswith(".parquet") for _, _, names in os.walk(source) for name in names)


def find_parquet(spark: SparkSession, source: str, stream: str | None) -> Iterator[ParquetSource]:
    """The streams in Parquet, named by the column `stream` or folders `stream=…`; without them a name is required."""
    source = os.path.abspath(source)
    whole = open_files(source, None)
    files = sorted(whole.files)
    has_stream = _check_columns(whole.schema, source)
    if not has_stream and stream is None:
        raise MigrationRefused(f"{source}: it has no column `stream`: say what the stream is called")
    plan: Callable[[], list[tuple[int, str, str]]] = partial(list, [(n, source, one) for n, one in enumerate(files)])
    rows = [row.asDict() for row in job_frame(spark, "survey_parquet", SURVEY_SCHEMA, plan, survey_file).collect()]
    names = sorted({row["stream"] for row in rows})
    if stream is not None and len(names) > 1 and stream not in names:
        raise MigrationRefused(f"{source}: it has no stream {stream!r}; there are: {', '.join(names)}")
    for name in names if len(names) > 1 else names[:1] or [stream or ""]:
        if len(names) <= 1 or stream in (None, name):
            own = [row for row in rows if row["stream"] == name]
            chosen = name if len(names) > 1 or stream is None else stream  # a single stream may be renamed
            yield ParquetSource(chosen, source, files, own, name if has_stream else None)


def open_files(source: str, files: Sequence[str] | None) -> Dataset:
    """The files of a source as one table, with the partition values in the names of their folders."""
    import pyarrow as pa
    from pyarrow import dataset

    try:
        if os.path.isfile(source):
            return dataset.dataset(source, format="parquet")
        hive = dataset.HivePartitioning.discover(infer_dictionary=False)
        # A stream may be named 17: partition values are text.
        if any(part.startswith("stream=") for name in files or _names(source) for part in name.split(os.sep)):
            hive = dataset.partitioning(pa.schema([("stream", pa.string())]), flavor="hive")
        chosen = list(files) if files is not None else source
        return dataset.dataset(chosen, format="parquet", partitioning=hive, partition_base_dir=source)
    except (pa.ArrowInvalid, OSError) as error:
        raise MigrationRefused(f"{source}: it cannot be read as Parquet: {error}") from None


def _names(source: str) -> Iterator[str]:
    return (path for path, _, _ in os.walk(source))


def _check_columns(schema: pa.Schema, source: str) -> bool:
    """Whether there is a column `stream`; the error names a column that is missing or has a wrong type."""
    import pyarrow as pa

    numbers = pa.types.is_integer

    def texts(kind: pa.DataType) -> bool:
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))

    def is_binary(kind: pa.DataType) -> bool:
        return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or texts(kind))

    for name, fits, wanted in (
        ("seq", numbers, "a whole number"),
        ("subject", texts, "text"),
        ("payload", is_binary, "binary"),
    ):
        if name not in schema.names:
            raise MigrationRefused(
                f"{source}: column {name} ({wanted}) is missing; there are {', '.join(schema.names)}"
            )
        if not fits(schema.field(name).type):
            raise MigrationRefused(f"{source}: column {name} is {schema.field(name).type}: {wanted} is wanted")
    if "headers" in schema.names:
        kind = schema.field("headers").type
        if not (is_binary(kind) or pa.types.is_map(kind)):
            raise MigrationRefused(f"{source}: column headers is {kind}: binary or a map of lists is wanted")
    has_ns = "ts_ns" in schema.names and numbers(schema.field("ts_ns").type)
    if not has_ns and not ("ts" in schema.names and pa.types.is_timestamp(schema.field("ts").type)):
        raise MigrationRefused(f"{source}: there is neither ts_ns (whole number) nor ts (timestamp)")
    return "stream" in schema.names


def survey_file(part: tuple[int, str, str]) -> Iterator[pa.RecordBatch]:
    """For one file, by stream and run of sequences: the number of rows, the highest sequence, subjects to capture."""
    import pyarrow as pa

    number, source, path = part
    found = open_files(source, [path])
    columns = [name for name in ("stream", "seq", "subject") if name in found.schema.names]
    cells: dict[tuple[str, int], list[Any]] = defaultdict(lambda: [0, 0, set()])
    for batch in found.to_batches(columns=columns):
        names = batch.column("stream").to_pylist() if "stream" in columns else [""] * batch.num_rows
        for name, seq, subject in zip(
            names, batch.column("seq").to_pylist(), batch.column("subject").to_pylist(), strict=True
        ):
            cell = cells[name or "", _run_of(seq)]
            cell[0] += 1
            if explain_row(seq, subject) is None:
                cell[1] = max(cell[1], seq)
                cell[2].add(derived_filter(subject))
    rows = [
        {
            "file": number,
            "stream": name,
            "part": run,
            "messages": count,
            "high": high,
            "filters": json.dumps(sorted(some)),
        }
        for (name, run), (count, high, some) in cells.items()
    ]
    schema = pa.schema([(one.split()[0], pa.int64() if one.endswith("long") else pa.string())
                        for one in SURVEY_SCHEMA.split(", ")])  # fmt: skip
    yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _run_of(seq: int | None) -> int:
    return seq // RUN if seq is not None and seq > 0 else 0


def explain_row(seq: int | None, subject: str | None) -> str | None:
    """Why a row must be rejected, judged by its sequence and subject."""
    if seq is None or not 0 < seq < 2**63:
        return f"{seq} is no sequence"
    return "it has no subject" if subject is None else explain_subject(subject.encode())


class ParquetSource:
    """The rows of one stream."""

    def __init__(
        self, stream: str, path: str, files: Sequence[str], rows: list[dict[str, Any]], name: str | None
    ) -> None:
        self.stream, self.path, self.files, self.rows, self.name = stream, path, files, rows, name

    def survey(self, spark: SparkSession) -> Survey:
        runs: dict[int, list[int]] = defaultdict(lambda: [0, 0])
        for row in self.rows:
            runs[row["part"]][0] += row["messages"]
            runs[row["part"]][1] = max(runs[row["part"]][1], row["high"])
        return Survey(
            parts=tuple((part, count, high) for part, (count, high) in sorted(runs.items())),
            filters=tuple(sorted({one for row in self.rows for one in json.loads(row["filters"])})),
        )

    def stage(self, spark: SparkSession, root: str, job: str, survey: Survey) -> tuple[list[Info], list[Bad]]:
        floors = survey.floors()
        files: dict[int, set[str]] = defaultdict(set)
        for row in self.rows:
            files[row["part"]].add(self.files[row["file"]])
        runs = [Run(self.path, tuple(sorted(files[n])), self.name, n, floors[n]) for n, _, _ in survey.parts]
        plan: Callable[[], list[Run]] = partial(list, runs)
        work = partial(stage_run, root=root, job=job)
        rows = job_frame(spark, "stage_parquet", STAGE_SCHEMA, plan, work).collect()
        bad = sorted((row for row in rows if row["info"] is None), key=lambda row: row["seq"] or 0)
        return (
            [json.loads(row["info"]) for row in rows if row["info"] is not None],
            [Bad(f"seq {row['seq']}", row["why"], b"") for row in bad],
        )


def stage_run(part: Run, root: str, job: str) -> Iterator[pa.RecordBatch]:
    """Stage a run: one row with the facts for the adoption, and one for each rejected row."""
    import pyarrow as pa
    from pyarrow import compute as pc
    from pyarrow import dataset

    found = open_files(part.source, part.files)
    wanted = (dataset.field("seq") >= part.part * RUN) & (dataset.field("seq") < (part.part + 1) * RUN)
    if part.part == 0:
        wanted = (dataset.field("seq") < RUN) | dataset.field("seq").is_null()
    if part.stream is not None:
        wanted = wanted & (dataset.field("stream") == part.stream)
    names = [name for name in ("seq", "ts_ns", "ts", "subject", "headers", "payload") if name in found.schema.names]
    table = found.to_table(columns=names, filter=wanted).sort_by("seq")
    if "ts_ns" not in names:
        times = pc.multiply(table.column("ts").cast(pa.timestamp("us")).cast(pa.int64()), 1000)
        table = table.append_column("ts_ns", times)
    bad: list[dict[str, Any]] = []
    info = stage_messages(root, job, part.part, part.floor, _messages(_rows(table), part.floor, bad))
    schema = pa.schema([("info", pa.string()), ("seq", pa.int64()), ("why", pa.string())])
    yield pa.RecordBatch.from_pylist([{"info": json.dumps(info)}, *bad], schema=schema)


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    names = ("seq", "ts_ns", "subject", "headers", "payload")
    for batch in table.to_batches(max_chunksize=10_000):
        columns = [
            batch.column(name).to_pylist() if name in batch.schema.names else [None] * batch.num_rows for name in names
        ]
        yield from zip(*columns, strict=True)


def _messages(rows: Iterable[tuple[Any, ...]], floor: int, bad: list[dict[str, Any]]) -> Iterator[Message]:
    """The rows as messages; rejected rows go to `bad`."""
    last = floor
    for seq, ts_ns, subject, headers, payload in rows:
        why = explain_row(seq, subject)
        if why is None and seq <= last:
            why = f"sequence {seq} after {last}: it is there twice"
        if why is None and ts_ns is None:
            why = "it has no time"
        if why is not None:
            bad.append({"seq": seq, "why": why})
            continue
        last = seq
        yield seq, ts_ns, subject, _headers(headers), payload.encode() if isinstance(payload, str) else payload or b""


def _headers(found: Any) -> bytes | None:
    if not found or isinstance(found, bytes):
        return found or None
    pairs = found if isinstance(found, list) else list(found.items())
    return encode({key: value if isinstance(value, list) else [value or ""] for key, value in pairs})
