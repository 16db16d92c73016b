"""penstock pipeline NAME: the jobs of penstock.spark on the command line. Page: docs/pipelines.md."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

pipeline_app = typer.Typer(
    no_args_is_help=True,
    help="Jobs that run in parallel on Spark: on this machine, or on a cluster with --master. "
    "They need `pip install 'penstock\\[spark]'`; Java comes with it where the system has none.",
    epilog="Exit codes: 0 done · 1 damage found, or something set aside · 2 the pipeline could not run. "
    "The page is docs/pipelines.md.",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)


class Repeats(StrEnum):
    id = "id"
    payload = "payload"
    both = "both"
    none = "none"


class OnBad(StrEnum):
    column = "column"
    drop = "drop"
    fail = "fail"


class Headers(StrEnum):
    map = "map"
    raw = "raw"
    none = "none"


class Changed(StrEnum):
    fail = "fail"
    restart = "restart"


class OnDamage(StrEnum):
    fail = "fail"
    skip = "skip"


class Unexplained(StrEnum):
    auto = "auto"
    keep = "keep"
    hide = "hide"
    fail = "fail"


def _option(*names: str, help: str, metavar: str | None = None, **more: Any) -> Any:
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, **more)


def _argument(metavar: str, help: str) -> Any:
    return typer.Argument(metavar=metavar, help=help, show_default=False)


Dir = Annotated[str, _argument("DIR", "The store: the directory given to penstock.open().")]
Target = Annotated[str, _argument("DIR", "The store; made when it is not there.")]
Source = Annotated[str, _argument("SOURCE", "messages.jsonl, its folder, a folder of such folders, or Parquet.")]
LakeDir = Annotated[str, _argument("LAKE", "The lake's directory; made when it is not there.")]
ToDir = Annotated[str, _argument("TO", "The store to write to; it may be the same.")]
Output = Annotated[str, _argument("OUTPUT", "The directory for the Parquet files.")]

Master = Annotated[
    str,
    typer.Option("--master", metavar="URL", help="Where Spark runs: local\\[4], spark://HOST:7077, yarn, k8s://URL."),
]
Conf = Annotated[
    list[str] | None,
    _option("--conf", metavar="K=V", help="A setting of Spark; may be repeated: spark.driver.memory=4g."),
]
Streams = Annotated[
    list[str] | None,
    _option("--stream", "-s", metavar="S", help="Only this stream, or ACCOUNT/STREAM; may be repeated."),
]
OneStream = Annotated[str | None, _option("--stream", "-s", metavar="S", help="The stream, or ACCOUNT/STREAM.")]
Account = Annotated[str | None, _option("--account", "-a", metavar="A", help="Only this account; default: all.")]
IntoAccount = Annotated[str | None, _option("--account", "-a", metavar="A", help="Into this account.")]
ToAccount = Annotated[
    str | None, _option("--to-account", metavar="A", help="The account to write to; default: that of --account.")
]
Subjects = Annotated[
    list[str] | None, _option("--subject", metavar="F", help="Only these subjects, wildcards allowed: 'orders.eu.>'.")
]
NewSubjects = Annotated[
    list[str] | None,
    _option(
        "--subjects", metavar="F", help="Subjects of a new stream; may be repeated. Default: FIRST_TOKEN.> of each."
    ),
]
Since = Annotated[str | None, _option("--since", metavar="T", help="Stored at or after: 2026-11-01, -1h.")]
Until = Annotated[str | None, _option("--until", metavar="T", help="Stored before; written like --since.")]
StartSeq = Annotated[int | None, _option("--start-seq", metavar="N", min=0, help="From this sequence on.")]
StopSeq = Annotated[int | None, _option("--stop-seq", metavar="N", min=0, help="Before this sequence.")]
Lake = Annotated[
    str | None, _option("--lake", metavar="LAKE", help="Read exported messages from this lake: docs/lake.md.")
]
Json = Annotated[bool, _option("--json", help="One JSON object on standard output.")]
Out = Annotated[str | None, _option("--out", "-o", metavar="FILE", help="Damage as .parquet, .csv or .jsonl.")]
Report = Annotated[str | None, _option("--report", metavar="FILE", help="Write a report in HTML, with plots.")]
Tables = Annotated[str | None, _option("--tables", metavar="FOLDER", help="Write the tables as Parquet.")]
Top = Annotated[int, typer.Option("--top", metavar="N", min=1, help="How many subjects, gaps and duplicates to list.")]
Duplicates = Annotated[Repeats, typer.Option("--duplicates", help="By what two messages count as duplicates.")]
SkipDamaged = Annotated[bool, _option("--skip-damaged", help="Leave out damaged messages instead of stopping.")]
LOCAL = "local[*]"


@pipeline_app.command("verify", epilog="Example: penstock pipeline verify data --out damage.csv && echo sound")
def verify_command(
    root: Dir,
    stream: Streams = None,
    account: Account = None,
    out: Out = None,
    as_json: Json = False,
    master: Master = LOCAL,
    conf: Conf = None,
) -> int:
    """Check every checksum of every block of a store of any size.

    Exits with 1 on damage. Damage that a repair has recorded is listed as known and does not fail.
    """
    from penstock.cli.pipeline_run import run_verify

    return run_verify(root, stream, account, out, as_json, master, conf)


@pipeline_app.command("state", epilog="Example: penstock pipeline state data --report state.html")
def state_command(
    root: Dir,
    stream: Streams = None,
    account: Account = None,
    report: Report = None,
    tables: Tables = None,
    duplicates: Duplicates = Repeats.id,
    skip_damaged: SkipDamaged = False,
    top: Top = 20,
    as_json: Json = False,
    master: Master = LOCAL,
    conf: Conf = None,
) -> int:
    """Count subjects, sizes, rates, times between messages, duplicates and gaps.

    Per stream and in all; as tables, and as one HTML file with plots that needs nothing else.
    """
    from penstock.cli.pipeline_run import run_state

    mode = "skip" if skip_damaged else "fail"
    return run_state(root, stream, account, report, tables, duplicates.value, mode, top, as_json, master, conf)


@pipeline_app.command("migrate", epilog="Example: penstock pipeline migrate data old/ --master spark://host:7077")
def migrate_command(
    root: Target,
    source: Source,
    stream: OneStream = None,
    account: IntoAccount = None,
    subjects: NewSubjects = None,
    as_json: Json = False,
    master: Master = LOCAL,
    conf: Conf = None,
) -> int:
    """Turn old messages.jsonl files and Parquet into streams, with their sequences and times.

    A source is stored whole or not at all, and is not changed. Exits with 1 when some lines were set aside.
    """
    from penstock.cli.pipeline_run import run_migrate

    return run_migrate(root, source, stream, account, subjects, as_json, master, conf)


@pipeline_app.command(
    "lake", epilog="Example: penstock pipeline lake data lake --partition-by stream --partition-by day"
)
def lake_command(
    root: Dir,
    lake: LakeDir,
    stream: Streams = None,
    account: Account = None,
    partition_by: Annotated[
        list[str] | None,
        _option("--partition-by", metavar="P", help="A partition column of a new lake; may be repeated."),
    ] = None,
    headers: Annotated[Headers | None, _option("--headers", help="How a new lake stores headers.")] = None,
    compression: Annotated[
        str | None, _option("--compression", metavar="C", help="Compression of a new lake: zstd, snappy.")
    ] = None,
    max_rows: Annotated[
        int | None, _option("--max-rows", metavar="N", min=1, help="Rows per file; default: 5,000,000.")
    ] = None,
    max_bytes: Annotated[
        int | None, _option("--max-bytes", metavar="N", min=1, help="Bytes per file; default: 134,217,728.")
    ] = None,
    damage: Annotated[OnDamage, typer.Option("--damage", help="What to do with a damaged block.")] = OnDamage.fail,
    changed: Annotated[
        Changed, typer.Option("--changed", help="What to do when a stream was recreated or truncated.")
    ] = Changed.fail,
    unexplained: Annotated[
        Unexplained,
        typer.Option("--unexplained", help="What to do with rows whose messages vanished without a record."),
    ] = Unexplained.auto,
    follow: Annotated[bool, _option("--follow", help="Export again and again, until interrupted.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", metavar="S", min=0.1, help="With --follow: seconds between starts.")
    ] = 10.0,
    as_json: Json = False,
    master: Master = LOCAL,
    conf: Conf = None,
) -> int:
    """Export what is new to partitioned Parquet, every message exactly once: docs/lake.md."""
    from penstock.cli.pipeline_run import run_lake

    options: dict[str, Any] = {
        "streams": stream or None, "account": account, "partition_by": partition_by or None, "compression": compression,
        "headers": headers.value if headers is not None else None, "changed": changed.value,
        "unexplained": unexplained.value, "mode": damage.value,
    }  # fmt: skip
    options |= {name: bound for name, bound in (("max_rows", max_rows), ("max_bytes", max_bytes)) if bound is not None}
    return run_lake(root, lake, options, interval if follow else None, as_json, master, conf)


@pipeline_app.command(
    "replay", epilog="Example: penstock pipeline replay data data -s ORDERS --to-stream COPY --since -1h"
)
def replay_command(
    root: Dir,
    to: ToDir,
    to_stream: Annotated[str, _option("--to-stream", metavar="S", help="The stream to write to; it exists.")],
    stream: Streams = None,
    account: Account = None,
    to_account: ToAccount = None,
    subject: Subjects = None,
    since: Since = None,
    until: Until = None,
    start_seq: StartSeq = None,
    stop_seq: StopSeq = None,
    where: Annotated[
        str | None, _option("--where", metavar="SQL", help="A condition: \"subject like '%.eu'\".")
    ] = None,
    transform: Annotated[
        str | None,
        _option("--transform", metavar="M:F", help="A function on the DataFrame: module:name, file.py:name."),
    ] = None,
    keep_times: Annotated[bool, _option("--keep-times", help="Keep the times that the messages had.")] = False,
    lake: Lake = None,
    as_json: Json = False,
    master: Master = LOCAL,
    conf: Conf = None,
) -> int:
    """Append a range of messages, filtered and transformed, to another stream: docs/lake.md."""
    from penstock.cli.pipeline_run import run_replay

    options = {
        "stream": stream or None, "account": account, "to_stream": to_stream, "to_account": to_account,
        "lake": lake, "subjects": subject or None, "since": since,
        "until": until, "start_seq": start_seq, "stop_seq": stop_seq, "where": where, "transform": transform,
        "keep_times": keep_times,
    }  # fmt: skip
    return run_replay(root, to, options, as_json, master, conf)


@pipeline_app.command(
    "decode", epilog="Example: penstock pipeline decode data decoded -s ORDERS --schema 'id LONG, eur DOUBLE'"
)
def decode_command(
    root: Dir,
    output: Output,
    stream: Streams = None,
    account: Account = None,
    subject: Subjects = None,
    since: Since = None,
    until: Until = None,
    start_seq: StartSeq = None,
    stop_seq: StopSeq = None,
    schema: Annotated[
        str | None, _option("--schema", metavar="DDL", help="The fields; default: inferred from a sample.")
    ] = None,
    prefix: Annotated[str, _option("--prefix", metavar="P", help="Prefix of the field names.")] = "",
    into: Annotated[str | None, _option("--into", metavar="C", help="All fields in one column of this name.")] = None,
    on_bad: Annotated[
        OnBad, typer.Option("--on-bad", help="What to do with a payload that is not JSON of the schema.")
    ] = OnBad.column,
    partition_by: Annotated[
        list[str] | None, _option("--partition-by", metavar="C", help="A partition column; may be repeated.")
    ] = None,
    overwrite: Annotated[bool, _option("--overwrite", help="Replace what is in OUTPUT.")] = False,
    lake: Lake = None,
    as_json: Json = False,
    master: Master = LOCAL,
    conf: Conf = None,
) -> int:
    """Write messages with the fields of their JSON payloads as columns: docs/lake.md."""
    from penstock.cli.pipeline_run import run_decode

    options = {
        "stream": stream or None, "account": account, "lake": lake, "subjects": subject or None,
        "since": since, "until": until,
        "start_seq": start_seq, "stop_seq": stop_seq, "schema": schema, "prefix": prefix, "into": into,
        "on_bad": on_bad.value, "partition_by": tuple(partition_by or ()),
        "mode": "overwrite" if overwrite else "error",
    }  # fmt: skip
    return run_decode(root, output, options, as_json, master, conf)


@pipeline_app.command("warm", epilog="Example: penstock pipeline warm")
def warm_command(as_json: Json = False) -> int:
    """Make Spark start faster on this machine: archive its Java classes in ~/.cache/penstock."""
    from penstock.cli.pipeline_run import run_warm

    return run_warm(as_json)
