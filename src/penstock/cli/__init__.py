"""The command line: `penstock serve`, and `inspect · verify · repair · export · import · erase · migrate`.

Page: docs/cli.md. Commands are thin wrappers around server/, db/, store/ and scan/; typer, rich and pyarrow are
imported when a command needs them.
"""

import signal
import sys
from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 damage or something refused, 2 the command could not run."""
    given = list(sys.argv[1:] if args is None else args)
    if given[:1] == ["serve"]:  # it parses flags as Go does and must start fast: no typer here
        if args is None:  # the process is this command: as in shim.py, an interrupt must not be lost in an import
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        from penstock.cli.serve import main as serve

        return serve(given[1:])
    from penstock.base.command_line import note_command
    from penstock.cli.app import run

    note_command("penstock", given)
    return run(given)


__all__ = ["main"]
