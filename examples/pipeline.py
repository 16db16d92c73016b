"""The day of orders on Spark: a table, a streaming aggregate written back, a lake, a report, a picture.

    python examples/pipeline.py [demo-out]

The second half of the demo: it reads the store that examples/demo.py has left, with no server running.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

from story import Story

import penstock
import penstock.spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDER = "order long, at long, customer long, cents long, items long, card string"
NAMES = {"eu": "Europe", "us": "Americas", "ap": "Asia-Pacific"}
COLOURS = {"eu": "#2f6fb5", "us": "#d98032", "ap": "#4a9a6b"}


def main() -> int:
    out = sys.argv[1] if len(sys.argv) > 1 else "demo-out"
    data, lake = os.path.join(out, "data"), os.path.join(out, "lake")
    if not os.path.isdir(data):
        raise SystemExit(f"{data} is not there: run examples/demo.py first")
    for leftover in (lake, os.path.join(out, "checkpoint"), os.path.join(out, "totals")):
        shutil.rmtree(leftover, ignore_errors=True)
    story = Story(9)
    story.step("Spark, found and set up: penstock.spark.session().")
    spark = penstock.spark.session(**{"spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("ERROR")
    story.took(f"Spark {spark.version} on {spark.sparkContext.master}")
    try:
        look(spark, data, story)
        aggregate(spark, data, os.path.join(out, "totals"), os.path.join(out, "checkpoint"), story)
        export(spark, data, lake, story)
        is_ok = check(spark, data, story)
        report(spark, data, os.path.join(out, "state.html"), story)
        story.step("A picture.")
        picture = os.path.join(out, "pipeline.png")
        draw(revenue(spark, data), picture)
        story.took(picture)
    finally:
        spark.stop()
    print(f"\nThe pipeline took {time.perf_counter() - story.began:.1f} s. Look at:")
    print(f"    {os.path.join(out, 'state.html')}   the report on the store")
    print(f"    {picture}   revenue by region over the day")
    print(f"    {lake}/   the same orders as Parquet")
    print(f"    penstock pipeline state {data} --report {os.path.join(out, 'again.html')}")
    return 0 if is_ok else 1


def orders_of(frame: DataFrame) -> DataFrame:
    """The orders in the payloads, with the region of the subject and the time of the order."""
    from pyspark.sql import functions as F

    from penstock.spark.pipelines.decode import decode

    return (
        decode(frame, schema=ORDER)
        .withColumn("region", F.split("subject", r"\.")[1])
        .withColumn("ordered", F.timestamp_seconds("at"))
    )


def look(spark: SparkSession, data: str, story: Story) -> None:
    story.step('Every stream is a table: spark.read.format("penstock"), straight from the block files.')
    messages = spark.read.format("penstock").option("stream", "ORDERS").load(data)
    orders_of(messages).createOrReplaceTempView("orders")
    rows = spark.sql(
        "select region, count(*) orders, sum(cents) / 100 euros, count(distinct customer) customers "
        "from orders group by region order by euros desc"
    ).collect()
    for row in rows:
        story.say(f"{row.region}  {row.orders:>8,} orders  {row.euros:>14,.2f} €  {row.customers:,} customers")
    story.took("SQL over the JSON in the payloads")
    story.last = time.perf_counter()
    eu = messages.where("subject like 'orders.eu.%' and seq between 1000 and 2000").count()
    blocks = spark.read.format("penstock").option("table", "blocks").load(data)
    known = blocks.agg({"messages": "sum", "*": "count"}).first()
    assert known is not None
    story.took(f"{eu} European orders among #1000 to #2000; the store's own counts: {known[0]:,} in {known[1]} blocks")


def aggregate(spark: SparkSession, data: str, target: str, checkpoint: str, story: Story) -> None:
    """Revenue per quarter of an hour and region, as a stream of its own."""
    from pyspark.sql import functions as F

    story.step("Structured Streaming: revenue per quarter of an hour, written back to a stream, exactly once.")
    followed = (
        spark.readStream.format("penstock")
        .option("stream", "ORDERS")
        .option("maxMessagesPerTrigger", "100000")
        .load(data)
    )
    totals = (
        orders_of(followed)
        .withWatermark("ordered", "1 hour")
        .groupBy(F.window("ordered", "15 minutes").alias("quarter"), "region")
        .agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))
        .select(
            F.concat(F.lit("totals."), "region").alias("subject"),
            F.to_json(F.struct(F.col("quarter.start").alias("start"), "region", "orders", "cents")).alias("payload"),
        )
    )
    query = (
        totals.writeStream.format("penstock")
        .outputMode("append")
        .option("path", target)
        .option("stream", "TOTALS")
        .option("createSubjects", "totals.>")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    batches = [one for one in query.recentProgress if one.numInputRows]
    read = sum(one.numInputRows for one in batches)
    with penstock.open(target, read_only=True) as db:
        state = db.get_stream("TOTALS").state()
    story.took(f"{read:,} orders in {len(batches)} batches became {state.messages} totals in {target}")
    story.say("(the last hour is still open: later orders may belong to it)")


def revenue(spark: SparkSession, data: str) -> list[Any]:
    """Revenue per quarter of an hour and region, of the whole day at once."""
    from pyspark.sql import functions as F

    orders = orders_of(spark.read.format("penstock").option("stream", "ORDERS").load(data))
    quarter = F.window("ordered", "15 minutes").start.alias("start")
    return orders.groupBy(quarter, "region").agg(F.sum("cents").alias("cents")).collect()


def export(spark: SparkSession, data: str, lake: str, story: Story) -> None:
    from penstock.spark.pipelines import lake as pipeline

    story.step("A lake: incremental export to Parquet, as `penstock pipeline lake` does.")
    first = pipeline.run(spark, data, lake, streams=["ORDERS"])
    size = sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(lake) for name in names)
    story.took(f"{first.rows:,} orders, {size / 1e6:.0f} MB of Parquet, with a manifest")
    with penstock.open(data) as db:
        db.stream("ORDERS").publish("orders.eu.1", b'{"order": 0, "at": 0, "customer": 1, "cents": 1, "items": 1}')
    story.last = time.perf_counter()
    table = penstock.spark.table(spark, data, lake=lake, stream="ORDERS")
    count = table.count()
    story.took(f"one more order is published: the lake and the stream's tail are one table of {count:,} rows")
    story.last = time.perf_counter()
    second = pipeline.run(spark, data, lake, streams=["ORDERS"])
    story.took(f"the next export takes what is new: {second.rows} order")


def check(spark: SparkSession, data: str, story: Story) -> bool:
    from penstock.spark.pipelines import verify

    story.step("Every checksum once more, in parallel, as `penstock pipeline verify` does.")
    found = verify.run(spark, data)
    text = "every checksum holds" if not found.problems else f"{len(found.problems)} places are damaged"
    for stream in found.check.streams:
        story.say(f"{stream.name}: {stream.blocks} blocks, {stream.bytes / 1e6:.0f} MB, {stream.messages:,} messages")
    story.took(text)
    return not found.problems


def report(spark: SparkSession, data: str, path: str, story: Story) -> None:
    from penstock.spark.pipelines import state
    from penstock.spark.pipelines.report import write_report

    story.step("What is in the store, as `penstock pipeline state` tells it.")
    found = state.run(spark, data, streams=["ORDERS"])
    write_report(found.facts, path)
    top = found.subjects.orderBy("messages", ascending=False).first()
    assert top is not None
    story.took(f"the busiest subject: {top.subject} with {top.messages:,} messages; the whole report: {path}")


def draw(totals: list[Any], path: str) -> None:
    """Revenue by region over the day, stacked."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    day = [row for row in totals if row.start.year > 2000]
    starts = sorted({row.start for row in day})
    euros = {region: [0.0] * len(starts) for region in NAMES}
    for row in day:
        euros[row.region][starts.index(row.start)] = row.cents / 100
    hours = [(start - starts[0]).total_seconds() / 3600 for start in starts]
    figure, axes = plt.subplots(figsize=(11, 4.2), dpi=130, layout="constrained")
    axes.stackplot(
        hours, list(euros.values()), labels=list(NAMES.values()), colors=[COLOURS[one] for one in euros], alpha=0.85
    )
    axes.set_title("Revenue per quarter of an hour by region, by Spark", loc="left", fontweight="bold", fontsize=11)
    axes.set_ylabel("€")
    axes.set_xlabel("2 November 2026, UTC")
    axes.set_xlim(0, 24)
    axes.set_ylim(bottom=0)
    axes.set_xticks(range(0, 25, 3), [f"{hour:02d}:00" for hour in range(0, 25, 3)])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, ncols=3, loc="upper left")
    figure.savefig(path)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
