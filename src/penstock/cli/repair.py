"""penstock repair: keep everything readable, set the rest aside, report the losses."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from penstock.check.repair import Repair, plan_repair, repair_store
from penstock.check.store import bytes_of, check_root, chosen_folders
from penstock.cli.output import DAMAGED, OK, console, count, escape, inclusive, print_json, progress, short_path
from penstock.cli.verify import check_facts, print_check
from penstock.store.open.report import format_ranges


def repair(root: str, names: Sequence[str], account: str | None, dry_run: bool, as_json: bool) -> int:
    """Repair a store; exit code 1 when damage remains (or, with dry_run, when there is any)."""
    check_root(os.path.abspath(root))  # reports a missing store before the progress bar starts
    total = bytes_of(chosen_folders(os.path.abspath(root), names or None, account))
    with progress("checking", total) as advance:
        found = (plan_repair if dry_run else repair_store)(root, names or None, account, advance)
    if as_json:
        print_json(_facts(found))
    else:
        _print(found)
    return OK if (found.after or found.before).is_ok and not found.failed else DAMAGED


def _facts(found: Repair) -> dict[str, Any]:
    return {
        "store": found.before.root,
        "dry_run": found.after is None,
        "steps": [{"stream": step.stream, "file": step.path, "text": step.text} for step in found.steps],
        "failed": found.failed,
        "lost": {name: inclusive(spans) for name, spans in found.lost.items()},
        "before": check_facts(found.before),
        "after": check_facts(found.after) if found.after is not None else None,
    }


def _print(found: Repair) -> None:
    out, root = console(), found.before.root
    if not found.before.streams and not found.steps:
        out.print("there are no streams here: nothing to repair")
        return
    if not found.steps and found.before.is_ok:
        out.print("[green]nothing to repair[/]")
    elif found.after is None:
        out.print(f"[bold]would do[/] ({count(len(found.steps), 'step')}; nothing was written)")
    for step in found.steps:
        place = escape(short_path(step.path, root))
        out.print(f"  {place}: {escape(step.text.replace(root + os.sep, ''))}", soft_wrap=True)
    for name, spans in found.lost.items():
        number = sum(stop - start for start, stop in spans)
        verb = "would be recorded as lost" if found.after is None else "lost"
        out.print(
            f"[red]{verb}[/]  {escape(name)}: {count(number, 'message')}: {format_ranges(spans, 32)}", soft_wrap=True
        )
    if found.after is not None:
        out.print()
        print_check(found.after)
    for name, why in found.failed.items():
        out.print(f"[red]not repaired[/]  {escape(name)}: {escape(why)}", soft_wrap=True)
