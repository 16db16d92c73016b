"""Does a table that is read from its lake cost more than Spark's own scan of the same Parquet files?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from bench.harness import Bench
from bench.spark import best_of, in_spark, read_store, seconds_to_noop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 5


def run(bench: Bench) -> str:
    count = bench.spark_count
    found = in_spark(bench, measure, path=str(bench.spark_rows()), lake=str(bench.work / "lake"))
    assert found["rows"] == count, f"{found['rows']} rows of {count}"
    rates = {name: count / took / 1e6 for name, took in found["took"].items()}
    bench.add("lake-backed table, exported stream", rates["table"], "M rows/s")
    bench.add("  Spark reading the same Parquet", rates["parquet"], "M rows/s")
    bench.add("lake-backed table, of the same Parquet", rates["table"] / rates["parquet"], "x", at_least=0.8)
    bench.add("  the same from the blocks", rates["blocks"], "M rows/s")
    bench.add("  the export", count / found["export"] / 1e6, "M rows/s")
    return "a tail that is not exported, deletes since the export, object storage"


def measure(spark: SparkSession, path: str, lake: str) -> dict[str, Any]:
    """Export everything once, then read it three ways; opening the table is on the clock for all."""
    import penstock.spark
    from penstock.spark.pipelines import lake as pipeline

    start = time.perf_counter()
    pipeline.run(spark, path, lake)
    export = time.perf_counter() - start
    files = penstock.spark.table(spark, path, lake=lake).inputFiles()

    def read_table() -> float:
        start = time.perf_counter()
        seconds_to_noop(penstock.spark.table(spark, path, lake=lake))
        return time.perf_counter() - start

    def read_parquet() -> float:
        start = time.perf_counter()
        seconds_to_noop(spark.read.parquet(*files))
        return time.perf_counter() - start

    took = best_of(ROUNDS, {"table": read_table, "parquet": read_parquet})
    took |= best_of(2, {"blocks": lambda: seconds_to_noop(read_store(spark, path))})
    return {"took": took, "export": export, "rows": penstock.spark.table(spark, path, lake=lake).count()}
