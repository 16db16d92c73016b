"""state: statistics of a store: subjects, sizes, rates, times between messages, duplicates, gaps.

Messages, bytes and sequences of streams and subjects come from the metadata tables; one pass over the messages counts
the rest in the tasks (profile.py), and another one finds duplicates.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from penstock.spark.pipelines.jobs import OnProgress, cores_of, job_frame, small_frame, watched
from penstock.spark.pipelines.profile import (
    DUPLICATE_SCHEMA,
    GAP_KINDS,
    SCHEMA,
    SHOWN,
    By,
    Mode,
    bucket,
    named_rows,
    plan_parts,
    plan_profile,
    profile_part,
)
from penstock.spark.pipelines.report import Facts, write_report
from penstock.store.open.stream_folders import StreamFolder, choose_streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALL = "*"  # the row for all streams; no stream can have this name
MAX_BYTES = 128 << 20
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
Duplicates = Literal["id", "payload", "both", "none"]
Row = dict[str, Any]

STREAMS = (
    "stream string, messages long, bytes long, data_bytes long, subjects long, first_seq long, last_seq long, "
    "first_ts_ns long, last_ts_ns long, deleted long, skipped long, lost long, duplicates long, "
    "mean_per_minute double, peak_per_minute long, peak_per_hour long"
)
PERCENTILES = (
    "stream string, what string, count long, mean double, min long, p50 long, p90 long, p99 long, p999 long, max long"
)


@dataclass(frozen=True, slots=True)
class State:
    """Statistics of a store, as DataFrames and as the contents of a report. `close` frees Spark's cached data."""

    path: str
    streams: DataFrame
    """One row per stream, and one named "*" for all."""
    subjects: DataFrame
    minutes: DataFrame
    hours: DataFrame
    percentiles: DataFrame
    """Percentiles of `size` (headers and payload, bytes) and `gap` (nanoseconds between messages), within 0.8 %."""
    gaps: DataFrame
    """Ranges of sequences without a message: deleted, skipped or lost."""
    duplicates: DataFrame
    consumers: DataFrame
    """The metadata table of consumers: position, pending messages, and messages that were given up."""
    facts: Facts
    seconds: float
    kept: tuple[DataFrame, ...] = ()

    def write_report(self, path: str | os.PathLike[str]) -> None:
        """One HTML file with plots that needs nothing else."""
        write_report(self.facts, path)

    def close(self) -> None:
        for frame in self.kept:
            frame.unpersist()


def run(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    streams: Sequence[str] | None = None,
    account: str | None = None,
    duplicates: Duplicates = "id",
    mode: Mode = "fail",
    top: int = 20,
    max_bytes: int = MAX_BYTES,
    on_progress: OnProgress | None = None,
) -> State:
    """Count a store, or some of its streams.

    duplicates: by Nats-Msg-Id, by payload, by both or not at all. mode: a damaged record fails the job, or is skipped
    and logged by the worker. `top`: how many subjects, gaps and duplicates the report lists.
    """
    from pyspark.sql import functions as F

    if duplicates not in ("id", "payload", "both", "none"):
        raise ValueError(f"duplicates={duplicates!r}: id, payload, both or none")
    began = time.monotonic()
    root = os.path.abspath(os.fspath(path))
    folders = tuple(choose_streams(root, streams or None, account))
    names = [one.label for one in folders]
    parts = partial(plan_parts, folders, max_bytes, cores_of(spark))
    both = partial(plan_profile, folders, max_bytes, cores_of(spark))
    with watched(spark, on_progress):
        profile = (
            job_frame(spark, "profile", SCHEMA, both, partial(profile_part, top=top, mode=mode))
            .groupBy("kind", "stream", "name", "key")
            .agg(F.sum("count").alias("count"), F.sum("size").alias("size"), F.min("low").alias("low"),
                 F.max("high").alias("high"))
            .persist()
        )  # fmt: skip
        # There may be very many subjects and gaps: only those that the report shows are collected here.
        wanted = profile.filter(f"kind != 'subject' and (kind not in {GAP_KINDS} or name = '{SHOWN}')")
        counted = [row.asDict() for row in wanted.collect()]
        known = [row.asDict() for row in _table(spark, root, folders, account, "streams").collect()]
        subjects = _subjects(_table(spark, root, folders, account, "subjects"), profile)
        consumers = _table(spark, root, folders, account, "consumers").drop("store", "account")
        behind = [row.asDict() for row in consumers.collect()]
        top_subjects = subjects.orderBy(F.desc("messages"), "stream", "subject").limit(top).collect()
        copies = _duplicates(spark, parts, duplicates, mode).persist()
        repeats = {
            row["stream"]: row["n"]
            for row in copies.groupBy("stream").agg(F.sum(F.col("messages") - 1).alias("n")).collect()
        }
        shown = copies.orderBy(F.desc("messages"), "stream", "first_seq").limit(top).collect() if repeats else []
    counted += stitched(counted)
    histograms = histograms_of(counted)
    rows = stream_rows(names, known, counted, repeats)
    percentiles = [_percentiles(*key, cells) for key, cells in sorted(histograms.items())]
    gaps = sorted((row for row in counted if row["kind"] in GAP_KINDS), key=lambda row: (-row["count"], row["key"]))
    facts = Facts(
        path=root,
        streams=rows,
        percentiles=percentiles,
        histograms={key: cells for key, cells in histograms.items() if key[0] == ALL},
        rates=_curve(counted),
        top_subjects=[row.asDict() for row in top_subjects],
        gaps=[
            {"stream": row["stream"], "kind": row["kind"], "first_seq": row["key"],
             "last_seq": row["key"] + row["count"] - 1, "sequences": row["count"]}
            for row in gaps[:top]
        ],
        duplicates=[row.asDict() for row in shown],
        consumers=sorted(behind, key=lambda row: (-row["num_pending"], row["stream"], row["consumer"])),
    )  # fmt: skip
    return State(
        path=root,
        streams=small_frame(spark, STREAMS, [tuple(row.values()) for row in rows]),
        subjects=subjects,
        minutes=_rates(profile, "minute", 60),
        hours=_rates(profile, "hour", 3600),
        percentiles=small_frame(spark, PERCENTILES, [tuple(row.values()) for row in percentiles]),
        gaps=_gaps(profile),
        duplicates=copies,
        consumers=consumers,
        facts=facts,
        seconds=time.monotonic() - began,
        kept=(profile, copies),
    )


# DataFrames.


def _table(
    spark: SparkSession, root: str, folders: Sequence[StreamFolder], account: str | None, table: str
) -> DataFrame:
    """A metadata table of the streams."""
    import json

    reader = spark.read.format("penstock").option("table", table).option("path", json.dumps([root]))
    if account is not None:
        reader = reader.option("account", account)
    if folders:  # an empty list would be no filter
        reader = reader.option("stream", json.dumps([one.full_name for one in folders]))
    return reader.load()


def _rates(profile: DataFrame, name: str, seconds: int) -> DataFrame:
    """Messages and bytes per minute or hour; an empty one has no row."""
    from pyspark.sql import functions as F

    start = F.floor(F.col("key") * 60 / seconds).cast("long") * seconds
    return (
        profile.filter("kind = 'minute'")
        .groupBy("stream", F.timestamp_seconds(start).alias(name))
        .agg(F.sum("count").alias("messages"), F.sum("size").alias("bytes"))
    )


def _gaps(profile: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return profile.filter(f"kind in {GAP_KINDS}").select(
        "stream",
        "kind",
        F.col("key").alias("first_seq"),
        (F.col("key") + F.col("count") - 1).alias("last_seq"),
        F.col("count").alias("sequences"),
    )


def _subjects(known: DataFrame, profile: DataFrame) -> DataFrame:
    """Totals and sequences from the metadata table; bytes and times from the messages."""
    from pyspark.sql import functions as F

    read = profile.filter("kind = 'subject'").select(
        "stream",
        F.col("name").alias("subject"),
        F.col("size").alias("data_bytes"),
        F.col("low").alias("first_ts_ns"),
        F.col("high").alias("last_ts_ns"),
    )
    return known.select("stream", "subject", "messages", "first_seq", "last_seq").join(
        read, ["stream", "subject"], "left"
    )


def _duplicates(spark: SparkSession, parts: Any, wanted: Duplicates, mode: Mode) -> DataFrame:
    """Ids or payloads (`by`) that more than one message of a stream has."""
    from pyspark.sql import functions as F

    kinds: list[By] = [kind for kind in ("id", "payload") if wanted in (kind, "both")]
    found = None
    for kind in kinds:
        named = job_frame(spark, f"named_{kind}", DUPLICATE_SCHEMA, parts, partial(named_rows, by=kind, mode=mode))
        grouped = (
            named.groupBy("stream", F.lit(kind).alias("by"), "value")
            .agg(F.count("*").alias("messages"), F.min("seq").alias("first_seq"), F.max("seq").alias("last_seq"),
                 ((F.max("ts_ns") - F.min("ts_ns")) / 1e9).alias("seconds"))
            .filter("messages > 1")
        )  # fmt: skip
        found = grouped if found is None else found.unionByName(grouped)
    if found is None:
        schema = "stream string, by string, value string, messages long, first_seq long, last_seq long, seconds double"
        return small_frame(spark, schema, [])
    return found


# Sums in the driver.


def _curve(counted: Iterable[Row], most: int = 720) -> tuple[str, list[Row]]:
    """The rows for the plot of the rate: minutes, or hours or days if minutes would be too many to see."""
    minutes = [row for row in counted if row["kind"] == "minute"]
    keys = {row["key"] for row in minutes} or {0}
    units = (("minute", 1), ("hour", 60), ("day", 1440))
    name, step = next((unit for unit in units if (max(keys) - min(keys)) // unit[1] <= most), units[-1])
    found: dict[tuple[int, str], list[int]] = {}
    for row in minutes:
        cell = found.setdefault((row["key"] // step * step * 60, row["stream"]), [0, 0])
        cell[0] += row["count"]
        cell[1] += row["size"]
    rows = [
        {"stream": stream, "second": second, "messages": count, "bytes": size}
        for (second, stream), (count, size) in sorted(found.items())
    ]
    return name, rows


def stitched(counted: Iterable[Row]) -> list[Row]:
    """The times between the last message of a part and the first of the next, as the profile counts them."""
    parts: dict[str, list[Row]] = defaultdict(list)
    for row in counted:
        if row["kind"] == "part":
            parts[row["stream"]].append(row)
    found = []
    for stream, rows in parts.items():
        rows.sort(key=lambda row: row["key"])
        for one, other in pairwise(rows):
            wait = max(other["low"] - one["high"], 0)
            gap = {"kind": "gap", "stream": stream, "key": bucket(wait), "count": 1}
            found.append({**gap, "size": wait, "low": wait, "high": wait})
    return found


Cell = tuple[int, int, int, int]
"""A bucket's count, sum, lowest and highest value."""


def histograms_of(counted: Iterable[Row]) -> dict[tuple[str, str], dict[int, Cell]]:
    """The buckets in order, by stream (and "*") and measure."""
    found: dict[tuple[str, str], dict[int, Cell]] = defaultdict(dict)
    for row in counted:
        if row["kind"] not in ("size", "gap"):
            continue
        for stream in (row["stream"], ALL):
            cells = found[stream, row["kind"]]
            count, size, low, high = cells.get(row["key"], (0, 0, row["low"], row["high"]))
            cells[row["key"]] = count + row["count"], size + row["size"], min(low, row["low"]), max(high, row["high"])
    return {key: dict(sorted(cells.items())) for key, cells in found.items()}


def quantile(cells: dict[int, Cell], share: float) -> int:
    """The value that `share` of all values do not exceed, as the middle of its bucket."""
    total = sum(count for count, *_ in cells.values())
    rank, seen = max(1, -(-int(total * share * 1_000_000) // 1_000_000)), 0
    for count, _size, low, high in cells.values():
        seen += count
        if seen >= rank:
            return (low + high) // 2
    raise ValueError("nothing was counted")


def _percentiles(stream: str, what: str, cells: dict[int, Cell]) -> Row:
    count = sum(cell[0] for cell in cells.values())
    return {
        "stream": stream, "what": what, "count": count, "mean": sum(cell[1] for cell in cells.values()) / count,
        "min": min(cell[2] for cell in cells.values()),
        **{name: quantile(cells, share) for name, share in QUANTILES.items()},
        "max": max(cell[3] for cell in cells.values()),
    }  # fmt: skip


def stream_rows(
    names: Sequence[str], known: Iterable[Row], counted: Sequence[Row], repeats: dict[str, int]
) -> list[Row]:
    """One row for all streams, then one for each."""
    metadata = {row["stream"]: row for row in known}
    peaks = _peaks(counted)
    rows = []
    for name in names:
        own = [row for row in counted if row["stream"] == name]
        parts = [row for row in own if row["kind"] == "part"]
        gone = {row["name"]: row["count"] for row in own if row["kind"] == "gaps"}
        facts = metadata[name]
        row: Row = {
            "stream": name, "messages": facts["messages"], "bytes": facts["bytes"],
            "data_bytes": sum(part["size"] for part in parts), "subjects": facts["num_subjects"],
            "first_seq": facts["first_seq"], "last_seq": facts["last_seq"],
            "first_ts_ns": min((part["low"] for part in parts), default=None),
            "last_ts_ns": max((part["high"] for part in parts), default=None),
            **{kind: gone.get(kind, 0) for kind in ("deleted", "skipped", "lost")},
            "duplicates": repeats.get(name, 0),
        }  # fmt: skip
        rows.append(row | _rate(row, peaks))
    whole: Row = {"stream": ALL}
    for name in list(rows[0])[1:13] if rows else [field.split()[0] for field in STREAMS.split(", ")][1:13]:
        whole[name] = sum(row[name] for row in rows if row[name])
    whole |= {"first_seq": None, "last_seq": None}
    whole["first_ts_ns"] = min((row["first_ts_ns"] for row in rows if row["first_ts_ns"]), default=None)
    whole["last_ts_ns"] = max((row["last_ts_ns"] for row in rows if row["last_ts_ns"]), default=None)
    return [whole | _rate(whole, peaks), *rows]


def _peaks(counted: Iterable[Row]) -> dict[tuple[str, str], int]:
    """The busiest minute and hour of each stream and of all."""
    found: dict[tuple[str, str, int], int] = defaultdict(int)
    for row in counted:
        if row["kind"] == "minute":
            for stream in (row["stream"], ALL):
                found[stream, "minute", row["key"]] += row["count"]
                found[stream, "hour", row["key"] // 60] += row["count"]
    best: dict[tuple[str, str], int] = {}
    for (stream, unit, _), count in found.items():
        best[stream, unit] = max(best.get((stream, unit), 0), count)
    return best


def _rate(row: Row, peaks: dict[tuple[str, str], int]) -> Row:
    span = (row["last_ts_ns"] - row["first_ts_ns"]) / 60e9 if row["first_ts_ns"] else 0.0
    return {
        "mean_per_minute": row["messages"] / max(span, 1.0),
        "peak_per_minute": peaks.get((row["stream"], "minute"), 0),
        "peak_per_hour": peaks.get((row["stream"], "hour"), 0),
    }
