"""The commands, their options and their help; how errors become one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from penstock.cli.output import INTERRUPTED, OK, PIPE_CLOSED, UNUSABLE, complain
from penstock.cli.pipeline import pipeline_app
from penstock.errors import PenstockError

# Typer brings its own copy of Click from 0.16 on and uses the installed one before: ask a class for its family.
_ClickError: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="penstock",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Serve streams; inspect, check, repair, copy and migrate the streams of a store offline. "
    "Commands that only read work beside a running writer. Those that write take its lock, or name who holds it.",
    epilog="Exit codes: 0 done · 1 damage found, or something refused · 2 the command could not run. "
    "`penstock COMMAND --help` has examples; the page is docs/cli.md.",
)


class Form(StrEnum):
    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"


def _option(*names: str, help: str, metavar: str | None = None, **more: Any) -> Any:
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, **more)


def _argument(metavar: str, help: str) -> Any:
    return typer.Argument(metavar=metavar, help=help, show_default=False)


Dir = Annotated[str, _argument("DIR", "The store: the directory given to penstock.open().")]
Seqs = Annotated[list[str], _argument("SEQ", "Sequences, or ranges such as 20-25.")]
File = Annotated[str | None, _argument("FILE", "JSONL as export writes it; default: standard input.")]
Source = Annotated[str, _argument("SOURCE", "messages.jsonl, its folder, or a folder of such folders.")]

Streams = Annotated[
    list[str] | None,
    _option("--stream", "-s", metavar="S", help="Only this stream, or ACCOUNT/STREAM; may be repeated."),
]
OneStream = Annotated[str | None, _option("--stream", "-s", metavar="S", help="The stream, or ACCOUNT/STREAM.")]
Account = Annotated[str | None, _option("--account", "-a", metavar="A", help="Only this account; default: all.")]
IntoAccount = Annotated[
    str | None, _option("--account", "-a", metavar="A", help="Into this account; overrides the lines.")
]
IntoStream = Annotated[
    str | None,
    _option("--stream", "-s", metavar="S", help="Into this stream, or ACCOUNT/STREAM; overrides the lines."),
]
Subjects = Annotated[
    list[str] | None,
    _option("--subject", metavar="F", help="Only these subjects, wildcards allowed: 'orders.eu.>'."),
]
CountSubject = Annotated[str | None, _option("--subject", metavar="F", help="Count only these: 'orders.eu.>'.")]
NewSubjects = Annotated[
    list[str] | None,
    _option(
        "--subjects", metavar="F", help="Subjects of a new stream; may be repeated. Default: FIRST_TOKEN.> of each."
    ),
]
Since = Annotated[
    str | None, _option("--since", metavar="T", help="Stored at or after: 2026-11-01, 2026-11-01T12:00Z, -1h.")
]
Until = Annotated[str | None, _option("--until", metavar="T", help="Stored before; written like --since.")]
StartSeq = Annotated[int | None, _option("--start-seq", metavar="N", min=0, help="From this sequence on.")]
Top = Annotated[int, typer.Option("--top", metavar="N", min=0, help="How many subjects to list.")]
Json = Annotated[bool, _option("--json", help="One JSON object on standard output.")]
DryRun = Annotated[bool, _option("--dry-run", "-n", help="Print what would be done; write nothing.")]
SkipExisting = Annotated[bool, _option("--skip-existing", help="Skip lines up to the stream's last sequence.")]
Format = Annotated[Form, typer.Option("--format", "-f", help="JSONL and CSV go to standard output without --out.")]
Out = Annotated[
    str | None,
    _option("--out", "-o", metavar="PATH", help="A file; for Parquet also FOLDER/, with a file for each stream."),
]


@app.command("serve", add_help_option=False, epilog="Example: penstock serve -js -sd data")
def serve_command(
    flags: Annotated[list[str] | None, _argument("FLAGS", "nats-server's flags; see: penstock serve -h")] = None,
) -> int:
    """Run a NATS server with JetStream; it takes nats-server's flags and configuration file.

    (`main` runs it before this module is imported, so that it starts fast. It is here for the list of commands.)
    """
    from penstock.cli.serve import main as serve

    return serve(flags or [])


@app.command("inspect", epilog="Example: penstock inspect data --stream ORDERS --subject 'orders.eu.>'")
def inspect_command(
    root: Dir,
    stream: Streams = None,
    account: Account = None,
    subject: CountSubject = None,
    top: Top = 10,
    as_json: Json = False,
) -> int:
    """Show streams, blocks, subjects, the current writer, and known damage.

    Reads only the index, so it is fast for a store of any size; `verify` reads everything.
    """
    from penstock.cli.inspect import inspect

    return inspect(root, stream or [], account, subject, top, as_json)


@app.command("why", epilog="Example: penstock why data ORDERS billing, or penstock why data ORDERS 1042")
def why_command(
    root: Dir,
    stream: Annotated[str, _argument("STREAM", "The stream, or ACCOUNT/STREAM.")],
    about: Annotated[str, _argument("CONSUMER|SEQ", "A consumer's name, or a message's sequence.")],
    account: Account = None,
    as_json: Json = False,
) -> int:
    """Explain why a consumer does not deliver, or what happened to a message.

    A consumer: paused, max_ack_pending reached, filter matches nothing, next redelivery. A message: stored, deleted by
    a request or a limit, how often delivered. A running server also knows the pull requests: $SYS.REQ.PENSTOCK.WHY.
    """
    from penstock.cli.why import why

    return why(root, stream, about, account, as_json)


@app.command("verify", epilog="Example: penstock verify data && echo sound")
def verify_command(root: Dir, stream: Streams = None, account: Account = None, as_json: Json = False) -> int:
    """Check every checksum of every file; name damage by file, offset and sequence.

    Exits with 1 on damage. Damage that a repair has recorded is listed as known and does not fail.
    """
    from penstock.cli.verify import verify

    return verify(root, stream or [], account, as_json)


@app.command("repair", epilog="Example: penstock repair data --dry-run, then penstock repair data")
def repair_command(
    root: Dir, stream: Streams = None, account: Account = None, dry_run: DryRun = False, as_json: Json = False
) -> int:
    """Keep everything readable, set the rest aside, print what was lost.

    Damaged bytes are copied to NNNNNN.blk.OFFSET.damaged; the stream records the messages that are lost.
    """
    from penstock.cli.repair import repair

    return repair(root, stream or [], account, dry_run, as_json)


@app.command("export", epilog="Example: penstock export data -s ORDERS -f parquet -o orders.parquet --since -1h")
def export_command(
    root: Dir,
    form: Format = Form.jsonl,
    out: Out = None,
    stream: Streams = None,
    account: Account = None,
    subject: Subjects = None,
    since: Since = None,
    until: Until = None,
    start_seq: StartSeq = None,
) -> int:
    """Write messages as JSONL, CSV or Parquet, in sequence order.

    JSONL and CSV have stream, seq, time_ns, subject, headers_b64, payload_b64; Parquet the columns of to_arrow().
    """
    from penstock.cli.export import export

    return export(root, stream or [], form.value, out, subject or [], since, until, start_seq, account)


@app.command("import", epilog="Example: penstock export old | penstock import new")
def import_command(
    root: Dir,
    file: File = None,
    stream: IntoStream = None,
    account: IntoAccount = None,
    subjects: NewSubjects = None,
    skip_existing: SkipExisting = False,
    as_json: Json = False,
) -> int:
    """Store JSONL lines with their sequences and times; creates missing streams.

    Sequences must rise from above the stream's last; gaps stay gaps. A bad line stops the import before its batch.
    """
    from penstock.cli.import_jsonl import import_lines

    return import_lines(root, file, stream, account, subjects or [], skip_existing, as_json)


@app.command("erase", epilog="Example: penstock erase data --stream ORDERS 17 20-25")
def erase_command(
    root: Dir, seqs: Seqs, stream: OneStream = None, account: Account = None, as_json: Json = False
) -> int:
    """Delete messages and overwrite their headers and payload on disk.

    Afterwards no file of the store holds them. Copies elsewhere (exports, backups) are not touched.
    """
    from penstock.cli.erase import erase

    return erase(root, stream, account, seqs, as_json)


@app.command("migrate", epilog="Example: penstock migrate data old/ORDERS/messages.jsonl --stream ORDERS")
def migrate_command(
    root: Dir,
    source: Source,
    stream: OneStream = None,
    account: IntoAccount = None,
    subjects: NewSubjects = None,
    as_json: Json = False,
) -> int:
    """Turn old messages.jsonl files into streams, with their sequences and times.

    The stream gets the name of the file's folder, unless --stream names another. The source is not changed.
    """
    from penstock.cli.migrate import migrate

    return migrate(root, source, stream, account, subjects or [], as_json)


app.add_typer(pipeline_app, name="pipeline")


def _version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        sys.stdout.write(f"penstock {version('penstock')}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, _option("--version", help="Show the version.", is_eager=True, callback=_version)] = False,
) -> None:
    """(The help text of the program is in `app`.)"""


def run(args: Sequence[str] | None) -> int:
    """Run a command; every expected error becomes one line on standard error."""
    try:
        code = app(args=list(args) if args is not None else None, prog_name="penstock", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        return _pipe_closed()
    except SystemExit as exit_:  # Typer's own answer to a closed pipe, also outside of its standalone mode
        return _pipe_closed() if exit_.code == 1 else int(exit_.code or 0)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except _ClickError as error:
        return _usage(error)
    except PenstockError as error:
        complain(str(error))
        return UNUSABLE
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        complain(f"{place}{error.strerror or error}")
        return UNUSABLE
    return code if isinstance(code, int) else OK


def _usage(error: Any) -> int:
    """A command that was typed wrong: print why, and where its help is."""
    text = error.format_message()
    context = getattr(error, "ctx", None)
    place = context.command_path if context is not None else "penstock"
    complain(f"{text.rstrip('.')}; see: {place} --help" if text else f"see: {place} --help")
    return UNUSABLE


def _pipe_closed() -> int:
    """The reader of standard output is gone: end, and keep the interpreter from complaining while it shuts down."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return PIPE_CLOSED
