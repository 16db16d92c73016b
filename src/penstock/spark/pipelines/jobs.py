"""jobs: work divided into picklable parts, one Spark task for each, and its progress.

A part is sent only to its own task, and the division happens where Spark plans, through Spark Connect too.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.spark.errors import as_one_line

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

OnProgress = Callable[[int, int], None]
POLL_S = 0.25


def cores_of(spark: SparkSession) -> int:
    """How many tasks run at once; two if it is unknown, as through Spark Connect."""
    context = getattr(spark, "_sc", None)
    return max(2, context.defaultParallelism) if context is not None else 2


def job_frame(
    spark: SparkSession,
    name: str,
    schema: str,
    plan: Callable[[], Sequence[Any]],
    work: Callable[[Any], Iterator[pa.RecordBatch]],
) -> DataFrame:
    """The rows that `work` returns for each part of `plan`; both are module-level functions, or partials of such."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class JobReader(DataSourceReader):
        def partitions(self) -> Sequence[InputPartition]:
            with as_one_line():
                return [InputPartition(part) for part in plan()]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            if partition is not None and partition.value is not None:  # without partitions Spark still runs one task
                with as_one_line():
                    yield from work(partition.value)

    class Job(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"penstock_{name}"

        def schema(self) -> str:
            return schema

        def reader(self, schema: Any) -> DataSourceReader:
            return JobReader()

    spark.dataSource.register(Job)
    return spark.read.format(Job.name()).load()


def small_frame(spark: SparkSession, schema: str, rows: Iterable[Sequence[Any]]) -> DataFrame:
    """Rows in this process as a DataFrame that can be read without a Python worker."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    fields = StructType.fromDDL(schema)
    assert isinstance(fields, StructType)
    arrow = to_arrow_schema(fields, timezone="UTC")
    columns = list(zip(*rows, strict=True)) or [()] * len(arrow)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, arrow, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=arrow), schema=schema)


@contextmanager
def watched(spark: SparkSession, on_progress: OnProgress | None) -> Iterator[None]:
    """While the block runs, call `on_progress` with the finished and total tasks of its Spark jobs."""
    context = getattr(spark, "_sc", None)
    if on_progress is None or context is None:  # Spark Connect has no status tracker
        yield
        return
    group, is_over = f"penstock-{uuid.uuid4()}", threading.Event()
    tracker = context.statusTracker()

    def look() -> None:
        done = total = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                found = tracker.getStageInfo(stage)
                if found is not None:
                    done, total = done + found.numCompletedTasks, total + found.numTasks
        if total:
            on_progress(done, total)

    def keep_looking() -> None:
        while not is_over.wait(POLL_S):
            look()

    watcher = threading.Thread(target=keep_looking, name="penstock-progress", daemon=True)
    context.setJobGroup(group, "penstock")
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
        look()
        context.setLocalProperty("spark.jobGroup.id", None)
        context.setLocalProperty("spark.job.description", None)
