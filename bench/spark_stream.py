"""A backlog of 2 M messages through the first streaming query of a fresh JVM: ours, and pull consumers of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.connector import NatsServer, connector_source
from bench.harness import Bench, warm_cache
from bench.spark import Stopwatch, in_spark
from penstock.spark.session import archive_path, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINKS = (("noop", "no-op sink", 4.0, 33, 53), ("parquet", "Parquet", 3.5, 41, 69))


def run(bench: Bench) -> str:
    path, count = bench.spark_rows(), bench.spark_count
    warm_cache(path)
    with NatsServer(bench.place("nats")) as server:
        server.fill(count)
        for sink, said, at_least, connector_s, connector_cpu in SINKS:
            ours = in_spark(bench, measure, sink=sink, out=str(bench.work / f"ours-{sink}"), path=str(path))
            server.new_consumer()
            theirs = in_spark(
                bench, measure, sink=sink, out=str(bench.work / f"theirs-{sink}"), url=server.url, server=server.pid
            )
            assert ours["rows"] == count, f"{ours['rows']} rows of {count}"
            bench.add(f"streaming, {said}: ours", ours["seconds"], "s")
            bench.add(f"  the stand-in (nats-server {server.version})", theirs["seconds"], "s")
            if theirs["rows"] != count:
                bench.add("  the stand-in gave only", theirs["rows"], "rows")
            bench.add(f"  the connector itself, elsewhere, {said}", connector_s, "s")
            bench.add(
                f"streaming, {said}: of the stand-in's rate",
                theirs["seconds"] / ours["seconds"],
                "x",
                at_least=at_least,
            )
            bench.add("  CPU seconds: ours", ours["cpu"], "s")
            bench.add("  CPU seconds: the stand-in, its server's included", theirs["cpu"], "s")
            bench.add(f"  CPU seconds: the connector itself, elsewhere, {said}", connector_cpu, "s")
            bench.add(
                f"streaming, {said}: CPU seconds, of the stand-in's", ours["cpu"] / theirs["cpu"], "x", at_most=1 / 3,
                target="<= 1/3",
            )  # fmt: skip
    is_warm = archive_path(f"{find_java()}/bin/java").exists()
    archive = "with" if is_warm else "without"
    return (
        f"the JVM's start and the session ({archive} a class archive: docs/spark.md); a backlog of a server that holds "
        "it in its own files is not the same path: ours needs that disk"
    )


def measure(
    spark: SparkSession, sink: str, out: str, path: str = "", url: str = "", server: int | None = None
) -> dict[str, Any]:
    """The first query of this JVM, from start() until it has ended with all rows through."""
    if path:
        frame = spark.readStream.format("penstock").load(path)
    else:
        spark.dataSource.register(connector_source())
        frame = spark.readStream.format("nats").option("url", url).load()
    written = frame.writeStream.format(sink).option("checkpointLocation", out + "-checkpoint")
    if sink != "noop":
        written = written.option("path", out)
    watch = Stopwatch(*([server] if server is not None else []))
    query = written.trigger(availableNow=True).start()
    query.awaitTermination()
    seconds, cpu = watch.read()
    rows = sum(int(progress["numInputRows"]) for progress in query.recentProgress)
    return {"seconds": seconds, "cpu": cpu, "rows": rows, "batches": len(query.recentProgress)}
