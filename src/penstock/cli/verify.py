"""penstock verify: check every checksum of a store, and name each damaged place by file, offset and sequence."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from penstock.check.problem import Problem, StoreCheck
from penstock.check.store import bytes_of, check_root, check_store, chosen_folders
from penstock.cli.output import (
    DAMAGED,
    OK,
    console,
    count,
    escape,
    inclusive,
    print_json,
    print_table,
    progress,
    short_path,
    size,
    table,
)


def verify(root: str, names: Sequence[str], account: str | None, as_json: bool) -> int:
    """Check a store; exit code 1 when there is damage that no repair has recorded."""
    check_root(os.path.abspath(root))  # reports a missing store before the progress bar starts
    total = bytes_of(chosen_folders(os.path.abspath(root), names or None, account))
    with progress("verifying", total) as advance:
        found = check_store(root, names or None, account, advance=advance)
    if as_json:
        print_json(check_facts(found))
    else:
        print_check(found)
    return OK if found.is_ok else DAMAGED


def problem_facts(problem: Problem) -> dict[str, Any]:
    return {
        "kind": problem.kind,
        "file": problem.path,
        "offset": problem.offset,
        "size": problem.size,
        "seqs": inclusive(problem.seqs),
        "known": problem.is_known,
        "text": problem.text,
    }


def check_facts(found: StoreCheck) -> dict[str, Any]:
    """The report for JSON; ranges of sequences are [first, last]."""
    return {
        "store": found.root,
        "ok": found.is_ok,
        "writer": found.holder,
        "damage": len(found.damage),
        "known": len(found.known),
        "seconds": round(found.seconds, 3),
        "problems": [problem_facts(problem) for problem in found.problems],
        "streams": [
            {
                "account": stream.folder.account,
                "name": stream.name,
                "blocks": stream.blocks,
                "messages": stream.messages,
                "controls": stream.controls,
                "bytes": stream.bytes,
                "lost": inclusive(stream.lost),
                "problems": [problem_facts(problem) for problem in stream.problems],
                "notes": stream.notes,
            }
            for stream in found.streams
        ],
    }


def print_check(found: StoreCheck, more: str = "") -> None:
    """The report as text; `more` is printed beside bytes and time."""
    out = console()
    made = table(
        "stream",
        "blocks",
        "records",
        "bytes",
        "damage",
        "known",
        right=("blocks", "records", "bytes", "damage", "known"),
    )
    for name, stream in found.shown():
        damage = str(len(stream.damage))
        made.add_row(
            escape(name), f"{stream.blocks:,}", f"{stream.messages + stream.controls:,}", size(stream.bytes),
            f"[red]{damage}[/]" if stream.damage else damage, str(len(stream.known)),
        )  # fmt: skip
    if found.streams:
        print_table(out, made)
    for problem in found.damage:
        _print_problem(problem, found.root, "red")
    for problem in found.known:
        _print_problem(problem, found.root, "yellow")
    for stream in found.streams:
        for note in stream.notes:
            out.print(f"[dim]note: {escape(note.replace(found.root + '/', ''))}[/]", soft_wrap=True)
    total = sum(stream.bytes for stream in found.streams)
    rate = f"{size(total)} in {found.seconds:.1f} s{more}"
    if found.holder is not None:
        rate += f"; beside its writer (pid {found.holder.get('pid', '?')}), up to what was committed"
    if not found.is_ok:
        out.print(
            f"[red]damaged:[/] {count(len(found.damage), 'place')} ({rate}). "
            "`penstock repair` keeps all that is readable and records the rest.",
            soft_wrap=True,
        )
    elif not found.streams:
        out.print("there are no streams here: nothing to check")
    elif found.known:
        out.print(f"[green]ok[/]: nothing new; {count(len(found.known), 'known damage', 'known damages')} ({rate})")
    else:
        out.print(f"[green]ok[/]: every checksum holds ({rate})")


def _print_problem(problem: Problem, root: str, colour: str) -> None:
    label = "known damage" if problem.is_known else problem.kind
    where = escape(short_path(problem.path, root))
    place = f" at byte {problem.offset}" if problem.size else ""
    console().print(f"[{colour}]{label}[/]  {where}{place}: {escape(problem.text)}", soft_wrap=True)
