"""What a store knows of its blocks, subjects and streams without reading messages, as Spark tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.spark.options import ReadOptions, Table

if TYPE_CHECKING:
    import pyarrow as pa

DDL: dict[Table, str] = {}


def table_ddl(table: Table) -> str:
    return DDL[table]


class TableReader(DataSourceReader):
    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from ()
