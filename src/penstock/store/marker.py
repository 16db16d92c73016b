"""The PENSTOCK file, by which a directory says that it is a store and of which format."""

from __future__ import annotations

import os

from penstock.errors import NewerFormat, NotAStore
from penstock.kernel.disk import Disk

MARKER = "PENSTOCK"
FORMAT = 1
MARKER_TEXT = f"penstock store, format {FORMAT}\n"


def check_marker(root: str, disk: Disk) -> bool:
    """Whether `root` is a store that we can read; NotAStore where it is something else, NewerFormat where too new."""
    marker = os.path.join(root, MARKER)
    if os.path.exists(root) and not os.path.isdir(root):
        raise NotAStore(root, "it is a file, not a directory")
    if os.path.isdir(root) and not os.access(root, os.R_OK | os.X_OK):
        raise NotAStore(root, "there is no permission to look into it")
    if not os.path.exists(marker):
        return False
    text = disk.read_file(marker).decode("ascii", "replace")
    if text != MARKER_TEXT:
        version = text.strip().rpartition(" ")[2]
        if text.startswith("penstock store, format ") and version.isdigit() and int(version) > FORMAT:
            raise NewerFormat(root, int(version))
        raise NotAStore(root, f"its {MARKER} file says {text[:40]!r}")
    return True


def require_marker(root: str, disk: Disk) -> None:
    """NotAStore unless `root` is a store already."""
    if not check_marker(root, disk):
        raise NotAStore(
            root, f"there is no {MARKER} file in it" if os.path.isdir(root) else "there is no such directory"
        )
