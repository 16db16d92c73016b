"""StoreError: the files of a store are damaged, locked or out of reach. The operator is told."""

from __future__ import annotations

import errno as errno_names
import os
from collections.abc import Mapping
from typing import Any

from penstock.errors.base import PenstockError, rebuild

__all__ = [
    "AccountNotFound",
    "AmbiguousStream",
    "CorruptBlock",
    "DiskFull",
    "ForkedHandle",
    "NewerFormat",
    "NotAStore",
    "ReadOnlyStore",
    "StoreClosed",
    "StoreError",
    "StoreLocked",
    "WriteFailed",
]


class StoreError(PenstockError):
    """The files of a store are damaged, locked or out of reach."""

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), self.__dict__ | {"args": self.args})


class CorruptBlock(StoreError):
    """Damage at one place in a file. The messages there are lost; the others are not."""

    def __init__(self, path: str | os.PathLike[str], offset: int, reason: str) -> None:
        self.path, self.offset, self.reason = os.fspath(path), offset, reason
        super().__init__(f"{self.path} at byte {offset}: {reason}")


class StoreLocked(StoreError):
    """Another process or handle holds the write lock; `holder` has its pid, host, since and command, where known."""

    def __init__(self, path: str | os.PathLike[str], holder: Mapping[str, Any]) -> None:
        self.path, self.holder = os.fspath(path), dict(holder)
        pid, host, since, command = (self.holder.get(key) or "unknown" for key in ("pid", "host", "since", "command"))
        if (pid, host) == (os.getpid(), os.uname().nodename):
            super().__init__(
                f"{self.path} is open for writing in this process already, since {since}: use that database, or close "
                "it first (`with penstock.open(...)` does); read_only=True opens it for reading beside it"
            )
            return
        super().__init__(
            f"{self.path} is open for writing in another process: pid {pid} on host {host} since {since}, "
            f"command {command}. Close it there (or stop that process), or open the store read-only here"
        )


class StoreClosed(StoreError):
    """The store, or this handle of it, was closed."""

    def __init__(self, what: str = "the store is closed") -> None:
        super().__init__(what)


class ReadOnlyStore(StoreError):
    """A write to a store that was opened for reading, or lies in a directory that cannot be written."""

    def __init__(self, path: str | os.PathLike[str], why: str = "it was opened read-only") -> None:
        self.path, self.why = os.fspath(path), why
        super().__init__(f"cannot write to {self.path}: {why}")


class WriteFailed(StoreError):
    """The operating system refused a disk call. Only durable messages were acknowledged; writes resume later."""

    def __init__(self, op: str, path: str | os.PathLike[str], errno: int) -> None:
        self.op, self.path, self.errno = op, os.fspath(path), errno
        name = errno_names.errorcode.get(errno, f"errno {errno}")
        super().__init__(f"{op} of {self.path} failed: {os.strerror(errno)} ({name})")


class DiskFull(WriteFailed):
    """No space is left, or the quota is used up."""

    def __init__(self, op: str, path: str | os.PathLike[str], errno: int = errno_names.ENOSPC) -> None:
        super().__init__(op, path, errno)


class NewerFormat(StoreError):
    """A newer version of Penstock wrote the file; this version leaves it unchanged."""

    def __init__(self, path: str | os.PathLike[str], version: int) -> None:
        self.path, self.version = os.fspath(path), version
        super().__init__(f"{self.path} has format version {version}, newer than this Penstock: upgrade to read it")


class NotAStore(StoreError):
    """The path holds no store, and none can be created there."""

    def __init__(self, path: str | os.PathLike[str], why: str) -> None:
        self.path, self.why = os.fspath(path), why
        super().__init__(f"{self.path} is not a Penstock store: {why}")


class AccountNotFound(StoreError):
    """The store has no account of this name."""


class AmbiguousStream(StoreError):
    """Several accounts of the store have a stream of this name: name the account, too."""


class ForkedHandle(StoreError):
    """The process forked after opening the store: two writers on one file would corrupt it."""

    def __init__(self, what: str = "the store") -> None:
        super().__init__(f"{what} was opened before this process forked: open it again in the child")
