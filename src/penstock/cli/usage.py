"""What the commands share: opening a store, naming streams and times, and the error of a wrong command."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from penstock.db.database import Database, open_database
from penstock.db.stream import Stream
from penstock.duration import parse_time
from penstock.errors import PenstockError
from penstock.kernel.disk import Disk
from penstock.kernel.subject import explain_filter
from penstock.store.marker import require_marker


class UsageError(PenstockError):
    """The command cannot be run as it was given: one line says why, and what to write instead."""


def open_reading(root: str) -> Database:
    """Open a store beside whoever writes to it."""
    return open_database(root, read_only=True)


def open_writing(root: str, *, durability: str = "disk", create: bool = False) -> Database:
    """Open a store for writing; StoreLocked names who has it. Only `create` makes one where there is none."""
    if not create:  # a command that writes to a store never makes one by a slip of the keyboard
        require_marker(os.path.abspath(root), Disk())
    return open_database(root, durability=durability)


def streams_of(db: Database, names: Sequence[str]) -> list[Stream]:
    """The streams that were named; all without a name."""
    return [db.get_stream(name) for name in (dict.fromkeys(names) or db.streams())]


def one_stream(db: Database, name: str | None) -> Stream:
    """The stream that was named, or the only one there is."""
    if name is not None:
        return db.get_stream(name)
    names = db.streams()
    if len(names) == 1:
        return db.get_stream(names[0])
    raise UsageError(f"which stream? Name it with --stream; there are: {', '.join(names) or 'none'}")


def check_filters(filters: Sequence[str], option: str) -> list[str]:
    """Subject filters given as an option."""
    for one in filters:
        if (why := explain_filter(one)) is not None:
            raise UsageError(
                f"{option} {one!r}: {why}; tokens are split by dots, * stands for one and > for all that follow"
            )
    return list(filters)


def parse_moment(text: str | None, option: str) -> int | None:
    """Unix nanoseconds of a time given as an option; digits alone are Unix nanoseconds."""
    if text is None:
        return None
    try:
        return parse_time(int(text) if text.isdigit() else text, time.time_ns())
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
