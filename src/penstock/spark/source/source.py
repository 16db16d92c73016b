"""PenstockSource: `format("penstock")`, a store's streams as a Spark table. Options: docs/spark.md.

Spark creates a new one in a separate process for each step: to get the schema, to plan, and in every task. So it holds
only its options; everything else that a task needs is in its partition.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from penstock.scan.part import HeadersMode, Mode, Part, part_columns, part_schema, read_part
from penstock.scan.plan import open_folders, plan, wanted_blocks
from penstock.spark.errors import PenstockSparkError, as_one_line
from penstock.spark.source.filters import Pushed, push
from penstock.spark.source.options import ReadOptions
from penstock.spark.source.tasks import settle_worker, task_bytes
from penstock.store.open.stream_folders import choose_streams

if TYPE_CHECKING:
    import pyarrow as pa

DDL = {
    "stream": "STRING",
    "seq": "BIGINT",
    "ts": "TIMESTAMP",
    "ts_ns": "BIGINT",
    "subject": "STRING",
    "headers": "MAP<STRING, ARRAY<STRING>>",
    "payload": "BINARY",
    "damage": "STRING",
}


class PenstockSource(DataSource):
    """The streams of a store; see docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def read_options(self) -> ReadOptions:
        return ReadOptions.parse(dict(self.options))

    def schema(self) -> str:
        with as_one_line():
            options = self.read_options()
            if options.table != "messages":
                from penstock.spark.source.tables import table_ddl

                return table_ddl(options.table)
            return messages_ddl(part_columns(options.columns, options.headers), options.headers, options.mode)

    def reader(self, schema: StructType) -> DataSourceReader:
        with as_one_line():
            options = self.read_options()
            if options.table != "messages":
                from penstock.spark.source.tables import TableReader

                return TableReader(schema, options)
            reader = PushingReader if options.pushdown else PenstockReader
            return reader(schema, options)

    def streamReader(self, schema: StructType) -> Any:
        from penstock.spark.source.stream_reader import PenstockStreamReader

        with as_one_line():
            return PenstockStreamReader(schema, self.read_options())

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from penstock.spark.sink.writer import PenstockWriter

        with as_one_line():
            return PenstockWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        from penstock.spark.sink.writer import PenstockStreamWriter

        with as_one_line():
            return PenstockStreamWriter(self.options, schema, overwrite)


def messages_ddl(columns: Sequence[str], headers: HeadersMode, mode: Mode) -> str:
    """The columns as Spark's DDL."""
    kinds = DDL | ({"headers": "BINARY"} if headers == "raw" else {})
    names = [*columns, "damage"] if mode == "quarantine" else columns
    return ", ".join(f"{name} {kinds[name]}" for name in names)


class RowFormat:
    """The columns that a query selects, in its order; checked against those of a stream."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self.arrow = to_arrow_schema(schema, timezone="UTC")
        self.headers, self.mode = options.headers, options.mode
        known = part_schema(None, options.headers, options.mode)
        expected = messages_ddl(part_columns(None, options.headers), options.headers, options.mode)
        wrong = [
            field.name
            for field in self.arrow
            if field.name not in known.names or known.field(field.name).type != field.type
        ]
        if wrong or len(set(self.arrow.names)) < len(self.arrow.names):
            asked = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
            named = f"column {wrong[0]} does not fit" if wrong else "a column is named twice"
            raise PenstockSparkError(
                f"the schema does not fit format penstock: {named}. Choose from: {expected}. The schema was: {asked}"
            )
        self.columns = tuple(name for name in self.arrow.names if name != "damage")
        self.is_as_read = part_schema(self.columns, self.headers, self.mode).equals(self.arrow)

    def shape(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of the scan with the query's columns in its order."""
        if self.is_as_read:
            return batch
        import pyarrow as pa

        if not self.arrow.names:
            return batch.select([])
        return pa.RecordBatch.from_arrays([batch.column(name) for name in self.arrow.names], schema=self.arrow)


class PenstockReader(DataSourceReader):
    """A batch read: planned once, then read part by part in the tasks."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self.options = options
        self.format = RowFormat(schema, options)
        self.pushed = Pushed(
            options.starting_seq, options.ending_seq, options.starting_time, options.ending_time, options.subjects
        )

    def partitions(self) -> Sequence[InputPartition]:
        with as_one_line():
            return [InputPartition(part) for part in plan_read(self.options, self.pushed)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if partition is None or partition.value is None:  # without partitions Spark still runs one task
            return
        settle_worker()
        with as_one_line():
            yield from read_rows(partition.value, self.options, self.pushed, self.format)


class PushingReader(PenstockReader):
    """A batch read with filter pushdown; Spark rejects the method unless its conf is on.

    Spark 4.3 keeps the plan made under these filters with the loaded DataFrame, and uses it again for later queries
    with other filters or with none. So this suits only a DataFrame that is used once, and must be enabled explicitly.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        with as_one_line():
            left = push(filters, self.pushed)
        # Rows that represent damage have no time and no subject: only Spark can filter them.
        return filters if self.options.mode == "quarantine" else left


def plan_read(options: ReadOptions, pushed: Pushed) -> list[Part]:
    """The parts of all streams of all stores in the read."""
    asked: dict[str, Any] = {
        "subjects": pushed.scan_subjects,
        "start_seq": pushed.start_seq,
        "stop_seq": pushed.stop_seq,
        "since": pushed.since,
        "until": pushed.until,
    }
    views = []
    for path in options.paths:
        folders = choose_streams(os.path.abspath(path), options.streams, options.account)
        views += open_folders(one for one in folders if pushed.streams is None or one.label in pushed.streams)
    if pushed.is_nothing:
        return []
    total = sum(size for view in views for _, _, _, size in wanted_blocks(view, **asked))
    return [part for view in views for part in plan(view, **asked, max_bytes=task_bytes(total, options))]


def read_rows(part: Part, options: ReadOptions, pushed: Pushed, rows: RowFormat) -> Iterator[pa.RecordBatch]:
    """The batches of a part, with the query's columns."""
    prefixes = pushed.left_prefixes
    columns = rows.columns if not prefixes or "subject" in rows.columns else (*rows.columns, "subject")
    found = read_part(
        part,
        subjects=pushed.scan_subjects,
        since=pushed.since,
        until=pushed.until,
        columns=columns,
        headers=options.headers,
        mode=options.mode,
    )
    for batch in found:
        kept = _with_prefixes(batch, prefixes) if prefixes else batch
        if kept.num_rows:
            yield rows.shape(kept)


def _with_prefixes(batch: pa.RecordBatch, prefixes: tuple[str, ...]) -> pa.RecordBatch:
    import pyarrow.compute as pc

    for prefix in prefixes:
        batch = batch.filter(pc.starts_with(batch.column("subject"), prefix))
    return batch
