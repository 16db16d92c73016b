"""Expvarz and stacks: what the process was started with, what memory it uses, and where its threads are."""

from __future__ import annotations

import gc
import re
import sys
import threading
import traceback
from typing import Any

from penstock.server.monitor.process import resident_bytes, virtual_bytes

_SECRET = re.compile("-{1,2}(user|pass|auth)")


def make_expvarz() -> dict[str, Any]:
    """Under the names of Go's runtime as far as they mean something here."""
    counts = gc.get_stats()
    return {
        "memstats": {
            "Alloc": resident_bytes(),
            "Sys": virtual_bytes(),
            "NumGC": sum(one["collections"] for one in counts),
            "EnableGC": gc.isenabled(),
        },
        "cmdline": _command_line(sys.argv),
    }


def _command_line(arguments: list[str]) -> list[str]:
    """The command line without the secrets in it."""
    shown: list[str] = []
    for argument in arguments:
        flag, separator, _ = argument.partition("=")
        if shown and _SECRET.fullmatch(shown[-1]):
            shown.append("[REDACTED]")
        elif separator and _SECRET.fullmatch(flag):
            shown.append(f"{flag}=[REDACTED]")
        else:
            shown.append(argument)
    return shown


def stacks() -> bytes:
    """Where every thread is."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread {ident} [{names.get(ident, 'unknown')}]:\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(parts).encode()
