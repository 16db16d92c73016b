"""table: streams as one DataFrame; exported rows come from the lake by Spark's Parquet scan, the rest from the blocks.

The DataFrame has one row per sequence, as of the call: rows that were deleted after their export are left out. Only
files that may hold such a row are filtered; Spark reads the others like any Parquet file. Rules: docs/lake.md.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from penstock.base.duration import parse_time
from penstock.base.seq_set import SeqSet
from penstock.base.subject import Filters
from penstock.scan.part import HeadersMode, part_columns
from penstock.scan.plan import open_folders
from penstock.spark.pipelines.lake_changes import Unexplained, what_changed, what_went
from penstock.spark.pipelines.manifest import Lake, LakeError, LakeFile, StreamInLake, unpack
from penstock.store.deletes.deletes import read_deletes
from penstock.store.open.stream_folders import choose_streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.store.read.view import StreamView

RANGES_MAX = 8  # more hidden ranges than this become a join: Spark plans long conditions slowly
SINGLES_MAX = 500
LISTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"


@dataclass(frozen=True, slots=True)
class Span:
    """The bounds of the read; None: no bound. Stops are exclusive."""

    start_seq: int | None = None
    stop_seq: int | None = None
    since: int | None = None
    until: int | None = None

    def may_hold(self, file: LakeFile) -> bool:
        return not (
            (self.start_seq is not None and file.last_seq < self.start_seq)
            or (self.stop_seq is not None and file.first_seq >= self.stop_seq)
            or (self.since is not None and file.max_ts_ns < self.since)
            or (self.until is not None and file.min_ts_ns >= self.until)
        )

    @property
    def condition(self) -> str | None:
        """The bounds as an SQL condition."""
        parts = [
            f"{column} {sign} {bound}"
            for column, sign, bound in (
                ("seq", ">=", self.start_seq),
                ("seq", "<", self.stop_seq),
                ("ts_ns", ">=", self.since),
                ("ts_ns", "<", self.until),
            )
            if bound is not None
        ]
        return " AND ".join(parts) or None


def table(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    lake: str | os.PathLike[str] | None = None,
    stream: str | Sequence[str] | None = None,
    account: str | None = None,
    columns: Sequence[str] | None = None,
    subjects: str | Sequence[str] | None = None,
    start_seq: int | None = None,
    stop_seq: int | None = None,
    since: str | int | None = None,
    until: str | int | None = None,
    unexplained: Unexplained = "auto",
) -> DataFrame:
    """The messages of a store's streams (None: all) as a DataFrame, as of now; `subjects` are NATS filters.

    Exported rows are read from `lake`, including those that age and limits have since removed from the store. Bounds
    given here skip whole files; Spark evaluates filters on the DataFrame.
    """
    root, names = os.path.abspath(os.fspath(path)), [stream] if isinstance(stream, str) else stream
    filters = [subjects] if isinstance(subjects, str) else list(subjects or ())
    Filters(filters)  # check them here, not in a task
    span = Span(start_seq, stop_seq, *(None if at is None else parse_time(at) for at in (since, until)))
    # Read the lake first: rows that are exported after this point are still in the store.
    place = Lake(lake) if lake is not None else None
    state = place.state().streams if place is not None else {}
    headers: HeadersMode = place.settings().headers if place is not None else "map"  # type: ignore[assignment]
    chosen = part_columns(columns, headers)
    needed = None if columns is None else [*columns, "seq", "ts_ns", "subject"]  # for the conditions below
    clean: list[str] = []
    frames: list[DataFrame] = []
    folders = choose_streams(root, names, account)
    for folder, view in zip(folders, open_folders(folders), strict=True):
        known = state.get(view.name)
        if known is not None and place is not None:
            hidden = _hidden(view, folder.root, known, unexplained)
            files = [file for file in known.files if span.may_hold(file)]
            whole, touched = sort_files(files, hidden)
            clean += [os.path.join(place.path, file.path) for file in whole]
            if touched:
                paths = [os.path.join(place.path, file.path) for file in touched]
                frames.append(_visible(spark, _parquet(spark, paths, headers), hidden, touched))
        start = max(known.last + 1 if known else 1, start_seq or 0)
        stop = min(view.last_seq + 1, view.last_seq + 1 if stop_seq is None else stop_seq)
        if start < stop:
            tail = spark.read.format("penstock").option("path", json.dumps([root])).option("headers", headers)
            tail = tail.option("stream", json.dumps([folder.full_name]))
            tail = tail if account is None else tail.option("account", account)
            tail = tail.option("startingSeq", str(start)).option("endingSeq", str(stop))
            tail = tail.option("columns", ",".join(part_columns(needed, headers)))
            frames.append(tail.option("subjects", json.dumps(filters)).load() if filters else tail.load())
    if clean or not frames:
        frames.insert(0, _parquet(spark, clean, headers))
    for condition in (span.condition, subject_condition(filters)):
        if condition is not None:
            frames = [frame.where(condition) for frame in frames]
    return reduce(lambda some, more: some.unionByName(more), [frame.select(*chosen) for frame in frames])


def subject_condition(filters: Sequence[str]) -> str | None:
    """NATS filters as SQL; None: every subject matches."""
    parts = []
    for one in filters:
        if one == ">":
            return None
        tokens = [{"*": "[^.]+", ">": ".+"}.get(token, re.escape(token)) for token in one.split(".")]
        text = one if not {"*", ">"} & set(one.split(".")) else f"^{'[.]'.join(tokens)}$"
        quoted = text.replace("\\", "\\\\").replace("'", "\\'")
        parts.append(f"subject = '{quoted}'" if text == one else f"subject RLIKE '{quoted}'")
    return " OR ".join(parts) or None


def _hidden(view: StreamView, folder: str, known: StreamInLake, unexplained: Unexplained) -> SeqSet:
    """The exported rows to hide, including those deleted since the last export."""
    found = read_deletes(folder, view.stream_id, known.position, known.epoch, view.disk)
    why = what_changed(view, known, found)
    if why is not None:
        raise LakeError(f"stream {view.name}: {why}; run the export with changed=restart, or read it without the lake")
    hidden = unpack(known.hidden)
    for seqs in what_went(view, folder, known, found, unexplained).hidden.values():
        hidden.update(seqs)
    return hidden


def sort_files(files: list[LakeFile], hidden: SeqSet) -> tuple[list[LakeFile], list[LakeFile]]:
    """(files without a hidden row, files that may have some); files whose rows are all hidden are in neither."""
    whole, touched = [], []
    for file in files:
        first = hidden.present_from(file.first_seq)
        if first is None or first > file.last_seq:
            whole.append(file)
            continue
        visible = hidden.absent_from(file.first_seq)
        if visible is not None and visible <= file.last_seq:
            touched.append(file)
    return whole, touched


# Frames.


def _parquet(spark: SparkSession, paths: list[str], headers: HeadersMode) -> DataFrame:
    from penstock.spark.source.source import messages_ddl

    schema = messages_ddl(part_columns(None, headers), headers, "fail")
    if not paths:
        return spark.createDataFrame([], schema)
    with _listed_here(spark, len(paths)):
        return spark.read.schema(schema).parquet(*paths)


@contextmanager
def _listed_here(spark: SparkSession, count: int) -> Iterator[None]:
    """Raise Spark's limit of 32 paths, above which a separate job lists files: the manifest has named them already."""
    before = spark.conf.get(LISTING, "32")
    spark.conf.set(LISTING, str(max(count, 32)))
    try:
        yield
    finally:
        spark.conf.set(LISTING, before or "32")


def _visible(spark: SparkSession, frame: DataFrame, hidden: SeqSet, files: list[LakeFile]) -> DataFrame:
    """The rows of the files that are not hidden: filtered by conditions, or by a join if there would be too many."""
    cuts = cut_ranges(hidden, files)
    singles = [first for first, last in cuts if first == last]
    ranges = [(first, last) for first, last in cuts if first < last]
    if len(ranges) > RANGES_MAX or len(singles) > SINGLES_MAX:
        return _anti_join(spark, frame, cuts)
    parts = [f"NOT seq BETWEEN {first} AND {last}" for first, last in ranges]
    if singles:
        parts.append(f"seq NOT IN ({', '.join(map(str, singles))})")
    return frame.where(" AND ".join(parts))


def cut_ranges(hidden: SeqSet, files: list[LakeFile]) -> list[tuple[int, int]]:
    """The hidden ranges that overlap one of the files, inclusive."""
    found = SeqSet()
    for file in files:
        at = hidden.present_from(file.first_seq)
        while at is not None and at <= file.last_seq:
            stop = hidden.absent_from(at)
            found.add_range(at, min(file.last_seq, file.last_seq if stop is None else stop - 1))
            at = None if stop is None else hidden.present_from(stop)
    return found.ranges()


def _anti_join(spark: SparkSession, frame: DataFrame, cuts: list[tuple[int, int]]) -> DataFrame:
    """A bitmap table with 64 sequences per row: small enough to broadcast to every task, so nothing is shuffled."""
    import pyarrow as pa
    from pyspark.sql import functions as f

    words = bit_words(cuts)
    rows = pa.table({"word": pa.array(words.keys(), pa.int64()), "bits": pa.array(words.values(), pa.int64())})
    hidden = f.broadcast(spark.createDataFrame(rows))
    is_hidden = "shiftright(seq, 6) = word AND (shiftright(bits, cast(seq & 63L as int)) & 1L) = 1L"
    return frame.join(hidden, f.expr(is_hidden), "left_anti")


def bit_words(ranges: list[tuple[int, int]]) -> dict[int, int]:
    """Sequences as a bitmap of 64-bit words: word number to bits, signed as in SQL."""
    words: dict[int, int] = {}
    for first, last in ranges:
        for word in range(first >> 6, (last >> 6) + 1):
            low, high = max(first, word << 6) & 63, min(last, (word << 6) + 63) & 63
            words[word] = words.get(word, 0) | ((1 << (high - low + 1)) - 1) << low
    return {word: bits - (1 << 64) if bits >> 63 else bits for word, bits in words.items()}
