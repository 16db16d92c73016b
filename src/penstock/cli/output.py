"""Output of commands: results on standard output, everything else on standard error, colour only on a terminal."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.base.duration import format_time

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

OK, DAMAGED, REFUSED, UNUSABLE, INTERRUPTED, PIPE_CLOSED = 0, 1, 1, 2, 130, 141
NAME_WIDTH = 12  # minimum width of a column of text; longer text is folded
Advance = Callable[[int], None]


def console(width: int | None = None) -> Console:
    """A console on standard output; without colour and 80 columns wide when it is not a terminal."""
    from rich.console import Console

    return Console(highlight=False, markup=True, emoji=False, soft_wrap=False, width=width)


def table(*columns: str, title: str = "", right: Sequence[str] = ()) -> Table:
    """A table with thin rules; the columns named in `right` hold numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(
        box=SIMPLE_HEAD, title=title or None, title_justify="left", title_style="bold", pad_edge=False, padding=(0, 1)
    )
    for name in columns:
        if name in right:
            made.add_column(name, justify="right", no_wrap=True)
        else:
            made.add_column(name, overflow="fold")
    return made


def print_table(out: Console, made: Table) -> None:
    """Print a table; wider than the console if names would otherwise not fit beside the numbers, or numbers be cut."""
    from rich.text import Text

    width = 0
    for column in made.columns:
        cells = [column.header, *column.cells]
        widest = max(Text.from_markup(cell).cell_len if isinstance(cell, str) else 0 for cell in cells)
        width += 3 + (widest if column.no_wrap else min(widest, NAME_WIDTH))  # 3: padding, and the rule between columns
    (out if width <= out.width else console(width)).print(made)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=True) + "\n")


def complain(text: str) -> None:
    """One line on standard error."""
    one_line = " ".join(text.split("\n"))
    sys.stderr.write(f"penstock: {one_line}\n")


def escape(text: str) -> str:
    """Arbitrary text made safe for a rich table: no markup, no control characters."""
    from rich.markup import escape as escape_markup

    return escape_markup("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text))


@contextmanager
def progress(label: str, total: int, unit: str = "bytes") -> Iterator[Advance]:
    """A progress bar on standard error while the block runs; nothing if that is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    amount = DownloadColumn(binary_units=True) if unit == "bytes" else MofNCompleteColumn()
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task(label, total=total or None)
        yield lambda count: bar.advance(task, count)


def count(number: int, one: str, many: str = "") -> str:
    """ "1 message", "1,200 messages"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(number: float) -> str:
    """A size for display: "812 B", "7.9 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def moment(ns: int) -> str:
    """A time to the second, UTC; "-" if there is none."""
    return format_time(ns // 10**9 * 10**9).replace("T", " ").rstrip("Z") if ns else "-"


def inclusive(ranges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Half-open ranges for JSON: first and last of each."""
    return [[start, stop - 1] for start, stop in ranges]


def short_path(path: str, root: str) -> str:
    """A file's path relative to the store."""
    relative = os.path.relpath(path, root)
    return path if relative.startswith("..") else relative
