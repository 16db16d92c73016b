"""The driver's side of a cluster test: reads jobs as lines of JSON, see spark_cluster.py. It runs on the wheel."""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import penstock
from penstock.spark import session


def gated(gate: dict[str, Any]) -> Any:
    """A function on payloads that returns them, but waits at one of them until the gate is open."""

    def pass_through(payload: bytes) -> bytes:
        import time
        from pathlib import Path

        if int(payload) == gate["row"]:
            folder = Path(gate["folder"])
            try:
                (folder / "first").touch(exist_ok=False)
                waits = True
            except FileExistsError:
                waits = gate["attempts"] == "all"
            if waits:
                (folder / f"at-{os.getpid()}").touch()
                while not (folder / "open").exists():
                    time.sleep(0.01)
                (folder / f"passed-{os.getpid()}").touch()
        return bytes(payload)

    return F.udf(pass_through, "binary", useArrow=False)


def through(frame: DataFrame, gates: list[dict[str, Any]]) -> DataFrame:
    for gate in gates:
        frame = frame.withColumn("payload", gated(gate)(F.col("payload")))
    return frame


def where(spark: SparkSession) -> dict[str, Any]:
    """Where the package is imported from, here and in the tasks."""

    def look(_: int) -> tuple[str, str]:
        import time

        import penstock

        time.sleep(0.2)  # so that no single executor runs all of them
        return os.environ.get("SPARK_EXECUTOR_ID", "") or str(os.getppid()), penstock.__file__

    tasks = spark.sparkContext.parallelize(range(8), 8).map(look).collect()
    return {"driver": penstock.__file__, "files": sorted({file for _, file in tasks}), "count": len(tasks)}


def read(spark: SparkSession, path: str, only: str = "true", **options: str) -> dict[str, Any]:
    """Totals of a batch read; `only` is a condition that is pushed down."""
    frame = spark.read.format("penstock").options(**options).load(path).where(only)
    parts = frame.rdd.getNumPartitions()
    found = frame.agg(F.count("*"), F.sum("seq"), F.sum(F.length("payload")), F.countDistinct("subject")).collect()[0]
    return {"parts": parts, "count": found[0], "seqs": found[1], "bytes": found[2], "subjects": found[3]}


def write(spark: SparkSession, source: str, path: str, gates: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch write of everything in another store."""
    frame = through(spark.read.format("penstock").option("minPartitions", "4").load(source), gates)
    frame.write.format("penstock").option("path", path).option("stream", "S").mode("append").save()
    return {}


def stream(
    spark: SparkSession, source: str, path: str, checkpoint: str, per_trigger: int, gates: list[dict[str, Any]]
) -> dict[str, Any]:
    """A streaming read into a streaming write, until everything in the source is copied."""
    options = {"maxMessagesPerTrigger": str(per_trigger), "minPartitions": "4"}
    frame = through(spark.readStream.format("penstock").options(**options).load(source), gates)
    writer = frame.writeStream.format("penstock").option("path", path).option("stream", "S")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    rows = [progress["numInputRows"] for progress in query.recentProgress]
    return {"batches": len([one for one in rows if one]), "rows": sum(rows)}


JOBS = {"where": where, "read": read, "write": write, "stream": stream}


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the output of Java goes to the log
    spark = session(**json.loads(sys.argv[1]))
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            told = {"ok": JOBS[asked.pop("job")](spark, **asked)}
        except Exception:  # noqa: BLE001 - every error is reported to the test
            told = {"error": traceback.format_exc()}
        print(json.dumps(told), file=out, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
