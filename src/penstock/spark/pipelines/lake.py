"""lake: incremental export of streams to partitioned Parquet, every row exactly once. Design: docs/lake.md.

An export takes views of the streams, divides the new messages into parts, has tasks write them to staged files
(lake_files.py), and commits files and deletes under one manifest (manifest.py). `penstock pipeline lake` runs it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from penstock.scan.plan import Part, open_folders, plan
from penstock.spark.pipelines.jobs import OnProgress, job_frame, watched
from penstock.spark.pipelines.lake_changes import Removed, Unexplained, what_changed, what_went
from penstock.spark.pipelines.lake_files import FILE_SCHEMA, ExportTask, check_partition, write_task
from penstock.spark.pipelines.manifest import (
    STATE_EVERY,
    Lake,
    LakeError,
    LakeFile,
    Manifest,
    Settings,
    StreamExport,
    StreamInLake,
    pack,
)
from penstock.store.deletes.deletes import Position, read_deletes
from penstock.store.open.stream_folders import choose_streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.store.read.view import StreamView

MAX_ROWS = 5_000_000
MAX_BYTES = 128 << 20
STEP_BYTES = 8 << 30  # of blocks: at most so much is exported again after a crash
PART_BYTES = 256 << 20
SPLIT_FROM = 16 << 20  # less than this per core is not divided: it would only make small files

Changed = Literal["fail", "restart"]


@dataclass(frozen=True, slots=True)
class StreamExported:
    """The result of an export for one stream; `first` > `last`: nothing was new."""

    stream: str
    first: int
    last: int
    rows: int
    hidden: int
    unexplained: int


@dataclass(frozen=True, slots=True)
class Exported:
    """The rows and manifests that a run has added to a lake."""

    path: str
    lake: str
    exports: tuple[int, ...]
    """Numbers of the manifests; empty: there was nothing new."""
    rows: int
    files: int
    bytes: int
    streams: tuple[StreamExported, ...]
    seconds: float


@dataclass(slots=True)
class _Plan:
    """The planned export of one stream."""

    view: StreamView
    removed: Removed
    first: int
    is_restarted: bool
    parts: list[Part]
    is_begun: bool = False


def run(
    spark: SparkSession,
    path: str | os.PathLike[str],
    lake: str | os.PathLike[str],
    *,
    streams: Sequence[str] | None = None,
    account: str | None = None,
    partition_by: Sequence[str] | None = None,
    headers: str | None = None,
    compression: str | None = None,
    max_rows: int = MAX_ROWS,
    max_bytes: int = MAX_BYTES,
    step_bytes: int = STEP_BYTES,
    mode: Literal["fail", "skip"] = "fail",
    changed: Changed = "fail",
    unexplained: Unexplained = "auto",
    on_progress: OnProgress | None = None,
) -> Exported:
    """Export everything new in the store to a lake; every message goes in once, however often this is run or killed.

    partition_by, headers and compression are permanent (None: the lake's settings). `max_rows` and `max_bytes` limit a
    file, `step_bytes` limits one manifest. `changed`: what to do about a stream that was recreated or rolled back.
    `unexplained`: what to do about rows that the store removed without a record of the reason (docs/lake.md).
    """
    began = time.monotonic()
    if max_rows < 1 or max_bytes < 1 or step_bytes < 1:
        raise LakeError(f"max_rows={max_rows}, max_bytes={max_bytes}, step_bytes={step_bytes}: each at least 1")
    root, place = os.path.abspath(os.fspath(path)), Lake(lake)
    choose_streams(root, streams, account)  # raises if there is no such store or stream, before a lake is created
    settings = _settings(place, partition_by, headers, compression)
    with place.locked():
        place.clean()
        settings, state = place.create(settings), place.state()
        folders = choose_streams(root, streams, account)
        plans = [
            _plan_stream(view, folder.root, state.streams.get(view.name), changed, unexplained, _cores(spark))
            for folder, view in zip(folders, open_folders(folders), strict=True)
        ]  # fmt: skip
        numbers, files = [], list[LakeFile]()
        for step in _steps(plans, step_bytes):
            number = state.export + 1
            write = partial(ExportTask, export=number, settings=settings, max_rows=max_rows, max_bytes=max_bytes,
                            mode=mode)  # fmt: skip
            made = _write(spark, place, root, number, step, write, on_progress)
            state.add(made)
            if number % STATE_EVERY == 0:
                place.write_state(state)
            numbers.append(number)
            files += made.files
    return Exported(
        path=root,
        lake=place.path,
        exports=tuple(numbers),
        rows=sum(file.rows for file in files),
        files=len(files),
        bytes=sum(file.bytes for file in files),
        streams=tuple(_exported(one, files) for one in plans),
        seconds=time.monotonic() - began,
    )


def follow(
    spark: SparkSession,
    path: str | os.PathLike[str],
    lake: str | os.PathLike[str],
    *,
    interval: float = 10.0,
    stop: threading.Event | None = None,
    on_export: Callable[[Exported], None] | None = None,
    **options: object,
) -> int:
    """Export every `interval` seconds, from start to start, until `stop` is set or SIGINT; returns the number of runs.

    A running export is finished first. The options are those of `run`.
    """
    stop, count = stop or threading.Event(), 0
    with _stopped_by_signal(stop):
        while not stop.is_set():
            began = time.monotonic()
            try:
                done = run(spark, path, lake, **options)  # type: ignore[arg-type]
            except Exception:
                if stop.is_set():  # Ctrl-C ends Spark's workers too: their unfinished work is discarded
                    break
                raise
            count += 1
            if on_export is not None:
                on_export(done)
            stop.wait(max(0.0, began + interval - time.monotonic()))
    return count


@contextmanager
def _stopped_by_signal(stop: threading.Event) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _settings(lake: Lake, partition_by: Sequence[str] | None, headers: str | None, compression: str | None) -> Settings:
    """The settings of the lake, or the defaults of a new one, overridden by the given ones."""
    known = lake.settings() if lake.exists else Settings()
    found = Settings(
        known.partition_by if partition_by is None else tuple(partition_by),
        known.headers if headers is None else headers,
        known.compression if compression is None else compression,
    )
    for name in found.partition_by:
        check_partition(name)
    if found.headers not in ("map", "raw", "none"):
        raise LakeError(f"headers={found.headers!r}: map, raw or none")
    return found


def _cores(spark: SparkSession) -> int:
    context = getattr(spark, "_sc", None)
    return context.defaultParallelism if context is not None else 2


# Planning.


def _plan_stream(
    view: StreamView, folder: str, known: StreamInLake | None, changed: Changed, unexplained: Unexplained, cores: int
) -> _Plan:
    found = read_deletes(
        folder, view.stream_id, known.position if known else _end(view), known.epoch if known else view.epoch, view.disk
    )
    why = what_changed(view, known, found)
    if why is not None:
        if changed == "fail":
            raise LakeError(
                f"stream {view.name}: {why}; export it with changed=restart to begin it anew (the rows of before "
                "no longer count), or to another lake"
            )
        known, found = None, read_deletes(folder, view.stream_id, _end(view), view.epoch, view.disk)
    removed = what_went(view, folder, known, found, unexplained)
    first = known.last + 1 if known else 1
    size = sum(block.stop - block.start for block in view.blocks if block.stop_seq > first)
    parts = plan(view, start_seq=first, max_bytes=PART_BYTES, min_parts=max(1, min(cores, size // SPLIT_FROM)))
    return _Plan(view, removed, first, why is not None, parts)


def _end(view: StreamView) -> Position | None:
    """The last block: a lake without rows need not read earlier delete records."""
    return Position(view.blocks[-1].block_id, view.blocks[-1].salt) if view.blocks else None


# Execution, step by step.


def _steps(plans: list[_Plan], step_bytes: int) -> Iterator[list[tuple[_Plan, list[Part]]]]:
    """The contents of each manifest: parts in order, about `step_bytes` together, and every stream with changes."""
    step: list[tuple[_Plan, list[Part]]] = []
    size = 0
    for one in plans:
        has_news = bool(one.removed.hidden or one.removed.unexplained) or one.view.last_seq >= one.first
        if not has_news and not one.is_restarted:
            continue
        step.append((one, []))
        for part in one.parts:
            if size and size + part.size > step_bytes:
                yield step if step[-1][1] else step[:-1]
                step, size = [(one, [])], 0
            step[-1][1].append(part)
            size += part.size
    if step:
        yield step


def _write(
    spark: SparkSession,
    lake: Lake,
    root: str,
    number: int,
    step: list[tuple[_Plan, list[Part]]],
    write: Callable[..., ExportTask],
    on_progress: OnProgress | None,
) -> Manifest:
    """One export: write the step's parts to the staging folder, then commit them."""
    run_id = f"{number:08}-{os.urandom(4).hex()}"
    staging = lake.staging(run_id)
    parts = [part for _, some in step for part in some]
    tasks = [write(part=part, number=at, staging=staging) for at, part in enumerate(parts)]
    files: list[LakeFile] = []
    if tasks:
        try:
            with watched(spark, on_progress):
                rows = job_frame(spark, "lake", FILE_SCHEMA, partial(list, tasks), write_task).collect()
        except BaseException:
            lake.discard(run_id)
            raise
        files = [LakeFile(**row.asDict()) for row in rows]
    files.sort(key=lambda file: (file.stream, file.first_seq, file.path))
    manifest = Manifest(
        export=number,
        run=run_id,
        written=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        store=root,
        streams=[_stream_export(one, some, files) for one, some in step],
        files=files,
    )
    lake.commit(manifest)
    return manifest


def _stream_export(one: _Plan, parts: list[Part], files: list[LakeFile]) -> StreamExport:
    """The step's result for a stream; the stream's first step also carries the deletes."""
    is_end = not parts or parts[-1] is one.parts[-1]
    first, is_first = one.first, not one.is_begun
    last = one.view.last_seq if is_end else parts[-1].high - 1
    one.first, one.is_begun = last + 1, True
    return StreamExport(
        stream=one.view.name,
        stream_id=one.view.stream_id.hex(),
        epoch=one.view.epoch,
        first=first,
        last=last,
        rows=sum(file.rows for file in files if file.stream == one.view.name),
        position=one.removed.position,
        gone=pack(one.removed.gone),
        deletes={reason: seqs.ranges() for reason, seqs in one.removed.hidden.items()} if is_first else {},
        unexplained=one.removed.unexplained.ranges() if is_first else [],
        is_restarted=one.is_restarted and is_first,
    )


def _exported(one: _Plan, files: list[LakeFile]) -> StreamExported:
    mine = [file for file in files if file.stream == one.view.name]
    first = mine[0].first_seq if mine else one.first
    return StreamExported(
        one.view.name,
        first,
        one.view.last_seq,
        sum(file.rows for file in mine),
        sum(len(seqs) for seqs in one.removed.hidden.values()),
        len(one.removed.unexplained),
    )


__all__ = ["Exported", "LakeError", "StreamExported", "follow", "run"]
