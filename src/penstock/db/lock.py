"""WriteLock: one writer per store. A second writer is told who holds the lock."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
import weakref

from penstock.base.command_line import redact, shown_command
from penstock.errors import ReadOnlyStore, StoreLocked


class WriteLock:
    """An flock on DIR/LOCK, held until `release` or the end of the process."""

    def __init__(self, root: str) -> None:
        path = os.path.join(root, "LOCK")
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError as error:
            raise ReadOnlyStore(root, "no permission to write there; read_only=True opens it for reading") from error
        except OSError as error:
            raise ReadOnlyStore(root, f"{error.strerror}; read_only=True opens it for reading") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = read_holder(self._fd)
            os.close(self._fd)
            raise StoreLocked(root, holder) from error
        self._about: dict[str, object] = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "command": shown_command(),
        }
        _held.add(self)
        self.tell()

    def tell(self, **more: object) -> None:
        """Write this process's details into LOCK, for a process that finds the lock taken."""
        self._about |= more
        with contextlib.suppress(OSError):  # a full disk: the lock still holds, but its file does not name the holder
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, json.dumps(self._about).encode() + b"\n", 0)

    def release(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, 0)
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            self._forget()

    def _forget(self) -> None:
        """Close the descriptor. A forked child also does this: the lock stays the parent's, and must not outlive it in
        the child."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_held: weakref.WeakSet[WriteLock] = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_held):
        lock._forget()


os.register_at_fork(after_in_child=_after_fork)


def read_holder(fd: int) -> dict[str, object]:
    """What LOCK records about the writer; empty if it cannot be read."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(os.pread(fd, 4096, 0))
        if isinstance(found, dict):
            if isinstance(found.get("command"), str):  # older versions wrote passwords, too
                found["command"] = " ".join(redact(found["command"].split(" ")))
            return found
    return {}


def holder_of(root: str) -> dict[str, object] | None:
    """The process that writes to a store now; None if there is none."""
    try:
        fd = os.open(os.path.join(root, "LOCK"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return read_holder(fd)
    else:
        return None
    finally:
        os.close(fd)
