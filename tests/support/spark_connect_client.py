"""A client of Spark Connect in a process of its own, without a JVM. Used by test_connect.py."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.spark import register


def main(url: str, source: str, copied: str, followed: str) -> None:
    spark = SparkSession.builder.remote(url).getOrCreate()
    found_by_server = spark.read.format("penstock").option("pushdown", "false").load(source).count()
    register(spark)
    frame = spark.read.format("penstock").load(source)
    some = frame.where("subject = 'a.3' and seq > 500")
    found = {
        "found": found_by_server,
        "count": frame.count(),
        "some": some.agg(F.count("*"), F.min("seq")).collect()[0].asDict(),
    }
    some.write.format("penstock").option("path", copied).option("stream", "S").mode("append").save()
    query = (
        spark.readStream.format("penstock")
        .option("maxMessagesPerTrigger", "400")
        .load(source)
        .writeStream.format("penstock")
        .option("path", followed)
        .option("stream", "S")
        .option("checkpointLocation", f"{followed}-checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300), "the query does not end"
    print(json.dumps(found | {"is_remote": "connect" in type(spark).__module__}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
