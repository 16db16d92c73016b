"""The task of an export: write the rows of one part to Parquet files of bounded size, one set for each partition.

The task returns a row that names its files; the files of a task that failed or ran twice are named nowhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from penstock.scan.part import HeadersMode, Mode, Part, part_schema, read_part
from penstock.spark.errors import as_one_line
from penstock.spark.pipelines.manifest import LakeError, LakeFile, Settings

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

FILE_SCHEMA = (
    "path string, stream string, rows long, bytes long, first_seq long, last_seq long, min_ts_ns long, max_ts_ns long"
)
OPEN_MAX = 16  # files that a task has open at once: times may cross midnight back and forth
GROUP_BYTES = 32 << 20
TIMES = {"year": "%Y", "month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}
NULL = "__HIVE_DEFAULT_PARTITION__"
_TOKEN = re.compile(r"token([1-9])")
_ESCAPED = re.compile(r'[\x00-\x1f"#%\'*/:=?\\\x7f{\[\]^]')


@dataclass(frozen=True, slots=True)
class ExportTask:
    """One part, and how it is to be written."""

    part: Part
    number: int
    export: int
    staging: str
    settings: Settings
    max_rows: int
    max_bytes: int
    mode: Mode


def check_partition(name: str) -> None:
    """LakeError unless rows can be partitioned by these columns."""
    if name not in ("stream", "subject", *TIMES) and not _TOKEN.fullmatch(name):
        raise LakeError(
            f"partition_by {name!r}: there are stream, {', '.join(TIMES)}, subject, and token1 to token9 of the subject"
        )


def write_task(task: ExportTask) -> Iterator[pa.RecordBatch]:
    """Write a part and yield one batch that lists its files."""
    import pyarrow as pa

    with as_one_line():
        writer = _PartWriter(task)
        try:
            for batch in read_part(task.part, headers=cast(HeadersMode, task.settings.headers), mode=task.mode):
                for folder, rows in _split(batch, task.settings.partition_by):
                    writer.add(folder, rows)
            files = writer.close()
        except BaseException:
            writer.abandon()
            raise
    columns = {name: [getattr(file, name) for file in files] for name in LakeFile.__dataclass_fields__}
    kinds = [pa.string(), pa.string(), *[pa.int64()] * 6]
    yield pa.RecordBatch.from_arrays(
        [pa.array(columns[name], kind) for name, kind in zip(columns, kinds, strict=True)], names=list(columns)
    )


# Partitions.


def _split(batch: pa.RecordBatch, partition_by: tuple[str, ...]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The path and the rows of each partition, in the order of the rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    paths: Any = None
    for name in partition_by:
        values, indices = _values(batch, name)
        segments = pa.array([f"{name}={escape(value)}" for value in values]).take(indices)
        paths = segments if paths is None else pc.binary_join_element_wise(paths, segments, "/")
    if paths is None:
        yield "", batch
        return
    found = paths.unique().to_pylist()
    for path in found:
        yield path, batch if len(found) == 1 else batch.filter(pc.equal(paths, path))


def _values(batch: pa.RecordBatch, name: str) -> tuple[list[str | None], Any]:
    """The distinct values of a partition column, and which of them each row has."""
    import pyarrow.compute as pc

    if name in TIMES:
        floored = pc.floor_temporal(batch.column("ts"), unit=name).dictionary_encode()
        times: list[datetime] = floored.dictionary.to_pylist()
        return [time.strftime(TIMES[name]) for time in times], floored.indices
    encoded = batch.column("stream" if name == "stream" else "subject").dictionary_encode()
    values: list[str | None] = encoded.dictionary.to_pylist()
    found = _TOKEN.fullmatch(name)
    if found:
        at = int(found[1]) - 1
        tokens = [str(value).split(".") for value in values]
        values = [token[at] if at < len(token) else None for token in tokens]
    return values, encoded.indices


def escape(value: str | None) -> str:
    """A value as part of a path, as Hive and Spark write it."""
    if value is None or value == "":
        return NULL
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", value)


# Files.


class _PartWriter:
    """The open files of a task, one for each partition."""

    def __init__(self, task: ExportTask) -> None:
        self.task = task
        self.schema = part_schema(None, cast(HeadersMode, task.settings.headers), "fail")
        self.token = os.urandom(4).hex()  # a retry of this task must not reuse the names
        self.open: dict[str, _File] = {}
        self.done: list[LakeFile] = []
        self.count = 0

    def add(self, folder: str, rows: pa.RecordBatch) -> None:
        task = self.task
        at = 0
        while at < rows.num_rows:
            file = self.open.pop(folder, None) or self._begin(folder)
            self.open[folder] = file  # the most recently used is last
            left = task.max_rows - file.rows
            if left <= 0 or not file.has_room(task.max_bytes):
                self._end(folder)
                continue
            most = max(1, rows.num_rows * file.group_bytes // max(rows.nbytes, 1))
            taken = rows.slice(at, min(left, most, rows.num_rows - at))
            if file.rows and not file.has_room(task.max_bytes, taken.nbytes):
                self._end(folder)
                continue
            file.add(taken)
            at += taken.num_rows

    def close(self) -> list[LakeFile]:
        for folder in list(self.open):
            self._end(folder)
        return self.done

    def abandon(self) -> None:
        for file in self.open.values():
            file.writer.close()
            file.sink.close()

    def _begin(self, folder: str) -> _File:
        if len(self.open) >= OPEN_MAX:
            self._end(next(iter(self.open)))
        name = f"{self.task.export:08}-{self.task.number:05}-{self.token}-{self.count:03}.parquet"
        self.count += 1
        path = os.path.join(folder, name)
        return _File(self.task, path, self.schema)

    def _end(self, folder: str) -> None:
        self.done.append(self.open.pop(folder).close())


class _File:
    """One Parquet file being written: rows are buffered until they fill a row group."""

    def __init__(self, task: ExportTask, path: str, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self.path, self.schema, self.stream = path, schema, task.part.stream
        self.target = os.path.join(task.staging, path)
        os.makedirs(os.path.dirname(self.target), exist_ok=True)
        self.sink = open(self.target, "wb")  # noqa: SIM115  closed by `close`
        self.writer: pq.ParquetWriter = pq.ParquetWriter(
            self.sink,
            schema,
            compression=task.settings.compression,
            # Payloads seldom repeat: a dictionary would cost time and save nothing.
            use_dictionary=["stream", "subject", "headers.key_value.key", "headers.key_value.value.list.element"],
            column_encoding=dict.fromkeys(("seq", "ts", "ts_ns"), "DELTA_BINARY_PACKED"),
            write_statistics=["stream", "seq", "ts", "ts_ns", "subject"],
        )
        self.group_bytes = max(1, min(GROUP_BYTES, task.max_bytes // 4))
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = self.rows = 0
        self.first_seq = self.last_seq = self.min_ts = self.max_ts = 0

    def has_room(self, max_bytes: int, size: int = 0) -> bool:
        """Whether `size` bytes and the footer fit, assuming that nothing compresses."""
        return self.sink.tell() + self.waiting_bytes + size + FOOTER_BYTES <= max_bytes or not self.rows

    def add(self, rows: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        seqs, times = rows.column("seq"), pc.min_max(rows.column("ts_ns")).as_py()
        if not self.rows:
            self.first_seq, self.min_ts, self.max_ts = seqs[0].as_py(), times["min"], times["max"]
        self.last_seq = seqs[-1].as_py()
        self.min_ts, self.max_ts = min(self.min_ts, times["min"]), max(self.max_ts, times["max"])
        self.rows += rows.num_rows
        self.waiting.append(rows)
        self.waiting_bytes += rows.nbytes
        if self.waiting_bytes >= self.group_bytes:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self.waiting:
            table = pa.Table.from_batches(self.waiting, self.schema)
            self.writer.write_table(table, row_group_size=table.num_rows)
            self.waiting, self.waiting_bytes = [], 0

    def close(self) -> LakeFile:
        """Finish the file and sync it: its manifest may depend on it."""
        self._flush()
        self.writer.close()
        self.sink.flush()
        os.fsync(self.sink.fileno())
        size = self.sink.tell()
        self.sink.close()
        return LakeFile(
            self.path, self.stream, self.rows, size, self.first_seq, self.last_seq, self.min_ts, self.max_ts
        )


FOOTER_BYTES = 4096
