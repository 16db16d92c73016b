"""migrate: old `messages.jsonl` files and Parquet into streams, in parallel, with their sequences and times.

A first job reads everything to find the sequences of each part, a second one stages blocks, and one adoption puts all
of them into the stream: a failed run leaves nothing behind, and the source is never changed. Rules for lines:
store/open/jsonl_migration.py; for stages: db/stage.py. The readers: jsonl_parts.py, parquet_parts.py.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock.base.disk import Disk
from penstock.db.adopt import adopt, create_stream, root_of
from penstock.db.stage import discard_job
from penstock.errors import PenstockError
from penstock.format.paths import StreamPaths
from penstock.scan.plan import view_at
from penstock.spark.pipelines.jobs import OnProgress, cores_of, watched
from penstock.store.open.marker import check_marker
from penstock.store.open.stream_folders import place_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEGACY = "messages.jsonl"
Info = dict[str, Any]


class MigrationRefused(PenstockError):
    """A migration that is impossible; the text names the source or stream, and the reason."""


@dataclass(frozen=True, slots=True)
class Bad:
    """A rejected line or row."""

    where: str  # "line 7", "seq 12"
    why: str
    data: bytes


@dataclass(frozen=True, slots=True)
class MigratedStream:
    stream: str
    source: str
    messages: int
    skipped: int  # sequences up to its last that the source does not have
    first_seq: int
    last_seq: int
    bad: int
    set_aside: str  # the file with the rejected lines; "" for none


@dataclass(frozen=True, slots=True)
class Migrated:
    path: str
    streams: tuple[MigratedStream, ...]
    seconds: float

    @property
    def is_whole(self) -> bool:
        """Whether every line was accepted."""
        return not any(one.bad for one in self.streams)


class Incoming(Protocol):
    """The source of one stream."""

    stream: str
    path: str

    def survey(self, spark: SparkSession) -> Survey: ...

    def stage(self, spark: SparkSession, root: str, job: str, survey: Survey) -> tuple[list[Info], list[Bad]]: ...


@dataclass(frozen=True, slots=True)
class Survey:
    """The contents of a source: for each part with messages, its number, their count, and the highest sequence."""

    parts: tuple[tuple[int, int, int], ...]
    filters: tuple[str, ...]
    lines: tuple[int, ...] = ()  # the number of lines in each part, if the source is a file of lines

    def floors(self) -> dict[int, int]:
        """The highest sequence before each part; the part's messages lie above."""
        found, highest = {}, 0
        for part, _messages, high in sorted(self.parts):
            found[part] = highest
            highest = max(highest, high)
        return found

    def numbers(self) -> list[int]:
        """How many lines there are before each part."""
        found, before = [], 0
        for lines in self.lines:
            found.append(before)
            before += lines
        return found


def run(
    spark: SparkSession,
    path: str | os.PathLike[str],
    source: str | os.PathLike[str],
    *,
    stream: str | None = None,
    subjects: Sequence[str] | None = None,
    account: str | None = None,
    max_bytes: int = 32 << 20,
    on_progress: OnProgress | None = None,
) -> Migrated:
    """Copy `source` into the store at `path`, which is created if it does not exist.

    source: a messages.jsonl, its folder, a folder of such folders, or Parquet with the columns of our table (`seq`,
    `subject`, `payload`, and `ts_ns` or `ts`; optionally `stream` and `headers`). A stream is named after its folder or
    its column, or by `stream`; a new one captures `subjects`, or FIRST_TOKEN.> of each subject.
    """
    began = time.monotonic()
    target = os.path.abspath(os.fspath(path))
    done = []
    with watched(spark, on_progress):
        within, _, own = (stream or "").rpartition("/")  # the account, if given
        found = find_sources(spark, os.fspath(source), own or None, max_bytes)
        places = [place_of(target, f"{within}/{one.stream}" if within else one.stream, account) for one in found]
        for place, one in zip(places, found, strict=True):
            _check_target(target, place, one)
        for place, one in zip(places, found, strict=True):
            done.append(_migrate(spark, target, place, one, subjects))
    return Migrated(target, tuple(done), time.monotonic() - began)


def find_sources(spark: SparkSession, source: str, stream: str | None, max_bytes: int) -> list[Incoming]:
    """The sources to migrate, by stream."""
    from penstock.spark.pipelines.jsonl_parts import JsonlSource
    from penstock.spark.pipelines.parquet_parts import find_parquet, is_parquet

    cores = cores_of(spark)
    if not os.path.exists(source):
        raise MigrationRefused(f"{source}: there is no such file or folder")
    if is_parquet(source):
        return list(find_parquet(spark, source, stream))
    if os.path.isfile(source):
        own = os.path.basename(os.path.dirname(os.path.abspath(source)))
        return [JsonlSource(stream or own, source, max_bytes, cores)]
    if os.path.isfile(os.path.join(source, LEGACY)):
        own = os.path.basename(os.path.abspath(source))
        return [JsonlSource(stream or own, os.path.join(source, LEGACY), max_bytes, cores)]
    folders = [name for name in sorted(os.listdir(source)) if os.path.isfile(os.path.join(source, name, LEGACY))]
    chosen = [name for name in folders if stream in (None, name)]
    if not chosen:
        wanted = f"{stream}/{LEGACY}" if stream else f"{LEGACY}, no folder with one, and no Parquet file"
        raise MigrationRefused(f"{source}: there is no {wanted} in it")
    return [JsonlSource(name, os.path.join(source, name, LEGACY), max_bytes, cores) for name in chosen]


def _check_target(target: str, place: tuple[str, str], source: Incoming) -> None:
    """Reject a target stream with messages: the migrated ones could not keep their sequences."""
    account, stream = place
    root = root_of(target, stream, account)
    if not os.path.exists(target) or not check_marker(target, Disk()) or not os.path.exists(StreamPaths(root).config):
        return
    if view_at(root).last_seq:
        raise MigrationRefused(f"stream {source.stream} in {target} holds messages already: name another one for them")


def _migrate(
    spark: SparkSession, target: str, place: tuple[str, str], source: Incoming, subjects: Sequence[str] | None
) -> MigratedStream:  # fmt: skip
    survey = source.survey(spark)
    if not survey.filters:
        raise MigrationRefused(f"{source.path}: nothing in it is a message, so there is nothing to make a stream of")
    account, stream = place
    root, job = root_of(target, stream, account), f"migrate-{uuid.uuid4().hex}"
    create_stream(target, stream, {"subjects": list(subjects or survey.filters)}, account=account)
    try:
        infos, bad = source.stage(spark, root, job, survey)
        infos.sort(key=lambda info: int(info["part"]))
        done = adopt(target, stream, job, [_keeping(info) for info in infos], account=account)
    except BaseException:
        discard_job(root, job)
        raise
    first = min((info["first_seq"] for info in infos if info["messages"]), default=0)
    return MigratedStream(
        stream=source.stream,
        source=source.path,
        messages=done.messages,
        skipped=done.last_seq - done.messages,
        first_seq=first,
        last_seq=done.last_seq,
        bad=len(bad),
        set_aside=_set_aside(StreamPaths(root), bad),
    )


def _keeping(info: Info) -> Info:
    """Make adoption keep sequences: it does so only for stages that begin above 1, and a single stage begins at 1."""
    return {**info, "start_seq": max(info["start_seq"], 2)}


def _set_aside(paths: StreamPaths, bad: Iterable[Bad]) -> str:
    """Write the rejected lines into the stream's folder, as the migration in one process does."""
    text = b"".join(
        f"{one.where}: {one.why}\n".encode("utf-8", "replace") + one.data.rstrip(b"\n") + b"\n" for one in bad
    )
    if not text:
        return ""
    target = f"{paths.legacy}.damaged"
    Disk().write_file(target, text)
    return target


def derived_filter(subject: str) -> str:
    """`orders.eu.42` gives `orders.>`; a subject of one token gives itself."""
    first, dot, _ = subject.partition(".")
    return f"{first}.>" if dot else first
