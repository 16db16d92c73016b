"""Shared by the Spark benches: a fresh JVM in a child process, clocks for all its processes, prepared batches."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness import ROOT, Bench

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource


def in_spark(bench: Bench, work: Callable[..., dict[str, Any]], *, cores: int = 2, **given: Any) -> dict[str, Any]:
    """What `work(spark, **given)` answers in a fresh process with a fresh JVM on `cores` cores."""
    answer = bench.work / "answer.json"
    answer.unlink(missing_ok=True)
    asked = {"module": work.__module__, "name": work.__name__, "cores": cores, "given": given, "answer": str(answer)}
    done = subprocess.run(
        [sys.executable, "-m", "bench.spark", json.dumps(asked)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode or not answer.exists():
        raise RuntimeError(f"{work.__name__} in Spark:\n{done.stderr[-6000:]}")
    found: dict[str, Any] = json.loads(answer.read_text())
    return found


def main() -> None:
    """The child: pinned to its cores, so that one core means one core for the JVM and the workers together."""
    asked = json.loads(sys.argv[1])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: asked["cores"]])
    import penstock.spark

    work = getattr(importlib.import_module(asked["module"]), asked["name"])
    began = time.perf_counter()
    spark = penstock.spark.session(spark_master=f"local[{asked['cores']}]", spark_driver_memory="3g")
    try:
        answer = {"session_seconds": time.perf_counter() - began, **work(spark, **asked["given"])}
    finally:
        spark.stop()
    Path(asked["answer"]).write_text(json.dumps(answer))


# Clocks.


class Stopwatch:
    """Wall seconds, and the CPU seconds of this process and all below it: driver, JVM, workers, a server if named."""

    def __init__(self, *others: int) -> None:
        self.others = others
        self._cpu, self._start = self._cpu_now(), time.perf_counter()

    def read(self) -> tuple[float, float]:
        seconds = time.perf_counter() - self._start
        return seconds, self._cpu_now() - self._cpu

    def _cpu_now(self) -> float:
        import psutil

        total = 0.0
        for pid in (os.getpid(), *self.others):
            process = psutil.Process(pid)
            for one in (process, *process.children(recursive=True)):
                try:
                    total += sum(one.cpu_times()[:4])  # own, and of children that have ended and were waited for
                except psutil.NoSuchProcess:
                    continue  # its parent has its seconds now
        return total


def seconds_to_noop(frame: DataFrame) -> float:
    """How long it takes until every row has gone through the JVM to a sink that drops it."""
    start = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start


def best_of(rounds: int, sides: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Seconds of each side, the best of its rounds; sides take turns."""
    took: dict[str, float] = {}
    for _ in range(rounds):
        for name, measure in sides.items():
            took[name] = min(took.get(name, 1e9), measure())
    return took


# Sources to compare with.


def read_store(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    return spark.read.format("penstock").options(**options).load(path)


def ready_made(spark: SparkSession, path: str, columns: Sequence[str] | None = None) -> DataFrame:
    """As many rows as the store's, in the same batches and tasks, but from one prepared batch per task: the time is
    Spark's own overhead."""
    from penstock.spark.source.source import PenstockSource

    spark.dataSource.register(_ready_made_source(PenstockSource))
    options = {} if columns is None else {"columns": ",".join(columns)}
    return spark.read.format("ready_made").options(**options).load(path)


def _ready_made_source(base: type[DataSource]) -> type[DataSource]:
    from pyspark.sql.datasource import DataSourceReader, InputPartition

    class Ready(DataSourceReader):
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def partitions(self) -> Sequence[InputPartition]:
            found: Sequence[InputPartition] = self.inner.partitions()
            return found

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            batch = next(self.inner.read(partition))
            left = partition.value.high - partition.value.low
            while left > 0:
                yield batch.slice(0, left)
                left -= batch.num_rows

    class ReadyMade(base):  # type: ignore[misc, valid-type]
        @classmethod
        def name(cls) -> str:
            return "ready_made"

        def reader(self, schema: Any) -> DataSourceReader:
            return Ready(base(self.options).reader(schema))

    return ReadyMade


def scan_only(spark: SparkSession, path: str, cores: int) -> list[dict[str, Any]]:
    """Only the scan in the workers: two tasks on two cores at once, each returning one row of clocks."""
    from penstock.spark.source.source import PenstockSource

    spark.dataSource.register(_scan_only_source(PenstockSource, sorted(os.sched_getaffinity(0))[:cores]))
    halves = spark.read.format("scan_only").option("maxPartitionBytes", "64g").option("minPartitions", 2)
    return [row.asDict() for row in halves.load(path).collect()]


def _scan_only_source(base: type[DataSource], cores: list[int]) -> type[DataSource]:
    from pyspark.sql.datasource import DataSourceReader, InputPartition

    class Scans(DataSourceReader):
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def partitions(self) -> Sequence[InputPartition]:
            found: Sequence[InputPartition] = self.inner.partitions()
            return found

        def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
            before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, cores)
            try:
                start, cpu = time.time(), time.process_time()
                count = sum(batch.num_rows for batch in self.inner.read(partition))
                clocks = count, start, time.time(), time.process_time() - cpu
            finally:
                os.sched_setaffinity(0, before)  # the worker goes on with other tasks
            yield clocks

    class ScanOnly(base):  # type: ignore[misc, valid-type]
        @classmethod
        def name(cls) -> str:
            return "scan_only"

        def schema(self) -> str:
            return "count long, start double, stop double, cpu double"

        def reader(self, schema: Any) -> DataSourceReader:
            from pyspark.sql.pandas.types import from_arrow_schema

            from penstock.scan.schema import schema as all_columns

            return Scans(base(self.options).reader(from_arrow_schema(all_columns())))

    return ScanOnly


if __name__ == "__main__":
    main()
