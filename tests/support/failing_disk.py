"""A disk that fails while a server runs: the calls that fail, and the errors they raise."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from penstock.testing import SPACE_KINDS, SYNC_KINDS, CrashDisk

FAULTS: dict[str, tuple[int, Collection[str], bool]] = {  # errno, kinds, short
    "sync": (errno.EIO, SYNC_KINDS, False),
    "full": (errno.ENOSPC, SPACE_KINDS, False),
    "short": (errno.ENOSPC, {"pwrite"}, True),
}


@contextmanager
def failing(disk: CrashDisk, fault: str, n: int = 1, persistent: bool = False) -> Iterator[None]:
    error, kinds, short = FAULTS[fault]
    disk.fail_at(n, error, kinds=kinds, short=short, persistent=persistent)
    try:
        yield
    finally:
        disk.clear_faults()
