"""How fast does Spark write rows into a stream, through finished blocks that the store adopts?"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bench.harness import Bench
from bench.spark import best_of, in_spark, read_store

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource

ROUNDS = 6
COLUMNS = ("subject", "payload")


def run(bench: Bench) -> str:
    count = bench.spark_count
    found = in_spark(bench, measure, path=str(bench.spark_rows()), out=str(bench.place("write")))
    assert found["written"] == count, f"{found['written']} rows written of {count}"
    rates = {name: count / took / 1e6 for name, took in found["took"].items()}
    bench.add("Spark writes into blocks", rates["penstock"], "M rows/s", at_least=0.8)
    bench.add("  a writer that only counts: Spark's part", rates["counted"], "M rows/s")
    bench.add("  Spark's own Parquet writer", rates["parquet"], "M rows/s")
    bench.add("  blocks, of the writer that counts", rates["penstock"] / rates["counted"], "x")
    return "headers and times from columns, message ids, streams with limits; the rows come from cached Parquet"


def measure(spark: SparkSession, path: str, out: str) -> dict[str, Any]:
    """The same rows from Parquet into blocks, into nothing, and into Parquet."""
    read_store(spark, path, columns=",".join(COLUMNS)).write.parquet(f"{out}/rows")
    rows = spark.read.parquet(f"{out}/rows")
    spark.dataSource.register(_counting_source())
    took = best_of(
        ROUNDS,
        {
            "penstock": lambda: _write(rows, f"{out}/store"),
            "counted": lambda: _seconds(lambda: rows.write.format("counting").mode("append").save()),
            "parquet": lambda: _write_parquet(rows, f"{out}/parquet"),
        },
    )
    return {"took": took, "written": read_store(spark, f"{out}/store", columns="seq").count()}


def _write(rows: DataFrame, store: str) -> float:
    _clear(store)
    written = rows.write.format("penstock").option("path", store).option("stream", "W")
    return _seconds(lambda: written.option("createSubjects", "orders.>").mode("append").save())


def _write_parquet(rows: DataFrame, target: str) -> float:
    _clear(target)
    return _seconds(lambda: rows.write.parquet(target))


def _clear(target: str) -> None:
    """Each round in a new place, and no round in memory that none had before it."""
    shutil.rmtree(target, ignore_errors=True)


def _seconds(action: Any) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _counting_source() -> type[DataSource]:
    from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

    class Counter(DataSourceArrowWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            assert sum(batch.num_rows for batch in iterator) >= 0
            return WriterCommitMessage()

    class Counting(DataSource):
        @classmethod
        def name(cls) -> str:
            return "counting"

        def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
            return Counter()

    return Counting
