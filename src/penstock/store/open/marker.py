"""The PENSTOCK file, by which a directory says that it is a store and of which format. Rules: docs/format.md.

It is a help for people and a warning for older programs: where it is missing or damaged, the streams themselves say
that this is a store, and of which version.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from penstock.base.disk import Disk
from penstock.base.xxh64 import xxh64_of
from penstock.errors import CorruptBlock, NewerFormat, NotAStore
from penstock.format.block_header import decode_front
from penstock.format.constants import RECORDS_START
from penstock.format.identity import decode_identity
from penstock.format.paths import StreamPaths, parse_block_name
from penstock.format.small_file import is_displaced, read_small, set_aside
from penstock.store.open.report import Report

MARKER = "PENSTOCK"
FORMAT = 1
MARKER_TEXT = f"penstock store, format {FORMAT}\n"
SIZE_MAX = 4096
MISSING = "it is missing, though there are streams"
_NEWER = re.compile(rb"(penstock store, format (\d{1,9})\n)xxh64 ([0-9a-f]{16})\n")
_BESIDE = ("LOCK", "$G", "lost+found", "jetstream")


def check_marker(root: str, disk: Disk, report: Report | None = None) -> bool:
    """Whether `root` is a store that we can read; NotAStore where it is something else, NewerFormat where too new.

    A marker that does not hold is told in `report`.
    """
    if not os.path.isdir(root):
        if os.path.exists(root):
            raise NotAStore(root, "it is a file, not a directory")
        return False
    if not os.access(root, os.R_OK | os.X_OK):
        raise NotAStore(root, "there is no permission to look into it")
    damage = marker_damage(root, disk)
    if damage == MISSING and not holds_streams(root, disk):
        return False
    if damage not in ("", MISSING) and not holds_streams(root, disk) and not _is_bare(root):
        raise NotAStore(root, f"its {MARKER} file does not hold: {damage}")
    if damage and report is not None:
        report.add("rebuilt", os.path.join(root, MARKER), f"{damage}; its streams say enough")
    return True


def require_marker(root: str, disk: Disk, report: Report | None = None) -> None:
    """NotAStore unless `root` is a store already."""
    if not check_marker(root, disk, report):
        raise NotAStore(
            root, f"there is no {MARKER} file in it" if os.path.isdir(root) else "there is no such directory"
        )


def marker_damage(root: str, disk: Disk) -> str:
    """What is wrong with the marker: "" when it holds. NewerFormat where it holds and is of a newer version.

    A newer one carries a checksum, so that no flipped bit of ours is taken for one.
    """
    path = os.path.join(root, MARKER)
    try:
        data = read_small(disk, path, SIZE_MAX)
    except CorruptBlock as damage:
        return damage.reason
    if data is None:
        return MISSING
    if data == MARKER_TEXT.encode():
        return "a link stands in its place" if is_displaced(path) else ""
    newer = _NEWER.fullmatch(data)
    if newer is not None and newer[3] == b"%016x" % xxh64_of(newer[1]) and int(newer[2]) > FORMAT:
        raise NewerFormat(root, int(newer[2]))
    return f"it says {data[:40].decode('ascii', 'backslashreplace')!r}, not {MARKER_TEXT.strip()!r}"


def write_marker(root: str, disk: Disk) -> None:
    """Have the marker say what it should; one that does not hold is kept as `PENSTOCK.damaged`."""
    damage = marker_damage(root, disk)
    if damage:
        path = os.path.join(root, MARKER)
        set_aside(disk, path)
        disk.write_file(path, MARKER_TEXT.encode())


def holds_streams(root: str, disk: Disk) -> bool:
    """Whether a stream's configuration or block says that this is a store; NewerFormat if one of them is too new."""
    return sum(_is_stream(disk, StreamPaths(folder)) for folder in _folders(root, 2)) > 0


def may_lie_beside(name: str) -> bool:
    """What a directory may hold in which a store is made: what is left of one that was begun, what a file system or a
    version control keeps there, and a server's own files. nats-server's streams are in its `jetstream`: it stays."""
    return (
        name in _BESIDE or is_begun(name) or name.startswith(".") or name.endswith((".conf", ".log", ".pid", ".ports"))
    )


def is_begun(name: str) -> bool:
    """A marker that a process was writing when it was killed: the store was just being made."""
    return name.startswith(f"{MARKER}.") and name.endswith(".tmp")


def _is_bare(root: str) -> bool:
    """Nothing is there but what a store without a stream has."""
    return all(
        may_lie_beside(name) or name == MARKER or name.startswith(f"{MARKER}.") or _is_empty(os.path.join(root, name))
        for name in os.listdir(root)
    )


def _is_empty(path: str) -> bool:
    """An account's folder without a stream."""
    return os.path.isdir(path) and not os.path.islink(path) and not os.listdir(path)


def _folders(root: str, depth: int) -> Iterator[str]:
    """The folders so many levels below `root`, as far as we may look into those above them."""
    try:
        found = sorted(entry.path for entry in os.scandir(root) if entry.is_dir())
    except OSError:
        return
    for path in found:
        if depth == 1:
            yield path
        else:
            yield from _folders(path, depth - 1)


def _is_stream(disk: Disk, paths: StreamPaths) -> bool:
    for path in (paths.config, paths.config_copy):
        try:
            data = read_small(disk, path)
        except CorruptBlock:
            continue
        if data is not None and decode_identity(data, path) is not None:
            return True
    try:
        names = sorted(filter(parse_block_name, os.listdir(paths.blocks)))
    except OSError:
        return False
    return any(_has_header(disk, os.path.join(paths.blocks, name)) for name in names)


def _has_header(disk: Disk, path: str) -> bool:
    try:
        fd = disk.open(path)
    except OSError:
        return False
    try:
        return decode_front(disk.read(fd, RECORDS_START), path) is not None
    except OSError:
        return False
    finally:
        disk.close(fd)
