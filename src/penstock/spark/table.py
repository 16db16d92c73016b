"""table: streams as one DataFrame, what a lake has of them as Spark's own Parquet scan, the rest from the blocks.

One row for each sequence, as of the call: rows that were deleted since they were exported are left out. Only files
that may hold such a row are filtered; the others are read as Spark reads any Parquet. Rules: docs/lake.md.
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

RANGES_MAX = 8  # hidden ranges that become conditions; more go into a join: Spark takes its time over conditions
SINGLES_MAX = 500
LISTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"


@dataclass(frozen=True, slots=True)
class Span:
    """Which rows are wanted; None: no bound. Stops are exclusive."""

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
        """The same as SQL."""
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

    What `lake` has of them is read there, also what age and limits have since taken from the store. Bounds given here
    spare whole files; filters on the DataFrame are Spark's.
    """
    root, names = os.path.abspath(os.fspath(path)), [stream] if isinstance(stream, str) else stream
    filters = [subjects] if isinstance(subjects, str) else list(subjects or ())
    Filters(filters)  # they are checked here, not in a task
    span = Span(start_seq, stop_seq, *(None if at is None else parse_time(at) for at in (since, until)))
    # The lake first: what is exported from here on, the store still has.
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
    """The exported rows that are not to be seen any more, those deleted since the last export among them."""
    found = read_deletes(folder, view.stream_id, known.position, known.epoch, view.disk)
    why = what_changed(view, known, found)
    if why is not None:
        raise LakeError(f"stream {view.name}: {why}; run the export with changed=restart, or read it without the lake")
    hidden = unpack(known.hidden)
    for seqs in what_went(view, folder, known, found, unexplained).hidden.values():
        hidden.update(seqs)
    return hidden


def sort_files(files: list[LakeFile], hidden: SeqSet) -> tuple[list[LakeFile], list[LakeFile]]:
    """(files without a hidden row, files that may have some); those of which nothing is left are in neither."""
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
    """Spark looks up more than 32 paths in a job of its own; the manifest has named them, so it is done at once."""
    before = spark.conf.get(LISTING, "32")
    spark.conf.set(LISTING, str(max(count, 32)))
    try:
        yield
    finally:
        spark.conf.set(LISTING, before or "32")


def _visible(spark: SparkSession, frame: DataFrame, hidden: SeqSet, files: list[LakeFile]) -> DataFrame:
    """The rows of the files that are not hidden: by conditions, or where they would be many, by a join with a table."""
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
    """The hidden ranges that lie in one of the files, inclusive."""
    found = SeqSet()
    for file in files:
        at = hidden.present_from(file.first_seq)
        while at is not None and at <= file.last_seq:
            stop = hidden.absent_from(at)
            found.add_range(at, min(file.last_seq, file.last_seq if stop is None else stop - 1))
            at = None if stop is None else hidden.present_from(stop)
    return found.ranges()


def _anti_join(spark: SparkSession, frame: DataFrame, cuts: list[tuple[int, int]]) -> DataFrame:
    """One row of the table stands for 64 sequences: small enough to go to every task, so that nothing is shuffled."""
    import pyarrow as pa
    from pyspark.sql import functions as f

    words = bit_words(cuts)
    rows = pa.table({"word": pa.array(words.keys(), pa.int64()), "bits": pa.array(words.values(), pa.int64())})
    hidden = f.broadcast(spark.createDataFrame(rows))
    is_hidden = "shiftright(seq, 6) = word AND (shiftright(bits, cast(seq & 63L as int)) & 1L) = 1L"
    return frame.join(hidden, f.expr(is_hidden), "left_anti")


def bit_words(ranges: list[tuple[int, int]]) -> dict[int, int]:
    """Sequences as words of 64 bits: the word's number to its bits, signed as SQL has them."""
    words: dict[int, int] = {}
    for first, last in ranges:
        for word in range(first >> 6, (last >> 6) + 1):
            low, high = max(first, word << 6) & 63, min(last, (word << 6) + 63) & 63
            words[word] = words.get(word, 0) | ((1 << (high - low + 1)) - 1) << low
    return {word: bits - (1 << 64) if bits >> 63 else bits for word, bits in words.items()}
