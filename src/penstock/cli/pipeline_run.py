"""pipeline_run: a pipeline's Spark session, its progress, its errors in one line, and its formatted result."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from penstock.cli.output import (
    DAMAGED,
    OK,
    REFUSED,
    complain,
    console,
    count,
    escape,
    inclusive,
    print_json,
    print_table,
    size,
    table,
)
from penstock.cli.verify import print_check, problem_facts
from penstock.errors import PenstockError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipelines.report import Facts
    from penstock.spark.pipelines.verify import Verified

OnProgress = Callable[[int, int], None]
_OURS = re.compile(r"PenstockSparkError: (.+)")
_FORMATS = (".parquet", ".csv", ".jsonl")


class PipelineFailed(PenstockError):
    """A Spark job failed with an error that is not ours; its log is kept."""


@contextmanager
def spark_session(master: str, conf: Sequence[str] | None) -> Iterator[SparkSession]:
    """A session for one command. The JVM's log goes to a file, which an error names if nothing else explains it."""
    settings = {"spark.master": master}
    for one in conf or ():
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise UsageError(f"--conf {one!r}: KEY=VALUE is wanted, such as spark.driver.memory=4g")
        settings[name if name.startswith("spark.") else f"spark.{name}"] = value
    from penstock.spark import session

    if find_spec("pyspark") is None:
        raise UsageError("pyspark is not installed: pip install 'penstock[spark]'")
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    is_ours = SparkSession.getActiveSession() is None
    with tempfile.NamedTemporaryFile("w+b", prefix="penstock-spark-", suffix=".log", delete=False) as log:
        spark = None
        try:
            with _stderr_to(log.fileno()) if is_ours else _nothing():
                spark = session(**settings)
            yield spark
        except PySparkException as error:
            kept = f"{log.name}.kept"
            text = explain(str(error), kept if is_ours else "")
            if kept in text:
                os.link(log.name, kept)
            raise PipelineFailed(text) from None
        finally:
            if is_ours and spark is not None:
                spark.stop()
            os.unlink(log.name)


def explain(text: str, log: str) -> str:
    """The text of our own error if there is one; else the first line of Spark's, and the path of the log."""
    found = _OURS.findall(text)
    if found:
        return str(found[-1])
    first = text.strip().splitlines()[0] if text.strip() else "Spark failed"
    return f"{first} (Spark's log: {log})" if log else first


@contextmanager
def _stderr_to(fd: int) -> Iterator[None]:
    """Make a JVM that starts while the block runs write its log to `fd`, for its whole life."""
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        os.dup2(fd, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def task_progress(label: str) -> Iterator[OnProgress | None]:
    """A progress bar of tasks on standard error; nothing if that is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("tasks"), TimeElapsedColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


# verify


def run_verify(
    root: str, streams: Sequence[str] | None, account: str | None, out: str | None, as_json: bool, master: str,
    conf: Sequence[str] | None,
) -> int:  # fmt: skip
    from penstock.spark.pipelines import verify

    if out is not None and not out.endswith(_FORMATS):
        raise UsageError(f"--out {out}: the name ends in {', '.join(_FORMATS)}")
    with spark_session(master, conf) as spark, task_progress("verifying") as on_progress:
        found = verify.run(spark, root, streams=streams or None, account=account, on_progress=on_progress)
        if out is not None:
            _write_table(found.damage.toArrow(), out)
    if as_json:
        print_json(verify_facts(found))
    else:
        print_check(found.check, f", {count(found.tasks, 'task')}")
    return OK if found.check.is_ok else DAMAGED


def _write_table(rows: Any, path: str) -> None:
    """Write an Arrow table to a file, in the format of its extension."""
    if path.endswith(".parquet"):
        from pyarrow.parquet import write_table

        write_table(rows, path)
    elif path.endswith(".csv"):
        from pyarrow.csv import write_csv

        write_csv(rows, path)
    else:
        import json

        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows.to_pylist())


def verify_facts(found: Verified) -> dict[str, Any]:
    """The result for JSON: all problems in one list, each with its stream."""
    check = found.check
    problems = [
        {"stream": label, "block": problem.block_id or None} | problem_facts(problem)
        for label, problem in found.problems
    ]
    streams = [
        {"stream": one.folder.label, "blocks": one.blocks, "bytes": one.bytes, "messages": one.messages,
         "controls": one.controls, "account": one.folder.account, "lost": inclusive(one.lost)}
        for one in check.streams
    ]  # fmt: skip
    return {
        "store": check.root,
        "ok": check.is_ok,
        "writer": check.holder,
        "damage": len(check.damage),
        "known": len(check.known),
        "seconds": round(check.seconds, 3),
        "cpu_seconds": round(found.cpu_seconds, 3),
        "tasks": found.tasks,
        "streams": streams,
        "problems": problems,
        "notes": [note for one in check.streams for note in one.notes],
    }


# state


def run_state(
    root: str, streams: Sequence[str] | None, account: str | None, report: str | None, tables: str | None,
    duplicates: Any, mode: Any, top: int, as_json: bool, master: str, conf: Sequence[str] | None,
) -> int:  # fmt: skip
    from penstock.spark.pipelines import state

    with spark_session(master, conf) as spark, task_progress("counting") as on_progress:
        found = state.run(
            spark, root, streams=streams or None, account=account, duplicates=duplicates, mode=mode, top=top,
            on_progress=on_progress,
        )  # fmt: skip
        try:
            for name in (
                ("streams", "subjects", "minutes", "hours", "percentiles", "gaps", "duplicates", "consumers")
                if tables
                else ()
            ):
                getattr(found, name).write.mode("overwrite").parquet(os.path.join(str(tables), name))
        finally:
            found.close()
    if report is not None:
        found.write_report(report)
    if as_json:
        facts = found.facts
        print_json({
            "store": found.path, "seconds": round(found.seconds, 3), "streams": facts.streams,
            "percentiles": facts.percentiles, "top_subjects": facts.top_subjects, "gaps": facts.gaps,
            "duplicates": facts.duplicates, "consumers": list(map(_with_times_as_text, facts.consumers)),
        })  # fmt: skip
    else:
        _print_state(found.facts)
    if report is not None and not as_json:
        console().print(f"report: {escape(report)}", soft_wrap=True)
    return OK


def _with_times_as_text(row: dict[str, Any]) -> dict[str, Any]:
    """A row with its timestamps in UTC; Spark returns them in this process's local time, without a zone."""
    return {name: value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
            for name, value in row.items()}  # fmt: skip


def _print_state(facts: Facts) -> None:
    from penstock.spark.pipelines.report import CONSUMERS_SHOWN, format_bytes, format_wait

    out = console()
    # Two tables: in 80 columns the numbers of a single one would leave no space for the stream's name.
    numbers = ("messages", "stored", "subjects", "gaps", "repeated")
    rates = ("per minute", "peak minute")
    held, came = table("stream", *numbers, right=numbers), table("stream", *rates, right=rates)
    for row in [*facts.streams[1:], *(facts.streams[:1] if len(facts.streams) > 2 else ())]:
        name = "all" if row["stream"] == "*" else escape(row["stream"])
        held.add_row(
            name, f"{row['messages']:,}", size(row["bytes"]), f"{row['subjects']:,}",
            f"{row['deleted'] + row['skipped'] + row['lost']:,}", f"{row['duplicates']:,}",
        )  # fmt: skip
        came.add_row(name, f"{row['mean_per_minute']:,.0f}", f"{row['peak_per_minute']:,}")
    print_table(out, held)
    print_table(out, came)
    columns = ("min", "p50", "p90", "p99", "max")
    made = table("stream", "of", *columns, right=columns)
    for row in (row for row in facts.percentiles if row["stream"] != "*" or len(facts.streams) > 2):
        text = format_bytes if row["what"] == "size" else format_wait
        name = "all" if row["stream"] == "*" else escape(row["stream"])
        made.add_row(name, "size" if row["what"] == "size" else "time between", *(text(row[one]) for one in columns))
    print_table(out, made)
    made = table(
        "stream", "subject", "messages", "bytes", "first", "last", right=("messages", "bytes", "first", "last")
    )
    for row in facts.top_subjects:
        made.add_row(
            escape(row["stream"]), escape(row["subject"]), f"{row['messages']:,}", size(row["data_bytes"] or 0),
            str(row["first_seq"]), str(row["last_seq"]),
        )  # fmt: skip
    print_table(out, made)
    if facts.consumers:
        columns = ("delivered", "acked", "pending", "behind", "given up")
        made = table("stream", "consumer", *columns, right=columns)
        for row in facts.consumers[:CONSUMERS_SHOWN]:
            made.add_row(
                escape(row["stream"]), escape(row["consumer"]), f"{row['delivered_seq']:,}",
                f"{row['ack_floor_seq']:,}", f"{row['num_ack_pending']:,}", f"{row['num_pending']:,}",
                f"{row['num_given_up']:,}",
            )  # fmt: skip
        print_table(out, made)


# migrate


def run_migrate(
    root: str, source: str, stream: str | None, account: str | None, subjects: Sequence[str] | None, as_json: bool,
    master: str, conf: Sequence[str] | None,
) -> int:  # fmt: skip
    from penstock.spark.pipelines import migrate

    with spark_session(master, conf) as spark, task_progress("migrating") as on_progress:
        found = migrate.run(
            spark, root, source, stream=stream, account=account, subjects=subjects or None, on_progress=on_progress
        )
    if as_json:
        print_json({"store": found.path, "streams": [asdict(one) for one in found.streams]})
    else:
        for one in found.streams:
            gaps = f", {count(one.skipped, 'sequence')} skipped that it does not have" if one.skipped else ""
            text = f"{one.stream}: {count(one.messages, 'message')} from {one.source}{gaps}"
            console().print(text, soft_wrap=True, markup=False)
    for one in found.streams:
        if one.bad:
            complain(f"{one.source}: {count(one.bad, 'line')} could not be taken; they are in {one.set_aside}")
    return OK if found.is_whole else REFUSED


# lake, replay, decode: docs/lake.md


def run_lake(
    root: str, lake: str, options: dict[str, Any], interval: float | None, as_json: bool, master: str,
    conf: Sequence[str] | None,
) -> int:  # fmt: skip
    from penstock.spark.pipelines import lake as pipeline

    def tell(found: Any) -> None:
        if as_json:
            print_json(asdict(found))
            return
        if not found.exports:
            console().print(f"{lake}: nothing new", markup=False, soft_wrap=True)
            return
        text = f"{lake}: {count(found.rows, 'message')} in {count(found.files, 'file')}, {size(found.bytes)}"
        hidden = sum(one.hidden for one in found.streams)
        gone = f", {count(hidden, 'row')} of before hidden" if hidden else ""
        console().print(f"{text}{gone} ({found.seconds:.1f} s)", markup=False, soft_wrap=True)

    with spark_session(master, conf) as spark:
        if interval is not None:
            pipeline.follow(spark, root, lake, interval=interval, on_export=tell, **options)
        else:
            with task_progress("exporting") as on_progress:
                found = pipeline.run(spark, root, lake, on_progress=on_progress, **options)
            tell(found)
    return OK


def run_replay(
    root: str, to: str, options: dict[str, Any], as_json: bool, master: str, conf: Sequence[str] | None
) -> int:  # fmt: skip
    from penstock.spark.pipelines import replay

    with spark_session(master, conf) as spark, task_progress("replaying") as on_progress:
        found = replay.run(spark, root, to, on_progress=on_progress, **options)
    if as_json:
        print_json(asdict(found))
    else:
        text = f"{count(found.rows, 'message')} into {found.target} ({found.seconds:.1f} s)"
        console().print(text, markup=False, soft_wrap=True)
    return OK


def run_decode(
    root: str, output: str, options: dict[str, Any], as_json: bool, master: str, conf: Sequence[str] | None
) -> int:  # fmt: skip
    from penstock.spark.pipelines import decode

    with spark_session(master, conf) as spark, task_progress("decoding") as on_progress:
        found = decode.run(spark, root, output, on_progress=on_progress, **options)
    if as_json:
        print_json(asdict(found))
    else:
        text = f"{count(found.rows, 'row')} in {found.output} ({found.seconds:.1f} s): {found.schema}"
        console().print(text, markup=False, soft_wrap=True)
    if found.bad:
        complain(f"{count(found.bad, 'payload')} could not be decoded")
    return REFUSED if found.bad else OK


# warm


def run_warm(as_json: bool) -> int:
    if find_spec("pyspark") is None:
        raise UsageError("pyspark is not installed: pip install 'penstock[spark]'")
    from penstock.spark.class_archive import make_archive

    complain("a small job finds the classes that Spark loads, then Java archives them: a minute or two")
    made = make_archive()
    if as_json:
        print_json(asdict(made))
    else:
        classes = count(made.classes, "class", "classes")
        text = f"{classes} in {made.path} ({size(made.size)}): sessions on this machine start with them"
        console().print(text, markup=False, soft_wrap=True)
    return OK
