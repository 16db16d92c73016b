"""The commands, their options and their help; how errors become one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any

import typer

from penstock.cli.output import INTERRUPTED, OK, PIPE_CLOSED, UNUSABLE, complain
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
    help="Look into, check, mend and move the streams of a store, offline. "
    "Reading commands work beside a running writer; writing ones take its lock, or say who has it.",
    epilog="Exit codes: 0 done · 1 damage found, or something refused · 2 the command could not run. "
    "`penstock COMMAND --help` has examples; the page is docs/cli.md.",
)

Dir = Annotated[str, typer.Argument(metavar="DIR", help="The store: the directory given to penstock.open().", show_default=False)]
Streams = Annotated[
    list[str] | None, typer.Option("--stream", "-s", metavar="S", help="Only this stream; may be repeated.", show_default=False)
]
OneStream = Annotated[str | None, typer.Option("--stream", "-s", metavar="S", help="The stream.", show_default=False)]
Subjects = Annotated[
    list[str] | None,
    typer.Option("--subject", metavar="F", help="Only these subjects, wildcards allowed: 'orders.eu.>'.", show_default=False),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="T", help="Stored at or after: 2026-11-01, 2026-11-01T12:00Z, -1h, '7d ago'.", show_default=False),
]
Until = Annotated[str | None, typer.Option("--until", metavar="T", help="Stored before; written like --since.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
CaptureSubjects = Annotated[
    list[str] | None,
    typer.Option(
        "--subjects", metavar="F", show_default=False,
        help="What a new stream captures; may be repeated. Without it: FIRST_TOKEN.> of each subject.",
    ),
]  # fmt: skip


class Form(str, Enum):
    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"


@app.command("inspect", epilog="Example: penstock inspect data --stream ORDERS --subject 'orders.eu.>'")
def inspect_command(
    root: Dir,
    stream: Streams = None,
    subject: Annotated[str | None, typer.Option("--subject", metavar="F", help="Count only these subjects.", show_default=False)] = None,
    top: Annotated[int, typer.Option("--top", metavar="N", min=0, help="How many subjects to list.")] = 10,
    as_json: Json = False,
) -> int:
    """Show streams, blocks, subjects, who writes now, and what was found damaged.

    Reads the index only, so it is quick on any size; `verify` reads everything.
    """
    from penstock.cli.inspect import inspect

    return inspect(root, stream or [], subject, top, as_json)


@app.command("verify", epilog="Example: penstock verify data && echo sound")
def verify_command(root: Dir, stream: Streams = None, as_json: Json = False) -> int:
    """Check every checksum of every file; name damage by file, offset and sequence.

    Exits with 1 on damage. Damage that a repair has recorded is told as known, and does not fail.
    """
    from penstock.cli.verify import verify

    return verify(root, stream or [], as_json)


@app.command("repair", epilog="Example: penstock repair data --dry-run, then penstock repair data")
def repair_command(
    root: Dir,
    stream: Streams = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Say what would be done; write nothing.")] = False,
    as_json: Json = False,
) -> int:
    """Keep everything readable, set the rest aside, print what was lost.

    Damaged bytes are copied to NNNNNN.blk.OFFSET.damaged; what they cost is recorded in the stream. Takes the write lock.
    """
    from penstock.cli.repair import repair

    return repair(root, stream or [], dry_run, as_json)


@app.command("export", epilog="Example: penstock export data -s ORDERS --format parquet --out orders.parquet --since -1h")
def export_command(
    root: Dir,
    form: Annotated[Form, typer.Option("--format", "-f", help="JSONL and CSV go to standard output without --out.")] = Form.jsonl,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="PATH", show_default=False, help="A file; for Parquet of several streams a directory."),
    ] = None,
    stream: Streams = None,
    subject: Subjects = None,
    since: Since = None,
    until: Until = None,
    start_seq: Annotated[int | None, typer.Option("--start-seq", metavar="N", min=0, help="From this sequence on.", show_default=False)] = None,
) -> int:
    """Write messages as JSONL, CSV or Parquet, in sequence order.

    JSONL and CSV have stream, seq, time_ns, subject, headers_b64, payload_b64; Parquet the columns of to_arrow().
    """
    from penstock.cli.export import export

    return export(root, stream or [], form.value, out, subject or [], since, until, start_seq)


@app.command("import", epilog="Example: penstock export old | penstock import new")
def import_command(
    root: Dir,
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="JSONL as export writes it; standard input without.", show_default=False)] = None,
    stream: Annotated[str | None, typer.Option("--stream", "-s", metavar="S", help="Into this stream, whatever the lines say.", show_default=False)] = None,
    subjects: CaptureSubjects = None,
    skip_existing: Annotated[bool, typer.Option("--skip-existing", help="Leave out sequences that the stream has passed.")] = False,
    as_json: Json = False,
) -> int:
    """Store JSONL lines with their sequences and times; makes the streams that are missing.

    Sequences go up, and above the stream's last; gaps stay gaps. A bad line stops the import before its batch.
    """
    from penstock.cli.intake import import_lines

    return import_lines(root, file, stream, subjects or [], skip_existing, as_json)


@app.command("erase", epilog="Example: penstock erase data --stream ORDERS 17 20-25")
def erase_command(
    root: Dir,
    seqs: Annotated[list[str], typer.Argument(metavar="SEQ", help="Sequences, or ranges such as 20-25.", show_default=False)],
    stream: OneStream = None,
    as_json: Json = False,
) -> int:
    """Delete messages and overwrite their headers and payload on disk.

    Afterwards no file of the store holds them. Copies made elsewhere (exports, backups) are yours to find.
    """
    from penstock.cli.erase import erase

    return erase(root, stream, seqs, as_json)


@app.command("migrate", epilog="Example: penstock migrate data old/ORDERS/messages.jsonl --stream ORDERS")
def migrate_command(
    root: Dir,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="messages.jsonl, its folder, or a folder of such folders.", show_default=False)],
    stream: OneStream = None,
    subjects: CaptureSubjects = None,
    as_json: Json = False,
) -> int:
    """Turn old messages.jsonl files into streams, with their sequences and times.

    The stream is called like the file's folder, unless --stream says otherwise. The source is left as it is.
    """
    from penstock.cli.migrate import migrate

    return migrate(root, source, stream, subjects or [], as_json)


@app.callback(invoke_without_command=False)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=lambda on: _version(on))] = False,
) -> None:
    """(The help of the whole is in `app`.)"""


def _version(on: bool) -> None:
    if on:
        import penstock

        sys.stdout.write(f"penstock {penstock.__version__}\n")
        raise typer.Exit


def run(args: Sequence[str] | None) -> int:
    """Run a command; every error that we expect is one line on standard error."""
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
    """A command that was typed wrong: what, and where to read on. Without any argument the help was shown already."""
    text = error.format_message()
    context = getattr(error, "ctx", None)
    place = context.command_path if context is not None else "penstock"
    complain(f"{text.rstrip('.')}; see: {place} --help" if text else f"see: {place} --help")
    return UNUSABLE


def _pipe_closed() -> int:
    """The reader has gone: so do we, and the interpreter must not complain while it shuts down."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return PIPE_CLOSED
