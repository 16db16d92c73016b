"""Folders that a killed process left in an account: a stream that was being created, or deleted.

A stream exists from the moment its first config.json has its name, and is acknowledged later. Before that its folder
holds at most an empty `blocks` and temporary files. It is deleted by one rename, and what is left is rubbish. The next
open for writing removes both.
"""

from __future__ import annotations

import os

from penstock.base.disk import Disk

DELETED = ".deleted"  # no stream's name has a dot


def is_unfinished(folder: str) -> bool:
    """Whether nothing is in it but what a stream has before it exists."""
    try:
        names = os.listdir(folder)
        blocks = os.listdir(os.path.join(folder, "blocks")) if "blocks" in names else []
    except OSError:
        return False  # a file, or something that we may not look into
    return all(name == "blocks" or _is_temporary(name) for name in names) and all(map(_is_temporary, blocks))


def remove_unfinished(disk: Disk, folder: str) -> None:
    blocks = os.path.join(folder, "blocks")
    for place in (blocks, folder):
        if os.path.isdir(place):
            for name in filter(_is_temporary, sorted(os.listdir(place))):
                disk.unlink(os.path.join(place, name))
            disk.rmdir(place)


def _is_temporary(name: str) -> bool:
    return name.startswith(("config.json.", "config.copy.json.")) and name.endswith(".tmp")
