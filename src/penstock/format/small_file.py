"""Small files: how one is read that may be damaged, and how it is moved out of the way.

A small file is everything in a store but the blocks. None of them may keep a stream from being opened: one that cannot
be read counts as damaged, and whoever opens the store for writing renames it to `*.damaged` and goes on without it.
"""

from __future__ import annotations

import errno
import os
import re
import stat

from penstock.base.disk import Disk
from penstock.errors import CorruptBlock

# What the system says of a file that it will not read the next time either. Others (no memory, too many open files)
# pass: they are errors of the open, not of the file.
UNREADABLE = frozenset(
    {
        errno.EACCES, errno.EPERM, errno.EIO, errno.EISDIR, errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.ENODEV,
        errno.EBADMSG, errno.EUCLEAN, errno.ENODATA, errno.EILSEQ,
    }
)  # fmt: skip


_TEMPORARY = re.compile(r"\.\d+-[0-9a-f]{8}\.tmp$")


def read_small(disk: Disk, path: str, size_max: int = 1 << 62) -> bytes | None:
    """The bytes of a small file; None when there is none. CorruptBlock says why it cannot be read."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):  # a pipe would have us wait for a writer
            raise CorruptBlock(path, 0, f"{_kind(found.st_mode)} stands in its place")
        if found.st_size > size_max:
            raise CorruptBlock(path, 0, f"it has {found.st_size} bytes, more than it may")
        return disk.read_file(path)
    except FileNotFoundError:
        if os.path.islink(path):
            raise CorruptBlock(path, 0, "a link to nothing stands in its place") from None
        return None
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        raise CorruptBlock(path, 0, f"it cannot be read: {error.strerror}") from error


def is_displaced(path: str) -> bool:
    """Whether something else than a file of its own stands at `path`: a directory, a link, a pipe."""
    try:
        return not stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def set_aside(disk: Disk, path: str) -> str:
    """Rename what stands at `path` so that nobody reads it: its new name, "" when there is nothing."""
    if not os.path.lexists(path):
        return ""
    target = free_name(f"{path}.damaged")
    disk.rename(path, target)
    disk.sync_folder(os.path.dirname(path))
    return target


def temporary_files(folder: str) -> list[str]:
    """What killed processes have left there of small files that they were writing (`Disk.write_file`)."""
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if _TEMPORARY.search(name)]


def free_name(path: str) -> str:
    """A name that ends in `.damaged` and that nothing has yet."""
    stem, number, target = path.removesuffix(".damaged"), 1, path
    while os.path.lexists(target):
        number += 1
        target = f"{stem}.{number}.damaged"
    return target


def _kind(mode: int) -> str:
    return "a directory" if stat.S_ISDIR(mode) else "something that is not a file"
