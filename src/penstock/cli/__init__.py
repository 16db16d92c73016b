"""The command line: `penstock inspect · verify · repair · export · import · erase · migrate`. Page: docs/cli.md.

Thin faces over db/, store/ and scan/. typer, rich and pyarrow are imported when a command needs them.
"""

from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 damage or something refused, 2 the command could not run."""
    from penstock.cli.app import run

    return run(args)


__all__ = ["main"]
