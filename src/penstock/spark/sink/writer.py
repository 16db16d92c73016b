"""PenstockWriter: writes a DataFrame, batch or streaming, into a stream exactly once. Protocol: store/open/adoption.py.

A task stages finished blocks beside the stream and returns their place; on commit the driver asks the store's writer to
adopt them. Nothing else leaves a trace: a task that is retried, or runs twice at once, stages under another name, and
stages that no commit names are removed with the job.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, LongType, MapType, StringType, StructType, TimestampType

from penstock.errors import PenstockError
from penstock.spark.errors import PenstockSparkError, as_one_line
from penstock.spark.sink.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.store.write.batch import Batch


NOTHING = {"revision": -1, "messages": 0, "duplicates": 0, "has_times": False, "start_seq": 1}
"""The stage of a task whose batch is adopted already; -1 is no stream's revision, should the stream be recreated."""


@dataclass
class Staged(WriterCommitMessage):
    """The stage that a task has written."""

    job: str
    info: dict[str, Any] = field(default_factory=dict)
    query: str = ""


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """Which columns of a DataFrame make up its messages."""

    subject: str | None
    payload: str
    headers: str | None
    time: str | None
    is_time_ns: bool
    literal: str

    @staticmethod
    def choose(schema: StructType, options: WriteOptions) -> MessageColumns:
        """The columns named by the options, or else by the table's own names; PenstockSparkError if a type is wrong."""
        kinds = {one.name: one.dataType for one in schema.fields}
        subject = None if options.literal else _column(kinds, options.subject or "subject", (StringType, BinaryType))
        payload = _column(kinds, options.payload or "payload", (BinaryType, StringType))
        headers = options.headers or ("headers" if "headers" in kinds else "")
        time = options.time
        if headers:
            _column(kinds, headers, (MapType, BinaryType))
        if time:
            _column(kinds, time, (TimestampType, LongType))
        is_time_ns = bool(time) and isinstance(kinds[time], LongType)
        return MessageColumns(subject, payload, headers or None, time or None, is_time_ns, options.literal)

    def batch(self, rows: pa.RecordBatch) -> Batch:
        """The messages of a record batch."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from penstock.scan.arrow_batch import batch_of

        subjects = pa.repeat(self.literal, rows.num_rows) if self.subject is None else rows.column(self.subject)
        times = rows.column(self.time) if self.time else None
        if times is not None and not self.is_time_ns:
            times = pc.multiply(times.cast(pa.timestamp("us")).cast(pa.int64()), 1000)
        headers = rows.column(self.headers) if self.headers else None
        return batch_of(subjects, rows.column(self.payload), headers, times)


def _column(kinds: Mapping[str, DataType], name: str, wanted: tuple[type[DataType], ...]) -> str:
    fits = " or ".join(kind().simpleString() if kind is not MapType else "map<string,array<string>>" for kind in wanted)
    if name not in kinds:
        raise PenstockSparkError(
            f"no column {name!r} to write ({fits}); the DataFrame has: {', '.join(kinds)}. "
            "Name another with subjectColumn, payloadColumn, headersColumn or timeColumn"
        )
    if not isinstance(kinds[name], wanted):
        raise PenstockSparkError(f"column {name} is {kinds[name].simpleString()}: {fits} is wanted; cast it")
    return name


class _Writer:
    """The common part of batch and streaming writes. It is pickled into every task."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise PenstockSparkError('a stream only grows: use .mode("append"), or purge the stream first')
        self.options = WriteOptions.parse(dict(options))
        self.columns = MessageColumns.choose(schema, self.options)
        from penstock.db.adopt import root_of
        from penstock.store.open.stream_folders import place_of

        path = self.options.path
        self.account, self.stream = place_of(os.path.abspath(path), self.options.stream, self.options.account)
        self.root = root_of(path, self.stream, self.account)
        if not os.path.exists(os.path.join(self.root, "config.json")):
            self._create()

    def _create(self) -> None:
        from penstock.db.adopt import create_stream
        from penstock.store.open.marker import require_marker

        options = self.options
        if not options.create:
            if os.path.isdir(options.path):
                from penstock.base.disk import Disk

                require_marker(os.path.abspath(options.path), Disk())
            raise PenstockSparkError(
                f"there is no stream {options.stream} in {options.path}; "
                'make it first, or give its subjects: .option("createSubjects", "orders.>")'
            )
        create_stream(options.path, self.stream, {"subjects": list(options.create)}, account=self.account)

    def _stage(self, rows: Iterator[pa.RecordBatch], job: str, query: str = "") -> Staged:
        from pyspark import TaskContext

        from penstock.db.stage import Stage

        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        # A random name: the same task may run twice, even at the same time.
        stage = Stage(self.root, job, f"{part:06d}-{uuid.uuid4().hex}", has_times=self.columns.time is not None)
        try:
            for batch in rows:
                if batch.num_rows:
                    stage.append(self.columns.batch(batch))
            return Staged(job, stage.finish() | {"part": part}, query)
        except BaseException:
            stage.discard()
            raise

    def _adopt(self, messages: Sequence[WriterCommitMessage | None], query: str = "", batch: int = 0) -> None:
        from penstock.base.disk import Disk
        from penstock.db.adopt import adopt
        from penstock.format.paths import StreamPaths
        from penstock.store.open.adopt_plan import jobs_being_adopted

        staged = [one for one in messages if isinstance(one, Staged)]
        if not staged:
            return
        infos = [one.info for one in sorted(staged, key=lambda one: int(one.info["part"]))]
        options, job = self.options, staged[0].job
        try:
            adopt(options.path, self.stream, job, infos, query=query, batch=batch, account=self.account)
        except (PenstockError, OSError) as error:
            if job not in jobs_being_adopted(Disk(), StreamPaths(self.root)):
                raise
            again = "do not write it again" if query == job else "start the query again, it goes on after it"
            raise PenstockSparkError(
                f"{error}. The batch is decided all the same: whoever opens {options.path} for writing next finishes "
                f"it; {again}"
            ) from error

    def _discard(self, jobs: set[str]) -> None:
        from penstock.db.stage import discard_job

        for job in jobs:
            discard_job(self.root, job)


class PenstockWriter(_Writer, DataSourceArrowWriter):
    """A batch write: one job, one adoption."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        from penstock.store.open.adoption import JOB

        super().__init__(options, schema, overwrite)
        self.job = f"{JOB}{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with as_one_line():
            return self._stage(iterator, self.job)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with as_one_line():
            try:
                # The adoption has a name: its process may die before it answers, and then the request is repeated.
                self._adopt(messages, self.job)
            except BaseException:
                self._discard({self.job})
                raise

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with as_one_line():
            self._discard({self.job})


class PenstockStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """A streaming write: each micro-batch is adopted once, under its query's id and its number."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from pyspark import TaskContext

        with as_one_line():
            context = TaskContext.get()
            assert context is not None
            query = context.getLocalProperty("sql.streaming.queryId")
            batch = context.getLocalProperty("streaming.sql.batchId")
            if query is None or batch is None:
                raise PenstockSparkError("Spark does not say which query and batch this is: a streaming write needs it")
            job = f"{query}-{batch}"
            if self._is_adopted(query, int(batch)):
                # Nothing else would remove the files of an attempt that comes too late, or of a batch that runs again.
                for _ in iterator:
                    pass
                return Staged(job, NOTHING | {"part": context.partitionId()}, query)
            return self._stage(iterator, job, query)

    def _is_adopted(self, query: str, batch: int) -> bool:
        from penstock.base.disk import Disk
        from penstock.format.paths import StreamPaths
        from penstock.store.open.adopt_plan import read_batches

        known = read_batches(Disk(), StreamPaths(self.root)).get(query)
        return known is not None and batch <= known["batch"]

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with as_one_line():
            staged = [one for one in messages if isinstance(one, Staged)]
            if staged:
                self._adopt(messages, staged[0].query, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with as_one_line():
            self._discard({one.job for one in messages if isinstance(one, Staged)})
