from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from os import PathLike
from typing import Any

from typing_extensions import Buffer

from penstock.base.disk import Disk

KINDS: tuple[str, ...]
SYNC_KINDS: frozenset[str]
SPACE_KINDS: frozenset[str]
READ_KINDS: frozenset[str]
FAULT_KINDS: frozenset[str]

@dataclass(frozen=True, slots=True)
class Op:
    """One change or sync. `path` of a call on a descriptor is the file's name at that time."""

    index: int
    kind: str
    file: int  # survives a rename; 0 where the call has no file
    path: str | None
    new_path: str | None
    offset: int
    size: int
    data: bytes
    start: int  # of a sync: how long the log was when it began
    error: int  # of a failed sync or of a write cut short; else 0

class CrashDisk(Disk):
    """A real directory, the log of its changes, and the faults to come."""

    sync_delay_us: int
    def __init__(self, root: str | PathLike[str]) -> None: ...
    @property
    def root(self) -> str: ...
    @property
    def base(self) -> dict[str, bytes | None]: ...
    @property
    def base_files(self) -> dict[str, int]: ...
    @property
    def position(self) -> int: ...
    @property
    def ops(self) -> list[Op]: ...
    @property
    def marks(self) -> list[tuple[int, Any]]: ...
    @property
    def calls(self) -> dict[str, int]: ...
    @property
    def fired(self) -> int: ...
    def mark(self, value: object) -> None: ...
    def fail_at(
        self,
        n: int,
        error: int,
        *,
        kinds: Collection[str] | None = None,
        persistent: bool = False,
        short: bool = False,
    ) -> None: ...
    def clear_faults(self) -> None: ...
    def hold(self, *kinds: str) -> None: ...
    def holding(self, *kinds: str) -> AbstractContextManager[None]: ...
    def wait_held(self, count: int = 1, timeout_s: int = 30) -> None: ...
    def release(self) -> None: ...
    def map(self, fd: int, size: int) -> int: ...
    def unmap(self, address: int, size: int) -> None: ...
    def mapped(self, address: int, size: int) -> bytes: ...
    def store(self, fd: int, address: int, data: Buffer, offset: int = 0) -> None: ...
