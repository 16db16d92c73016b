"""Expvarz and stacks: the process's command line and memory, and the stacks of its threads."""

from __future__ import annotations

import gc
import sys
import threading
import traceback
from typing import Any

from penstock.base.command_line import shown_arguments
from penstock.server.monitor.process import resident_bytes, virtual_bytes


def make_expvarz() -> dict[str, Any]:
    """Under the names of Go's runtime, as far as they apply here."""
    counts = gc.get_stats()
    return {
        "memstats": {
            "Alloc": resident_bytes(),
            "Sys": virtual_bytes(),
            "NumGC": sum(one["collections"] for one in counts),
            "EnableGC": gc.isenabled(),
        },
        "cmdline": shown_arguments(),
    }


def stacks() -> bytes:
    """The stack of every thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread {ident} [{names.get(ident, 'unknown')}]:\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(parts).encode()
