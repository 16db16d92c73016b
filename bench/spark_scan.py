"""How fast is a stream as a Spark table: all of it, two columns, a slice of time, a count, on one core and on two?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import penstock
from bench.harness import Bench, Messages, subjects, warm_cache
from bench.spark import best_of, in_spark, read_store, ready_made, scan_only, seconds_to_noop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS = 8  # the JVM compiles what is warm over the first ones
SLICE = 0.05


def run(bench: Bench) -> str:
    path, large, small = str(bench.spark_rows()), str(bench.few_subjects()), str(_small(bench))
    count, large_count = bench.spark_count, bench.message_count
    for one in (bench.spark_rows(), bench.few_subjects()):
        warm_cache(one)
    two = in_spark(bench, measure, path=path, large=large, small=small)
    one_core = in_spark(bench, measure_cores, cores=1, path=path)
    rates = {name: count / took / 1e6 for name, took in two["took"].items()}
    ready = rates["ready"]
    bench.add("Spark scan, all columns, no-op sink", rates["all"], "M rows/s", at_least=1.3)
    bench.add("  ready-made batches: the JVM's part", ready, "M rows/s")
    bench.add("  all columns, of ready-made batches", rates["all"] / ready, "x", at_least=0.85)
    bench.add("Spark scan, seq and subject", rates["two"], "M rows/s")
    bench.add("  seq and subject, of all columns", rates["two"] / rates["all"], "x", at_least=1.5)
    bench.add("  ready-made batches of seq and subject", rates["ready two"], "M rows/s")
    opened, blocks = two["opened"], two["blocks"]
    bench.add(f"5 % of the time: of {blocks} blocks opened", 100 * opened / blocks, "%", at_most=6)
    bench.add("5 % of the time, of the full scan", two["full"] / two["slice"], "x", at_least=5)
    bench.add(f"  rows of the slice, of {large_count:,}", two["slice_rows"], "rows")
    bench.add(f"metadata count of {large_count:,}, warm", two["count"], "s", at_most=1)
    bench.add("second small query of a session", two["second"], "s", at_most=2)
    bench.add("  the first", two["first"], "s")
    bench.add("one core to two, all columns", one_core["all"] / two["took"]["all"], "x", at_least=1.3)
    bench.add("  scan in the workers alone", two["scan"]["one"] / two["scan"]["two"], "x", at_least=1.8)
    bench.add("  scan in the workers alone, two cores", large_count / two["scan"]["two"] / 1e6, "M rows/s")
    assert two["count_found"] == large_count, "a count that is not the number of messages"
    return "headers (there are none), a cluster, files that are not in the page cache; the JVM's start (7 to 9 s)"


def _small(bench: Bench) -> Any:
    path = bench.work / "small"
    if not path.exists():
        with penstock.open(path, durability="os") as db:
            db.stream("S", subjects=["orders.>"]).publish_many(Messages(subjects(100)).batch(1000))
    return path


# In the child.


def measure(spark: SparkSession, path: str, large: str, small: str) -> dict[str, Any]:
    """Two cores: everything but the comparison with one."""
    first = _seconds(lambda: read_store(spark, small).count())
    second = _seconds(lambda: read_store(spark, small).groupBy("subject").count().collect())
    everything, two = read_store(spark, path), read_store(spark, path, columns="seq,subject")
    ready, ready_two = ready_made(spark, path), ready_made(spark, path, ["seq", "subject"])
    took = best_of(
        ROUNDS,
        {
            "all": lambda: seconds_to_noop(everything),
            "ready": lambda: seconds_to_noop(ready),
            "two": lambda: seconds_to_noop(two),
            "ready two": lambda: seconds_to_noop(ready_two),
        },
    )
    return {
        "first": first,
        "second": second,
        "took": took,
        "scan": best_of(
            ROUNDS // 2, {"one": lambda: _scan_seconds(spark, large, 1), "two": lambda: _scan_seconds(spark, large, 2)}
        ),
        **_slice(spark, large),
        **_count(spark, large),
    }


def measure_cores(spark: SparkSession, path: str) -> dict[str, Any]:
    """One core for the JVM and the workers together."""
    everything = read_store(spark, path)
    return best_of(ROUNDS, {"all": lambda: seconds_to_noop(everything)})


def _seconds(action: Any) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _scan_seconds(spark: SparkSession, path: str, cores: int) -> float:
    """From the first task's start to the last one's end."""
    tasks = scan_only(spark, path, cores)
    return max(task["stop"] for task in tasks) - min(task["start"] for task in tasks)


def _slice(spark: SparkSession, path: str) -> dict[str, Any]:
    from penstock.scan.plan import open_views, plan

    view = open_views(path)[0]
    first, last = min(b.time_min for b in view.blocks), max(b.time_max for b in view.blocks)
    low = first + int((last - first) * 0.4)
    high = low + int((last - first) * SLICE)
    low, high = low // 1000 * 1000, high // 1000 * 1000

    def chosen() -> DataFrame:
        return read_store(spark, path, pushdown="true").where(
            f"ts >= timestamp_micros({low // 1000}) and ts < timestamp_micros({high // 1000})"
        )

    took = best_of(2, {"slice": lambda: seconds_to_noop(chosen())})
    full = best_of(1, {"full": lambda: seconds_to_noop(read_store(spark, path))})["full"]
    parts = plan(view, since=low, until=high)
    return {
        "slice": took["slice"],
        "full": full,
        "slice_rows": chosen().count(),
        "opened": len({block.block_id for part in parts for block in part.blocks}),
        "blocks": len(view.blocks),
    }


def _count(spark: SparkSession, path: str) -> dict[str, Any]:
    found, took = 0, 1e9
    for _ in range(3):
        start = time.perf_counter()
        found = read_store(spark, path, table="streams").agg({"messages": "sum"}).collect()[0][0]
        took = min(took, time.perf_counter() - start)
    return {"count": took, "count_found": found}
